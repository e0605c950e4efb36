//! Cost of one hook, by kind: a program that makes only calls, alternately without and with the library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::run::Tapped;
use super::verdict;
use crate::bench::rounds::median;
use crate::bench::servers::{Site, output};

/// Target cost of a hook: reading the cycle counter, and one record for a change of direction.
const TARGET_NS: f64 = 35.0;
/// Calls in each of the program's nine passes, of which the fastest counts.
const CALLS: &str = "100000";

/// One timed operation of the program, and its number of hooks.
struct Kind {
    name: &'static str,
    about: &'static str,
    hooks: f64,
    /// Whether the target applies.
    judged: bool,
}

const KINDS: &[Kind] = &[
    Kind { name: "eagain", about: "read answered with EAGAIN", hooks: 1.0, judged: true },
    Kind { name: "file", about: "read of what is no socket", hooks: 1.0, judged: true },
    Kind { name: "poll", about: "epoll_wait that finds nothing", hooks: 1.0, judged: true },
    Kind { name: "reads", about: "17 reads and a write of one run", hooks: 18.0, judged: true },
    Kind { name: "exchange", about: "4 calls, each a change of direction", hooks: 4.0, judged: true },
    Kind { name: "connection", about: "connect, accept, two closes; an end", hooks: 2.0, judged: false },
];

/// Nanoseconds by kind, one value per round.
#[derive(Default)]
pub struct Hooks {
    without: BTreeMap<String, Vec<f64>>,
    with: BTreeMap<String, Vec<f64>>,
    again: BTreeMap<String, Vec<f64>>,
    records: u64,
    dropped: u64,
}

impl Hooks {
    /// Measures `rounds` rounds: without, with and again without the library.
    pub fn measure(tapped: &Tapped, site: &Site, rounds: usize) -> Result<Hooks> {
        let program = compiled(site)?;
        // The program has real-time priority on one core; the collector is on another core.
        let mut command = Command::new("chrt");
        command.args(["-f", "1", "taskset", "-c", "0"]).arg(&program).arg(CALLS);
        let mut hooks = Hooks::default();
        for _ in 0..rounds {
            parse_into(&mut hooks.without, &output(&mut command)?)?;
            let (text, part) = tapped.run_unfollowed("cost", &command)?;
            parse_into(&mut hooks.with, &text)?;
            hooks.records += part.records;
            hooks.dropped += part.records_dropped;
            parse_into(&mut hooks.again, &output(&mut command)?)?;
        }
        Ok(hooks)
    }

    /// Cost of a hook of this kind in nanoseconds: the median of the rounds.
    pub fn cost_ns(&self, kind: &str) -> f64 {
        KINDS.iter().find(|known| known.name == kind).map_or(f64::NAN, |kind| median(&self.costs(kind)))
    }

    /// Cost of a hook in each round.
    fn costs(&self, kind: &Kind) -> Vec<f64> {
        let of = |map: &BTreeMap<String, Vec<f64>>| map.get(kind.name).cloned().unwrap_or_default();
        let (without, with, again) = (of(&self.without), of(&self.with), of(&self.again));
        let rounds = without.iter().zip(&again).zip(&with);
        rounds.map(|((before, after), with)| (with - f64::midpoint(*before, *after)) / kind.hooks).collect()
    }

    /// Prints the table.
    pub fn print(&self) {
        println!(
            "one hook: a program on one core in the real-time class, the collector on another; {} rounds of without, with, \
             without",
            self.with.values().map(Vec::len).max().unwrap_or(0)
        );
        println!(
            "  {:<38} {:>10} {:>10} {:>10}   {:<24} {:>12}",
            "ns", "without", "with", "each hook", "(low to high)", "A/A"
        );
        for kind in KINDS {
            let of = |map: &BTreeMap<String, Vec<f64>>| map.get(kind.name).map_or(f64::NAN, |values| median(values));
            let costs = self.costs(kind);
            let (low, high) = costs.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
            let each = median(&costs);
            let target = match kind.judged {
                true => format!("target {TARGET_NS:.0}: {}", verdict(each, TARGET_NS + 1e-9)),
                false => "no target".to_owned(),
            };
            println!(
                "  {:<38} {:>10.1} {:>10.1} {:>10.1}   {:<24} {:>+12.1}   {target}",
                kind.about,
                of(&self.without),
                of(&self.with),
                each,
                format!("({low:.1} to {high:.1})"),
                (of(&self.again) - of(&self.without)) / kind.hooks,
            );
        }
        println!(
            "  loaded in every round: {} records, {} dropped (one that is dropped costs less than one that is written)",
            self.records, self.dropped
        );
        println!(
            "  A/A: without, and without again, by the same division: what the machine's own drift makes of a hook."
        );
    }
}

/// Compiles the program of the tap's tests.
fn compiled(site: &Site) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tap/tests/programs/cost.c");
    let program = site.path("cost");
    output(Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

/// Parses the program's output, one line per kind.
fn parse_into(into: &mut BTreeMap<String, Vec<f64>>, text: &str) -> Result<()> {
    for kind in KINDS {
        let line = text.lines().find_map(|line| line.strip_prefix(kind.name)?.strip_prefix(' '));
        let ns = line.with_context(|| format!("the program printed nothing of {}: {text}", kind.name))?;
        into.entry(kind.name.to_owned()).or_default().push(ns.trim().parse()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_a_hook_is_the_time_difference_divided_by_its_calls() {
        let text = |add: f64| {
            KINDS.iter().map(|kind| format!("{} {:.1}\n", kind.name, 1000.0 + add * kind.hooks)).collect::<String>()
        };
        let mut hooks = Hooks::default();
        for round in 0..3 {
            parse_into(&mut hooks.without, &text(0.0)).unwrap();
            parse_into(&mut hooks.with, &text(30.0 + f64::from(round))).unwrap();
            parse_into(&mut hooks.again, &text(2.0)).unwrap();
        }
        for kind in KINDS {
            assert!((hooks.cost_ns(kind.name) - 30.0).abs() < 0.1, "{}: 31 less the mean of 0 and 2", kind.name);
        }
        assert!(hooks.cost_ns("nonsense").is_nan());
        assert!(parse_into(&mut BTreeMap::new(), "eagain 1\n").is_err(), "a line is missing");
    }
}
