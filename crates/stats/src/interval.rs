//! Confidence intervals: Student's t for independent values, batch means for correlated series.

use crate::student::t_quantile;

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Estimated mean.
    pub mean: f64,
    /// Standard error of the mean.
    pub standard_error: f64,
    /// Half the width of the interval, which is `mean` plus or minus this.
    pub half_width: f64,
    /// Confidence of the interval, above 0 and below 1.
    pub confidence: f64,
}

impl Interval {
    /// Lower end.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }

    /// Upper end.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }

    /// Whether the interval contains `value`, ends included.
    pub fn contains(&self, value: f64) -> bool {
        (self.low()..=self.high()).contains(&value)
    }
}

/// Mean and Student-t interval of *independent* values, such as one statistic of each of several runs. `None` with
/// fewer than two values or a confidence outside (0, 1).
///
/// Bias: none in the mean. The interval is exact for normal values. For few skewed values, such as latencies, it covers
/// less often than its confidence. Successive values of one run are not independent: see [`batch_means`]. Source:
/// Student (1908).
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < 2 || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let standard_error = (variance / count).sqrt();
    let half_width = standard_error * t_quantile((1.0 + confidence) / 2.0, count - 1.0);
    Some(Interval { mean, standard_error, half_width, confidence })
}

/// Confidence interval of the mean of a correlated series in its steady state. The series is divided into [`BATCHES`]
/// batches of equal length, whose means are taken as independent. `None` with fewer than two values per batch.
///
/// The first values that do not fill a batch are ignored. Bias: none in the mean of a steady series. The standard error
/// is too small while a batch is shorter than the correlation time of the series; a batch should span at least ten
/// times the longest response time. Source: B. Schmeiser, "Batch size effects in the analysis of simulation output"
/// (1982): 10 to 30 batches for any length.
pub fn batch_means(values: &[f64], confidence: f64) -> Option<Interval> {
    let length = values.len() / BATCHES;
    if length < 2 {
        return None;
    }
    let batched = &values[values.len() - length * BATCHES..];
    let means: Vec<f64> = batched.chunks_exact(length).map(|batch| batch.iter().sum::<f64>() / length as f64).collect();
    mean_interval(&means, confidence)
}

/// Number of batches of [`batch_means`].
pub const BATCHES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn student_interval_matches_a_textbook_example() {
        // The values 1 to 5 have mean 3 and s = sqrt(2.5); t(0.975, 4) = 2.776.
        let interval = mean_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!(interval.mean, 3.0);
        assert!((interval.half_width - 2.776_445 * 0.5f64.sqrt()).abs() < 1e-5);
        assert!(interval.contains(3.0) && !interval.contains(5.0));
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(mean_interval(&[1.0], 0.95), None);
        assert_eq!(mean_interval(&[1.0, 2.0], 1.0), None);
        assert_eq!(mean_interval(&[1.0, 2.0], f64::NAN), None);
        assert_eq!(batch_means(&[1.0; 2 * BATCHES - 1], 0.95), None);
        assert_eq!(batch_means(&[1.0; 2 * BATCHES], 0.95).unwrap().half_width, 0.0);
    }

    /// Counts how many of 400 intervals cover 0. At 95 %, 380 are expected; the binomial standard deviation is 4.4.
    fn covered(mut interval: impl FnMut(&mut Rng) -> Interval) -> usize {
        (0..400).filter(|&stream| interval(&mut Rng::new(11, stream)).contains(0.0)).count()
    }

    fn nearly_normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn intervals_have_their_nominal_coverage() {
        let hits = covered(|rng| {
            let values: Vec<f64> = (0..8).map(|_| nearly_normal(rng)).collect();
            mean_interval(&values, 0.95).unwrap()
        });
        assert!((362..=398).contains(&hits), "{hits}");
    }

    #[test]
    fn batch_means_cover_under_correlation_where_the_plain_interval_fails() {
        // Each value is 0.9 of the previous one plus noise: the correlation time is about ten values.
        let series = |rng: &mut Rng| {
            let mut value = 0.0;
            (0..4000)
                .map(|_| {
                    value = 0.9 * value + nearly_normal(rng);
                    value
                })
                .collect::<Vec<f64>>()
        };
        let batched = covered(|rng| batch_means(&series(rng), 0.95).unwrap());
        let plain = covered(|rng| mean_interval(&series(rng), 0.95).unwrap());
        assert!((355..=398).contains(&batched), "{batched}");
        assert!(plain < 250, "{plain}");
    }
}
