//! Converts a histogram to the points of a curve, with confidence intervals.

use stats::Histogram;

/// Maximum number of points of a curve: two for each of 250 clients. More would have no significance.
pub const POINTS_MAX: usize = 500;

/// One quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The quantile, 0 to 1.
    pub quantile: f64,
    /// The RTT, in ns.
    pub rtt_ns: u64,
    /// Lower end of the 95 % confidence interval; `None` if it may lie beyond the measured values.
    pub low_ns: Option<u64>,
    /// Upper end of the confidence interval.
    pub high_ns: Option<u64>,
}

/// The quantiles reported individually.
const ESTIMATED: [f64; 9] = [0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99];

/// Some quantiles with their confidence intervals: of `effective` independent values the rank of the q-th quantile is
/// binomial, so it is q +- 1.96 sqrt(q (1 - q) / n). Differences to another hour or another day are not included.
pub(super) fn estimates(histogram: &Histogram, effective: f64) -> Vec<Estimate> {
    ESTIMATED
        .iter()
        .map(|&quantile| {
            let reach = 1.96 * (quantile * (1.0 - quantile) / effective.max(1.0)).sqrt();
            let at = |rank: f64| (rank > 0.0 && rank < 1.0).then(|| histogram.value_at(rank));
            Estimate {
                quantile,
                rtt_ns: histogram.value_at(quantile),
                low_ns: at(quantile - reach),
                high_ns: at(quantile + reach),
            }
        })
        .collect()
}

/// The distribution as a piecewise linear curve: points of quantile (rising) and RTT in ns (not falling), at most
/// [`POINTS_MAX`], none for an empty histogram. Value `k` of `n` (from 1) is at (k - 0.5) / n, to within 0.6 %; so a
/// sample of `n` clients divided into `n` steps gives the sample again. If more points would be needed, the curve is
/// coarser. First and last are the smallest and the largest value.
pub fn points(histogram: &Histogram) -> Vec<(f64, u64)> {
    let all = vertices(histogram);
    let mut tolerance = TOLERANCE;
    loop {
        let few = thin(&all, tolerance);
        if few.len() <= POINTS_MAX {
            return few;
        }
        tolerance *= 1.5;
    }
}

/// Each bucket as a horizontal segment of the curve: its first and its last value.
fn vertices(histogram: &Histogram) -> Vec<(f64, u64)> {
    let counts = histogram.inner();
    let (all, max) = (histogram.len(), histogram.max());
    let min = histogram.quantiles().min;
    let place = |rank: u64| ((rank as f64 - 0.5) / all as f64 * PLACES).round() / PLACES;
    let mut points: Vec<(f64, u64)> = Vec::new();
    let mut below = 0;
    for bucket in counts.iter_recorded() {
        let count = bucket.count_at_value();
        let middle = rounded(counts.median_equivalent(bucket.value_iterated_to())).clamp(min, max);
        for rank in [below + 1, below + count] {
            // The extremes are known exactly, beyond their buckets.
            let value = match rank {
                1 => min,
                _ if rank == all => max,
                _ => middle,
            };
            let quantile = place(rank);
            if points.last().is_none_or(|&(before, _)| quantile > before) {
                points.push((quantile, value));
            }
        }
        below += count;
    }
    points
}

/// From a millisecond on rounded to microseconds: at most a twentieth of a percent, for a readable file.
fn rounded(value_ns: u64) -> u64 {
    if value_ns < 1_000_000 { value_ns } else { (value_ns + 500) / 1000 * 1000 }
}

/// Removes points that a straight line passes within `tolerance` (a share of the value). From each remaining point the
/// line goes to the farthest point for which all skipped points stay within their tolerances: a cone that narrows with
/// each.
fn thin(points: &[(f64, u64)], tolerance: f64) -> Vec<(f64, u64)> {
    let mut remaining: Vec<(f64, u64)> = points.first().copied().into_iter().collect();
    let mut from = 0;
    while from + 1 < points.len() {
        let (quantile, value) = (points[from].0, points[from].1 as f64);
        let (mut lowest, mut highest, mut to) = (f64::NEG_INFINITY, f64::INFINITY, from + 1);
        for (index, &(q, v)) in points.iter().enumerate().skip(from + 1) {
            let slope_to = |v: f64| (v - value) / (q - quantile);
            if (lowest..=highest).contains(&slope_to(v as f64)) {
                to = index;
            }
            lowest = lowest.max(slope_to(v as f64 * (1.0 - tolerance)));
            highest = highest.min(slope_to(v as f64 * (1.0 + tolerance)));
            if lowest > highest {
                break;
            }
        }
        remaining.push(points[to]);
        from = to;
    }
    remaining
}

/// A sixth of the permitted difference of a learned and replayed profile; buckets are a fifth of this.
const TOLERANCE: f64 = 0.005;
/// Quantiles have this resolution in decimal places: distinct for captures of up to 10^11 values.
const PLACES: f64 = 1e12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    /// Evaluates the curve like `path`.
    fn at(points: &[(f64, u64)], quantile: f64) -> f64 {
        let above = points.partition_point(|point| point.0 < quantile);
        match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
            (Some((q0, v0)), Some(&(q1, v1))) => v0 as f64 + (quantile - q0) / (q1 - q0) * (v1 as f64 - v0 as f64),
            (None, Some(&(_, v))) | (Some((_, v)), None) => v as f64,
            (None, None) => panic!("no points"),
        }
    }

    #[test]
    fn curve_of_a_simple_distribution_has_few_points_and_an_empty_one_none() {
        assert_eq!(points(&histogram([])), []);
        assert_eq!(points(&histogram([7])), [(0.5, 7)]);
        assert_eq!(points(&histogram(vec![5_000_000; 1000])), [(0.0005, 5_000_000), (0.9995, 5_000_000)]);
        let line = points(&histogram((0..100_000).map(|step| 50_000_000 + step * 1000)));
        assert!(line.len() < 20, "{}", line.len());
    }

    /// Two kinds of clients, near and far, and a hundredth very far: no point of the curve lies between them.
    #[test]
    fn curve_keeps_a_jump_between_two_groups() {
        let near = (0..600).map(|step| 5_000_000 + step * 100);
        let far = (0..390).map(|step| 100_000_000 + step * 1000);
        let curve = points(&histogram(near.chain(far).chain([2_000_000_000; 10])));
        for (quantile, expected) in [(0.599, 5_060_000.0), (0.601, 100_000_000.0), (0.989, 100_390_000.0), (0.991, 2e9)]
        {
            let measured = at(&curve, quantile);
            assert!((measured / expected - 1.0).abs() < 0.006, "{quantile}: {measured}");
        }
    }

    #[test]
    fn confidence_interval_depends_on_the_effective_sample_size() {
        let histogram = histogram((1..=10_000).map(|rank| rank * 10_000));
        let median = |effective: f64| *estimates(&histogram, effective).iter().find(|e| e.quantile == 0.5).unwrap();
        let share = |ns: Option<u64>| ns.unwrap() as f64 / 1e8;
        let sure = median(10_000.0);
        assert!((share(sure.low_ns) - 0.4902).abs() < 0.001 && (share(sure.high_ns) - 0.5098).abs() < 0.001);
        assert!((share(median(100.0).low_ns) - 0.402).abs() < 0.002);
        let far = *estimates(&histogram, 50.0).last().unwrap();
        assert!(far.quantile == 0.99 && far.high_ns.is_none() && far.low_ns.is_some());
    }

    proptest! {
        /// For any values: rising, not falling, few points, exact extremes, every value on the curve (with few values
        /// the tolerance need not be widened).
        #[test]
        fn curve_contains_every_value_within_the_tolerance(
            values in prop::collection::vec(prop_oneof![1u64..5_000_000_000, 10_000_000u64..11_000_000, Just(48_000_000)], 1..250)
        ) {
            let curve = points(&histogram(values.iter().copied()));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert!(curve.len() <= POINTS_MAX);
            prop_assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
            prop_assert_eq!(curve[0].1, sorted[0]);
            prop_assert_eq!(curve[curve.len() - 1].1, sorted[sorted.len() - 1]);
            for (rank, &value) in sorted.iter().enumerate() {
                let measured = at(&curve, (rank as f64 + 0.5) / sorted.len() as f64);
                prop_assert!((measured - value as f64).abs() <= value as f64 * 0.006 + 1.0, "{} for {}", measured, value);
            }
        }
    }
}
