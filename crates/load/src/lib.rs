//! Load generation without I/O: arrivals, virtual clients, and the HTTP client as a state machine. This crate uses no
//! descriptor, thread or clock.
//!
//! [`Load`] decides which request is sent when, by which client and on which connection, and parses the responses. It
//! owns no socket: a driver (in `testbed`, or a test's simulated server) reports events with `handle_*` and fetches the
//! next action with [`Load::poll_action`]. Time is an argument of every call, so a test runs an hour of load in
//! seconds.
//!
//! ```text
//!   schedule --arrival--> client --> its idle connection, or a new one --> Action --> driver --> network
//!   (arrivals)            (clients)  (pool; else backlog)                                          |
//!                                                                                                  |
//!   tally <-- RequestRecord, ConnectionEnd <-- http1 parses the response <-- handle_bytes <- driver+
//! ```
//!
//! The open loop never waits for the server. An arrival without a free connection of its client opens one, up to
//! [`LoadSpec::connections_max`]; beyond that the request waits in the backlog with its scheduled time unchanged. So
//! response times contain every stall of the server in full.
//!
//! Read [`engine`] first (the contract with the driver), then [`spec`], then [`http1`]. [`Tally`] computes statistics
//! from records; the driver may run it on another thread. [`GaugeSampler`] samples the live counters.

mod arrival_source;
pub mod arrivals;
mod choice;
mod client_order;
mod connection;
pub mod content;
mod due;
pub mod engine;
mod error;
mod faults;
mod gauges;
pub mod har;
pub mod http1;
mod idle;
mod in_flight;
mod live;
mod phase;
mod pool;
mod prepared;
mod queues;
mod rendering;
pub mod replay;
mod request;
pub mod spec;
mod tally;
mod target;
mod virtual_users;
pub mod workload;

pub use arrivals::{Arrivals, Logged};
pub use connection::{ConnectionEnd, ConnectionKey};
pub use engine::{Action, Load, RACE_MARGIN, RequestHead, StreamFailure, StreamKey};
pub use error::LoadError;
pub use faults::merged_faults;
pub use gauges::{
    GaugeMerger, GaugeSample, GaugeSampler, GaugeStatistics, Levels, SampleLog, SecondGauges, ShardSampler,
    SummedSamples,
};
pub use live::Live;
pub use spec::{HttpVersion, LoadSpec, Retry, Reuse, Shard, parse_header};
pub use tally::{
    DelayBounds, Delays, Ending, Histograms, LittleTerms, Outcome, PhaseSpan, SoFar, Span, Stall, Tally, TallySpec,
    Urls,
};
pub use target::Target;
pub use virtual_users::{CacheCounters, PARALLEL};
pub use workload::{RequestSpec, Workload};
