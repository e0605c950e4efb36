//! Little's law at the tap: open connections, sampled, and the time that connections were open, summed.
//!
//! Samples are taken in the programs' time, from a counter that events change, as it was before each of them. An event
//! is processed some milliseconds after it happened; samples at the thread's own time would see the counter jump. The
//! sum is computed from rows, so that the two share nothing but the events.

use std::sync::Arc;

use load::{GaugeSampler, Live};
use schema::TapExchange;
use units::Timestamp;

use crate::drive::progress::Progress;
use validity::evidence::TapGauges;

/// Sampling times, and the measured phase.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Random numbers of the sampling times.
    pub seed: u64,
    /// Start of sampling.
    pub start: Timestamp,
    /// Start of the measured phase.
    pub measured_from: Timestamp,
    /// Provides the end of the measured phase.
    pub progress: Arc<Progress>,
}

/// The sampler, and the sum of connection times.
#[derive(Debug)]
pub(super) struct TapSampler {
    sampler: GaugeSampler,
    setting: Sampling,
    connections_ns: u128,
}

impl TapSampler {
    pub(super) fn new(setting: Sampling) -> Self {
        // The sampling times differ from those of the load's and the capture's samplers.
        let sampler = GaugeSampler::new(setting.seed ^ SEED_MASK, setting.start, setting.measured_from);
        TapSampler { sampler, setting, connections_ns: 0 }
    }

    /// Reads the end of the phase, if it is known by now. Call it before later events are processed.
    pub(super) fn read_measured_end(&mut self) {
        if let Some(end) = self.setting.progress.measured_end() {
            self.sampler.set_measured_end(end);
        }
    }

    /// Samples the gauge: this many connections were open from the last call until `at`.
    pub(super) fn sample(&mut self, at: Timestamp, connections: u64) {
        if self.sampler.next_sample() <= at {
            self.sampler.sample(at, Live { connections, ..Live::default() });
        }
    }

    /// Adds a connection's time, when its last row is complete.
    pub(super) fn add(&mut self, row: &TapExchange) {
        if !row.last || row.connection.is_none() {
            return;
        }
        let end = self.setting.progress.measured_end();
        // A connection open at the end of the run was open to the end of the phase.
        let to = row.closed_at.or(end).unwrap_or(row.opened_at);
        let (from, to) = (row.opened_at.max(self.setting.measured_from), end.map_or(to, |end| to.min(end)));
        if from < to {
            self.connections_ns += to.since(from).as_nanos();
        }
    }

    /// The figures; `now` is the phase's end if none is known.
    pub(super) fn finish(&self, now: Timestamp) -> TapGauges {
        let end = self.setting.progress.measured_end().unwrap_or(now);
        let levels = self.sampler.finish();
        TapGauges {
            connections: levels.connections,
            samples: levels.samples,
            connections_ns: self.connections_ns,
            phase_ns: units::time::saturating_nanos(end.since(self.setting.measured_from)),
        }
    }
}

const SEED_MASK: u64 = 0x7461_7074_6170_7461;

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
    fn gauge_and_sum_count_the_time_in_the_measured_phase() {
        let progress = Arc::new(Progress::default());
        let mut sampler = TapSampler::new(Sampling {
            seed: 1,
            start: at(0),
            measured_from: at(1_000),
            progress: Arc::clone(&progress),
        });
        // One connection from 0.5 s to 3 s, and one from 2 s that is still open.
        sampler.sample(at(500), 0);
        sampler.sample(at(2_000), 1);
        progress.set_measured_end(at(4_000));
        sampler.read_measured_end();
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
