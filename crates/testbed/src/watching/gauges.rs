//! Gauges of the capture, sampled: open connections, transactions in flight, sessions.
//!
//! Samples are taken in packet time, from the live counters as they were before each packet. Packets are analysed some
//! milliseconds after they passed, many at a time; samples at the thread's own time would see the counters jump. Gauges
//! are never computed from the records, because Little's law compares the two.

use load::{GaugeSampler, Levels, Live};
use units::Timestamp;
use validity::evidence::WireGauges;
use watch::Watch;

/// Samples a [`Watch`] at seeded exponential times, a thousand per second on average.
pub struct WireSampler(GaugeSampler);

impl WireSampler {
    /// Samples from `start` on; the measured phase begins at `measured_from`.
    pub fn new(seed: u64, start: Timestamp, measured_from: Timestamp) -> Self {
        // The sampling times differ from those of the load's sampler.
        WireSampler(GaugeSampler::new(seed ^ SEED_MASK, start, measured_from))
    }

    /// Sets the end of the measured phase.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.0.set_measured_end(end);
    }

    /// Takes the samples that are due by `at`: the counters have not changed since the packet before.
    #[inline]
    pub fn sample(&mut self, at: Timestamp, watch: &Watch) {
        if self.0.next_sample() > at {
            return;
        }
        let live = watch.live();
        // The sampler has three gauges with the load's names; the third is not a backlog here.
        let levels = Live {
            connections: live.connections,
            in_flight: live.in_flight,
            backlog: live.sessions,
            ..Live::default()
        };
        self.0.sample(at, levels);
    }

    /// The figures.
    pub fn finish(&self) -> WireGauges {
        let Levels { in_flight, connections, backlog, samples, .. } = self.0.finish();
        WireGauges { connections, in_flight, sessions: backlog.level, samples }
    }
}

const SEED_MASK: u64 = 0x7769_7265_7769_7265;
