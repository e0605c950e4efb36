//! Exact statistics of a sample that fits into memory.

use schema::Quantiles;

/// Exact statistics of `values`, in any order; all zero without values. Copies and sorts, so it is not for hot paths.
///
/// Quantiles are nearest-rank (the smallest value with at least that share of the sample at or below it), so each is a
/// value of the sample. Bias: a tail quantile of a small sample (p99.9 of 100 values) is its maximum, which
/// underestimates that of the population. The standard deviation is that of the population (divided by n). Source:
/// Hyndman and Fan, "Sample quantiles in statistical packages" (1996), definition 1.
pub fn quantiles_of(values: &[u64]) -> Quantiles {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    quantiles_of_sorted(&sorted)
}

/// [`quantiles_of`] without the copy, for values in ascending order.
pub fn quantiles_of_sorted(sorted: &[u64]) -> Quantiles {
    debug_assert!(sorted.is_sorted());
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Quantiles::default() };
    let count = sorted.len() as f64;
    let mean = sorted.iter().map(|&value| u128::from(value)).sum::<u128>() as f64 / count;
    // A sum beyond 2^53 is rounded.
    let mean = mean.clamp(min as f64, max as f64);
    let variance = sorted.iter().map(|&value| (value as f64 - mean).powi(2)).sum::<f64>() / count;
    Quantiles {
        count: sorted.len() as u64,
        mean,
        stddev: variance.sqrt(),
        min,
        p50: at_share(sorted, 5_000),
        p75: at_share(sorted, 7_500),
        p90: at_share(sorted, 9_000),
        p95: at_share(sorted, 9_500),
        p99: at_share(sorted, 9_900),
        p99_9: at_share(sorted, 9_990),
        p99_99: at_share(sorted, 9_999),
        max,
    }
}

/// The nearest-rank value at a share in ten-thousandths. Integer arithmetic is exact: in floating point, 0.999 times
/// 3000 is not 2997 and would round up to the next rank.
fn at_share(sorted: &[u64], ten_thousandths: u128) -> u64 {
    let rank = (sorted.len() as u128 * ten_thousandths).div_ceil(10_000).max(1) as usize;
    sorted[rank - 1]
}

/// The median of some values; NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks_of_a_thousand_values() {
        let values: Vec<u64> = (1..=1000).rev().collect();
        let q = quantiles_of(&values);
        assert_eq!((q.count, q.min, q.max), (1000, 1, 1000));
        assert_eq!((q.p50, q.p75, q.p90, q.p95, q.p99, q.p99_9, q.p99_99), (500, 750, 900, 950, 990, 999, 1000));
        assert_eq!(q.mean, 500.5);
        assert!((q.stddev - 288.674_990_257_210_6).abs() < 1e-9);
    }

    #[test]
    fn quantiles_of_one_and_no_value() {
        assert_eq!(quantiles_of(&[]), Quantiles::default());
        let q = quantiles_of(&[7]);
        assert_eq!((q.min, q.p50, q.p99_99, q.max, q.mean, q.stddev), (7, 7, 7, 7, 7.0, 0.0));
    }
}
