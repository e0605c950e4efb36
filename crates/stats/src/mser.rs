//! Finds the end of a warm-up.

/// The result of [`mser5`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Number of values at the beginning that belong to the warm-up.
    pub cut: usize,
    /// Whether a steady state was reached: at most half of the series is cut.
    pub steady: bool,
}

/// MSER-5: finds the cut of a series that minimises the squared standard error of the mean of the rest, computed from
/// means of five values. For evenly spaced values, such as rates or mean response times per 100 ms. `None` with fewer
/// than 50 values, which are too few.
///
/// Bias: a slow drift through the whole series is cut late or not at all, and an extreme outlier near the end moves the
/// cut after it; both result in `steady: false`. Use the result to choose the cut, not for the interval of the mean.
/// Sources: K. P. White, "An effective truncation heuristic for bias reduction in simulation output" (1997); the limit
/// of one half by Hoad, Robinson and Davies (2008).
pub fn mser5(values: &[f64]) -> Option<Truncation> {
    let means: Vec<f64> = values.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if means.len() < BATCHES_MIN {
        return None;
    }
    // Means are added from the end with Welford's method, which computes squares about the mean without cancellation.
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for (at, &value) in means.iter().enumerate().rev() {
        count += 1.0;
        let before = value - mean;
        mean += before / count;
        squares += before * (value - mean);
        // The last few means are no candidates, as the variance of two or three values may be small by chance. At equal
        // values the shorter cut is chosen.
        let statistic = squares / (count * count);
        if count >= REMAINING_MIN as f64 && statistic <= best.0 {
            best = (statistic, at);
        }
    }
    Some(Truncation { cut: best.1 * BATCH, steady: best.1 * 2 <= means.len() })
}

/// Number of values per mean.
const BATCH: usize = 5;
/// Minimum number of means.
const BATCHES_MIN: usize = 10;
/// Minimum number of means after the cut.
const REMAINING_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn noise(rng: &mut Rng) -> f64 {
        rng.uniform() - 0.5
    }

    #[test]
    fn mser_hardly_truncates_a_steady_series() {
        // The minimum of a noisy statistic is rarely at the beginning: a tenth is cut on average, under half nearly
        // always.
        let cuts: Vec<_> = (0..100)
            .map(|stream| {
                let mut rng = Rng::new(3, stream);
                let values: Vec<f64> = (0..500).map(|_| 10.0 + noise(&mut rng)).collect();
                mser5(&values).unwrap()
            })
            .collect();
        assert!(cuts.iter().filter(|truncation| truncation.steady).count() >= 90);
        assert!(cuts.iter().map(|truncation| truncation.cut).sum::<usize>() / cuts.len() < 100);
    }

    #[test]
    fn mser_truncates_a_transient_at_its_end() {
        let mut rng = Rng::new(3, 1);
        let values: Vec<f64> =
            (0..500).map(|at| if at < 100 { f64::from(100 - at) } else { 0.0 } + noise(&mut rng)).collect();
        let truncation = mser5(&values).unwrap();
        assert!((90..=120).contains(&truncation.cut) && truncation.steady, "{truncation:?}");
    }

    #[test]
    fn mser_reports_no_steady_state_for_late_or_no_settling() {
        let late: Vec<f64> = (0..500).map(|at| if at < 400 { 50.0 } else { (at % 2).into() }).collect();
        assert!(!mser5(&late).unwrap().steady);
        let rising: Vec<f64> = (0..500).map(f64::from).collect();
        assert!(!mser5(&rising).unwrap().steady);
    }

    #[test]
    fn mser_handles_short_and_constant_series() {
        assert_eq!(mser5(&[1.0; 49]), None);
        assert_eq!(mser5(&[1.0; 50]), Some(Truncation { cut: 0, steady: true }));
    }
}
