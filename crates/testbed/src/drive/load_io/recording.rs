//! The load's side of recording: when records are passed to the recorder, and the time that this takes of a shared core.

use std::time::Duration;

use units::Timestamp;

use super::LoadIo;
use crate::recorder::Handover;

/// Records passed to the recorder together: they still are in the cache of the core that wrote them, and the recorder,
/// which may share the core, is done with them in less than a millisecond.
const RECORDS_PER_BATCH: usize = 1024;

impl LoadIo {
    /// Whether as many records have finished as are passed to the recorder together.
    pub fn has_full_batch(&self) -> bool {
        self.load.finished_records() >= RECORDS_PER_BATCH
    }

    /// CPU time that the recorder, on the loop's core, needs for the records passed to it.
    pub fn owed_to_recorder(&self) -> Duration {
        self.handover.as_ref().map_or(Duration::ZERO, Handover::owed)
    }

    /// Notes that the loop left its core to the recorder for this time.
    pub fn left_core_for(&mut self, time: Duration) {
        if let Some(handover) = &mut self.handover {
            handover.pay(time);
        }
    }

    /// Passes finished records to the recorder.
    pub fn flush(&mut self, now: Timestamp) {
        if let Some(handover) = &mut self.handover {
            handover.send_records(&mut self.load, &mut self.sampler, &mut self.stalls, now);
        }
    }

    /// Notes that the loop meant to wake at `due`, and woke at `at`.
    pub fn woke(&mut self, due: Timestamp, at: Timestamp) {
        self.stalls.woke(due, at);
    }
}
