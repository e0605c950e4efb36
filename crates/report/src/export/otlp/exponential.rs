//! OpenTelemetry's exponential histogram: times in buckets of constant relative width, from a nanosecond to hours.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, exponential_histogram_data_point::Buckets,
};
use serde::{Deserialize, Serialize};

/// Values counted in buckets whose edges grow by 2^(2^-scale): OpenTelemetry's exponential histogram.
///
/// Count, sum, minimum and maximum are exact. Histograms can be merged in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exponential {
    /// Counts by bucket index, at [`SCALE`].
    counts: BTreeMap<i32, u64>,
    zeros: u64,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Exponential {
    /// Counts a value in ns.
    pub fn record(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum_ns += u128::from(ns);
        if ns == 0 {
            self.zeros += 1;
        } else {
            *self.counts.entry(index(ns)).or_default() += 1;
        }
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Exponential) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.zeros += other.zeros;
        for (index, count) in &other.counts {
            *self.counts.entry(*index).or_default() += count;
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The histogram as a data point, in seconds; `start` and `end` are ns since 1970.
    pub fn point(&self, attributes: Vec<KeyValue>, start: u64, end: u64) -> ExponentialHistogramDataPoint {
        let (first, last) = (self.counts.keys().next().copied(), self.counts.keys().last().copied());
        let (mut scale, mut shift) = (SCALE, 0);
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        while (last >> shift) - (first >> shift) >= BUCKETS_MAX {
            (scale, shift) = (scale - 1, shift + 1);
        }
        let offset = first >> shift;
        let mut bucket_counts = vec![0; usize::try_from((last >> shift) - offset + 1).unwrap_or(1)];
        for (index, count) in &self.counts {
            bucket_counts[usize::try_from((index >> shift) - offset).unwrap_or(0)] += count;
        }
        ExponentialHistogramDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: end,
            count: self.count,
            sum: Some(self.sum_ns as f64 / 1e9),
            scale,
            zero_count: self.zeros,
            positive: Some(Buckets { offset, bucket_counts }),
            min: Some(self.min_ns as f64 / 1e9),
            max: Some(self.max_ns as f64 / 1e9),
            ..ExponentialHistogramDataPoint::default()
        }
    }
}

/// The bucket (base^i, base^(i+1)] of a value in seconds, above 0.
fn index(ns: u64) -> i32 {
    let buckets_a_doubling = f64::from(1 << SCALE);
    ((ns as f64 / 1e9).log2() * buckets_a_doubling).ceil() as i32 - 1
}

/// Edges grow by 2^(1/8), 9 %: from 100 us to a minute there are 154 buckets.
const SCALE: i32 = 3;
/// Largest number of buckets, as in OpenTelemetry's own histograms.
const BUCKETS_MAX: i32 = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_lies_in_its_exponential_bucket() {
        for ns in [1, 999, 1_000_000, 48_000_000, 999_999_999, 1_000_000_001, 3_600_000_000_000] {
            let (at, s) = (index(ns), ns as f64 / 1e9);
            let edge = |index: i32| (f64::from(index) / 8.0).exp2();
            assert!(edge(at) * (1.0 - 1e-12) < s && s <= edge(at + 1) * (1.0 + 1e-12), "{ns}: {at}");
        }
        // An edge belongs to the bucket below it.
        assert_eq!((index(1_000_000_000), index(2_000_000_000)), (-1, 7));
    }

    #[test]
    fn number_of_exponential_buckets_is_bounded() {
        let mut values = Exponential::default();
        let times = [0, 1, 1000, 1_000_000, 1_000_000_000, 3_600_000_000_000];
        times.into_iter().for_each(|ns| values.record(ns));
        let point = values.point(Vec::new(), 1, 2);
        let buckets = point.positive.unwrap();
        assert!(buckets.bucket_counts.len() <= BUCKETS_MAX as usize && point.scale < SCALE);
        assert_eq!((buckets.bucket_counts.iter().sum::<u64>() + point.zero_count, point.count), (6, 6));
        assert_eq!((point.min, point.max), (Some(0.0), Some(3600.0)));
    }

    #[test]
    fn merged_exponential_histograms_have_the_sum_of_counts() {
        let times = [0, 5, 1_000_000, 2_000_000_000, 7];
        let of = |times: &[u64]| {
            let mut values = Exponential::default();
            times.iter().for_each(|&ns| values.record(ns));
            values
        };
        let mut joined = of(&times[2..]);
        joined.merge(&of(&times[..2]));
        joined.merge(&Exponential::default());
        assert_eq!(joined, of(&times));
    }
}
