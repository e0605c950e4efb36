//! Arguments of `doctor`.

use clap::Args;

#[derive(Args, Debug)]
#[command(
    after_help = "Nothing on this machine is changed: trials run in namespaces that end with them. Exit status: 0 if \
                        bench --server works, else 2."
)]
pub struct Doctor {
    /// Skip the measurement of timers, which takes two seconds
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
}
