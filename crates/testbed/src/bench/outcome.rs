//! What a run of load leaves behind for its caller.

use std::path::PathBuf;
use std::time::SystemTime;

use load::Span;
use polymix::OriginFigures;
use schema::{CacheFigures, Document, ServerSecond};
use stats::Histogram;
use units::Timestamp;

/// A run that was made.
#[derive(Debug)]
pub struct Outcome {
    /// Everything known about it.
    pub document: Document,
    /// Response times of the measured phase.
    pub response_time: Histogram,
    /// Its first exchange, as it went over the wire.
    pub first_exchange: FirstExchange,
    /// The wall clock at the run's zero, from which the moments in its records count.
    pub zero_at: SystemTime,
    /// Its folder in the book.
    pub folder: Option<PathBuf>,
    /// What a cache in between did, where the load is a mix.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the mix that are not in their table: for want of room, of a disk that takes them, or of somebody to
    /// judge them.
    pub exchanges_left_out: u64,
    /// The measured phase, on the run's clock.
    pub measured: std::ops::Range<Timestamp>,
    /// The measured phase in spans of 100 ms; only whole ones.
    pub spans: Vec<Span>,
    /// What the server of the lab used, second by second of the measured phase. Empty without one.
    pub server_seconds: Vec<ServerSecond>,
    /// Share of the time for which the busiest loop of the load worked, `[0, 1]`.
    pub loop_busy: f64,
    /// What the origin counted that the lab started (`[origin]`), if it still answered at the end.
    pub origin: Option<OriginFigures>,
    /// Whether it was stopped because every connection was refused.
    pub all_refused: bool,
}

/// What was asked, and how the server began to answer.
#[derive(Clone, Debug)]
pub struct FirstExchange {
    /// The request, head and body.
    pub request: Box<[u8]>,
    /// Head of the first response that was whole, as it came; none where no response was.
    pub response_head: Option<Box<[u8]>>,
}
