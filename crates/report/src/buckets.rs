//! Percentiles of values that were counted in buckets: one rule for the page and the report.

/// A bucket with what was counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Lower edge in ns, inclusive.
    pub(crate) from_ns: u64,
    /// Upper edge in ns, exclusive.
    pub(crate) to_ns: u64,
    /// Values in it.
    pub(crate) count: u64,
}

/// The value that `share` of all values do not exceed, in ns; `None` where there is none. `buckets` rise. Within a bucket the
/// values are taken as evenly spread, so it is right to the bucket's width: an eighth.
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

/// The same where at least one value lies beyond it: of four values nobody knows the ninth of ten.
pub(crate) fn quantile_if_known(buckets: &[Filled], share: f64) -> Option<f64> {
    // Ten times what 0.9 leaves of 1 is a hair less than one.
    let beyond = total(buckets) * (1.0 - share);
    quantile(buckets, share).filter(|_| beyond > 1.0 - 1e-6)
}

/// A percentile by buckets, beside finer ones of the same values: not below the lower of them and not above the higher one. What is not a number
/// stays so.
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
    fn a_quantile_lies_in_its_bucket_as_far_as_its_rank() {
        let buckets = [filled(100, 200, 90), filled(200, 300, 10)];
        assert_eq!(quantile(&buckets, 0.9), Some(200.0));
        assert_eq!(quantile(&buckets, 0.5), Some(100.0 + 100.0 * 50.0 / 90.0));
        assert_eq!(quantile(&buckets, 1.0), Some(300.0));
        assert_eq!([quantile(&[], 0.5), quantile(&[filled(1, 2, 0)], 0.5)], [None; 2]);
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_lie_in_what_was_counted(
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
    fn what_stands_beside_finer_percentiles_does_not_contradict_them() {
        assert_eq!([between(5.0, (7, 9)), between(8.0, (7, 9)), between(12.0, (7, 9))], [7.0, 8.0, 9.0]);
        assert!(between(f64::NAN, (7, 9)).is_nan());
    }

    #[test]
    fn what_nothing_lies_beyond_is_not_known() {
        for (count, share, is_known) in
            [(4, 0.9, false), (9, 0.9, false), (10, 0.9, true), (999, 0.999, false), (1000, 0.999, true)]
        {
            let found = quantile_if_known(&[filled(100, 200, count)], share);
            assert_eq!(found.is_some(), is_known, "{share} of {count}");
        }
        assert_eq!(quantile_if_known(&[], 0.5), None);
    }
}
