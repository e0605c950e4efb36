//! Linear regression of costs that differ by orders of magnitude: a fixed cost and a cost per unit.
//!
//! The cost of sending n bytes is a + b n. From a hundred bytes to a megabyte the errors grow with the cost. With equal
//! weights the largest point would determine b, and a would be unknown. So this regression minimises relative errors:
//! the weight of a point is one over the squared median cost of the points with the same number of units.

use crate::interval::Interval;
use crate::student::t_quantile;

/// A cost as the sum of a fixed cost and a cost per unit, fitted by least squares of relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Fixed cost: the cost of 0 units.
    pub fixed: f64,
    /// Cost per unit.
    pub per_unit: f64,
    /// Number of points.
    pub points: usize,
    /// Variance of the fixed cost, variance of the cost per unit, and their covariance.
    variances: [f64; 3],
}

impl CostModel {
    /// Confidence interval of the fixed cost, `confidence` above 0 and below 1.
    pub fn fixed_interval(&self, confidence: f64) -> Interval {
        self.interval(self.fixed, self.variances[0], confidence)
    }

    /// Confidence interval of the cost per unit.
    pub fn per_unit_interval(&self, confidence: f64) -> Interval {
        self.interval(self.per_unit, self.variances[1], confidence)
    }

    /// The cost of `units`, with the confidence interval of its mean. The interval does not include the uncertainty of
    /// an extrapolation beyond the points.
    pub fn at(&self, units: f64, confidence: f64) -> Interval {
        let [fixed, per_unit, covariance] = self.variances;
        let variance = fixed + 2.0 * units * covariance + units * units * per_unit;
        self.interval(self.fixed + self.per_unit * units, variance.max(0.0), confidence)
    }

    fn interval(&self, mean: f64, variance: f64, confidence: f64) -> Interval {
        let standard_error = variance.sqrt();
        let half_width = standard_error * t_quantile((1.0 + confidence) / 2.0, self.points as f64 - 2.0);
        Interval { mean, standard_error, half_width, confidence }
    }
}

/// Fits a cost model to `(units, cost)` points. `None` with fewer than three points, if all have the same number of
/// units, or if a cost is not above 0.
///
/// Bias: negligible, if the points lie on a line apart from independent errors in proportion to the cost. Weights from
/// measured instead of expected costs make the result lower by about the square of the relative error of the medians.
/// The medians prevent a single low outlier from dominating.
pub fn cost_model(points: &[(f64, f64)]) -> Option<CostModel> {
    if points.len() < 3 || points.iter().any(|&(x, y)| !x.is_finite() || !y.is_finite() || y <= 0.0) {
        return None;
    }
    let scales: Vec<f64> = points.iter().map(|&(x, _)| scale(points, x)).collect();
    let weighed = || points.iter().zip(&scales).map(|(&(x, y), scale)| (x, y, 1.0 / (scale * scale)));
    let sum = |of: fn(f64) -> f64| weighed().map(|(x, _, weight)| of(x) * weight).sum::<f64>();
    let (ones, xs, squares) = (sum(|_| 1.0), sum(|x| x), sum(|x| x * x));
    let determinant = ones * squares - xs * xs;
    // With equal xs the determinant is zero apart from rounding.
    if determinant <= ones * squares * 1e-12 {
        return None;
    }
    let (ys, xys) = weighed().fold((0.0, 0.0), |(ys, xys), (x, y, weight)| (ys + y * weight, xys + x * y * weight));
    let fixed = (squares * ys - xs * xys) / determinant;
    let per_unit = (ones * xys - xs * ys) / determinant;
    let residuals: f64 = weighed().map(|(x, y, weight)| (y - fixed - per_unit * x).powi(2) * weight).sum();
    let variance = residuals / (points.len() as f64 - 2.0);
    let of = |element: f64| variance * element / determinant;
    Some(CostModel { fixed, per_unit, points: points.len(), variances: [of(squares), of(ones), of(-xs)] })
}

/// The median cost of the points with `units` units, with a tolerance of 0.1 %.
fn scale(points: &[(f64, f64)], units: f64) -> f64 {
    let near = |x: f64| (x - units).abs() <= 1e-3 * units.abs();
    let mut costs: Vec<f64> = points.iter().filter(|(x, _)| near(*x)).map(|(_, y)| *y).collect();
    costs.sort_by(f64::total_cmp);
    let middle = costs.len() / 2;
    if costs.len().is_multiple_of(2) { (costs[middle - 1] + costs[middle]) / 2.0 } else { costs[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn regression_of_an_exact_line_is_exact() {
        let points = [0.0, 1e3, 1e5, 1e6].map(|n| (n, 2e-6 + n * 1e-10));
        let model = cost_model(&points).unwrap();
        assert!((model.fixed / 2e-6 - 1.0).abs() < 1e-9 && (model.per_unit / 1e-10 - 1.0).abs() < 1e-9, "{model:?}");
        assert!(model.at(1e4, 0.95).half_width < 1e-12 && (model.at(1e4, 0.95).mean / 3e-6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(cost_model(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(cost_model(&[(1.0, 1.0); 5]), None);
        assert_eq!(cost_model(&[(1.0, 1.0), (2.0, 0.0), (3.0, 3.0)]), None);
        assert!(cost_model(&[(1.0, 1.0), (2.0, 0.1), (3.0, 3.0)]).is_some());
    }

    #[test]
    fn relative_regression_resists_a_low_outlier() {
        let points: Vec<(f64, f64)> = [0.0, 1e4, 1e5]
            .into_iter()
            .flat_map(|n| [1.0, 1.01, 0.99].map(|factor| (n, (2e-6 + n * 1e-10) * factor)))
            .collect();
        let mut with_outlier = points.clone();
        with_outlier[0].1 = 1e-9;
        let (whole, with_outlier) = (cost_model(&points).unwrap(), cost_model(&with_outlier).unwrap());
        assert!(
            with_outlier.fixed > whole.fixed * 0.6 && with_outlier.fixed_interval(0.95).contains(whole.fixed),
            "{with_outlier:?}"
        );
    }

    /// With errors of 3 % over four orders of magnitude, the intervals have their nominal coverage at both ends and
    /// between.
    #[test]
    fn intervals_have_their_nominal_coverage() {
        let (fixed, per_unit) = (3e-6, 2e-10);
        let mut rng = Rng::new(11, 0);
        let mut covered = [0; 3];
        for _ in 0..2000 {
            let points: Vec<(f64, f64)> = [100.0, 4e3, 4e3, 2e4, 1e5, 1e6]
                .into_iter()
                .map(|n| {
                    // The sum of twelve uniform values is approximately normal.
                    let error = (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0;
                    (n, (fixed + per_unit * n) * (1.0 + 0.03 * error))
                })
                .collect();
            let model = cost_model(&points).unwrap();
            let hits = [
                model.fixed_interval(0.95).contains(fixed),
                model.per_unit_interval(0.95).contains(per_unit),
                model.at(1e4, 0.95).contains(fixed + per_unit * 1e4),
            ];
            hits.iter().zip(&mut covered).for_each(|(hit, count)| *count += usize::from(*hit));
        }
        // 1900 of 2000 are expected, with a standard deviation of ten.
        assert!(covered.iter().all(|count| (1840..=1960).contains(count)), "{covered:?}");
    }
}
