//! One second of a run.

/// One row of series.parquet: what happened in one second, counted from the run's zero (warm-up included).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondRecord {
    /// Index of the second since the run's zero.
    pub second: u32,
    /// Whether the whole second lies in the measured phase.
    pub measured: bool,
    /// Requests whose intended moment lies in this second.
    pub offered: u64,
    /// Requests started in this second.
    pub started: u64,
    /// Requests completed in this second.
    pub completed: u64,
    /// Requests failed in this second.
    pub failed: u64,
    /// Connections on which connect was called in this second.
    pub connections_opened: u64,
    /// Response bytes of the requests that ended in this second.
    pub bytes_received: u64,
    /// Mean of the sampled number of requests in flight.
    pub in_flight_mean: f64,
    /// Largest sampled number of requests in flight.
    pub in_flight_max: u64,
    /// Mean of the sampled number of connections in process.
    pub connections_mean: f64,
    /// Largest sampled number of connections in process.
    pub connections_max: u64,
    /// Requests intended and not started, at the end of the second.
    pub backlog: u64,
    /// Median response time of the requests completed in this second, in ns; 0 where none was.
    pub response_p50_ns: u64,
    /// 99th percentile of the same.
    pub response_p99_ns: u64,
    /// Largest of the same.
    pub response_max_ns: u64,
    /// 99th percentile of the send lag of the requests started in this second, in ns.
    pub send_lag_p99_ns: u64,
}
