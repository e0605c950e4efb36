//! Tests whether a series rises.

use crate::student::t_quantile;

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Rise of y per unit of x.
    pub slope: f64,
    /// Standard error of the slope.
    pub slope_error: f64,
    /// y at the mean of the xs.
    pub level: f64,
    /// Number of points.
    pub points: usize,
}

impl Trend {
    /// Whether the slope is above zero with at least this confidence (one-sided, above 0.5 and below 1).
    pub fn rises(&self, confidence: f64) -> bool {
        self.slope > self.slope_error * t_quantile(confidence, self.points as f64 - 2.0)
    }
}

/// Fits a line to `(x, y)` points. `None` with fewer than three points, or if all xs are equal.
///
/// Bias: none in the slope. The standard error assumes independent residuals. The residuals of a queue length sampled
/// every millisecond are not independent, and the error becomes too small: use means over spans longer than the queue's
/// correlation time. Source: Gauss (1823), as in any textbook of regression.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let x_mean = points.iter().map(|&(x, _)| x).sum::<f64>() / count;
    let level = points.iter().map(|&(_, y)| y).sum::<f64>() / count;
    let x_squares = points.iter().map(|&(x, _)| (x - x_mean).powi(2)).sum::<f64>();
    if x_squares.is_nan() || x_squares <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|&(x, y)| (x - x_mean) * (y - level)).sum::<f64>() / x_squares;
    let residuals = points.iter().map(|&(x, y)| (y - level - slope * (x - x_mean)).powi(2)).sum::<f64>();
    let slope_error = (residuals / (count - 2.0) / x_squares).sqrt();
    Some(Trend { slope, slope_error, level, points: points.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn trend_of_an_exact_line_is_exact() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        let trend = trend(&points).unwrap();
        assert!((trend.slope - 2.0).abs() < 1e-12 && trend.slope_error < 1e-12 && (trend.level - 12.0).abs() < 1e-12);
        assert!(trend.rises(0.99));
    }

    #[test]
    fn trend_matches_a_textbook_example() {
        // (1,2) (2,4) (3,5) (4,4) (5,5): slope 0.6, residual squares 2.4, standard error sqrt(0.8 / 10).
        let trend = trend(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)]).unwrap();
        assert!((trend.slope - 0.6).abs() < 1e-12 && (trend.slope_error - 0.08f64.sqrt()).abs() < 1e-12);
        assert!(trend.rises(0.90) && !trend.rises(0.99));
    }

    #[test]
    fn a_constant_gauge_shows_a_trend_at_the_nominal_error_rate() {
        let rising = (0..1000)
            .filter(|&stream| {
                let mut rng = Rng::new(5, stream);
                let points: Vec<_> = (0..20).map(|x| (f64::from(x), rng.uniform())).collect();
                trend(&points).unwrap().rises(0.95)
            })
            .count();
        // 50 are expected, with a standard deviation of 6.9.
        assert!((20..=80).contains(&rising), "{rising}");
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(trend(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(trend(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(trend(&[(f64::NAN, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
