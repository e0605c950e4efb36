//! The result of `watch` on one screen.

use schema::document::{Document, Level, Quantiles};
use schema::{CaptureReading, WatchDocument, WatchPart, WatchQuic};

use super::headline;
use super::load::{counted, distributions};
use super::page::{Ink, Page};
use super::{Style, environment, footer};
use crate::figures::{bit_rate, bytes, count, duration, level, rate, share};
use crate::phrases::{self, span};

/// The document of `watch` on one screen.
pub fn watch(document: &WatchDocument, style: Style) -> String {
    let mut page = Page::new(style);
    let plain = Document {
        schema: document.schema.clone(),
        run: document.run.clone(),
        validity: document.validity.clone(),
        load: None,
        path: None,
        server: None,
        watch: None,
        tap: None,
        slo: None,
        cache: None,
    };
    headline::print(&mut page, &plain);
    print(&mut page, &document.watch, document.run.duration_s);
    environment::host(&mut page, &plain.run.host);
    footer(&mut page, &plain.run);
    page.into_text()
}

fn print(page: &mut Page, part: &WatchPart, seconds: f64) {
    let point = match part.capture_point.as_str() {
        "client" => "at the client: RTT is SYN to SYN-ACK",
        "between" => "between client and server: RTT is SYN to ACK",
        _ => "at the server: RTT is SYN-ACK to ACK",
    };
    page.entry("captured", &format!("{} for {}, {point}", part.source, span(seconds)));
    let traffic =
        if seconds > 0.0 { format!(", {}", bit_rate(part.bytes as f64 * 8.0 / seconds)) } else { String::new() };
    page.entry(
        "packets",
        &format!("{} ({}{traffic}), {} of TCP", count(part.packets), bytes(part.bytes), count(part.tcp_packets)),
    );
    page.blank();
    let connections = &part.connections;
    page.entry(
        "opened",
        &format!("{} ({} connections in all)", rate(part.connection_rate_per_s), count(connections.count)),
    );
    let concurrent = Level { mean: connections.mean, p50: connections.p50, max: connections.max };
    page.entry_in("concurrent", &of_level(&concurrent), Ink::Strong);
    page.entry("states", &phrases::connection_states(&connections.states));
    page.blank();
    page.entry(
        "requests",
        &format!(
            "{} ({} in all), {} responses",
            rate(part.request_rate_per_s),
            count(part.requests),
            rate(part.response_rate_per_s)
        ),
    );
    page.entry("in flight", &of_level(&part.in_flight));
    page.entry("sessions", &of_level(&part.sessions));
    page.entry("status", &counted(&part.status));
    if part.incomplete > 0 {
        page.entry("", &format!("{} requests without a complete response", count(part.incomplete)));
    }
    if part.by_direction > 0 {
        let text = format!(
            "{} requests recognized by a change of direction only: their headers were not captured in full",
            count(part.by_direction)
        );
        page.entry("", &text);
    }
    page.blank();
    distributions(page, "", &[("handshake RTT", &part.handshake_rtt_ns), ("service time", &part.service_time_ns)]);
    page.blank();
    page.entry(
        "retransmit",
        &format!(
            "{} of {} data packets ({}), {} out of order",
            count(part.retransmitted),
            count(part.data_packets),
            share(part.retransmit_share),
            count(part.out_of_order)
        ),
    );
    if let Some(quic) = &part.quic {
        print_quic(page, quic);
    }
    let (loss, ink) = match (part.capture_drops, part.missing_bytes) {
        (0, 0) => ("no packets lost".to_owned(), Ink::Plain),
        (drops, missing) => (
            format!("{} packets lost; {} acknowledged but never captured", count(drops), bytes(missing)),
            Ink::Doubtful,
        ),
    };
    page.entry_in("capture", &loss, ink);
    if let Some(capture) = &part.capture {
        print_reading(page, capture);
    }
    if part.malformed_packets > 0 || part.later_fragments > 0 {
        let text = format!(
            "{} malformed packets, {} later fragments",
            count(part.malformed_packets),
            count(part.later_fragments)
        );
        page.entry("", &text);
    }
    if let Some(capture) = &part.capture {
        print_protocols(page, capture);
    }
}

/// QUIC connections.
fn print_quic(page: &mut Page, quic: &WatchQuic) {
    let text = format!(
        "{} connections (versions: {}), {} datagrams, {}",
        count(quic.connections),
        counted(&quic.versions),
        count(quic.datagrams),
        bytes(quic.udp_bytes)
    );
    page.entry("QUIC", &text);
    let rtt = |name: &str, rtt: &Quantiles| {
        (rtt.count > 0).then(|| format!("{name} RTT median {}, p99 {}", duration(rtt.p50), duration(rtt.p99)))
    };
    let rtts = [rtt("handshake", &quic.handshake_rtt_ns), rtt("spin bit", &quic.spin_rtt_ns)];
    let rtts: Vec<String> = rtts.into_iter().flatten().collect();
    if !rtts.is_empty() {
        page.entry("", &rtts.join("; "));
    }
    let events = [
        (quic.version_negotiations, "version negotiations"),
        (quic.retries, "Retry packets"),
        (quic.migrations, "migrations"),
        (quic.coalesced_datagrams, "coalesced datagrams"),
        (quic.undecrypted_packets, "Initial packets not decrypted"),
    ];
    let events: Vec<String> = events
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
    if !events.is_empty() {
        page.entry("", &events.join(", "));
    }
    page.entry("", &format!("ended: {}", counted(&quic.ends)));
}

/// Irregularities of the capture: duplicates, reordering, early acknowledgements, unread streams.
fn print_reading(page: &mut Page, capture: &CaptureReading) {
    if capture.duplicate_packets > 0 {
        let text = format!("{} packets captured twice; the copies are left out", count(capture.duplicate_packets));
        page.entry("", &text);
    }
    if capture.reordered_packets > 0 {
        let text = format!(
            "{} packets out of time order, sorted within {}",
            count(capture.reordered_packets),
            duration(capture.reorder_window_ns)
        );
        page.entry("", &text);
    }
    if capture.early_acks.count > 0 {
        let text = format!(
            "{} acknowledgements captured up to {} before their data, moved behind it",
            count(capture.early_acks.count),
            duration(capture.early_acks.max_ns)
        );
        page.entry("", &text);
    }
    if capture.proxy_protocol_connections > 0 {
        let text = format!(
            "{} connections with a PROXY protocol header: their client is the proxy",
            count(capture.proxy_protocol_connections)
        );
        page.entry("", &text);
    }
    if capture.unread_streams > 0 {
        let text =
            format!("{} connections whose first data was not captured: not analyzed", count(capture.unread_streams));
        page.entry("", &text);
    }
    if capture.undecrypted_tls_connections > 0 {
        let text = format!(
            "{} TLS connections not decrypted to their end: secrets missing in the key log, or bytes in the capture",
            count(capture.undecrypted_tls_connections)
        );
        page.entry("", &text);
    }
    if capture.undecoded_heads > 0 {
        let text = format!(
            "{} heads of HTTP/2 or 3 with fields that refer to heads that were not captured: these fields are unknown",
            count(capture.undecoded_heads)
        );
        page.entry("", &text);
    }
}

/// Tunnels that were unwrapped, and protocols that were not analyzed.
fn print_protocols(page: &mut Page, capture: &CaptureReading) {
    if !capture.tunnels.is_empty() {
        page.entry("tunnels", &format!("unwrapped: {}", counted(&capture.tunnels)));
    }
    if !capture.not_analyzed.is_empty() {
        let named = capture.not_analyzed.iter().take(NAMED_MAX);
        let mut words: Vec<String> = named.map(|one| format!("{} {}", count(one.packets), one.name)).collect();
        let rest: u64 = capture.not_analyzed.iter().skip(NAMED_MAX).map(|one| one.packets).sum();
        if rest > 0 {
            words.push(format!("{} others", count(rest)));
        }
        page.entry("not analyzed", &words.join(", "));
    }
}

fn of_level(values: &Level) -> String {
    format!("mean {}, median {}, max {}", level(values.mean), count(values.p50), count(values.max))
}

/// Protocols named; the others are counted together.
const NAMED_MAX: usize = 6;
