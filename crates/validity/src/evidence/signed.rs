//! Differences that may be negative.

use schema::Quantiles;
use stats::Histogram;

/// Signed differences in nanoseconds, with a histogram for each sign.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// Magnitudes of negative differences.
    below: Histogram,
    /// Differences of 0 or more.
    above: Histogram,
    /// Magnitudes of all differences.
    magnitudes: Histogram,
}

impl Differences {
    /// Adds a difference.
    pub fn add(&mut self, difference_ns: i128) {
        let magnitude = u64::try_from(difference_ns.unsigned_abs()).unwrap_or(u64::MAX);
        self.magnitudes.record(magnitude);
        if difference_ns < 0 { self.below.record(magnitude) } else { self.above.record(magnitude) }
    }

    /// Number of differences.
    pub fn count(&self) -> u64 {
        self.magnitudes.len()
    }

    /// The median with its sign, in ns; 0 without any.
    pub fn median_ns(&self) -> f64 {
        let (below, all) = (self.below.len(), self.count());
        let middle = all as f64 / 2.0;
        if all == 0 {
            0.0
        } else if (below as f64) > middle {
            // The largest magnitudes are the lowest values.
            -(self.below.value_at(1.0 - middle / below as f64) as f64)
        } else {
            self.above.value_at((middle - below as f64) / self.above.len() as f64) as f64
        }
    }

    /// The distribution of the magnitudes.
    pub fn magnitudes(&self) -> Quantiles {
        self.magnitudes.quantiles()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = i128>) -> Differences {
        let mut differences = Differences::default();
        values.into_iter().for_each(|value| differences.add(value));
        differences
    }

    #[test]
    fn the_median_of_signed_differences_has_its_sign() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() <= 20.0, "{value} is not {expected}");
        near(of(-1000..=1000).median_ns(), 0.0);
        near(of((0..1001).map(|value| value - 2000)).median_ns(), -1500.0);
        near(of((0..1001).map(|value| value + 500)).median_ns(), 1000.0);
        near(of((0..1001).map(|value| value - 900)).median_ns(), -400.0);
        assert_eq!(of([]).median_ns(), 0.0);
        assert_eq!((of([-7]).median_ns(), of([7]).median_ns()), (-7.0, 7.0));
    }

    #[test]
    fn the_tail_of_signed_differences_is_of_magnitudes() {
        let mostly_zero = (0..1000).map(|value| if value % 20 == 0 { -5_000_000 } else { 0 });
        assert!(of(mostly_zero).magnitudes().p99 > 4_900_000);
    }
}
