//! Arguments of `merge`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Merge {
    /// Runs of the shards (bench --shard), in any order: name, start of its name, or folder
    #[arg(required = true)]
    pub runs: Vec<String>,
    /// Write the merged run to this folder, which must not exist [default: a new run in the run store]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Merge also if shards are missing: the result is suspect instead of invalid
    #[arg(long)]
    pub allow_missing: bool,
    /// Set the merged run's name, a part of its folder's name
    #[arg(long, default_value = "merge")]
    pub name: String,
    /// Exit with 3 also if the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
}
