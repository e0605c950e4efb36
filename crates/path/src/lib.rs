//! Distances for thousands of clients: links, queues, loss, profiles, the wheel. No descriptor, thread or clock.
//!
//! ```text
//!            frames                                                      frames
//!   client end ----> Frame ----> Link of the client ----> Wheel ----> server end
//!              read   whose?     loss > rate > delay      until due   write
//!              what?              computes the moment
//!              <---- the same the other way, with the client's down link <----
//! ```
//!
//! [`Network`] is the whole of it: frames are handed in with the present time, their moments of departure are
//! computed at once from computed moments, and they are handed out when due. The loop that reads the clock and the
//! devices is `lab`'s. [`Profile`] says who the clients are; [`ClientPath`] is what comes of it.
//!
//! Read [`network`] first, then `effect.rs` (what can happen to a packet), `wheel.rs` (waiting), `split.rs`
//! (super-packets).
//!
//! Invariants, each with a test: in each direction accepted = delivered + dropped + held; a rate is exceeded over no
//! window; a delay is never short; packets of one link keep their order; the same seed and arrivals give the same
//! departures, whatever other clients do.

mod address;
mod counters;
mod draw;
mod effect;
mod frame;
mod lateness;
mod link;
pub mod network;
mod overrides;
mod pool;
pub mod profile;
pub mod spec;
mod split;
mod wheel;

pub use address::AddressPlan;
pub use counters::Counters;
pub use lateness::Lateness;
pub use network::{Departure, Network};
pub use overrides::Override;
pub use profile::{Draft, Files, Profile, ProfileError};
pub use spec::*;
