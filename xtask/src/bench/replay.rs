//! `cargo xtask bench replay`: replays a log of a million requests and checks whether the same clients send the same
//! requests at the log's times.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use schema::Document;
use stats::{Rng, quantiles_of};

use super::servers::{PORT, Running, yamabiko};

const LINES: usize = 1_000_000;
/// The log's mean rate: a million lines in 80 s.
const RATE_PER_S: f64 = 12_500.0;
const CLIENTS: u64 = 2_000;
const TARGETS: u64 = 300_000;
const SEED: u64 = 7;

/// One generated line of the log.
struct Line {
    /// Microseconds since the beginning of the log, the resolution of servers' logs.
    at_us: u64,
    client: u64,
    target: u64,
}

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    let yamabiko = yamabiko()?;
    let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
    let (log, runs) = (folder.path().join("access.json"), folder.path().join("runs"));
    let lines = lines();
    write(&lines, &log)?;
    let bytes = std::fs::metadata(&log)?.len();
    let server = format!("exec '{}' serve --max 1KiB --listen 127.0.0.1:{PORT}", yamabiko.display());
    let _server = Running::start(&server, Some("0"))?;
    let began = Instant::now();
    let output = Command::new("taskset")
        .args(["-c", "1"])
        .arg(&yamabiko)
        .args(["bench", &format!("http://127.0.0.1:{PORT}/"), "--json", "--replay"])
        .arg(&log)
        .env("YAMABIKO_RUNS", &runs)
        .output()?;
    let took = began.elapsed();
    let stderr = || String::from_utf8_lossy(&output.stderr).into_owned();
    let document: Document = serde_json::from_slice(&output.stdout).with_context(stderr)?;
    let load = document.load.as_ref().context("no load")?;
    let replay = load.replay.as_ref().context("no replay")?;
    let dir = Path::new(&document.run.dir);
    let mut records = store::read_requests(dir)?.collect::<store::Result<Vec<_>>>()?;
    records.sort_unstable_by_key(|record| record.sequence);

    println!(
        "replay: {LINES} lines ({:.0} MB) of {} clients and {} different requests, {:.1} s at {:.0}/s; `serve --max` on core \
         0, client on core 1",
        bytes as f64 / 1e6,
        replay.clients_logged,
        replay.urls,
        replay.length_s,
        LINES as f64 / replay.length_s,
    );
    let before = took.as_secs_f64() - document.run.duration_s;
    println!(
        "  {before:.1} s besides the {:.1} s of the load: reading the log, starting, storing the run",
        document.run.duration_s
    );
    println!(
        "  {}: offered {}, completed {}, failed {:?}",
        document.validity.verdict.name(),
        load.offered_requests,
        load.completed,
        load.failed
    );
    for check in document.validity.checks.iter().filter(|check| check.state == schema::document::CheckState::Failed) {
        println!("    failed: {}: {}", check.name, check.why);
    }
    ensure!(records.len() == LINES, "{} of {LINES} requests are in the table", records.len());
    let mut order = std::collections::HashMap::new();
    let mut clients = std::collections::HashMap::new();
    let mut differ = 0;
    for (line, record) in lines.iter().zip(&records) {
        // Requests and clients are numbered in the order of first appearance.
        let next = order.len() as u32;
        let url = *order.entry((line.target, is_head(line))).or_insert(next);
        let next = clients.len() as u32;
        let client = *clients.entry(line.client).or_insert(next);
        differ += usize::from(record.url != url || record.client != client);
    }
    println!("  requests that differ from the log's (target, method or client): {differ}");
    let started: Vec<u64> = records.iter().filter_map(|record| Some(record.started_at?.as_nanos())).collect();
    ensure!(started.len() == LINES, "{} requests never started", LINES - started.len());
    let errors: Vec<u64> = started
        .windows(2)
        .zip(lines.windows(2))
        .map(|(replayed, logged)| {
            let replayed = replayed[1] as i64 - replayed[0] as i64;
            replayed.abs_diff((logged[1].at_us - logged[0].at_us) as i64 * 1000)
        })
        .collect();
    let q = quantiles_of(&errors);
    let us = |ns: u64| ns as f64 / 1e3;
    println!(
        "  inter-arrival times, started against logged: error median {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us \
         (target: p99 under 1000 us)",
        us(q.p50),
        us(q.p99),
        us(q.p99_9),
        us(q.max)
    );
    println!("  send lag p50 {:.1} us, p99 {:.1} us", us(load.send_lag_ns.p50), us(load.send_lag_ns.p99));
    Ok(())
}

/// A realistic log: Poisson arrivals with a rate that changes every second, few popular targets, and clients with
/// several sequential requests.
fn lines() -> Vec<Line> {
    let mut rng = Rng::new(SEED, 0);
    let (mut at_s, mut lines) = (0.0_f64, Vec::with_capacity(LINES));
    let (mut rate, mut until_s) = (RATE_PER_S, 1.0);
    while lines.len() < LINES {
        at_s += rng.exponential() / rate;
        if at_s >= until_s {
            rate = RATE_PER_S * (0.5 + rng.uniform());
            until_s += 1.0;
        }
        // A power of a uniform draw has a tail like that of Zipf's law.
        let target = (TARGETS as f64 * rng.uniform().powi(3)) as u64;
        lines.push(Line { at_us: (at_s * 1e6) as u64, client: rng.below(CLIENTS), target });
    }
    lines
}

fn is_head(line: &Line) -> bool {
    line.target % 50 == 7
}

fn write(lines: &[Line], path: &Path) -> Result<()> {
    const BEGAN: u64 = 1_795_167_000;
    let mut file = BufWriter::new(File::create(path)?);
    for line in lines {
        let (second, micros) = (BEGAN + line.at_us / 1_000_000, line.at_us % 1_000_000);
        let (a, b) = (line.client >> 8, line.client & 255);
        let method = if is_head(line) { "HEAD" } else { "GET" };
        let target = line.target;
        writeln!(
            file,
            r#"{{"time":"{second}.{micros:06}","remote_addr":"198.18.{a}.{b}","request":"{method} /p/{target}.html?v=1 HTTP/1.1","status":200,"bytes":1024}}"#
        )?;
    }
    file.flush().context("writing the log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_log_in_order() {
        let (one, two) = (lines(), lines());
        assert!(one.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        assert!(one.iter().zip(&two).all(|(a, b)| (a.at_us, a.client, a.target) == (b.at_us, b.client, b.target)));
        let seconds = one.last().unwrap().at_us as f64 / 1e6;
        assert!((60.0..100.0).contains(&seconds), "{seconds}");
    }
}
