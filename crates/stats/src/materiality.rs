//! Decides whether an error of a reported time is material, and whether a percentile has enough values: the common rule
//! of all validity checks.

/// An error is material above this share of the reported time. Repeated runs of the same load differ by more.
const MATERIAL_SHARE: f64 = 0.01;
/// An error is material only above this, which is about the cost of waking up a thread and of the path.
const MATERIAL_NS_MIN: f64 = 50e3;
/// Minimum number of values beyond a percentile; the relative error of their number is then about a fifth.
const BEYOND_MIN: u64 = 20;

/// The largest error of a reported time that is not material, both in nanoseconds: 1 % of the time, at least 50 us.
pub fn material_ns(reported_ns: f64) -> f64 {
    (MATERIAL_SHARE * reported_ns).max(MATERIAL_NS_MIN)
}

/// Whether `count` values have twenty beyond the percentile that the share `beyond` of them exceeds: from 40 values on
/// for the median, 2,000 for the 99th percentile, 20,000 for the 99.9th.
pub fn is_known(count: u64, beyond: f64) -> bool {
    count >= values_needed(beyond)
}

/// Minimum number of values for a percentile that the share `beyond` exceeds; 0 if `beyond` is 0.
pub fn values_needed(beyond: f64) -> u64 {
    if beyond > 0.0 { (BEYOND_MIN as f64 / beyond).round() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn materiality_compares_an_error_with_the_reported_figure() {
        assert_eq!((material_ns(48e6), material_ns(5e6), material_ns(200e3)), (480e3, 50e3, 50e3));
        assert_eq!(material_ns(1.93e9), 19.3e6);
    }

    #[test]
    fn materiality_of_a_percentile_needs_twenty_values_beyond_it() {
        for (beyond, needed) in
            [(0.5, 40), (0.25, 80), (0.1, 200), (0.05, 400), (0.01, 2_000), (0.001, 20_000), (0.0001, 200_000)]
        {
            assert_eq!(values_needed(beyond), needed);
            assert!(is_known(needed, beyond) && !is_known(needed - 1, beyond));
        }
    }
}
