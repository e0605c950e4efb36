//! Levels (in flight, concurrent connections, backlog) sampled from the live counters.
//!
//! The moments of sampling are a Poisson process of its own seed: they fall in step with nothing, so the mean of the
//! samples is the mean over time. The mean must not come from the records: Little's law compares it with them.

mod batch;
mod shards;

use std::time::Duration;

use stats::{Histogram, Rng};
use units::Timestamp;

use crate::Live;
use crate::tally::Span;
use batch::BatchMeans;

pub use shards::{GaugeMerger, GaugeSample, ShardSampler};

/// Samples [`Live`] at seeded exponential moments.
///
/// Counters change only when the driver tells [`Load`](crate::Load) something, so the driver calls [`Self::sample`]
/// with the counters as they stand *before* it tells what happened since, and with the same time that it tells: they have had these
/// values until then. A sample taken earlier, before an answer was read, decrypted and taken apart, would leave all later ones of that
/// time to see the answer as done, which its record says it was not.
/// Then no sample needs a wake-up of its own, and a moment that passed while the loop slept is sampled exactly.
#[derive(Debug)]
pub struct GaugeSampler {
    moments: Moments,
    sums: Sums,
}

/// What was sampled.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Requests started and not done, over the measured phase.
    pub in_flight: GaugeStatistics,
    /// Concurrent connections, over the measured phase.
    pub connections: GaugeStatistics,
    /// Requests scheduled and not started, over the measured phase.
    pub backlog: GaugeStatistics,
    /// Samples in the measured phase.
    pub samples: u64,
    /// Every second from the run's zero, warm-up and drain included.
    pub seconds: Vec<SecondGauges>,
    /// Means of the measured phase's spans ([`crate::Span`]): in flight, backlog.
    pub spans: Vec<[f64; 2]>,
}

/// A level over the measured phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GaugeStatistics {
    /// Mean, median and largest sample.
    pub level: schema::Level,
    /// Standard error of the mean by batch means: it knows that neighbouring samples are alike. It holds the level's
    /// own wandering too, so it overstates the error of a comparison with the same run's records.
    pub standard_error: f64,
}

/// The levels of one second. Zero where no sample fell into it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondGauges {
    /// Mean number of requests in flight.
    pub in_flight_mean: f64,
    /// Largest.
    pub in_flight_max: u64,
    /// Mean number of concurrent connections.
    pub connections_mean: f64,
    /// Largest.
    pub connections_max: u64,
    /// Backlog at the second's last sample.
    pub backlog: u64,
}

/// Mean time between samples. A thousand a second make the error of sampling itself, for a level whose deviation is
/// as large as its mean, 0.4 % over a minute: small beside the 2 % at which Little's law is judged.
const INTERVAL_MEAN: Duration = Duration::from_millis(1);

impl GaugeSampler {
    /// Samples from `start` on; overall figures from `measured_start` on.
    pub fn new(seed: u64, start: Timestamp, measured_start: Timestamp) -> Self {
        GaugeSampler { moments: Moments::new(seed, start), sums: Sums::new(measured_start) }
    }

    /// Overall figures take nothing from `end` on. To be called as soon as [`Load::measured`](crate::Load::measured)
    /// knows the end (again if it moves): what was sampled before the call stays.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.sums.measured_end = Some(end);
    }

    /// The next moment of sampling.
    pub fn next_sample(&self) -> Timestamp {
        self.moments.next
    }

    /// Takes every sample due by `now`. `live` is what the counters were at all these moments.
    pub fn sample(&mut self, now: Timestamp, live: Live) {
        while self.moments.next <= now {
            self.sums.add(self.moments.take(), GaugeSample::of(live));
        }
    }

    /// The figures so far of one second, counted from the run's zero.
    pub fn second(&self, second: usize) -> SecondGauges {
        self.sums.second(second)
    }

    /// The figures.
    pub fn finish(&self) -> Levels {
        self.sums.finish()
    }
}

/// The moments of sampling: they depend on seed and start alone.
#[derive(Debug)]
struct Moments {
    rng: Rng,
    next: Timestamp,
}

impl Moments {
    fn new(seed: u64, start: Timestamp) -> Self {
        let mut moments = Moments { rng: Rng::named(seed, "levels"), next: start };
        moments.take();
        moments
    }

    /// The next moment; draws the one after it.
    fn take(&mut self) -> Timestamp {
        let taken = self.next;
        // At least 1 ns, so that sampling always gets on.
        let gap_ns = (self.rng.exponential() * INTERVAL_MEAN.as_nanos() as f64).ceil().max(1.0);
        self.next += Duration::from_nanos(gap_ns as u64);
        taken
    }
}

/// What samples add up to.
#[derive(Debug)]
struct Sums {
    measured_start: Timestamp,
    measured_end: Option<Timestamp>,
    in_flight: Statistics,
    connections: Statistics,
    backlog: Statistics,
    seconds: Vec<Second>,
    spans: Vec<SpanSums>,
}

impl Sums {
    fn new(measured_start: Timestamp) -> Self {
        Sums {
            measured_start,
            measured_end: None,
            in_flight: Statistics::new(),
            connections: Statistics::new(),
            backlog: Statistics::new(),
            seconds: Vec::new(),
            spans: Vec::new(),
        }
    }

    fn add(&mut self, at: Timestamp, sample: GaugeSample) {
        let second = (at.as_nanos() / 1_000_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        self.seconds[second].add(sample);
        if let Some(span) = Span::index(self.measured_start, at) {
            if self.spans.len() <= span {
                self.spans.resize(span + 1, SpanSums::default());
            }
            self.spans[span].add(sample);
        }
        if at >= self.measured_start && self.measured_end.is_none_or(|end| at < end) {
            self.in_flight.add(sample.in_flight);
            self.connections.add(sample.connections);
            self.backlog.add(sample.backlog);
        }
    }

    fn second(&self, second: usize) -> SecondGauges {
        self.seconds.get(second).map_or_else(SecondGauges::default, Second::levels)
    }

    fn finish(&self) -> Levels {
        Levels {
            in_flight: self.in_flight.finish(),
            connections: self.connections.finish(),
            backlog: self.backlog.finish(),
            samples: self.in_flight.levels.len(),
            seconds: self.seconds.iter().map(Second::levels).collect(),
            spans: self.spans.iter().map(SpanSums::means).collect(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SpanSums {
    samples: u32,
    in_flight: u64,
    backlog: u64,
}

impl SpanSums {
    fn add(&mut self, sample: GaugeSample) {
        self.samples += 1;
        self.in_flight += sample.in_flight;
        self.backlog += sample.backlog;
    }

    fn means(&self) -> [f64; 2] {
        [self.in_flight, self.backlog].map(|sum| sum as f64 / f64::from(self.samples.max(1)))
    }
}

#[derive(Debug)]
struct Statistics {
    levels: Histogram,
    batches: BatchMeans,
}

impl Statistics {
    fn new() -> Self {
        Statistics { levels: Histogram::new(), batches: BatchMeans::new() }
    }

    fn add(&mut self, level: u64) {
        self.levels.record(level);
        self.batches.add(level as f64);
    }

    fn finish(&self) -> GaugeStatistics {
        let level = schema::Level { mean: self.levels.mean(), p50: self.levels.value_at(0.5), max: self.levels.max() };
        GaugeStatistics { level, standard_error: self.batches.standard_error() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    samples: u64,
    in_flight_sum: u64,
    in_flight_max: u64,
    connections_sum: u64,
    connections_max: u64,
    backlog: u64,
}

impl Second {
    fn add(&mut self, sample: GaugeSample) {
        self.samples += 1;
        self.in_flight_sum += sample.in_flight;
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        self.connections_sum += sample.connections;
        self.connections_max = self.connections_max.max(sample.connections);
        self.backlog = sample.backlog;
    }

    fn levels(&self) -> SecondGauges {
        let samples = self.samples.max(1) as f64;
        SecondGauges {
            in_flight_mean: self.in_flight_sum as f64 / samples,
            in_flight_max: self.in_flight_max,
            connections_mean: self.connections_sum as f64 / samples,
            connections_max: self.connections_max,
            backlog: self.backlog,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(in_flight: u64) -> Live {
        Live { in_flight, connections: in_flight * 2, ..Live::default() }
    }

    #[test]
    fn gauge_mean_of_a_square_wave_is_its_mean_over_time() {
        let mut sampler = GaugeSampler::new(5, Timestamp::ZERO, Timestamp::from_nanos(1_000_000_000));
        sampler.set_measured_end(Timestamp::from_nanos(21_000_000_000));
        // 10 in flight for 3 ms, none for 1 ms: 7.5 on average. Told only at the changes.
        for cycle in 0..8_000u64 {
            let begins = cycle * 4_000_000;
            sampler.sample(Timestamp::from_nanos(begins + 3_000_000), level(10));
            sampler.sample(Timestamp::from_nanos(begins + 4_000_000), level(0));
        }
        let levels = sampler.finish();
        // 20,000 samples in 20 s, deviation 4.33: standard error 0.031, five of them.
        assert!(levels.samples.abs_diff(20_000) < 5 * 142, "{}", levels.samples);
        assert!((levels.in_flight.level.mean - 7.5).abs() < 0.155, "{levels:?}");
        assert!((levels.connections.level.mean - 15.0).abs() < 0.31);
        assert_eq!((levels.in_flight.level.p50, levels.in_flight.level.max), (10, 10));
        assert!((0.01..0.08).contains(&levels.in_flight.standard_error), "{}", levels.in_flight.standard_error);
        assert_eq!(levels.seconds.len(), 32);
        assert!((levels.seconds[0].in_flight_mean - 7.5).abs() < 0.7);
        // A hundred samples each, of 25 whole cycles: standard error 0.43.
        let [in_flight, _] = levels.spans[17];
        assert!(levels.spans.len() >= 310 && (in_flight - 7.5).abs() < 5.0 * 0.44, "{in_flight}");
    }

    #[test]
    fn overall_gauges_contain_only_the_measured_phase() {
        let at = Timestamp::from_nanos;
        let mut sampler = GaugeSampler::new(5, Timestamp::ZERO, at(1_000_000_000));
        sampler.sample(at(999_999_999), level(1000));
        sampler.set_measured_end(at(2_000_000_000));
        sampler.sample(at(1_999_999_999), level(1));
        sampler.sample(at(3_000_000_000), level(1000));
        let levels = sampler.finish();
        assert_eq!(levels.in_flight.level, schema::Level { mean: 1.0, p50: 1, max: 1 });
        assert_eq!(levels.in_flight.standard_error, 0.0);
        assert_eq!((levels.seconds[0].in_flight_max, levels.seconds[1].in_flight_max), (1000, 1));
    }
}
