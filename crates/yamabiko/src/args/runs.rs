//! Arguments of `runs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use units::Bytes;

use crate::verb::runs::{Condition, TimeSpan};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Runs {
    #[command(flatten)]
    pub shown: Shown,
    #[command(subcommand)]
    pub what: Option<RunsWhat>,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Shown {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Read the folders instead of the catalogue; slow with many runs, and never necessary
    #[arg(long)]
    pub no_catalogue: bool,
}

#[derive(Debug, Subcommand)]
pub enum RunsWhat {
    /// List the runs that meet all conditions
    #[command(visible_alias = "list")]
    Search(Search),
    /// Add tags to a run, for `runs search --tag`
    Tag(Tag),
    /// Remove tags from a run
    Untag(Untag),
    /// Delete runs with all their data
    Delete(Delete),
    /// Write runs to one file, for `runs import` on another machine
    Export(Export),
    /// Import the runs in a file of `runs export`, all or none
    Import(Import),
    /// Show the disk usage of runs and their tables
    Du(Du),
    /// Rebuild the catalogue of runs from their folders
    Rebuild,
    /// List the columns of every Parquet file, with units
    Columns,
    /// Print the names of all runs, for shell completion
    #[command(hide = true)]
    Names,
}

#[derive(Args, Debug)]
pub struct Search {
    /// Words that all occur in the run's name, command, URL or tags; case is ignored
    pub words: Vec<String>,
    /// With this tag; repeated: with all of them
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// With this verdict
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub verdict: Option<VerdictName>,
    /// In this state
    #[arg(long, value_enum, value_name = "STATE")]
    pub state: Option<StateName>,
    /// Made by this verb: bench, capacity ..
    #[arg(long, value_name = "VERB")]
    pub verb: Option<String>,
    /// Started at this time or later, in UTC: 2026-11-20, 2026-11-20T09:30; or this long ago: 7d, 12h
    #[arg(long, value_name = "TIME")]
    pub since: Option<TimeSpan>,
    /// Started at this time or earlier; a day counts to its end
    #[arg(long, value_name = "TIME")]
    pub until: Option<TimeSpan>,
    /// With figures that meet this: 'p99 > 200ms', 'errors >= 1%', 'achieved < 1000/s'; several separated by commas. Figures:
    /// mean, p50, p75, p90, p95, p99, p99.9, p99.99, max (response times), errors, offered, achieved, duration
    #[arg(long = "where", value_name = "CONDITION", value_delimiter = ',')]
    pub conditions: Vec<Condition>,
    /// Only the last COUNT of them
    #[arg(long, value_name = "COUNT")]
    pub last: Option<usize>,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerdictName {
    Valid,
    Suspect,
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateName {
    Finished,
    Running,
    Unfinished,
    Unreadable,
}

#[derive(Args, Debug)]
pub struct Tag {
    /// Run: its name, the start of its name, its folder, or `last`
    pub run: String,
    /// Tags; without any, the run's tags are printed
    pub tags: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Untag {
    /// Run: its name, the start of its name, its folder, or `last`
    pub run: String,
    /// Tags to remove
    #[arg(required_unless_present = "all")]
    pub tags: Vec<String>,
    /// Remove all tags
    #[arg(long, conflicts_with = "tags")]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// Runs: names, starts of names, folders, or `last`
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Also the runs that they made, such as the trials of a capacity search
    #[arg(long)]
    pub trials: bool,
}

#[derive(Args, Debug)]
pub struct Export {
    /// Runs, then the file (`.tar.gz`); `-` is standard output
    #[arg(required = true, num_args = 2.., value_names = ["RUN", "FILE"])]
    pub runs_and_file: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Import {
    /// File of `runs export`; `-` is standard input
    pub file: PathBuf,
    /// Rename a run whose name exists already, instead of refusing it
    #[arg(long)]
    pub rename: bool,
    /// Limit of the unpacked size [default: 64MiB plus a hundred times the file's size, at most 16GiB]
    #[arg(long, value_name = "BYTES")]
    pub limit: Option<Bytes>,
}

#[derive(Args, Debug)]
pub struct Du {
    /// Runs [default: all]
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
