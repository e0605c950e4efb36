//! Independent loss: every wire packet is lost with the same probability.

use ledger::DropCause;
use units::{Probability, Timestamp};

use super::Fate;
use crate::draw::Draw;

/// Loss by one draw a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Lost when 53 random bits are below this: the probability, in units of 2^-53. 2^53 itself loses everything.
    threshold: u64,
    draw: Draw,
}

impl Loss {
    pub(crate) fn new(probability: Probability, draw: Draw) -> Self {
        // Rounded up, so that no probability above 0 becomes "never".
        let threshold = (probability.value() * (1u64 << 53) as f64).ceil() as u64;
        Loss { threshold, draw }
    }

    #[inline]
    pub(crate) fn handle(&mut self, at: Timestamp) -> Fate {
        if self.draw.next() >> 11 < self.threshold { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(probability: f64, packets: u32) -> u32 {
        let mut loss = Loss::new(Probability::new(probability).unwrap(), Draw::new(11));
        (0..packets).filter(|_| loss.handle(Timestamp::ZERO) != Fate::Leaves(Timestamp::ZERO)).count() as u32
    }

    #[test]
    fn nothing_and_everything_are_exact() {
        assert_eq!(lost(0.0, 10_000), 0);
        assert_eq!(lost(1.0, 10_000), 10_000);
    }

    #[test]
    fn the_share_lost_is_the_probability() {
        // Standard error of 1 % over 10^6 packets is 100 packets: five of them.
        let lost = lost(0.01, 1_000_000);
        assert!((9_500..=10_500).contains(&lost), "{lost}");
    }

    #[test]
    fn losses_are_independent_of_one_another() {
        // After a loss the next packet is lost as often as any other: 10^6 x 0.1 x 0.1 pairs, standard error about 95.
        let mut loss = Loss::new(Probability::new(0.1).unwrap(), Draw::new(12));
        let fates: Vec<bool> =
            (0..1_000_000).map(|_| loss.handle(Timestamp::ZERO) == Fate::Dropped(DropCause::Loss)).collect();
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count();
        assert!((9_500..=10_500).contains(&pairs), "{pairs}");
    }
}
