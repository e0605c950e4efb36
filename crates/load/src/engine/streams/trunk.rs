//! What happens to whole connections that carry streams.

use schema::FailureCause;
use units::Timestamp;

use super::super::input::RACE_MARGIN;
use super::super::output::What;
use super::super::{Load, Loop};
use super::{Being, NONE, Trunk};
use crate::connection::{ConnectionKey, State};
use crate::queues::Queue;
use crate::spec::Reuse;

impl Load {
    /// The server allows so many streams at once on a connection (SETTINGS).
    pub fn handle_stream_limit(&mut self, now: Timestamp, key: ConnectionKey, limit: u32) {
        if self.carrying(key) {
            let endpoint = usize::from(self.pool.endpoint(key.index));
            self.streams.limits[endpoint] = limit;
            self.streams.trunk(key.index).limit = limit;
            self.note_room(key.index);
            self.settle_trunk(now, key.index);
        }
    }

    /// The server takes up no stream above `last` (GOAWAY); `error`: because something is wrong.
    pub fn handle_goaway(&mut self, now: Timestamp, key: ConnectionKey, last: u32, error: bool) {
        if !self.carrying(key) {
            return;
        }
        let parked = self.leave(key.index, error);
        for stream in self.streams.trunk(key.index).streams.clone() {
            let (being, number) = (self.streams.at(stream).state, self.streams.at(stream).number);
            match being {
                Being::Open if number > last => self.retry_stream(now, stream, FailureCause::GoAway),
                Being::Open | Being::Free => {}
                // Nothing of it was sent.
                Being::Waiting | Being::Due => self.move_stream(stream, false),
            }
        }
        self.settle_trunk(now, key.index);
        parked.into_iter().for_each(|worker| self.issue(now, worker));
        self.make_follow_ups(now);
    }

    /// A connection that was wanted for streams is handed out.
    pub(in super::super) fn start_trunk(&mut self, now: Timestamp, index: u32) {
        let Some(opener) = self.streams.trunk(index).opener else { return };
        let number = self.pool.at(index).number;
        let Some(request) = self.streams.find(opener).and_then(|stream| stream.request.as_mut()) else { return };
        request.record.connection = Some(number);
        if request.record.started_at.is_none() {
            request.record.started_at = Some(now);
            self.count_start();
        }
    }

    /// It is established (`secured`: and TLS has shaken hands).
    pub(in super::super) fn trunk_connected(&mut self, now: Timestamp, index: u32, secured: bool) {
        let Some(opener) = self.streams.trunk(index).opener else { return };
        let Some(request) = self.streams.find(opener).and_then(|stream| stream.request.as_mut()) else { return };
        if !request.retried {
            let at = if secured { &mut request.record.secured_at } else { &mut request.record.connected_at };
            *at = Some(now);
        }
    }

    /// A proxy made no way to the target, and answered with `status`.
    pub(in super::super) fn note_refusal(&mut self, index: u32, status: u16) {
        for stream in self.streams.trunk(index).streams.clone() {
            if let Some(request) = &mut self.streams.at(stream).request {
                request.record.status = status;
            }
        }
    }

    /// It can carry streams: those that wait for it are handed out next.
    pub(in super::super) fn trunk_ready(&mut self, now: Timestamp, index: u32) {
        self.queues.remove(index);
        self.pool.at(index).state = State::Carrying;
        for stream in self.streams.trunk(index).streams.clone() {
            self.watch_deadline(now, stream);
            self.streams.at(stream).state = Being::Due;
            let key = self.streams.key(stream);
            self.act(index, What::Stream(key));
        }
        self.settle_trunk(now, index);
    }

    /// The driver says that a connection is over, for `cause`, or because the server closed it.
    pub(in super::super) fn handle_trunk_lost(
        &mut self,
        now: Timestamp,
        key: ConnectionKey,
        cause: Option<FailureCause>,
    ) {
        let Some(connection) = self.pool.find(key) else { return };
        match (connection.state, cause) {
            (State::Carrying, cause) => self.trunk_lost(now, now, key.index, cause),
            (State::Connecting | State::Securing, Some(_)) => self.trunk_lost(now, now, key.index, cause),
            (State::Connecting, None) => self.trunk_lost(now, now, key.index, Some(FailureCause::ConnectFailed)),
            (State::Securing, None) => self.trunk_lost(now, now, key.index, Some(FailureCause::TlsHandshake)),
            _ => {}
        }
    }

    /// A connection is over: not established (then `cause` says why), closed by the server (`None`), or broken.
    /// `done_at` is `now` or a deadline just before it.
    pub(in super::super) fn trunk_lost(
        &mut self,
        now: Timestamp,
        done_at: Timestamp,
        index: u32,
        cause: Option<FailureCause>,
    ) {
        let carried = self.pool.at(index).state == State::Carrying;
        let served = self.pool.at(index).requests > self.streams.trunk(index).open;
        let Trunk { heard, leaving_for_error, .. } = *self.streams.trunk(index);
        let crossed = carried
            && served
            && !heard
            && matches!(cause, None | Some(FailureCause::Reset))
            && self.is_idle_race_of_streams(now, index, cause.is_some());
        let parked = self.leave(index, false);
        let mut failed = Vec::new();
        for stream in self.streams.trunk(index).streams.clone() {
            let slot = self.streams.at(stream);
            let Some(request) = &slot.request else { continue };
            let (being, retried) = (slot.state, request.retried);
            let (silent, url, purpose_key) =
                (request.record.first_byte_at.is_none(), request.record.url, request.purpose_key);
            let repeatable = self.may_retry(self.method_of(url, purpose_key));
            let why = match cause {
                Some(cause) if !carried => cause,
                None | Some(FailureCause::Reset) if leaving_for_error => FailureCause::GoAway,
                None if silent || !carried => FailureCause::ClosedBeforeResponse,
                None => FailureCause::ClosedEarly,
                Some(cause) => cause,
            };
            if carried && being != Being::Open {
                self.move_stream(stream, false);
            } else if crossed && repeatable && !retried {
                self.live.retried += 1;
                self.move_stream(stream, true);
            } else {
                let ended = self.end_stream(done_at, stream, why);
                failed.push((ended.worker, ended.silent));
            }
        }
        self.close_trunk(index);
        // A server that refuses everything is not to be asked as fast as the machine can.
        failed.into_iter().for_each(|(worker, silent)| self.go_on_after_failure(now, worker, silent));
        parked.into_iter().for_each(|worker| self.issue(now, worker));
        self.make_follow_ups(now);
    }

    /// Whether the server's close of an idle connection and the streams opened on it since crossed: it came within one RTT of
    /// sending, and was a reset, or acknowledged nothing of their requests.
    fn is_idle_race_of_streams(&mut self, now: Timestamp, index: u32, reset: bool) -> bool {
        let connection = self.pool.slot(index);
        let (handshake, unacknowledged) = (connection.handshake(), connection.unacknowledged);
        let mut sent = 0;
        for &stream in &self.streams.trunk(index).streams.clone() {
            let Some(request) = &self.streams.at(stream).request else { continue };
            sent += request.record.bytes_sent;
            if request.record.sent_at.is_some_and(|sent_at| now > sent_at + handshake + RACE_MARGIN) {
                return false;
            }
        }
        reset || unacknowledged >= sent
    }

    /// Ends the streams whose response deadline has passed; the server is told that they are given up.
    pub(in super::super) fn end_stream_timeouts(&mut self, now: Timestamp) {
        while let Some((index, deadline)) =
            self.streams.deadlines.first(Queue::Awaiting).filter(|&(_, deadline)| deadline <= now)
        {
            let stream = self.streams.at(index);
            let (connection, number, open) = (stream.connection, stream.number, stream.state == Being::Open);
            if open {
                self.act(connection, What::Reset(number));
            }
            self.fail_stream(now, deadline, index, FailureCause::ResponseTimeout);
        }
    }

    /// Ends all streams and connections.
    pub(in super::super) fn abort_streams(&mut self, now: Timestamp) {
        for index in 0..self.streams.slots.len() as u32 {
            if self.streams.at(index).state != Being::Free {
                self.end_stream(now, index, FailureCause::Aborted);
            }
        }
        for index in 0..self.streams.trunks.len() as u32 {
            if !matches!(self.pool.at(index).state, State::Free | State::Closing) {
                self.close_trunk(index);
            }
        }
    }

    /// After one of a connection's streams has ended, or the server allows more: who waited goes on, and a connection
    /// that is of no more use is closed.
    pub(super) fn settle_trunk(&mut self, now: Timestamp, index: u32) {
        if self.pool.at(index).state != State::Carrying {
            return;
        }
        self.note_room(index);
        let close = self.spec.reuse == Reuse::Close;
        let trunk = self.streams.trunk(index);
        if trunk.streams.is_empty() && (trunk.leaving || close || trunk.limit == 0) {
            let parked = self.leave(index, false);
            self.close_trunk(index);
            return parked.into_iter().for_each(|worker| self.issue(now, worker));
        }
        let mut may_open = trunk.limit.saturating_sub(trunk.open);
        while may_open > 0
            && let Some(stream) = self.streams.trunk(index).waiting.pop_front()
        {
            may_open -= 1;
            self.streams.at(stream).state = Being::Due;
            let key = self.streams.key(stream);
            self.act(index, What::Stream(key));
        }
        while self.streams.trunk(index).roomy
            && let Some(worker) = self.streams.trunk(index).parked.pop()
        {
            self.issue(now, worker);
        }
        if self.streams.trunk(index).streams.is_empty() && !matches!(self.arrivals, Loop::Closed(_)) {
            // Room for another client's connection, if need be.
            self.stuck = false;
            self.queues.remove(index);
            self.queues.push(Queue::Idle, index, now);
        }
    }

    /// No more streams begin on a connection; the workers that waited for room on it.
    fn leave(&mut self, index: u32, error: bool) -> Vec<u32> {
        let trunk = self.streams.trunk(index);
        trunk.leaving = true;
        trunk.leaving_for_error |= error;
        let (position, parked) = (trunk.position.take(), std::mem::take(&mut trunk.parked));
        if let Some(place) = position {
            self.streams.positions[place as usize] = NONE;
        }
        self.note_room(index);
        parked
    }

    /// Closes a connection without streams.
    pub(super) fn close_trunk(&mut self, index: u32) {
        debug_assert!(self.streams.trunk(index).streams.is_empty(), "its streams have ended");
        let parked = self.leave(index, false);
        debug_assert!(parked.is_empty() || self.phase.is_over(), "workers that waited go on elsewhere");
        self.close(index);
    }

    fn carrying(&self, key: ConnectionKey) -> bool {
        self.pool.find(key).is_some_and(|connection| connection.state == State::Carrying)
    }
}
