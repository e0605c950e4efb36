//! Arguments of `manifests`.

use std::path::PathBuf;

use clap::Args;
use plan::{ShardOf, StartAt};

#[derive(Args, Debug)]
pub struct Manifests {
    /// Plan file of the whole load
    pub plan: PathBuf,
    /// Number of shards, each a pod or a task
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(ShardOf::COUNT_MAX)))]
    #[arg(allow_hyphen_values = true)]
    pub shards: u32,
    /// Begin the load at this time, the same for all shards; leave time to schedule all of them and to pull the image
    #[arg(long, value_name = "TIME")]
    pub start_at: StartAt,
    /// Print a batch script of Slurm, an array with a task for each shard, instead of a Kubernetes job
    #[arg(long)]
    pub slurm: bool,
    /// Container image of the pods [default: yamabiko, of this version]
    #[arg(long, value_name = "NAME", conflicts_with = "slurm")]
    pub image: Option<String>,
    /// Persistent volume claim on which the pods store their runs; it must exist and be writable by all of them
    #[arg(long, value_name = "CLAIM", default_value = "yamabiko-runs", conflicts_with = "slurm")]
    pub results: String,
}
