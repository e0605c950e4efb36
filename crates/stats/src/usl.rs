//! Fits the universal scalability law: the rate as a function of the concurrency, and its peak.

use crate::rng::Rng;

/// The universal scalability law: X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// Rate per second at concurrency 1.
    pub gamma: f64,
    /// Contention: the share of the work that is serialised; 0 or more.
    pub alpha: f64,
    /// Coherence: the cost of each pair; 0 or more. Above 0 the rate has a peak.
    pub beta: f64,
    /// Share of the variance of the rates that the law explains; at most 1.
    pub r2: f64,
}

/// A fitted law with the confidence intervals of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UslFit {
    /// The fitted law.
    pub law: Usl,
    /// Interval of gamma.
    pub gamma: [f64; 2],
    /// Interval of alpha.
    pub alpha: [f64; 2],
    /// Interval of beta.
    pub beta: [f64; 2],
}

/// Minimum number of different concurrencies for a fit.
pub const POINTS_MIN: usize = 6;
/// Number of bootstrap resamples for the intervals.
const ROUNDS: usize = 1000;

impl Usl {
    /// The rate at concurrency `number`.
    pub fn rate(&self, number: f64) -> f64 {
        self.gamma * number / (1.0 + self.alpha * (number - 1.0) + self.beta * number * (number - 1.0))
    }

    /// The concurrency with the highest rate, if the law has a peak: sqrt((1 - alpha) / beta), at least 1. A peak
    /// beyond twice the largest measured concurrency is not reliable.
    pub fn peak(&self) -> Option<f64> {
        (self.beta > 0.0).then(|| ((1.0 - self.alpha).max(0.0) / self.beta).sqrt().max(1.0))
    }
}

/// Fits the law to `(concurrency, rate)` points by least squares of the rates, with 95 % confidence intervals by
/// resampling the residuals 1,000 times. `None` with fewer than [`POINTS_MIN`] different concurrencies, a concurrency
/// below 1, or a rate that is not above 0.
///
/// Bias: the law is descriptive; a server may not follow it, which systematic residuals show. The intervals assume
/// equal variances at all concurrencies. The interval of a parameter at its bound of 0 begins at 0. Sources: N. J.
/// Gunther, Guerrilla Capacity Planning (2007); K. Levenberg (1944), D. W. Marquardt (1963).
pub fn usl(points: &[(f64, f64)], rng: &mut Rng) -> Option<UslFit> {
    let usable = |&(number, rate): &(f64, f64)| number >= 1.0 && number.is_finite() && rate > 0.0 && rate.is_finite();
    let mut numbers: Vec<f64> = points.iter().map(|&(number, _)| number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    if numbers.len() < POINTS_MIN || !points.iter().all(usable) {
        return None;
    }
    let law = fit(points);
    let residuals: Vec<f64> = points.iter().map(|&(number, rate)| rate - law.rate(number)).collect();
    // The residuals are too small because three parameters were fitted; the factor corrects this.
    let correction = (points.len() as f64 / (points.len() as f64 - 3.0)).sqrt();
    let mean = residuals.iter().sum::<f64>() / residuals.len() as f64;
    let mut drawn: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            let again: Vec<(f64, f64)> = points
                .iter()
                .map(|&(number, _)| {
                    let residual = residuals[rng.below(residuals.len() as u64) as usize] - mean;
                    (number, (law.rate(number) + residual * correction).max(f64::MIN_POSITIVE))
                })
                .collect();
            let Usl { gamma, alpha, beta, .. } = fit(&again);
            [gamma, alpha, beta]
        })
        .collect();
    let mut interval = |index: usize| {
        drawn.sort_by(|a, b| a[index].total_cmp(&b[index]));
        [drawn[ROUNDS / 40][index], drawn[ROUNDS - 1 - ROUNDS / 40][index]]
    };
    Some(UslFit { law, gamma: interval(0), alpha: interval(1), beta: interval(2) })
}

/// The best fit with alpha and beta of 0 or more. Each of them is fitted or fixed at 0; fits with negative values are
/// rejected.
fn fit(points: &[(f64, f64)]) -> Usl {
    let mean = points.iter().map(|&(_, rate)| rate).sum::<f64>() / points.len() as f64;
    let scatter: f64 = points.iter().map(|&(_, rate)| (rate - mean).powi(2)).sum();
    let tried = [[true, true], [true, false], [false, true], [false, false]].map(|free| descend(points, free));
    let valid = tried.into_iter().filter(|(law, _)| law[0] > 0.0 && law[1] >= 0.0 && law[2] >= 0.0);
    let ([gamma, alpha, beta], squares) = valid
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or(([points.iter().map(|&(n, x)| x / n).fold(0.0, f64::max), 0.0, 0.0], scatter));
    Usl { gamma, alpha, beta, r2: if scatter > 0.0 { 1.0 - squares / scatter } else { 1.0 } }
}

/// Levenberg-Marquardt fit with alpha and beta free or fixed at 0. Returns the parameters and the sum of squared
/// residuals.
fn descend(points: &[(f64, f64)], [alpha_free, beta_free]: [bool; 2]) -> ([f64; 3], f64) {
    let free: Vec<usize> = [Some(0), alpha_free.then_some(1), beta_free.then_some(2)].into_iter().flatten().collect();
    let mut law = begin(points, &free);
    let mut squares = squares_of(points, law);
    let mut damping = 1e-3;
    for _ in 0..200 {
        let mut normal = [[0.0; 4]; 3];
        for &(n, x) in points {
            let below = 1.0 + law[1] * (n - 1.0) + law[2] * n * (n - 1.0);
            let rate = law[0] * n / below;
            let slopes = [n / below, -rate * (n - 1.0) / below, -rate * n * (n - 1.0) / below];
            for (row, &a) in free.iter().enumerate() {
                for (column, &b) in free.iter().enumerate() {
                    normal[row][column] += slopes[a] * slopes[b];
                }
                normal[row][3] += slopes[a] * (x - rate);
            }
        }
        for (row, line) in normal.iter_mut().enumerate().take(free.len()) {
            line[row] *= 1.0 + damping;
        }
        let Some(step) = solve(normal, free.len()) else { break };
        let mut next = law;
        free.iter().zip(step).for_each(|(&index, by)| next[index] += by);
        let left = squares_of(points, next);
        if left < squares {
            let done = squares - left <= 1e-14 * squares;
            (law, squares, damping) = (next, left, damping * 0.2);
            if done {
                break;
            }
        } else {
            damping *= 5.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    (law, squares)
}

/// The initial parameters, from a linear fit: N / X is linear in 1 / gamma, alpha / gamma and beta / gamma.
fn begin(points: &[(f64, f64)], free: &[usize]) -> [f64; 3] {
    let mut normal = [[0.0; 4]; 3];
    for &(n, x) in points {
        let of = [1.0, n - 1.0, n * (n - 1.0)];
        // Weighted by the rate, so that small rates have the same influence as in the final fit.
        let weight = (x * x / n).powi(2);
        for (row, &a) in free.iter().enumerate() {
            for (column, &b) in free.iter().enumerate() {
                normal[row][column] += weight * of[a] * of[b];
            }
            normal[row][3] += weight * of[a] * n / x;
        }
    }
    let steepest = points.iter().map(|&(n, x)| x / n).fold(0.0, f64::max);
    let mut law = [steepest, 0.0, 0.0];
    if let Some(fitted) = solve(normal, free.len())
        && fitted[0] > 0.0
    {
        law[0] = 1.0 / fitted[0];
        free.iter().zip(fitted).skip(1).for_each(|(&index, of)| law[index] = (of / fitted[0]).max(0.0));
    }
    law
}

fn squares_of(points: &[(f64, f64)], [gamma, alpha, beta]: [f64; 3]) -> f64 {
    let law = Usl { gamma, alpha, beta, r2: 0.0 };
    let left: f64 = points.iter().map(|&(number, rate)| (rate - law.rate(number)).powi(2)).sum();
    // Parameters with negative rates are invalid.
    let is_valid = points.iter().all(|&(number, _)| law.rate(number) > 0.0);
    if is_valid && left.is_finite() { left } else { f64::INFINITY }
}

/// Gaussian elimination of up to three equations, each with its right side last.
fn solve(mut lines: [[f64; 4]; 3], count: usize) -> Option<[f64; 3]> {
    for at in 0..count {
        let pivot = (at..count).max_by(|&a, &b| lines[a][at].abs().total_cmp(&lines[b][at].abs()))?;
        lines.swap(at, pivot);
        if !lines[at][at].is_normal() {
            return None;
        }
        for below in at + 1..count {
            let times = lines[below][at] / lines[at][at];
            let above = lines[at];
            lines[below].iter_mut().zip(above).for_each(|(cell, above)| *cell -= times * above);
        }
    }
    let mut fitted = [0.0; 3];
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count).map(|column| lines[at][column] * fitted[column]).sum();
        fitted[at] = (lines[at][3] - known) / lines[at][at];
    }
    Some(fitted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rng;

    const NUMBERS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0];

    fn points(law: Usl, scatter: f64, rng: &mut Rng) -> Vec<(f64, f64)> {
        let mut noise = || (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0;
        NUMBERS.map(|number| (number, law.rate(number) + scatter * noise())).to_vec()
    }

    proptest! {
        #[test]
        fn usl_fit_recovers_its_parameters(gamma in 0.01_f64..1e5, alpha in 0.0_f64..0.5, beta in 0.0_f64..0.01) {
            let law = Usl { gamma, alpha, beta, r2: 1.0 };
            let fitted = fit(&points(law, 0.0, &mut Rng::new(1, 1)));
            prop_assert!((fitted.gamma / gamma - 1.0).abs() < 1e-4, "{fitted:?}");
            prop_assert!((fitted.alpha - alpha).abs() < 1e-4 && (fitted.beta - beta).abs() < 1e-5, "{fitted:?}");
            prop_assert!(fitted.r2 > 1.0 - 1e-6);
        }
    }

    /// Of 60 intervals at 95 %, 57 are expected to cover; resampling the residuals of nine points covers a little less.
    #[test]
    fn usl_intervals_have_their_coverage() {
        let law = Usl { gamma: 1000.0, alpha: 0.05, beta: 0.001, r2: 1.0 };
        let mut covered = [0; 3];
        for stream in 0..60 {
            let mut rng = Rng::new(41, stream);
            let fitted = usl(&points(law, 150.0, &mut rng), &mut rng).unwrap();
            let parts = [(fitted.gamma, law.gamma), (fitted.alpha, law.alpha), (fitted.beta, law.beta)];
            for (hits, (interval, truth)) in covered.iter_mut().zip(parts) {
                *hits += usize::from((interval[0]..=interval[1]).contains(&truth));
            }
        }
        assert!(covered.iter().all(|hits| (48..=60).contains(hits)), "{covered:?}");
    }

    #[test]
    fn usl_peak_and_bounds_are_computed() {
        let law = Usl { gamma: 10.0, alpha: 0.19, beta: 0.0001, r2: 1.0 };
        assert!((law.peak().unwrap() - 90.0).abs() < 1e-9);
        assert_eq!(Usl { beta: 0.0, ..law }.peak(), None);
        // For superlinear rates, which the law cannot describe, the parameters are at their bounds.
        let steep: Vec<(f64, f64)> = NUMBERS.iter().map(|&number| (number, 10.0 * number.powf(1.2))).collect();
        let fitted = usl(&steep, &mut Rng::new(1, 1)).unwrap();
        assert_eq!((fitted.law.alpha, fitted.law.beta), (0.0, 0.0));
        assert!(fitted.alpha[0] >= 0.0 && fitted.beta[0] >= 0.0);
    }

    #[test]
    fn too_few_values_have_no_result() {
        let mut rng = Rng::new(1, 1);
        let all = points(Usl { gamma: 10.0, alpha: 0.1, beta: 0.0, r2: 1.0 }, 0.0, &mut rng);
        assert!(usl(&all[..5], &mut rng).is_none());
        assert!(usl(&[all[0]; 9], &mut rng).is_none());
        let mut wrong = all.clone();
        wrong[3].1 = f64::NAN;
        assert!(usl(&wrong, &mut rng).is_none());
        assert!(usl(&all, &mut rng).is_some());
    }
}
