//! `cargo xtask bench tap [--rounds N] [--seconds N]`: what the tap costs the program that it runs in.
//!
//! 1. One hook, in nanoseconds, by kind: `crates/tap/tests/programs/cost.c`, without and with the library in turn.
//! 2. Programs: wrk and curl against nginx at 1 KB and at 100 KB, without, with the tap, with the tap and the book, under
//!    strace, and without again, in turn.
//! 3. Both together: the calls that a request takes, as strace counts them, times what a hook costs.
//!
//! The loader ignores a library that it cannot load, in silence, and a program that runs without it costs nothing: so each
//! run under the tap must have said that it was loaded, and must have been seen at its work, or the bench has measured
//! nothing and ends.

mod calls;
mod hooks;
mod programs;
mod run;

use anyhow::Result;

use self::hooks::Hooks;
use self::run::Tapped;
use super::extent::Extent;
use super::servers::{Site, need, yamabiko};

/// What a hook costs differs little from round to round.
const HOOK_ROUNDS: usize = 5;

/// The usual length of wrk's runs; curl takes as many requests as last about as long.
const USUAL_EXTENT: Extent = Extent { rounds: 11, seconds: 1 };

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; something that could not be measured, a run without the library above all.
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

/// Whether a figure is what was asked for, in words.
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
