//! `cargo xtask bench fleet`: many agents and one manager, with injected faults, and their CPU time and memory.
//!
//! The trial is that of the test `real_fleet` (see `crates/yamabiko/tests/support/fleet.rs`): each agent is a process
//! with two programs under its tap, manager and agents are killed, the network between them is cut, and wall clocks
//! differ by minutes; in the end DuckDB checks every exchange. `--hold N` keeps the fleet running for N seconds before
//! its end, to look at the page; `--quiet` injects no faults.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::servers::{need, yamabiko};
use crate::readers;
use crate::test::target_folder;

// The tests use the same module.
#[path = "../../../crates/yamabiko/tests/support/fleet.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
#[allow(clippy::module_inception, reason = "the module's files refer to it by this name")]
mod fleet;

use fleet::process::Cost;
use fleet::trial::{Plan, Stage, Trial};

/// Options after the bench's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    agents: usize,
    seconds: u64,
    /// Exchanges per second of each machine: each is one row, and two records of the library.
    rate: u64,
    hold: Duration,
    faults_injected: bool,
    /// The program under test; `None` is the release build.
    binary: Option<PathBuf>,
}

/// The documented size: 50 events per second are 25 exchanges, each with a request and a response.
const DEFAULT_OPTIONS: Options =
    Options { agents: 200, seconds: 180, rate: 25, hold: Duration::ZERO, faults_injected: true, binary: None };

impl Options {
    fn changed_by(mut self, words: &[&str]) -> Result<Options> {
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if word == "--quiet" {
                self.faults_injected = false;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            if word == "--binary" {
                self.binary = Some(std::path::absolute(value)?);
                continue;
            }
            let number: u64 = value.parse().with_context(|| format!("{word} {value}: a whole number is expected"))?;
            match word {
                _ if number == 0 => bail!("{word} 0: at least 1 is needed"),
                "--agents" => self.agents = usize::try_from(number)?,
                "--seconds" => self.seconds = number,
                "--rate" => self.rate = number,
                "--hold" => self.hold = Duration::from_secs(number),
                _ => bail!(
                    "`{word}` is not an option; options are --agents N, --seconds N, --rate N, --hold SECONDS, --binary FILE and --quiet"
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

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option; not root; a program of the trial that exited early.
pub fn run_with(words: &[&str]) -> Result<()> {
    let options = DEFAULT_OPTIONS.changed_by(words)?;
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
        fault_interval: options.faults_injected.then(|| Duration::from_secs(options.seconds) / 12),
        yamabiko: options.binary.map_or_else(yamabiko, Ok)?,
        tests: root.join("crates/yamabiko/tests"),
        python: target.join(readers::FOLDER).join("venv/bin/python"),
        manager_arguments: Vec::new(),
        agent_arguments: |_| &[],
        over_nats: false,
    };
    println!("{} agents, {} exchanges a second each, {} s", options.agents, options.rate, options.seconds);
    let trial_error = |error: fleet::Error| anyhow!("{error}");
    let trial = Trial::start(plan).map_err(trial_error)?;
    let (enter, page) = trial.page();
    println!("the page: {page} in the network of `{enter}`");
    let outcome = trial
        .run_with_observer(|trial, stage| {
            if stage == Stage::Stored && !options.hold.is_zero() {
                let (enter, page) = trial.page();
                println!("all rows are stored; for {:?} the page is {page} in the network of `{enter}`", options.hold);
                std::thread::sleep(options.hold);
            }
            Ok(())
        })
        .map_err(trial_error)?;
    let found = &outcome.found;
    let count = |name: &str| found[name].as_u64().unwrap_or(0);
    println!(
        "  faults: manager killed {} times, agents {} times, network cut {} times",
        outcome.faults_injected.manager_kills, outcome.faults_injected.agent_kills, outcome.faults_injected.cuts
    );
    println!(
        "  exchanges and connections in the programs' accounts: {}; rows found: {}",
        count("expected"),
        count("found")
    );
    for (name, value) in outcome.checks() {
        println!("    {name:18} {value}");
    }
    println!("    clocks_wrong       {} (wall clocks off by {} s)", found["clocks_wrong"], found["clocks_s"]);
    println!(
        "  the end of an exchange by its program and by its row: p50, p99, max {} ms apart",
        found["time_error_ms"]
    );
    println!(
        "  {:.1} s until the last row was stored, {:.1} s after the last exchange",
        outcome.elapsed.as_secs_f64(),
        outcome.storage_delay.as_secs_f64()
    );
    println!(
        "  day files: {} parts, {:.1} bytes a row",
        found["parts"],
        found["bytes"].as_f64().unwrap_or(0.0) / count("found").max(1) as f64
    );
    let actual_s = outcome.elapsed.as_secs_f64();
    let show = |what: &str, cost: Cost, of: usize| {
        let share = 100.0 * cost.cpu.as_secs_f64() / actual_s;
        let memory = match cost.peak_bytes {
            // The processes had exited before their memory was read.
            0 => String::new(),
            bytes => format!(", peak {:.0} MB of one process", bytes as f64 / 1e6),
        };
        println!("  {what:9} {share:6.1} % of a core ({:.2} % each){memory}", share / of as f64);
    };
    show("manager", outcome.costs.manager, 1);
    show("agents", outcome.costs.agents, options.agents);
    show("programs", outcome.costs.talkers, 2 * options.agents);
    let failures = outcome.failures();
    if failures.is_empty() {
        Ok(())
    } else {
        bail!("the stored rows differ from the programs' accounts: {}", failures.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_bench_options_are_parsed_and_invalid_ones_refused() {
        assert_eq!(DEFAULT_OPTIONS.changed_by(&[]).unwrap(), DEFAULT_OPTIONS);
        let short = DEFAULT_OPTIONS.changed_by(&["--agents", "8", "--quiet", "--seconds", "10"]).unwrap();
        assert_eq!(short, Options { agents: 8, seconds: 10, faults_injected: false, ..DEFAULT_OPTIONS });
        for words in [&["--agents"][..], &["--agents", "0"], &["--rate", "x"], &["--turns", "1"]] {
            assert!(DEFAULT_OPTIONS.changed_by(words).is_err(), "{words:?}");
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
