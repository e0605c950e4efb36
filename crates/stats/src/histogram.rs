//! A histogram of durations in bounded memory, for hot paths.
//!
//! Counts are stored in an HdrHistogram (buckets of constant relative width). Count, sum, sum of squares, minimum and
//! maximum are stored additionally as exact integers, so that mean, standard deviation and extremes have no bucket
//! error. [`quantiles_of`](crate::quantiles_of) is the exact counterpart for a sample that fits into memory.

use schema::Quantiles;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Counts of values from 0 to one hour, in nanoseconds, to three significant digits.
///
/// Recording takes a few nanoseconds and never allocates. A histogram has about 270 kB, independent of its content.
/// Values above [`Histogram::HIGHEST`] are counted as that value.
///
/// Bias: quantiles are the upper edge of the bucket of the nearest-rank value, hence never below the true sample
/// quantile and at most 0.1 % above it; they are limited to the exact maximum. Mean, standard deviation, minimum and
/// maximum are exact (for values limited to [`Histogram::HIGHEST`]). Source: G. Tene, HdrHistogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// The largest distinguished value: one hour.
    pub const HIGHEST: u64 = 3_600_000_000_000;
    /// Significant decimal digits.
    pub const DIGITS: u8 = 3;

    /// An empty histogram.
    pub fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, Self::HIGHEST, Self::DIGITS)
            .expect("HdrHistogram accepts 1 ns to one hour with three digits");
        Histogram { counts, sum: 0, sum_of_squares: 0, min: u64::MAX, max: 0 }
    }

    /// Records one value in nanoseconds.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records `count` equal values; without effect if `count` is 0.
    #[inline]
    pub fn record_n(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let value = value.min(Self::HIGHEST);
        self.counts.saturating_record_n(value, count);
        // A value is below 2^42, so the sums can hold more than 2^44 values without overflow.
        self.sum += u128::from(value) * u128::from(count);
        self.sum_of_squares += u128::from(value) * u128::from(value) * u128::from(count);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds the counts of a histogram that was read from a log, with any bounds. Its exact sums are lost, so each
    /// bucket counts as its middle: mean, standard deviation, minimum and maximum then have an error of up to 0.05 %.
    pub fn add_counts(&mut self, counts: &hdrhistogram::Histogram<u64>) {
        for bucket in counts.iter_recorded() {
            self.record_n(counts.median_equivalent(bucket.value_iterated_to()), bucket.count_at_value());
        }
    }

    /// Removes all values, and keeps the memory.
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

    /// Whether no value was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The exact maximum; 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        // A sum beyond 2^53 is rounded: the mean of equal values could differ from them in the last digit.
        (self.sum as f64 / self.len() as f64).clamp(self.min as f64, self.max as f64)
    }

    /// Nearest-rank quantile in nanoseconds, for `q` from 0 to 1 (clamped); 0 if empty. At most 0.1 % too high.
    pub fn value_at(&self, q: f64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.counts.value_at_quantile(q.clamp(0.0, 1.0)).clamp(self.min, self.max)
    }

    /// Number of values in `[from, to)`, exact to a bucket: a bucket counts if its lower edge is in the range.
    pub fn count_between(&self, from: u64, to: u64) -> u64 {
        self.counts
            .iter_recorded()
            .filter(|bucket| (from..to).contains(&self.counts.lowest_equivalent(bucket.value_iterated_to())))
            .map(|bucket| bucket.count_at_value())
            .sum()
    }

    /// The statistics as in the JSON document; all zero if empty. The standard deviation is that of the population
    /// (divided by n).
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

    /// A copy with the values of `old` removed and those of `new` added; `None` if a value of `old` is missing. Minimum
    /// and maximum are only bounds if the extreme values were removed.
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

/// The serialised form: the count of every bucket that has one, and the exact sums.
#[derive(Serialize, Deserialize)]
struct Parts {
    /// The largest value of each bucket with its count, in ascending order.
    buckets: Vec<(u64, u64)>,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let recorded = self.counts.iter_recorded();
        let buckets = recorded.map(|bucket| (bucket.value_iterated_to().min(Self::HIGHEST), bucket.count_at_value()));
        let Histogram { sum, sum_of_squares, min, max, .. } = *self;
        Parts { buckets: buckets.collect(), sum, sum_of_squares, min, max }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    /// Refuses sums that no values in these buckets have, so that every statistic can be computed.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Parts::deserialize(deserializer)?;
        parts.histogram().ok_or_else(|| de::Error::custom("a histogram whose sums do not belong to its counts"))
    }
}

impl Parts {
    fn histogram(self) -> Option<Histogram> {
        let mut histogram = Histogram::new();
        let mut total = 0u64;
        for &(value, count) in &self.buckets {
            total = total.checked_add(count).filter(|&total| total <= COUNT_MAX)?;
            histogram.record_n((value <= Histogram::HIGHEST).then_some(value)?, count);
        }
        if total == 0 {
            let is_empty = (self.sum, self.sum_of_squares, self.min, self.max) == (0, 0, u64::MAX, 0);
            return is_empty.then_some(histogram);
        }
        let Parts { sum, sum_of_squares, min, max, .. } = self;
        let counts = &histogram.counts;
        let in_bucket = |edge: u64, value: u64| counts.lowest_equivalent(edge) == counts.lowest_equivalent(value);
        let is_in_range = min <= max && max <= Histogram::HIGHEST;
        let ends = is_in_range && in_bucket(histogram.min, min) && in_bucket(histogram.max, max);
        let range = u128::from(total) * u128::from(min)..=u128::from(total) * u128::from(max);
        // By the inequality of Cauchy and Schwarz; in floats, since the products exceed 128 bits.
        let squares = sum_of_squares as f64 * total as f64;
        let is_possible = squares >= sum as f64 * sum as f64 * (1.0 - 1e-9)
            && squares <= total as f64 * total as f64 * max as f64 * max as f64 * (1.0 + 1e-9);
        if !(ends && range.contains(&sum) && is_possible) {
            return None;
        }
        Some(Histogram { sum, sum_of_squares, min, max, ..histogram })
    }
}

/// Most values of a histogram that is read: its sums cannot overflow.
const COUNT_MAX: u64 = 1 << 40;

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

/// Population standard deviation from exact sums. Squares are computed about the integer mean in integer arithmetic:
/// subtracting two large floats would lose a deviation that is small compared with the mean.
fn deviation(count: u64, sum: u128, sum_of_squares: u128) -> f64 {
    let centre = sum / u128::from(count);
    // Sums that were read from a file may be wrong within the checks of reading.
    let about_centre = (sum_of_squares + centre * centre * u128::from(count)).saturating_sub(2 * centre * sum);
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

    #[test]
    fn sums_that_do_not_belong_to_the_counts_are_refused() {
        let read = |text: String| serde_json::from_str::<Histogram>(&text).is_ok();
        let whole = |buckets: &str, sum: u64, squares: u64, min: u64, max: u64| {
            format!("{{\"buckets\":{buckets},\"sum\":{sum},\"sum_of_squares\":{squares},\"min\":{min},\"max\":{max}}}")
        };
        assert!(read(whole("[[10,2],[20,1]]", 40, 600, 10, 20)));
        assert!(read(whole("[]", 0, 0, u64::MAX, 0)));
        for wrong in [
            whole("[[10,2],[20,1]]", 29, 600, 10, 20),
            whole("[[10,2],[20,1]]", 61, 600, 10, 20),
            whole("[[10,2],[20,1]]", 40, 10, 10, 20),
            whole("[[10,2],[20,1]]", 40, 6_000, 10, 20),
            whole("[[10,2],[20,1]]", 40, 600, 9, 20),
            whole("[[10,2],[20,1]]", 40, 600, 10, 21),
            whole("[]", 1, 0, u64::MAX, 0),
            whole("[[3600000000001,1]]", 10, 100, 10, 10),
            whole("[[10,18446744073709551615],[20,1]]", 40, 600, 10, 20),
        ] {
            assert!(!read(wrong.clone()), "{wrong}");
        }
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

        /// What was written and read back is the same histogram in every statistic, also after a merge.
        #[test]
        fn a_serialised_histogram_is_the_same_histogram(
            values in prop::collection::vec((0u64..=u64::MAX, 1u64..1000), 0..50),
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&(value, count)| histogram.record_n(value, count));
            let text = serde_json::to_string(&histogram).unwrap();
            let mut read: Histogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.quantiles(), histogram.quantiles());
            prop_assert!(read.inner() == histogram.inner());
            read.merge(&histogram);
            histogram.merge(&histogram.clone());
            prop_assert_eq!(read.quantiles(), histogram.quantiles());
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

        /// Mean and percentiles are consistent also for many nearly equal values, and for histograms read from a log.
        #[test]
        fn histogram_mean_and_percentiles_are_consistent(
            values in prop::collection::vec(
                (prop_oneof![0u64..100, any::<u64>(), Just(999_999_999_999u64)], 1u64..1 << 30),
                1..20,
            ),
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
        fn every_value_lies_in_one_histogram_bucket(
            values in prop::collection::vec(0u64..5_000_000, 1..200),
            edge in 1u64..5_000_000,
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            let total = histogram.count_between(0, edge) + histogram.count_between(edge, u64::MAX);
            prop_assert_eq!(total, values.len() as u64);
        }
    }
}
