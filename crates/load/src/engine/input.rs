//! What happened on a connection. Keys of connections that are gone are ignored: events may have been under way.

use ledger::{FailureCause, Method};
use units::Timestamp;

use super::Load;
use super::output::What;
use crate::connection::{ConnectionKey, State};
use crate::errand::InHand;
use crate::http1::{AtClose, Fault, Progress};

impl Load {
    /// The connection is established. To a secure target the request waits for [`Self::handle_secured`]; the connect
    /// timeout bounds both.
    pub fn handle_connected(&mut self, now: Timestamp, key: ConnectionKey) {
        if self.state(key) != State::Connecting {
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
            self.trunk_connected(now, key.index, false);
        }
        let connection = self.pool.at(key.index);
        if self.targets[usize::from(connection.endpoint)].secure {
            connection.state = State::Securing;
        } else {
            self.make_ready(now, key.index);
        }
    }

    /// The TLS handshake is finished, as far as sending goes.
    pub fn handle_secured(&mut self, now: Timestamp, key: ConnectionKey) {
        if self.state(key) != State::Securing {
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
            self.trunk_connected(now, key.index, true);
        }
        self.make_ready(now, key.index);
    }

    /// A new connection can carry its request.
    fn make_ready(&mut self, now: Timestamp, index: u32) {
        if self.is_multiplexed() {
            return self.trunk_ready(now, index);
        }
        self.queues.remove(index);
        if self.pool.at(index).request.is_none() {
            return self.enter_idle(now, index);
        }
        self.pool.at(index).state = State::Ready;
        self.act(index, What::Send);
    }

    /// The kernel took the next `bytes` bytes of the request. `sent_at` is when it took the last.
    pub fn handle_sent(&mut self, now: Timestamp, key: ConnectionKey, bytes: usize) {
        if self.state(key) != State::Awaiting {
            return;
        }
        let connection = self.pool.at(key.index);
        let Some(InHand { record: request, .. }) = &mut connection.request else { return };
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

    /// These bytes were read. More than the response in one read makes the request malformed: its framing and its
    /// body disagree. Surplus that comes in a later read closes the connection and is counted in
    /// [`Live::surplus`](crate::Live::surplus); the request before it has ended well by then.
    pub fn handle_bytes(&mut self, now: Timestamp, key: ConnectionKey, bytes: &[u8]) {
        if bytes.is_empty() || !self.count_received(key, bytes.len() as u64) {
            return;
        }
        let connection = self.pool.at(key.index);
        match connection.state {
            State::Awaiting => {
                let Some(InHand { record: request, .. }) = &mut connection.request else { return };
                request.first_byte_at.get_or_insert(now);
                let fed = connection.response.feed(bytes);
                let taken = if let Ok(Progress::Whole { consumed }) = fed { consumed } else { bytes.len() };
                request.bytes_received += taken as u64;
                request.status = connection.response.status();
                match fed {
                    // As planned: what comes after this is nobody's.
                    Ok(_) if connection.response.is_cut() => self.response_whole(now, key.index, true),
                    Ok(Progress::More) => {}
                    Ok(Progress::Whole { consumed }) if consumed == bytes.len() => {
                        self.response_whole(now, key.index, false)
                    }
                    Ok(Progress::Whole { .. }) => {
                        self.live.surplus += 1;
                        self.fail(now, now, key.index, FailureCause::Malformed);
                    }
                    Err(Fault::Malformed) => self.fail(now, now, key.index, FailureCause::Malformed),
                    Err(Fault::HeadTooLarge) => self.fail(now, now, key.index, FailureCause::HeadTooLarge),
                }
            }
            // Nothing was asked for on it. Its last request has ended well, as far as anyone could know.
            State::Ready | State::Idle | State::Lingering => {
                self.live.surplus += 1;
                self.drop_connection(now, key.index, FailureCause::Malformed);
            }
            State::Free | State::Wanted | State::Connecting | State::Securing | State::Carrying | State::Closing => {}
        }
    }

    /// So many body bytes were thrown away unread, at most [`Self::discardable`].
    pub fn handle_discarded(&mut self, now: Timestamp, key: ConnectionKey, bytes: u64) {
        if self.state(key) != State::Awaiting || !self.count_received(key, bytes) {
            return;
        }
        let connection = self.pool.at(key.index);
        let Some(InHand { record: request, .. }) = &mut connection.request else { return };
        request.bytes_received += bytes;
        if let Progress::Whole { .. } = connection.response.discard(bytes) {
            self.response_whole(now, key.index, false);
        }
    }

    /// The server closed its side: a read returned 0.
    pub fn handle_eof(&mut self, now: Timestamp, key: ConnectionKey) {
        if self.is_multiplexed() {
            return self.handle_trunk_lost(now, key, None);
        }
        match self.state(key) {
            State::Awaiting => match self.pool.at(key.index).response.close() {
                AtClose::Whole => self.response_whole(now, key.index, true),
                AtClose::Nothing => self.closed_without_answer(now, key.index, FailureCause::ClosedBeforeResponse),
                AtClose::Short => self.fail(now, now, key.index, FailureCause::ClosedEarly),
                AtClose::Malformed => self.fail(now, now, key.index, FailureCause::Malformed),
            },
            State::Ready | State::Idle | State::Lingering => {
                self.drop_connection(now, key.index, FailureCause::ClosedBeforeResponse);
            }
            State::Connecting => self.fail(now, now, key.index, FailureCause::ConnectFailed),
            State::Securing => self.fail(now, now, key.index, FailureCause::TlsHandshake),
            State::Free | State::Wanted | State::Carrying | State::Closing => {}
        }
    }

    /// The server said that it sends no more (TLS's close_notify); its FIN is to follow, and is told with
    /// [`Self::handle_eof`]. Nothing cut off what came before it.
    pub fn handle_close_notify(&mut self, now: Timestamp, key: ConnectionKey) {
        match self.state(key) {
            State::Awaiting if self.pool.at(key.index).response.close() == AtClose::Whole => {
                self.response_whole(now, key.index, false);
            }
            // A response that announced the end: the server's FIN is awaited as it was.
            State::Lingering => {}
            _ => self.handle_eof(now, key),
        }
    }

    /// The server closed its side without close_notify, which TLS wants before it. After a response that says its own
    /// length that is a bad habit of the server's and no more; a response that ends with the connection may have been cut.
    pub fn handle_truncated(&mut self, now: Timestamp, key: ConnectionKey) {
        match self.state(key) {
            State::Awaiting if self.pool.at(key.index).response.close() == AtClose::Whole => {
                self.fail(now, now, key.index, FailureCause::TlsTruncated);
            }
            _ => self.handle_eof(now, key),
        }
    }

    /// Connecting or its TLS handshake failed, or the connection broke: reset, no descriptor, no port, a TLS alert.
    pub fn handle_failure(&mut self, now: Timestamp, key: ConnectionKey, cause: FailureCause) {
        if self.is_multiplexed() {
            return self.handle_trunk_lost(now, key, Some(cause));
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
                    self.closed_without_answer(now, key.index, cause);
                }
            }
            State::Ready | State::Idle | State::Lingering => self.drop_connection(now, key.index, cause),
            State::Free | State::Wanted | State::Carrying | State::Closing => {}
        }
    }

    /// The server closed, by FIN or RST, before the first byte of the response to a request that was sent. On a
    /// connection that had served requests before, the close and the request may have crossed.
    fn closed_without_answer(&mut self, now: Timestamp, index: u32, cause: FailureCause) {
        let connection = self.pool.at(index);
        let kept = connection.requests > 1;
        let asked = connection.request.as_ref().map(|request| (request.record.url, request.errand));
        let method = asked.map(|(url, errand)| self.method_of(url, errand));
        let repeatable = matches!(method, Some(Method::Get | Method::Head));
        if kept && repeatable {
            self.retry(index);
        } else if kept {
            self.fail(now, now, index, FailureCause::ClosedBeforeResponse);
        } else {
            self.fail(now, now, index, cause);
        }
    }

    /// A connection on which no answer is awaited has ended, for `cause`.
    fn drop_connection(&mut self, now: Timestamp, index: u32, cause: FailureCause) {
        let connection = self.pool.at(index);
        match &connection.request {
            None => self.close_and_go_on(now, index),
            // Its Send had not been handed out: nothing was lost, another connection takes it.
            Some(request) if request.record.started_at.is_none() => self.reopen(index, false),
            Some(_) => self.fail(now, now, index, cause),
        }
    }

    fn state(&self, key: ConnectionKey) -> State {
        self.pool.find(key).map_or(State::Free, |connection| connection.state)
    }

    /// False if the connection is gone.
    pub(super) fn count_received(&mut self, key: ConnectionKey, bytes: u64) -> bool {
        if matches!(self.state(key), State::Free | State::Closing) {
            return false;
        }
        self.pool.at(key.index).bytes_received += bytes;
        self.live.bytes_received += bytes;
        true
    }
}
