//! The order of runs in a live comparison of two servers, and the rule that ends the comparison.
//!
//! ```text
//!   A B B A | B A A B | A B B A ..      a block is four runs; the seed chooses one of the two orders for each block
//! ```
//!
//! Within a block a linear drift affects both sides equally, and cancels. The random order of blocks prevents periodic
//! disturbances from affecting only one side. The comparison uses the difference within each block, so the sample size
//! is the number of blocks.

use crate::compare::{Difference, of_differences};
use crate::rng::Rng;

/// One of the two sides of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first side.
    A,
    /// The second side.
    B,
}

impl Side {
    /// Index of the side, 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }
}

/// Number of runs per block.
pub const RUNS_PER_BLOCK: usize = 4;

/// The order of the runs of block `block` under `seed`: A B B A or B A A B, with equal probability.
pub fn order(seed: u64, block: u64) -> [Side; RUNS_PER_BLOCK] {
    use Side::{A, B};
    if Rng::new(Rng::named(seed, "abba").next(), block).next() & 1 == 0 { [A, B, B, A] } else { [B, A, A, B] }
}

/// The rule for the number of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// Minimum number of blocks, 2 or more.
    pub min: usize,
    /// Maximum number of blocks; equal to `min` for a fixed number.
    pub max: usize,
    /// The comparison ends when half the width of the interval is at most this.
    pub half_width: f64,
}

impl Blocks {
    /// Factor on the width of intervals if the number of blocks is not fixed. Blocks that vary little by chance end the
    /// comparison early, so that the plain interval would cover less often than its confidence. With 1.12, 2,000
    /// comparisons of two equal sides show a difference in 5 % of the cases (see the test of this module).
    pub const SEQUENTIAL_WIDENING: f64 = 1.12;

    /// Whether the number of blocks is fixed.
    pub fn is_fixed(&self) -> bool {
        self.max <= self.min
    }

    /// The mean difference of the blocks, with an interval that accounts for the rule that ended the comparison. `None`
    /// with fewer than two blocks.
    pub fn difference(&self, differences: &[f64], confidence: f64) -> Option<Difference> {
        let plain = of_differences(differences, confidence)?;
        if self.is_fixed() {
            return Some(plain);
        }
        let half = plain.half_width() * Self::SEQUENTIAL_WIDENING;
        // The p value that matches the widened interval.
        let p = p_with_larger_error(differences, Self::SEQUENTIAL_WIDENING);
        Some(Difference { interval: [plain.mean - half, plain.mean + half], p, ..plain })
    }

    /// Whether there are enough blocks. The rule depends on the width of the interval, never on its position.
    pub fn is_enough(&self, differences: &[f64], confidence: f64) -> bool {
        let count = differences.len();
        let narrow =
            || self.difference(differences, confidence).is_some_and(|found| found.half_width() <= self.half_width);
        count >= self.max.max(self.min) || (count >= self.min && narrow())
    }
}

/// The p value of the mean difference, if the standard error were larger by the factor `factor`.
fn p_with_larger_error(differences: &[f64], factor: f64) -> f64 {
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    // Equivalent to the same variation about a mean that is smaller by the factor.
    let moved: Vec<f64> = differences.iter().map(|difference| difference - mean + mean / factor).collect();
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
            // A linear drift adds the same amount to both sides.
            let position_sum = |side: Side| (0..4).filter(|&at| order_of[at] == side).sum::<usize>();
            assert_eq!((position_sum(Side::A), position_sum(Side::B)), (3, 3));
        }
    }

    fn normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0
    }

    /// Simulates a comparison on a shared machine: a drift of up to 10 %, correlation between successive runs, and a
    /// variation of 4 % per run. `faster` is the advantage of B.
    fn compared(blocks: Blocks, faster: f64, stream: u64, first: u64) -> (Difference, usize) {
        let mut rng = Rng::new(23, stream);
        let slope = 0.10 * (rng.uniform() - 0.5) / 80.0;
        let (mut memory, mut runs) = (0.0, 0.0);
        let mut differences = Vec::new();
        for block in first.. {
            let mut sums = [0.0; 2];
            for side in order(stream, block) {
                memory = 0.7 * memory + 0.02 * normal(&mut rng);
                let deviation = slope * runs + memory + 0.03 * normal(&mut rng);
                runs += 1.0;
                sums[side.index()] += deviation + if side == Side::B { faster } else { 0.0 };
            }
            differences.push((sums[1] - sums[0]) / 2.0);
            if blocks.is_enough(&differences, 0.95) {
                break;
            }
        }
        (blocks.difference(&differences, 0.95).unwrap(), differences.len())
    }

    const SEQUENTIAL: Blocks = Blocks { min: 6, max: 20, half_width: 0.02 };

    /// Of 2,000 comparisons of a server with itself, 100 are expected to show a difference; the binomial standard
    /// deviation is 9.7.
    #[test]
    fn equal_sides_differ_in_one_of_twenty_comparisons() {
        for blocks in [SEQUENTIAL, Blocks { max: 6, ..SEQUENTIAL }] {
            let shown = (0..2000).filter(|&stream| compared(blocks, 0.0, stream, 0).0.is_shown()).count();
            assert!((60..=140).contains(&shown), "{blocks:?}: {shown} of 2000");
        }
    }

    #[test]
    fn abba_shows_a_difference_of_five_percent() {
        let mut shown = 0;
        for stream in 0..500 {
            let (found, blocks) = compared(SEQUENTIAL, -0.05, stream, 0);
            shown += usize::from(found.interval[1] < 0.0);
            assert!((6..=20).contains(&blocks));
        }
        assert!(shown >= 485, "{shown} of 500");
    }

    /// In the order A A B B a drift would appear as a difference.
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
        let blocks = Blocks { min: 3, max: 5, half_width: 0.1 };
        assert!(!blocks.is_enough(&[0.5, 0.5], 0.95));
        // The rule does not depend on whether there is a difference.
        assert!(blocks.is_enough(&[0.5, 0.5, 0.5], 0.95) && blocks.is_enough(&[0.0, 0.0, 0.0], 0.95));
        assert!(!blocks.is_enough(&[0.0, 9.0, 3.0], 0.95));
        assert!(blocks.is_enough(&[0.0, 9.0, 3.0, 5.0, -4.0], 0.95));
        assert!(Blocks { min: 4, max: 0, half_width: 0.0 }.is_fixed());
        // The p value and the interval agree.
        let wide = [0.010, 0.034, 0.021, 0.029, -0.002, 0.034];
        for confidence in [0.9, 0.95, 0.97, 0.98, 0.99] {
            let found = SEQUENTIAL.difference(&wide, confidence).unwrap();
            assert_eq!(found.is_shown(), found.p < 1.0 - confidence, "{confidence}: {found:?}");
        }
    }
}
