//! The actions that the driver carries out.

use schema::Method;
use units::Timestamp;

use super::Load;
use super::evaluation::Needs;
use super::streams::{RequestHead, StreamKey};
use crate::connection::{ConnectionKey, State};
use crate::in_flight::{InFlightRequest, PurposeKey};
use crate::queues::Queue;
use crate::request;

/// One action that the driver carries out immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Open a connection from a client's address to a target's.
    Connect {
        /// The key of the new connection.
        key: ConnectionKey,
        /// Index of the client.
        client: u32,
        /// Index into [`Load::targets`].
        target: usize,
    },
    /// Write a request to an open connection.
    Send {
        /// The connection.
        key: ConnectionKey,
        /// Index into the workload's requests.
        request: usize,
        /// The complete request, head and body.
        bytes: &'a [u8],
        /// Whether `bytes` are those of [`Load::request`], which stay at their address for the lifetime of the load.
        prepared: bool,
    },
    /// Open a stream for a request on an HTTP/2 or HTTP/3 connection. The driver reports the result with
    /// [`Load::handle_stream_opened`] or [`Load::handle_stream_failure`].
    Open {
        /// The connection.
        key: ConnectionKey,
        /// The key of the new stream.
        stream: StreamKey,
        /// Index into the workload's requests.
        request: usize,
        /// Method, URI and header fields.
        head: &'a RequestHead,
        /// Body.
        body: &'a [u8],
    },
    /// Cancel a stream (RST_STREAM with CANCEL; RESET_STREAM and STOP_SENDING with H3_REQUEST_CANCELLED).
    Reset {
        /// The connection.
        key: ConnectionKey,
        /// The key that the stream had.
        stream: StreamKey,
        /// The stream's identifier on the connection; 0 if the driver has not reported it.
        number: u32,
    },
    /// Close a connection; it has no socket if connecting failed before one was created.
    Close {
        /// The connection. The key is void afterwards.
        key: ConnectionKey,
    },
}

/// An action that the driver has not fetched yet. Void if its connection has since changed to another state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) key: ConnectionKey,
    pub(super) what: ActionKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ActionKind {
    Connect,
    Send,
    Stream(StreamKey),
    Reset(StreamKey, u32),
    Close,
}

impl Load {
    /// Returns the next action. `now` is recorded as the time of the action: `started_at` of a request for its Connect
    /// (or its Send on an open connection), `opened_at` or `closed_at` of a connection.
    pub fn poll_action(&mut self, now: Timestamp) -> Option<Action<'_>> {
        self.poll(now, true)
    }

    /// Returns the next action, but assigns no connections to requests of the backlog. A driver that has more responses
    /// to read uses this call, as each response may free a connection for a request of the backlog.
    pub fn poll_follow_up(&mut self, now: Timestamp) -> Option<Action<'_>> {
        self.poll(now, false)
    }

    fn poll(&mut self, now: Timestamp, places: bool) -> Option<Action<'_>> {
        loop {
            let Some(Pending { key, what }) = self.actions.pop_front() else {
                if places && self.place_next() {
                    continue;
                }
                return None;
            };
            let Some(connection) = self.pool.find(key) else { continue };
            match (what, connection.state) {
                (ActionKind::Connect, State::ConnectQueued) => {
                    let target = self.hand_out_connect(now, key.index);
                    return Some(Action::Connect { key, client: self.pool.at(key.index).client, target });
                }
                (ActionKind::Send, State::Ready) => {
                    let request = self.hand_out_send(now, key.index);
                    let connection = self.pool.at(key.index);
                    let prepared = !connection.is_written;
                    let bytes = if prepared { self.prepared.of(request) } else { &connection.bytes };
                    return Some(Action::Send { key, request, bytes, prepared });
                }
                (ActionKind::Close, State::Closing) => {
                    self.hand_out_close(now, key.index);
                    return Some(Action::Close { key });
                }
                (ActionKind::Stream(stream), State::Connecting | State::Securing | State::StreamsReady) => {
                    if self.hand_out_stream(now, key.index, stream) {
                        let (request, head, body) = self.handed_out(stream);
                        return Some(Action::Open { key, stream, request, head, body });
                    }
                }
                (ActionKind::Reset(stream, number), State::StreamsReady) => {
                    return Some(Action::Reset { key, stream, number });
                }
                // The connection has changed state since, for example was closed before its Send.
                (
                    ActionKind::Connect
                    | ActionKind::Send
                    | ActionKind::Stream(_)
                    | ActionKind::Reset(..)
                    | ActionKind::Close,
                    _,
                ) => {}
            }
        }
    }

    /// The bytes of a prepared request of the workload, which every [`Action::Send`] with `prepared` contains. Empty
    /// for requests that are not prepared.
    pub fn request(&self, request: usize) -> &[u8] {
        self.prepared.of(request)
    }

    /// The bytes of a connection's request that are still to be written; empty if there are none.
    pub fn unsent(&self, key: ConnectionKey) -> &[u8] {
        let Some(connection) = self.pool.find(key).filter(|connection| connection.state == State::Awaiting) else {
            return &[];
        };
        let Some(request) = &connection.request else { return &[] };
        let whole =
            if connection.is_written { &connection.bytes } else { self.prepared.of(request.record.url as usize) };
        &whole[connection.sent..]
    }

    /// Number of body bytes that the driver may discard unread on a connection (`MSG_TRUNC`), since they belong to a
    /// body of known length. The driver reports them with [`Self::handle_discarded`].
    pub fn discardable(&self, key: ConnectionKey) -> u64 {
        self.pool
            .find(key)
            .filter(|connection| connection.state == State::Awaiting)
            .map_or(0, |connection| connection.response.discardable())
    }

    fn hand_out_connect(&mut self, now: Timestamp, index: u32) -> usize {
        let number = self.spec.shard.number(self.live.connections_opened);
        self.live.connections_opened += 1;
        self.live.connections += 1;
        let connection = self.pool.at(index);
        connection.state = State::Connecting;
        connection.number = number;
        connection.opened_at = now;
        if let Some(virtual_users) = &self.virtual_users {
            connection.uses = virtual_users.uses(number);
        }
        let target = usize::from(connection.endpoint);
        match &mut connection.request {
            Some(InFlightRequest { record, .. }) => {
                record.connection = Some(number);
                if record.started_at.is_none() {
                    record.started_at = Some(now);
                    self.count_start();
                }
            }
            // Otherwise it is an idle connection opened before the load.
            None => {
                if self.is_multiplexed() {
                    self.start_stream_connection(now, index);
                }
            }
        }
        self.queues.push(Queue::Connecting, index, now + self.spec.connect_timeout);
        target
    }

    fn hand_out_send(&mut self, now: Timestamp, index: u32) -> usize {
        self.note_request_time(now, index);
        let (method, needs) = self.write_out(now, index);
        let connection = self.pool.at(index);
        connection.state = State::Awaiting;
        connection.requests += 1;
        connection.sent = 0;
        connection.unacknowledged = 0;
        self.live.sends += 1;
        let request = &mut connection.request.as_mut().expect("a request is sent").record;
        request.attempts = request.attempts.saturating_add(1);
        let url = request.url as usize;
        let starts = request.started_at.is_none();
        if starts {
            request.started_at = Some(now);
        }
        connection.response.reset(method);
        if self.first_head.is_none() || needs.head {
            connection.response.store_head();
        }
        if needs.body {
            connection.response.store_body();
        }
        if starts {
            self.count_start();
        }
        self.attach_checker(index);
        self.queues.push(Queue::Awaiting, index, now + self.spec.response_timeout);
        url
    }

    /// Writes a connection's request into the connection's buffer, unless it is prepared or already written. Returns
    /// its method, and which parts of its response must be stored.
    fn write_out(&mut self, now: Timestamp, index: u32) -> (Method, Needs) {
        let connection = self.pool.at(index);
        let (is_written, request) = (connection.is_written, connection.request.as_ref().expect("a request is sent"));
        let (url, purpose_key) = (request.record.url, request.purpose_key);
        let outline = self.outlines[url as usize];
        let is_prepared = !self.prepared.of(url as usize).is_empty();
        if is_prepared && purpose_key == PurposeKey::PLAIN && !self.spec.workload.cookies {
            return (outline.method, outline.needs);
        }
        let method = self.method_of(url, purpose_key);
        if is_written {
            return (method, outline.needs);
        }
        let mut bytes = std::mem::take(&mut self.pool.at(index).bytes);
        bytes.clear();
        let connection = self.pool.slot(index);
        let mut rendering = self.rendering(connection.request.as_ref().expect("a request is sent"), now);
        if let Some(content) = &mut rendering.workload_content {
            content.is_last = connection.uses != 0 && connection.requests + 1 >= connection.uses;
        }
        let written = !is_prepared
            || rendering.hop.is_some()
            || rendering.cookie.is_some()
            || rendering.workload_content.is_some();
        if written {
            request::write(&self.spec, &rendering, &mut bytes);
        }
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.note_written(&bytes);
        }
        let connection = self.pool.at(index);
        (connection.bytes, connection.is_written) = (bytes, written);
        (method, outline.needs)
    }

    fn hand_out_close(&mut self, now: Timestamp, index: u32) {
        let end = self.pool.at(index).end(now);
        self.ends.push(end);
        self.pool.release(index);
        self.live.connections -= 1;
    }

    pub(super) fn count_start(&mut self) {
        self.live.backlog -= 1;
        self.live.in_flight += 1;
        self.live.started += 1;
    }
}
