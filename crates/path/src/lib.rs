//! Emulated network paths for thousands of clients: links, queues, loss, profiles, timer wheel. No descriptor, thread
//! or clock.
//!
//! ```text
//!            frames                                                            frames
//!   client end ----> Frame ----> Link of the client ----> shared links ----> server end
//!              read   client?     effects, then delay      effects       write
//!              what?             `----- each at its computed time -----'  when due
//!              <---- the same the other way: shared links, the client's down link <----
//! ```
//!
//! [`Network`] is the entry point: it receives frames with the present time, computes their departure times, and
//! returns them when due. The loop that reads the clock and the devices is in `testbed`. [`PathSpec`] is the
//! configuration; [`Profile`] defines the clients.
//!
//! There are two kinds of links. *Plain* links (`link.rs`) have effects in closed form only: a packet's whole way is
//! computed on its arrival. *Special* links (`special.rs`) reorder, copy, corrupt or store packets, change over time,
//! or are shared: a packet goes from effect to effect through the network's events (`network/travel.rs`) and waits in
//! queues (`queue.rs`).
//!
//! Read [`network`] first, then `effect.rs` (effects on packets), `build.rs` (from specification to links), `wheel.rs`
//! (waiting), `split.rs` (super-packets).
//!
//! Invariants, each with a test: in each direction accepted + duplicated = delivered + dropped + in transit; a rate is
//! exceeded over no window; a delay is never shorter than configured; packets of one link keep their order unless
//! reordering is configured; the same seed and arrivals give the same departures, whatever other clients send and
//! however late the loop is.

mod address;
mod build;
mod counters;
mod draw;
mod effect;
mod frame;
mod link;
mod nat;
pub mod network;
mod overrides;
mod pool;
pub mod profile;
mod queue;
pub mod rewrite;
pub mod spec;
mod special;
mod split;
mod timeline;
mod timing_error;
pub mod typed;
mod wheel;

pub use address::AddressPlan;
pub use counters::Counters;
pub use effect::{EffectOption, Effects, Expected, OptionText, Sign, Symptom, symptoms};
pub use network::{Departure, Network};
pub use overrides::Override;
pub use profile::{Draft, Files, Profile, ProfileError};
pub use rewrite::Rewrite;
pub use spec::*;
pub use timing_error::TimingErrors;
pub use typed::{Loss, PlannedChange, Rate};
