//! What can happen to a packet on a link: small nodes with one contract, each in a file of its own.
//!
//! A link is a list of effects in the order in which a packet meets them. Each is told the moment at which a wire
//! packet reaches it and its size, and answers with a [`Fate`]: it leaves at this computed moment, or it is dropped
//! for this cause. The next effect gets the computed moment, never the time at which something was done about it, so
//! lateness of the machine never adds up and a rate stays exact.
//!
//! ```text
//!   reaches link --> loss --leaves--> rate --leaves--> jitter --> delay --> wheel, until due
//!                      `- loss          `- queue_full
//! ```
//!
//! Effects in *closed form*: packets reach them in order and leave in order, and what becomes of a packet depends on
//! nothing that comes after it. So its whole way is computed the moment it arrives, each effect knows its state from a
//! few numbers, and nothing waits but in the wheel. Nearly every link has no others (`link.rs`). A [`ClosedEffect`] is
//! what is configured, and many links share one; what it remembers of one link is its [`State`], two numbers. So a
//! link with three effects and its delay is one cache line.
//!
//! *Stepped* effects disorder, copy or need the packet's bytes: they are met in true order of time (`special.rs`,
//! `queue.rs`).
//!
//! To add an effect: a file in `effect/`, with a type that implements [`kind::EffectKind`], and either
//! [`kind::ClosedForm`] or [`kind::Stepwise`]; `duplicate.rs` is a short one to begin from. Then its `mod` line and its
//! entry in the list below. Profiles, plans, command line, descriptions and `profile check` know it from there. An effect
//! under `either` also has a function `is_closed(settings) -> bool`: whether these settings are simulated in closed form.

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
use keyed::KindFacts;
use kind::{ClosedForm, EffectKind, Stepwise};
pub(crate) use rate::Rate;

pub use burst::GilbertElliott;
pub(crate) use keyed::read_link;
pub use keyed::{EffectOption, Effects, symptoms};
pub(crate) use kind::{Built, Fate, Site, State, Step, sequence};
pub use kind::{Expected, OptionText, Sign, Symptom};
pub use loss::Loss;
pub use reorder::{REORDER_BY, Reorder};

effects! {
    closed {
        /// Delay drawn evenly from -jitter to +jitter around the link's own, order kept. Cut to the shortest delay
        /// that the link ever has (its constant delays, its propagation, with their changes) where it is larger, since
        /// no delay is negative; so on a shared link without [`EffectSpec::Delay`] it does nothing.
        Jitter(Duration): jitter::Jitter,
        /// Lost with this probability, each packet independently of the others.
        Loss(Probability): loss::IndependentLoss,
        /// Lost in bursts.
        GilbertElliott(GilbertElliott): burst::Burst,
    }
    stepped {
        /// One bit of its transport segment is inverted with this probability; the receiver's checksum tells it.
        Corrupt(Probability): corrupt::Corruption,
        /// Arrives twice with this probability, the second right after the first.
        Duplicate(Probability): duplicate::Duplication,
        /// Overtaken by packets behind it.
        Reorder(Reorder): reorder::Reordering,
    }
    either {
        /// Waits for a rate.
        Bottleneck(Bottleneck): Bottleneck,
        /// A constant delay besides the propagation.
        Delay(Duration): delay::Delay,
    }
}
