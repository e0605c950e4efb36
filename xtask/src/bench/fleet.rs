//! `cargo xtask bench fleet`: many agents and one manager, all harmed, and what it cost.
//!
//! The trial is that of the test `real_fleet` (see `crates/yamabiko/tests/support/fleet.rs`): each agent a process of its own with two
//! programs under it, manager and agents killed, the network between them cut, wall clocks minutes apart; at the end every
//! exchange is looked for, by DuckDB. Here with what it cost. `--hold N` leaves the fleet running for so long before its end, for a look
//! at the page; `--quiet` does no harm.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::servers::{need, yamabiko};
use crate::readers;
use crate::test::target_folder;

// The tests use the same one.
#[path = "../../../crates/yamabiko/tests/support/fleet.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
#[allow(clippy::module_inception, reason = "it is called so there, and its files say so")]
mod fleet;

use fleet::process::Cost;
use fleet::trial::{Plan, Stage, Trial};

/// What is asked for behind the bench's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    agents: usize,
    seconds: u64,
    /// Exchanges a second of each machine: a row each, and two records of the library.
    rate: u64,
    hold: Duration,
    harms: bool,
    /// The program under test; none: the release build.
    binary: Option<PathBuf>,
}

/// The judged size: 50 events a second are 25 exchanges, asked and answered.
const USUAL: Options = Options { agents: 200, seconds: 180, rate: 25, hold: Duration::ZERO, harms: true, binary: None };

impl Options {
    fn changed_by(mut self, words: &[&str]) -> Result<Options> {
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if word == "--quiet" {
                self.harms = false;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            if word == "--binary" {
                self.binary = Some(std::path::absolute(value)?);
                continue;
            }
            let number: u64 = value.parse().with_context(|| format!("{word} {value}: a whole number is wanted"))?;
            match word {
                _ if number == 0 => bail!("{word} 0: at least 1 is needed"),
                "--agents" => self.agents = usize::try_from(number)?,
                "--seconds" => self.seconds = number,
                "--rate" => self.rate = number,
                "--hold" => self.hold = Duration::from_secs(number),
                _ => bail!(
                    "`{word}` is not understood; there are --agents N, --seconds N, --rate N, --hold SECONDS, --binary FILE and --quiet"
                ),
            }
        }
        Ok(self)
    }
}

/// Runs the bench at its usual size and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; not root; a program of the trial that ended before its time.
pub fn run_with(words: &[&str]) -> Result<()> {
    let options = USUAL.changed_by(words)?;
    for program in ["cc", "nsenter", "unshare", "ip", "curl"] {
        need(program)?;
    }
    let root = crate::root();
    let target = target_folder(root);
    readers::make_ready(root, &target)?;
    let plan = Plan {
        agents: options.agents,
        seconds: options.seconds,
        rate: options.rate,
        harm_every: options.harms.then(|| Duration::from_secs(options.seconds) / 12),
        yamabiko: options.binary.map_or_else(yamabiko, Ok)?,
        tests: root.join("crates/yamabiko/tests"),
        python: target.join(readers::FOLDER).join("venv/bin/python"),
        manager_words: Vec::new(),
        agent_words: |_| &[],
    };
    println!("{} agents, {} exchanges a second each, {} s", options.agents, options.rate, options.seconds);
    let failed = |fault: fleet::Fault| anyhow!("{fault}");
    let trial = Trial::start(plan).map_err(failed)?;
    let (enter, page) = trial.page();
    println!("the page: {page} inside of `{enter}`");
    let held = trial
        .run_beside(|trial, stage| {
            if stage == Stage::Stored && !options.hold.is_zero() {
                let (enter, page) = trial.page();
                println!("all is stored; for {:?} the page is {page} inside of `{enter}`", options.hold);
                std::thread::sleep(options.hold);
            }
            Ok(())
        })
        .map_err(failed)?;
    let found = &held.found;
    let count = |name: &str| found[name].as_u64().unwrap_or(0);
    println!(
        "  harm: manager killed {} times, agents {} times, network cut {} times",
        held.harms.manager_kills, held.harms.agent_kills, held.harms.cuts
    );
    println!(
        "  exchanges and connections that the programs know of: {}; rows found: {}",
        count("expected"),
        count("found")
    );
    for (name, value) in held.checks() {
        println!("    {name:18} {value}");
    }
    println!("    clocks_wrong       {} (wall clocks off by {} s)", found["clocks_wrong"], found["clocks_s"]);
    println!("  the end of an exchange by its program and by its row: p50, p99, max {} ms apart", found["time_off_ms"]);
    println!(
        "  {:.1} s until the last row was stored, {:.1} s after the last exchange",
        held.lasted.as_secs_f64(),
        held.caught_up.as_secs_f64()
    );
    println!(
        "  day files: {} parts, {:.1} bytes a row",
        found["parts"],
        found["bytes"].as_f64().unwrap_or(0.0) / count("found").max(1) as f64
    );
    let actual_s = held.lasted.as_secs_f64();
    let show = |what: &str, cost: Cost, of: usize| {
        let share = 100.0 * cost.cpu.as_secs_f64() / actual_s;
        let memory = match cost.peak_bytes {
            // They had ended before anyone looked.
            0 => String::new(),
            bytes => format!(", at most {:.0} MB one", bytes as f64 / 1e6),
        };
        println!("  {what:9} {share:6.1} % of a core ({:.2} % each){memory}", share / of as f64);
    };
    show("manager", held.spent.manager, 1);
    show("agents", held.spent.agents, options.agents);
    show("programs", held.spent.talkers, 2 * options.agents);
    let faults = held.faults();
    if faults.is_empty() { Ok(()) } else { bail!("it does not come out: {}", faults.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_bench_options_are_parsed_and_invalid_ones_refused() {
        assert_eq!(USUAL.changed_by(&[]).unwrap(), USUAL);
        let short = USUAL.changed_by(&["--agents", "8", "--quiet", "--seconds", "10"]).unwrap();
        assert_eq!(short, Options { agents: 8, seconds: 10, harms: false, ..USUAL });
        for words in [&["--agents"][..], &["--agents", "0"], &["--rate", "x"], &["--turns", "1"]] {
            assert!(USUAL.changed_by(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn source_files_of_the_trial_programs_exist() {
        let tests = crate::root().join("crates/yamabiko/tests");
        for file in ["support/fleet/talker.c", "support/fleet/wall.c", "readers/fleet.py"] {
            assert!(tests.join(file).is_file(), "{file}");
        }
    }
}
