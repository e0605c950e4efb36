//! The passing of time, and the end of the load.

use ledger::FailureCause;
use units::Timestamp;

use super::{Load, Loop};
use crate::connection::State;
use crate::queues::Queue;

/// Calls of `make_arrivals` by which a stopped phase is filled up to its end: a million arrivals. What is still
/// missing then would take all memory.
const CATCH_UP_CALLS_MAX: usize = 256;

impl Load {
    /// Makes the arrivals that are due intended, each at its own moment however late this call is, and ends what has
    /// timed out.
    pub fn handle_time(&mut self, now: Timestamp) {
        self.end_timeouts(now);
        self.make_arrivals(now);
        self.run_workers(now);
        let all_intended = match &self.arrivals {
            Loop::Open(schedule) => !self.phase.admits(schedule.next()),
            Loop::Closed(_) => true,
        };
        if all_intended && self.phase.end().is_some_and(|end| now >= end) {
            self.phase.finish();
        }
    }

    /// Ctrl-C: the measured phase ends now and nothing more is intended. What waits in the backlog was offered and
    /// will not be served: it fails, aborted. What is in flight may end by itself. After the phase this only empties
    /// the backlog.
    pub fn stop(&mut self, now: Timestamp) {
        if !self.phase.is_over() {
            self.end_phase(now);
        }
        while let Some(waiting) = self.backlog.pop_front() {
            let mut record = waiting.record();
            record.done_at = now.max(record.intended_at);
            record.failure = Some(FailureCause::Aborted);
            self.live.backlog -= 1;
            self.live.failed += 1;
            self.records.push(record);
        }
    }

    fn end_phase(&mut self, now: Timestamp) {
        self.phase.end_at(now);
        for _ in 0..CATCH_UP_CALLS_MAX {
            let Loop::Open(schedule) = &self.arrivals else { break };
            if schedule.next() >= now || !self.phase.admits(schedule.next()) {
                break;
            }
            self.make_arrivals(now);
        }
        // A generator hopelessly behind its schedule: the phase ends where its arrivals do.
        if let Loop::Open(schedule) = &self.arrivals {
            self.phase.end_at(schedule.next());
        }
        self.phase.stop(now);
    }

    /// The end, at once: everything not done fails, aborted, and every connection is to be closed. Also closes what
    /// idle connections are left after a load that has finished by itself.
    pub fn abort(&mut self, now: Timestamp) {
        self.stop(now);
        let held: Vec<u32> = self
            .pool
            .iter()
            .filter(|(_, connection)| !matches!(connection.state, State::Free | State::Closing))
            .map(|(index, _)| index)
            .collect();
        for index in held {
            self.end_request(now, index, Some(FailureCause::Aborted));
            self.close(index);
        }
    }

    fn end_timeouts(&mut self, now: Timestamp) {
        while let Some((index, deadline)) =
            self.queues.first(Queue::Connecting).filter(|&(_, deadline)| deadline <= now)
        {
            self.fail(now, deadline, index, FailureCause::ConnectTimeout);
        }
        while let Some((index, deadline)) = self.queues.first(Queue::Awaiting).filter(|&(_, deadline)| deadline <= now)
        {
            self.fail(now, deadline, index, FailureCause::ResponseTimeout);
        }
        while let Some((index, _)) = self.queues.first(Queue::Lingering).filter(|&(_, deadline)| deadline <= now) {
            self.close_and_go_on(now, index);
        }
    }
}
