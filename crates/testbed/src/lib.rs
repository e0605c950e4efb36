//! One run, from plan to document: sandboxes, processes, phases, the clock, recorder and verdict.
//!
//! A [`plan::Plan`] describes a run. [`bench`] carries it out in named stages: sandboxes with their devices
//! ([`topology`]), one loop for path and load ([`drive`]), a recorder ([`recorder`]), the server's resource usage
//! ([`server`]), and at the end the document with the verdict of the crate `validity`. [`net`] does the same for any
//! program instead of the load.
//!
//! ```text
//!   plan --> sandboxes (fork while single-threaded) --> loop thread   <--> path core, load core
//!                                                   |-> recorder      --> tally, Parquet
//!                                                   '-> main thread   --> progress, the server's resource usage, Ctrl-C
//! ```
//!
//! This crate reads the clock for the cores; no process that it starts outlives it. Start reading at `bench.rs`.
#![allow(clippy::disallowed_methods, reason = "this crate owns the clock and the waiting")]

mod agreement;
pub mod bench;
mod capture_tables;
pub mod check;
mod connect_call;
mod cpu_probe;
pub mod distances;
pub mod drive;
mod error;
pub mod explained;
pub mod get;
mod handshakes;
pub mod host;
mod http2_frames;
pub mod https_record;
pub mod net;
mod offer;
pub mod packets;
mod path_part;
mod recorder;
mod recording_folder;
pub mod server;
mod server_samples;
pub mod shard_state;
mod shards;
pub mod snapshot;
pub mod tap;
pub mod tapping;
pub mod topology;
mod wall_clock;
mod watch_part;
pub mod watching;

pub use bench::{
    FirstExchange, NoObserver, Observer, Outcome, Possible, RunFacts, bench, bench_tapped, connections_possible,
    digest_of_search, shard_of,
};
pub use check::check;
pub use error::TestbedError;
pub use net::{net, net_shown};
pub use offer::requests_of;
