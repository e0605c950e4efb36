//! What can happen to a packet on a link: small nodes with one contract.
//!
//! A link is a list of effects in the order in which a packet meets them. Each is told the moment at which a wire
//! packet reaches it and its size, and answers with a [`Fate`]: it leaves at this computed moment, or it is dropped
//! for this cause. The next effect gets the computed moment, never the time at which something was done about it, so
//! lateness of the machine never adds up and a rate stays exact.
//!
//! ```text
//!   reaches link --> loss --leaves--> rate --leaves--> variation --> delay --> wheel, until due
//!                      `- loss          `- queue_full
//! ```
//!
//! The effects here are those in *closed form*: packets reach them in order and leave in order, and what becomes of a
//! packet depends on nothing that comes after it. So its whole way is computed the moment it arrives, each effect
//! knows its state from a few numbers, and nothing waits but in the wheel. Nearly every link has no others
//! (`link.rs`). Effects that disorder, that need the packet's bytes or decide when it leaves their queue are met in
//! true order of time instead (`special.rs`, `queue.rs`).
//!
//! An effect here is what is asked for, and many links ask for the same; what it remembers of one link is its
//! [`State`], two numbers. So a link with three effects and its delay is one cache line.
//!
//! To add an effect: a file in `effect/`, a variant here or in `special.rs`, a line in `build.rs`.

mod burst;
pub(crate) mod corrupt;
mod loss;
mod rate;
mod variation;

use schema::DropCause;
use units::{Bytes, Timestamp};

use crate::draw::Draw;

pub(crate) use burst::Burst;
pub(crate) use loss::Loss;
pub(crate) use rate::Rate;
pub(crate) use variation::Variation;

/// What becomes of a packet at one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on to the next effect at this moment, not earlier than it came.
    Leaves(Timestamp),
    /// It ends here.
    Dropped(DropCause),
}

/// What an effect remembers of one link: two numbers, whose meaning is its own.
pub(crate) type State = [u64; 2];

/// One effect in closed form: what is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// Independent loss.
    Loss(Loss),
    /// Loss in bursts.
    Burst(Burst),
    /// A bottleneck with a queue.
    Rate(Rate),
    /// Delay that varies, beyond the constant part.
    Variation(Variation),
}

impl Effect {
    /// The state of a link that no packet has met yet; random effects draw from `draw`.
    pub(crate) fn begin(&self, draw: Draw) -> State {
        match self {
            Effect::Loss(_) | Effect::Burst(_) | Effect::Variation(_) => [draw.key(), 0],
            Effect::Rate(_) => [0, 0],
        }
    }

    /// The fate of a wire packet of `size` IP bytes that reaches this effect at `at`.
    #[inline]
    pub(crate) fn handle(&self, state: &mut State, at: Timestamp, size: Bytes) -> Fate {
        match self {
            Effect::Loss(loss) => loss.handle(state, at),
            Effect::Burst(burst) => burst.handle(state, at),
            Effect::Rate(rate) => rate.handle(state, at, size),
            Effect::Variation(variation) => variation.handle(state, at),
        }
    }

    /// True when it must see every wire packet by itself; false when a super-packet may pass whole.
    #[inline]
    pub(crate) fn acts_per_wire_packet(&self) -> bool {
        !matches!(self, Effect::Variation(_))
    }
}
