//! Results of the packet capture at the server's end.

use std::collections::BTreeMap;
use std::time::Duration;

use load::GaugeStatistics;
use schema::document::PathInCapture;
use schema::{Level, WatchQuic, WatchSecond};
use stats::Histogram;
use watch::Counts;

use super::Differences;

/// Results of the packet capture.
#[derive(Clone, Copy)]
pub struct WireEvidence<'a> {
    /// Results of the capture thread.
    pub watched: &'a Watched,
    /// Results of the recorder.
    pub figures: &'a WireFigures,
    /// Length of the measured phase in nanoseconds.
    pub phase_ns: f64,
}

/// Results of the capture thread, other than the records.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The device at the server's end.
    pub device: String,
    /// Gauges over the measured phase.
    pub levels: WireGauges,
    /// Counts of the whole capture.
    pub whole: Counts,
    /// Counts of the measured phase.
    pub measured: Counts,
    /// Packets lost in a capture buffer, over the whole capture.
    pub drops: u64,
    /// Packets lost in the capture buffer at the clients' end.
    pub client_drops: u64,
    /// Records dropped because the recorder was too far behind.
    pub records_lost: u64,
    /// Why requests are not compared with the load's, if they are not.
    pub unread: Option<&'static str>,
    /// TLS and QUIC connections with data that was not decrypted, or not to its end.
    pub undecrypted: u64,
    /// TLS secrets of the load that did not reach the capture, because their queue was full.
    pub secrets_lost: u64,
    /// Movement of the wall clock against the run's clock, in ns.
    pub clock_deviation_ns: u64,
    /// The longest time from a packet to its analysis.
    pub lag: Duration,
    /// CPU time the thread used.
    pub cpu: Duration,
    /// Lifetime of the thread.
    pub wall: Duration,
    /// Timing of the path, if both ends are captured.
    pub between: Option<PathInCapture>,
    /// Why the capture ended early, if it did.
    pub failure: Option<String>,
}

impl Watched {
    /// Cost of the capture, as text.
    pub fn cost(&self) -> String {
        let share = if self.wall.is_zero() { 0.0 } else { self.cpu.as_secs_f64() / self.wall.as_secs_f64() };
        format!("{:.1}% of a core, at most {:.0} ms behind", 100.0 * share, self.lag.as_secs_f64() * 1e3)
    }
}

/// Gauges sampled over the measured phase.
#[derive(Clone, Debug, Default)]
pub struct WireGauges {
    /// Open connections: SYN seen, and neither both FINs nor a RST.
    pub connections: GaugeStatistics,
    /// Transactions in flight: first byte of the request seen, last byte of its response not.
    pub in_flight: GaugeStatistics,
    /// HTTP sessions: open connections with at least one request.
    pub sessions: Level,
    /// Number of samples.
    pub samples: u64,
}

/// Distributions and counts of the measured phase.
#[derive(Clone, Debug, Default)]
pub struct WireFigures {
    /// ACK - SYN-ACK of the handshakes completed in the phase; of QUIC, first acknowledgement less first acknowledged
    /// packet of the server.
    pub handshake_rtt: Histogram,
    /// Handshake RTT less the client's configured RTT, absolute.
    pub handshake_error: Histogram,
    /// Last byte of the request to last byte of its response, of requests begun in the phase.
    pub service_time: Histogram,
    /// Connections whose SYN, or first QUIC packet, arrived in the phase.
    pub connections_opened: u64,
    /// Requests whose first byte arrived in the phase.
    pub requests: u64,
    /// Responses whose last byte arrived in the phase.
    pub responses: u64,
    /// Requests of the phase without a complete response.
    pub incomplete: u64,
    /// Requests of the phase whose ends were recognised by changes of direction.
    pub by_direction: u64,
    /// Responses to these requests by status code.
    pub status: BTreeMap<u16, u64>,
    /// QUIC connections opened in the phase, if the load uses QUIC.
    pub quic: Option<WatchQuic>,
    /// TCP connections opened in the phase, by state at their end.
    pub states: BTreeMap<&'static str, u64>,
    /// Bytes acknowledged but not captured, whole capture.
    pub missing_bytes: u64,
    /// Packets that filled a gap, of connections opened in the phase.
    pub out_of_order: u64,
    /// Packets with payload, of the seconds that overlap the phase.
    pub data_packets: u64,
    /// Retransmitted packets, of the same seconds.
    pub retransmitted: u64,
    /// Connections whose SYN was answered, whole capture.
    pub made: u64,
    /// Payload from the clients, each byte once, whole capture.
    pub up_bytes: u64,
    /// Payload to the clients, each byte once, whole capture.
    pub down_bytes: u64,
    /// Connections with payload in both directions and no HTTP request.
    pub not_http: u64,
    /// Time during which connections were open within the phase, in ns.
    pub connections_ns: u128,
    /// Time that requests spent in flight within the phase, in ns.
    pub in_flight_ns: u128,
    /// Requests begun before the phase ended without a complete response: their end is unknown.
    pub unended: u64,
    /// Requests in flight within the phase whose ends were recognised by changes of direction.
    pub ended_by_direction: u64,
    /// All seconds of the run.
    pub seconds: Vec<WatchSecond>,
    /// Comparison of load and capture, if there was a load.
    pub agreed: Option<Agreed>,
}

/// Counts of the comparison of load and capture.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// Requests complete at both vantage points.
    pub both: u64,
    /// Complete for the load, missing or incomplete in the capture.
    pub load_only: u64,
    /// Complete in the capture, unknown to the load.
    pub wire_only: u64,
    /// Complete in the capture, failed for the load: it timed out, or the run ended, while the response was on its way.
    pub failed_at_load: u64,
    /// Requests of the load that failed.
    pub load_failed: u64,
    /// Complete at both vantage points, with different status codes.
    pub status_differs: u64,
    /// Requests sent by the load, retries included.
    pub load_sent: u64,
    /// Of these, the ones that may not have reached the server's end: failed requests, and all but the last attempt of
    /// retried ones.
    pub load_sent_in_vain: u64,
    /// Requests whose first byte passed the server's end.
    pub wire_requests: u64,
    /// Connections on which the load called connect.
    pub load_called: u64,
    /// Connections that the load established.
    pub load_established: u64,
    /// Connections whose SYN, or first QUIC packet, was captured.
    pub wire_opened: u64,
    /// Load's service time less the captured one less the client's RTT, of requests of the measured phase.
    pub differences: Differences,
    /// Records had to be dropped before they were paired.
    pub overflowed: bool,
}

impl Agreed {
    /// Requests complete at one vantage point that the other cannot account for. Requests that timed out at the load
    /// may have a response.
    pub fn unaccounted(&self) -> u64 {
        let given_up = self.load_failed.saturating_sub(self.failed_at_load);
        self.load_only + self.wire_only.saturating_sub(given_up)
    }

    /// Requests captured but not sent by the load, and requests sent and answered but not captured.
    pub fn sends_unaccounted(&self) -> u64 {
        let unsent = self.wire_requests.saturating_sub(self.load_sent);
        unsent + self.load_sent.saturating_sub(self.wire_requests + self.load_sent_in_vain)
    }

    /// Connections at one vantage point that the other cannot account for: each connection established by the load has
    /// a captured SYN, and each SYN belongs to a connect of the load.
    pub fn connections_unaccounted(&self) -> u64 {
        self.load_established.saturating_sub(self.wire_opened) + self.wire_opened.saturating_sub(self.load_called)
    }
}
