//! Effects that a link has on packets: small nodes with one contract, each in its own file.
//!
//! A link is a list of effects in the order in which a packet meets them. Each effect receives the time at which a wire
//! packet reaches it and the packet's size, and returns a [`Fate`]: the packet leaves at this computed time, or is
//! dropped for this cause. The next effect receives the computed time, never the time at which the program acted. So
//! timing errors of the machine never add up and a rate stays exact.
//!
//! ```text
//!   reaches link --> loss --leaves--> rate --leaves--> jitter --> delay --> wheel, until due
//!                      `- loss          `- queue_full
//! ```
//!
//! Effects in *closed form*: packets reach them in order and leave in order, and the fate of a packet does not depend
//! on later packets. The whole way of a packet is computed on its arrival, each effect keeps its state in a few
//! numbers, and packets wait in the wheel only. Nearly every link has no other effects (`link.rs`). A [`ClosedEffect`]
//! is the configuration, shared by many links; its memory of one link is its [`State`], two numbers. So a link with
//! three effects and its delay is one cache line.
//!
//! *Stepped* effects reorder packets, copy them or need their bytes: they are simulated in true order of time
//! (`special.rs`, `queue.rs`).
//!
//! To add an effect: write a file in `effect/` with a type that implements [`kind::EffectKind`], and either
//! [`kind::ClosedForm`] or [`kind::Stepwise`]; `duplicate.rs` is a short example. Add its `mod` line and its entry in
//! the list below. Profiles, plans, command line, descriptions and `profile check` read that list. An effect under
//! `either` also has a function `is_closed(settings) -> bool`: whether these settings are simulated in closed form.

mod bottleneck;
mod burst;
mod corrupt;
mod delay;
mod duplicate;
mod keyed;
mod kind;
mod loss;
mod rate;
#[macro_use]
mod registry;
mod common;
mod jitter;
mod reorder;

use std::time::Duration;

use serde::de::MapAccess;
use serde::ser::SerializeMap;
use units::{Bytes, Probability, Timestamp};

use crate::draw::Draw;
use crate::spec::Bottleneck;
use keyed::KindProperties;
use kind::{ClosedForm, EffectKind, Stepwise};
pub(crate) use rate::Rate;

pub use burst::GilbertElliott;
pub(crate) use keyed::read_link_table;
pub use keyed::{EffectOption, Effects, symptoms};
pub(crate) use kind::{Built, Fate, Site, State, Step, sequence};
pub use kind::{Expected, OptionText, Sign, Symptom};
pub use loss::Loss;
pub use reorder::{REORDER_BY, Reorder};

effects! {
    closed {
        /// Delay drawn uniformly from -jitter to +jitter around the link's own delay, order kept. A jitter larger than
        /// the shortest delay of the link (its constant delays and propagation, with their changes) is cut to that
        /// delay, since no delay is negative; on a shared link without [`EffectSpec::Delay`] it has no effect.
        Jitter(Duration): jitter::Jitter,
        /// Lost with this probability, each packet independently of the others.
        Loss(Probability): loss::IndependentLoss,
        /// Lost in bursts.
        GilbertElliott(GilbertElliott): burst::Burst,
    }
    stepped {
        /// One bit of the transport segment is inverted with this probability; the receiver detects it by the checksum.
        Corrupt(Probability): corrupt::Corruption,
        /// Arrives twice with this probability, the copy directly after the original.
        Duplicate(Probability): duplicate::Duplication,
        /// Overtaken by later packets.
        Reorder(Reorder): reorder::Reordering,
    }
    either {
        /// Limited to a bit rate, with a queue.
        Bottleneck(Bottleneck): Bottleneck,
        /// A constant delay in addition to the propagation delay.
        Delay(Duration): delay::Delay,
    }
}
