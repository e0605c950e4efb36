//! Loss in bursts: the chain of Gilbert and Elliott.

use schema::DropCause;
use units::Timestamp;

use super::{Fate, State};
use crate::draw::{Draw, Threshold};
use crate::spec::GilbertElliott;

/// A chain of two states, of which one loses more. Its state is the draws, and 1 in the bad state; it begins in the
/// good one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Burst {
    to_bad: Threshold,
    to_good: Threshold,
    loss_good: Threshold,
    loss_bad: Threshold,
}

impl Burst {
    pub(crate) fn new(spec: &GilbertElliott) -> Self {
        Burst {
            to_bad: Threshold::new(spec.to_bad),
            to_good: Threshold::new(spec.to_good),
            loss_good: Threshold::new(spec.loss_good),
            loss_bad: Threshold::new(spec.loss_bad),
        }
    }

    /// The chain moves, then the packet is lost or not by the state it has moved to.
    #[inline]
    pub(super) fn handle(&self, [key, is_bad]: &mut State, at: Timestamp) -> Fate {
        let mut draw = Draw::new(*key);
        let leaves_state = if *is_bad == 1 { self.to_good } else { self.to_bad };
        *is_bad ^= u64::from(leaves_state.hit(&mut draw));
        let loss = if *is_bad == 1 { self.loss_bad } else { self.loss_good };
        let is_lost = loss.hit(&mut draw);
        *key = draw.key();
        if is_lost { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(at) }
    }
}

#[cfg(test)]
mod tests {
    use units::Probability;

    use super::*;

    fn spec(p: f64, r: f64, good: f64, bad: f64) -> GilbertElliott {
        let [to_bad, to_good, loss_good, loss_bad] = [p, r, good, bad].map(|value| Probability::new(value).unwrap());
        GilbertElliott { to_bad, to_good, loss_good, loss_bad }
    }

    fn fates(spec: &GilbertElliott, packets: usize) -> Vec<bool> {
        let (burst, mut state) = (Burst::new(spec), [5, 0]);
        (0..packets).map(|_| burst.handle(&mut state, Timestamp::ZERO) != Fate::Leaves(Timestamp::ZERO)).collect()
    }

    /// Lengths of runs of `value` that both began and ended.
    fn runs(fates: &[bool], value: bool) -> Vec<usize> {
        let mut all: Vec<(bool, usize)> = Vec::new();
        for &fate in fates {
            match all.last_mut() {
                Some((last, length)) if *last == fate => *length += 1,
                _ => all.push((fate, 1)),
            }
        }
        let inner = all.len().saturating_sub(1);
        all[1..inner].iter().filter(|(fate, _)| *fate == value).map(|&(_, length)| length).collect()
    }

    /// Pearson's statistic of `lengths` against a geometric distribution with `stop` on {1, 2, ..}, in classes 1 to
    /// `classes` - 1 and the rest.
    fn chi_square(lengths: &[usize], stop: f64, classes: usize) -> f64 {
        let n = lengths.len() as f64;
        (1..=classes)
            .map(|class| {
                let last = class == classes;
                let seen =
                    lengths.iter().filter(|&&length| if last { length >= class } else { length == class }).count();
                let beyond = (1.0 - stop).powi(class as i32 - 1);
                let expected = n * if last { beyond } else { beyond * stop };
                (seen as f64 - expected).powi(2) / expected
            })
            .sum()
    }

    #[test]
    fn with_certain_loss_in_the_bad_state_the_runs_are_geometric() {
        // The simple Gilbert model: runs of losses end with r, runs of arrivals with p.
        let (p, r) = (0.05, 0.25);
        let fates = fates(&spec(p, r, 0.0, 1.0), 2_000_000);
        let (losses, arrivals) = (runs(&fates, true), runs(&fates, false));
        // About 83,000 runs of each. 9 degrees of freedom: 33.7 is exceeded once in 10,000 seeds.
        assert!(chi_square(&losses, r, 10) < 33.7, "{}", chi_square(&losses, r, 10));
        assert!(chi_square(&arrivals, p, 10) < 33.7, "{}", chi_square(&arrivals, p, 10));
        let mean = |lengths: &[usize]| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        // Standard deviation of a geometric length: sqrt(1 - q) / q.
        for (lengths, stop) in [(&losses, r), (&arrivals, p)] {
            let error = (1.0 - stop).sqrt() / stop / (lengths.len() as f64).sqrt();
            assert!((mean(lengths) - 1.0 / stop).abs() < 5.0 * error, "{} {stop}", mean(lengths));
        }
    }

    #[test]
    fn the_share_lost_is_the_stationary_one() {
        let spec = spec(0.01, 0.2, 0.002, 0.6);
        let packets = 2_000_000;
        let lost = fates(&spec, packets).iter().filter(|&&lost| lost).count() as f64 / packets as f64;
        let expected = spec.mean_loss();
        // The state's correlation is (1 - p - r) a step, so the share in the bad state varies as if there were
        // (p + r) / (2 - p - r) as many packets; that bounds the variance of what it loses.
        let bad = 0.01 / 0.21;
        let of_state = bad * (1.0 - bad) * (0.6f64 - 0.002).powi(2) * (2.0 - 0.21) / 0.21;
        let error = ((expected * (1.0 - expected) + of_state) / packets as f64).sqrt();
        assert!((lost - expected).abs() < 5.0 * error, "{lost} {expected} {error}");
    }

    #[test]
    fn it_begins_good_and_moves_before_it_draws() {
        assert_eq!(fates(&spec(1.0, 1.0, 0.0, 1.0), 4), [true, false, true, false]);
        assert_eq!(fates(&spec(0.0, 1.0, 0.0, 1.0), 3), [false; 3]);
        assert_eq!(fates(&spec(1.0, 0.0, 0.0, 1.0), 3), [true; 3]);
    }
}
