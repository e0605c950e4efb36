//! Handles the events of streams: data and end.

use schema::FailureCause;
use units::Timestamp;

use super::super::evaluation::ReceivedResponse;
use super::super::{Load, Loop};
use super::{StreamFailure, StreamKey, StreamState};
use crate::connection::ConnectionKey;
use crate::http1::response::BODY_STORED_MAX;
use crate::spec::{Retry, Reuse};

impl Load {
    /// The stream is open and has its identifier.
    pub fn handle_stream_opened(&mut self, stream: StreamKey, number: u32) {
        if let Some(stream) = self.streams.find(stream) {
            stream.number = number;
            if let Some(request) = &mut stream.request {
                request.record.stream = Some(number);
            }
        }
    }

    /// The kernel accepted `bytes` bytes of a request's frames, frame headers included. `last`: they complete the
    /// request.
    pub fn handle_stream_sent(&mut self, now: Timestamp, stream: StreamKey, bytes: u64, last: bool) {
        self.live.bytes_sent += bytes;
        let Some(stream) = self.streams.find(stream) else { return };
        let Some(request) = &mut stream.request else { return };
        request.record.bytes_sent += bytes;
        if last {
            request.record.sent_at.get_or_insert(now);
        }
    }

    /// The driver read `bytes` bytes of a connection, counted inside TLS, of any frames.
    pub fn handle_received(&mut self, key: ConnectionKey, bytes: u64) {
        self.count_received(key, bytes);
    }

    /// `bytes` of the bytes read were frames of a stream (HEADERS and CONTINUATION if `head`, otherwise DATA), frame
    /// headers included.
    pub fn handle_stream_bytes(&mut self, now: Timestamp, stream: StreamKey, bytes: u64, head: bool) {
        let Some(stream) = self.streams.find(stream) else { return };
        let connection = stream.connection;
        if let Some(request) = &mut stream.request {
            request.record.first_byte_at.get_or_insert(now);
            request.record.bytes_received += bytes;
            if head {
                request.record.head_bytes =
                    request.record.head_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            }
        }
        self.streams.stream_connection(connection).received_since_idle = true;
    }

    /// Whether the driver must report the head of a stream's response.
    pub fn stream_wants_head(&mut self, stream: StreamKey) -> bool {
        let first = self.first_head.is_none();
        self.streams.find(stream).is_some_and(|stream| first || stream.needs.head)
    }

    /// The final head of a response; `head` in the form of HTTP/1, empty unless [`Self::stream_wants_head`].
    pub fn handle_stream_head(&mut self, stream: StreamKey, status: u16, head: &[u8]) {
        let Some(stream) = self.streams.find(stream) else { return };
        stream.head.clear();
        stream.head.extend_from_slice(head);
        if let Some(request) = &mut stream.request {
            request.record.status = status;
        }
    }

    /// The next bytes of a response's body.
    pub fn handle_stream_body(&mut self, stream: StreamKey, bytes: &[u8]) {
        let Some(stream) = self.streams.find(stream) else { return };
        stream.body_length += bytes.len() as u64;
        if stream.needs.body && stream.body_length <= BODY_STORED_MAX as u64 {
            stream.body.extend_from_slice(bytes);
        }
    }

    /// The response is complete.
    pub fn handle_stream_end(&mut self, now: Timestamp, stream: StreamKey) {
        if self.streams.find(stream).is_none_or(|stream| stream.state != StreamState::Open) {
            return;
        }
        let index = stream.index;
        let stream = self.streams.at(index);
        let (connection, needs, length) = (stream.connection, stream.needs, stream.body_length);
        let (head, body) = (std::mem::take(&mut stream.head), std::mem::take(&mut stream.body));
        let stored = needs.body && length <= BODY_STORED_MAX as u64;
        let going_away = self.streams.stream_connection(connection).going_away;
        let (_, worker, request) = self.streams.release(index);
        let Some(mut request) = request else { return };
        if self.first_head.is_none() {
            self.first_head = Some(head.as_slice().into());
        }
        request.record.keep_alive = self.spec.reuse == Reuse::KeepAlive && !going_away;
        if request.record.sent_at.is_none() {
            request.record.early_response = true;
            self.live.early_responses += 1;
        }
        let received = ReceivedResponse {
            status: request.record.status,
            head: &head,
            body: stored.then_some(&body[..]),
            body_length: length,
        };
        let follow_up = self.conclude(now, request, Ok(received));
        // The buffers are reused.
        let stream = self.streams.at(index);
        (stream.head, stream.body) = (head, body);
        stream.body.clear();
        if stream.body.capacity() > BODY_CAPACITY_KEPT {
            stream.body = Vec::new();
        }
        if let Loop::Closed(workers) = &mut self.arrivals {
            workers.answered(worker, follow_up);
        }
        self.settle_stream_connection(now, connection);
        if let Loop::Closed(_) = &self.arrivals {
            self.issue(now, worker);
        }
        self.make_follow_ups(now);
    }

    /// The stream ended without a complete response.
    pub fn handle_stream_failure(&mut self, now: Timestamp, stream: StreamKey, failure: StreamFailure) {
        if self.streams.find(stream).is_none_or(|stream| stream.state != StreamState::Open) {
            return;
        }
        match failure {
            StreamFailure::Refused => self.retry_stream(now, stream.index, FailureCause::StreamReset),
            StreamFailure::Failed(cause) => self.fail_stream(now, now, stream.index, cause),
        }
        self.make_follow_ups(now);
    }

    /// A stream's request failed at `done_at`, which is `now` or a deadline just before it.
    pub(super) fn fail_stream(&mut self, now: Timestamp, done_at: Timestamp, index: u32, cause: FailureCause) {
        let ended = self.end_stream(done_at, index, cause);
        self.settle_stream_connection(now, ended.connection);
        self.continue_after_failure(now, ended.worker, ended.silent && cause != FailureCause::ResponseTimeout);
    }

    /// Ends a stream with a failure.
    pub(super) fn end_stream(&mut self, done_at: Timestamp, index: u32, cause: FailureCause) -> Ended {
        let (connection, worker, request) = self.streams.release(index);
        let silent = request.as_ref().is_some_and(|request| request.record.first_byte_at.is_none());
        if let Some(request) = request {
            // A failed request has no next hop.
            let _ = self.conclude(done_at, request, Err(cause));
        }
        Ended { connection, worker, silent }
    }

    pub(super) fn continue_after_failure(&mut self, now: Timestamp, worker: u32, pause: bool) {
        match &mut self.arrivals {
            Loop::Closed(workers) if pause => workers.pause(worker, now),
            Loop::Closed(_) => self.issue(now, worker),
            _ => {}
        }
    }

    /// Retries a request that the server did not process, once; after that it fails for `cause`.
    pub(super) fn retry_stream(&mut self, now: Timestamp, index: u32, cause: FailureCause) {
        let stream = self.streams.at(index);
        let connection = stream.connection;
        let retried = stream.request.as_ref().is_none_or(|request| request.retried);
        if retried || self.spec.retry == Retry::Never {
            return self.fail_stream(now, now, index, cause);
        }
        self.live.retried += 1;
        self.move_stream(index, true);
        self.settle_stream_connection(now, connection);
    }

    /// Moves a request to another connection, or to the end of its own connection's queue if that still takes streams.
    pub(super) fn move_stream(&mut self, index: u32, retried: bool) {
        let (_, worker, request) = self.streams.release(index);
        let Some(mut request) = request else { return };
        request.retried |= retried;
        let record = &mut request.record;
        (record.connection, record.stream, record.sent_at, record.first_byte_at) = (None, None, None, None);
        // Only the bytes sent remain of the failed attempt. Connect times are those of single handshakes.
        (record.status, record.bytes_received, record.head_bytes) = (0, 0, 0);
        if retried {
            (record.connected_at, record.secured_at) = (None, None);
        }
        let endpoint = self.endpoint_of(request.record.url, request.purpose_key);
        if let Loop::Closed(_) = self.arrivals {
            return self.assign_to_group(request, worker, endpoint);
        }
        // At the maximum of connections the new one replaces the connection that the server is closing.
        let client = request.record.client;
        let index = self
            .stream_connection_for(client, endpoint)
            .unwrap_or_else(|| self.open_stream_connection(client, endpoint));
        self.assign(index, request, worker);
    }
}

/// A stream that has ended.
pub(super) struct Ended {
    pub(super) connection: u32,
    pub(super) worker: u32,
    /// Whether no byte of a response was received.
    pub(super) silent: bool,
}

/// Maximum buffer for a body that a slot keeps for reuse.
const BODY_CAPACITY_KEPT: usize = 64 << 10;
