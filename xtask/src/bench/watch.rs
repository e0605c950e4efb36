//! `cargo xtask bench watch`: the analysis compared with tcptrace, the capture compared with tcpdump.
//!
//! 1. From a file: two captures of real traffic, of over half a million packets each, one with few connections and
//!    one with a connection per request. Packets per second, CPU time and peak memory, alternately.
//! 2. Live: load through the path without a capture, and with `tcpdump -w`, `yamabiko watch` and the run's own capture
//!    at the server's end. Lost packets of each, and its effect on the load.
//!
//! Each run makes new captures, in the testbed's namespaces, and deletes them.

mod file;
mod live;
mod measured;

use anyhow::{Result, bail};

use super::servers::{Site, need, yamabiko};
pub use measured::{measure, measure_in_process};

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

/// Whether a target is met, as text.
fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "NOT reached" }
}
