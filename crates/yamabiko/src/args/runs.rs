//! `yamabiko runs`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use units::Bytes;

use crate::verb::runs::{Condition, Moment};

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
    /// Read the folders, not the catalogue: slow where there are many, and never needed
    #[arg(long)]
    pub no_catalogue: bool,
}

#[derive(Debug, Subcommand)]
pub enum RunsWhat {
    /// List the runs for which all that is said here holds
    #[command(visible_alias = "list")]
    Search(Search),
    /// Give a run tags: words by which `runs search --tag` finds it
    Tag(Tag),
    /// Take tags from a run
    Untag(Untag),
    /// Remove runs and all that they recorded
    Delete(Delete),
    /// Write runs into one file that `runs import` reads on another machine
    Export(Export),
    /// Take runs out of such a file into the book: all of them or none
    Import(Import),
    /// How much of the disk the runs take, and which of their tables
    Du(Du),
    /// Make the catalogue, by which long lists are quick, anew from the runs' folders
    Rebuild,
    /// The columns of every Parquet file, with their units
    Columns,
    /// The names of all runs, for shells that complete them
    #[command(hide = true)]
    Names,
}

#[derive(Args, Debug)]
pub struct Search {
    /// Words, each of which stands in the run's name, command, URL or tags; capitals make no difference
    pub words: Vec<String>,
    /// With this tag; given more than once, with all of them
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
    /// Begun at this moment or later: 2026-11-20, 2026-11-20T09:30, in UTC as the names of runs are; or 7d, 12h: so long ago
    #[arg(long, value_name = "MOMENT")]
    pub since: Option<Moment>,
    /// Begun at this moment or earlier; a day counts to its end
    #[arg(long, value_name = "MOMENT")]
    pub until: Option<Moment>,
    /// Whose figures meet this: 'p99 > 200ms', 'errors >= 1%', 'carried < 1000/s'; several with commas between. Quantities:
    /// mean, p50, p75, p90, p95, p99, p99.9, p99.99, max (response times), errors, offered, carried, duration
    #[arg(long = "where", value_name = "CONDITION", value_delimiter = ',')]
    pub conditions: Vec<Condition>,
    /// Of those, the last so many
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
    /// A run's name, the beginning of one, its folder, or `last`
    pub run: String,
    /// The tags; without any, those that it has are printed
    pub tags: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Untag {
    /// A run's name, the beginning of one, its folder, or `last`
    pub run: String,
    /// The tags
    #[arg(required_unless_present = "all")]
    pub tags: Vec<String>,
    /// All that it has
    #[arg(long, conflicts_with = "tags")]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// Runs: names, beginnings of names, folders in the book, or `last`
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// With the runs that each made on its way, as a search for a capacity makes trials
    #[arg(long)]
    pub trials: bool,
}

#[derive(Args, Debug)]
pub struct Export {
    /// Runs, and last the file (`.tar.gz`) to write them into; `-` is standard output
    #[arg(required = true, num_args = 2.., value_names = ["RUN", "FILE"])]
    pub runs_and_file: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Import {
    /// What `runs export` wrote; `-` is standard input
    pub file: PathBuf,
    /// Give a run whose name the book has already other letters, instead of refusing it
    #[arg(long)]
    pub rename: bool,
    /// Most that it may be, unpacked [default: 64MiB and a hundred times its size, at most 16GiB]
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
