//! One second of captured packets.

use crate::record;

record! {
    // Gauges (concurrent connections, sessions, in flight) come from live counters, not from the records.
    /// One second of captured packets (watch). Gauges are weighted by time. A time of more than a minute without packets has
    /// rows for its first minute only.
    #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct WatchSecond in "watch_series" {
        /// The second, by capture time: since the run's zero where a load or a program ran, since 1970 (UTC) in the
        /// logs of `yamabiko watch`.
        pub second: u64 [unit "s"],
        /// Captured time in this second: less than 10^9 in the first and the last.
        pub watched_ns: u64,
        /// Packets of any kind, as captured.
        pub packets: u64 [unit "packets"],
        /// Their bytes on the wire, link headers included.
        pub bytes: u64 [unit "bytes"],
        /// TCP packets with payload.
        pub data_packets: u64 [unit "packets"],
        /// Of these, retransmitted: they repeated bytes seen before.
        pub retransmitted_packets: u64 [unit "packets"],
        /// Connections whose first SYN came (connection arrivals).
        pub connections_opened: u64 [unit "connections"],
        /// Connections closed.
        pub connections_closed: u64 [unit "connections"],
        /// Mean of the concurrent connections.
        pub connections_mean: f64 [unit "connections"],
        /// Fewest concurrent connections.
        pub connections_min: u64 [unit "connections"],
        /// Most concurrent connections.
        pub connections_max: u64 [unit "connections"],
        /// Concurrent connections at the end of the second.
        pub connections: u64 [unit "connections"],
        /// Mean of the HTTP sessions: connections with a request, not closed.
        pub sessions_mean: f64 [unit "connections"],
        /// Most HTTP sessions.
        pub sessions_max: u64 [unit "connections"],
        /// HTTP sessions at the end of the second.
        pub sessions: u64 [unit "connections"],
        /// HTTP requests whose first byte came (request arrivals).
        pub requests: u64 [unit "requests"],
        /// HTTP responses whose last byte came.
        pub responses: u64 [unit "requests"],
        /// Mean of the transactions in progress: first byte of the request to last byte of the response.
        pub in_flight_mean: f64 [unit "requests"],
        /// Most transactions in progress.
        pub in_flight_max: u64 [unit "requests"],
        /// Transactions in progress at the end of the second.
        pub in_flight: u64 [unit "requests"],
        /// Handshakes completed with a round-trip time.
        pub handshakes: u64 [unit "connections"],
        /// Median of their round-trip times at this capture point. Null where there was none.
        pub handshake_rtt_p50_ns: u64 [null if |row| row.handshakes == 0],
        /// 90th percentile of these RTTs. Null where there was none.
        pub handshake_rtt_p90_ns: u64 [null if |row| row.handshakes == 0],
        /// 99th percentile of these RTTs. Null where there was none.
        pub handshake_rtt_p99_ns: u64 [null if |row| row.handshakes == 0],
        /// Largest of these RTTs. Null where there was none.
        pub handshake_rtt_max_ns: u64 [null if |row| row.handshakes == 0],
        /// Packets lost by the capture, as the capturing system reports.
        pub capture_drops: u64 [unit "packets"],
        /// Bytes acknowledged in this second that the capture never saw.
        pub missing_bytes: u64 [unit "bytes"],
    }
}

impl WatchSecond {
    /// Share of packets with payload that repeated bytes seen before; 0 where none had payload.
    pub fn retransmit_share(&self) -> f64 {
        if self.data_packets == 0 { 0.0 } else { self.retransmitted_packets as f64 / self.data_packets as f64 }
    }
}
