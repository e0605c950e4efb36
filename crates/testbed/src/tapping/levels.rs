//! Little's law at the third witness: connections in process, sampled, and the time that connections took, summed.
//!
//! Samples are taken in the programs' time, from a counter that events move up and down, as it stood before each of them. An
//! event is worked off some milliseconds after it happened; a timer of the thread's own would see the counter stand still
//! and then jump. The sum is of the rows, so that the two know nothing of each other but the events.

use std::sync::Arc;

use load::{LevelSampler, Live};
use schema::TapExchange;
use units::Timestamp;

use crate::drive::progress::Progress;
use validity::evidence::TapLevels;

/// When to sample, and what counts.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Of the moments of sampling.
    pub seed: u64,
    /// They begin here.
    pub start: Timestamp,
    /// What counts begins here.
    pub measured_from: Timestamp,
    /// Says when it ends.
    pub progress: Arc<Progress>,
}

/// Takes both.
#[derive(Debug)]
pub(super) struct TapSampler {
    sampler: LevelSampler,
    setting: Sampling,
    connections_ns: u128,
}

impl TapSampler {
    pub(super) fn new(setting: Sampling) -> Self {
        // Other moments than those of the load's sampler and the wire's.
        let sampler = LevelSampler::new(setting.seed ^ TAP, setting.start, setting.measured_from);
        TapSampler { sampler, setting, connections_ns: 0 }
    }

    /// Takes note of the end of the phase, if it is known by now. Call it before what happened since is worked off.
    pub(super) fn look(&mut self) {
        if let Some(end) = self.setting.progress.measured_end() {
            self.sampler.set_measured_end(end);
        }
    }

    /// So many connections were in process until `at`, since the last call.
    pub(super) fn sample(&mut self, at: Timestamp, connections: u64) {
        if self.sampler.next_sample() <= at {
            self.sampler.sample(at, Live { connections, ..Live::default() });
        }
    }

    /// Adds a connection's time, when its last row is there.
    pub(super) fn add(&mut self, row: &TapExchange) {
        if !row.last || row.connection.is_none() {
            return;
        }
        let end = self.setting.progress.measured_end();
        // One that is open as the run ends was open to the end of the phase.
        let to = row.closed_at.or(end).unwrap_or(row.opened_at);
        let (from, to) = (row.opened_at.max(self.setting.measured_from), end.map_or(to, |end| to.min(end)));
        if from < to {
            self.connections_ns += to.since(from).as_nanos();
        }
    }

    /// The figures; `now` is the phase's end where nobody said one.
    pub(super) fn finish(&self, now: Timestamp) -> TapLevels {
        let end = self.setting.progress.measured_end().unwrap_or(now);
        let levels = self.sampler.finish();
        TapLevels {
            connections: levels.connections,
            samples: levels.samples,
            connections_ns: self.connections_ns,
            phase_ns: units::time::saturating_nanos(end.since(self.setting.measured_from)),
        }
    }
}

const TAP: u64 = 0x7461_7074_6170_7461;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn row(opened: u64, closed: Option<u64>) -> TapExchange {
        TapExchange {
            connection: Some(0),
            last: true,
            opened_at: at(opened),
            closed_at: closed.map(at),
            ..TapExchange::BLANK
        }
    }

    #[test]
    fn both_sides_count_what_lies_in_the_phase() {
        let progress = Arc::new(Progress::default());
        let mut sampler = TapSampler::new(Sampling {
            seed: 1,
            start: at(0),
            measured_from: at(1_000),
            progress: Arc::clone(&progress),
        });
        // One from 0.5 s to 3 s, one from 2 s that is still open.
        sampler.sample(at(500), 0);
        sampler.sample(at(2_000), 1);
        progress.set_measured_end(at(4_000));
        sampler.look();
        sampler.sample(at(3_000), 2);
        sampler.sample(at(5_000), 1);
        sampler.add(&row(500, Some(3_000)));
        sampler.add(&row(2_000, None));
        sampler.add(&TapExchange { last: false, ..row(500, Some(3_000)) });
        sampler.add(&TapExchange { connection: None, ..row(500, Some(3_000)) });
        let levels = sampler.finish(at(9_000));
        assert_eq!((levels.connections_ns, levels.phase_ns), (4_000_000_000, 3_000_000_000));
        let mean = levels.connections.level.mean;
        assert!((mean - 4.0 / 3.0).abs() < 0.05, "{mean} of {} samples", levels.samples);
        assert!(levels.samples > 2_000 && levels.samples < 4_000, "a thousand a second: {}", levels.samples);
    }
}
