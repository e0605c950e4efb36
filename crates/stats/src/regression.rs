//! Linear regression with confidence intervals of slope and intercept.
//!
//! [`trend`](fn@crate::trend) tests whether a series rises. This module estimates costs: for example, the CPU time per
//! request is the slope of utilization over rate.

mod relative;

pub use self::relative::{CostModel, cost_model};
use crate::interval::Interval;
use crate::student::t_quantile;

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Rise of y per unit of x.
    pub slope: f64,
    /// Standard error of the slope.
    pub slope_error: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Standard error of the intercept.
    pub intercept_error: f64,
    /// Number of points.
    pub points: usize,
    /// t statistic of an additional square term: well below -2 the points bend down (the cost per unit decreases),
    /// above 2 they bend up. 0 with fewer than four points or fewer than three different xs.
    pub curvature: f64,
}

impl Line {
    /// Confidence interval of the slope, `confidence` above 0 and below 1.
    pub fn slope_interval(&self, confidence: f64) -> Interval {
        self.interval(self.slope, self.slope_error, confidence)
    }

    /// Confidence interval of the intercept.
    pub fn intercept_interval(&self, confidence: f64) -> Interval {
        self.interval(self.intercept, self.intercept_error, confidence)
    }

    /// The value of the line at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Whether the points deviate from a line by a significant square term, at this confidence.
    pub fn bends(&self, confidence: f64) -> bool {
        self.points > 3 && self.curvature.abs() > t_quantile((1.0 + confidence) / 2.0, self.points as f64 - 3.0)
    }

    fn interval(&self, mean: f64, standard_error: f64, confidence: f64) -> Interval {
        let half_width = standard_error * t_quantile((1.0 + confidence) / 2.0, self.points as f64 - 2.0);
        Interval { mean, standard_error, half_width, confidence }
    }
}

/// Fits a line to `(x, y)` points. `None` with fewer than three points, if all xs are equal, or if a value is not
/// finite.
///
/// Bias: none, if the points lie on a line apart from independent errors in y of equal variance.
/// Source: Gauss (1823), as in any textbook of regression.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < 3 || points.iter().any(|&(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let count = points.len() as f64;
    let x_mean = points.iter().map(|&(x, _)| x).sum::<f64>() / count;
    let y_mean = points.iter().map(|&(_, y)| y).sum::<f64>() / count;
    let x_squares = points.iter().map(|&(x, _)| (x - x_mean).powi(2)).sum::<f64>();
    if x_squares <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|&(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>() / x_squares;
    let intercept = y_mean - slope * x_mean;
    let residual = |&(x, y): &(f64, f64)| y - y_mean - slope * (x - x_mean);
    let residuals = points.iter().map(|point| residual(point).powi(2)).sum::<f64>();
    let variance = residuals / (count - 2.0);
    Some(Line {
        slope,
        slope_error: (variance / x_squares).sqrt(),
        intercept,
        intercept_error: (variance * (1.0 / count + x_mean * x_mean / x_squares)).sqrt(),
        points: points.len(),
        curvature: curvature(points, x_mean, x_squares, residuals, residual),
    })
}

/// t statistic of the square term, from the part of x squared that is orthogonal to the line.
fn curvature(
    points: &[(f64, f64)],
    x_mean: f64,
    x_squares: f64,
    residuals: f64,
    residual: impl Fn(&(f64, f64)) -> f64,
) -> f64 {
    let count = points.len() as f64;
    let cubes = points.iter().map(|&(x, _)| (x - x_mean).powi(3)).sum::<f64>();
    let square = |x: f64| (x - x_mean).powi(2) - x_squares / count - cubes / x_squares * (x - x_mean);
    let squares = points.iter().map(|&(x, _)| square(x).powi(2)).sum::<f64>();
    let along = points.iter().map(|point| square(point.0) * residual(point)).sum::<f64>();
    // With only two different xs, the orthogonal part is zero apart from rounding.
    if points.len() < 4 || squares <= (x_squares / count).powi(2) * 1e-12 {
        return 0.0;
    }
    let left = residuals - along * along / squares;
    let error = (left.max(0.0) / (count - 3.0) / squares).sqrt();
    match (along / squares, error) {
        (coefficient, error) if error > 0.0 => coefficient / error,
        (0.0, _) => 0.0,
        (coefficient, _) => coefficient.signum() * f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn near(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-5, "{a} {b}");
    }

    /// R's data set `cars`: speed in mph, stopping distances in ft (Ezekiel 1930).
    const CARS: [(u32, &[u32]); 19] = [
        (4, &[2, 10]),
        (7, &[4, 22]),
        (8, &[16]),
        (9, &[10]),
        (10, &[18, 26, 34]),
        (11, &[17, 28]),
        (12, &[14, 20, 24, 28]),
        (13, &[26, 34, 34, 46]),
        (14, &[26, 36, 60, 80]),
        (15, &[20, 26, 54]),
        (16, &[32, 40]),
        (17, &[32, 40, 50]),
        (18, &[42, 56, 76, 84]),
        (19, &[36, 46, 68]),
        (20, &[32, 48, 52, 56, 64]),
        (22, &[66]),
        (23, &[54]),
        (24, &[70, 92, 93, 120]),
        (25, &[85]),
    ];

    /// Compares with R: `summary(lm(dist ~ speed, cars))`, and the t of `I(speed^2)` in `lm(dist ~ speed + I(speed^2),
    /// cars)`.
    #[test]
    fn regression_matches_the_r_cars_data() {
        let points: Vec<(f64, f64)> = CARS
            .iter()
            .flat_map(|&(speed, distances)| distances.iter().map(move |&distance| (speed.into(), distance.into())))
            .collect();
        assert_eq!(points.len(), 50);
        let line = line(&points).unwrap();
        near(line.intercept, -17.579_095);
        near(line.intercept_error, 6.758_440);
        near(line.slope, 3.932_409);
        near(line.slope_error, 0.415_513);
        near(line.curvature, 1.515_265);
        assert!(!line.bends(0.95));
        // R's `confint` gives 3.096964 to 4.767853.
        near(line.slope_interval(0.95).low(), 3.096_964);
        near(line.slope_interval(0.95).high(), 4.767_853);
        near(line.intercept_interval(0.95).low(), -31.167_850);
        near(line.at(10.0), 3.932_409 * 10.0 - 17.579_095);
    }

    /// R's data set `women`: heights of 58 to 72 in, mean weights in lb, which are not linear.
    #[test]
    fn regression_matches_the_r_women_data() {
        let weights = [115, 117, 120, 123, 126, 129, 132, 135, 139, 142, 146, 150, 154, 159, 164];
        let points: Vec<(f64, f64)> =
            weights.iter().zip(58..).map(|(&weight, height)| (f64::from(height), f64::from(weight))).collect();
        let line = line(&points).unwrap();
        near(line.slope, 3.45);
        near(line.slope_error, 0.091_136_5);
        near(line.intercept, -87.516_667);
        near(line.intercept_error, 5.936_944);
        near(line.curvature, 13.891_131);
        assert!(line.bends(0.99));
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(line(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(line(&[(f64::NAN, 1.0), (1.0, 2.0), (2.0, 3.0)]), None);
        let exact = line(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        assert_eq!((exact.slope, exact.curvature), (2.0, 0.0));
        // Two different xs have no curvature.
        assert_eq!(line(&[(1.0, 2.0), (1.0, 2.5), (3.0, 6.0), (3.0, 6.1)]).unwrap().curvature, 0.0);
        // A parabola has an infinite t statistic, apart from rounding.
        let bent = line(&[(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 9.0), (4.0, 16.0)]).unwrap();
        assert!(bent.curvature > 1e3 && bent.bends(0.999), "{bent:?}");
    }

    /// Of 1000 intervals at 95 %, 950 are expected to cover; the binomial standard deviation is 6.9.
    #[test]
    fn intervals_have_their_nominal_coverage() {
        let (mut slope, mut intercept, mut straight) = (0, 0, 0);
        for stream in 0..1000 {
            let mut rng = Rng::new(29, stream);
            let mut noise = || (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0;
            let points: Vec<(f64, f64)> =
                (1..=6).map(|x| (f64::from(x), 2.0 + 0.5 * f64::from(x) + 0.3 * noise())).collect();
            let line = line(&points).unwrap();
            slope += usize::from(line.slope_interval(0.95).contains(0.5));
            intercept += usize::from(line.intercept_interval(0.95).contains(2.0));
            straight += usize::from(!line.bends(0.95));
        }
        for hits in [slope, intercept, straight] {
            assert!((925..=975).contains(&hits), "{slope} {intercept} {straight}");
        }
    }
}
