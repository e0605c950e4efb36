//! Figures of one experiment from its packet capture, the same way for every load generator.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use schema::WatchSecond;
use store::StoreError;

const SECOND_NS: u64 = 1_000_000_000;

/// Figures of the packet capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureFigures {
    /// Second by second, from the second of the first SYN.
    pub seconds: Vec<WatchSecond>,
    /// Indexes of the seconds that lie entirely between the end of the warm-up and the last SYN.
    pub steady: Range<usize>,
    /// Connections opened between the end of the warm-up and the last SYN.
    pub opened: usize,
    /// Their handshake RTTs at the server, in ns, ascending. A handshake with a retransmitted SYN-ACK gives no RTT
    /// (Karn's algorithm), and Linux retransmits after 1 s, so the missing ones are the most distant.
    pub rtts_ns: Vec<u64>,
}

/// Figures of one quantity over the steady seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecondsSummary {
    /// Mean over the seconds.
    pub mean: f64,
    /// Standard deviation over the seconds.
    pub stddev: f64,
    /// Lowest second.
    pub low: f64,
    /// Highest second.
    pub high: f64,
}

impl CaptureFigures {
    /// Reads the run in `dir`; the first `warmup` after the first SYN is not steady.
    ///
    /// # Errors
    /// The run store cannot be read.
    pub fn read(dir: &Path, warmup: Duration) -> Result<CaptureFigures, StoreError> {
        let handshakes = store::read_connections(dir)?
            .map(|row| row.map(|connection| Some((connection.syn_at?.as_nanos(), connection.handshake_rtt_ns))))
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>, _>>()?;
        let seconds = store::read_watch_series(dir)?.collect::<Result<Vec<_>, _>>()?;
        Ok(CaptureFigures::of(seconds, &handshakes, warmup))
    }

    /// `handshakes`: time of the SYN in ns, and the RTT of completed handshakes.
    fn of(seconds: Vec<WatchSecond>, handshakes: &[(u64, Option<u64>)], warmup: Duration) -> CaptureFigures {
        let syn_times = || handshakes.iter().map(|(syn_at, _)| *syn_at);
        let (Some(first), Some(last)) = (syn_times().min(), syn_times().max()) else {
            return CaptureFigures::default();
        };
        let seconds: Vec<_> = seconds.into_iter().filter(|second| second.second >= first / SECOND_NS).collect();
        let from_ns = first + units::time::saturating_nanos(warmup);
        let is_steady =
            |second: &WatchSecond| second.second * SECOND_NS >= from_ns && (second.second + 1) * SECOND_NS <= last;
        let start = seconds.iter().position(is_steady).unwrap_or(seconds.len());
        let length = seconds[start..].iter().take_while(|second| is_steady(second)).count();
        let opened = || handshakes.iter().filter(|(syn_at, _)| (from_ns..=last).contains(syn_at));
        let mut rtts_ns: Vec<u64> = opened().filter_map(|(_, rtt_ns)| *rtt_ns).collect();
        rtts_ns.sort_unstable();
        CaptureFigures { seconds, steady: start..start + length, opened: opened().count(), rtts_ns }
    }

    /// Concurrent connections: means of the steady seconds.
    pub fn connections(&self) -> Option<SecondsSummary> {
        self.spread(|second| second.connections_mean)
    }

    /// Requests that arrived in each of the steady seconds.
    pub fn arrivals(&self) -> Option<SecondsSummary> {
        self.spread(|second| second.requests as f64)
    }

    fn spread(&self, of: impl Fn(&WatchSecond) -> f64) -> Option<SecondsSummary> {
        let values: Vec<f64> = self.seconds[self.steady.clone()].iter().map(of).collect();
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(SecondsSummary {
            mean,
            stddev: (squares / values.len().saturating_sub(1).max(1) as f64).sqrt(),
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64, connections_mean: f64) -> WatchSecond {
        WatchSecond { second, connections_mean, requests: second, ..WatchSecond::default() }
    }

    #[test]
    fn steady_seconds_lie_between_warm_up_and_last_arrival() {
        // Seconds 9 to 16; load from 10.5 s to 15.2 s, of which 2 s are warm-up: 13 and 14 are whole.
        let seconds = (9..=16).map(|at| second(at, at as f64)).collect();
        let mut handshakes: Vec<_> = (0..48).map(|i| (10_500_000_000 + i * 100_000_000, Some(1000 + i))).collect();
        handshakes.push((15_200_000_000, None));
        let capture = CaptureFigures::of(seconds, &handshakes, Duration::from_secs(2));
        assert_eq!(capture.seconds[0].second, 10);
        assert_eq!(capture.steady, 3..5);
        let spread = capture.connections().unwrap();
        assert_eq!((spread.mean, spread.low, spread.high), (13.5, 13.0, 14.0));
        assert!((spread.stddev - 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!((capture.opened, capture.rtts_ns.len()), (29, 28), "seconds before 12.5 s are warm-up");
        assert_eq!((capture.rtts_ns[0], capture.rtts_ns[27]), (1020, 1047));
    }

    #[test]
    fn empty_capture_has_no_figures() {
        let capture = CaptureFigures::of(vec![second(1, 1.0)], &[], Duration::ZERO);
        assert!(capture.connections().is_none() && capture.rtts_ns.is_empty() && capture.arrivals().is_none());
        let short = CaptureFigures::of(vec![second(1, 1.0)], &[(1_100_000_000, None)], Duration::ZERO);
        assert!(short.connections().is_none());
    }
}
