//! What the wire showed.

use schema::WatchPart;
use schema::document::{Level, Run};

use super::Sources;
use super::load::distributions;
use super::over_time::response_tail;
use crate::figures::{bit_rate, bytes, count, level, rate, share};
use crate::page::{Section, Table};
use crate::phrases::{by_frequency, span};
use crate::plot::{Bars, Chart, Quantity, Series};

/// The answer of a capture in one sentence.
pub(crate) fn answer(part: &WatchPart) -> String {
    format!(
        "{} requests/s arrived and {} were answered, on {} connections in process in the mean ({} at most).",
        level(part.request_rate_per_s),
        level(part.response_rate_per_s),
        level(part.connections.mean),
        count(part.connections.max)
    )
}

/// Traffic, levels, times, how connections ended.
pub(super) fn figures(part: &WatchPart, run: &Run, sources: &Sources) -> Section {
    let point = match part.capture_point.as_str() {
        "client" => "beside the client: a handshake's round-trip time is SYN-ACK - SYN",
        "between" => "between both: a handshake's round-trip time is ACK - SYN",
        _ => "beside the server: a handshake's round-trip time is ACK - SYN-ACK",
    };
    let mut section = Section::new("Wire")
        .text(format!("{} for {}, {point}.", part.source, span(run.duration_s)))
        .table(traffic(part, run))
        .table(levels(part))
        .table(distributions(&[("handshake RTT", &part.handshake_rtt_ns), ("service time", &part.service_time_ns)]));
    // Beside a load these stand with the load's own.
    if sources.document.load.is_none() {
        let mut times = response_tail([("service time", &sources.wire_service)])
            .about("Last byte of a request to last byte of its response.");
        times.title = "Service time by percentile".into();
        times.y.label = "service time".into();
        let rtt = Chart::cumulative("Round-trip time of handshakes", "round-trip time")
            .series(Series::distribution("handshakes", &sources.wire_rtt));
        section = section.figure(times).figure(rtt);
    }
    section.figure(bars("How connections stood at their end", &part.connections.states, "connections")).figure(bars(
        "Responses by status",
        &part.status,
        "responses",
    ))
}

fn traffic(part: &WatchPart, run: &Run) -> Table {
    let bits = if run.duration_s > 0.0 { bit_rate(part.bytes as f64 * 8.0 / run.duration_s) } else { String::new() };
    let mut table = Table::new(&["", "number", "", ""]).left(&[3]);
    let mut row = |name: &str, number: u64, rate: String, note: String| {
        table = std::mem::take(&mut table).row([name.to_owned(), count(number), rate, note]);
    };
    row("requests", part.requests, rate(part.request_rate_per_s), String::new());
    row("responses", part.responses, rate(part.response_rate_per_s), String::new());
    row("connections", part.connections.count, rate(part.connection_rate_per_s), "opened a second".into());
    row("packets", part.packets, bits, bytes(part.bytes));
    row("sent again", part.retransmitted, share(part.retransmit_share), "of the packets with payload".into());
    row("out of order", part.out_of_order, String::new(), String::new());
    row("lost by the capture", part.capture_drops, String::new(), String::new());
    row("bytes never seen", part.missing_bytes, String::new(), "acknowledged by the other end".into());
    table
}

fn levels(part: &WatchPart) -> Table {
    let row = |name: &str, l: &Level| [name.to_owned(), level(l.mean), count(l.p50), count(l.max)];
    let connections = Level { mean: part.connections.mean, p50: part.connections.p50, max: part.connections.max };
    Table::new(&["", "mean", "median second", "most"])
        .row(row("connections in process", &connections))
        .row(row("HTTP sessions", &part.sessions))
        .row(row("requests in flight", &part.in_flight))
}

fn bars(title: &str, counts: &std::collections::BTreeMap<String, u64>, unit: &str) -> Bars {
    let bars = Bars::new(title, Quantity::Count, &[unit]);
    by_frequency(counts).into_iter().fold(bars, |bars, (name, n)| bars.row(name, &[Some(n as f64)]))
}
