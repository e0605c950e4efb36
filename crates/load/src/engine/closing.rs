//! Ends requests and connections, and starts what depends on their end.

use std::time::Duration;

use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use super::evaluation::{Ended, ReceivedResponse};
use super::output::ActionKind;
use super::{Load, Loop};
use crate::connection::State;
use crate::http1::Response;
use crate::in_flight::FollowUp;
use crate::spec::Reuse;

impl Load {
    /// The response is complete; `closed` if the server's close marked its end.
    pub(super) fn response_whole(&mut self, now: Timestamp, index: u32, closed: bool) {
        // After a response that is complete before the request, the connection is still in the middle of that request
        // and must be closed (RFC 9112, section 9.5).
        let early = self.note_unreceived(index, true);
        self.queues.remove(index);
        let response = &mut self.pool.at(index).response;
        self.live.stray_lines += u64::from(response.take_stray_lines());
        if self.first_head.is_none() {
            self.first_head = Some(response.head().into());
        }
        let follow_up = self.end_request(now, index, None);
        let connection = self.pool.at(index);
        let keep = self.spec.reuse == Reuse::KeepAlive && connection.response.keep_alive() && !connection.is_used_up();
        if let Loop::Closed(workers) = &mut self.arrivals {
            workers.answered(connection.worker, follow_up);
        }
        if closed || early || !keep {
            self.close_and_continue(now, index);
        } else if let Loop::Closed(_) = self.arrivals {
            self.issue_on(now, index);
        } else if let Some(waiting) = self.waiting_for(index) {
            self.send_on(index, waiting);
        } else {
            self.enter_idle(now, index);
        }
        self.make_follow_ups(now);
    }

    /// The request of a connection failed at `done_at`, which is `now` or a deadline just before it.
    pub(super) fn fail(&mut self, now: Timestamp, done_at: Timestamp, index: u32, cause: FailureCause) {
        let pause = self.pool.at(index).request.as_ref().is_some_and(|request| request.record.first_byte_at.is_none())
            && cause != FailureCause::ResponseTimeout;
        self.note_connection_failed(index);
        self.note_unreceived(index, false);
        self.end_request(done_at, index, Some(cause));
        let worker = self.pool.at(index).worker;
        self.close(index);
        match &mut self.arrivals {
            Loop::Open(_) | Loop::Users(_) => {}
            Loop::Closed(workers) if pause => workers.pause(worker, now),
            Loop::Closed(_) => self.issue(now, worker),
        }
        self.make_follow_ups(now);
    }

    /// Subtracts the unacknowledged bytes from the bytes sent of a request that is about to end. Returns whether the
    /// server has not received the whole request; a complete response is then recorded as early.
    pub(super) fn note_unreceived(&mut self, index: u32, whole: bool) -> bool {
        let unsent = !self.unsent(self.pool.key(index)).is_empty();
        let connection = self.pool.at(index);
        let Some(request) = &mut connection.request else { return false };
        let missing = std::mem::take(&mut connection.unacknowledged).min(request.record.bytes_sent);
        request.record.bytes_sent -= missing;
        let early = unsent || missing > 0;
        if whole && early {
            request.record.early_response = true;
            self.live.early_responses += 1;
        }
        early
    }

    /// Sends a request without a response once more, on a new connection.
    pub(super) fn retry(&mut self, index: u32) {
        self.live.retried += 1;
        self.note_unreceived(index, false);
        self.reopen(index, true);
    }

    /// Moves a request to a new connection of the same client.
    pub(super) fn reopen(&mut self, index: u32, retried: bool) {
        let connection = self.pool.at(index);
        let worker = connection.worker;
        let Some(mut request) = connection.request.take() else { return };
        // The new connection sends the same bytes, even if a cookie or a value has changed since.
        let written = std::mem::take(&mut connection.is_written).then(|| std::mem::take(&mut connection.bytes));
        request.record.connection = None;
        request.record.sent_at = None;
        request.retried |= retried;
        self.close(index);
        let fresh = self.open_for(request, worker);
        if let Some(bytes) = written {
            let connection = self.pool.at(fresh);
            (connection.is_written, connection.bytes) = (true, bytes);
        }
    }

    /// Closes a connection without a request. In a closed loop its worker issues the next request.
    pub(super) fn close_and_continue(&mut self, now: Timestamp, index: u32) {
        // In a closed loop a connection is idle only if its worker has no more requests.
        let connection = self.pool.at(index);
        let (worker, was_idle) = (connection.worker, connection.state == State::Idle);
        self.close(index);
        match &self.arrivals {
            Loop::Open(_) | Loop::Users(_) => {}
            Loop::Closed(_) if was_idle => {}
            Loop::Closed(_) => self.issue(now, worker),
        }
    }

    /// Queues the Close of a connection in any state. The connection must have no request.
    pub(super) fn close(&mut self, index: u32) {
        let connection = self.pool.at(index);
        debug_assert!(connection.request.is_none(), "a connection is closed after its request has ended");
        match connection.state {
            State::Idle => self.leave_idle(index),
            State::Free
            | State::ConnectQueued
            | State::Connecting
            | State::Securing
            | State::Ready
            | State::Awaiting
            | State::StreamsReady
            | State::Closing => {}
        }
        self.queues.remove(index);
        self.all_busy = false;
        let in_process = self.pool.at(index).is_in_process();
        self.note_closes(index);
        self.pool.close(index);
        if in_process {
            self.act(index, ActionKind::Close);
        } else {
            // The driver never fetched its Connect, so it has no socket to close.
            self.pool.release(index);
        }
    }

    /// Ends the request of connection `index`, if it has one, with a complete response or with a failure. In a closed
    /// loop it returns the next hop of a redirect.
    pub(super) fn end_request(
        &mut self,
        done_at: Timestamp,
        index: u32,
        failure: Option<FailureCause>,
    ) -> Option<FollowUp> {
        let connection = self.pool.at(index);
        if connection.is_written && connection.request.is_some() {
            connection.forget_written();
        }
        let request = connection.request.as_mut()?;
        if self.virtual_users.is_some() {
            return self.end_workload_request(done_at, index, failure);
        }
        if failure.is_none() && self.outlines[request.record.url as usize].is_evaluated() {
            return self.end_evaluated(done_at, index);
        }
        // The path of nearly every request. The record is copied once and then changed in its final place: copying
        // bytes that were just written is slow.
        let ended = Ended::of(request, failure.map_or(Ok(()), Err));
        self.records.extend_from_slice(std::slice::from_ref(&request.record));
        let record = self.records.last_mut().expect("the record was just added");
        record.done_at = done_at;
        record.failure = failure;
        note_response(record, &connection.response, failure.is_none());
        connection.request = None;
        self.settle(done_at, ended, None)
    }

    /// Ends a request whose complete response is evaluated.
    #[inline(never)]
    fn end_evaluated(&mut self, done_at: Timestamp, index: u32) -> Option<FollowUp> {
        let connection = self.pool.at(index);
        let mut request = connection.request.take()?;
        // The response leaves the pool during the evaluation, which borrows all of `self`.
        let response = std::mem::take(&mut connection.response);
        note_response(&mut request.record, &response, true);
        let received = ReceivedResponse {
            status: response.status(),
            head: response.head(),
            body: response.body(),
            body_length: response.body_length(),
        };
        let follow_up = self.conclude(done_at, request, Ok(received));
        self.pool.at(index).response = response;
        follow_up
    }

    /// Called when no request is in flight. A closed loop that has issued all its requests ends its measured phase with
    /// the last of them, as no later arrival marks the end.
    pub(super) fn all_ended(&mut self, now: Timestamp) {
        if self.phase.is_full() && !matches!(self.arrivals, Loop::Open(_)) {
            self.phase.end_at(self.last_done_at + Duration::from_nanos(1));
            self.finish_phase(now);
        }
    }
}

/// Copies the size of the head and the persistence of the connection from a response to its request's record.
#[inline]
pub(super) fn note_response(record: &mut RequestRecord, response: &Response, is_whole: bool) {
    // Until the request is sent, `response` may still be the previous one on the connection.
    if record.first_byte_at.is_some() {
        record.head_bytes = response.head_bytes();
        record.keep_alive = is_whole && response.keep_alive();
    }
}
