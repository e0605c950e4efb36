//! From a histogram to the points of a curve, and how sure they are.

use stats::Histogram;

/// The most points a curve has: two for each of 250 clients. More say nothing that a network would repeat.
pub const POINTS_MAX: usize = 500;

/// One quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Which, 0 to 1.
    pub quantile: f64,
    /// The RTT, in ns.
    pub rtt_ns: u64,
    /// Where the true one lies in 19 of 20 captures like this one; `None` where it may lie beyond what was seen.
    pub low_ns: Option<u64>,
    /// The other end of that range.
    pub high_ns: Option<u64>,
}

/// The quantiles that are given singly.
const ESTIMATED: [f64; 9] = [0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99];

/// Some quantiles with the range that chance leaves them: of `effective` independent values the rank of the q-th
/// quantile is binomial, so it is q +- 1.96 sqrt(q (1 - q) / n). What no sampling of this capture tells, another hour
/// or another day, is not in it.
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

/// The distribution as a curve of straight lines: points of quantile (rising) and RTT in ns (not falling), at most
/// [`POINTS_MAX`], none for an empty histogram. Value `k` of `n` (from 1) stands at (k - 0.5) / n, and is met to within
/// 0.6 %; so a sample of `n` clients cut into `n` steps gives the sample again. Where more points would be needed, the
/// curve is coarser. First and last are the smallest and the largest value.
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

/// Every bucket as the level piece of the curve that it is: its first and its last value.
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

/// From a millisecond on whole microseconds: a twentieth of a percent at most, and a file that can be read.
fn rounded(value_ns: u64) -> u64 {
    if value_ns < 1_000_000 { value_ns } else { (value_ns + 500) / 1000 * 1000 }
}

/// Leaves out what a straight line passes by within `tolerance` (a share of the value). From each point that stays,
/// the line goes to the farthest next one that keeps clear of the others' tolerances: a cone that narrows with each.
fn thin(points: &[(f64, u64)], tolerance: f64) -> Vec<(f64, u64)> {
    let mut kept: Vec<(f64, u64)> = points.first().copied().into_iter().collect();
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
        kept.push(points[to]);
        from = to;
    }
    kept
}

/// A sixth of what a profile that was learned and replayed may differ by; buckets are a fifth as wide as this.
const TOLERANCE: f64 = 0.005;
/// Quantiles are written with so many decimal places: apart for every value of captures of up to 10^11.
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

    /// As `path` reads it.
    fn at(points: &[(f64, u64)], quantile: f64) -> f64 {
        let above = points.partition_point(|point| point.0 < quantile);
        match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
            (Some((q0, v0)), Some(&(q1, v1))) => v0 as f64 + (quantile - q0) / (q1 - q0) * (v1 as f64 - v0 as f64),
            (None, Some(&(_, v))) | (Some((_, v)), None) => v as f64,
            (None, None) => panic!("no points"),
        }
    }

    #[test]
    fn few_points_for_a_simple_shape_and_none_for_nothing() {
        assert_eq!(points(&histogram([])), []);
        assert_eq!(points(&histogram([7])), [(0.5, 7)]);
        assert_eq!(points(&histogram(vec![5_000_000; 1000])), [(0.0005, 5_000_000), (0.9995, 5_000_000)]);
        let line = points(&histogram((0..100_000).map(|step| 50_000_000 + step * 1000)));
        assert!(line.len() < 20, "{}", line.len());
    }

    /// Two kinds of clients, near and far, and a hundredth very far: no point of either lies on the way between.
    #[test]
    fn a_jump_is_a_jump() {
        let near = (0..600).map(|step| 5_000_000 + step * 100);
        let far = (0..390).map(|step| 100_000_000 + step * 1000);
        let curve = points(&histogram(near.chain(far).chain([2_000_000_000; 10])));
        for (quantile, wanted) in [(0.599, 5_060_000.0), (0.601, 100_000_000.0), (0.989, 100_390_000.0), (0.991, 2e9)] {
            let got = at(&curve, quantile);
            assert!((got / wanted - 1.0).abs() < 0.006, "{quantile}: {got}");
        }
    }

    #[test]
    fn the_range_of_a_quantile_follows_the_number_of_clients() {
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
        /// Whatever was seen: rising, not falling, few enough, the extremes exact, every value met (with as few values
        /// as here the tolerance need not widen).
        #[test]
        fn every_value_is_on_the_curve(
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
                let got = at(&curve, (rank as f64 + 0.5) / sorted.len() as f64);
                prop_assert!((got - value as f64).abs() <= value as f64 * 0.006 + 1.0, "{} for {}", got, value);
            }
        }
    }
}
