//! Seconds of the packet capture on the time axis of a run, for the live page and the report.

/// The second of the capture at the zero of the axis. Capture time counts from 1970, unless the run has its own clock. With a
/// load the zero is that of the run, since the capture may begin later; else it is `first`, the first captured second.
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

/// Count per second, over the captured part of the second.
pub(crate) fn rate(count: u64, watched_ns: u64) -> f64 {
    // A rate of so short a time would be meaningless.
    if watched_ns < PIECE_MIN_NS { f64::NAN } else { count as f64 * 1e9 / watched_ns as f64 }
}

const PIECE_MIN_NS: u64 = 100_000_000;
/// Longer than any run, shorter than the time since 1970.
const YEAR_S: f64 = 366.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_seconds_count_from_the_zero_of_the_run() {
        let started = "2026-11-20T09:30:05.250Z";
        assert_eq!(zero(7, true, started), 0.0, "clock of the run");
        assert_eq!(zero(1_795_167_009, true, started), 1_795_167_005.25, "a capture that began later is not shifted");
        assert_eq!(zero(1_795_167_009, true, ""), 1_795_167_009.0);
        assert_eq!(zero(1_795_167_009, true, "1990-01-01T00:00:00.000Z"), 1_795_167_009.0, "start at another time");
        assert_eq!([zero(1_795_167_009, false, started), zero(3, false, started)], [1_795_167_009.0, 3.0]);
    }

    #[test]
    fn rate_of_a_short_piece_of_a_second_is_unknown() {
        assert_eq!(rate(30, 500_000_000), 60.0);
        assert!(rate(30, PIECE_MIN_NS - 1).is_nan() && rate(30, PIECE_MIN_NS) == 300.0);
    }
}
