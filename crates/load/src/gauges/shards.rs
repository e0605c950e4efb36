//! One run's levels out of several shards'.
//!
//! ```text
//!   shard 0: ShardSampler --3 1 4 ..--\
//!   shard 1: ShardSampler --2 2 0 ..---> GaugeMerger: 5 3 4 ..  mean, median, maximum, seconds
//! ```
//!
//! The moments of sampling depend on seed and start alone, so every shard samples at the same ones, and the level of the
//! run at each of them is the sum of the shards': exactly what one shard alone would have sampled.

use std::collections::VecDeque;

use units::Timestamp;

use super::{Levels, Moments, SecondGauges, Sums};
use crate::Live;

/// The levels at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GaugeSample {
    /// Requests started and not done.
    pub in_flight: u64,
    /// Concurrent connections.
    pub connections: u64,
    /// Requests scheduled and not started.
    pub backlog: u64,
}

impl GaugeSample {
    /// The counters' levels.
    pub const fn of(live: Live) -> Self {
        GaugeSample { in_flight: live.in_flight, connections: live.connections, backlog: live.backlog }
    }
}

/// Samples one shard's counters, as [`GaugeSampler`](super::GaugeSampler) does, and keeps the samples for a
/// [`GaugeMerger`].
#[derive(Debug)]
pub struct ShardSampler {
    moments: Moments,
    samples: Vec<GaugeSample>,
}

impl ShardSampler {
    /// Samples from `start` on. Shards of one run have the same seed and start.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        ShardSampler { moments: Moments::new(seed, start), samples: Vec::new() }
    }

    /// Whether a sample is due by `now`: asked far more often than one is.
    #[inline]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.moments.next <= now
    }

    /// Takes every sample due by `now`. `live` is what the counters were at all these moments.
    #[inline]
    pub fn sample(&mut self, now: Timestamp, live: Live) {
        while self.moments.next <= now {
            self.moments.take();
            self.samples.push(GaugeSample::of(live));
        }
    }

    /// Moves the samples taken since the last call to the end of `into`, in their order.
    pub fn take_samples(&mut self, into: &mut Vec<GaugeSample>) {
        into.append(&mut self.samples);
    }
}

/// Sums up the samples of all shards, time by time.
#[derive(Debug)]
pub struct GaugeMerger {
    moments: Moments,
    told_until: Timestamp,
    sums: Sums,
    lanes: Vec<Samples>,
}

/// What a shard has told and the others have not reached yet.
#[derive(Debug, Default)]
struct Samples {
    waiting: VecDeque<GaugeSample>,
    ended: bool,
}

impl GaugeMerger {
    /// For `shards` shards whose samplers began at `start`; overall figures from `measured_start` on.
    pub fn new(seed: u64, start: Timestamp, measured_start: Timestamp, lanes: usize) -> Self {
        GaugeMerger {
            moments: Moments::new(seed, start),
            told_until: Timestamp::ZERO,
            sums: Sums::new(measured_start),
            lanes: std::iter::repeat_with(Samples::default).take(lanes).collect(),
        }
    }

    /// Overall figures take nothing from `end` on; what all shards have told before the call stays.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.sums.measured_end = Some(end);
    }

    /// The next samples of a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn add(&mut self, lane: usize, samples: &[GaugeSample]) {
        self.lanes[lane].waiting.extend(samples);
        self.merge();
    }

    /// A shard has told its last sample: nothing goes on in it any more.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn end(&mut self, lane: usize) {
        self.lanes[lane].ended = true;
        self.merge();
    }

    /// The last moment that all shards have told of; zero before the first.
    pub fn told_until(&self) -> Timestamp {
        self.told_until
    }

    /// The next moment that not all shards have told of.
    pub fn next_moment(&self) -> Timestamp {
        self.moments.next
    }

    /// The figures so far of one second, counted from the run's zero.
    pub fn second(&self, second: usize) -> SecondGauges {
        self.sums.second(second)
    }

    /// The figures. A shard that was not ended, because it was lost, counts as nothing from its last sample on.
    pub fn finish(mut self) -> Levels {
        self.lanes.iter_mut().for_each(|lane| lane.ended = true);
        self.merge();
        self.sums.finish()
    }

    /// Takes in every moment of which all shards have told.
    fn merge(&mut self) {
        loop {
            let told = self.lanes.iter().all(|lane| lane.ended || !lane.waiting.is_empty());
            // When all have ended, the moments end with the last sample of the last.
            if !told || self.lanes.iter().all(|lane| lane.waiting.is_empty()) {
                return;
            }
            let mut sum = GaugeSample::default();
            for sample in self.lanes.iter_mut().filter_map(|lane| lane.waiting.pop_front()) {
                sum.in_flight += sample.in_flight;
                sum.connections += sample.connections;
                sum.backlog += sample.backlog;
            }
            self.told_until = self.moments.take();
            self.sums.add(self.told_until, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use stats::Rng;

    use super::super::GaugeSampler;
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn live(in_flight: u64) -> Live {
        Live { in_flight, connections: 2 * in_flight, backlog: in_flight / 2, ..Live::default() }
    }

    #[test]
    fn merged_shard_samples_equal_one_sampler_of_their_sum() {
        let mut rng = Rng::named(7, "level changes");
        let (mut whole, mut merger) =
            (GaugeSampler::new(5, at(0), at(1_000)), GaugeMerger::new(5, at(0), at(1_000), 3));
        let mut lanes: Vec<_> = (0..3).map(|_| ShardSampler::new(5, at(0))).collect();
        whole.set_measured_end(at(4_000));
        merger.set_measured_end(at(4_000));
        let mut told = Vec::new();
        for step in 1..=500 {
            let levels: Vec<u64> = (0..3).map(|_| 2 * rng.below(10)).collect();
            whole.sample(at(step * 10), live(levels.iter().sum()));
            for (lane, &level) in levels.iter().enumerate() {
                lanes[lane].sample(at(step * 10), live(level));
                // Each tells in its own time.
                if rng.below(4) == 0 {
                    lanes[lane].take_samples(&mut told);
                    merger.add(lane, &told);
                    told.clear();
                }
            }
        }
        for (lane, sampler) in lanes.iter_mut().enumerate() {
            sampler.take_samples(&mut told);
            merger.add(lane, &told);
            told.clear();
            merger.end(lane);
        }
        let (whole, merged) = (whole.finish(), merger.finish());
        assert!(whole.samples > 2_500, "{}", whole.samples);
        assert_eq!(merged.samples, whole.samples);
        assert_eq!(
            (merged.in_flight, merged.connections, merged.backlog),
            (whole.in_flight, whole.connections, whole.backlog)
        );
        assert_eq!(merged.seconds, whole.seconds);
    }

    #[test]
    fn an_ended_shard_counts_zero_and_does_not_delay_the_others() {
        let mut merger = GaugeMerger::new(1, at(0), at(0), 2);
        let sample = |in_flight| GaugeSample { in_flight, ..GaugeSample::default() };
        merger.add(0, &[sample(1), sample(1), sample(1)]);
        assert_eq!(merger.second(0), SecondGauges::default(), "the other may still tell of the same moments");
        merger.add(1, &[sample(4)]);
        merger.end(1);
        merger.end(0);
        let levels = merger.finish();
        assert_eq!((levels.samples, levels.in_flight.level.max), (3, 5));
        assert!((levels.in_flight.level.mean - 7.0 / 3.0).abs() < 1e-9);
    }
}
