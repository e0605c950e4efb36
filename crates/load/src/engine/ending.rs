//! The passing of time, and the end of the load.

use std::time::Duration;

use schema::FailureCause;
use units::Timestamp;

use super::dispatch::Waiting;
use super::{Load, Loop};
use crate::connection::State;
use crate::queues::Queue;

/// Calls of `make_due` by which a stopped phase is filled up to its end: a million arrivals. What is still
/// missing then would take all memory.
const CATCH_UP_CALLS_MAX: usize = 256;

/// Bounds of the time for which idle connections are watched after the last request has ended.
const IDLE_WATCH_MIN: Duration = Duration::from_millis(20);
const IDLE_WATCH_MAX: Duration = Duration::from_secs(1);

impl Load {
    /// Makes the arrivals that are due intended, each at its own moment however late this call is, and ends what has
    /// timed out.
    pub fn handle_time(&mut self, now: Timestamp) {
        self.end_timeouts(now);
        self.hold(now);
        self.make_due(now);
        self.run_workers(now);
        self.watch_idle(now);
        if self.phase.end().is_some_and(|end| now >= end) && !self.has_more_due() {
            self.finish_phase(now);
        }
    }

    /// Whether something that is still to be intended has its moment.
    fn has_more_due(&self) -> bool {
        let arrival = if let Loop::Open(turns) = &self.arrivals { Some(turns.next()) } else { None };
        [arrival, self.due.next()].into_iter().flatten().any(|at| self.phase.admits(at))
    }

    /// Everything intended before the end of the phase has been intended, and the end has passed.
    pub(super) fn finish_phase(&mut self, now: Timestamp) {
        self.phase.finish();
        self.cut_sessions(now);
    }

    /// The measured phase ends at `at`, unless it ends earlier: a moment to come, the same for every shard, at which
    /// [`Self::stop`] is to follow.
    pub fn end_at(&mut self, at: Timestamp) {
        self.phase.end_at(at);
    }

    /// Ctrl-C: the measured phase ends now and nothing more is intended. What waits in the backlog was offered and
    /// will not be served: it fails, aborted. What is in flight may end by itself. After the phase this only empties
    /// the backlog.
    pub fn stop(&mut self, now: Timestamp) {
        if !self.phase.is_over() {
            self.end_phase(now);
        }
        while let Some(waiting) = self.backlog.pop_front() {
            let waiting = Waiting { queued: self.capped, ..waiting };
            self.conclude(now.max(waiting.scheduled_at), waiting.in_hand(), Err(FailureCause::Aborted));
        }
    }

    fn end_phase(&mut self, now: Timestamp) {
        self.phase.end_at(now);
        for _ in 0..CATCH_UP_CALLS_MAX {
            if !self.has_more_due() {
                break;
            }
            self.make_due(now);
        }
        // A generator hopelessly behind its schedule: the phase ends where its arrivals do.
        if let Loop::Open(turns) = &self.arrivals {
            self.phase.end_at(turns.next());
        }
        self.phase.stop(now);
        self.cut_sessions(now);
    }

    /// The end, at once: everything not done fails, aborted, and every connection is to be closed. Also closes what
    /// idle connections are left after a load that has finished by itself.
    pub fn abort(&mut self, now: Timestamp) {
        self.stop(now);
        self.abort_streams(now);
        let held: Vec<u32> = self
            .pool
            .iter()
            .filter(|(_, connection)| !matches!(connection.state, State::Free | State::Closing))
            .map(|(index, _)| index)
            .collect();
        for index in held {
            self.note_unreceived(index, false);
            self.end_request(now, index, Some(FailureCause::Aborted));
            self.close(index);
        }
        self.drop_onwards(now);
        debug_assert!(self.purposes.is_empty(), "what requests are part of ends with them");
        debug_assert!(self.sessions.is_empty(), "sessions end with their requests");
        debug_assert!(
            self.virtual_users.as_ref().is_none_or(|virtual_users| virtual_users.is_empty()),
            "pages end with their asks"
        );
    }

    /// Idle connections stay open for a while after the last request has ended: a response that no request asked for comes
    /// then, where a server has answered more often than it was asked, and shows that requests were paired with the wrong
    /// responses ([`Live::untrusted`](crate::Live::untrusted)).
    fn watch_idle(&mut self, now: Timestamp) {
        if !self.idle_watched && self.is_at_rest() {
            self.idle_watched = now >= self.idle_watch_end();
        }
    }

    /// When idle connections have been watched for as long as the slowest response took.
    pub(super) fn idle_watch_end(&self) -> Timestamp {
        self.last_done_at + self.service_time_max.clamp(IDLE_WATCH_MIN, IDLE_WATCH_MAX)
    }

    /// Whether nothing waits for idle connections any more. A surplus stream of HTTP/2 is an error by itself.
    pub(super) fn is_idle_watched(&self) -> bool {
        self.idle_watched || self.pool.open() == 0 || self.is_multiplexed()
    }

    fn end_timeouts(&mut self, now: Timestamp) {
        while let Some((index, deadline)) =
            self.queues.first(Queue::Connecting).filter(|&(_, deadline)| deadline <= now)
        {
            if self.is_multiplexed() {
                self.trunk_lost(now, deadline, index, Some(FailureCause::ConnectTimeout));
            } else {
                self.fail(now, deadline, index, FailureCause::ConnectTimeout);
            }
        }
        self.end_stream_timeouts(now);
        while let Some((index, deadline)) = self.queues.first(Queue::Awaiting).filter(|&(_, deadline)| deadline <= now)
        {
            self.fail(now, deadline, index, FailureCause::ResponseTimeout);
        }
    }
}
