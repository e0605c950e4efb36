//! Compact, mergeable histogram of response times: only non-empty buckets are stored.
//!
//! A quantile is the upper edge of the bucket with the nearest-rank value, limited by the maximum: never too low, and
//! at most [`FineBucket::WIDTH`] (3.1 %) too high, in whatever order values were added. Count, sum, minimum and
//! maximum are exact.

use schema::FineBucket;
use serde::{Deserialize, Serialize};

/// TimeHistogram in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeHistogram {
    count: u64,
    /// Large enough for any number of the longest times: the mean stays exact.
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    /// Non-empty buckets, by number.
    buckets: Vec<(u16, u64)>,
}

/// Encoding: bucket numbers as differences, mostly one byte.
#[derive(Serialize, Deserialize)]
struct EncodedTimes {
    count: u64,
    /// An integer has the same encoding in any type.
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    buckets: Vec<(u16, u64)>,
}

impl TimeHistogram {
    /// Adds a time.
    pub fn record(&mut self, ns: u64) {
        let place = FineBucket::of(ns).0;
        match self.buckets.binary_search_by_key(&place, |(at, _)| *at) {
            Ok(found) => self.buckets[found].1 += 1,
            Err(index) => self.buckets.insert(index, (place, 1)),
        }
        self.widen(1, u128::from(ns), ns, ns);
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &TimeHistogram) {
        if other.count == 0 {
            return;
        }
        self.widen(other.count, other.sum_ns, other.min_ns, other.max_ns);
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut buckets, mut other_buckets) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            let next = match (buckets.peek(), other_buckets.peek()) {
                (Some(&&(a, n)), Some(&&(b, m))) if a == b => {
                    other_buckets.next();
                    buckets.next();
                    (a, n.saturating_add(m))
                }
                (Some(&&bucket), Some(&&(b, _))) if bucket.0 < b => {
                    buckets.next();
                    bucket
                }
                (_, Some(&&more)) => {
                    other_buckets.next();
                    more
                }
                (Some(&&bucket), None) => {
                    buckets.next();
                    bucket
                }
                (None, None) => break,
            };
            merged.push(next);
        }
        self.buckets = merged;
    }

    fn widen(&mut self, count: u64, sum_ns: u128, min_ns: u64, max_ns: u64) {
        self.min_ns = if self.count == 0 { min_ns } else { self.min_ns.min(min_ns) };
        self.max_ns = self.max_ns.max(max_ns);
        self.count = self.count.saturating_add(count);
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean, exact; `None` if empty.
    pub fn mean_ns(&self) -> Option<f64> {
        let mean = || self.sum_ns as f64 / self.count as f64;
        // A sum beyond 2^53 is rounded.
        (self.count > 0).then(|| mean().clamp(self.min_ns as f64, self.max_ns as f64))
    }

    /// Minimum, exact; `None` if empty.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Maximum, exact; `None` if empty.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Nearest-rank quantile, `q` from 0 to 1; `None` if empty. See the module for its error.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut passed = 0;
        self.buckets.iter().find_map(|&(place, count)| {
            passed += count;
            (passed >= rank).then(|| (FineBucket(place).to_ns() - 1).clamp(self.min_ns, self.max_ns))
        })
    }

    /// Lower edge, upper edge (exclusive) and count of each non-empty bucket, from the lowest.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().map(|&(place, count)| (FineBucket(place).from_ns(), FineBucket(place).to_ns(), count))
    }

    /// The encoding; an empty histogram has no bytes.
    pub fn encode(&self) -> Vec<u8> {
        if self.count == 0 {
            return Vec::new();
        }
        let mut before = 0;
        let as_pair = |&(place, count): &(u16, u64)| (place - std::mem::replace(&mut before, place), count);
        let TimeHistogram { count, sum_ns, min_ns, max_ns, .. } = *self;
        let encoded =
            EncodedTimes { count, sum_ns, min_ns, max_ns, buckets: self.buckets.iter().map(as_pair).collect() };
        postcard::to_stdvec(&encoded).unwrap_or_default()
    }

    /// Decodes the result of [`encode`](Self::encode). `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<TimeHistogram> {
        if bytes.is_empty() {
            return Some(TimeHistogram::default());
        }
        let EncodedTimes { count, sum_ns, min_ns, max_ns, mut buckets } = postcard::from_bytes(bytes).ok()?;
        let (mut place, mut held) = (0_u16, 0_u64);
        for (at, bucket) in buckets.iter_mut().enumerate() {
            place = place.checked_add(bucket.0).filter(|place| *place <= FineBucket::LAST.0)?;
            if (at > 0 && bucket.0 == 0) || bucket.1 == 0 {
                return None;
            }
            bucket.0 = place;
            held = held.checked_add(bucket.1)?;
        }
        let range = u128::from(min_ns) * u128::from(count)..=u128::from(max_ns) * u128::from(count);
        (held == count && min_ns <= max_ns && range.contains(&sum_ns)).then_some(TimeHistogram {
            count,
            sum_ns,
            min_ns,
            max_ns,
            buckets,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> TimeHistogram {
        let mut times = TimeHistogram::default();
        values.iter().for_each(|&ns| times.record(ns));
        times
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let nothing = TimeHistogram::default();
        assert_eq!(
            (nothing.quantile(0.5), nothing.mean_ns(), nothing.min_ns(), nothing.max_ns()),
            (None, None, None, None)
        );
        assert!(nothing.encode().is_empty());
        assert_eq!(TimeHistogram::decode(&[]), Some(nothing));
    }

    #[test]
    fn corrupt_encoded_data_is_rejected() {
        let whole = of(&[5, 7_000_000, 7_100_000, u64::MAX]).encode();
        assert!(TimeHistogram::decode(&whole).is_some());
        assert_eq!(TimeHistogram::decode(&whole[..whole.len() - 1]), None);
        let mut wrong_count = whole.clone();
        wrong_count[0] += 1;
        assert_eq!(TimeHistogram::decode(&wrong_count), None);
        assert_eq!(TimeHistogram::decode(&[0xff; 40]), None);
    }

    #[test]
    fn an_encoded_minute_takes_few_bytes() {
        // 50 exchanges of a little more than 20 ms.
        let times = of(&(0..50).map(|at| 20_000_000 + at * 200_000).collect::<Vec<_>>());
        assert!(times.encode().len() < 80, "{}", times.encode().len());
    }

    proptest! {
        #[test]
        fn histogram_quantiles_are_within_the_bucket_width_and_merge_exactly(
            values in prop::collection::vec(prop_oneof![0_u64..200, 1_000_u64..5_000_000_000, any::<u64>()], 1..300),
            cut in 0_usize..300,
            q in 0.0_f64..=1.0,
        ) {
            let cut = cut.min(values.len());
            let mut joined = of(&values[cut..]);
            joined.merge(&of(&values[..cut]));
            let whole = of(&values);
            prop_assert_eq!(&joined, &whole);
            prop_assert_eq!(TimeHistogram::decode(&whole.encode()), Some(whole.clone()));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = sorted[(((q * sorted.len() as f64).ceil() as usize).max(1)) - 1];
            let found = whole.quantile(q).unwrap();
            prop_assert!(found >= exact && found as f64 <= exact as f64 * (1.0 + FineBucket::WIDTH), "{} {}", found, exact);
            prop_assert_eq!((whole.min_ns(), whole.max_ns()), (sorted.first().copied(), sorted.last().copied()));
            // Mean and percentiles cover the same times.
            let all = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(|q| whole.quantile(q).unwrap());
            let (min, mean, max) = (whole.min_ns().unwrap(), whole.mean_ns().unwrap(), whole.max_ns().unwrap());
            prop_assert!(all.is_sorted() && all[0] >= min && all[6] <= max, "{:?}", all);
            prop_assert!(min as f64 <= mean && mean <= max as f64, "{} {} {}", min, mean, max);
            prop_assert_eq!(whole.buckets().map(|(_, _, count)| count).sum::<u64>(), values.len() as u64);
        }
    }
}
