//! Distances for thousands of clients: links, queues, loss, profiles, the wheel. No descriptor, thread or clock.
//!
//! ```text
//!            frames                                                            frames
//!   client end ----> Frame ----> Link of the client ----> shared links ----> server end
//!              read   whose?     effects, then delay      effects       write
//!              what?             `----- each at its computed moment ---'  when due
//!              <---- the same the other way: shared links, the client's down link <----
//! ```
//!
//! [`Network`] is the whole of it: frames are handed in with the present time, their moments of departure come from
//! computed moments, and they are handed out when due. The loop that reads the clock and the devices is `testbed`'s.
//! [`PathSpec`] is what is asked of it; [`Profile`] says who the clients are.
//!
//! Two kinds of links. *Plain* ones (`link.rs`) have effects in closed form only: a packet's whole way is computed when
//! it comes. *Special* ones (`special.rs`) disorder, copy, damage or keep packets, change, or are shared: there a packet
//! goes from effect to effect through the network's events (`network/travel.rs`) and waits in queues (`queue.rs`).
//!
//! Read [`network`] first, then `effect.rs` (what can happen to a packet), `build.rs` (from what is asked to links),
//! `wheel.rs` (waiting), `split.rs` (super-packets).
//!
//! Invariants, each with a test: in each direction accepted + duplicated = delivered + dropped + held; a rate is
//! exceeded over no window; a delay is never short; packets of one link keep their order unless they are to be
//! reordered; the same seed and arrivals give the same departures, whatever other clients do and however late the loop
//! is.

mod address;
mod build;
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
mod queue;
pub mod rewrite;
pub mod spec;
mod special;
mod split;
mod timeline;
pub mod typed;
mod wheel;

pub use address::AddressPlan;
pub use counters::Counters;
pub use effect::{EffectOption, Effects, Expected, OptionText, Sign, Symptom, symptoms};
pub use lateness::Lateness;
pub use network::{Departure, Network};
pub use overrides::Override;
pub use profile::{Draft, Files, Profile, ProfileError};
pub use rewrite::Rewrite;
pub use spec::*;
pub use typed::{Loss, PlannedChange, Rate};
