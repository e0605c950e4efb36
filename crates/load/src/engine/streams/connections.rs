//! Handles the events of whole connections with streams.

use schema::FailureCause;
use units::Timestamp;

use super::super::input::RACE_MARGIN;
use super::super::output::ActionKind;
use super::super::{Load, Loop};
use super::{NONE, StreamConnection, StreamState};
use crate::connection::{ConnectionKey, State};
use crate::queues::Queue;
use crate::spec::Reuse;

impl Load {
    /// The server allows `limit` concurrent streams on a connection (SETTINGS; the transport parameter
    /// initial_max_streams_bidi).
    pub fn handle_stream_limit(&mut self, now: Timestamp, key: ConnectionKey, limit: u32) {
        if self.is_streams_ready(key) {
            let endpoint = usize::from(self.pool.endpoint(key.index));
            self.streams.limits[endpoint] = limit;
            self.streams.stream_connection(key.index).limit = limit;
            self.update_availability(key.index);
            self.settle_stream_connection(now, key.index);
        }
    }

    /// The server processes no stream from `first` on (GOAWAY); `error`: with an error code.
    pub fn handle_goaway(&mut self, now: Timestamp, key: ConnectionKey, first: u32, error: bool) {
        if !self.is_streams_ready(key) {
            return;
        }
        let waiting_workers = self.stop_new_streams(key.index, error);
        for stream in self.streams.stream_connection(key.index).streams.clone() {
            let (stream_state, number) = (self.streams.at(stream).state, self.streams.at(stream).number);
            match stream_state {
                StreamState::Open if number >= first => self.retry_stream(now, stream, FailureCause::GoAway),
                StreamState::Open | StreamState::Free => {}
                // No byte of the request was sent.
                StreamState::Waiting | StreamState::Due => self.move_stream(stream, false),
            }
        }
        self.settle_stream_connection(now, key.index);
        waiting_workers.into_iter().for_each(|worker| self.issue(now, worker));
        self.make_follow_ups(now);
    }

    /// The driver has fetched the Connect of a connection with streams.
    pub(in super::super) fn start_stream_connection(&mut self, now: Timestamp, index: u32) {
        let Some(opener) = self.streams.stream_connection(index).opener else { return };
        let number = self.pool.at(index).number;
        let Some(request) = self.streams.find(opener).and_then(|stream| stream.request.as_mut()) else { return };
        request.record.connection = Some(number);
        if request.record.started_at.is_none() {
            request.record.started_at = Some(now);
            self.count_start();
        }
    }

    /// The connection is established (`secured`: and its TLS handshake is finished).
    pub(in super::super) fn stream_connection_established(&mut self, now: Timestamp, index: u32, secured: bool) {
        let Some(opener) = self.streams.stream_connection(index).opener else { return };
        let Some(request) = self.streams.find(opener).and_then(|stream| stream.request.as_mut()) else { return };
        if !request.retried {
            let at = if secured { &mut request.record.secured_at } else { &mut request.record.connected_at };
            *at = Some(now);
        }
    }

    /// A proxy rejected the connection to the target with `status`.
    pub(in super::super) fn note_refusal(&mut self, index: u32, status: u16) {
        for stream in self.streams.stream_connection(index).streams.clone() {
            if let Some(request) = &mut self.streams.at(stream).request {
                request.record.status = status;
            }
        }
    }

    /// The connection is ready for streams: those that wait for it are opened next.
    pub(in super::super) fn stream_connection_ready(&mut self, now: Timestamp, index: u32) {
        self.queues.remove(index);
        self.pool.at(index).state = State::StreamsReady;
        for stream in self.streams.stream_connection(index).streams.clone() {
            self.watch_deadline(now, stream);
            self.streams.at(stream).state = StreamState::Due;
            let key = self.streams.key(stream);
            self.act(index, ActionKind::Stream(key));
        }
        self.settle_stream_connection(now, index);
    }

    /// The driver reports the end of a connection, for `cause`, or because the server closed it.
    pub(in super::super) fn handle_stream_connection_lost(
        &mut self,
        now: Timestamp,
        key: ConnectionKey,
        cause: Option<FailureCause>,
    ) {
        let Some(connection) = self.pool.find(key) else { return };
        match (connection.state, cause) {
            (State::StreamsReady, cause) => self.stream_connection_lost(now, now, key.index, cause),
            (State::Connecting | State::Securing, Some(_)) => self.stream_connection_lost(now, now, key.index, cause),
            (State::Connecting, None) => {
                self.stream_connection_lost(now, now, key.index, Some(FailureCause::ConnectFailed))
            }
            (State::Securing, None) => {
                self.stream_connection_lost(now, now, key.index, Some(FailureCause::TlsHandshake))
            }
            _ => {}
        }
    }

    /// Handles the end of a connection: not established or broken (`cause` is the reason), or closed by the server
    /// (`None`). `done_at` is `now` or a deadline just before it.
    pub(in super::super) fn stream_connection_lost(
        &mut self,
        now: Timestamp,
        done_at: Timestamp,
        index: u32,
        cause: Option<FailureCause>,
    ) {
        let carried = self.pool.at(index).state == State::StreamsReady;
        let served = self.pool.at(index).requests > self.streams.stream_connection(index).open;
        let StreamConnection { received_since_idle, went_away_with_error, .. } = *self.streams.stream_connection(index);
        let crossed = carried
            && served
            && !received_since_idle
            && matches!(cause, None | Some(FailureCause::Reset))
            && self.is_idle_race_of_streams(now, index, cause.is_some());
        let waiting_workers = self.stop_new_streams(index, false);
        let mut failed = Vec::new();
        for stream in self.streams.stream_connection(index).streams.clone() {
            let slot = self.streams.at(stream);
            let Some(request) = &slot.request else { continue };
            let (stream_state, retried) = (slot.state, request.retried);
            let (silent, url, purpose_key) =
                (request.record.first_byte_at.is_none(), request.record.url, request.purpose_key);
            let repeatable = self.may_retry(self.method_of(url, purpose_key));
            let why = match cause {
                Some(cause) if !carried => cause,
                None | Some(FailureCause::Reset) if went_away_with_error => FailureCause::GoAway,
                None if silent || !carried => FailureCause::ClosedBeforeResponse,
                None => FailureCause::ClosedEarly,
                Some(cause) => cause,
            };
            if carried && stream_state != StreamState::Open {
                self.move_stream(stream, false);
            } else if crossed && repeatable && !retried {
                self.live.retried += 1;
                self.move_stream(stream, true);
            } else {
                let ended = self.end_stream(done_at, stream, why);
                failed.push((ended.worker, ended.silent));
            }
        }
        self.close_stream_connection(index);
        // The pause prevents attempts as fast as the machine can make them at a server that refuses everything.
        failed.into_iter().for_each(|(worker, silent)| self.continue_after_failure(now, worker, silent));
        waiting_workers.into_iter().for_each(|worker| self.issue(now, worker));
        self.make_follow_ups(now);
    }

    /// Whether the server's close of an idle connection crossed the requests sent on it since: the close arrived within
    /// one RTT of sending, and was a reset or acknowledged no byte of the requests.
    fn is_idle_race_of_streams(&mut self, now: Timestamp, index: u32, reset: bool) -> bool {
        let connection = self.pool.slot(index);
        let (handshake, unacknowledged) = (connection.handshake(), connection.unacknowledged);
        let mut sent = 0;
        for &stream in &self.streams.stream_connection(index).streams.clone() {
            let Some(request) = &self.streams.at(stream).request else { continue };
            sent += request.record.bytes_sent;
            if request.record.sent_at.is_some_and(|sent_at| now > sent_at + handshake + RACE_MARGIN) {
                return false;
            }
        }
        reset || unacknowledged >= sent
    }

    /// Fails the streams whose response deadline has passed, and cancels them at the server.
    pub(in super::super) fn end_stream_timeouts(&mut self, now: Timestamp) {
        while let Some((index, deadline)) =
            self.streams.deadlines.first(Queue::Awaiting).filter(|&(_, deadline)| deadline <= now)
        {
            let stream = self.streams.at(index);
            let (connection, number, open) = (stream.connection, stream.number, stream.state == StreamState::Open);
            if open {
                let key = self.streams.key(index);
                self.act(connection, ActionKind::Reset(key, number));
            }
            self.fail_stream(now, deadline, index, FailureCause::ResponseTimeout);
        }
    }

    /// Ends all streams and connections.
    pub(in super::super) fn abort_streams(&mut self, now: Timestamp) {
        for index in 0..self.streams.slots.len() as u32 {
            if self.streams.at(index).state != StreamState::Free {
                self.end_stream(now, index, FailureCause::Aborted);
            }
        }
        for index in 0..self.streams.stream_connections.len() as u32 {
            if !matches!(self.pool.at(index).state, State::Free | State::Closing) {
                self.close_stream_connection(index);
            }
        }
    }

    /// Called after a stream of a connection has ended or the server's limit has risen: opens waiting streams, lets
    /// waiting workers continue, and closes a connection that takes no more streams.
    pub(super) fn settle_stream_connection(&mut self, now: Timestamp, index: u32) {
        if self.pool.at(index).state != State::StreamsReady {
            return;
        }
        self.update_availability(index);
        let close = self.spec.reuse == Reuse::Close;
        let stream_connection = self.streams.stream_connection(index);
        if stream_connection.streams.is_empty()
            && (stream_connection.going_away || close || stream_connection.limit == 0)
        {
            let waiting_workers = self.stop_new_streams(index, false);
            self.close_stream_connection(index);
            return waiting_workers.into_iter().for_each(|worker| self.issue(now, worker));
        }
        let mut may_open = stream_connection.limit.saturating_sub(stream_connection.open);
        while may_open > 0
            && let Some(stream) = self.streams.stream_connection(index).waiting.pop_front()
        {
            may_open -= 1;
            self.streams.at(stream).state = StreamState::Due;
            let key = self.streams.key(stream);
            self.act(index, ActionKind::Stream(key));
        }
        while self.streams.stream_connection(index).is_available
            && let Some(worker) = self.streams.stream_connection(index).waiting_workers.pop()
        {
            self.issue(now, worker);
        }
        if self.streams.stream_connection(index).streams.is_empty() && !matches!(self.arrivals, Loop::Closed(_)) {
            // Another client's request may now close this idle connection and open its own.
            self.all_busy = false;
            self.queues.remove(index);
            self.queues.push(Queue::Idle, index, now);
        }
    }

    /// Stops new streams on a connection. Returns the workers that waited for it.
    fn stop_new_streams(&mut self, index: u32, error: bool) -> Vec<u32> {
        let stream_connection = self.streams.stream_connection(index);
        stream_connection.going_away = true;
        stream_connection.went_away_with_error |= error;
        let (position, waiting_workers) =
            (stream_connection.position.take(), std::mem::take(&mut stream_connection.waiting_workers));
        if let Some(position) = position {
            self.streams.positions[position as usize] = NONE;
        }
        self.update_availability(index);
        waiting_workers
    }

    /// Closes a connection without streams.
    pub(super) fn close_stream_connection(&mut self, index: u32) {
        debug_assert!(
            self.streams.stream_connection(index).streams.is_empty(),
            "all streams of the connection have ended"
        );
        let waiting_workers = self.stop_new_streams(index, false);
        debug_assert!(
            waiting_workers.is_empty() || self.phase.is_over(),
            "waiting workers continue on other connections"
        );
        self.close(index);
    }

    fn is_streams_ready(&self, key: ConnectionKey) -> bool {
        self.pool.find(key).is_some_and(|connection| connection.state == State::StreamsReady)
    }
}
