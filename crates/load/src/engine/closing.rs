//! The end of requests and of connections, and what follows from it.

use std::time::Duration;

use ledger::FailureCause;
use units::Timestamp;

use super::output::What;
use super::{Load, Loop};
use crate::connection::State;
use crate::queues::Queue;
use crate::spec::Reuse;

/// How long a connection whose end was announced waits for the server's FIN, so that the server closes first and
/// TIME_WAIT is where it is in the world: a server that announces its close and means it sends FIN within a round trip.
pub(super) const LINGER: Duration = Duration::from_secs(1);

impl Load {
    /// The response is whole; `closed` if the server's close ended it.
    pub(super) fn response_whole(&mut self, now: Timestamp, index: u32, closed: bool) {
        // An answer that comes before the request was written leaves the connection in the middle of that request.
        let key = self.pool.key(index);
        let unsent = !self.unsent(key).is_empty();
        self.queues.remove(index);
        let response = &mut self.pool.at(index).response;
        if self.first_head.is_none() {
            self.first_head = response.take_head();
        }
        self.end_request(now, index, None);
        let connection = self.pool.at(index);
        let keep = self.spec.reuse == Reuse::KeepAlive && connection.response.keep_alive();
        if let Loop::Closed(workers) = &mut self.arrivals {
            workers.answered(connection.worker);
        }
        if closed || unsent {
            self.close_and_go_on(now, index);
        } else if !keep {
            self.pool.at(index).state = State::Lingering;
            self.lingering += 1;
            self.queues.push(Queue::Lingering, index, now + LINGER);
        } else if let Loop::Closed(_) = self.arrivals {
            self.issue_on(now, index);
        } else if let Some(request) = self.waiting_for(index) {
            self.send_on(index, request);
        } else {
            self.enter_idle(now, index);
            self.serve_backlog();
        }
    }

    /// The request of a connection failed at `done_at`, which is `now` or a deadline just before it.
    pub(super) fn fail(&mut self, now: Timestamp, done_at: Timestamp, index: u32, cause: FailureCause) {
        let pause = self.pool.at(index).request.as_ref().is_some_and(|request| request.first_byte_at.is_none())
            && cause != FailureCause::ResponseTimeout;
        self.end_request(done_at, index, Some(cause));
        let worker = self.pool.at(index).worker;
        self.close(index);
        match &mut self.arrivals {
            Loop::Open(_) => self.serve_backlog(),
            Loop::Closed(workers) if pause => workers.pause(worker, now),
            Loop::Closed(_) => self.issue(now, worker),
        }
    }

    /// Sends a request that got no answer once more, on a fresh connection.
    pub(super) fn retry(&mut self, index: u32) {
        self.live.retried += 1;
        self.reopen(index, true);
    }

    /// Moves a request to a fresh connection of the same client.
    pub(super) fn reopen(&mut self, index: u32, retried: bool) {
        let connection = self.pool.at(index);
        let worker = connection.worker;
        let Some(mut request) = connection.request.take() else { return };
        request.connection = None;
        request.sent_at = None;
        self.close(index);
        self.open_for(request, retried, worker);
    }

    /// Closes a connection without a request and lets others, or its successor, go on.
    pub(super) fn close_and_go_on(&mut self, now: Timestamp, index: u32) {
        // An idle connection of a closed loop is one for which there was nothing more to do.
        let connection = self.pool.at(index);
        let (worker, was_idle) = (connection.worker, connection.state == State::Idle);
        self.close(index);
        match &self.arrivals {
            Loop::Open(_) => self.serve_backlog(),
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
            State::Lingering => self.lingering -= 1,
            State::Free
            | State::Wanted
            | State::Connecting
            | State::Securing
            | State::Ready
            | State::Awaiting
            | State::Closing => {}
        }
        self.queues.remove(index);
        let in_process = self.pool.at(index).is_in_process();
        self.pool.close(index);
        if in_process {
            self.act(index, What::Close);
        } else {
            // Its Connect was never handed out, and never will be: the driver does not know it.
            self.pool.release(index);
        }
    }

    /// Writes the record of the request of connection `index`.
    pub(super) fn end_request(&mut self, done_at: Timestamp, index: u32, failure: Option<FailureCause>) {
        let connection = self.pool.at(index);
        let Some(mut request) = connection.request.take() else { return };
        // Until its own request was sent, a connection may still show the response before.
        if request.first_byte_at.is_some() {
            request.head_bytes = connection.response.head_bytes();
            request.keeps_connection = failure.is_none() && connection.response.keep_alive();
        }
        request.done_at = done_at;
        request.failure = failure;
        if request.started_at.is_some() {
            self.live.in_flight -= 1;
        } else {
            self.live.backlog -= 1;
        }
        match failure {
            None => self.live.completed += 1,
            Some(_) => self.live.failed += 1,
        }
        self.records.push(request);
        self.last_done_at = self.last_done_at.max(done_at);
        if self.live.in_flight == 0 && self.live.backlog == 0 {
            self.drained();
        }
    }

    /// Nothing is in flight. A closed loop that has issued all its requests ends its measured phase with the last of
    /// them: there is no later arrival that could mark the end.
    fn drained(&mut self) {
        if self.phase.is_full() && matches!(self.arrivals, Loop::Closed(_)) {
            self.phase.end_at(self.last_done_at + Duration::from_nanos(1));
            self.phase.finish();
        }
    }
}
