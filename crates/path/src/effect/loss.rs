//! Independent loss: every wire packet is lost with the same probability.

use schema::DropCause;
use units::{Probability, Timestamp};

use super::{Fate, State};
use crate::draw::{Draw, Threshold};

/// Loss by one draw a packet. Its state is the draws.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loss(Threshold);

impl Loss {
    pub(crate) fn new(probability: Probability) -> Self {
        Loss(Threshold::new(probability))
    }

    #[inline]
    pub(super) fn handle(&self, [key, _]: &mut State, at: Timestamp) -> Fate {
        let mut draw = Draw::new(*key);
        let is_lost = self.0.hit(&mut draw);
        *key = draw.key();
        if is_lost { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(probability: f64, packets: u32) -> u32 {
        let (loss, mut state) = (Loss::new(Probability::new(probability).unwrap()), [11, 0]);
        let fates = (0..packets).map(|_| loss.handle(&mut state, Timestamp::ZERO));
        fates.filter(|fate| *fate != Fate::Leaves(Timestamp::ZERO)).count() as u32
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
        let (loss, mut state) = (Loss::new(Probability::new(0.1).unwrap()), [12, 0]);
        let fates: Vec<bool> = (0..1_000_000)
            .map(|_| loss.handle(&mut state, Timestamp::ZERO) == Fate::Dropped(DropCause::Loss))
            .collect();
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count();
        assert!((9_500..=10_500).contains(&pairs), "{pairs}");
    }
}
