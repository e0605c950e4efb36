//! Distribution of durations in bounded memory: what every part records into on its hot path.
//!
//! Counts live in an HdrHistogram (buckets of constant relative width); count, sum, sum of squares, smallest and
//! largest are kept beside it as exact integers, so that mean, standard deviation and extremes carry no bucket error.
//! Read [`quantiles_of`](crate::quantiles_of) for the exact counterpart over a sample that fits in memory.

use schema::Quantiles;

/// Counts of values from 0 to one hour, in nanoseconds, to three significant digits.
///
/// Recording costs a few nanoseconds and never allocates; a histogram takes about 270 kB whatever it holds. Values
/// above [`Histogram::HIGHEST`] are counted as that value.
///
/// Bias: quantiles are the upper edge of the bucket that holds the nearest-rank value, hence never below the true
/// sample quantile and at most 0.1 % above it; they are cut at the exact largest value. Mean, standard deviation,
/// min and max are those of the recorded values exactly (after the cut at [`Histogram::HIGHEST`]).
/// Source: G. Tene, HdrHistogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// The largest value told apart: one hour.
    pub const HIGHEST: u64 = 3_600_000_000_000;
    /// Significant decimal digits kept.
    pub const DIGITS: u8 = 3;

    /// An empty histogram.
    pub fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, Self::HIGHEST, Self::DIGITS)
            .expect("1 to one hour with three digits are bounds HdrHistogram accepts");
        Histogram { counts, sum: 0, sum_of_squares: 0, min: u64::MAX, max: 0 }
    }

    /// Records one value in nanoseconds.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records `count` values that are equal. Nothing happens when `count` is 0.
    #[inline]
    pub fn record_n(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let value = value.min(Self::HIGHEST);
        self.counts.saturating_record_n(value, count);
        // A value stays below 2^42, so the sums hold 2^44 values and more before they could wrap.
        self.sum += u128::from(value) * u128::from(count);
        self.sum_of_squares += u128::from(value) * u128::from(value) * u128::from(count);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds the counts of a histogram read from a log, whatever its bounds. Its exact sums are lost, so each bucket
    /// counts as its middle: mean, standard deviation, min and max then carry up to 0.05 % of error.
    pub fn add_counts(&mut self, counts: &hdrhistogram::Histogram<u64>) {
        for bucket in counts.iter_recorded() {
            self.record_n(counts.median_equivalent(bucket.value_iterated_to()), bucket.count_at_value());
        }
    }

    /// Forgets every value and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
        self.sum = 0;
        self.sum_of_squares = 0;
        self.min = u64::MAX;
        self.max = 0;
    }

    /// Number of values recorded.
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Largest value recorded, exact; 0 when empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean of the values recorded; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        // A sum beyond 2^53 is rounded: of values that are all the same the mean would be another by the last digit.
        (self.sum as f64 / self.len() as f64).clamp(self.min as f64, self.max as f64)
    }

    /// Nearest-rank quantile in nanoseconds, `q` from 0 to 1 (cut to that range); 0 when empty. At most 0.1 % too high.
    pub fn value_at(&self, q: f64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.counts.value_at_quantile(q.clamp(0.0, 1.0)).clamp(self.min, self.max)
    }

    /// Values in `[from, to)`, to the width of a bucket: a bucket counts where its lower edge lies.
    pub fn count_between(&self, from: u64, to: u64) -> u64 {
        self.counts
            .iter_recorded()
            .filter(|bucket| (from..to).contains(&self.counts.lowest_equivalent(bucket.value_iterated_to())))
            .map(|bucket| bucket.count_at_value())
            .sum()
    }

    /// All figures of the document's `Q`; all zero when empty. The standard deviation is the population's (divided by
    /// n): it describes what was recorded.
    pub fn quantiles(&self) -> Quantiles {
        let count = self.len();
        if count == 0 {
            return Quantiles::default();
        }
        Quantiles {
            count,
            mean: self.mean(),
            stddev: deviation(count, self.sum, self.sum_of_squares),
            min: self.min,
            p50: self.value_at(0.50),
            p75: self.value_at(0.75),
            p90: self.value_at(0.90),
            p95: self.value_at(0.95),
            p99: self.value_at(0.99),
            p99_9: self.value_at(0.999),
            p99_99: self.value_at(0.9999),
            max: self.max,
        }
    }

    /// A copy with the values of `old` taken out and those of `new` put in; `None` if one of `old` is not in it. The largest value
    /// stays a bound: it is exact only where none was taken out.
    pub fn replaced(&self, old: &Histogram, new: &Histogram) -> Option<Histogram> {
        let mut histogram = self.clone();
        histogram.counts.subtract(&old.counts).ok()?;
        histogram.sum = histogram.sum.saturating_sub(old.sum);
        histogram.sum_of_squares = histogram.sum_of_squares.saturating_sub(old.sum_of_squares);
        histogram.merge(new);
        Some(histogram)
    }

    /// The counts, for writing a log that other programs can merge.
    pub fn inner(&self) -> &hdrhistogram::Histogram<u64> {
        &self.counts
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

/// Population standard deviation from exact sums. Squares are taken about the integer mean, in integers: subtracting
/// two large floats would lose a deviation that is small beside the mean.
fn deviation(count: u64, sum: u128, sum_of_squares: u128) -> f64 {
    let centre = sum / u128::from(count);
    let about_centre = sum_of_squares + centre * centre * u128::from(count) - 2 * centre * sum;
    let offset = (sum % u128::from(count)) as f64 / count as f64;
    (about_centre as f64 / count as f64 - offset * offset).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantiles_of;
    use proptest::prelude::*;

    #[test]
    fn histogram_replaces_only_recorded_values() {
        let of = |values: &[u64]| {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            histogram
        };
        let whole = of(&[1_000, 2_000, 3_000, 9_000_000]);
        let replaced = whole.replaced(&of(&[2_000, 9_000_000]), &of(&[500, 8_000])).unwrap();
        assert_eq!((replaced.len(), replaced.mean(), replaced.value_at(0.5)), (4, 3_125.0, 1_000));
        assert_eq!(replaced.quantiles().min, 500);
        assert!(whole.replaced(&of(&[7_000]), &of(&[])).is_none());
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        assert_eq!(Histogram::new().quantiles(), Quantiles::default());
        assert_eq!(Histogram::new().value_at(0.5), 0);
    }

    #[test]
    fn histogram_range_is_zero_to_one_hour() {
        let mut histogram = Histogram::new();
        histogram.record(0);
        assert_eq!(histogram.quantiles().max, 0);
        histogram.record(Histogram::HIGHEST);
        assert_eq!(histogram.quantiles().max, Histogram::HIGHEST);
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantiles().max, Histogram::HIGHEST);
        assert_eq!(histogram.len(), 3);
    }

    #[test]
    fn histogram_keeps_a_small_deviation_about_a_large_mean() {
        let mut histogram = Histogram::new();
        for value in [999_999_999_999, 1_000_000_000_000, 1_000_000_000_001] {
            histogram.record(value);
        }
        assert!((histogram.quantiles().stddev - (2.0f64 / 3.0).sqrt()).abs() < 1e-9);
    }

    fn close_above(estimate: u64, exact: u64) -> bool {
        estimate >= exact && estimate as f64 <= exact as f64 * 1.001 + 1.0
    }

    proptest! {
        #[test]
        fn histogram_agrees_with_the_exact_sample(values in prop::collection::vec(0u64..=Histogram::HIGHEST, 1..400)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            let (estimate, exact) = (histogram.quantiles(), quantiles_of(&values));
            prop_assert_eq!(estimate.count, exact.count);
            prop_assert!(estimate.is_consistent() && exact.is_consistent(), "{:?} {:?}", estimate, exact);
            prop_assert_eq!((estimate.min, estimate.max), (exact.min, exact.max));
            prop_assert!((estimate.mean - exact.mean).abs() <= exact.mean * 1e-12);
            prop_assert!((estimate.stddev - exact.stddev).abs() <= exact.stddev * 1e-6 + 1e-6);
            for (estimate, exact) in [
                (estimate.p50, exact.p50), (estimate.p75, exact.p75), (estimate.p90, exact.p90),
                (estimate.p95, exact.p95), (estimate.p99, exact.p99), (estimate.p99_9, exact.p99_9),
                (estimate.p99_99, exact.p99_99),
            ] {
                prop_assert!(close_above(estimate, exact), "{} against {}", estimate, exact);
            }
        }

        #[test]
        fn merged_histograms_equal_recording_all_values(
            left in prop::collection::vec(0u64..10_000_000_000, 0..100),
            right in prop::collection::vec(0u64..10_000_000_000, 0..100),
        ) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::new();
                values.iter().for_each(|&value| histogram.record(value));
                histogram
            };
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged.quantiles(), of(&[left, right].concat()).quantiles());
        }

        /// Also of many values that are nearly alike, and of what was read from a log without its sums.
        #[test]
        fn histogram_mean_and_percentiles_are_consistent(
            values in prop::collection::vec((prop_oneof![0u64..100, any::<u64>(), Just(999_999_999_999u64)], 1u64..1 << 30), 1..20),
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&(value, count)| histogram.record_n(value, count));
            prop_assert!(histogram.quantiles().is_consistent(), "{:?}", histogram.quantiles());
            let mut read = Histogram::new();
            read.add_counts(histogram.inner());
            prop_assert!(read.quantiles().is_consistent(), "{:?}", read.quantiles());
            read.merge(&histogram);
            prop_assert!(read.quantiles().is_consistent(), "{:?}", read.quantiles());
        }

        #[test]
        fn every_value_lies_in_one_histogram_bucket(values in prop::collection::vec(0u64..5_000_000, 1..200), edge in 1u64..5_000_000) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            let total = histogram.count_between(0, edge) + histogram.count_between(edge, u64::MAX);
            prop_assert_eq!(total, values.len() as u64);
        }
    }
}
