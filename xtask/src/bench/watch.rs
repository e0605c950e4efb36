//! `cargo xtask bench watch`: the analysis beside tcptrace, the capture beside tcpdump.
//!
//! 1. From a file: two captures of real traffic, of over half a million packets each, one with few connections and
//!    one with a connection a request. Packets a second, CPU time and peak memory, turn and turn about.
//! 2. Live: load through the path, with nobody, `tcpdump -w`, `yamabiko watch` and the run's own capture at the
//!    server's door. What each lost, and what each cost the load.
//!
//! Captures are made anew for each run, in the lab's namespaces, and are gone afterwards.

mod file;
mod live;
mod measured;

use anyhow::{Result, bail};

use super::servers::{Site, need, yamabiko};
pub use measured::measure;

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    for program in ["tcptrace", "tcpdump", "nginx"] {
        need(program)?;
    }
    if !nix::unistd::Uid::effective().is_root() {
        bail!("captures are made in network namespaces: run this as root");
    }
    let yamabiko = yamabiko()?;
    let site = Site::new()?;
    file::run(&yamabiko, &site)?;
    live::run(&yamabiko, &site)
}

/// A figure beside what it must reach.
fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "NOT reached" }
}
