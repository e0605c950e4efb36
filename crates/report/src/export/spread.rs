//! Times counted in fixed buckets: the histogram of Prometheus and OpenTelemetry.

use std::collections::BTreeMap;

use schema::{DistributionRecord, Measure};

/// Upper edges of the buckets in seconds; above the last edge follows an open bucket. The edges range from 100 us (a
/// LAN) to a minute (a user's longest wait), with finer buckets at typical RTTs. All runs have the same edges, so that
/// histograms of runs can be added.
pub const BOUNDS_S: [f64; 26] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75,
    1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
];

/// Values counted in the buckets of [`BOUNDS_S`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BucketHistogram {
    /// Values in each bucket, not cumulative; the last bucket is open above.
    pub counts: [u64; BOUNDS_S.len() + 1],
    /// Sum of the values in seconds.
    pub sum_s: f64,
}

impl BucketHistogram {
    /// Adds `count` values that are at most `highest_ns`, and about `middle_ns`.
    pub fn add(&mut self, highest_ns: u64, middle_ns: u64, count: u64) {
        let bucket = BOUNDS_S.partition_point(|bound| bound * 1e9 < highest_ns as f64);
        self.counts[bucket] += count;
        self.sum_s += middle_ns as f64 / 1e9 * count as f64;
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &BucketHistogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, theirs)| *own += theirs);
        self.sum_s += other.sum_s;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper edges with the number of values at or below each; the last edge is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let edges = BOUNDS_S.into_iter().chain([f64::INFINITY]);
        edges.zip(self.counts).scan(0, |below, (edge, count)| {
            *below += count;
            Some((edge, *below))
        })
    }
}

/// The response times of each second. A bucket of the table that contains an edge counts above the edge: values are at
/// most an eighth too high, never too low. The sum uses the middle of each bucket, and is precise to 6 %.
pub fn of_seconds(rows: &[DistributionRecord]) -> BTreeMap<u32, BucketHistogram> {
    let mut seconds: BTreeMap<u32, BucketHistogram> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.measure == Measure::ResponseTime) {
        let highest = row.to_ns.saturating_sub(1);
        seconds.entry(row.second).or_default().add(highest, row.from_ns / 2 + highest / 2, row.count);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_at_a_bucket_edge_counts_below_it() {
        let mut spread = BucketHistogram::default();
        for (ns, bucket) in [(0, 0), (100_000, 0), (100_001, 1), (60_000_000_000, 25), (60_000_000_001, 26)] {
            let before = spread.counts[bucket];
            spread.add(ns, ns, 2);
            assert_eq!(spread.counts[bucket], before + 2, "{ns}");
        }
        assert_eq!((spread.count(), spread.cumulative().last().unwrap()), (10, (f64::INFINITY, 10)));
        assert!(BOUNDS_S.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn source_bucket_across_an_edge_counts_above_it() {
        let row = |from_ns, to_ns, count| DistributionRecord {
            second: 3,
            measure: Measure::ResponseTime,
            from_ns,
            to_ns,
            count,
        };
        let seconds = of_seconds(&[row(90_000, 100_001, 2), row(96_000, 104_000, 5)]);
        assert_eq!((seconds.len(), &seconds[&3].counts[..2]), (1, &[2, 5][..]));
    }
}
