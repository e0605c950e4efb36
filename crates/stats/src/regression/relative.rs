//! A line through costs that differ by orders of magnitude: what is fixed of them, and what each unit adds.
//!
//! The cost of sending n bytes is a + b n. Measured from a hundred bytes to a megabyte its errors grow with it, so that a line which
//! weighs all points alike would know b from the largest one and nothing of a. Here each point weighs by how far it is off its share: by the
//! square of one over the median of the points that have as many units.

use crate::interval::Interval;
use crate::student::t_quantile;

/// A cost as a fixed part and a part for each unit, by least squares of relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Cost of nothing.
    pub fixed: f64,
    /// What each unit adds.
    pub per_unit: f64,
    /// Number of points.
    pub points: usize,
    /// Variance of the fixed part, of the part for each unit, and of both together.
    variances: [f64; 3],
}

impl Law {
    /// Interval of the fixed part, `confidence` above 0 and below 1.
    pub fn fixed_interval(&self, confidence: f64) -> Interval {
        self.interval(self.fixed, self.variances[0], confidence)
    }

    /// Interval of what each unit adds.
    pub fn per_unit_interval(&self, confidence: f64) -> Interval {
        self.interval(self.per_unit, self.variances[1], confidence)
    }

    /// The cost of `units`, and where its mean lies. Beyond the points it is an extrapolation, which the interval knows nothing of.
    pub fn at(&self, units: f64, confidence: f64) -> Interval {
        let [fixed, per_unit, both] = self.variances;
        let variance = fixed + 2.0 * units * both + units * units * per_unit;
        self.interval(self.fixed + self.per_unit * units, variance.max(0.0), confidence)
    }

    fn interval(&self, mean: f64, variance: f64, confidence: f64) -> Interval {
        let standard_error = variance.sqrt();
        let half_width = standard_error * t_quantile((1.0 + confidence) / 2.0, self.points as f64 - 2.0);
        Interval { mean, standard_error, half_width, confidence }
    }
}

/// The law through `(units, cost)` points. `None` with fewer than three points, where all have as many units, or where a cost is not above 0.
///
/// Bias: none to speak of, if the points lie about a line with errors that are independent and in proportion to the cost. Weighing by what
/// was measured, instead of by what is expected, makes it lower by about the square of the relative error of the medians; so a single
/// point that is far too low does not have its way.
pub fn law(points: &[(f64, f64)]) -> Option<Law> {
    if points.len() < 3 || points.iter().any(|&(x, y)| !x.is_finite() || !y.is_finite() || y <= 0.0) {
        return None;
    }
    let scales: Vec<f64> = points.iter().map(|&(x, _)| scale(points, x)).collect();
    let weighed = || points.iter().zip(&scales).map(|(&(x, y), scale)| (x, y, 1.0 / (scale * scale)));
    let sum = |of: fn(f64) -> f64| weighed().map(|(x, _, weight)| of(x) * weight).sum::<f64>();
    let (ones, xs, squares) = (sum(|_| 1.0), sum(|x| x), sum(|x| x * x));
    let determinant = ones * squares - xs * xs;
    // All xs alike leave nothing of it but rounding.
    if determinant <= ones * squares * 1e-12 {
        return None;
    }
    let (ys, xys) = weighed().fold((0.0, 0.0), |(ys, xys), (x, y, weight)| (ys + y * weight, xys + x * y * weight));
    let fixed = (squares * ys - xs * xys) / determinant;
    let per_unit = (ones * xys - xs * ys) / determinant;
    let residuals: f64 = weighed().map(|(x, y, weight)| (y - fixed - per_unit * x).powi(2) * weight).sum();
    let variance = residuals / (points.len() as f64 - 2.0);
    let of = |element: f64| variance * element / determinant;
    Some(Law { fixed, per_unit, points: points.len(), variances: [of(squares), of(ones), of(-xs)] })
}

/// The median cost of the points with `units`, give or take a thousandth.
fn scale(points: &[(f64, f64)], units: f64) -> f64 {
    let near = |x: f64| (x - units).abs() <= 1e-3 * units.abs();
    let mut alike: Vec<f64> = points.iter().filter(|(x, _)| near(*x)).map(|(_, y)| *y).collect();
    alike.sort_by(f64::total_cmp);
    let middle = alike.len() / 2;
    if alike.len().is_multiple_of(2) { (alike[middle - 1] + alike[middle]) / 2.0 } else { alike[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn regression_of_an_exact_line_is_exact() {
        let points = [0.0, 1e3, 1e5, 1e6].map(|n| (n, 2e-6 + n * 1e-10));
        let law = law(&points).unwrap();
        assert!((law.fixed / 2e-6 - 1.0).abs() < 1e-9 && (law.per_unit / 1e-10 - 1.0).abs() < 1e-9, "{law:?}");
        assert!(law.at(1e4, 0.95).half_width < 1e-12 && (law.at(1e4, 0.95).mean / 3e-6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(law(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(law(&[(1.0, 1.0); 5]), None);
        assert_eq!(law(&[(1.0, 1.0), (2.0, 0.0), (3.0, 3.0)]), None);
        assert!(law(&[(1.0, 1.0), (2.0, 0.1), (3.0, 3.0)]).is_some());
    }

    #[test]
    fn relative_regression_resists_a_low_outlier() {
        let points: Vec<(f64, f64)> = [0.0, 1e4, 1e5]
            .into_iter()
            .flat_map(|n| [1.0, 1.01, 0.99].map(|off| (n, (2e-6 + n * 1e-10) * off)))
            .collect();
        let mut spoilt = points.clone();
        spoilt[0].1 = 1e-9;
        let (whole, spoilt) = (law(&points).unwrap(), law(&spoilt).unwrap());
        assert!(spoilt.fixed > whole.fixed * 0.6 && spoilt.fixed_interval(0.95).contains(whole.fixed), "{spoilt:?}");
    }

    /// Errors of 3 % of each cost, over three orders of magnitude: the intervals cover as often as they say, at both ends and between.
    #[test]
    fn intervals_have_their_nominal_coverage() {
        let (fixed, per_unit) = (3e-6, 2e-10);
        let mut rng = Rng::new(11, 0);
        let mut covered = [0; 3];
        for _ in 0..2000 {
            let points: Vec<(f64, f64)> = [100.0, 4e3, 4e3, 2e4, 1e5, 1e6]
                .into_iter()
                .map(|n| {
                    // The sum of twelve is nearly normal.
                    let error = (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0;
                    (n, (fixed + per_unit * n) * (1.0 + 0.03 * error))
                })
                .collect();
            let law = law(&points).unwrap();
            let held = [
                law.fixed_interval(0.95).contains(fixed),
                law.per_unit_interval(0.95).contains(per_unit),
                law.at(1e4, 0.95).contains(fixed + per_unit * 1e4),
            ];
            held.iter().zip(&mut covered).for_each(|(held, count)| *count += usize::from(*held));
        }
        // 1900 of 2000 in the mean, with a standard error of ten.
        assert!(covered.iter().all(|count| (1840..=1960).contains(count)), "{covered:?}");
    }
}
