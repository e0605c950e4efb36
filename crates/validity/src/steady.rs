//! Steady state: at one offered rate the number in flight must not keep growing.

use std::ops::Range;

use plan::Offered;
use schema::document::{Check, Document, PhasePart, Weight};

use super::draft::Draft;
use crate::evidence::Evidence;

/// Largest growth of the number in flight from the second quarter to the last, as a share of its mean.
const GROWTH_SHARE: f64 = 0.25;
/// Fewer seconds do not distinguish growth from scatter.
const SECONDS_MIN: usize = 8;

/// The number in flight must not grow while one rate is offered: during the measured phase, or, if the load has phases,
/// during each that has one rate. Under a changing rate there is no steady state.
pub(super) fn check(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("steady_state", Weight::Suspect, "ratio");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    let plan = &evidence.plan.load;
    match plan.offered() {
        Offered::Open { .. } | Offered::Phases(_) => {}
        Offered::Closed => {
            return check.not_applicable("in a closed loop the number in flight is limited by the number of users");
        }
        Offered::RateFile(_) | Offered::Replay(_) => {
            return check.not_applicable("the offered rate changes with the log or table: there is no steady state");
        }
    }
    let seconds = evidence.in_flight_by_second;
    if load.by_phase.is_empty() {
        if seconds.len() < SECONDS_MIN {
            return check
                .not_applicable("the measured phase is under 8 s: too short to distinguish growth from scatter");
        }
        return check.at_most(
            growth(seconds),
            GROWTH_SHARE,
            "growth of the number in flight from the second quarter to the last, beyond its scatter",
            "the number in flight was still growing: the server is overloaded or the warm-up too short, so means depend on \
             the length of the run; run longer (-d, --warmup) or at a lower rate",
        );
    }
    let steady = load.by_phase.iter().filter(|phase| phase.is_steady);
    let grown = steady.filter_map(|phase| Some((phase, growth(seconds.get(whole_seconds(phase))?))));
    let judged = |growth: &f64| growth.is_finite();
    let worst = grown.filter(|(_, growth)| judged(growth)).max_by(|(_, a), (_, b)| a.total_cmp(b));
    let Some((phase, growth)) = worst else {
        return check.not_applicable("no phase has one rate for 10 s: too short to distinguish growth from scatter");
    };
    check.at_most(
        growth,
        GROWTH_SHARE,
        "growth of the number in flight from the second quarter to the last of a phase with one rate, beyond its scatter; \
         the largest",
        &format!(
            "the number in flight was still growing at the end of the phase `{}`, so its means depend on its \
             length: the server is overloaded there, or the phase too short",
            phase.name
        ),
    )
}

/// The measured seconds that are completely in a phase. The first measured second begins up to a second after the
/// measured phase, so one second is omitted at each end.
fn whole_seconds(phase: &PhasePart) -> Range<usize> {
    let (from, to) = (phase.from_s.max(0.0).ceil() as usize, phase.to_s.max(0.0).floor() as usize);
    from..to.saturating_sub(1).max(from)
}

/// Growth of the mean from the second quarter to the last (the first may be a transient), less the scatter of the
/// seconds, over the earlier mean. NaN for too few seconds.
fn growth(seconds: &[f64]) -> f64 {
    if seconds.len() < SECONDS_MIN {
        return f64::NAN;
    }
    let quarter = seconds.len() / 4;
    let (early, late) = (&seconds[quarter..2 * quarter], &seconds[seconds.len() - quarter..]);
    let (early_mean, early_error) = mean_and_error(early);
    let (late_mean, late_error) = mean_and_error(late);
    let scatter = 3.0 * (early_error.powi(2) + late_error.powi(2)).sqrt();
    (late_mean - early_mean - scatter).max(0.0) / early_mean.max(1.0)
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(from_s: f64, to_s: f64) -> PhasePart {
        PhasePart {
            name: String::new(),
            from_s,
            to_s,
            is_steady: true,
            offered_requests: 0,
            offered_rate_per_s: 0.0,
            completed: 0,
            achieved_rate_per_s: 0.0,
            failed: 0,
            response_time_ns: Default::default(),
            service_time_ns: Default::default(),
            send_lag_ns: Default::default(),
        }
    }

    #[test]
    fn a_phase_has_only_seconds_completely_inside() {
        assert_eq!(whole_seconds(&phase(0.0, 10.0)), 0..9);
        assert_eq!(whole_seconds(&phase(10.0, 20.5)), 10..19);
        assert_eq!(whole_seconds(&phase(10.2, 20.0)), 11..19);
        assert!(whole_seconds(&phase(3.0, 3.5)).is_empty());
    }

    #[test]
    fn steady_state_fails_by_growth_and_not_by_scatter() {
        let rising: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(growth(&rising) > 0.9);
        let scattered: Vec<f64> = (0..20).map(|second| 10.0 + f64::from(second * 7 % 5)).collect();
        assert_eq!(growth(&scattered), 0.0);
        assert!(growth(&[1.0; 7]).is_nan());
    }
}
