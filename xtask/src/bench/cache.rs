//! `cargo xtask bench cache [--rounds N] [--seconds N]`: what virtual users and origin of `yamabiko cache` do together, without a cache
//! between them: 13 KB objects, a connection for each exchange, every byte compared and every exchange recorded.
//!
//! Origin on core 0, virtual users with their recorder on core 1. Rising rates find the highest that is achieved; then, turn and turn
//! about, that of the target (virtual users on either engine, and with two threads of both sides on both cores), half of it, and what the kernel allows: `serve --max` and `bench --close` in a closed loop,
//! which draw, compare and record nothing of a mix.
//!
//! A run whose verdict is not *valid*, in which a request failed, or that carried less than was offered counts for nothing, and
//! its line says why.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use schema::document::{CheckState, Verdict};

use super::extent::Extent;
use super::load::measure::{Client, Figures};
use super::rounds::median;
use super::serve::measure::Account;
use super::servers::{PORT, Running, need, yamabiko};

/// Exchanges a second: twice what Web Polygraph was measured at on the same kind of machine.
const TARGET_PER_S: f64 = 36_000.0;
/// It is not packaged, so that it is not measured here: tried by hand on two cores, client and origin together.
const POLYGRAPH_PER_S: f64 = 18_000.0;
/// At half of the target requests are late by less than this, 99 % of them.
const LAG_P99_NS_MAX: u64 = 1_000_000;
/// In rising order, as multiples of the target.
const STEPS: [f64; 9] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3];
/// A rate is carried if so much of what was offered was completed in time.
const CARRIED: f64 = 0.995;
/// A virtual user waits no longer than this for its answer, so that a rate that is too high ends soon.
const TIMEOUT: &str = "5s";

/// How virtual users and origin are run.
struct Way {
    name: &'static str,
    /// Kernel interface of the virtual users.
    engine: &'static str,
    /// Two threads of each, wherever the kernel puts them; otherwise one of each, on a core of its own.
    spread: bool,
}

/// Without a word said.
const USUAL: Way = Way { name: "usual", engine: "auto", spread: false };
/// Those in which the target is tried.
const WAYS: [Way; 3] = [
    Way { name: "epoll", engine: "epoll", spread: false },
    Way { name: "io_uring", engine: "io_uring", spread: false },
    Way { name: "two threads each", engine: "auto", spread: true },
];
/// 13 KB as PolyMix has it.
const BYTES: u64 = 13 * 1024;

/// PolyMix-1 with sizes that do not vary and an origin that does not think.
const MIX: &str = r#"
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

/// The usual length; a run includes its warm-up.
const USUAL_EXTENT: Extent = Extent { rounds: 4, seconds: 4 };

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; something that could not be measured.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = USUAL_EXTENT.changed_by(words)?;
    need("taskset")?;
    let bench = Bench::new(extent)?;
    println!(
        "virtual users and origin without a cache: objects of {BYTES} bytes, a connection for each exchange, runs of {} s.\n\
         us of CPU per exchange: of the virtual users' process, start and end included; of the origin in user mode and in the kernel;\n\
         softirq of the origin's core, which on loopback is also the virtual users' receiving. A run counts if its verdict is valid,\n\
         nothing failed, and {:.1} % of what was offered was carried.",
        extent.seconds,
        100.0 * CARRIED
    );
    println!("\nrising rates: offered, carried, send lag p50 / p99 in us");
    let highest = bench.highest()?;
    match highest {
        Some(rate) => {
            println!("  highest rate that counts: {rate:.0}/s, {:.2} of Web Polygraph's 18,000", rate / POLYGRAPH_PER_S)
        }
        None => println!("  not even {:.0}/s counts", STEPS[0] * TARGET_PER_S),
    }
    let (mut at_target, mut at_half, mut bounds) = (WAYS.map(|_| Vec::new()), Vec::new(), Vec::new());
    println!("\nturn and turn about");
    for _ in 0..extent.rounds {
        for (way, runs) in WAYS.iter().zip(&mut at_target) {
            let run = bench.exchange(TARGET_PER_S, way)?;
            println!("  {:<16} {run}", way.name);
            runs.push(run);
        }
        let run = bench.exchange(TARGET_PER_S / 2.0, &USUAL)?;
        println!("  {:<16} {run}", USUAL.name);
        at_half.push(run);
        let bound = bench.bound()?;
        println!("  {:<16} {bound}", "no mix, closed");
        bounds.push(bound.rate);
    }
    summary(&at_target, &at_half, &bounds);
    Ok(())
}

fn summary(at_target: &[Vec<Exchanged>], at_half: &[Exchanged], bounds: &[f64]) {
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
        println!("{half:.0}/s: none of {} runs counts, so how late it is nobody knows: not met", at_half.len());
    } else {
        println!(
            "{half:.0}/s: {} of {} runs count; late at p99 by {:.0} us in the median (under {} asked): {}",
            late.len(),
            at_half.len(),
            median(&late) / 1e3,
            LAG_P99_NS_MAX / 1000,
            met(2 * late.len() > at_half.len() && median(&late) < LAG_P99_NS_MAX as f64)
        );
    }
    println!(
        "without a mix, in a closed loop: {:.0}/s in the median: what the kernel allows a generator",
        median(bounds)
    );
}

/// Whether something is as asked for.
fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}

struct Bench {
    client: Client,
    extent: Extent,
    /// The mix lies in it.
    _folder: tempfile::TempDir,
    mix: PathBuf,
}

impl Bench {
    fn new(extent: Extent) -> Result<Self> {
        let client = Client::lasting(yamabiko()?, &extent.seconds.to_string())?;
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        let mix = folder.path().join("mix.toml");
        std::fs::write(&mix, MIX)?;
        Ok(Bench { client, extent, _folder: folder, mix })
    }

    /// The highest of the rising rates that counts; the better of two runs each, since others share this machine.
    fn highest(&self) -> Result<Option<f64>> {
        let mut highest = None;
        for step in STEPS {
            let rate = step * TARGET_PER_S;
            let mut run = self.exchange(rate, &USUAL)?;
            if !run.counts() {
                println!("  {run}");
                run = self.exchange(rate, &USUAL)?;
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
    fn exchange(&self, rate: f64, way: &Way) -> Result<Exchanged> {
        let (program, mix) = (self.client.yamabiko().display(), self.mix.display());
        let listen = format!("127.0.0.1:{PORT}");
        let (threads, placement) = if way.spread { ("2", "float") } else { ("1", "split") };
        let start = format!("exec {program} serve --workload {mix} --seed 1 --threads {threads} --listen {listen}");
        // Anew for each run, so that no run inherits what another left.
        let origin = Running::start(&start, if way.spread { None } else { Some("0") })?;
        let (offered, lasts, file) = (format!("{rate:.0}/s"), format!("{}s", self.extent.seconds), mix.to_string());
        let options = [
            ["--origin-at", &listen, "--workload", &file, "--rate", &offered, "-d", &lasts],
            ["--stop-errors", "none", "--timeout", TIMEOUT, "--engine", way.engine, "--threads", threads],
        ];
        let before = Account::of("the origin", origin.pid())?;
        let options = [options.as_flattened(), &["--direct", "--placement", placement]].concat();
        let (sweep, point, figures) = self.client.cache(way.spread, &options)?;
        let spent = Account::of("the origin", origin.pid())?.since(&before);
        let load = point.load.context("the point's document has no load part")?;
        let checks = sweep.validity.checks.iter().filter(|check| check.state != CheckState::Ok);
        let doubts = checks.filter(|check| check.state != CheckState::NotApplicable);
        Ok(Exchanged {
            offered: rate,
            carried: load.achieved_rate_per_s,
            failed: load.failed.values().sum(),
            lag_ns: (load.send_lag_ns.p50, load.send_lag_ns.p99),
            is_valid: sweep.validity.verdict == Verdict::Valid,
            doubts: doubts.map(|check| check.name.clone()).collect(),
            origin_us: [spent.user, spent.system, spent.softirq]
                .map(|time| time.as_secs_f64() * 1e6 / figures.requests().max(1.0)),
            loop_busy: busy(&point.run.host.settings),
            figures,
        })
    }

    /// The same bytes and connections without a mix.
    fn bound(&self) -> Result<Figures> {
        let command =
            format!("exec {} serve --max {BYTES}B --listen 127.0.0.1:{PORT}", self.client.yamabiko().display());
        let _server = Running::start(&command, Some("0"))?;
        self.client.bench_of(&format!("http://127.0.0.1:{PORT}/"), &["-c", "64", "--close"])
    }
}

/// Share of the measured time in which the virtual users' loop had work, as it tells itself.
fn busy(settings: &std::collections::BTreeMap<String, String>) -> Option<f64> {
    settings.get("loop_busy")?.trim_end_matches('%').parse::<f64>().ok().map(|percent| percent / 100.0)
}

/// One run.
struct Exchanged {
    offered: f64,
    carried: f64,
    failed: u64,
    lag_ns: (u64, u64),
    is_valid: bool,
    doubts: Vec<String>,
    /// User, system, softirq.
    origin_us: [f64; 3],
    loop_busy: Option<f64>,
    figures: Figures,
}

impl Exchanged {
    fn counts(&self) -> bool {
        self.is_valid && self.failed == 0 && self.carried >= CARRIED * self.offered
    }
}

impl fmt::Display for Exchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [user, system, softirq] = self.origin_us;
        write!(
            f,
            "{:>7.0}/s {:>9.1}/s {:>8.1} / {:>8.1}  CPU us: virtual users {:.1}, origin {user:.1} + {system:.1} (softirq {softirq:.1}); loop \
             busy {:.0} %; cores {:.0} and {:.0} %",
            self.offered,
            self.carried,
            self.lag_ns.0 as f64 / 1e3,
            self.lag_ns.1 as f64 / 1e3,
            self.figures.cpu_us_per_request(),
            100.0 * self.loop_busy.unwrap_or(f64::NAN),
            100.0 * self.figures.client_core,
            100.0 * self.figures.server_core
        )?;
        match (self.counts(), self.failed) {
            (true, _) => Ok(()),
            (false, 0) if self.is_valid => write!(f, "; counts for nothing: not carried"),
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
        assert!(STEPS.contains(&1.0) && STEPS.contains(&0.5) && STEPS.is_sorted());
        const { assert!(TARGET_PER_S >= 2.0 * POLYGRAPH_PER_S) };
    }

    #[test]
    fn the_loop_reports_its_cpu_share() {
        let settings = |text: &str| [("loop_busy".to_owned(), text.to_owned())].into();
        assert_eq!(busy(&settings("12.5%")), Some(0.125));
        assert_eq!(busy(&settings("")), None);
    }
}
