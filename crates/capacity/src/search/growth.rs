//! Whether the number of requests in flight grows during a trial.
//!
//! The number in flight changes by offered less achieved rate: its growth is the excess load, in the load's own unit.
//! It also changes at random; near saturation it is a random walk with correlated values, so a line through them would
//! find a slope in noise. Therefore the random part is estimated from the differences between spans.

use std::time::Duration;

/// Growth of the number in flight over a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Per second, from the first fifth of the trial to the last.
    pub per_s: f64,
    /// Limit of the growth: a share of the width, or the random part if that is larger.
    pub bound_per_s: f64,
    /// Random part of the limit, per second: a smaller overload is not detectable.
    pub chance_per_s: f64,
}

impl Growth {
    /// Whether the number in flight grew beyond the limit.
    pub fn grows(&self) -> bool {
        self.per_s > self.bound_per_s
    }
}

/// Share of the width by which a load may be too high: under half, so that both sides of a bracket cannot count as good
/// (chosen here).
pub const TOLERATED_SHARE_OF_WIDTH: f64 = 0.4;
/// Standard deviations of the random part (chosen here): about one trial in a thousand exceeds it.
const STANDARD_DEVIATIONS: f64 = 3.0;
/// Share of a trial whose mean is taken at its beginning and at its end.
const PARTS: usize = 5;
/// Fewest spans for this comparison.
const SPANS_MIN: usize = 5;

/// Growth of a trial at `rate` per second in a search of width `width`, from mean numbers in flight of spans of length
/// `each`. With fewer than five spans there is no growth.
pub fn growth(levels: &[f64], each: Duration, rate: f64, width: f64) -> Growth {
    if levels.len() < SPANS_MIN {
        return Growth::default();
    }
    let part = levels.len() / PARTS;
    let mean = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    let grown = mean(&levels[levels.len() - part..]) - mean(&levels[..part]);
    let each_s = each.as_secs_f64();
    // Time between the middles of the two parts.
    let apart_s = (levels.len() - part) as f64 * each_s;
    let steps: Vec<f64> = levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let step = mean(&steps);
    let squares: f64 = steps.iter().map(|each| (each - step).powi(2)).sum();
    let variance_per_s = squares / (steps.len() - 1) as f64 / each_s;
    let chance_per_s = STANDARD_DEVIATIONS * (variance_per_s / apart_s).sqrt();
    Growth {
        per_s: grown / apart_s,
        bound_per_s: (TOLERATED_SHARE_OF_WIDTH * width * rate).max(chance_per_s),
        chance_per_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Duration = Duration::from_millis(100);

    #[test]
    fn overload_makes_the_number_in_flight_grow() {
        // 10 requests per second too many for 10 s.
        let levels: Vec<f64> = (0..100).map(|span| 4.0 + f64::from(span)).collect();
        let found = growth(&levels, EACH, 1000.0, 0.02);
        assert!((found.per_s - 10.0).abs() < 1e-9 && found.chance_per_s < 1e-6, "{found:?}");
        // Boundary values: 0.4 of the width of 2 % of 1000/s is 8/s; of 3 %, 12/s.
        assert!(found.grows());
        assert!(!growth(&levels, EACH, 1000.0, 0.03).grows());
    }

    #[test]
    fn random_variation_and_a_fall_are_no_growth() {
        let scatter: Vec<f64> = (0..100).map(|span| f64::from(span * 7 % 11)).collect();
        assert!(!growth(&scatter, EACH, 10.0, 0.02).grows());
        let falling: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert!(!growth(&falling, EACH, 10.0, 0.02).grows());
        assert!(!growth(&[1.0, 100.0, 1000.0, 1e4], EACH, 10.0, 0.02).grows());
    }
}
