//! Handles the passing of time and the end of the load.

use std::time::Duration;

use schema::FailureCause;
use units::Timestamp;

use super::dispatch::BacklogRequest;
use super::{Load, Loop};
use crate::connection::State;
use crate::queues::Queue;

/// Maximum calls of `make_due` that schedule the remaining arrivals of a stopped phase: a million arrivals. More would
/// exhaust the memory.
const CATCH_UP_CALLS_MAX: usize = 256;

/// Bounds of the time for which idle connections are watched for unsolicited responses after the last request has
/// ended.
const IDLE_WATCH_MIN: Duration = Duration::from_millis(20);
const IDLE_WATCH_MAX: Duration = Duration::from_secs(1);

impl Load {
    /// Schedules the arrivals that are due, each at its own time however late this call is, and ends requests that have
    /// timed out.
    pub fn handle_time(&mut self, now: Timestamp) {
        self.end_timeouts(now);
        self.open_and_close_idle(now);
        self.make_due(now);
        self.run_workers(now);
        self.watch_idle(now);
        if self.phase.end().is_some_and(|end| now >= end) && !self.has_more_due() {
            self.finish_phase(now);
        }
    }

    /// Whether an arrival or a follow-up remains to be scheduled in the phase.
    fn has_more_due(&self) -> bool {
        let arrival = if let Loop::Open(source) = &self.arrivals { Some(source.next()) } else { None };
        [arrival, self.due.next()].into_iter().flatten().any(|at| self.phase.admits(at))
    }

    /// Ends the phase: its end has passed, and everything before the end has been scheduled.
    pub(super) fn finish_phase(&mut self, now: Timestamp) {
        self.phase.finish();
        self.cut_sessions(now);
    }

    /// Ends the measured phase at `at`, unless it ends earlier. `at` is in the future and the same for every shard; the
    /// driver calls [`Self::stop`] then.
    pub fn end_at(&mut self, at: Timestamp) {
        self.phase.end_at(at);
    }

    /// Ends the measured phase now, as after Ctrl-C: no more requests are scheduled. Requests of the backlog count as
    /// offered and fail as aborted. Requests in flight may still complete. After the phase this call only clears the
    /// backlog.
    pub fn stop(&mut self, now: Timestamp) {
        if !self.phase.is_over() {
            self.end_phase(now);
        }
        while let Some(waiting) = self.backlog.pop_front() {
            let waiting = BacklogRequest { queued: self.capped, ..waiting };
            self.conclude(now.max(waiting.scheduled_at), waiting.into_in_flight(), Err(FailureCause::Aborted));
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
        // If the generator is too far behind its schedule, the phase ends with the last scheduled arrival.
        if let Loop::Open(source) = &self.arrivals {
            self.phase.end_at(source.next());
        }
        self.phase.stop(now);
        self.cut_sessions(now);
    }

    /// Ends the load immediately: every unfinished request fails as aborted, and every connection is closed. After a
    /// load that has finished by itself it closes the remaining idle connections.
    pub fn abort(&mut self, now: Timestamp) {
        self.stop(now);
        self.abort_streams(now);
        let open: Vec<u32> = self
            .pool
            .iter()
            .filter(|(_, connection)| !matches!(connection.state, State::Free | State::Closing))
            .map(|(index, _)| index)
            .collect();
        for index in open {
            self.note_unreceived(index, false);
            self.end_request(now, index, Some(FailureCause::Aborted));
            self.close(index);
        }
        self.drop_follow_ups(now);
        debug_assert!(self.purposes.is_empty(), "purposes end with their requests");
        debug_assert!(self.sessions.is_empty(), "sessions end with their requests");
        debug_assert!(
            self.virtual_users.as_ref().is_none_or(|virtual_users| virtual_users.is_empty()),
            "pages end with their requests"
        );
    }

    /// Watches idle connections for a while after the last request has ended. A server that sent more responses than it
    /// received requests then sends an unsolicited response, which shows that requests were paired with the wrong
    /// responses ([`Live::untrusted`](crate::Live::untrusted)).
    fn watch_idle(&mut self, now: Timestamp) {
        if !self.idle_watched && self.is_at_rest() {
            self.idle_watched = now >= self.idle_watch_end();
        }
    }

    /// When idle connections have been watched for long enough: the duration of the slowest response, within bounds.
    pub(super) fn idle_watch_end(&self) -> Timestamp {
        self.last_done_at + self.service_time_max.clamp(IDLE_WATCH_MIN, IDLE_WATCH_MAX)
    }

    /// Whether the watch of idle connections is over. HTTP/2 and HTTP/3 need none: an unsolicited
    /// stream is a protocol error.
    pub(super) fn is_idle_watched(&self) -> bool {
        self.idle_watched || self.pool.open() == 0 || self.is_multiplexed()
    }

    fn end_timeouts(&mut self, now: Timestamp) {
        while let Some((index, deadline)) =
            self.queues.first(Queue::Connecting).filter(|&(_, deadline)| deadline <= now)
        {
            if self.is_multiplexed() {
                self.stream_connection_lost(now, deadline, index, Some(FailureCause::ConnectTimeout));
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
