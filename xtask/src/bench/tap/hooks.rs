//! What one hook costs, by kind: a program of nothing but calls, without and with the library in turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::run::Tapped;
use super::verdict;
use crate::bench::rounds::median;
use crate::bench::servers::{Site, output};

/// A hook may cost so much: a cycle counter read, and one record for a change of direction.
const TARGET_NS: f64 = 35.0;
/// Of each pass of the program's nine the best counts.
const CALLS: &str = "100000";

/// What the program times in one go, and how many hooks that is.
struct Kind {
    name: &'static str,
    about: &'static str,
    hooks: f64,
    /// Whether the target is for it.
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

/// Nanoseconds by kind, a figure a round.
#[derive(Default)]
pub struct Hooks {
    without: BTreeMap<String, Vec<f64>>,
    with: BTreeMap<String, Vec<f64>>,
    again: BTreeMap<String, Vec<f64>>,
    records: u64,
    dropped: u64,
}

impl Hooks {
    /// Measures so many rounds of without, with, without.
    pub fn measure(tapped: &Tapped, site: &Site, rounds: usize) -> Result<Hooks> {
        let program = compiled(site)?;
        // On one core, before everything else there: the collector is on another.
        let mut command = Command::new("chrt");
        command.args(["-f", "1", "taskset", "-c", "0"]).arg(&program).arg(CALLS);
        let mut hooks = Hooks::default();
        for _ in 0..rounds {
            take(&mut hooks.without, &output(&mut command)?)?;
            let (text, part) = tapped.run_unfollowed("cost", &command)?;
            take(&mut hooks.with, &text)?;
            hooks.records += part.records;
            hooks.dropped += part.records_dropped;
            take(&mut hooks.again, &output(&mut command)?)?;
        }
        Ok(hooks)
    }

    /// A hook of this kind, in nanoseconds: the median of the rounds.
    pub fn cost_ns(&self, kind: &str) -> f64 {
        KINDS.iter().find(|known| known.name == kind).map_or(f64::NAN, |kind| median(&self.costs(kind)))
    }

    /// What a hook costs in each round.
    fn costs(&self, kind: &Kind) -> Vec<f64> {
        let of = |map: &BTreeMap<String, Vec<f64>>| map.get(kind.name).cloned().unwrap_or_default();
        let (without, with, again) = (of(&self.without), of(&self.with), of(&self.again));
        let rounds = without.iter().zip(&again).zip(&with);
        rounds.map(|((before, after), with)| (with - f64::midpoint(*before, *after)) / kind.hooks).collect()
    }

    /// The table.
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

/// The program of the tap's own tests.
fn compiled(site: &Site) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tap/tests/programs/cost.c");
    let program = site.path("cost");
    output(Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

/// Adds a line a kind, as the program prints them.
fn take(into: &mut BTreeMap<String, Vec<f64>>, text: &str) -> Result<()> {
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
            take(&mut hooks.without, &text(0.0)).unwrap();
            take(&mut hooks.with, &text(30.0 + f64::from(round))).unwrap();
            take(&mut hooks.again, &text(2.0)).unwrap();
        }
        for kind in KINDS {
            assert!((hooks.cost_ns(kind.name) - 30.0).abs() < 0.1, "{}: 31 less half of 2", kind.name);
        }
        assert!(hooks.cost_ns("nonsense").is_nan());
        assert!(take(&mut BTreeMap::new(), "eagain 1\n").is_err(), "a line is missing");
    }
}
