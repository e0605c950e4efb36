//! The headline figures: those of the document after the run, counted so far before its end.

use schema::document::{Document, Load};
use schema::{LoadProgress, RunPhase, RunProgress, SecondRecord};

use super::super::follow::Records;
use super::super::state::Fact;
use super::measured_s;
use crate::figures::{count, duration, level, rate, share};
use crate::phrases::total;

pub(super) fn of(records: &Records) -> Vec<Fact> {
    match (records.document(), &records.progress) {
        (Some(document), _) => ended(document),
        (None, Some(progress)) => so_far(progress, &records.series, records),
        (None, None) => Vec::new(),
    }
}

/// The exact values of the document.
fn ended(document: &Document) -> Vec<Fact> {
    if let Some(load) = &document.load {
        return of_load(load);
    }
    let mut facts = Vec::new();
    if let Some(watch) = &document.watch {
        facts.push(Fact::new("Requests", rate(watch.request_rate_per_s), watch.request_rate_per_s, "arrived"));
        facts.push(Fact::new("Responses", rate(watch.response_rate_per_s), watch.response_rate_per_s, ""));
        facts.push(Fact::new("Connections", level(watch.connections.mean), watch.connections.mean, "concurrent, mean"));
        facts.push(Fact::new("In flight", level(watch.in_flight.mean), watch.in_flight.mean, "mean"));
        facts.push(time("Handshake", watch.handshake_rtt_ns.count, watch.handshake_rtt_ns.p50, "RTT, p50"));
        facts.push(Fact::new("Packets", count(watch.packets), watch.packets as f64, ""));
    }
    if let Some(path) = &document.path {
        facts.push(Fact::new("Path", count(path.packets), path.packets as f64, "packets"));
        if let Some(rtt) = &path.measured_rtt_ns {
            facts.push(time("Measured RTT", rtt.count, rtt.p50, "median"));
        }
    }
    facts
}

fn of_load(load: &Load) -> Vec<Fact> {
    let q = &load.response_time_ns;
    vec![
        Fact::new("Offered", rate(load.offered_rate_per_s), load.offered_rate_per_s, requests(load.offered_requests)),
        Fact::new("Achieved", rate(load.achieved_rate_per_s), load.achieved_rate_per_s, requests(load.completed)),
        time("p50", q.count, q.p50, "response time"),
        time("p99", q.count, q.p99, "response time"),
        Fact::new("In flight", level(load.in_flight.mean), load.in_flight.mean, "mean"),
        Fact::new("Connections", level(load.connections.mean), load.connections.mean, "concurrent, mean"),
        failures(total(&load.failed), load.offered_requests),
    ]
}

fn so_far(progress: &RunProgress, series: &[SecondRecord], records: &Records) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(load) = &progress.load {
        facts = load_so_far(progress, load, series);
    }
    if let (Some(watch), None) = (&progress.watch, &progress.load) {
        let last = records.watch.last();
        let arrived = last.map_or(0, |row| row.requests);
        facts.push(Fact::new("Requests", rate(arrived as f64), arrived as f64, "last second"));
        facts.push(Fact::new("Connections", count(watch.connections), watch.connections as f64, "concurrent"));
        facts.push(Fact::new("In flight", count(watch.in_flight), watch.in_flight as f64, "requests"));
        if let Some(rtt) = &watch.handshake_rtt_ns {
            facts.push(time("Handshake", rtt.count, rtt.p50, "RTT, p50"));
        }
        facts.push(Fact::new("Packets", count(watch.packets), watch.packets as f64, ""));
        if watch.capture_drops > 0 {
            let mut lost = Fact::new("Not captured", count(watch.capture_drops), watch.capture_drops as f64, "packets");
            lost.tone = "bad";
            facts.push(lost);
        }
    }
    if let (Some(path), None) = (&progress.path, &progress.load) {
        facts.push(Fact::new("Path", count(path.packets), path.packets as f64, "packets"));
        if let Some(rtt) = path.measured_rtt_ns {
            facts.push(time("Measured RTT", rtt.count, rtt.p50, "median"));
        }
    }
    if let Some(tap) = &progress.tap {
        facts.push(Fact::new("Exchanges", count(tap.exchanges), tap.exchanges as f64, "by socket calls"));
    }
    facts
}

fn load_so_far(progress: &RunProgress, load: &LoadProgress, series: &[SecondRecord]) -> Vec<Fact> {
    let q = &load.response_time_ns;
    let measured: Vec<&SecondRecord> = series.iter().filter(|row| row.measured).collect();
    let mut facts = Vec::new();
    if measured.is_empty() || progress.phase == RunPhase::Warmup {
        // The measured phase has no seconds yet: the figures are those of the last second.
        let last = series.last().copied().unwrap_or_default();
        let of = if progress.phase == RunPhase::Warmup { "last second, warm-up" } else { "last second" };
        facts.push(Fact::new("Offered", rate(last.offered as f64), last.offered as f64, of));
        facts.push(Fact::new("Achieved", rate(last.completed as f64), last.completed as f64, of));
    } else {
        let elapsed = measured_s(progress).max(1.0);
        let offered = load.offered as f64 / elapsed;
        let achieved = measured.iter().map(|row| row.completed as f64).sum::<f64>() / measured.len() as f64;
        facts.push(Fact::new("Offered", rate(offered), offered, requests(load.offered)));
        facts.push(Fact::new("Achieved", rate(achieved), achieved, requests(load.completed)));
    }
    facts.push(time("p50", q.count, q.p50, "response time"));
    facts.push(time("p99", q.count, q.p99, "response time"));
    facts.push(Fact::new("In flight", count(load.in_flight), load.in_flight as f64, "now"));
    facts.push(Fact::new("Connections", count(load.connections), load.connections as f64, "concurrent, now"));
    facts.push(failures(total(&load.failed), load.completed.saturating_add(total(&load.failed))));
    facts
}

fn requests(n: u64) -> String {
    format!("{} requests", count(n))
}

fn time(name: &'static str, values: u64, nanos: u64, note: &str) -> Fact {
    match values {
        0 => Fact::new(name, "–".to_owned(), f64::NAN, note),
        _ => Fact::new(name, duration(nanos), nanos as f64, note),
    }
}

fn failures(failed: u64, of: u64) -> Fact {
    let mut fact = Fact::new("Failed", count(failed), failed as f64, "");
    if failed > 0 {
        fact.note = share(failed as f64 / of.max(1) as f64);
        fact.tone = "bad";
    }
    fact
}
