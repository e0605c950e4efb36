//! Which of several things an arrival chooses.

use stats::Rng;

/// Chooses by the number of the arrival, and by nothing else: several engines that share one load, or one that is late,
/// choose alike.
#[derive(Debug)]
pub(crate) enum Chooser {
    /// The first, the second .. and again.
    InTurn { of: u64 },
    /// By weight.
    Drawn { table: AliasTable, seed: u64 },
}

impl Chooser {
    /// Each of `of` things in turn; at least one.
    pub(crate) fn in_turn(of: usize) -> Self {
        Chooser::InTurn { of: of.max(1) as u64 }
    }

    /// A draw by weight for each arrival, of the stream `label` under the run's `seed`.
    pub(crate) fn drawn(weights: impl ExactSizeIterator<Item = f64>, seed: u64, label: &str) -> Self {
        // The draws of each arrival are a stream of their own under this seed.
        Chooser::Drawn { table: AliasTable::new(weights), seed: Rng::named(seed, label).next() }
    }

    /// What arrival `number` chooses.
    pub(crate) fn choose(&self, number: u64) -> u32 {
        match self {
            Chooser::InTurn { of: 1 } => 0,
            Chooser::InTurn { of } => (number % of) as u32,
            Chooser::Drawn { table, seed } => table.draw(&mut Rng::new(*seed, number)),
        }
    }
}

/// Draws by weight in constant time, however many there are: the alias method.
///
/// Every column holds a share of its own thing and fills up with one other, its alias; a draw picks a column evenly and
/// then one of its two. Source: A. J. Walker 1977; the table is built as M. D. Vose described in 1991.
#[derive(Debug)]
pub(crate) struct AliasTable {
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Share of the column that is its own, 0 to 1.
    own: f32,
    alias: u32,
}

impl AliasTable {
    /// Weights that are not above 0 and finite count as 0; if none is left, all are equal.
    ///
    /// # Panics
    /// Without a weight, or with more than 2^32 - 1.
    pub(crate) fn new(weights: impl ExactSizeIterator<Item = f64>) -> Self {
        let mut shares: Vec<f64> =
            weights.map(|weight| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 }).collect();
        let n = shares.len();
        assert!((1..u32::MAX as usize).contains(&n), "at least one thing to draw, and fewer than 2^32");
        let largest = shares.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 {
            shares.fill(1.0);
        } else {
            // So that no sum overflows.
            shares.iter_mut().for_each(|share| *share /= largest);
        }
        let mean = shares.iter().sum::<f64>() / n as f64;
        shares.iter_mut().for_each(|share| *share /= mean);
        let mut columns: Vec<Column> = (0..n).map(|index| Column { own: 1.0, alias: index as u32 }).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&i| shares[i as usize] < 1.0);
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            columns[poor as usize] = Column { own: shares[poor as usize] as f32, alias: rich };
            shares[rich as usize] -= 1.0 - shares[poor as usize];
            if shares[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        // What is left in either is 1 but for rounding, which the columns begin with. Only a weight of 0 may not be
        // drawn by a rounding.
        for index in small.into_iter().filter(|&index| shares[index as usize] <= 0.0) {
            let alias = shares.iter().position(|&share| share > 0.5).unwrap_or(0);
            columns[index as usize] = Column { own: 0.0, alias: alias as u32 };
        }
        AliasTable { columns }
    }

    /// Index of one, with two draws of `rng`.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let index = rng.below(self.columns.len() as u64);
        let Column { own, alias } = self.columns[index as usize];
        if rng.uniform() < f64::from(own) { index as u32 } else { alias }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The probability of each, by the table itself.
    fn probabilities(table: &AliasTable) -> Vec<f64> {
        let n = table.columns.len();
        let mut sums = vec![0.0; n];
        for (index, column) in table.columns.iter().enumerate() {
            sums[index] += f64::from(column.own) / n as f64;
            sums[column.alias as usize] += (1.0 - f64::from(column.own)) / n as f64;
        }
        sums
    }

    proptest! {
        #[test]
        fn requests_are_chosen_in_proportion_to_their_weights(weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-3..1e3f64], 1..200)) {
            let sum: f64 = weights.iter().sum();
            let found = probabilities(&AliasTable::new(weights.iter().copied()));
            for (weight, found) in weights.iter().zip(&found) {
                let expected = if sum == 0.0 { 1.0 / weights.len() as f64 } else { weight / sum };
                prop_assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
                prop_assert!(*weight > 0.0 || sum == 0.0 || *found == 0.0, "a weight of 0 is never drawn");
            }
        }
    }

    #[test]
    fn extreme_weights_are_chosen_in_proportion() {
        let found = probabilities(&AliasTable::new([f64::MAX, f64::MAX, f64::NAN, f64::INFINITY, -1.0].into_iter()));
        assert!((found[0] - 0.5).abs() < 1e-6 && (found[1] - 0.5).abs() < 1e-6, "{found:?}");
        let zipf: Vec<f64> = (1..=1_000_000).map(|rank| 1.0 / f64::from(rank)).collect();
        let sum: f64 = zipf.iter().sum();
        let found = probabilities(&AliasTable::new(zipf.iter().copied()));
        for rank in [0, 1, 10, 999] {
            assert!((found[rank] * sum / zipf[rank] - 1.0).abs() < 1e-4, "{rank}: {}", found[rank]);
        }
    }

    #[test]
    fn a_weighted_choice_depends_only_on_seed_and_number() {
        let chooser = Chooser::drawn([1.0, 2.0, 3.0, 4.0].into_iter(), 7, "choice");
        let forwards: Vec<u32> = (0..100).map(|number| chooser.choose(number)).collect();
        let mut backwards: Vec<u32> = (0..100).rev().map(|number| chooser.choose(number)).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        let other = Chooser::drawn([1.0, 2.0, 3.0, 4.0].into_iter(), 8, "choice");
        assert_ne!(forwards, (0..100).map(|number| other.choose(number)).collect::<Vec<_>>());
        let mut counts = [0u32; 4];
        (0..100_000).for_each(|number| counts[chooser.choose(number) as usize] += 1);
        // Standard deviations are 95, 126, 145, 155: five of them.
        for (count, expected) in counts.iter().zip([10_000u32, 20_000, 30_000, 40_000]) {
            assert!(count.abs_diff(expected) < 775, "{counts:?}");
        }
    }

    #[test]
    fn requests_without_weights_are_taken_in_turn() {
        let chooser = Chooser::in_turn(3);
        assert_eq!((0..7).map(|number| chooser.choose(number)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
    }
}
