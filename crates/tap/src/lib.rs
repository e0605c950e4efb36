//! Records what a program's own socket calls transfer and how long they take: the vantage point inside the client.
//!
//! ```text
//!   program + libc        interposer (C, LD_PRELOAD)          shared memory             this crate
//!   connect read write -> a hook: the real call, a record --> a ring a thread      --> Rings --> Event
//!                         per change of direction             drops counted, never     (clock: the run's)
//!                                                             blocks
//! ```
//!
//! The interposer is written in C, since a hook may be called in a signal handler, before main, after exit has begun,
//! and in a child that shares its parent's memory. `interposer/interposer.c` has the rules for every hook, and
//! `build.rs` compiles the library that this crate contains. `docs/notes/tap-hooks.md` has its cost and its limits.
//!
//! Start with [`event`], which defines all events. [`folder`] installs the library for programs, [`rings`] reads
//! their records, [`coverage`] explains which processes could not be recorded, and [`self_tap`] puts this program
//! itself under a tap. [`collector`] serves one run; [`daemon_reader`] and [`daemon_state`] serve the tap daemon,
//! across restarts and kills.

pub mod collector;
pub mod coverage;
pub mod daemon_reader;
pub mod daemon_state;
pub mod error;
pub mod event;
pub mod exchange;
pub mod filter;
pub mod folder;
pub mod indicators;
pub mod order;
pub mod program_table;
pub mod rings;
pub mod self_tap;
pub mod slice;

pub use collector::{Collector, Live};
pub use daemon_reader::DaemonReader;
pub use daemon_state::DaemonState;
pub use exchange::Exchanges;
pub use filter::{Filter, Only, PeerMatch};
pub use indicators::{Indicators, Sides};
pub use order::InOrder;
pub use program_table::ProgramTable;
pub use slice::{By, Slicer};
