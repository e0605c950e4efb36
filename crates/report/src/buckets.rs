//! Percentiles of values counted in buckets, for the live page and the report.

/// A bucket and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Lower edge in ns, inclusive.
    pub(crate) from_ns: u64,
    /// Upper edge in ns, exclusive.
    pub(crate) to_ns: u64,
    /// Values in it.
    pub(crate) count: u64,
}

/// The quantile `share` in ns; `None` without values. `buckets` are in rising order. Values are assumed evenly distributed in
/// a bucket, so the result is precise to the width of a bucket, 12.5 %.
pub(crate) fn quantile(buckets: &[Filled], share: f64) -> Option<f64> {
    let last = buckets.iter().rev().find(|bucket| bucket.count > 0)?;
    let mut left = total(buckets) * share;
    for bucket in buckets.iter().filter(|bucket| bucket.count > 0) {
        let count = bucket.count as f64;
        if left <= count {
            let (from, to) = (bucket.from_ns as f64, bucket.to_ns as f64);
            return Some(from + (to - from) * (left / count));
        }
        left -= count;
    }
    Some(last.to_ns as f64)
}

/// The quantile, if at least one value lies beyond it: four values have no p90.
pub(crate) fn quantile_if_known(buckets: &[Filled], share: f64) -> Option<f64> {
    // 10 * (1 - 0.9) is slightly less than 1 in floating point.
    let beyond = total(buckets) * (1.0 - share);
    quantile(buckets, share).filter(|_| beyond > 1.0 - 1e-6)
}

/// A percentile from buckets, limited to the exact percentiles below and above it. NaN stays NaN.
pub(crate) fn between(value: f64, (lower, higher): (u64, u64)) -> f64 {
    if value.is_nan() { value } else { value.max(lower as f64).min(higher as f64) }
}

fn total(buckets: &[Filled]) -> f64 {
    buckets.iter().fold(0u64, |sum, bucket| sum.saturating_add(bucket.count)) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(from_ns: u64, to_ns: u64, count: u64) -> Filled {
        Filled { from_ns, to_ns, count }
    }

    #[test]
    fn quantile_is_interpolated_within_its_bucket() {
        let buckets = [filled(100, 200, 90), filled(200, 300, 10)];
        assert_eq!(quantile(&buckets, 0.9), Some(200.0));
        assert_eq!(quantile(&buckets, 0.5), Some(100.0 + 100.0 * 50.0 / 90.0));
        assert_eq!(quantile(&buckets, 1.0), Some(300.0));
        assert_eq!([quantile(&[], 0.5), quantile(&[filled(1, 2, 0)], 0.5)], [None; 2]);
    }

    proptest! {
        #[test]
        fn quantiles_are_monotone_and_within_the_counted_range(
            counts in prop::collection::vec((1u64..1000, 0u64..50), 1..20),
            shares in prop::collection::vec(0.0..=1.0f64, 2..6),
        ) {
            let mut at = 0;
            let buckets: Vec<Filled> = counts
                .iter()
                .map(|&(width, count)| {
                    let from = at;
                    at += width;
                    filled(from, at, count)
                })
                .collect();
            let mut shares = shares;
            shares.sort_by(f64::total_cmp);
            let found: Vec<f64> = shares.iter().filter_map(|&share| quantile(&buckets, share)).collect();
            prop_assert!(found.is_sorted(), "{:?}", found);
            let ends = buckets.iter().filter(|bucket| bucket.count > 0);
            let (low, high) = ends.fold((f64::INFINITY, 0.0f64), |(low, high), bucket| {
                (low.min(bucket.from_ns as f64), high.max(bucket.to_ns as f64))
            });
            prop_assert!(found.iter().all(|value| (low..=high).contains(value)), "{:?} {} {}", found, low, high);
            prop_assert_eq!(found.is_empty(), buckets.iter().all(|bucket| bucket.count == 0));
        }
    }

    #[test]
    fn bucket_percentile_is_limited_by_exact_percentiles() {
        assert_eq!([between(5.0, (7, 9)), between(8.0, (7, 9)), between(12.0, (7, 9))], [7.0, 8.0, 9.0]);
        assert!(between(f64::NAN, (7, 9)).is_nan());
    }

    #[test]
    fn quantile_without_a_value_beyond_it_is_unknown() {
        for (count, share, is_known) in
            [(4, 0.9, false), (9, 0.9, false), (10, 0.9, true), (999, 0.999, false), (1000, 0.999, true)]
        {
            let found = quantile_if_known(&[filled(100, 200, count)], share);
            assert_eq!(found.is_some(), is_known, "{share} of {count}");
        }
        assert_eq!(quantile_if_known(&[], 0.5), None);
    }
}
