//! Arrivals of connections and requests: counts over time, their mean, peak and dispersion.

use std::collections::BTreeMap;

use units::Timestamp;

/// Maximum number of counts over time: a day and a half of seconds. Beyond it bins become twice as long.
pub const BINS_MAX: usize = 1 << 17;

/// The arrivals of a capture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Connections, by their first SYN. Those open before the capture do not count as arrivals.
    pub connections: ArrivalRate,
    /// Requests, by their first byte.
    pub requests: ArrivalRate,
    /// Length of a full bin in seconds: 1, or a power of two for captures longer than [`BINS_MAX`] seconds.
    pub bin_s: u64,
    /// Consecutive bins from the first packet to the last, including empty ones.
    pub bins: Vec<Bin>,
}

/// A time interval. Bins are aligned to whole seconds of the clock, so the first and the last may be shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Start of the bin, from the start of the capture, in ns.
    pub from_ns: u64,
    /// Length of the bin in ns.
    pub length_ns: u64,
    /// Connections that arrived in it.
    pub connections: u64,
    /// Requests that arrived in it.
    pub requests: u64,
}

/// Rate of arrivals of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArrivalRate {
    /// Total number.
    pub count: u64,
    /// Mean over the whole capture.
    pub rate_per_s: f64,
    /// Maximum rate within one full bin, per second; `None` without a full bin.
    pub peak_per_s: Option<f64>,
    /// Variance over mean of the counts of full bins: 1 for independent users at a constant rate (Poisson), 0 for equal
    /// gaps, above 1 for bursts and for a changing rate. `None` below [`BINS_MIN`] full bins, or without arrivals.
    pub dispersion: Option<f64>,
}

/// Counts of arrivals, in any order of time.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    bins: BTreeMap<u64, [u64; 2]>,
    bin_s: u64,
}

impl Counts {
    pub(super) fn new() -> Counts {
        Counts { bins: BTreeMap::new(), bin_s: 1 }
    }

    pub(super) fn connection(&mut self, at: Timestamp) {
        self.add(at, 0);
    }

    pub(super) fn request(&mut self, at: Timestamp) {
        self.add(at, 1);
    }

    fn add(&mut self, at: Timestamp, what: usize) {
        self.bins.entry(at.as_nanos() / self.bin_ns()).or_default()[what] += 1;
        if self.bins.len() > BINS_MAX {
            self.coarsen();
        }
    }

    /// Doubles the length of the bins.
    fn coarsen(&mut self) {
        self.bin_s *= 2;
        for (index, counts) in std::mem::take(&mut self.bins) {
            let bin = self.bins.entry(index / 2).or_default();
            bin.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    fn bin_ns(&self) -> u64 {
        self.bin_s * SECOND
    }

    /// The arrivals from `from` to `to`, both included.
    pub(super) fn arrivals(&self, from: Timestamp, to: Timestamp) -> Arrivals {
        let (from, to) = (from.as_nanos(), to.as_nanos().max(from.as_nanos()));
        let mut counts = self.clone();
        while (to - from) / counts.bin_ns() >= BINS_MAX as u64 {
            counts.coarsen();
        }
        let bin_ns = counts.bin_ns();
        let bins: Vec<Bin> = (from / bin_ns..=to / bin_ns)
            .map(|index| {
                let (start, end) = (from.max(index * bin_ns), to.min((index + 1).saturating_mul(bin_ns)));
                let [connections, requests] = counts.bins.get(&index).copied().unwrap_or_default();
                Bin { from_ns: start - from, length_ns: end - start, connections, requests }
            })
            .filter(|bin| bin.length_ns > 0 || bin.connections + bin.requests > 0)
            .collect();
        let length_s = (to - from) as f64 / 1e9;
        Arrivals {
            connections: rate(&bins, bin_ns, length_s, |bin| bin.connections),
            requests: rate(&bins, bin_ns, length_s, |bin| bin.requests),
            bin_s: counts.bin_s,
            bins,
        }
    }
}

fn rate(bins: &[Bin], bin_ns: u64, length_s: f64, of: impl Fn(&Bin) -> u64) -> ArrivalRate {
    let count = bins.iter().map(&of).sum();
    let whole: Vec<f64> = bins.iter().filter(|bin| bin.length_ns == bin_ns).map(|bin| of(bin) as f64).collect();
    let mean = whole.iter().sum::<f64>() / whole.len() as f64;
    let squares: f64 = whole.iter().map(|count| (count - mean) * (count - mean)).sum();
    let peak = whole.iter().copied().max_by(f64::total_cmp);
    ArrivalRate {
        count,
        rate_per_s: if length_s > 0.0 { count as f64 / length_s } else { 0.0 },
        peak_per_s: peak.map(|peak| peak * 1e9 / bin_ns as f64),
        dispersion: (whole.len() >= BINS_MIN && mean > 0.0).then(|| squares / (whole.len() - 1) as f64 / mean),
    }
}

const SECOND: u64 = 1_000_000_000;
/// With fewer bins a dispersion is mostly chance: of ten Poisson counts it is 1 +- 0.5.
pub const BINS_MIN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_nanos((seconds * 1e9).round() as u64)
    }

    #[test]
    fn equal_gaps_have_zero_dispersion_and_partial_seconds_no_peak() {
        let mut counts = Counts::new();
        // 20 per second from 100.55 s on, the last at 115.5 s: 300 connections; requests only at the very end.
        for number in 0..300 {
            counts.connection(at(100.55 + f64::from(number) * 0.05));
        }
        (0..100).for_each(|_| counts.request(at(115.5)));
        let arrivals = counts.arrivals(at(100.5), at(115.5));
        assert_eq!((arrivals.bin_s, arrivals.bins.len()), (1, 16));
        let first = arrivals.bins[0];
        assert_eq!((first.from_ns, first.length_ns, first.connections), (0, 500_000_000, 9));
        assert_eq!(arrivals.bins[1].from_ns, 500_000_000);
        assert_eq!(arrivals.connections.count, 300);
        assert!((arrivals.connections.rate_per_s - 20.0).abs() < 1e-9);
        assert_eq!((arrivals.connections.peak_per_s, arrivals.connections.dispersion), (Some(20.0), Some(0.0)));
        // The half second at the end does not count as a rate of 200 per second.
        assert_eq!((arrivals.requests.count, arrivals.requests.peak_per_s), (100, Some(0.0)));
        assert_eq!(arrivals.requests.dispersion, None);
    }

    #[test]
    fn poisson_arrivals_have_a_dispersion_of_one() {
        let (mut counts, mut rng, mut now) = (Counts::new(), stats::Rng::new(1, 1), 0.0);
        while now < 2000.0 {
            now += rng.exponential() / 50.0;
            counts.request(at(now));
        }
        let requests = counts.arrivals(at(0.0), at(2000.0)).requests;
        // Four standard errors: sqrt(2 / 2000) each.
        assert!((requests.dispersion.unwrap() - 1.0).abs() < 4.0 * (2.0f64 / 2000.0).sqrt(), "{requests:?}");
        assert!((requests.rate_per_s - 50.0).abs() < 1.0);
    }

    #[test]
    fn long_capture_has_longer_bins_and_the_same_counts() {
        let mut counts = Counts::new();
        let seconds = BINS_MAX as u64 * 3;
        (0..seconds).rev().for_each(|second| counts.connection(at(second as f64)));
        assert!(counts.bins.len() <= BINS_MAX);
        let arrivals = counts.arrivals(at(0.0), at(seconds as f64));
        assert_eq!((arrivals.bin_s, arrivals.connections.count), (4, seconds));
        assert_eq!((arrivals.connections.peak_per_s, arrivals.connections.dispersion), (Some(1.0), Some(0.0)));
        // Few arrivals in a very long time: no loop over single seconds.
        let mut rare = Counts::new();
        rare.connection(at(0.0));
        let arrivals = rare.arrivals(at(0.0), at(1e9));
        assert!(arrivals.bins.len() <= BINS_MAX && arrivals.bin_s == 8192);
        assert_eq!(Counts::new().arrivals(at(5.0), at(5.0)).bins, []);
    }
}
