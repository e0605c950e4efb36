//! `cargo xtask bench explain`: what `yamabiko explain` costs, and how often it is right.
//!
//! 1. `cost`: a closed loop of 1 KB objects through a path without delay, the highest packet rate of this machine, with
//!    and without `--explain`. Runs with the packet capture of both ends alone show which part is the capture's and
//!    which the keeping's; a second run without `--explain` shows the variation of the machine; `--before FILE` adds
//!    an earlier version of the program, which shows whether runs without `--explain` became slower.
//! 2. `stored`: time, CPU time and memory of `yamabiko explain RUN`, for a run whose packets fill their memory.
//! 3. `exam`: the simulated transfers of `crates/explain/tests/exam`: limits named right, wrong and unknown, by inputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use schema::{CheckState, Document};
use serde_json::Value;

use super::extent::{Extent, only};
use super::rounds::{line, median, ratio};
use super::servers::{PORT, Site, output, run_output, yamabiko};
use super::watch::measure_in_process;

/// Rounds of [`WAYS`].
const USUAL_EXTENT: Extent = Extent { rounds: 5, seconds: 3 };
/// Parts that `--only` selects.
const PARTS: [&str; 3] = ["cost", "stored", "exam"];
/// Most that keeping packets may cost: this share of the packet rate.
const COST_MAX: f64 = 0.15;
/// Connections of the closed loop.
const CONNECTIONS: &str = "64";
/// Length of the run whose packets fill the memory.
const LONG_RUN: &str = "20s";

/// Kinds of runs: name, and arguments of `bench`.
const WAYS: [(&str, &[&str]); 4] = [
    ("bench", &[]),
    ("bench, again", &[]),
    ("bench --watch both", &["--watch", "both"]),
    ("bench --explain", &["--watch", "both", "--explain"]),
];

/// What the options select.
struct Options<'a> {
    part: Option<&'a str>,
    extent: Extent,
    /// The program; `None`: the release build of this tree.
    binary: Option<PathBuf>,
    /// An earlier version of the program.
    before: Option<PathBuf>,
}

/// Figures of one run.
struct Figures {
    requests_per_s: f64,
    packets_per_s: f64,
    capture_drops: u64,
    /// Checks that failed. A saturated machine makes some runs invalid; their packet rates count all the same.
    failed: Vec<String>,
}

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let options = parse(words)?;
    let is_wanted = |part| options.part.is_none_or(|only| only == part);
    let binary = || options.binary.clone().map_or_else(yamabiko, Ok);
    if is_wanted("cost") {
        cost(&binary()?, &options)?;
    }
    if is_wanted("stored") {
        stored(&binary()?, options.extent.rounds)?;
    }
    if is_wanted("exam") {
        exam()?;
    }
    Ok(())
}

fn parse<'a>(words: &[&'a str]) -> Result<Options<'a>> {
    let (part, mut words) = only(words, &PARTS)?;
    let mut file = |name: &str| -> Result<Option<PathBuf>> {
        let Some(at) = words.iter().position(|word| *word == name) else { return Ok(None) };
        let Some(path) = words.get(at + 1).copied() else { bail!("{name}: a file is expected") };
        words.drain(at..at + 2);
        fs::canonicalize(path).map(Some).with_context(|| format!("{name} {path}"))
    };
    let (binary, before) = (file("--binary")?, file("--before")?);
    Ok(Options { part, extent: USUAL_EXTENT.changed_by(&words)?, binary, before })
}

fn cost(binary: &Path, options: &Options<'_>) -> Result<()> {
    let Extent { rounds, seconds } = options.extent;
    let site = Site::new()?;
    println!(
        "cost: closed loop, {CONNECTIONS} connections, 1 KB, no delay, yamabiko serve; {seconds} s, {rounds} rounds"
    );
    let mut ways: Vec<(&str, &Path, &[&str])> = WAYS.iter().map(|(name, words)| (*name, binary, *words)).collect();
    if let Some(before) = &options.before {
        ways.push(("bench, version before", before, &[]));
    }
    let mut figures: Vec<Vec<Figures>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for place in 0..ways.len() {
            // Each kind of run has each position in turn.
            let way = (place + round) % ways.len();
            let (_, program, words) = ways[way];
            figures[way].push(once(program, &site, &format!("{seconds}s"), words)?);
        }
    }
    type Of = fn(&Figures) -> f64;
    let printed: [(&str, Of); 2] =
        [("requests/s", |figures| figures.requests_per_s), ("packets/s", |figures| figures.packets_per_s)];
    for (unit, of) in printed {
        let values: Vec<Vec<f64>> = figures.iter().map(|runs| runs.iter().map(of).collect()).collect();
        for ((name, ..), values_of) in ways.iter().zip(&values) {
            println!("{}  over bench {:.3}", line(name, unit, values_of), ratio(values_of, &values[0]));
        }
    }
    let explain = WAYS.len() - 1;
    let packets: Vec<Vec<f64>> =
        figures.iter().map(|runs| runs.iter().map(|run| run.packets_per_s).collect()).collect();
    let lost = 1.0 - ratio(&packets[explain], &packets[0]);
    let verdict = if lost <= COST_MAX { "reached" } else { "NOT reached" };
    println!("  --explain takes {:.1} % of the packets/s; goal at most {:.0} %: {verdict}", lost * 1e2, COST_MAX * 1e2);
    for ((name, ..), runs) in ways.iter().zip(&figures) {
        println!("  {name}: packets lost by the capture {}", runs.iter().map(|run| run.capture_drops).sum::<u64>());
        let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
        for check in runs.iter().flat_map(|run| &run.failed) {
            *failed.entry(check).or_default() += 1;
        }
        let of = runs.len();
        failed.iter().for_each(|(check, runs)| println!("    the check {check} failed in {runs} of {of} runs"));
    }
    Ok(())
}

/// One run of load.
fn once(program: &Path, site: &Site, duration: &str, words: &[&str]) -> Result<Figures> {
    let text = run_output(bench_command(program, site, duration, words).env("YAMABIKO_RUNS", site.path("runs")));
    let document = document_of(&text?)?;
    fs::remove_dir_all(site.path("runs")).context("the runs' folder")?;
    let load = document.load.context("the document has no load")?;
    let path = document.path.context("the document has no path")?;
    let drops = document.watch.map_or(0, |watch| watch.capture_drops);
    let failed = document.validity.checks.iter().filter(|check| check.state == CheckState::Failed);
    let failed = failed.map(|check| check.name.clone()).collect();
    Ok(Figures {
        failed,
        requests_per_s: load.achieved_rate_per_s,
        packets_per_s: path.packets as f64 / document.run.duration_s,
        capture_drops: drops,
    })
}

fn bench_command(program: &Path, site: &Site, duration: &str, words: &[&str]) -> Command {
    let folder = site.path("");
    let server = format!("exec '{}' serve '{}' --listen 0.0.0.0:{PORT}", program.display(), folder.display());
    let mut command = Command::new(program);
    command
        .args(["bench", &format!("http://server:{PORT}/1k.bin"), "--server", &server, "--rtt", "0ms"])
        .args(["-c", CONNECTIONS, "-d", duration, "--json"])
        .args(words);
    command
}

/// The document that `bench --json` printed; with `--explain` it has one part more.
fn document_of(text: &str) -> Result<Document> {
    let mut document: Value = serde_json::from_str(text)?;
    document.as_object_mut().context("a document is expected")?.remove("explain");
    Ok(serde_json::from_value(document)?)
}

/// Explains a stored run of so many packets that their memory is full.
fn stored(binary: &Path, rounds: usize) -> Result<()> {
    let site = Site::new()?;
    let runs = site.path("runs");
    let mut bench = bench_command(binary, &site, LONG_RUN, &["--watch", "both", "--explain"]);
    run_output(bench.env("YAMABIKO_RUNS", &runs))?;
    let folder = fs::read_dir(&runs)?
        .filter_map(std::result::Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.join("packets.json").exists())
        .context("the run has no packets.json")?;
    let size = |name: &str| fs::metadata(folder.join(name)).map(|file| file.len());
    let bytes = size("packets-client.pcap")? + size("packets-server.pcap")?;
    let facts: Value = serde_json::from_slice(&fs::read(folder.join("packets.json"))?)?;
    let kept: u64 = facts["packets"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum();
    println!(
        "stored: a run of {LONG_RUN}; {kept} packets kept, of one in {} connections, {:.0} MB of files",
        facts["one_in"],
        bytes as f64 / 1e6
    );
    let (mut wall, mut cpu, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut command = Command::new(binary);
        command.args(["explain", "last", "--json"]).env("YAMABIKO_RUNS", &runs);
        let usage = measure_in_process(&site.path("usage.json"), &command)?;
        wall.push(usage.wall_s);
        cpu.push(usage.user_s + usage.system_s);
        memory.push(usage.rss_bytes_max as f64 / 1e6);
    }
    println!("{}", line("explain RUN, wall time", "s", &wall));
    println!("{}", line("explain RUN, CPU time", "s", &cpu));
    println!("{}", line("explain RUN, peak memory", "MB", &memory));
    println!("  {:.0} bytes of memory a packet", median(&memory) * 1e6 / kept.max(1) as f64);
    Ok(())
}

/// The lines that the exam prints for this bench begin so.
const EXAM_PREFIX: &str = "exam: ";

/// Runs the exam's tests and prints their summaries.
fn exam() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--quiet", "--package", "explain", "--test", "exam", "--"]);
    cargo.args(["--nocapture", "--test-threads=1"]);
    let text = output(&mut cargo)?;
    println!("exam: dominant limit of simulated responses, named");
    let lines = summaries(&text);
    if lines.is_empty() {
        bail!("the exam printed no line that begins with `{EXAM_PREFIX}`:\n{text}");
    }
    lines.iter().for_each(|line| println!("  {line}"));
    Ok(())
}

/// The exam's summaries, each once: several tests examine the same inputs.
fn summaries(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        // The test harness prints a test's progress on the same line.
        let summary = line.find(EXAM_PREFIX).map(|at| &line[at + EXAM_PREFIX.len()..]);
        if let Some(summary) = summary.filter(|summary| !lines.contains(summary)) {
            lines.push(summary);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_select_a_part_and_programs() {
        let options = parse(&["--only", "cost", "--before", "/dev/null", "--rounds", "7"]).unwrap();
        assert_eq!((options.part, options.extent), (Some("cost"), Extent { rounds: 7, seconds: 3 }));
        assert_eq!((options.before, options.binary), (Some(PathBuf::from("/dev/null")), None));
        for words in [&["--before"][..], &["--binary", "/no/such/program"], &["--only", "load"], &["--turns", "1"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn summaries_of_the_exam_are_found_once_among_its_output() {
        let text = "test a ... exam: all: 204 right\nright / wrong\nexam: all: 204 right\nexam: load times: 19 right\n";
        assert_eq!(summaries(text), ["all: 204 right", "load times: 19 right"]);
        assert!(summaries("exam\n").is_empty());
    }
}
