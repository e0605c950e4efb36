//! Arrivals, virtual clients, the HTTP client machine. No descriptor, thread or clock.
//!
//! [`Load`] decides what is sent, when, by which client and on which connection, and reads what comes back. It owns
//! no socket: a driver (in `testbed`, or a test's simulated server) tells it what happened, with `handle_*`, and asks it
//! what to do, with [`Load::poll_action`]. Every moment is an argument, so an hour of load runs in seconds in a test.
//!
//! ```text
//!   schedule --intended--> client --> its idle connection, or a new one --> Action --> driver --> network
//!   (arrivals)             (clients)  (pool; else backlog)                                          |
//!                                                                                                   |
//!   tally <-- RequestRecord, ConnectionEnd <-- http1 reads the response <-- handle_bytes <-- driver-+
//! ```
//!
//! The open loop never waits for the server: an arrival that finds no free connection of its client opens one, up to
//! the cap, and behind the cap it waits in the backlog with its scheduled time unchanged. So a stall of the server
//! is in the response times in full.
//!
//! Read [`engine`] first (the contract with the driver), then [`spec`], then [`http1`]. [`Tally`] turns records into
//! figures and runs wherever the driver likes, usually on another thread. [`GaugeSampler`] samples the live counters.

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
mod turns;
mod virtual_users;
pub mod workload;

pub use arrivals::{Arrivals, Logged};
pub use connection::{ConnectionEnd, ConnectionKey};
pub use engine::{Action, Load, RACE_MARGIN, RequestHead, StreamFailure, StreamKey};
pub use error::LoadError;
pub use faults::merged_faults;
pub use gauges::{GaugeMerger, GaugeSample, GaugeSampler, GaugeStatistics, Levels, SecondGauges, ShardSampler};
pub use live::Live;
pub use spec::{HttpVersion, Lane, LoadSpec, Retry, Reuse, parse_header};
pub use tally::{
    DelayBounds, Delays, Ending, Histograms, LittleTerms, Outcome, PhaseSpan, SoFar, Span, Stall, Tally, TallySpec,
    Urls,
};
pub use target::Target;
pub use virtual_users::{CacheCounters, PARALLEL};
pub use workload::{RequestSpec, Workload};
