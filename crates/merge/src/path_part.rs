//! The path's part of the merged document: the paths of all machines, each with its own clients.

use std::collections::BTreeMap;

use plan::HttpVersion;
use schema::document::{Path, PathDirection};

use crate::source::Sources;
use crate::sum::Sum;

/// The figures of all paths together; `None` without a path.
pub(crate) fn of(sources: &Sources, sum: &Sum) -> Option<Path> {
    let histograms = sum.path.as_ref()?;
    let mut paths = sources.complete.iter().filter_map(|source| source.document.path.as_ref());
    let mut all = paths.next()?.clone();
    let mut others = 0u32;
    for path in paths {
        others += 1;
        all.packets += path.packets;
        all.bytes += path.bytes;
        add_drops(&mut all.drops, &path.drops);
        add(&mut all.up, &path.up);
        add(&mut all.down, &path.down);
        all.late_wakeups_ns += path.late_wakeups_ns;
        all.run_queue_wait_ns = all.run_queue_wait_ns.zip(path.run_queue_wait_ns).map(|(sum, waited)| sum + waited);
    }
    all.timing_error_ns = histograms.all.quantiles();
    all.timing_error_isolated_ns = histograms.isolated.quantiles();
    all.timing_error_burst_ns = histograms.bursts.quantiles();
    all.timing_error_own_ns = histograms.own.quantiles();
    // Captures of packets are those of each machine.
    all.packet_capture = None;
    if others > 0 {
        measure_handshakes(&mut all, sources, sum);
    }
    Some(all)
}

/// RTTs from the handshakes of all loads, which are merged, unlike captured ones.
fn measure_handshakes(all: &mut Path, sources: &Sources, sum: &Sum) {
    // A handshake of QUIC includes the server's time for TLS.
    let is_tcp = sources.plan.load.http != HttpVersion::Http3;
    let handshakes = sum.counting.handshakes.as_ref().filter(|handshakes| is_tcp && !handshakes.rtts().is_empty());
    let beyond = sum.facts.iter().any(|facts| facts.beyond);
    all.measured_rtt_ns = handshakes.map(|handshakes| handshakes.rtts().quantiles());
    let error = handshakes.map(|handshakes| handshakes.error()).filter(|error| !error.is_empty() && !beyond);
    all.rtt_error_ns = error.map(|error| error.quantiles());
    all.measured_rtt_source = match (handshakes.is_some(), beyond) {
        (false, _) => String::new(),
        (true, false) => "handshakes, by the load's clock".into(),
        (true, true) => "handshakes, by the load's clock, including the real network beyond the path".into(),
    };
}

fn add(all: &mut PathDirection, other: &PathDirection) {
    all.packets += other.packets;
    all.bytes += other.bytes;
    all.delivered += other.delivered;
    all.delivered_bytes += other.delivered_bytes;
    all.in_transit += other.in_transit;
    all.duplicated += other.duplicated;
    all.corrupted += other.corrupted;
    all.reordered += other.reordered;
    add_drops(&mut all.drops, &other.drops);
}

fn add_drops(all: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>) {
    other.iter().for_each(|(cause, count)| *all.entry(cause.clone()).or_default() += count);
}
