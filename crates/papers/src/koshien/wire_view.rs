//! What the wire showed of one experiment, read from the book: the same way for every generator.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use schema::WatchSecond;
use store::StoreError;

const SECOND_NS: u64 = 1_000_000_000;

/// The wire's view of one experiment.
#[derive(Clone, Debug, Default)]
pub struct WireView {
    /// Second by second; the first is the one in which the first SYN came.
    pub seconds: Vec<WatchSecond>,
    /// Indices of the seconds that lie wholly between the end of the warm-up and the last SYN.
    pub steady: Range<usize>,
    /// Connections opened from the end of the warm-up to the last SYN.
    pub opened: usize,
    /// Their handshake RTTs at the server, in ns, rising. A handshake whose SYN-ACK was sent again tells none (Karn's
    /// rule), and Linux sends it again after 1 s: those missing are the farthest.
    pub rtts_ns: Vec<u64>,
}

/// Figures of one quantity over the steady seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean over the seconds.
    pub mean: f64,
    /// Standard deviation over the seconds.
    pub stddev: f64,
    /// Lowest second.
    pub low: f64,
    /// Highest second.
    pub high: f64,
}

impl WireView {
    /// Reads the run in `dir`; its first `warmup` since the first SYN is not steady.
    ///
    /// # Errors
    /// The book cannot be read.
    pub fn read(dir: &Path, warmup: Duration) -> Result<WireView, StoreError> {
        let handshakes = store::read_connections(dir)?
            .map(|row| row.map(|connection| Some((connection.syn_at?.as_nanos(), connection.handshake_rtt_ns))))
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>, _>>()?;
        let seconds = store::read_watch_series(dir)?.collect::<Result<Vec<_>, _>>()?;
        Ok(WireView::of(seconds, &handshakes, warmup))
    }

    /// `handshakes`: moment of the SYN in ns, and the RTT where the handshake was completed.
    fn of(seconds: Vec<WatchSecond>, handshakes: &[(u64, Option<u64>)], warmup: Duration) -> WireView {
        let moments = || handshakes.iter().map(|(syn_at, _)| *syn_at);
        let (Some(first), Some(last)) = (moments().min(), moments().max()) else { return WireView::default() };
        let seconds: Vec<_> = seconds.into_iter().filter(|second| second.second >= first / SECOND_NS).collect();
        let from_ns = first + units::time::saturating_nanos(warmup);
        let is_steady =
            |second: &WatchSecond| second.second * SECOND_NS >= from_ns && (second.second + 1) * SECOND_NS <= last;
        let start = seconds.iter().position(is_steady).unwrap_or(seconds.len());
        let length = seconds[start..].iter().take_while(|second| is_steady(second)).count();
        let opened = || handshakes.iter().filter(|(syn_at, _)| (from_ns..=last).contains(syn_at));
        let mut rtts_ns: Vec<u64> = opened().filter_map(|(_, rtt_ns)| *rtt_ns).collect();
        rtts_ns.sort_unstable();
        WireView { seconds, steady: start..start + length, opened: opened().count(), rtts_ns }
    }

    /// Connections in process: the means of the steady seconds.
    pub fn connections(&self) -> Option<Spread> {
        self.spread(|second| second.connections_mean)
    }

    /// Requests that came in each of the steady seconds.
    pub fn arrivals(&self) -> Option<Spread> {
        self.spread(|second| second.requests as f64)
    }

    fn spread(&self, of: impl Fn(&WatchSecond) -> f64) -> Option<Spread> {
        let values: Vec<f64> = self.seconds[self.steady.clone()].iter().map(of).collect();
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Spread {
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
    fn only_whole_seconds_between_warm_up_and_the_last_arrival_are_steady() {
        // Seconds 9 to 16; load from 10.5 s to 15.2 s, of which 2 s are warm-up: 13 and 14 are whole.
        let seconds = (9..=16).map(|at| second(at, at as f64)).collect();
        let mut handshakes: Vec<_> = (0..48).map(|i| (10_500_000_000 + i * 100_000_000, Some(1000 + i))).collect();
        handshakes.push((15_200_000_000, None));
        let seen = WireView::of(seconds, &handshakes, Duration::from_secs(2));
        assert_eq!(seen.seconds[0].second, 10);
        assert_eq!(seen.steady, 3..5);
        let spread = seen.connections().unwrap();
        assert_eq!((spread.mean, spread.low, spread.high), (13.5, 13.0, 14.0));
        assert!((spread.stddev - 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!((seen.opened, seen.rtts_ns.len()), (29, 28), "those before 12.5 s are warm-up");
        assert_eq!((seen.rtts_ns[0], seen.rtts_ns[27]), (1020, 1047));
    }

    #[test]
    fn nothing_seen_is_nothing() {
        let seen = WireView::of(vec![second(1, 1.0)], &[], Duration::ZERO);
        assert!(seen.connections().is_none() && seen.rtts_ns.is_empty() && seen.arrivals().is_none());
        let short = WireView::of(vec![second(1, 1.0)], &[(1_100_000_000, None)], Duration::ZERO);
        assert!(short.connections().is_none());
    }
}
