//! One second of a run.

use crate::record;

record! {
    /// One second of the run, counted from the run's zero, warm-up included.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct SecondRecord in "series" {
        /// Index of the second since the run's zero.
        pub second: u32 [unit "s"],
        /// Whether the whole second lies in the measured phase.
        pub measured: bool,
        /// Requests scheduled in this second.
        pub offered: u64 [unit "requests"],
        /// Requests started in this second.
        pub started: u64 [unit "requests"],
        /// Requests completed in this second.
        pub completed: u64 [unit "requests"],
        /// Requests failed in this second.
        pub failed: u64 [unit "requests"],
        /// Connections on which connect was called in this second.
        pub connections_opened: u64 [unit "connections"],
        /// Response bytes of the requests that ended in this second.
        pub bytes_received: u64 [unit "bytes"],
        /// Mean of the sampled number of requests in flight.
        pub in_flight_mean: f64 [unit "requests"],
        /// Largest sampled number of requests in flight.
        pub in_flight_max: u64 [unit "requests"],
        /// Mean of the sampled number of concurrent connections.
        pub connections_mean: f64 [unit "connections"],
        /// Largest sampled number of concurrent connections.
        pub connections_max: u64 [unit "connections"],
        /// Requests scheduled and not started, at the end of the second.
        pub backlog: u64 [unit "requests"],
        /// Median response time of the requests completed in this second. Null where none was completed.
        pub response_p50_ns: u64 [null if |row| row.completed == 0],
        /// 99th percentile of these response times. Null where none was completed.
        pub response_p99_ns: u64 [null if |row| row.completed == 0],
        /// Largest of these response times. Null where none was completed.
        pub response_max_ns: u64 [null if |row| row.completed == 0],
        /// 99th percentile of the send lag of the requests started in this second. Null where none was started.
        pub send_lag_p99_ns: u64 [null if |row| row.started == 0],
    }
}
