//! Merges the gauge samples of several shards into those of the run.
//!
//! ```text
//!   shard 0: ShardSampler --3 1 4 ..--\
//!   shard 1: ShardSampler --2 2 0 ..---> GaugeMerger: 5 3 4 ..  mean, median, maximum, seconds
//! ```
//!
//! The sampling times depend only on seed and start, so all shards sample at the same times. The gauges of the run at
//! each of these times are the sums over the shards, exactly as if one shard had made the whole load.

use std::collections::VecDeque;

use units::Timestamp;

use super::{Levels, SampleLog, SamplingTimes, SecondGauges, Sums};
use crate::Live;

/// The gauges at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GaugeSample {
    /// Requests started and not ended.
    pub in_flight: u64,
    /// Concurrent connections.
    pub connections: u64,
    /// Requests scheduled and not started.
    pub backlog: u64,
}

impl GaugeSample {
    /// The gauges among the live counters.
    pub const fn of(live: Live) -> Self {
        GaugeSample { in_flight: live.in_flight, connections: live.connections, backlog: live.backlog }
    }
}

/// Samples one shard's counters, as [`GaugeSampler`](super::GaugeSampler) does, and stores the samples for a
/// [`GaugeMerger`].
#[derive(Debug)]
pub struct ShardSampler {
    times: SamplingTimes,
    samples: Vec<GaugeSample>,
}

impl ShardSampler {
    /// A sampler that samples from `start` on. All shards of a run have the same seed and start.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        ShardSampler { times: SamplingTimes::new(seed, start), samples: Vec::new() }
    }

    /// Whether a sample is due by `now`. Inlined, as it is called far more often than samples are due.
    #[inline]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.times.next <= now
    }

    /// Takes every sample due by `now`. `live` has the counters that were valid at all these times.
    #[inline]
    pub fn sample(&mut self, now: Timestamp, live: Live) {
        while self.times.next <= now {
            self.times.take();
            self.samples.push(GaugeSample::of(live));
        }
    }

    /// Moves the samples taken since the last call to the end of `into`, in their order.
    pub fn take_samples(&mut self, into: &mut Vec<GaugeSample>) {
        into.append(&mut self.samples);
    }
}

/// Adds the samples of all shards, for each sampling time.
#[derive(Debug)]
pub struct GaugeMerger {
    times: SamplingTimes,
    merged_until: Timestamp,
    sums: Sums,
    shards: Vec<PendingSamples>,
    /// The merged samples, if they are kept.
    kept: Option<SampleLog>,
}

/// The samples of a shard for times that other shards have not reported yet.
#[derive(Debug, Default)]
struct PendingSamples {
    waiting: VecDeque<GaugeSample>,
    ended: bool,
}

impl GaugeMerger {
    /// A merger for `shards` shards whose samplers began at `start`. Overall statistics begin at `measured_start`.
    pub fn new(seed: u64, start: Timestamp, measured_start: Timestamp, shards: usize) -> Self {
        GaugeMerger {
            times: SamplingTimes::new(seed, start),
            merged_until: Timestamp::ZERO,
            sums: Sums::new(measured_start),
            shards: std::iter::repeat_with(PendingSamples::default).take(shards).collect(),
            kept: None,
        }
    }

    /// Keeps the merged samples, for a load that is divided among machines.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.kept = Some(SampleLog::default());
        self
    }

    /// Takes the merged samples, if they are kept, when all shards have ended.
    pub fn take_kept(&mut self) -> Option<SampleLog> {
        self.shards.iter_mut().for_each(|shard| shard.ended = true);
        self.merge();
        self.kept.take()
    }

    /// Sets the end of the overall statistics. Samples that all shards reported before the call stay counted.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.sums.measured_end = Some(end);
    }

    /// Adds the next samples of a shard.
    ///
    /// # Panics
    /// If the shard does not exist.
    pub fn add(&mut self, shard: usize, samples: &[GaugeSample]) {
        self.shards[shard].waiting.extend(samples);
        self.merge();
    }

    /// Marks a shard as ended: it has reported its last sample, and its gauges are 0 from then on.
    ///
    /// # Panics
    /// If the shard does not exist.
    pub fn end(&mut self, shard: usize) {
        self.shards[shard].ended = true;
        self.merge();
    }

    /// The last sampling time that all shards have reported; zero before the first.
    pub fn merged_until(&self) -> Timestamp {
        self.merged_until
    }

    /// The next sampling time, which not all shards have reported.
    pub fn next_unmerged(&self) -> Timestamp {
        self.times.next
    }

    /// The statistics so far of one second, counted from time zero of the run.
    pub fn second(&self, second: usize) -> SecondGauges {
        self.sums.second(second)
    }

    /// The statistics of all samples. The gauges of a shard that did not end, because it was lost, count as 0 from its
    /// last sample on.
    pub fn finish(mut self) -> Levels {
        self.shards.iter_mut().for_each(|shard| shard.ended = true);
        self.merge();
        self.sums.finish()
    }

    /// Merges every sampling time that all shards have reported.
    fn merge(&mut self) {
        loop {
            let is_complete = self.shards.iter().all(|shard| shard.ended || !shard.waiting.is_empty());
            // After all shards have ended, merging ends with the last sample of any shard.
            if !is_complete || self.shards.iter().all(|shard| shard.waiting.is_empty()) {
                return;
            }
            let mut sum = GaugeSample::default();
            for sample in self.shards.iter_mut().filter_map(|shard| shard.waiting.pop_front()) {
                sum.in_flight += sample.in_flight;
                sum.connections += sample.connections;
                sum.backlog += sample.backlog;
            }
            self.merged_until = self.times.take();
            self.sums.add(self.merged_until, sum);
            if let Some(kept) = &mut self.kept {
                kept.push(sum);
            }
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
        let mut shards: Vec<_> = (0..3).map(|_| ShardSampler::new(5, at(0))).collect();
        whole.set_measured_end(at(4_000));
        merger.set_measured_end(at(4_000));
        let mut reported = Vec::new();
        for step in 1..=500 {
            let levels: Vec<u64> = (0..3).map(|_| 2 * rng.below(10)).collect();
            whole.sample(at(step * 10), live(levels.iter().sum()));
            for (shard, &level) in levels.iter().enumerate() {
                shards[shard].sample(at(step * 10), live(level));
                // Each shard reports at other times.
                if rng.below(4) == 0 {
                    shards[shard].take_samples(&mut reported);
                    merger.add(shard, &reported);
                    reported.clear();
                }
            }
        }
        for (shard, sampler) in shards.iter_mut().enumerate() {
            sampler.take_samples(&mut reported);
            merger.add(shard, &reported);
            reported.clear();
            merger.end(shard);
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
        assert_eq!(merger.second(0), SecondGauges::default(), "the other shard may still report the same times");
        merger.add(1, &[sample(4)]);
        merger.end(1);
        merger.end(0);
        let levels = merger.finish();
        assert_eq!((levels.samples, levels.in_flight.level.max), (3, 5));
        assert!((levels.in_flight.level.mean - 7.0 / 3.0).abs() < 1e-9);
    }
}
