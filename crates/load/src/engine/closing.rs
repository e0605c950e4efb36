//! The end of requests and of connections, and what follows from it.

use std::time::Duration;

use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use super::evaluation::{Answer, Ended};
use super::output::What;
use super::{Load, Loop};
use crate::connection::State;
use crate::http1::Response;
use crate::in_flight::Onward;
use crate::spec::Reuse;

impl Load {
    /// The response is complete; `closed` if the server's close ended it.
    pub(super) fn response_whole(&mut self, now: Timestamp, index: u32, closed: bool) {
        // A response that comes before the server has the whole request leaves the connection in the middle of that request
        // (RFC 9112, section 9.5).
        let early = self.note_unreceived(index, true);
        self.queues.remove(index);
        let response = &mut self.pool.at(index).response;
        self.live.stray_lines += u64::from(response.take_stray_lines());
        if self.first_head.is_none() {
            self.first_head = Some(response.head().into());
        }
        let onward = self.end_request(now, index, None);
        let connection = self.pool.at(index);
        let keep = self.spec.reuse == Reuse::KeepAlive && connection.response.keep_alive() && !connection.is_used_up();
        if let Loop::Closed(workers) = &mut self.arrivals {
            workers.answered(connection.worker, onward);
        }
        if closed || early || !keep {
            self.close_and_go_on(now, index);
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
        self.note_not_held(index);
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

    /// The request of connection `index` is about to end: takes what the peer has not acknowledged off its bytes. Whether
    /// something of the request is missing at the peer; of a complete response it is noted as early.
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

    /// Sends a request that got no answer once more, on a fresh connection.
    pub(super) fn retry(&mut self, index: u32) {
        self.live.retried += 1;
        self.note_unreceived(index, false);
        self.reopen(index, true);
    }

    /// Moves a request to a fresh connection of the same client.
    pub(super) fn reopen(&mut self, index: u32, retried: bool) {
        let connection = self.pool.at(index);
        let worker = connection.worker;
        let Some(mut request) = connection.request.take() else { return };
        // What was written for the old connection goes along: it must not read otherwise because a cookie or a value
        // has come meanwhile.
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

    /// Closes a connection without a request and lets others, or its successor, go on.
    pub(super) fn close_and_go_on(&mut self, now: Timestamp, index: u32) {
        // An idle connection of a closed loop is one for which there was nothing more to do.
        let connection = self.pool.at(index);
        let (worker, was_idle) = (connection.worker, connection.state == State::Idle);
        self.close(index);
        match &self.arrivals {
            Loop::Open(_) | Loop::Users(_) => {}
            Loop::Closed(_) if was_idle => {}
            Loop::Closed(_) => self.issue(now, worker),
        }
    }

    /// Asks for a connection to be closed, whatever it was doing. It must have no request.
    pub(super) fn close(&mut self, index: u32) {
        let connection = self.pool.at(index);
        debug_assert!(connection.request.is_none(), "a connection is closed after its request has ended");
        match connection.state {
            State::Idle => self.leave_idle(index),
            State::Free
            | State::Wanted
            | State::Connecting
            | State::Securing
            | State::Ready
            | State::Awaiting
            | State::Carrying
            | State::Closing => {}
        }
        self.queues.remove(index);
        self.stuck = false;
        let in_process = self.pool.at(index).is_in_process();
        self.note_closes(index);
        self.pool.close(index);
        if in_process {
            self.act(index, What::Close);
        } else {
            // Its Connect was never handed out, and never will be: the driver does not know it.
            self.pool.release(index);
        }
    }

    /// Ends the request of connection `index`, if it has one: with a complete response, or for a cause. In a closed loop, the
    /// next hop of a redirect comes back.
    pub(super) fn end_request(
        &mut self,
        done_at: Timestamp,
        index: u32,
        failure: Option<FailureCause>,
    ) -> Option<Onward> {
        let connection = self.pool.at(index);
        if connection.is_written && connection.request.is_some() {
            connection.forget_written();
        }
        let request = connection.request.as_mut()?;
        if self.virtual_users.is_some() {
            return self.end_asked(done_at, index, failure);
        }
        if failure.is_none() && self.outlines[request.record.url as usize].is_judged() {
            return self.end_judged(done_at, index);
        }
        // Nearly every request. Its record is copied once, from where it stands, and changed where it goes: bytes that
        // were written a moment ago are slow to copy.
        let ended = Ended::of(request, failure.map_or(Ok(()), Err));
        self.records.extend_from_slice(std::slice::from_ref(&request.record));
        let record = self.records.last_mut().expect("it was just put there");
        record.done_at = done_at;
        record.failure = failure;
        note_response(record, &connection.response, failure.is_none());
        connection.request = None;
        self.settle(done_at, ended, None)
    }

    /// Ends a request whose complete response is looked at.
    #[inline(never)]
    fn end_judged(&mut self, done_at: Timestamp, index: u32) -> Option<Onward> {
        let connection = self.pool.at(index);
        let mut request = connection.request.take()?;
        // Out of the pool meanwhile.
        let response = std::mem::take(&mut connection.response);
        note_response(&mut request.record, &response, true);
        let answer = Answer {
            status: response.status(),
            head: response.head(),
            body: response.body(),
            body_length: response.body_length(),
        };
        let onward = self.conclude(done_at, request, Ok(answer));
        self.pool.at(index).response = response;
        onward
    }

    /// Nothing is in flight. A closed loop that has issued all its requests ends its measured phase with the last of
    /// them: there is no later arrival that could mark the end.
    pub(super) fn drained(&mut self, now: Timestamp) {
        if self.phase.is_full() && !matches!(self.arrivals, Loop::Open(_)) {
            self.phase.end_at(self.last_done_at + Duration::from_nanos(1));
            self.finish_phase(now);
        }
    }
}

/// What a response tells of itself, for the record of its request.
#[inline]
pub(super) fn note_response(record: &mut RequestRecord, response: &Response, is_whole: bool) {
    // Until its own request was sent, a connection may still show the response before.
    if record.first_byte_at.is_some() {
        record.head_bytes = response.head_bytes();
        record.keep_alive = is_whole && response.keep_alive();
    }
}
