//! Analysis of captured packets: connections and requests on the wire. Packets in, records out.
//!
//! No descriptor, thread or clock: the time is that of the packets. Other crates have the sources (a live capture,
//! capture files) and the writers.
//!
//! ```text
//!   packet --> wire (link, IP, TCP headers) --> table: four-tuple --> flow
//!                                                                      |  half up, half down: sequence, holes, RTT
//!                                                                      |  stream: HTTP, TLS name, or opaque
//!                   series: a row a second  <--  gauges, counters  <---+--->  ConnectionRecord, WireRequest
//! ```
//!
//! Lengths and sequence arithmetic use the headers, not the captured bytes, so a small snaplen changes no count;
//! figures that need uncaptured bytes are reported as unknown. Memory is bounded by [`Limits`] for any packets, and
//! every packet costs constant time on average: holes, pieces and pipelined requests are bounded in number, heads are
//! searched once, the hash is seeded.
//!
//! [`learn`] derives a path profile from the records: RTTs, loss, arrivals.
//!
//! Read [`Watch`] first, then `flow` (a connection), `tcp::half` (one direction of it), `http` (its messages).

mod copies;
mod crypto;
mod fields;
mod flow;
mod http;
mod http2;
mod http3;
mod interned;
mod key;
mod keylog;
pub mod learn;
mod out;
mod preamble;
mod quic;
mod reading;
mod secrets;
mod series;
mod spec;
mod stream;
mod summary;
mod table;
mod tcp;
mod tls;
mod waiting;
mod watch;
mod work;

pub use keylog::{KeyLog, KeyLogError};
#[cfg(feature = "count-work")]
pub use quic::sealing::{Level, Sealer};
pub use reading::{Fault, KINDS_MAX, Reading};
pub use spec::{CapturePoint, Limits, WatchSpec};
pub use summary::{Summary, count_quic};
pub use watch::{Counts, Watch, WatchLive};
#[cfg(feature = "count-work")]
pub use work::take_work;
