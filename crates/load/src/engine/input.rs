//! Handles the events of connections. Events of closed connections are ignored, as the driver may report them late.

use std::time::Duration;

use schema::{FailureCause, Method};
use units::Timestamp;

use super::Load;
use super::output::ActionKind;
use crate::connection::{ConnectionKey, State};
use crate::http1::{AtClose, Fault, Progress};
use crate::in_flight::InFlightRequest;
use crate::queues::Queue;
use crate::spec::Retry;

/// Tolerance for recognising a server's close that crossed a request. Such a close arrives at most one RTT after the
/// request was sent. The tolerance covers the generator's own delay and the difference to the handshake's RTT.
pub const RACE_MARGIN: Duration = Duration::from_millis(20);

/// A request of at most this many bytes fits into one TCP segment, which is acknowledged whole or not at all.
const SINGLE_SEGMENT_MAX_BYTES: usize = 1024;

impl Load {
    /// The connection is established. On a connection to a secure target the request waits for
    /// [`Self::handle_secured`]; the connect timeout covers both.
    pub fn handle_connected(&mut self, now: Timestamp, key: ConnectionKey) {
        let is_early = self.carries_early_data(key);
        if self.state(key) != State::Connecting && !is_early {
            return;
        }
        let connection = self.pool.at(key.index);
        connection.connected_at = Some(now);
        if let Some(request) = &mut connection.request
            && !request.retried
        {
            request.record.connected_at = Some(now);
        }
        if self.is_multiplexed() {
            self.stream_connection_established(now, key.index, false);
        }
        if is_early {
            return;
        }
        let connection = self.pool.at(key.index);
        if self.targets[usize::from(connection.endpoint)].secure {
            connection.state = State::Securing;
        } else {
            self.make_ready(now, key.index);
        }
    }

    /// The TLS handshake is finished: the client may send.
    pub fn handle_secured(&mut self, now: Timestamp, key: ConnectionKey) {
        let is_early = self.carries_early_data(key);
        if self.state(key) != State::Securing && !is_early {
            return;
        }
        let connection = self.pool.at(key.index);
        connection.secured_at = Some(now);
        if let Some(request) = &mut connection.request
            && !request.retried
        {
            request.record.secured_at = Some(now);
        }
        if self.is_multiplexed() {
            self.stream_connection_established(now, key.index, true);
        }
        if !is_early {
            self.make_ready(now, key.index);
        }
    }

    /// A connection with streams can carry requests before its handshake is finished (early data of QUIC). The response
    /// timeout replaces the connect timeout. [`Self::handle_connected`] and [`Self::handle_secured`] follow.
    pub fn handle_early_data(&mut self, now: Timestamp, key: ConnectionKey) {
        if self.state(key) == State::Connecting && self.is_multiplexed() {
            self.make_ready(now, key.index);
        }
    }

    /// Whether a connection carries streams, and its handshake is not finished.
    fn carries_early_data(&self, key: ConnectionKey) -> bool {
        let connection = self.pool.find(key);
        connection.is_some_and(|connection| connection.state == State::StreamsReady && connection.secured_at.is_none())
    }

    /// A new connection is ready for its request.
    fn make_ready(&mut self, now: Timestamp, index: u32) {
        if self.is_multiplexed() {
            return self.stream_connection_ready(now, index);
        }
        self.queues.remove(index);
        if self.pool.at(index).request.is_none() {
            return self.enter_idle(now, index);
        }
        self.pool.at(index).state = State::Ready;
        self.act(index, ActionKind::Send);
    }

    /// The kernel accepted the next `bytes` bytes of the request. `sent_at` of the record is the time of the last byte.
    pub fn handle_sent(&mut self, now: Timestamp, key: ConnectionKey, bytes: usize) {
        if self.state(key) != State::Awaiting {
            return;
        }
        let connection = self.pool.at(key.index);
        let Some(InFlightRequest { record: request, .. }) = &mut connection.request else { return };
        let written = connection.is_written.then_some(connection.bytes.len());
        let whole = written.unwrap_or_else(|| self.prepared.of(request.url as usize).len());
        let bytes = bytes.min(whole - connection.sent);
        connection.sent += bytes;
        request.bytes_sent += bytes as u64;
        self.live.bytes_sent += bytes as u64;
        if connection.sent == whole && request.sent_at.is_none() {
            request.sent_at = Some(now);
        }
    }

    /// The driver read `bytes`. Unsolicited bytes make every response of the connection untrustworthy
    /// ([`Live::untrusted`](crate::Live::untrusted)): the server may have sent an apparent response before it read the
    /// request. Unsolicited bytes close the connection. If they arrive with the end of a response they fail its
    /// request; later the request has already ended, and the next one uses another connection. Stray empty lines are
    /// skipped and counted ([`Live::stray_lines`](crate::Live::stray_lines)).
    pub fn handle_bytes(&mut self, now: Timestamp, key: ConnectionKey, bytes: &[u8]) {
        if bytes.is_empty() || !self.count_received(key, bytes.len() as u64) {
            return;
        }
        let connection = self.pool.at(key.index);
        match connection.state {
            State::Awaiting => {
                let Some(InFlightRequest { record: request, .. }) = &mut connection.request else { return };
                let mut bytes = bytes;
                if request.first_byte_at.is_none() && bytes[0] == b'\r' {
                    // An empty line after the previous response is not the first byte of this one.
                    bytes = &bytes[connection.response.skip_stray_lines(bytes)..];
                    if bytes.is_empty() {
                        return;
                    }
                }
                request.first_byte_at.get_or_insert(now);
                let fed = connection.response.feed(bytes);
                let taken = if let Ok(Progress::Whole { consumed }) = fed { consumed } else { bytes.len() };
                request.bytes_received += taken as u64;
                request.status = connection.response.status();
                match fed {
                    // The client aborts the response here, as planned; the rest of the bytes is discarded.
                    Ok(_) if connection.response.is_cut() => self.response_whole(now, key.index, true),
                    Ok(Progress::More) => {}
                    Ok(Progress::Whole { consumed })
                        if consumed + connection.response.skip_stray_lines(&bytes[consumed..]) == bytes.len() =>
                    {
                        self.response_whole(now, key.index, false)
                    }
                    Ok(Progress::Whole { .. }) => {
                        self.note_unsolicited(key.index);
                        self.fail(now, now, key.index, FailureCause::UnsolicitedData);
                    }
                    Err(Fault::Malformed) => self.fail(now, now, key.index, FailureCause::Malformed),
                    Err(Fault::HeadTooLarge) => self.fail(now, now, key.index, FailureCause::HeadTooLarge),
                }
            }
            State::Ready | State::Idle if connection.response.skip_stray_lines(bytes) == bytes.len() => {
                self.live.stray_lines += u64::from(connection.response.take_stray_lines());
            }
            State::Ready | State::Idle => {
                self.note_unsolicited(key.index);
                self.drop_connection(now, key.index, FailureCause::UnsolicitedData);
            }
            State::Free
            | State::ConnectQueued
            | State::Connecting
            | State::Securing
            | State::StreamsReady
            | State::Closing => {}
        }
    }

    /// The driver discarded `bytes` body bytes unread, at most [`Self::discardable`].
    pub fn handle_discarded(&mut self, now: Timestamp, key: ConnectionKey, bytes: u64) {
        if self.state(key) != State::Awaiting || !self.count_received(key, bytes) {
            return;
        }
        let connection = self.pool.at(key.index);
        let Some(InFlightRequest { record: request, .. }) = &mut connection.request else { return };
        request.bytes_received += bytes;
        if let Progress::Whole { .. } = connection.response.discard(bytes) {
            self.response_whole(now, key.index, false);
        }
    }

    /// The server closed its side: a read returned 0.
    pub fn handle_eof(&mut self, now: Timestamp, key: ConnectionKey) {
        if self.is_multiplexed() {
            return self.handle_stream_connection_lost(now, key, None);
        }
        match self.state(key) {
            State::Awaiting => match self.pool.at(key.index).response.close() {
                AtClose::Whole => self.response_whole(now, key.index, true),
                AtClose::Nothing => self.closed_without_response(now, key.index, FailureCause::ClosedBeforeResponse),
                AtClose::Short => self.fail(now, now, key.index, FailureCause::ClosedEarly),
                AtClose::Malformed => self.fail(now, now, key.index, FailureCause::Malformed),
            },
            State::Ready | State::Idle => {
                self.drop_connection(now, key.index, FailureCause::ClosedBeforeResponse);
            }
            State::Connecting => self.fail(now, now, key.index, FailureCause::ConnectFailed),
            State::Securing => self.fail(now, now, key.index, FailureCause::TlsHandshake),
            State::Free | State::ConnectQueued | State::StreamsReady | State::Closing => {}
        }
    }

    /// The server announced the end of its data (close_notify of TLS). Its FIN follows and is reported with
    /// [`Self::handle_eof`]. The data before it is complete.
    pub fn handle_close_notify(&mut self, now: Timestamp, key: ConnectionKey) {
        match self.state(key) {
            State::Awaiting if self.pool.at(key.index).response.close() == AtClose::Whole => {
                self.response_whole(now, key.index, false);
            }
            _ => self.handle_eof(now, key),
        }
    }

    /// The server closed its side without the close_notify that TLS requires. A response with its own length is
    /// complete anyway. A response that ends with the connection may have been truncated, and fails.
    pub fn handle_truncated(&mut self, now: Timestamp, key: ConnectionKey) {
        match self.state(key) {
            State::Awaiting if self.pool.at(key.index).response.close() == AtClose::Whole => {
                self.fail(now, now, key.index, FailureCause::TlsTruncated);
            }
            _ => self.handle_eof(now, key),
        }
    }

    /// Connecting or the TLS handshake failed, or the connection broke: a reset, no descriptor or port left, a TLS
    /// alert.
    pub fn handle_failure(&mut self, now: Timestamp, key: ConnectionKey, cause: FailureCause) {
        if self.is_multiplexed() {
            return self.handle_stream_connection_lost(now, key, Some(cause));
        }
        match self.state(key) {
            State::Connecting | State::Securing => self.fail(now, now, key.index, cause),
            State::Awaiting => {
                let answered = self
                    .pool
                    .at(key.index)
                    .request
                    .as_ref()
                    .is_some_and(|request| request.record.first_byte_at.is_some());
                if answered || cause != FailureCause::Reset {
                    self.fail(now, now, key.index, cause);
                } else {
                    self.closed_without_response(now, key.index, cause);
                }
            }
            State::Ready | State::Idle => self.drop_connection(now, key.index, cause),
            State::Free | State::ConnectQueued | State::StreamsReady | State::Closing => {}
        }
    }

    /// The peer has not yet acknowledged `bytes` of the bytes that the kernel accepted on a connection. The driver
    /// calls this before every event that ends the connection and, if [`Self::wants_acknowledged`], before every event
    /// that may end a request.
    pub fn handle_unacknowledged(&mut self, key: ConnectionKey, bytes: u64) {
        if matches!(self.state(key), State::Awaiting | State::StreamsReady) {
            self.pool.at(key.index).unacknowledged = bytes;
        }
    }

    /// Whether the request in flight on a connection is so long that the server may respond before it has received all
    /// of it.
    pub fn wants_acknowledged(&self, key: ConnectionKey) -> bool {
        self.pool.find(key).is_some_and(|connection| {
            connection.state == State::Awaiting && connection.sent > SINGLE_SEGMENT_MAX_BYTES && !self.is_multiplexed()
        })
    }

    /// Connections with such a long request whose response deadline is at `now` or before. The next
    /// [`Self::handle_time`] fails these requests.
    pub fn timing_out(&self, now: Timestamp) -> impl Iterator<Item = ConnectionKey> + '_ {
        let due = self.queues.iter(Queue::Awaiting).take_while(move |&(_, deadline)| deadline <= now);
        due.map(|(index, _)| self.pool.key(index)).filter(|&key| self.wants_acknowledged(key))
    }

    /// Counts unsolicited bytes on connection `index`.
    fn note_unsolicited(&mut self, index: u32) {
        self.live.surplus += 1;
        // Unsolicited bytes may arrive before the connection's first request.
        self.live.untrusted += u64::from(self.pool.at(index).requests.max(1));
    }

    /// The server closed before the first byte of the response to a request that was sent.
    fn closed_without_response(&mut self, now: Timestamp, index: u32, cause: FailureCause) {
        if self.is_idle_race(now, index, cause == FailureCause::Reset) {
            self.retry(index);
        } else {
            self.fail(now, now, index, cause);
        }
    }

    /// Whether a request crossed the server's close of an idle connection, and may be retried. A server that closes
    /// before it has read the request resets the connection.
    fn is_idle_race(&self, now: Timestamp, index: u32, reset: bool) -> bool {
        let connection = self.pool.slot(index);
        let Some(InFlightRequest { record, purpose_key, .. }) = &connection.request else { return false };
        connection.requests > 1
            && self.may_retry(self.method_of(record.url, *purpose_key))
            // No byte of the request was sent, or none was acknowledged.
            && (reset || connection.unacknowledged >= connection.sent as u64)
            && record.sent_at.is_none_or(|sent_at| now <= sent_at + connection.handshake() + RACE_MARGIN)
    }

    /// Whether a request with `method` that the server has not received may be retried.
    pub(super) fn may_retry(&self, method: Method) -> bool {
        let idempotent = matches!(method, Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete);
        self.spec.retry == Retry::IdleRace && idempotent
    }

    /// A connection without a pending response has ended, for `cause`.
    fn drop_connection(&mut self, now: Timestamp, index: u32, cause: FailureCause) {
        let connection = self.pool.at(index);
        match &connection.request {
            None => self.close_and_continue(now, index),
            // The driver has not fetched its Send: the request moves to another connection.
            Some(request) if request.record.started_at.is_none() => self.reopen(index, false),
            Some(_) => self.fail(now, now, index, cause),
        }
    }

    fn state(&self, key: ConnectionKey) -> State {
        self.pool.find(key).map_or(State::Free, |connection| connection.state)
    }

    /// Counts received bytes; false if the connection is closed.
    pub(super) fn count_received(&mut self, key: ConnectionKey, bytes: u64) -> bool {
        if matches!(self.state(key), State::Free | State::Closing) {
            return false;
        }
        self.pool.at(key.index).bytes_received += bytes;
        self.live.bytes_received += bytes;
        true
    }
}
