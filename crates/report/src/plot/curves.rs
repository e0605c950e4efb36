//! Distributions as charts.

use stats::Histogram;

use super::chart::Chart;
use super::{Axis, Quantity, Scale, Series, Shape};

impl Chart {
    /// A cumulative distribution of durations on a logarithmic axis. Add [`Series::distribution`] and
    /// [`Series::shares_of`].
    pub fn cumulative(title: impl Into<String>, label: impl Into<String>) -> Self {
        let share = Axis { to: Some(1.0), ..Axis::from_zero("cumulative share", Quantity::Share) };
        Chart::new(title, Axis::log(label, Quantity::Nanoseconds), share)
    }

    /// A percentile curve with a stretched tail (90 %, 99 %, 99.9 %). Add [`Series::tail`].
    pub fn percentiles(title: impl Into<String>, label: impl Into<String>) -> Self {
        let x = Axis { scale: Scale::Tail, from: Some(0.0), ..Axis::new("percentile", Quantity::Share) };
        Chart::new(title, x, Axis::log(label, Quantity::Nanoseconds))
    }

    /// Counts of `edges.len() - 1` logarithmic bins of durations. Edges rise.
    pub fn histogram(title: impl Into<String>, label: impl Into<String>, edges: &[f64], counts: &[u64]) -> Self {
        let mut points: Vec<[f64; 2]> = edges.iter().zip(counts).map(|(&edge, &count)| [edge, count as f64]).collect();
        if let (Some(&last), Some(&count)) = (edges.last(), counts.last()) {
            points.push([last, count as f64]);
        }
        let series = Series { shape: Shape::Area, ..Series::line("values", points) };
        Chart::new(title, Axis::log(label, Quantity::Nanoseconds), Axis::from_zero("values", Quantity::Count))
            .series(series)
    }
}

impl Series {
    /// The cumulative distribution of a histogram of nanoseconds; values below a microsecond count as one.
    pub fn distribution(name: impl Into<String>, values: &Histogram) -> Self {
        let mut points: Vec<[f64; 2]> = Vec::new();
        if !values.is_empty() {
            // The curve begins on the axis at the smallest value.
            points.push([at_least(values.value_at(0.0) as f64), 0.0]);
            for step in 1..=STEPS {
                let q = step as f64 / STEPS as f64;
                points.push([at_least(values.value_at(q) as f64), q]);
            }
        }
        Series::line(name, points)
    }

    /// The cumulative distribution of single values in nanoseconds, in any order, with a step at each value.
    pub fn shares_of(name: impl Into<String>, values: &[u64]) -> Self {
        let mut values = values.to_vec();
        values.sort_unstable();
        let mut points: Vec<[f64; 2]> = Vec::new();
        for (at, &value) in values.iter().enumerate() {
            let value = at_least(value as f64);
            // Each step has both corners as points, so that straight lines draw it on any axis.
            points.push([value, at as f64 / values.len() as f64]);
            points.push([value, (at + 1) as f64 / values.len() as f64]);
        }
        Series::line(name, points)
    }

    /// The percentile curve of a histogram of nanoseconds. With 1,000 values it ends at 99.9 %, beyond which it would
    /// repeat the largest value.
    pub fn tail(name: impl Into<String>, values: &Histogram) -> Self {
        let mut points = Vec::new();
        if !values.is_empty() {
            let decades = (values.len() as f64).log10().clamp(1.0, 6.0);
            let steps = (decades * STEPS_A_DECADE).round() as u32;
            for step in 0..=steps {
                let q = 1.0 - 10_f64.powf(-decades * f64::from(step) / f64::from(steps));
                points.push([q, at_least(values.value_at(q) as f64)]);
            }
        }
        Series::line(name, points)
    }
}

fn at_least(nanos: f64) -> f64 {
    nanos.max(LEAST_NS)
}

/// Smallest duration on a logarithmic axis, which has no 0; a microsecond is below the precision of measurements.
const LEAST_NS: f64 = 1_000.0;
/// Points of a curve.
const STEPS: u32 = 500;
const STEPS_A_DECADE: f64 = 40.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn cumulative_curve_rises_from_zero_to_one() {
        let series = Series::distribution("measured", &histogram((1..=100).map(|ms| ms * 1_000_000)));
        assert_eq!(series.points[0][1], 0.0);
        assert_eq!(series.points.last().unwrap()[1], 1.0);
        assert!(series.points.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1]));
        let half = series.points.iter().find(|point| point[1] >= 0.5).unwrap();
        assert!((half[0] / 50e6 - 1.0).abs() < 0.01, "{half:?}");
    }

    #[test]
    fn cumulative_curve_of_single_values_has_steps() {
        let series = Series::shares_of("configured", &[48_000_000, 0]);
        assert_eq!(series.points, [[1e3, 0.0], [1e3, 0.5], [48e6, 0.5], [48e6, 1.0]]);
        assert!(Series::shares_of("configured", &[]).is_empty());
    }

    #[test]
    fn percentile_curve_ends_with_the_last_value() {
        let series = Series::tail("response", &histogram((1..=1000).map(|ms| ms * 1_000_000)));
        let [q, value] = *series.points.last().unwrap();
        assert!((q - 0.999).abs() < 1e-9 && (value / 999e6 - 1.0).abs() < 0.002, "{q} {value}");
        assert!(Series::tail("nothing", &Histogram::new()).is_empty());
        assert_eq!(Series::tail("one", &histogram([5_000_000])).points.len(), 41);
    }

    #[test]
    fn histogram_bins_extend_to_the_last_edge() {
        let chart = Chart::histogram("sizes", "time", &[1e3, 2e3, 4e3], &[5, 7]);
        assert_eq!(chart.series[0].points, [[1e3, 5.0], [2e3, 7.0], [4e3, 7.0]]);
    }
}
