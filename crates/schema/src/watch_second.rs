//! One second of the wire's live series.

use serde::{Deserialize, Serialize};

/// What passed the capture in one second of capture time. Levels (connections in process, sessions, in flight) are
/// weighted by time: they come from counters as they stood, not from the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSecond {
    /// The second: capture time divided by 10^9.
    pub second: u64,
    /// Nanoseconds of this second that were watched: less than 10^9 in the first and the last.
    pub watched_ns: u64,
    /// Packets of any kind, as captured.
    pub packets: u64,
    /// Their bytes on the wire, link headers included.
    pub bytes: u64,
    /// TCP packets with payload.
    pub data_packets: u64,
    /// Those that repeated bytes seen before.
    pub retransmitted_packets: u64,
    /// Connections whose first SYN came (connection arrivals); those open before the capture are not in it.
    pub connections_opened: u64,
    /// Connections that stopped being in process.
    pub connections_closed: u64,
    /// Mean of the connections in process.
    pub connections_mean: f64,
    /// Fewest connections in process.
    pub connections_min: u64,
    /// Most connections in process.
    pub connections_max: u64,
    /// Connections in process at the end of the second.
    pub connections: u64,
    /// Mean of the HTTP sessions: connections with a request, not closed.
    pub sessions_mean: f64,
    /// Most HTTP sessions.
    pub sessions_max: u64,
    /// HTTP sessions at the end of the second.
    pub sessions: u64,
    /// HTTP requests whose first byte came (request arrivals).
    pub requests: u64,
    /// HTTP responses whose last byte came.
    pub responses: u64,
    /// Mean of the transactions in progress: first byte of the request to last byte of the response.
    pub in_flight_mean: f64,
    /// Most transactions in progress.
    pub in_flight_max: u64,
    /// Transactions in progress at the end of the second.
    pub in_flight: u64,
    /// Handshakes completed with a round-trip time.
    pub handshakes: u64,
    /// Median of their round-trip times at this capture point, in ns; 0 where there was none.
    pub handshake_rtt_p50_ns: u64,
    /// 90th percentile of the same.
    pub handshake_rtt_p90_ns: u64,
    /// 99th percentile of the same.
    pub handshake_rtt_p99_ns: u64,
    /// Largest of the same.
    pub handshake_rtt_max_ns: u64,
    /// Packets the capturing system said it lost.
    pub capture_drops: u64,
    /// Bytes acknowledged in this second that the capture never saw.
    pub missing_bytes: u64,
}

impl WatchSecond {
    /// Share of packets with payload that repeated bytes seen before; 0 where none had payload.
    pub fn retransmit_share(&self) -> f64 {
        if self.data_packets == 0 { 0.0 } else { self.retransmitted_packets as f64 / self.data_packets as f64 }
    }
}
