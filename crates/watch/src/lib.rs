//! The second witness: connections and requests as the wire saw them. Packets in, records out.
//!
//! No descriptor, thread or clock: time is what the packets carry. The sources (a live ring, capture files) and the
//! writers are other rooms' business.
//!
//! ```text
//!   packet --> wire (link, IP, TCP headers) --> table: four-tuple --> flow
//!                                                                      |  half up, half down: sequence, holes, RTT
//!                                                                      |  stream: HTTP, TLS name, or opaque
//!                   series: a row a second  <--  levels, counters  <---+--->  ConnectionRecord, WireRequest
//! ```
//!
//! Lengths and sequence arithmetic come from the headers, never from how much was captured, so a small snap length
//! changes no count; what could not be read is said to be unknown. Memory is bounded by [`Limits`] whatever the
//! packets say, and every packet costs constant time on average: holes, pieces and pipelined requests are bounded in
//! number, heads are searched once, the hash is seeded.
//!
//! [`learn`] makes a path's figures from the records: distances, loss, arrivals.
//!
//! Read [`Watch`] first, then `flow` (a connection), `tcp::half` (one direction of it), `http` (what it carries).

mod copies;
mod flow;
mod http;
mod interned;
mod key;
pub mod learn;
mod out;
mod preamble;
mod reading;
mod series;
mod spec;
mod stream;
mod summary;
mod table;
mod tcp;
mod waiting;
mod watch;
mod work;

pub use reading::{Fault, KINDS_MAX, Reading};
pub use spec::{CapturePoint, Limits, WatchSpec};
pub use summary::Summary;
pub use watch::{Counts, Watch, WatchLive};
#[cfg(feature = "count-work")]
pub use work::take_work;
