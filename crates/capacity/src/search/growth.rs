//! Whether requests pile up in a trial of seconds.
//!
//! The number in flight changes by offered less carried: its growth is the rate by which the load is too high, in the load's own unit. It
//! also changes by chance, as the length of any queue does, and near saturation that is a random walk, whose levels are not independent: a
//! line through them would find a slope in noise. So the chance is taken from the steps between spans.

use std::time::Duration;

/// Growth of the number in flight over a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// From the first fifth of the trial to the last, a second.
    pub per_s: f64,
    /// What it may be: a share of the width that is sought, or what chance makes of it.
    pub bound_per_s: f64,
    /// Of the bound, the part that is chance, a second: a smaller overload could not have been seen.
    pub chance_per_s: f64,
}

impl Growth {
    /// Whether requests piled up.
    pub fn grows(&self) -> bool {
        self.per_s > self.bound_per_s
    }
}

/// Of the width, the part by which a load may be too high without counting as too high: under half, so that the two sides of a bracket
/// do not both count as good (ours).
pub const TOLERATED: f64 = 0.4;
/// What growth is by chance is less than so many standard deviations (ours): about one in a thousand is more.
const DEVIATIONS: f64 = 3.0;
/// Means of the first and the last part of a trial are compared, each so long.
const PARTS: usize = 5;
/// Fewer spans have no parts to compare.
const SPANS_MIN: usize = 5;

/// Growth of a trial at `rate` a second, sought to `width`, from the mean levels of its spans of `each`. Under five spans nothing grows.
pub fn growth(levels: &[f64], each: Duration, rate: f64, width: f64) -> Growth {
    if levels.len() < SPANS_MIN {
        return Growth::default();
    }
    let part = levels.len() / PARTS;
    let mean = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    let grown = mean(&levels[levels.len() - part..]) - mean(&levels[..part]);
    let each_s = each.as_secs_f64();
    // The middles of the two parts lie so far apart.
    let apart_s = (levels.len() - part) as f64 * each_s;
    let steps: Vec<f64> = levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let step = mean(&steps);
    let squares: f64 = steps.iter().map(|each| (each - step).powi(2)).sum();
    let variance_per_s = squares / (steps.len() - 1) as f64 / each_s;
    let chance_per_s = DEVIATIONS * (variance_per_s / apart_s).sqrt();
    Growth { per_s: grown / apart_s, bound_per_s: (TOLERATED * width * rate).max(chance_per_s), chance_per_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Duration = Duration::from_millis(100);

    #[test]
    fn an_overload_is_its_own_growth() {
        // 10 a second too many for 10 s.
        let levels: Vec<f64> = (0..100).map(|span| 4.0 + f64::from(span)).collect();
        let found = growth(&levels, EACH, 1000.0, 0.02);
        assert!((found.per_s - 10.0).abs() < 1e-9 && found.chance_per_s < 1e-6, "{found:?}");
        // A boundary pair: 0.4 of the width of 2 % of 1000/s is 8/s; of 3 %, 12/s.
        assert!(found.grows());
        assert!(!growth(&levels, EACH, 1000.0, 0.03).grows());
    }

    #[test]
    fn scatter_and_a_fall_are_no_growth() {
        let scatter: Vec<f64> = (0..100).map(|span| f64::from(span * 7 % 11)).collect();
        assert!(!growth(&scatter, EACH, 10.0, 0.02).grows());
        let falling: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert!(!growth(&falling, EACH, 10.0, 0.02).grows());
        assert!(!growth(&[1.0, 100.0, 1000.0, 1e4], EACH, 10.0, 0.02).grows());
    }
}
