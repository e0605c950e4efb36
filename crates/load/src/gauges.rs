//! Samples the gauges (in flight, concurrent connections, backlog) from the live counters.
//!
//! The sampling times are a Poisson process with its own seed. They are not synchronised with any event, so the mean of
//! the samples is the mean over time. The mean is not computed from records, since Little's law compares it with them.

mod batch;
mod sample_log;
mod shards;

use std::time::Duration;

use stats::{Histogram, Rng};
use units::Timestamp;

use crate::Live;
use crate::tally::Span;
use batch::BatchMeans;

pub use sample_log::{SampleLog, SummedSamples};
pub use shards::{GaugeMerger, GaugeSample, ShardSampler};

/// Samples [`Live`] at random times with exponential gaps.
///
/// Counters change only when the driver reports an event to [`Load`](crate::Load). So the driver calls [`Self::sample`]
/// *before* it reports an event, with the event's time and the counters before the event, which were valid until then.
/// With an earlier time, later samples would count a response as complete although its record does not. This way
/// samples need no wake-ups, and a time that passed while the loop slept is sampled exactly.
#[derive(Debug)]
pub struct GaugeSampler {
    times: SamplingTimes,
    sums: Sums,
}

/// The statistics of all samples.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Requests started and not ended, over the measured phase.
    pub in_flight: GaugeStatistics,
    /// Concurrent connections, over the measured phase.
    pub connections: GaugeStatistics,
    /// Requests scheduled and not started, over the measured phase.
    pub backlog: GaugeStatistics,
    /// Samples in the measured phase.
    pub samples: u64,
    /// Gauges of every second from time zero of the run, warm-up and drain included.
    pub seconds: Vec<SecondGauges>,
    /// Means of in-flight requests and backlog in each span ([`crate::Span`]) of the measured phase.
    pub spans: Vec<[f64; 2]>,
}

/// Statistics of a gauge over the measured phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GaugeStatistics {
    /// Mean, median and maximum of the samples.
    pub level: schema::Level,
    /// Standard error of the mean by batch means, which accounts for the correlation of successive samples. It includes
    /// the variation of the gauge itself, so it overstates the error of a comparison with the same run's records.
    pub standard_error: f64,
}

/// The gauges of one second; zero if the second has no sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondGauges {
    /// Mean number of requests in flight.
    pub in_flight_mean: f64,
    /// Maximum number of requests in flight.
    pub in_flight_max: u64,
    /// Mean number of concurrent connections.
    pub connections_mean: f64,
    /// Maximum number of concurrent connections.
    pub connections_max: u64,
    /// Backlog at the second's last sample.
    pub backlog: u64,
}

/// Mean time between samples. For a gauge with a standard deviation as large as its mean, the sampling error over a
/// minute is 0.4 %, small compared with the tolerance of 2 % for Little's law.
const SAMPLING_INTERVAL_MEAN: Duration = Duration::from_millis(1);

impl GaugeSampler {
    /// A sampler that samples from `start` on. Overall statistics begin at `measured_start`.
    pub fn new(seed: u64, start: Timestamp, measured_start: Timestamp) -> Self {
        GaugeSampler { times: SamplingTimes::new(seed, start), sums: Sums::new(measured_start) }
    }

    /// Sets the end of the overall statistics. Call as soon as [`Load::measured`](crate::Load::measured) returns the
    /// end, and again if it moves; samples before the call stay counted.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.sums.measured_end = Some(end);
    }

    /// The next sampling time.
    pub fn next_sample(&self) -> Timestamp {
        self.times.next
    }

    /// Takes every sample due by `now`. `live` has the counters that were valid at all these times.
    pub fn sample(&mut self, now: Timestamp, live: Live) {
        while self.times.next <= now {
            self.sums.add(self.times.take(), GaugeSample::of(live));
        }
    }

    /// The statistics so far of one second, counted from time zero of the run.
    pub fn second(&self, second: usize) -> SecondGauges {
        self.sums.second(second)
    }

    /// The statistics of all samples.
    pub fn finish(&self) -> Levels {
        self.sums.finish()
    }
}

/// The sampling times, which depend only on seed and start.
#[derive(Debug)]
struct SamplingTimes {
    rng: Rng,
    next: Timestamp,
}

impl SamplingTimes {
    fn new(seed: u64, start: Timestamp) -> Self {
        let mut times = SamplingTimes { rng: Rng::named(seed, "levels"), next: start };
        times.take();
        times
    }

    /// Returns the next time, and draws the one after it.
    fn take(&mut self) -> Timestamp {
        let taken = self.next;
        // A gap of at least 1 ns guarantees progress.
        let gap_ns = (self.rng.exponential() * SAMPLING_INTERVAL_MEAN.as_nanos() as f64).ceil().max(1.0);
        self.next += Duration::from_nanos(gap_ns as u64);
        taken
    }
}

/// The accumulated samples.
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
        // 10 in flight for 3 ms, none for 1 ms: 7.5 on average. The sampler is called only at the changes.
        for cycle in 0..8_000u64 {
            let begins = cycle * 4_000_000;
            sampler.sample(Timestamp::from_nanos(begins + 3_000_000), level(10));
            sampler.sample(Timestamp::from_nanos(begins + 4_000_000), level(0));
        }
        let levels = sampler.finish();
        // 20,000 samples in 20 s with deviation 4.33: the standard error is 0.031, and the limit five times that.
        assert!(levels.samples.abs_diff(20_000) < 5 * 142, "{}", levels.samples);
        assert!((levels.in_flight.level.mean - 7.5).abs() < 0.155, "{levels:?}");
        assert!((levels.connections.level.mean - 15.0).abs() < 0.31);
        assert_eq!((levels.in_flight.level.p50, levels.in_flight.level.max), (10, 10));
        assert!((0.01..0.08).contains(&levels.in_flight.standard_error), "{}", levels.in_flight.standard_error);
        assert_eq!(levels.seconds.len(), 32);
        assert!((levels.seconds[0].in_flight_mean - 7.5).abs() < 0.7);
        // Each span has a hundred samples of 25 whole cycles: the standard error is 0.43.
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
