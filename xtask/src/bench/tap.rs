//! `cargo xtask bench tap [--rounds N] [--seconds N]`: the cost of the tap for the tapped program.
//!
//! 1. Cost of one hook in nanoseconds, by kind: `crates/tap/tests/programs/cost.c`, alternately without and with the
//!    library.
//! 2. Cost for programs: wrk and curl against nginx with 1 KB and 100 KB; alternately without the tap, with it, with it
//!    and the run store, under strace, and without it again.
//! 3. Check of both: number of calls per request, as strace counts them, times the cost of a hook.
//!
//! The loader silently ignores a library that it cannot load, and a program without it has no cost. So each run under
//! the tap must have records of the program's connections; otherwise the bench fails.

mod calls;
mod hooks;
mod programs;
mod run;

use anyhow::Result;

use self::hooks::Hooks;
use self::run::Tapped;
use super::extent::Extent;
use super::servers::{Site, need, yamabiko};

/// Number of rounds; the cost of a hook varies little.
const HOOK_ROUNDS: usize = 5;

/// Default number of rounds, and length of wrk's runs; curl makes as many requests as take about as long.
const USUAL_EXTENT: Extent = Extent { rounds: 11, seconds: 1 };

/// Runs the bench with its default length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement, such as a run without the library.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = USUAL_EXTENT.changed_by(words)?;
    for program in ["wrk", "curl", "nginx", "strace", "taskset", "chrt", "cc", "bash"] {
        need(program)?;
    }
    let site = Site::new()?;
    let tapped = Tapped::new(yamabiko()?, &site);
    let hooks = Hooks::measure(&tapped, &site, extent.rounds.min(HOOK_ROUNDS))?;
    hooks.print();
    programs::measure(&tapped, &site, extent, &hooks)
}

/// Whether a figure meets its target, as text.
fn verdict(value: f64, limit: f64) -> &'static str {
    if value < limit { "met" } else { "not met" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_below_its_limit_meets_it() {
        assert_eq!((verdict(1.99, 2.0), verdict(2.0, 2.0), verdict(f64::NAN, 2.0)), ("met", "not met", "not met"));
    }
}
