//! How long the server takes to settle, by MSER-5 on a run without a warm-up.
//!
//! The cut is not made in a finished trial, since percentiles of a part of a run cannot be had from the whole's: it chooses the warm-up,
//! one length for all trials.

use std::time::Duration;

use load::Span;

/// The first calibration lasts so long, and, where the server does not settle in it, the second.
pub const CALIBRATION: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(60)];
/// Warm-ups are multiples of this, and at least as long.
pub const STEP: Duration = Duration::from_millis(500);

/// When the server had settled, in seconds from the beginning: the later of the cuts of response time and of completions, rounded up.
/// None if more than half of the run had to be cut, or it is too short to tell.
pub fn settled(spans: &[Span]) -> Option<f64> {
    let completions: Vec<f64> = spans.iter().map(|span| span.completed as f64).collect();
    // A span in which nothing ended shows what the one before did.
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
    fn a_steady_server_takes_the_least() {
        assert_eq!(settled(&spans(150, |_| 1e6)), Some(0.5));
        assert_eq!(settled(&spans(49, |_| 1e6)), None, "too short to tell");
        assert_eq!(settled(&[]), None);
    }

    #[test]
    fn a_slow_start_is_cut_and_a_drift_is_none() {
        // Slow for 3 s.
        let found = settled(&spans(150, |at| if at < 30 { 9e6 } else { 1e6 })).unwrap();
        assert!((3.0..=3.5).contains(&found), "{found}");
        // And one that never settles.
        assert_eq!(settled(&spans(150, |at| if at < 100 { 9e6 } else { 1e6 })), None);
    }
}
