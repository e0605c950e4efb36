//! `cargo xtask bench tap [--rounds N] [--seconds N]`: what the third witness costs the program that it stands in.
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

use anyhow::{Context, Result, bail};

use self::hooks::Hooks;
use self::run::Tapped;
use super::servers::{Site, need, yamabiko};

/// What a hook costs differs little from round to round.
const HOOK_ROUNDS: usize = 5;

/// How long the bench takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Of each round one run of everything.
    rounds: usize,
    /// Length of one run of wrk; curl takes as many requests as last about as long.
    seconds: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Extent { rounds: 11, seconds: 1 }
    }
}

impl Extent {
    fn from_words(words: &[&str]) -> Result<Self> {
        let mut extent = Extent::default();
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{} needs a number", pair[0]) };
            let number: u64 = value.parse().with_context(|| format!("{name} {value}: a whole number is wanted"))?;
            match name {
                _ if number == 0 => bail!("{name} 0: at least 1 is needed"),
                "--rounds" => extent.rounds = usize::try_from(number)?,
                "--seconds" => extent.seconds = number,
                _ => bail!("`{name}` is not understood; there are --rounds N and --seconds N"),
            }
        }
        Ok(extent)
    }
}

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; something that could not be measured, a run without the library above all.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = Extent::from_words(words)?;
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
    fn options_are_read_and_nonsense_is_refused() {
        assert_eq!(Extent::from_words(&[]).unwrap(), Extent::default());
        let short = Extent::from_words(&["--seconds", "1", "--rounds", "3"]).unwrap();
        assert_eq!(short, Extent { rounds: 3, seconds: 1 });
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["--turns", "1"]] {
            assert!(Extent::from_words(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_limit_is_met_below_it() {
        assert_eq!((verdict(1.99, 2.0), verdict(2.0, 2.0), verdict(f64::NAN, 2.0)), ("met", "not met", "not met"));
    }
}
