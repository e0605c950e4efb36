//! Time until the server settles, by MSER-5 on a run without a warm-up.
//!
//! The warm-up is chosen before the trials, one length for all, since percentiles of part of a run cannot be derived
//! from the whole.

use std::time::Duration;

use load::Span;

/// Length of the first calibration, and of the second if the server does not settle in the first.
pub const CALIBRATION: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(60)];
/// Warm-ups are multiples of this, and at least as long.
pub const STEP: Duration = Duration::from_millis(500);

/// When the server had settled, in seconds from the start: the later of the cuts by response time and by completions,
/// rounded up. `None`: more than half of the run would be cut, or the run is too short.
pub fn settled(spans: &[Span]) -> Option<f64> {
    let completions: Vec<f64> = spans.iter().map(|span| span.completed as f64).collect();
    // A span without completions repeats the previous value.
    let mut last = spans.iter().find(|span| span.completed > 0)?.response_mean_ns;
    let times = spans.iter().map(|span| {
        if span.completed > 0 {
            last = span.response_mean_ns;
        }
        last
    });
    let times: Vec<f64> = times.collect();
    let cuts = [stats::mser5(&times)?, stats::mser5(&completions)?];
    if cuts.iter().any(|cut| !cut.steady) {
        return None;
    }
    let cut_s = cuts.iter().map(|cut| cut.cut).max()? as f64 * Span::LENGTH.as_secs_f64();
    let step_s = STEP.as_secs_f64();
    Some((cut_s / step_s).ceil().max(1.0) * step_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: u64, time_ns: impl Fn(u64) -> f64) -> Vec<Span> {
        (0..count)
            .map(|at| Span { completed: 20, response_mean_ns: time_ns(at) + (at * 7 % 5) as f64, ..Span::default() })
            .collect()
    }

    #[test]
    fn steady_server_gets_the_shortest_warm_up() {
        assert_eq!(settled(&spans(150, |_| 1e6)), Some(0.5));
        assert_eq!(settled(&spans(49, |_| 1e6)), None, "a run that is too short is not judged");
        assert_eq!(settled(&[]), None);
    }

    #[test]
    fn warm_up_covers_a_slow_start_and_drift_never_settles() {
        // Slow for 3 s.
        let found = settled(&spans(150, |at| if at < 30 { 9e6 } else { 1e6 })).unwrap();
        assert!((3.0..=3.5).contains(&found), "{found}");
        // A server that never settles.
        assert_eq!(settled(&spans(150, |at| if at < 100 { 9e6 } else { 1e6 })), None);
    }
}
