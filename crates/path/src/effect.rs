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
//! The order is the same in both directions, seen from the packet: it is lost on the way to the bottleneck (and then
//! costs the bottleneck nothing), waits there, and then travels. Moments at which packets reach one link never go
//! back, and every effect keeps it so for the next one; that is what lets each of them know its whole state from a
//! few numbers. An effect that sees packets of several links (a shared link before the server) does not get them in
//! order of travel here; it must be met out of the wheel, when they are due.
//!
//! To add an effect: a file in `effect/`, a variant here, a line in `link.rs`. Keep it small:
//! every link of every client carries it, and [`Effect`] is as large as its largest variant.

mod delay;
mod loss;
mod rate;
mod variation;

use ledger::DropCause;
use units::{Bytes, Timestamp};

pub(crate) use delay::Delay;
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

/// One effect of a link, with its state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// Independent loss.
    Loss(Loss),
    /// A bottleneck with a queue.
    Rate(Rate),
    /// Delay that varies, beyond the constant part.
    Variation(Variation),
}

impl Effect {
    /// The fate of a wire packet of `size` IP bytes that reaches this effect at `at`.
    #[inline]
    pub(crate) fn handle(&mut self, at: Timestamp, size: Bytes) -> Fate {
        match self {
            Effect::Loss(loss) => loss.handle(at),
            Effect::Rate(rate) => rate.handle(at, size),
            Effect::Variation(variation) => variation.handle(at),
        }
    }

    /// True when it must see every wire packet by itself; false when a super-packet may pass whole.
    #[inline]
    pub(crate) fn acts_per_wire_packet(&self) -> bool {
        !matches!(self, Effect::Variation(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60,000 clients have 120,000 links: what an effect weighs is what a packet of a far client must fetch.
    #[test]
    fn an_effect_stays_small() {
        assert!(size_of::<Option<Effect>>() <= 40, "{}", size_of::<Option<Effect>>());
    }
}
