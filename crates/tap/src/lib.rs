//! What a program's own sockets saw: the third witness.
//!
//! ```text
//!   program + libc        interposer (C, LD_PRELOAD)          shared memory             this crate
//!   connect read write -> a hook: the real call, a record --> a ring a thread      --> Rings --> Event
//!                         per change of direction             drops counted, never     (clock: the run's)
//!                                                             blocks
//! ```
//!
//! The interposer is C, since a hook may be called in a signal handler, before main, after exit has begun, and in a child
//! that shares its parent's memory: `interposer/interposer.c` says what holds in every hook, and `build.rs` makes the
//! library that this crate carries. What it costs and what it cannot see is in `docs/notes/tap-hooks.md`.
//!
//! Begin with [`event`], the vocabulary. [`folder`] hands the library to a program, [`rings`] reads what it wrote,
//! [`coverage`] says which processes could not be seen, and why; [`own`] puts this program itself under it. [`collector`] is what a
//! run makes of it; [`station`] and [`standing`] are the same for an agent that stays, over restarts and kills.

pub mod collector;
pub mod coverage;
pub mod error;
pub mod event;
pub mod exchange;
pub mod filter;
pub mod folder;
pub mod indicators;
pub mod order;
pub mod own;
pub mod rings;
pub mod roll;
pub mod slice;
pub mod standing;
pub mod station;

pub use collector::{Collector, Live};
pub use exchange::Exchanges;
pub use filter::{Filter, Only, PeerMatch};
pub use indicators::{Indicators, Sides};
pub use order::InOrder;
pub use roll::Roll;
pub use slice::{By, Slicer};
pub use standing::Standing;
pub use station::Station;
