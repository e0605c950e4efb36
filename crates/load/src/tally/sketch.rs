//! A compact histogram for one second of the time series.

use schema::Bucket;
use serde::{Deserialize, Serialize};

/// Counts in buckets of constant relative width: percentiles are exact to 1.6 %, in a few kilobytes instead of the 270
/// of the histogram of a whole run. Grows with the largest value. Minimum and maximum are exact and limit all
/// percentiles.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sketch {
    counts: Vec<u32>,
    total: u64,
    /// Minimum and maximum; 0 if empty.
    ends: (u64, u64),
}

/// Each power of two is divided into 2^5 buckets; values under 2^6 are exact.
const PRECISION_BITS: u32 = 5;

impl Sketch {
    pub(super) fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.widen(1, (value, value));
    }

    fn widen(&mut self, count: u64, (least, largest): (u64, u64)) {
        if count > 0 {
            self.ends = match self.total {
                0 => (least, largest),
                _ => (self.ends.0.min(least), self.ends.1.max(largest)),
            };
            self.total += count;
        }
    }

    pub(super) fn merge(&mut self, other: &Sketch) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count = count.saturating_add(*other));
        self.widen(other.total, other.ends);
    }

    /// The exact maximum; 0 if empty.
    pub(super) fn max(&self) -> u64 {
        self.ends.1
    }

    /// The nearest-rank percentile, as the middle of its bucket, limited to the range of the values; 0 if empty.
    pub(super) fn value_at(&self, percent: u64) -> u64 {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        found.map_or(0, |bucket| middle(bucket).clamp(self.ends.0, self.ends.1))
    }
}

impl Sketch {
    /// The counts in the coarser buckets that all distributions share, without empty ones, in ascending order.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Bucket, u64)> {
        // Each fine bucket lies within one coarse bucket, so no value is counted on the wrong side of an edge.
        let counted = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        let mut coarser = counted.map(|(at, &count)| (Bucket::of(lowest(at)), u64::from(count))).peekable();
        std::iter::from_fn(move || {
            let (bucket, mut sum) = coarser.next()?;
            while let Some((_, count)) = coarser.next_if(|&(next, _)| next == bucket) {
                sum += count;
            }
            Some((bucket, sum))
        })
    }
}

fn bucket(value: u64) -> usize {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(PRECISION_BITS);
    ((u64::from(shift) << PRECISION_BITS) + (value >> shift)) as usize
}

fn middle(bucket: usize) -> u64 {
    lowest(bucket) + (1u64 << shift(bucket) >> 1)
}

fn lowest(bucket: usize) -> u64 {
    let shift = shift(bucket);
    (bucket as u64 - (u64::from(shift) << PRECISION_BITS)) << shift
}

fn shift(bucket: usize) -> u32 {
    (bucket >> PRECISION_BITS).saturating_sub(1) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_sketch_is_zero() {
        let empty = Sketch::default();
        assert_eq!((empty.value_at(99), empty.max()), (0, 0));
    }

    /// The middle of the bucket of 100 is 101, which the maximum of 100 must limit for every percentile.
    #[test]
    fn equal_values_have_equal_percentiles() {
        let mut sketch = Sketch::default();
        (0..9).for_each(|_| sketch.record(100));
        assert_eq!([50, 99, 100].map(|percent| sketch.value_at(percent)), [100; 3]);
    }

    proptest! {
        #[test]
        fn sketch_buckets_contain_their_values(value in 0u64..1 << 62) {
            let middle = middle(bucket(value));
            prop_assert!(middle.abs_diff(value) as f64 <= value as f64 * 0.0157, "{} for {}", middle, value);
        }

        #[test]
        fn coarser_buckets_contain_all_recorded_values(values in prop::collection::vec(0u64..1 << 45, 0..300)) {
            let mut sketch = Sketch::default();
            let mut expected = std::collections::BTreeMap::<Bucket, u64>::new();
            for &value in &values {
                sketch.record(value);
                *expected.entry(Bucket::of(value)).or_default() += 1;
            }
            prop_assert_eq!(sketch.buckets().collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn sketch_percentiles_are_close_to_exact_ones(
            mut values in prop::collection::vec(0u64..1_000_000_000, 1..300),
        ) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|&value| sketch.record(value));
            values.sort_unstable();
            // Percentiles are ascending and within the range of the values, for any order of merges.
            let mut merged = Sketch::default();
            for part in values.chunks(7) {
                let mut one = Sketch::default();
                part.iter().for_each(|&value| one.record(value));
                merged.merge(&one);
            }
            let all = [0, 50, 90, 99, 100].map(|percent| merged.value_at(percent));
            prop_assert!(all.is_sorted() && all[0] >= values[0] && all[4] <= merged.max(), "{:?}", all);
            prop_assert_eq!(merged.max(), values[values.len() - 1]);
            prop_assert_eq!(all[3], sketch.value_at(99));
            for percent in [50, 99, 100] {
                let exact = values[(values.len() * percent).div_ceil(100).max(1) - 1];
                let actual = sketch.value_at(percent as u64);
                prop_assert!(actual.abs_diff(exact) as f64 <= exact as f64 * 0.0157, "{} for {}", actual, exact);
            }
        }
    }
}
