//! Section of a run's page about captured packets.

use schema::WatchPart;
use schema::document::{Level, Run};

use super::Sources;
use super::load::distributions;
use super::over_time::response_tail;
use crate::figures::{bit_rate, bytes, count, level, rate, share};
use crate::page::{Section, Table};
use crate::phrases::{by_frequency, connection_state, span, wire_quic_line};
use crate::plot::{Bars, Chart, Quantity, Series};

/// The result of a capture in one sentence.
pub(crate) fn answer(part: &WatchPart) -> String {
    format!(
        "{} requests/s and {} responses/s, on {} concurrent connections (mean; max {}).",
        level(part.request_rate_per_s),
        level(part.response_rate_per_s),
        level(part.connections.mean),
        count(part.connections.max)
    )
}

/// Traffic, gauges, times, connection states.
pub(super) fn figures(part: &WatchPart, run: &Run, sources: &Sources) -> Section {
    let point = match part.capture_point.as_str() {
        "client" => "at the client: handshake RTT is SYN to SYN-ACK",
        "between" => "between client and server: handshake RTT is SYN to ACK",
        _ => "at the server: handshake RTT is SYN-ACK to ACK",
    };
    let mut section = Section::new("Wire")
        .text(format!("{} for {}, {point}.", part.source, span(run.duration_s)))
        .table(traffic(part, run))
        .table(gauges(part))
        .table(distributions(&[
            ("handshake RTT", &part.handshake_rtt_ns),
            ("server processing time", &part.service_time_ns),
        ]));
    // With a load the page has the load's own plots.
    if sources.document.load.is_none() {
        let mut times = response_tail([("server processing time", &sources.wire_service)])
            .about("From the last byte of a request to the last byte of its response.");
        times.title = "Server processing time by percentile".into();
        times.y.label = "server processing time".into();
        let rtt = Chart::cumulative("Round-trip time of handshakes", "round-trip time")
            .series(Series::distribution("handshakes", &sources.wire_rtt));
        section = section.figure(times).figure(rtt);
    }
    if let Some(quic) = &part.quic {
        section = section.text(format!("QUIC: {}.", wire_quic_line(quic)));
    }
    if let Some(why) = &part.unread {
        section = section.text(format!("Requests are not compared with those of the load: {why}."));
    }
    section = section.text(states_legend(&part.connections.states));
    if !part.connections.states.is_empty() || part.quic.is_none() {
        section = section.figure(bars("Connections by state", &part.connections.states, "connections"));
    }
    section.figure(bars("Responses by status", &part.status, "responses"))
}

/// Explains the connection states that occurred.
fn states_legend(states: &std::collections::BTreeMap<String, u64>) -> String {
    let known = by_frequency(states).into_iter().filter(|(state, _)| !connection_state(state).is_empty());
    let texts: Vec<String> = known.map(|(state, _)| format!("{state}: {}", connection_state(state))).collect();
    if texts.is_empty() { String::new() } else { format!("Connection states (as in Zeek): {}.", texts.join("; ")) }
}

fn traffic(part: &WatchPart, run: &Run) -> Table {
    let bits = if run.duration_s > 0.0 { bit_rate(part.bytes as f64 * 8.0 / run.duration_s) } else { String::new() };
    let mut table = Table::new(&["", "number", "", ""]).left(&[3]);
    let mut row = |name: &str, number: u64, rate: String, note: String| {
        table = std::mem::take(&mut table).row([name.to_owned(), count(number), rate, note]);
    };
    // None may have been read.
    if part.requests > 0 {
        row("requests", part.requests, rate(part.request_rate_per_s), String::new());
        row("responses", part.responses, rate(part.response_rate_per_s), String::new());
    }
    row("connections", part.connections.count, rate(part.connection_rate_per_s), "opened".into());
    row("packets", part.packets, bits, bytes(part.bytes));
    // Of QUIC these cannot be seen.
    if part.tcp_packets > 0 || part.quic.is_none() {
        row("retransmitted", part.retransmitted, share(part.retransmit_share), "of the data packets".into());
        row("out of order", part.out_of_order, String::new(), String::new());
        row("bytes never captured", part.missing_bytes, String::new(), "acknowledged by the other end".into());
    }
    row("lost by the capture", part.capture_drops, String::new(), String::new());
    table
}

fn gauges(part: &WatchPart) -> Table {
    let row = |name: &str, l: &Level| [name.to_owned(), level(l.mean), count(l.p50), count(l.max)];
    let connections = Level { mean: part.connections.mean, p50: part.connections.p50, max: part.connections.max };
    let table = Table::new(&["", "mean", "median", "max"]).row(row("concurrent connections", &connections));
    if part.requests == 0 {
        return table;
    }
    table.row(row("HTTP sessions", &part.sessions)).row(row("requests in flight", &part.in_flight))
}

fn bars(title: &str, counts: &std::collections::BTreeMap<String, u64>, unit: &str) -> Bars {
    let bars = Bars::new(title, Quantity::Count, &[unit]);
    by_frequency(counts).into_iter().fold(bars, |bars, (name, n)| bars.row(name, &[Some(n as f64)]))
}
