//! Arguments of `doctor`.

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "Nothing of this machine is changed, and nothing is left behind: what is tried is tried in \
                        namespaces that end with the trial. Exit status: 0 where bench --server works, else 2.")]
pub struct Doctor {
    /// Look and try, but do not measure: without the two seconds that timers take
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}
