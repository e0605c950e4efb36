//! The wire's seconds on a run's time axis: one rule for the page that is made as the run goes and the one that is made of it.

/// The wire's second at which the axis has its zero. Capture time counts from 1970, unless the run gave it its own clock.
/// Zero is the run's where there is a load and it is known, since a capture may have begun later; else it is `first`, the first second
/// that was captured.
pub(crate) fn zero(first: u64, has_load: bool, started_at: &str) -> f64 {
    let first = first as f64;
    if !has_load {
        return first;
    }
    if first < YEAR_S {
        return 0.0;
    }
    let started = store::unix_ms(started_at).map(|ms| ms as f64 / 1000.0);
    started.filter(|zero| (first - zero).abs() < YEAR_S).unwrap_or(first)
}

/// Counts a second, over the part of the second that was watched.
pub(crate) fn rate(count: u64, watched_ns: u64) -> f64 {
    // Of so short a piece no rate can be told.
    if watched_ns < PIECE_MIN_NS { f64::NAN } else { count as f64 * 1e9 / watched_ns as f64 }
}

const PIECE_MIN_NS: u64 = 100_000_000;
/// Longer than any run, shorter than the time since 1970.
const YEAR_S: f64 = 366.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_is_the_runs_where_there_is_one() {
        let started = "2026-11-20T09:30:05.250Z";
        assert_eq!(zero(7, true, started), 0.0, "on the run's own clock");
        assert_eq!(zero(1_795_167_009, true, started), 1_795_167_005.25, "a capture that began later is not shifted");
        assert_eq!(zero(1_795_167_009, true, ""), 1_795_167_009.0);
        assert_eq!(zero(1_795_167_009, true, "1990-01-01T00:00:00.000Z"), 1_795_167_009.0, "of another time");
        assert_eq!([zero(1_795_167_009, false, started), zero(3, false, started)], [1_795_167_009.0, 3.0]);
    }

    #[test]
    fn of_a_short_piece_there_is_no_rate() {
        assert_eq!(rate(30, 500_000_000), 60.0);
        assert!(rate(30, PIECE_MIN_NS - 1).is_nan() && rate(30, PIECE_MIN_NS) == 300.0);
    }
}
