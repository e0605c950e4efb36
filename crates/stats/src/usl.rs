//! The universal scalability law: how a rate grows with the number at work, and where it turns.

use crate::rng::Rng;

/// X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// Rate of one, a second.
    pub gamma: f64,
    /// Contention: the share of the work that only one can do at a time. 0 or more.
    pub alpha: f64,
    /// Coherency: what each pair costs. 0 or more; above 0 there is a peak.
    pub beta: f64,
    /// Share of the scatter of the rates that the law explains, 1 at best.
    pub r2: f64,
}

/// A fit and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UslFit {
    /// The law.
    pub law: Usl,
    /// Interval of gamma.
    pub gamma: [f64; 2],
    /// Interval of alpha.
    pub alpha: [f64; 2],
    /// Interval of beta.
    pub beta: [f64; 2],
}

/// Fewest different numbers that a fit is made of.
pub const POINTS_MIN: usize = 6;
/// How often values are drawn again for the intervals.
const ROUNDS: usize = 1000;

impl Usl {
    /// The rate of so many.
    pub fn rate(&self, number: f64) -> f64 {
        self.gamma * number / (1.0 + self.alpha * (number - 1.0) + self.beta * number * (number - 1.0))
    }

    /// The number at which the rate is highest, if it has a peak: sqrt((1 - alpha) / beta), at least 1. Nothing that
    /// lies beyond twice the largest number measured is to be believed.
    pub fn peak(&self) -> Option<f64> {
        (self.beta > 0.0).then(|| ((1.0 - self.alpha).max(0.0) / self.beta).sqrt().max(1.0))
    }
}

/// The law through `(number at work, rate)`, by least squares of the rates, and 95 % intervals of its parameters by
/// drawing the residuals again (1,000 times). `None` with fewer than [`POINTS_MIN`] different numbers, a number below
/// 1, or a rate that is not above 0.
///
/// Bias: it describes; a server need not follow it, and residuals that have a shape say so. The intervals suppose that
/// rates scatter alike at all numbers. Parameters at their bound of 0 have intervals that begin there. Sources: N. J.
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
    // Three parameters have come nearer to the points than the truth is.
    let wider = (points.len() as f64 / (points.len() as f64 - 3.0)).sqrt();
    let mean = residuals.iter().sum::<f64>() / residuals.len() as f64;
    let mut drawn: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            let again: Vec<(f64, f64)> = points
                .iter()
                .map(|&(number, _)| {
                    let off = residuals[rng.below(residuals.len() as u64) as usize] - mean;
                    (number, (law.rate(number) + off * wider).max(f64::MIN_POSITIVE))
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

/// The best of the fits in which alpha and beta are free or 0, of those that keep them at 0 or more.
fn fit(points: &[(f64, f64)]) -> Usl {
    let mean = points.iter().map(|&(_, rate)| rate).sum::<f64>() / points.len() as f64;
    let scatter: f64 = points.iter().map(|&(_, rate)| (rate - mean).powi(2)).sum();
    let tried = [[true, true], [true, false], [false, true], [false, false]].map(|free| descend(points, free));
    let kept = tried.into_iter().filter(|(law, _)| law[0] > 0.0 && law[1] >= 0.0 && law[2] >= 0.0);
    let ([gamma, alpha, beta], squares) = kept
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or(([points.iter().map(|&(n, x)| x / n).fold(0.0, f64::max), 0.0, 0.0], scatter));
    Usl { gamma, alpha, beta, r2: if scatter > 0.0 { 1.0 - squares / scatter } else { 1.0 } }
}

/// Levenberg and Marquardt's descent, with the relative rate of each parameter free or fixed at 0. The parameters, and
/// the squares that are left.
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

/// Where the descent begins: N / X is linear in 1 / gamma, alpha / gamma and beta / gamma.
fn begin(points: &[(f64, f64)], free: &[usize]) -> [f64; 3] {
    let mut normal = [[0.0; 4]; 3];
    for &(n, x) in points {
        let of = [1.0, n - 1.0, n * (n - 1.0)];
        // By the rate, so that a small one does not count for more than it would in the fit itself.
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
    if let Some(found) = solve(normal, free.len())
        && found[0] > 0.0
    {
        law[0] = 1.0 / found[0];
        free.iter().zip(found).skip(1).for_each(|(&index, of)| law[index] = (of / found[0]).max(0.0));
    }
    law
}

fn squares_of(points: &[(f64, f64)], [gamma, alpha, beta]: [f64; 3]) -> f64 {
    let law = Usl { gamma, alpha, beta, r2: 0.0 };
    let left: f64 = points.iter().map(|&(number, rate)| (rate - law.rate(number)).powi(2)).sum();
    // A law whose rates turn over to below 0 is none.
    let sound = points.iter().all(|&(number, _)| law.rate(number) > 0.0);
    if sound && left.is_finite() { left } else { f64::INFINITY }
}

/// Gauss's elimination of up to three equations, each with its right side last.
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
    let mut found = [0.0; 3];
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count).map(|column| lines[at][column] * found[column]).sum();
        found[at] = (lines[at][3] - known) / lines[at][at];
    }
    Some(found)
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
            let found = fit(&points(law, 0.0, &mut Rng::new(1, 1)));
            prop_assert!((found.gamma / gamma - 1.0).abs() < 1e-4, "{found:?}");
            prop_assert!((found.alpha - alpha).abs() < 1e-4 && (found.beta - beta).abs() < 1e-5, "{found:?}");
            prop_assert!(found.r2 > 1.0 - 1e-6);
        }
    }

    /// Of 60 intervals at 95 %, 57 should cover; drawing residuals of nine points covers a little less.
    #[test]
    fn usl_intervals_have_their_coverage() {
        let law = Usl { gamma: 1000.0, alpha: 0.05, beta: 0.001, r2: 1.0 };
        let mut covered = [0; 3];
        for stream in 0..60 {
            let mut rng = Rng::new(41, stream);
            let found = usl(&points(law, 150.0, &mut rng), &mut rng).unwrap();
            let parts = [(found.gamma, law.gamma), (found.alpha, law.alpha), (found.beta, law.beta)];
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
        // More than linear: what the law cannot say is at its bound, not below it.
        let steep: Vec<(f64, f64)> = NUMBERS.iter().map(|&number| (number, 10.0 * number.powf(1.2))).collect();
        let found = usl(&steep, &mut Rng::new(1, 1)).unwrap();
        assert_eq!((found.law.alpha, found.law.beta), (0.0, 0.0));
        assert!(found.alpha[0] >= 0.0 && found.beta[0] >= 0.0);
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
