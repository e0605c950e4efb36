//! Puts a run together: places, processes, phases, the clock, the validity gate.
//!
//! A [`plan::Plan`] is a run as intended. [`bench`] makes it happen: the places with their devices ([`places`]), one loop for path
//! and load ([`drive`]), a recorder beside it ([`recorder`]), the server's accounts ([`server`]), and at the end the
//! document with the gate's verdict ([`gate`]). [`net`] does the same for any program instead of the load.
//!
//! ```text
//!   plan --> places (fork while single-threaded) --> loop thread   <--> path core, load core
//!                                                |-> recorder      --> tally, parquet
//!                                                '-> main thread   --> progress, server's accounts, Ctrl-C
//! ```
//!
//! Invariant: this room alone reads the clock for the cores, and no process it starts outlives it.
#![allow(clippy::disallowed_methods, reason = "this room owns the clock and the waiting")]

mod agreement;
pub mod bench;
mod called;
pub mod check;
pub mod distances;
pub mod drive;
mod error;
mod handshakes;
pub mod host;
mod lanes;
pub mod net;
mod offer;
mod pace;
mod path_part;
pub mod places;
mod recorder;
mod recording_folder;
pub mod server;
pub mod standing;
pub mod tap;
pub mod tapping;
mod watch_part;
pub mod watching;
mod wire_book;

pub use bench::{FirstExchange, Observer, Outcome, Possible, RunFacts, bench, bench_tapped, connections_possible};
pub use check::check;
pub use error::LabError;
pub use net::{net, net_shown};
pub use offer::asked;
