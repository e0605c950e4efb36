//! Results of a run of load for its caller.

use std::path::PathBuf;
use std::time::SystemTime;

use load::Span;
use polymix::OriginFigures;
use schema::{CacheFigures, Document, ServerSecond};
use stats::Histogram;
use units::Timestamp;

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The run's document.
    pub document: Document,
    /// Response times of the measured phase.
    pub response_time: Histogram,
    /// First exchange of the run, as sent and received.
    pub first_exchange: FirstExchange,
    /// The wall clock at the run's zero; times in its records count from it.
    pub zero_at: SystemTime,
    /// The run's directory in the run store.
    pub folder: Option<PathBuf>,
    /// Figures of a cache under test, if the load is a cache workload.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the workload missing in their table: memory was full, the disk failed, or they were unverified.
    pub exchanges_left_out: u64,
    /// The measured phase, on the run's clock.
    pub measured: std::ops::Range<Timestamp>,
    /// The measured phase in spans of 100 ms; only complete ones.
    pub spans: Vec<Span>,
    /// Resource usage of the testbed's server, second by second of the measured phase. Empty without one.
    pub server_seconds: Vec<ServerSecond>,
    /// Share of the time in which the busiest loop of the load worked, `[0, 1]`.
    pub loop_busy: f64,
    /// Counters of the testbed's origin (`[origin]`), if it still responded at the end.
    pub origin: Option<OriginFigures>,
    /// Whether the run ended early because every connection was refused.
    pub all_refused: bool,
}

/// The first request, and the head of its response.
#[derive(Clone, Debug)]
pub struct FirstExchange {
    /// The request, head and body.
    pub request: Box<[u8]>,
    /// Head of the first complete response, as received; none without one.
    pub response_head: Option<Box<[u8]>>,
}
