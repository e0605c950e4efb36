//! Whether an error of a reported figure matters, and whether a percentile is known: one rule for every check.

/// An error moves a reported time if it is more than this share of it: less than two runs of the same thing differ by.
const SHARE: f64 = 0.01;
/// And more than this: what a wake-up of a thread, and the path, cost at best.
const LEAST_NS: f64 = 50e3;
/// A percentile is known once so many values lie beyond it: its own relative error is then about a fifth of what is beyond.
const BEYOND_MIN: u64 = 20;

/// The error up to which a reported time stands as it is, both in nanoseconds: 1 % of it, or 50 us where that is more.
pub fn material_ns(reported_ns: f64) -> f64 {
    (SHARE * reported_ns).max(LEAST_NS)
}

/// Whether of `count` values twenty lie beyond the percentile that a share of `beyond` of them exceeds: from 40 on for the median, 2,000 for the
/// 99th percentile, 20,000 for the 99.9th.
pub fn is_known(count: u64, beyond: f64) -> bool {
    count >= values_needed(beyond)
}

/// Values that it takes for a percentile to be known; 0 for what no share exceeds.
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
