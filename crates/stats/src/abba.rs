//! The order of runs in a comparison of two servers that are there now, and when there have been enough.
//!
//! ```text
//!   A B B A | B A A B | A B B A ..      a block is four runs, the seed says which of the two it is
//! ```
//!
//! Within a block a drift that is a straight line weighs on both sides alike, and cancels; blocks whose order is drawn
//! keep what comes back in a rhythm from weighing on one side. What is compared is the difference within blocks, and
//! blocks are what is counted.

use crate::compare::{Difference, of_differences};
use crate::rng::Rng;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// 0 and 1.
    pub const fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }
}

/// Runs of a block.
pub const RUNS_A_BLOCK: usize = 4;

/// The order of the runs of block `block` under `seed`: A B B A or B A A B, as likely.
pub fn order(seed: u64, block: u64) -> [Side; RUNS_A_BLOCK] {
    use Side::{A, B};
    if Rng::new(Rng::named(seed, "abba").next(), block).next() & 1 == 0 { [A, B, B, A] } else { [B, A, A, B] }
}

/// How many blocks are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// At least so many, 2 or more.
    pub least: usize,
    /// At most so many; as many as `least` for a number that is fixed.
    pub most: usize,
    /// There are enough once half the width of the interval is no more than this.
    pub half_width: f64,
}

impl Blocks {
    /// Intervals are made so much wider where the number of blocks was not fixed: blocks that scatter little by chance
    /// end the comparison early, so that the interval covers less often than it says. With 1.12, 2,000 comparisons of
    /// two that are alike show a difference in 5 % (the test of this module).
    pub const WIDER: f64 = 1.12;

    /// Whether the number is settled beforehand.
    pub fn is_fixed(&self) -> bool {
        self.most <= self.least
    }

    /// The difference that the blocks' own differences show, with the interval that holds for this way to end.
    pub fn judge(&self, differences: &[f64], confidence: f64) -> Option<Difference> {
        let plain = of_differences(differences, confidence)?;
        if self.is_fixed() {
            return Some(plain);
        }
        let half = plain.half_width() * Self::WIDER;
        // The probability at which the wider interval would end at 0.
        let narrower = of_differences_over(differences, Self::WIDER);
        Some(Difference { interval: [plain.mean - half, plain.mean + half], p: narrower, ..plain })
    }

    /// Whether no more blocks are wanted: a rule on the width of the interval, never on where it lies.
    pub fn enough(&self, differences: &[f64], confidence: f64) -> bool {
        let count = differences.len();
        let narrow = || self.judge(differences, confidence).is_some_and(|found| found.half_width() <= self.half_width);
        count >= self.most.max(self.least) || (count >= self.least && narrow())
    }
}

/// Probability of the differences' mean if the standard error were so many times larger.
fn of_differences_over(differences: &[f64], times: f64) -> f64 {
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    // The same scatter about a mean that is smaller by as much.
    let moved: Vec<f64> = differences.iter().map(|difference| difference - mean + mean / times).collect();
    of_differences(&moved, 0.95).map_or(1.0, |found| found.p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abba_orders_are_balanced_and_repeat_with_the_seed() {
        let both = (0..1000).filter(|&block| order(7, block)[0] == Side::A).count();
        assert!((430..=570).contains(&both), "{both}");
        for block in 0..50 {
            let order_of = order(7, block);
            assert_eq!(order_of, order(7, block));
            // A straight drift adds as much to both.
            let places = |side: Side| (0..4).filter(|&at| order_of[at] == side).sum::<usize>();
            assert_eq!((places(Side::A), places(Side::B)), (3, 3));
        }
    }

    fn normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0
    }

    /// A machine that drifts by 10 % in a comparison, has a memory from run to run, and runs that scatter by 4 %: what
    /// a block of a live comparison is on a machine that others use. `faster` is by how much B is better.
    fn compared(blocks: Blocks, faster: f64, stream: u64, first: u64) -> (Difference, usize) {
        let mut rng = Rng::new(23, stream);
        let slope = 0.10 * (rng.uniform() - 0.5) / 80.0;
        let (mut memory, mut runs) = (0.0, 0.0);
        let mut differences = Vec::new();
        for block in first.. {
            let mut sums = [0.0; 2];
            for side in order(stream, block) {
                memory = 0.7 * memory + 0.02 * normal(&mut rng);
                let off = slope * runs + memory + 0.03 * normal(&mut rng);
                runs += 1.0;
                sums[side.index()] += off + if side == Side::B { faster } else { 0.0 };
            }
            differences.push((sums[1] - sums[0]) / 2.0);
            if blocks.enough(&differences, 0.95) {
                break;
            }
        }
        (blocks.judge(&differences, 0.95).unwrap(), differences.len())
    }

    const UNTIL_SEEN: Blocks = Blocks { least: 6, most: 20, half_width: 0.02 };

    /// Of 2,000 comparisons of a server with itself, 100 should show a difference; the binomial's standard deviation is
    /// 9.7.
    #[test]
    fn equal_sides_differ_in_one_of_twenty_comparisons() {
        for blocks in [UNTIL_SEEN, Blocks { most: 6, ..UNTIL_SEEN }] {
            let shown = (0..2000).filter(|&stream| compared(blocks, 0.0, stream, 0).0.is_shown()).count();
            assert!((60..=140).contains(&shown), "{blocks:?}: {shown} of 2000");
        }
    }

    #[test]
    fn abba_shows_a_difference_of_five_percent() {
        let mut shown = 0;
        for stream in 0..500 {
            let (found, blocks) = compared(UNTIL_SEEN, -0.05, stream, 0);
            shown += usize::from(found.interval[1] < 0.0);
            assert!((6..=20).contains(&blocks));
        }
        assert!(shown >= 485, "{shown} of 500");
    }

    /// Without the order a drift would be taken for a difference.
    #[test]
    fn abba_does_not_show_a_drift_as_difference() {
        let differences: Vec<f64> = (0..8)
            .map(|block| {
                let mut sums = [0.0; 2];
                for (at, side) in order(1, block).into_iter().enumerate() {
                    sums[side.index()] += (block * 4 + at as u64) as f64 * 0.01;
                }
                sums[1] - sums[0]
            })
            .collect();
        assert!(differences.iter().all(|difference| difference.abs() < 1e-12), "{differences:?}");
    }

    #[test]
    fn abba_ends_by_interval_width_alone() {
        let blocks = Blocks { least: 3, most: 5, half_width: 0.1 };
        assert!(!blocks.enough(&[0.5, 0.5], 0.95));
        // Whether there is a difference does not matter.
        assert!(blocks.enough(&[0.5, 0.5, 0.5], 0.95) && blocks.enough(&[0.0, 0.0, 0.0], 0.95));
        assert!(!blocks.enough(&[0.0, 9.0, 3.0], 0.95));
        assert!(blocks.enough(&[0.0, 9.0, 3.0, 5.0, -4.0], 0.95));
        assert!(Blocks { least: 4, most: 0, half_width: 0.0 }.is_fixed());
        // Its probability and its interval agree.
        let wide = [0.010, 0.034, 0.021, 0.029, -0.002, 0.034];
        for confidence in [0.9, 0.95, 0.97, 0.98, 0.99] {
            let found = UNTIL_SEEN.judge(&wide, confidence).unwrap();
            assert_eq!(found.is_shown(), found.p < 1.0 - confidence, "{confidence}: {found:?}");
        }
    }
}
