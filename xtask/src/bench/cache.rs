//! `cargo xtask bench cache [--rounds N] [--seconds N]`: maximum rate of the virtual users and the origin of
//! `yamabiko cache`, without a cache between them: 13 KB objects, a connection per exchange, every byte compared and
//! every exchange recorded.
//!
//! The origin runs on core 0, the virtual users and their recorder on core 1. Rising rates find the highest achieved
//! rate. Then follow alternately: the target rate (with either engine of the virtual users, and with two threads of
//! both sides on both cores), half of it, and the upper bound of the kernel: `serve --max` and
//! `bench --close` in a closed loop, without a workload to draw, compare and record.
//!
//! A run does not count if its verdict is not *valid*, a request failed, or the achieved rate is below the offered
//! rate; its line prints the reason.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use schema::document::{CheckState, Verdict};

use super::extent::Extent;
use super::load::measure::{Client, Figures};
use super::rounds::median;
use super::serve::measure::CpuTime;
use super::servers::{PORT, Running, need, yamabiko};

/// Target in exchanges per second: twice Web Polygraph's rate on the same kind of machine.
const TARGET_PER_S: f64 = 36_000.0;
/// Rate of Web Polygraph, measured by hand on two cores, client and origin together: it is not packaged, so this bench
/// cannot run it.
const POLYGRAPH_PER_S: f64 = 18_000.0;
/// Maximum p99 of the send lag at half of the target rate.
const MAX_LAG_P99_NS: u64 = 1_000_000;
/// Tried rates in rising order, as multiples of the target.
const RATE_STEPS: [f64; 9] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3];
/// A rate is achieved if this share of the offered requests completed in time.
const MIN_ACHIEVED_SHARE: f64 = 0.995;
/// Response timeout of virtual users, so that a run at too high a rate ends soon.
const TIMEOUT: &str = "5s";

/// How virtual users and origin run.
struct Way {
    name: &'static str,
    /// Kernel interface of the virtual users.
    engine: &'static str,
    /// Two threads of each, on any core; otherwise one of each, on a core of its own.
    spread: bool,
}

/// The default options.
const DEFAULT: Way = Way { name: "default", engine: "auto", spread: false };
/// Ways in which the target rate is tried.
const WAYS: [Way; 3] = [
    Way { name: "epoll", engine: "epoll", spread: false },
    Way { name: "io_uring", engine: "io_uring", spread: false },
    Way { name: "two threads each", engine: "auto", spread: true },
];
/// Object size of PolyMix: 13 KB.
const BYTES: u64 = 13 * 1024;

/// PolyMix-1 with constant sizes and an origin without think time.
const WORKLOAD: &str = r#"
name = "bench-13k"
recurrence = 0.6875
client_uses = "1"
origin_uses = "1"
[[kinds]]
name = "object"
media_type = "application/octet-stream"
share = 1.0
size = "13312"
cacheable = 0.8
life = { cycle = "63072000", last_modified = 1.0, expires = "next_change" }
"#;

/// The default length; a run includes its warm-up.
const USUAL_EXTENT: Extent = Extent { rounds: 4, seconds: 4 };

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = USUAL_EXTENT.changed_by(words)?;
    need("taskset")?;
    let bench = Bench::new(extent)?;
    println!(
        "virtual users and origin without a cache: objects of {BYTES} bytes, a connection for each exchange, runs of {} s.\n\
         us of CPU per exchange: of the virtual users' process, start and end included; of the origin in user mode and in the kernel;\n\
         softirq of the origin's core, which on loopback is also the virtual users' receiving. A run counts if its verdict is valid,\n\
         nothing failed, and {:.1} % of the offered requests completed.",
        extent.seconds,
        100.0 * MIN_ACHIEVED_SHARE
    );
    println!("\nrising rates: offered, achieved, send lag p50 / p99 in us");
    let highest = bench.highest()?;
    match highest {
        Some(rate) => {
            println!("  highest rate that counts: {rate:.0}/s, {:.2} of Web Polygraph's 18,000", rate / POLYGRAPH_PER_S)
        }
        None => println!("  not even {:.0}/s counts", RATE_STEPS[0] * TARGET_PER_S),
    }
    let (mut at_target, mut at_half, mut bounds) = (WAYS.map(|_| Vec::new()), Vec::new(), Vec::new());
    println!("\nalternately");
    for _ in 0..extent.rounds {
        for (way, runs) in WAYS.iter().zip(&mut at_target) {
            let run = bench.exchange(TARGET_PER_S, way)?;
            println!("  {:<16} {run}", way.name);
            runs.push(run);
        }
        let run = bench.exchange(TARGET_PER_S / 2.0, &DEFAULT)?;
        println!("  {:<16} {run}", DEFAULT.name);
        at_half.push(run);
        let bound = bench.bound()?;
        println!("  {:<16} {bound}", "closed loop");
        bounds.push(bound.rate);
    }
    summary(&at_target, &at_half, &bounds);
    Ok(())
}

fn summary(at_target: &[Vec<ExchangeRun>], at_half: &[ExchangeRun], bounds: &[f64]) {
    println!();
    for (way, runs) in WAYS.iter().zip(at_target) {
        let counted = runs.iter().filter(|run| run.counts()).count();
        println!(
            "{TARGET_PER_S:.0}/s, {}: {counted} of {} runs count: {}",
            way.name,
            runs.len(),
            met(2 * counted > runs.len())
        );
    }
    let late: Vec<f64> = at_half.iter().filter(|run| run.counts()).map(|run| run.lag_ns.1 as f64).collect();
    let half = TARGET_PER_S / 2.0;
    if late.is_empty() {
        println!("{half:.0}/s: none of {} runs counts, so the send lag is unknown: not met", at_half.len());
    } else {
        println!(
            "{half:.0}/s: {} of {} runs count; median p99 of the send lag {:.0} us (target under {}): {}",
            late.len(),
            at_half.len(),
            median(&late) / 1e3,
            MAX_LAG_P99_NS / 1000,
            met(2 * late.len() > at_half.len() && median(&late) < MAX_LAG_P99_NS as f64)
        );
    }
    println!("without a workload, in a closed loop: median {:.0}/s: the upper bound of a generator", median(bounds));
}

/// Whether a target is met, as text.
fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}

struct Bench {
    client: Client,
    extent: Extent,
    /// Folder with the workload file.
    _folder: tempfile::TempDir,
    workload_file: PathBuf,
}

impl Bench {
    fn new(extent: Extent) -> Result<Self> {
        let client = Client::lasting(yamabiko()?, &extent.seconds.to_string())?;
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        let workload_file = folder.path().join("workload.toml");
        std::fs::write(&workload_file, WORKLOAD)?;
        Ok(Bench { client, extent, _folder: folder, workload_file })
    }

    /// The highest achieved rate. Each rate is tried twice and the better run counts, since the machine is shared.
    fn highest(&self) -> Result<Option<f64>> {
        let mut highest = None;
        for step in RATE_STEPS {
            let rate = step * TARGET_PER_S;
            let mut run = self.exchange(rate, &DEFAULT)?;
            if !run.counts() {
                println!("  {run}");
                run = self.exchange(rate, &DEFAULT)?;
            }
            println!("  {run}");
            if !run.counts() {
                break;
            }
            highest = Some(rate);
        }
        Ok(highest)
    }

    /// One run of virtual users and origin at a rate.
    fn exchange(&self, rate: f64, way: &Way) -> Result<ExchangeRun> {
        let (program, workload_file) = (self.client.yamabiko().display(), self.workload_file.display());
        let listen = format!("127.0.0.1:{PORT}");
        let (threads, placement) = if way.spread { ("2", "float") } else { ("1", "split") };
        let start =
            format!("exec {program} serve --workload {workload_file} --seed 1 --threads {threads} --listen {listen}");
        // A new origin for each run, so that runs do not affect each other.
        let origin = Running::start(&start, if way.spread { None } else { Some("0") })?;
        let (offered, duration, file) =
            (format!("{rate:.0}/s"), format!("{}s", self.extent.seconds), workload_file.to_string());
        let options = [
            ["--origin-at", &listen, "--workload", &file, "--rate", &offered, "-d", &duration],
            ["--stop-errors", "none", "--timeout", TIMEOUT, "--engine", way.engine, "--threads", threads],
        ];
        let before = CpuTime::of("the origin", origin.pid())?;
        let options = [options.as_flattened(), &["--direct", "--placement", placement]].concat();
        let (sweep, point, figures) = self.client.cache(way.spread, &options)?;
        let used = CpuTime::of("the origin", origin.pid())?.since(&before);
        let load = point.load.context("the point's document has no load part")?;
        let checks = sweep.validity.checks.iter().filter(|check| check.state != CheckState::Ok);
        let doubts = checks.filter(|check| check.state != CheckState::NotApplicable);
        Ok(ExchangeRun {
            offered: rate,
            achieved: load.achieved_rate_per_s,
            failed: load.failed.values().sum(),
            lag_ns: (load.send_lag_ns.p50, load.send_lag_ns.p99),
            is_valid: sweep.validity.verdict == Verdict::Valid,
            doubts: doubts.map(|check| check.name.clone()).collect(),
            origin_us: [used.user, used.system, used.softirq]
                .map(|time| time.as_secs_f64() * 1e6 / figures.requests().max(1.0)),
            loop_busy: busy(&point.run.host.settings),
            figures,
        })
    }

    /// The same bytes and connections without a workload.
    fn bound(&self) -> Result<Figures> {
        let command =
            format!("exec {} serve --max {BYTES}B --listen 127.0.0.1:{PORT}", self.client.yamabiko().display());
        let _server = Running::start(&command, Some("0"))?;
        self.client.bench_of(&format!("http://127.0.0.1:{PORT}/"), &["-c", "64", "--close"])
    }
}

/// Share of the measured time in which the virtual users' loop was busy, as the loop reports.
fn busy(settings: &std::collections::BTreeMap<String, String>) -> Option<f64> {
    settings.get("loop_busy")?.trim_end_matches('%').parse::<f64>().ok().map(|percent| percent / 100.0)
}

/// One run.
struct ExchangeRun {
    offered: f64,
    achieved: f64,
    failed: u64,
    lag_ns: (u64, u64),
    is_valid: bool,
    doubts: Vec<String>,
    /// CPU time: user, system, softirq.
    origin_us: [f64; 3],
    loop_busy: Option<f64>,
    figures: Figures,
}

impl ExchangeRun {
    fn counts(&self) -> bool {
        self.is_valid && self.failed == 0 && self.achieved >= MIN_ACHIEVED_SHARE * self.offered
    }
}

impl fmt::Display for ExchangeRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [user, system, softirq] = self.origin_us;
        write!(
            f,
            "{:>7.0}/s {:>9.1}/s {:>8.1} / {:>8.1}  CPU us: virtual users {:.1}, origin {user:.1} + {system:.1} (softirq {softirq:.1}); loop \
             busy {:.0} %; cores {:.0} and {:.0} %",
            self.offered,
            self.achieved,
            self.lag_ns.0 as f64 / 1e3,
            self.lag_ns.1 as f64 / 1e3,
            self.figures.cpu_us_per_request(),
            100.0 * self.loop_busy.unwrap_or(f64::NAN),
            100.0 * self.figures.client_core,
            100.0 * self.figures.server_core
        )?;
        match (self.counts(), self.failed) {
            (true, _) => Ok(()),
            (false, 0) if self.is_valid => write!(f, "; does not count: offered rate not achieved"),
            (false, 0) => write!(f, "; counts for nothing: {}", self.doubts.join(", ")),
            (false, failed) => write!(f, "; counts for nothing: {failed} failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_rate_is_one_of_the_steps() {
        assert!(RATE_STEPS.contains(&1.0) && RATE_STEPS.contains(&0.5) && RATE_STEPS.is_sorted());
        const { assert!(TARGET_PER_S >= 2.0 * POLYGRAPH_PER_S) };
    }

    #[test]
    fn the_loop_reports_its_cpu_share() {
        let settings = |text: &str| [("loop_busy".to_owned(), text.to_owned())].into();
        assert_eq!(busy(&settings("12.5%")), Some(0.125));
        assert_eq!(busy(&settings("")), None);
    }
}
