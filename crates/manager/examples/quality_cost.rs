//! The cost of counting rows for quality: time, disk space, and query times. Prints; asserts nothing.
//!
//! ```text
//! cargo run --release -p manager --example quality_cost -- AGENTS SERIES DAYS ROWS
//! ```
//!
//! DAYS days of AGENTS agents with SERIES series each, ROWS rows of each series a day; then an hour in which each
//! series has a row every two seconds.

#![allow(clippy::disallowed_methods, reason = "a measurement of cost reads the clock; the library does not")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use manager::Data;
use manager::quality::{By, ComparedSet, Comparison, Query, Resolution, Sides, compare, fold, query, read_sparklines};
use rusqlite::params;
use schema::{FleetRow, TapError, TapExchange, TapOutcome};
use schema::{TapAddress, TapRow};
use stats::Rng;
use units::Timestamp;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [agents, series, days, rows] = numbers[..] else { return Err("AGENTS SERIES DAYS ROWS".into()) };
    let folder = std::env::temp_dir().join(format!("yamabiko-quality-cost-{}", std::process::id()));
    let outcome = Data::open(&folder).map_err(Into::into).and_then(|data| {
        fill(&data, [agents, series], days, rows)?;
        run_queries(&data, days)
    });
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn fill(data: &Data, [agents, series]: [u64; 2], days: u64, rows: u64) -> Result<(), Box<dyn Error>> {
    let sql = "INSERT INTO agents (name, \"group\", settings, first_seen_at, last_seen_at) VALUES (?1, ?2, '{}', 0, 0)";
    data.change(|change| -> rusqlite::Result<()> {
        for agent in 0..agents {
            let group = if agent % 2 == 0 { "north" } else { "south" };
            change.execute(sql, params![format!("agent-{agent:03}"), group])?;
        }
        Ok(())
    })?;
    let begin = NOW_S - days * DAY_S;
    let of_days: Vec<u64> = (0..days * rows).map(|at| begin + at * (DAY_S / rows)).collect();
    let of_hour: Vec<u64> = (0..1800).map(|at| NOW_S - 3600 + at * 2).collect();
    let mut rng = Rng::named(1, "quality_cost");
    for (name, times) in [("days", of_days), ("an hour", of_hour)] {
        let (mut total, mut took, before) = (0, 0.0, bytes(data.folder()));
        let at_once = (BATCH / (agents * series).max(1)).max(1) as usize;
        for times in times.chunks(at_once) {
            let mut batch = Vec::new();
            for &at_s in times {
                for agent in 0..agents {
                    batch.extend((0..series).map(|series| placed(agent, series, at_s, &mut rng)));
                }
            }
            total += batch.len();
            let started = Instant::now();
            data.change(|change| fold(change, &batch))?;
            took += started.elapsed().as_secs_f64();
        }
        let grown = bytes(data.folder()).saturating_sub(before) as f64 / 1e6;
        println!("{name}: {total} rows counted in {took:.2} s, {:.0} rows/s; {grown:.1} MB", total as f64 / took);
    }
    let sizes = "SELECT span_s, whole, count(*), avg(length(response) + length(windows) + length(causes)) FROM quality GROUP BY 1, 2";
    let sizes = data.read(|index| -> rusqlite::Result<Vec<(i64, bool, i64, f64)>> {
        let mut query = index.prepare(sizes)?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        rows.collect()
    })?;
    for (span_s, whole, rows, blobs) in sizes {
        let what = if whole { "of agents as a whole" } else { "of series" };
        println!("  spans of {span_s} s {what}: {rows} rows, {blobs:.0} bytes of histogram, windows and causes each");
    }
    Ok(())
}

fn run_queries(data: &Data, days: u64) -> Result<(), Box<dyn Error>> {
    let resolution = Resolution::Day;
    let month =
        |by| Query { from_s: Some(NOW_S - days * DAY_S), until_s: Some(NOW_S), resolution, by, ..Query::default() };
    let hour = |by| Query { resolution: Resolution::Minute, by, ..Query::default() };
    for (name, query_of_case) in [
        ("days, all", month(By::None)),
        ("days, agents", month(By::Agent)),
        ("days, groups", month(By::Group)),
        ("days, programs", month(By::Program)),
        ("days, one agent's peers", Query { agent: Some("agent-007".into()), ..month(By::Peer) }),
        ("hour by minute, agents", hour(By::Agent)),
        ("hour by minute, programs", hour(By::Program)),
    ] {
        let started = Instant::now();
        let result = data.read(|index| query(index, &query_of_case, NOW_S))?;
        println!("{name}: {:.3} s, {} groups", started.elapsed().as_secs_f64(), result.groups.len());
    }
    let started = Instant::now();
    let found = data.read(|index| read_sparklines(index, NOW_S, Sides::Client))?;
    println!("sparklines: {:.3} s, {} agents", started.elapsed().as_secs_f64(), found.agents.len());
    let set = |group: &str| ComparedSet { group: Some(group.to_owned()), ..ComparedSet::default() };
    let query_of_case = Comparison { a: set("north"), b: set("south"), confidence: 0.95 };
    let started = Instant::now();
    let found = data.read(|index| compare(index, &query_of_case, NOW_S))?;
    println!("comparison of an hour: {:.3} s", started.elapsed().as_secs_f64());
    found.metrics.iter().for_each(|metric| println!("  {}: {}", metric.name, metric.said));
    Ok(())
}

fn placed(agent: u64, series: u64, at_s: u64, rng: &mut Rng) -> FleetRow {
    let response_ns = ((rng.exponential() * 20e6 * (1 + series) as f64) as u64).min(900_000_000_000);
    let failed = rng.below(100) == 0;
    let at = |before_end: u64| Some(Timestamp::from_nanos(1_000_000_000_000 - before_end));
    let row = TapExchange {
        connection: Some(1),
        exchange: Some(0),
        last: true,
        program: Some(format!("program-{}", series % 5).into()),
        peer: Some(([192, 0, 2, series as u8], 443).into()),
        sent_first_at: at(response_ns),
        sent_last_at: at(response_ns / 2),
        received_first_at: at(response_ns / 4),
        received_last_at: at(0),
        sent_bytes: 300,
        received_bytes: 5000,
        outcome: if failed { TapOutcome::Failed } else { TapOutcome::Succeeded },
        error: failed.then_some(TapError::Errno(111)),
        closed_at: at(0),
        ..TapExchange::BLANK
    };
    FleetRow {
        agent: format!("agent-{agent:03}"),
        group: String::new(),
        stream: String::new(),
        sequence: 1,
        number: 0,
        at_unix_ns: at_s * 1_000_000_000,
        opened_at_unix_ns: (at_s - 1000) * 1_000_000_000,
        zero_unix_ns: (at_s - 1000) * 1_000_000_000,
        clock_offset_ns: Some(0),
        share: 1.0,
        row: TapRow::of(&row, &|ip| TapAddress::Plain(ip)),
    }
}

fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// 2026-11-23 12:00 UTC.
const NOW_S: u64 = 1_795_435_200;
const DAY_S: u64 = 86_400;
/// Rows per batch.
const BATCH: u64 = 50_000;
