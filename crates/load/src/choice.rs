//! Chooses the request or session of an arrival.

use stats::Rng;

/// Chooses by the number of the arrival alone, so that the choices do not depend on the number of shards or on delays.
#[derive(Debug)]
pub(crate) enum Chooser {
    /// All items in turn, repeatedly.
    InTurn { of: u64 },
    /// Random, by weight.
    Drawn { table: AliasTable, seed: u64 },
}

impl Chooser {
    /// Chooses among `of` items in turn; 0 counts as 1.
    pub(crate) fn in_turn(of: usize) -> Self {
        Chooser::InTurn { of: of.max(1) as u64 }
    }

    /// Draws by weight for each arrival, from the random stream `label` under the run's `seed`.
    pub(crate) fn drawn(weights: impl ExactSizeIterator<Item = f64>, seed: u64, label: &str) -> Self {
        // Each arrival has its own random stream under this seed.
        Chooser::Drawn { table: AliasTable::new(weights), seed: Rng::named(seed, label).next() }
    }

    /// Index of the item for arrival `number`.
    pub(crate) fn choose(&self, number: u64) -> u32 {
        match self {
            Chooser::InTurn { of: 1 } => 0,
            Chooser::InTurn { of } => (number % of) as u32,
            Chooser::Drawn { table, seed } => table.draw(&mut Rng::new(*seed, number)),
        }
    }
}

/// Draws by weight in constant time with the alias method.
///
/// Every column belongs to one item and is filled up with a second item, its alias. A draw picks a column uniformly and
/// then one of its two items. Source: A. J. Walker 1977; the table is built as M. D. Vose described in 1991.
#[derive(Debug)]
pub(crate) struct AliasTable {
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Share of the column that belongs to its own item, 0 to 1.
    own: f32,
    alias: u32,
}

impl AliasTable {
    /// A table for `weights`. Weights that are not above 0 and finite count as 0; if all are 0, all items are equally
    /// likely.
    ///
    /// # Panics
    /// Without a weight, or with more than 2^32 - 2.
    pub(crate) fn new(weights: impl ExactSizeIterator<Item = f64>) -> Self {
        let mut shares: Vec<f64> =
            weights.map(|weight| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 }).collect();
        let n = shares.len();
        assert!((1..u32::MAX as usize).contains(&n), "the number of weights is from 1 to 2^32 - 2");
        let largest = shares.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 {
            shares.fill(1.0);
        } else {
            // Normalising by the largest prevents an overflow of the sum.
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
        // The remaining shares are 1 apart from rounding, as initialised. An item with weight 0 must not be drawn
        // because of rounding.
        for index in small.into_iter().filter(|&index| shares[index as usize] <= 0.0) {
            let alias = shares.iter().position(|&share| share > 0.5).unwrap_or(0);
            columns[index as usize] = Column { own: 0.0, alias: alias as u32 };
        }
        AliasTable { columns }
    }

    /// Draws the index of an item, with two random numbers.
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

    /// The probability of each item, computed from the table.
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
        fn requests_are_chosen_in_proportion_to_their_weights(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-3..1e3f64], 1..200),
        ) {
            let sum: f64 = weights.iter().sum();
            let actual = probabilities(&AliasTable::new(weights.iter().copied()));
            for (weight, actual) in weights.iter().zip(&actual) {
                let expected = if sum == 0.0 { 1.0 / weights.len() as f64 } else { weight / sum };
                prop_assert!((actual - expected).abs() < 1e-6, "{actual} for {expected}");
                prop_assert!(*weight > 0.0 || sum == 0.0 || *actual == 0.0, "a weight of 0 is never drawn");
            }
        }
    }

    #[test]
    fn extreme_weights_are_chosen_in_proportion() {
        let actual = probabilities(&AliasTable::new([f64::MAX, f64::MAX, f64::NAN, f64::INFINITY, -1.0].into_iter()));
        assert!((actual[0] - 0.5).abs() < 1e-6 && (actual[1] - 0.5).abs() < 1e-6, "{actual:?}");
        let zipf: Vec<f64> = (1..=1_000_000).map(|rank| 1.0 / f64::from(rank)).collect();
        let sum: f64 = zipf.iter().sum();
        let actual = probabilities(&AliasTable::new(zipf.iter().copied()));
        for rank in [0, 1, 10, 999] {
            assert!((actual[rank] * sum / zipf[rank] - 1.0).abs() < 1e-4, "{rank}: {}", actual[rank]);
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
        // The limit is five times the largest standard deviation; the four are 95, 126, 145 and 155.
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
