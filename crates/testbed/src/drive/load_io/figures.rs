//! The load engine's counters and its end, as the loop reads them.

use load::{CacheCounters, Live};
use units::Timestamp;

use super::LoadIo;

impl LoadIo {
    /// The time at which the core must be called next.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let timer = self.quic.as_ref().and_then(|quic| quic.next_timer());
        [self.load.next_wake(), timer, self.next_migration()].into_iter().flatten().min()
    }

    /// Whether requests wait because all connections are busy, as many as may be open.
    pub fn waits_for_connection(&self) -> bool {
        self.load.waits_for_connection()
    }

    /// Whether the last iteration left immediate work.
    pub fn unfinished(&self) -> bool {
        self.more || !self.unread.is_empty()
    }

    /// Whether no target uses TLS, and connections carry one request at a time.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none() && self.http2.is_none()
    }

    /// Whether the load is a closed loop.
    pub fn is_closed(&self) -> bool {
        self.load.is_closed()
    }

    /// The core's live counters.
    pub fn live(&self) -> Live {
        self.load.live()
    }

    /// The core's counters of a cache workload.
    pub fn mix(&self) -> CacheCounters {
        self.load.cache_counters()
    }

    /// The measured phase, its end as far as it is known.
    pub fn measured(&self) -> (Timestamp, Option<Timestamp>) {
        self.load.measured()
    }

    /// Sets the end of the measured phase, a future time.
    pub fn end_at(&mut self, at: Timestamp) {
        self.load.end_at(at);
    }

    /// Ends the measured phase.
    pub fn stop(&mut self, now: Timestamp) {
        self.sampler.sample(now, self.load.live());
        self.load.stop(now);
    }

    /// Ends everything in flight.
    pub fn abort(&mut self, now: Timestamp) {
        self.note_unacknowledged_at_timeout(Timestamp::MAX);
        self.sampler.sample(now, self.load.live());
        self.load.abort(now);
    }

    /// Whether the schedule is over and nothing is left in flight.
    pub fn finished(&self) -> bool {
        self.load.finished()
    }
}
