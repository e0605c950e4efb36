//! Summary of a whole capture: adds up seconds, connections and requests, in bounded memory.

use std::collections::BTreeMap;

use schema::watch_part::{WatchConnections, WatchPart, WatchQuic};
use schema::{
    CaptureReading, ConnectionRecord, Direction, Framing, Level, NotAnalyzed, PacketFault, QuicConnectionRecord,
    WatchSecond, WireRequest,
};
use stats::Histogram;

use crate::{CapturePoint, Fault, Reading, Watch};

/// Sums of the records taken from [`Watch`].
#[derive(Clone, Debug)]
pub struct Summary {
    watched_ns: u64,
    totals: WatchSecond,
    connections: GaugeSum,
    sessions: GaugeSum,
    in_flight: GaugeSum,
    states: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<u16, u64>,
    incomplete: u64,
    by_direction: u64,
    out_of_order: u64,
    quic: WatchQuic,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary::new()
    }
}

impl Summary {
    /// An empty summary.
    pub fn new() -> Summary {
        Summary {
            watched_ns: 0,
            totals: WatchSecond::default(),
            connections: GaugeSum::new(),
            sessions: GaugeSum::new(),
            in_flight: GaugeSum::new(),
            states: BTreeMap::new(),
            statuses: BTreeMap::new(),
            incomplete: 0,
            by_direction: 0,
            out_of_order: 0,
            quic: WatchQuic::default(),
        }
    }

    /// Adds seconds.
    pub fn add_seconds(&mut self, seconds: &[WatchSecond]) {
        for second in seconds {
            let length = second.watched_ns;
            self.watched_ns = self.watched_ns.saturating_add(length);
            self.connections.add(second.connections_mean, second.connections_max, length);
            self.sessions.add(second.sessions_mean, second.sessions_max, length);
            self.in_flight.add(second.in_flight_mean, second.in_flight_max, length);
            let totals = &mut self.totals;
            totals.data_packets = totals.data_packets.saturating_add(second.data_packets);
            totals.retransmitted_packets = totals.retransmitted_packets.saturating_add(second.retransmitted_packets);
            totals.connections_opened = totals.connections_opened.saturating_add(second.connections_opened);
            totals.requests = totals.requests.saturating_add(second.requests);
            totals.responses = totals.responses.saturating_add(second.responses);
        }
    }

    /// Adds closed connections.
    pub fn add_connections(&mut self, records: &[ConnectionRecord]) {
        for record in records {
            *self.states.entry(record.state.as_str()).or_default() += 1;
            for direction in Direction::BOTH {
                let sent = record.sent(direction);
                self.totals.missing_bytes = self.totals.missing_bytes.saturating_add(sent.missing_bytes);
                self.out_of_order += sent.out_of_order_packets;
            }
        }
    }

    /// Adds closed QUIC connections.
    pub fn add_quic_connections(&mut self, records: &[QuicConnectionRecord]) {
        records.iter().for_each(|record| count_quic(&mut self.quic, record));
    }

    /// Adds ended requests.
    pub fn add_requests(&mut self, requests: &[WireRequest]) {
        for request in requests {
            // Status codes have three digits, so there are at most 1000.
            if let Some(status) = request.status {
                *self.statuses.entry(status).or_default() += 1;
            }
            self.incomplete += u64::from(!request.complete);
            self.by_direction += u64::from(request.framing == Framing::ByDirection);
        }
    }

    /// Captured time, in nanoseconds, without silences of more than a minute.
    pub fn watched_ns(&self) -> u64 {
        self.watched_ns
    }

    /// The figures, with those of `watch` itself. Call it after [`Watch::finish`], when all records were taken.
    pub fn part(&self, watch: &Watch, source: &str, capture_point: CapturePoint) -> WatchPart {
        let counts = watch.live().counts;
        let seconds = self.watched_ns as f64 / 1e9;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let connections = self.connections.level(self.watched_ns);
        WatchPart {
            source: source.to_owned(),
            capture_point: capture_point.name().to_owned(),
            packets: counts.packets,
            bytes: counts.bytes,
            tcp_packets: counts.tcp,
            malformed_packets: counts.malformed,
            later_fragments: counts.later_fragments,
            capture_drops: counts.capture_drops,
            missing_bytes: self.totals.missing_bytes,
            connections: WatchConnections {
                count: counts.connections,
                mean: connections.mean,
                p50: connections.p50,
                max: connections.max,
                states: self.states.iter().map(|(name, &count)| ((*name).to_owned(), count)).collect(),
                evicted: counts.evicted,
            },
            in_flight: self.in_flight.level(self.watched_ns),
            sessions: self.sessions.level(self.watched_ns),
            requests: self.totals.requests,
            responses: self.totals.responses,
            request_rate_per_s: rate(self.totals.requests),
            response_rate_per_s: rate(self.totals.responses),
            connection_rate_per_s: rate(self.totals.connections_opened),
            handshake_rtt_ns: watch.handshake_rtt(),
            service_time_ns: watch.service_time(),
            status: self.statuses.iter().map(|(status, &count)| (status.to_string(), count)).collect(),
            incomplete: self.incomplete,
            by_direction: self.by_direction,
            data_packets: self.totals.data_packets,
            retransmitted: self.totals.retransmitted_packets,
            retransmit_share: self.totals.retransmit_share(),
            out_of_order: self.out_of_order,
            quic: (counts.quic_connections > 0).then(|| WatchQuic {
                connections: counts.quic_connections,
                handshake_rtt_ns: watch.quic_handshake_rtt(),
                spin_rtt_ns: watch.quic_spin_rtt(),
                ..self.quic.clone()
            }),
            unread: None,
            undecrypted_connections: None,
            capture: Some(reading(watch.reading(), watch.reorder_window_ns())),
        }
    }
}

/// Adds a closed QUIC connection to counts; the number of connections and their round trips are counted elsewhere.
pub fn count_quic(quic: &mut WatchQuic, record: &QuicConnectionRecord) {
    let version = match record.version {
        wire::quic::VERSION_1 => "1".to_owned(),
        wire::quic::VERSION_2 => "2".to_owned(),
        other => format!("0x{other:08x}"),
    };
    // A capture may have any number of versions; the rest is counted together.
    let is_listed = quic.versions.len() < VERSIONS_MAX || quic.versions.contains_key(&version);
    *quic.versions.entry(if is_listed { version } else { "other".to_owned() }).or_default() += 1;
    *quic.ends.entry(record.end.as_str().to_owned()).or_default() += 1;
    quic.version_negotiations += u64::from(record.version_negotiations);
    quic.retries += u64::from(record.retries);
    quic.migrations += u64::from(record.migrations);
    quic.undecrypted_packets += u64::from(record.undecrypted_packets);
    for direction in Direction::BOTH {
        let sent = record.sent(direction);
        quic.datagrams += sent.datagrams;
        quic.udp_bytes = quic.udp_bytes.saturating_add(sent.udp_bytes);
        quic.coalesced_datagrams += sent.coalesced_datagrams;
    }
}

/// The figures as in the document.
fn reading(reading: &Reading, reorder_window_ns: u64) -> CaptureReading {
    let fault = |fault: Fault| PacketFault {
        count: fault.count,
        first_packet: (fault.count > 0).then_some(fault.first_packet),
        max_ns: fault.most_ns,
    };
    let not_analyzed = reading.unread().into_iter().map(|(what, packets)| match what {
        Some(what) => NotAnalyzed { kind: what.kind().into(), number: what.number(), name: what.to_string(), packets },
        None => NotAnalyzed { kind: "other".into(), number: 0, name: "other protocols".into(), packets },
    });
    CaptureReading {
        duplicate_packets: reading.duplicates,
        // Packets are reordered before the analysis.
        reordered_packets: 0,
        reorder_window_ns,
        late_packets: fault(reading.late),
        early_acks: fault(reading.early_acks),
        clock_jumps: fault(reading.jumps),
        truncated_headers: reading.cut,
        unread_streams: reading.unread_streams,
        undecoded_heads: reading.undecoded_heads,
        undecrypted_tls_connections: reading.undecrypted_tls,
        proxy_protocol_connections: reading.proxied,
        tunnels: reading.tunnels().map(|(tunnel, packets)| (tunnel.name().to_owned(), packets)).collect(),
        not_analyzed: not_analyzed.collect(),
    }
}

/// Versions that are counted each.
const VERSIONS_MAX: usize = 16;

/// A gauge over many seconds.
#[derive(Clone, Debug)]
struct GaugeSum {
    /// Mean times nanoseconds.
    weighted: f64,
    max: u64,
    /// Means of the seconds, rounded, each weighted by its length in microseconds, like the mean.
    means: Histogram,
}

impl GaugeSum {
    fn new() -> GaugeSum {
        GaugeSum { weighted: 0.0, max: 0, means: Histogram::new() }
    }

    fn add(&mut self, mean: f64, max: u64, length_ns: u64) {
        self.weighted += mean * length_ns as f64;
        self.max = self.max.max(max);
        self.means.record_n(mean.round() as u64, length_ns.div_ceil(1_000));
    }

    fn level(&self, watched_ns: u64) -> Level {
        let mean = if watched_ns == 0 { 0.0 } else { self.weighted / watched_ns as f64 };
        // Limits rounding errors of the sum: the mean of a constant gauge does not exceed its value.
        let mean = mean.clamp(0.0, self.max as f64);
        Level { mean, p50: if self.means.is_empty() { 0 } else { self.means.value_at(0.5) }, max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_means_are_weighted_by_the_length_of_their_seconds() {
        let mut summary = Summary::new();
        let second = |mean: f64, max, watched_ns| WatchSecond {
            connections_mean: mean,
            connections_max: max,
            watched_ns,
            requests: 5,
            ..WatchSecond::default()
        };
        summary.add_seconds(&[second(10.0, 12, 1_000_000_000), second(4.0, 5, 500_000_000)]);
        let part = summary.part(&Watch::new(crate::WatchSpec::default()), "x", CapturePoint::AtServer);
        assert!((part.connections.mean - 8.0).abs() < 1e-9);
        assert_eq!((part.connections.max, part.requests), (12, 10));
        assert!((part.request_rate_per_s - 10.0 / 1.5).abs() < 1e-9);
        assert_eq!(part.capture_point, "server");
    }

    /// The median is weighted like the mean: a second that was captured for a tenth counts a tenth.
    #[test]
    fn gauge_mean_and_median_have_the_same_weights() {
        let mut sum = GaugeSum::new();
        sum.add(100.0, 100, 50_000_000);
        sum.add(100.0, 100, 50_000_000);
        sum.add(4.0, 5, 1_000_000_000);
        let level = sum.level(1_100_000_000);
        assert_eq!((level.p50, level.max), (4, 100));
        assert!((level.mean - 14.0 / 1.1).abs() < 1e-9, "{level:?}");
        let same = (0..7).fold(GaugeSum::new(), |mut sum, _| {
            sum.add(3.0, 3, 333_333_333);
            sum
        });
        assert_eq!(same.level(7 * 333_333_333), Level { mean: 3.0, p50: 3, max: 3 });
    }

    proptest::proptest! {
        #[test]
        fn gauge_mean_and_median_do_not_exceed_the_maximum(
            seconds in proptest::collection::vec((0.0..1.0f64, 0u64..100_000, 0u64..=1_000_000_000), 1..60),
        ) {
            let mut sum = GaugeSum::new();
            let mut watched = 0;
            for &(share, max, length) in &seconds {
                sum.add(share * max as f64, max, length);
                watched += length;
            }
            let level = sum.level(watched);
            proptest::prop_assert!(level.mean >= 0.0 && level.mean <= level.max as f64 && level.p50 <= level.max, "{:?}", level);
        }
    }

    #[test]
    fn empty_summary_does_not_divide_by_zero() {
        let part = Summary::new().part(&Watch::new(crate::WatchSpec::default()), "", CapturePoint::Between);
        assert_eq!((part.connections.mean, part.request_rate_per_s, part.retransmit_share), (0.0, 0.0, 0.0));
    }
}
