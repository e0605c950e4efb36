//! Tests whether two quantities differ, and estimates the difference with a confidence interval.
//!
//! [`welch`] is for independent values of both sides (statistics of several runs), [`paired`] for values measured in
//! pairs, [`between`] for any estimates with standard errors. [`holm`] corrects for several tests of the same values.
//! [`crate::bootstrap`] gives standard errors of quantiles, [`crate::abba`] an order of runs that removes the bias by a
//! drift of the machine.

use crate::interval::mean_interval;
use crate::student::{t_beyond, t_quantile};

/// An estimate with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// Standard error, 0 or more.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error, above 0: one less than the number of independent values.
    pub freedom: f64,
}

impl Estimate {
    /// The mean of independent values. `None` with fewer than two.
    pub fn of_mean(values: &[f64]) -> Option<Self> {
        let mean = mean_interval(values, 0.95)?;
        let freedom = values.len() as f64 - 1.0;
        Some(Estimate { value: mean.mean, standard_error: mean.standard_error, freedom })
    }

    /// The logarithm of the estimate, by the delta method: a small relative error is the absolute error of the
    /// logarithm. `None` for a value that is not positive and finite.
    pub fn ln(self) -> Option<Self> {
        (self.value > 0.0 && self.value.is_finite()).then(|| Estimate {
            value: self.value.ln(),
            standard_error: self.standard_error / self.value,
            ..self
        })
    }
}

/// A difference, second minus first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Estimated difference.
    pub mean: f64,
    /// Lower and upper end of the confidence interval.
    pub interval: [f64; 2],
    /// p value: the probability of a difference of at least this size if there is none, 0 to 1.
    pub p: f64,
}

impl Difference {
    /// Whether the difference is significant: 0 is outside of the interval.
    pub fn is_shown(&self) -> bool {
        self.interval[0] > 0.0 || self.interval[1] < 0.0
    }

    /// Half the width of the interval, which is the detectable difference.
    pub fn half_width(&self) -> f64 {
        (self.interval[1] - self.interval[0]) / 2.0
    }

    fn of(mean: f64, standard_error: f64, freedom: f64, confidence: f64) -> Self {
        let half =
            if standard_error == 0.0 { 0.0 } else { standard_error * t_quantile((1.0 + confidence) / 2.0, freedom) };
        let p = match (mean == 0.0, standard_error == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => t_beyond(mean / standard_error, freedom),
        };
        Difference { mean, interval: [mean - half, mean + half], p }
    }
}

/// The difference of two independent estimates, `b` minus `a`. `None` for estimates that are not finite, or a
/// confidence outside (0, 1).
///
/// Bias: none in the difference. The degrees of freedom are an approximation (Welch 1947, Satterthwaite 1946); the
/// coverage of the interval is exact to about one percent.
pub fn between(a: Estimate, b: Estimate, confidence: f64) -> Option<Difference> {
    let usable = |of: &Estimate| of.value.is_finite() && of.standard_error.is_finite() && of.freedom > 0.0;
    if !(confidence > 0.0 && confidence < 1.0 && usable(&a) && usable(&b)) {
        return None;
    }
    let (va, vb) = (a.standard_error.powi(2), b.standard_error.powi(2));
    let parts = va * va / a.freedom + vb * vb / b.freedom;
    // Without any variation the degrees of freedom have no effect.
    let freedom = if parts > 0.0 { (va + vb).powi(2) / parts } else { a.freedom.min(b.freedom) };
    Some(Difference::of(b.value - a.value, (va + vb).sqrt(), freedom, confidence))
}

/// Welch's t test: the difference of the means of two sets of independent values, `b` minus `a`, with possibly
/// different variances. `None` with fewer than two values on a side.
///
/// For normal values exact apart from the degrees of freedom. For few skewed values the interval covers less often than
/// its confidence. Pass logarithms of times and rates: then the difference is a ratio and less skewed.
pub fn welch(a: &[f64], b: &[f64], confidence: f64) -> Option<Difference> {
    between(Estimate::of_mean(a)?, Estimate::of_mean(b)?, confidence)
}

/// Paired t test: the mean difference of values in pairs, `b[i]` minus `a[i]`. Effects that are common to a pair, such
/// as a slow machine, cancel. `None` with fewer than two pairs, or for sides of different lengths.
pub fn paired(a: &[f64], b: &[f64], confidence: f64) -> Option<Difference> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    of_differences(&differences, confidence)
}

/// The mean of independent differences, by Student's t. `None` with fewer than two differences, or if one is not
/// finite.
pub fn of_differences(differences: &[f64], confidence: f64) -> Option<Difference> {
    let mean = mean_interval(differences, confidence).filter(|mean| mean.standard_error.is_finite())?;
    Some(Difference::of(mean.mean, mean.standard_error, differences.len() as f64 - 1.0, confidence))
}

/// Adjusts the p values of several tests by Holm's step-down procedure. If no test has a real difference, the
/// probability that any adjusted p value is below a limit is at most that limit. The order is preserved; NaN stays NaN
/// and is not counted as a test.
///
/// Source: S. Holm, "A simple sequentially rejective multiple test procedure" (1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = p.to_vec();
    let mut largest: f64 = 0.0;
    let order = by_size(p);
    for (at, &index) in order.iter().enumerate() {
        largest = largest.max(p[index] * (order.len() - at) as f64).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// The confidence of each of several intervals such that an interval excludes 0 exactly if Holm's procedure calls its
/// difference significant, with `confidence` for all of them together. The order is preserved; a test whose p value is
/// NaN gets `confidence`.
///
/// The intervals are not exact simultaneous intervals; they agree with Holm's decisions.
pub fn holm_confidences(p: &[f64], confidence: f64) -> Vec<f64> {
    let limit = 1.0 - confidence;
    let mut of = vec![confidence; p.len()];
    let order = by_size(p);
    let mut ended = None;
    for (at, &index) in order.iter().enumerate() {
        let share = ended.unwrap_or(limit / (order.len() - at) as f64);
        // After the first test that is not significant, all later ones have the same level.
        if ended.is_none() && p[index] > share {
            ended = Some(share);
        }
        of[index] = 1.0 - share;
    }
    of
}

fn by_size(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).filter(|&index| !p[index].is_nan()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rng;

    /// Extra hours of sleep with two drugs: Student's data (1908), the data set `sleep` of R.
    const FIRST: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const SECOND: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    fn assert_difference(difference: Option<Difference>, mean: f64, interval: [f64; 2], p: f64) {
        let actual = difference.unwrap();
        let near = |a: f64, b: f64, by: f64| assert!((a - b).abs() < by, "{a} {b}");
        near(actual.mean, mean, 1e-12);
        near(actual.interval[0], interval[0], 1e-6);
        near(actual.interval[1], interval[1], 1e-6);
        near(actual.p, p, 5e-6);
    }

    /// `t.test(extra ~ group, data = sleep)`, unpaired and paired, as in R's help page, with the sign of second minus
    /// first.
    #[test]
    fn student_t_test_matches_students_published_values() {
        assert_difference(welch(&FIRST, &SECOND, 0.95), 1.58, [-0.205_483_2, 3.365_483_2], 0.079_39);
        assert_difference(paired(&FIRST, &SECOND, 0.95), 1.58, [0.700_114_2, 2.459_885_8], 0.002_833);
        assert!(!welch(&FIRST, &SECOND, 0.95).unwrap().is_shown() && paired(&FIRST, &SECOND, 0.95).unwrap().is_shown());
    }

    /// `p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")` by hand: factors 5, 4, 3 .., and never decreasing.
    #[test]
    fn holm_correction_matches_hand_computation() {
        let adjusted = holm(&[0.03, 0.01, 0.05, 0.04, 0.02]);
        for (actual, is) in adjusted.iter().zip([0.09, 0.05, 0.09, 0.09, 0.08]) {
            assert!((actual - is).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[f64::NAN, 0.01])[0].is_nan() && holm(&[f64::NAN, 0.01])[1] == 0.01);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.95), None);
        assert_eq!(paired(&[1.0, 2.0], &[1.0], 0.95), None);
        assert_eq!(welch(&[1.0, 2.0], &[1.0, 2.0], 1.0), None);
        assert_eq!(of_differences(&[1.0, f64::NAN], 0.95), None);
        let sure = welch(&[1.0, 1.0], &[2.0, 2.0], 0.95).unwrap();
        assert_eq!((sure.interval, sure.p, sure.is_shown()), ([1.0, 1.0], 0.0, true));
        let same = welch(&[1.0, 1.0], &[1.0, 1.0], 0.95).unwrap();
        assert_eq!((same.p, same.is_shown()), (1.0, false));
        assert_eq!(Estimate { value: 0.0, standard_error: 1.0, freedom: 3.0 }.ln(), None);
    }

    fn nearly_normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0
    }

    /// Of 1000 intervals at 95 %, 950 are expected to cover; the binomial standard deviation is 6.9.
    #[test]
    fn intervals_have_their_nominal_coverage() {
        let covers = |actual: Option<Difference>| actual.is_some_and(|actual| !actual.is_shown());
        let (mut unequal, mut in_pairs, mut any) = (0, 0, 0);
        for stream in 0..1000 {
            let mut rng = Rng::new(17, stream);
            let mut draw = |count: usize, scale: f64| -> Vec<f64> {
                (0..count).map(|_| 5.0 + scale * nearly_normal(&mut rng)).collect()
            };
            unequal += usize::from(covers(welch(&draw(4, 1.0), &draw(9, 4.0), 0.95)));
            let (shared, a, b) = (draw(6, 10.0), draw(6, 1.0), draw(6, 1.0));
            let with = |own: &[f64]| -> Vec<f64> { shared.iter().zip(own).map(|(s, o)| s + o).collect() };
            in_pairs += usize::from(covers(paired(&with(&a), &with(&b), 0.95)));
            // Seven independent tests: count the cases in which none is significant.
            let p: Vec<f64> = (0..7).map(|_| welch(&draw(5, 1.0), &draw(5, 1.0), 0.95).unwrap().p).collect();
            any += usize::from(holm(&p).iter().all(|&p| p > 0.05));
        }
        for (name, hits) in [("unequal", unequal), ("in pairs", in_pairs), ("any of seven", any)] {
            assert!((925..=975).contains(&hits), "{name}: {hits}");
        }
    }

    proptest! {
        /// An interval at Holm's confidence excludes 0 exactly if the adjusted p value is below the limit.
        #[test]
        fn adjusted_intervals_agree_with_holm_tests(
            differences in prop::collection::vec((-3.0_f64..3.0, 0.1_f64..1.0, 2_u32..30), 1..9),
        ) {
            let estimates: Vec<Estimate> = differences
                .iter()
                .map(|&(value, standard_error, freedom)| Estimate { value, standard_error, freedom: f64::from(freedom) })
                .collect();
            let zero = Estimate { value: 0.0, standard_error: 0.0, freedom: 1.0 };
            let at = |of: Estimate, confidence: f64| between(zero, of, confidence).unwrap();
            let p: Vec<f64> = estimates.iter().map(|&of| at(of, 0.95).p).collect();
            let adjusted = holm(&p);
            for ((&of, confidence), adjusted) in estimates.iter().zip(holm_confidences(&p, 0.95)).zip(adjusted) {
                // Exactly at the limit, rounding decides.
                prop_assume!((adjusted - 0.05).abs() > 1e-9);
                prop_assert_eq!(at(of, confidence).is_shown(), adjusted < 0.05, "{:?} {}", of, confidence);
            }
        }
    }
}
