//! Statistics of what a probe received: losses as a sequence, and bytes over time against a trace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Losses of a numbered sequence of packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossFigures {
    /// Packets sent, up to the last one received: later losses are not distinguishable from the end.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Runs: maximal sequences of packets with the same outcome.
    pub runs: u64,
    /// Number of loss bursts by length in packets.
    pub bursts: BTreeMap<u32, u64>,
}

impl LossFigures {
    /// Counts losses in `received`, which has one entry for each packet sent.
    pub fn of(received: &[bool]) -> Self {
        let sent = received.iter().rposition(|&arrived| arrived).map_or(0, |last| last + 1);
        let mut figures = LossFigures { sent: sent as u64, ..LossFigures::default() };
        let mut burst = 0u32;
        let mut before = None;
        for &arrived in &received[..sent] {
            figures.runs += u64::from(before != Some(arrived));
            before = Some(arrived);
            if arrived {
                if burst > 0 {
                    *figures.bursts.entry(burst).or_default() += 1;
                }
                burst = 0;
            } else {
                figures.lost += 1;
                burst += 1;
            }
        }
        figures
    }

    /// Share of packets lost.
    pub fn share(&self) -> f64 {
        self.lost as f64 / self.sent as f64
    }

    /// Standard deviations between the share of packets lost and `share`, where the outcomes of neighbours have this
    /// correlation: 0 for independent losses.
    pub fn share_z(&self, share: f64, correlation: f64) -> f64 {
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        (self.share() - share) / (share * (1.0 - share) * inflation / self.sent as f64).sqrt()
    }

    /// Wald-Wolfowitz runs test: standard deviations between the number of runs and that of independent losses.
    /// Negative where losses come in bursts.
    pub fn runs_z(&self) -> f64 {
        let (n, lost) = (self.sent as f64, self.lost as f64);
        let mean = 2.0 * lost * (n - lost) / n + 1.0;
        (self.runs as f64 - mean) / ((mean - 1.0) * (mean - 2.0) / (n - 1.0)).sqrt()
    }

    /// Mean length of a loss burst in packets, and its standard error.
    pub fn burst_length(&self) -> (f64, f64) {
        let count: u64 = self.bursts.values().sum();
        let mean = self.lost as f64 / count as f64;
        let squares: f64 = self.bursts.iter().map(|(&length, &n)| n as f64 * (f64::from(length) - mean).powi(2)).sum();
        (mean, (squares / count as f64 / (count as f64 - 1.0)).sqrt())
    }
}

/// Deviation of received bytes from a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceError {
    /// Root mean square of the deviations of all intervals, relative to the trace's mean bytes an interval.
    pub rms: f64,
    /// Largest deviation, relative to the same.
    pub max: f64,
    /// Received bytes relative to the trace's bytes over all intervals.
    pub total: f64,
}

/// Compares `received` (bytes of each millisecond, from the first arrival) with `trace` (bytes that may leave in each
/// millisecond, repeating), in intervals of `interval_ms`. The trace's phase is unknown to a receiver, so the best of
/// all phases counts. `None` with less than one interval, or without a trace.
pub fn trace_error(received: &[u64], trace: &[u64], interval_ms: usize) -> Option<TraceError> {
    let intervals = received.len() / interval_ms;
    if intervals == 0 || trace.is_empty() || trace.iter().sum::<u64>() == 0 {
        return None;
    }
    let binned: Vec<f64> =
        received.chunks_exact(interval_ms).map(|chunk| chunk.iter().sum::<u64>() as f64).take(intervals).collect();
    // Bytes of the trace before each millisecond, over as many repetitions as are compared.
    let length = trace.len() + intervals * interval_ms;
    let mut before = vec![0u64];
    for at in 0..length {
        before.push(before[at] + trace[at % trace.len()]);
    }
    let mean = before[trace.len()] as f64 * interval_ms as f64 / trace.len() as f64;
    let with_phase = |phase: usize| {
        let expected = |at: usize| {
            let from = phase + at * interval_ms;
            (before[from + interval_ms] - before[from]) as f64
        };
        let deviations = binned.iter().enumerate().map(|(at, &bytes)| (bytes - expected(at)) / mean);
        let (squares, max) = deviations.fold((0.0, 0.0f64), |(sum, max), d| (sum + d * d, max.max(d.abs())));
        let all = (before[phase + intervals * interval_ms] - before[phase]) as f64;
        TraceError { rms: (squares / intervals as f64).sqrt(), max, total: binned.iter().sum::<f64>() / all }
    };
    (0..trace.len()).map(with_phase).min_by(|a, b| a.rms.total_cmp(&b.rms))
}

#[cfg(test)]
mod tests {
    use stats::Rng;

    use super::*;

    #[test]
    fn losses_runs_and_bursts_are_counted() {
        let pattern: Vec<bool> = "1100101110".chars().map(|c| c == '1').collect();
        let figures = LossFigures::of(&pattern);
        assert_eq!((figures.sent, figures.lost, figures.runs), (9, 3, 5), "the loss at the end does not count");
        assert_eq!(figures.bursts, BTreeMap::from([(1, 1), (2, 1)]));
        assert_eq!(figures.burst_length().0, 1.5);
        assert_eq!(LossFigures::of(&[]), LossFigures::default());
        assert_eq!(LossFigures::of(&[false; 4]).sent, 0);
    }

    #[test]
    fn independent_losses_pass_and_bursts_fail_the_runs_test() {
        let mut rng = Rng::new(1, 1);
        let independent: Vec<bool> = (0..50_000).map(|_| rng.uniform() >= 0.01).collect();
        let figures = LossFigures::of(&independent);
        assert!(figures.share_z(0.01, 0.0).abs() < 4.0 && figures.runs_z().abs() < 4.0, "{figures:?}");
        let mut bad = false;
        let bursts: Vec<bool> = (0..50_000)
            .map(|_| {
                bad = if bad { rng.uniform() >= 0.3 } else { rng.uniform() < 0.01 };
                !bad
            })
            .collect();
        let figures = LossFigures::of(&bursts);
        assert!(figures.runs_z() < -50.0, "{}", figures.runs_z());
        assert!(figures.share_z(0.01 / 0.31, 0.69).abs() < 4.0, "{figures:?}");
        let (mean, error) = figures.burst_length();
        assert!((mean - 1.0 / 0.3).abs() < 4.0 * error, "{mean} +- {error}");
    }

    #[test]
    fn trace_error_finds_the_phase() {
        let trace: Vec<u64> = (0..1000).map(|ms| if ms % 300 < 100 { 3000 } else { 1500 }).collect();
        let received: Vec<u64> = (0..5000).map(|ms| trace[(ms + 417) % 1000]).collect();
        let exact = trace_error(&received, &trace, 100).unwrap();
        assert!(exact.rms < 1e-9 && exact.max < 1e-9 && (exact.total - 1.0).abs() < 1e-9, "{exact:?}");
        let half: Vec<u64> = received.iter().map(|bytes| bytes / 2).collect();
        assert!((trace_error(&half, &trace, 100).unwrap().total - 0.5).abs() < 0.05);
        assert_eq!(trace_error(&received[..50], &trace, 100), None);
        assert_eq!(trace_error(&received, &[], 100), None);
    }
}
