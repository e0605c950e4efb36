//! What the driver is to do.

use schema::Method;
use units::Timestamp;

use super::Load;
use super::evaluation::Wants;
use super::streams::{RequestHead, StreamKey};
use crate::connection::{ConnectionKey, State};
use crate::in_flight::{InFlightRequest, PurposeKey};
use crate::queues::Queue;
use crate::request;

/// One thing for the driver to do, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Open a connection from a client's address to a target's.
    Connect {
        /// Its name from now on.
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
        /// The whole request, head and body.
        bytes: &'a [u8],
        /// `bytes` are [`Load::request`]'s and stay where they are for as long as the load lives.
        prepared: bool,
    },
    /// Open a stream for a request on a connection that carries streams. To be answered with
    /// [`Load::handle_stream_opened`], or with [`Load::handle_stream_failure`].
    Open {
        /// The connection.
        key: ConnectionKey,
        /// The stream's name from now on.
        stream: StreamKey,
        /// Index into the workload's requests.
        request: usize,
        /// Method, URI and header fields.
        head: &'a RequestHead,
        /// Body.
        body: &'a [u8],
    },
    /// Tell the server that a stream is given up (RST_STREAM with CANCEL).
    Reset {
        /// The connection.
        key: ConnectionKey,
        /// The stream's identifier on it.
        number: u32,
    },
    /// Close a connection, if it has come to have a socket.
    Close {
        /// The connection. Void after this.
        key: ConnectionKey,
    },
}

/// An action not handed out yet. Void if the key's connection is no longer in the state that asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) key: ConnectionKey,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Connect,
    Send,
    Stream(StreamKey),
    Reset(u32),
    Close,
}

impl Load {
    /// The next thing to do. Handing it out is the moment at which it counts as done: `now` becomes `started_at` of a
    /// request whose Connect (or Send on an open connection) this is, `opened_at` or `closed_at` of a connection.
    pub fn poll_action(&mut self, now: Timestamp) -> Option<Action<'_>> {
        self.poll(now, true)
    }

    /// The same, but without connections for requests that wait for one: what follows from what has happened. A driver
    /// that has more answers to read takes these first, as each may free a connection for a request that waits.
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
                (What::Connect, State::Wanted) => {
                    let target = self.hand_out_connect(now, key.index);
                    return Some(Action::Connect { key, client: self.pool.at(key.index).client, target });
                }
                (What::Send, State::Ready) => {
                    let request = self.hand_out_send(now, key.index);
                    let connection = self.pool.at(key.index);
                    let prepared = !connection.is_written;
                    let bytes = if prepared { self.prepared.of(request) } else { &connection.bytes };
                    return Some(Action::Send { key, request, bytes, prepared });
                }
                (What::Close, State::Closing) => {
                    self.hand_out_close(now, key.index);
                    return Some(Action::Close { key });
                }
                (What::Stream(stream), State::Connecting | State::Securing | State::Carrying) => {
                    if self.hand_out_stream(now, key.index, stream) {
                        let (request, head, body) = self.handed_out(stream);
                        return Some(Action::Open { key, stream, request, head, body });
                    }
                }
                (What::Reset(number), State::Carrying) => return Some(Action::Reset { key, number }),
                // The connection has moved on since (closed before its Send went out, say).
                (What::Connect | What::Send | What::Stream(_) | What::Reset(_) | What::Close, _) => {}
            }
        }
    }

    /// A request of the workload that is prepared: the same bytes for every [`Action::Send`] of it that says so.
    /// Empty for others.
    pub fn request(&self, request: usize) -> &[u8] {
        self.prepared.of(request)
    }

    /// What is left to write of the request on a connection; empty when there is nothing.
    pub fn unsent(&self, key: ConnectionKey) -> &[u8] {
        let Some(connection) = self.pool.find(key).filter(|connection| connection.state == State::Awaiting) else {
            return &[];
        };
        let Some(request) = &connection.request else { return &[] };
        let whole =
            if connection.is_written { &connection.bytes } else { self.prepared.of(request.record.url as usize) };
        &whole[connection.sent..]
    }

    /// Body bytes that the driver may throw away unread on a connection (`MSG_TRUNC`), because they are certain to
    /// belong to a body of known length. Told with [`Self::handle_discarded`].
    pub fn discardable(&self, key: ConnectionKey) -> u64 {
        self.pool
            .find(key)
            .filter(|connection| connection.state == State::Awaiting)
            .map_or(0, |connection| connection.response.discardable())
    }

    fn hand_out_connect(&mut self, now: Timestamp, index: u32) -> usize {
        let number = self.spec.lane.number(self.live.connections_opened);
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
            // Else it was opened to be held.
            None => {
                if self.is_multiplexed() {
                    self.start_trunk(now, index);
                }
            }
        }
        self.queues.push(Queue::Connecting, index, now + self.spec.connect_timeout);
        target
    }

    fn hand_out_send(&mut self, now: Timestamp, index: u32) -> usize {
        self.note_asked(now, index);
        let (method, wants) = self.write_out(now, index);
        let connection = self.pool.at(index);
        connection.state = State::Awaiting;
        connection.requests += 1;
        connection.sent = 0;
        connection.unacknowledged = 0;
        self.live.sends += 1;
        let request = &mut connection.request.as_mut().expect("a request is sent").record;
        request.attempts = request.attempts.saturating_add(1);
        let asked = request.url as usize;
        let starts = request.started_at.is_none();
        if starts {
            request.started_at = Some(now);
        }
        connection.response.reset(method);
        if self.first_head.is_none() || wants.head {
            connection.response.keep_head();
        }
        if wants.body {
            connection.response.keep_body();
        }
        if starts {
            self.count_start();
        }
        self.look_at_reply(index);
        self.queues.push(Queue::Awaiting, index, now + self.spec.response_timeout);
        asked
    }

    /// Writes the request of a connection into the connection's own memory, unless it goes out as prepared or was
    /// written before. Its method, and what must be kept of its response.
    fn write_out(&mut self, now: Timestamp, index: u32) -> (Method, Wants) {
        let connection = self.pool.at(index);
        let (is_written, request) = (connection.is_written, connection.request.as_ref().expect("a request is sent"));
        let (url, purpose_key) = (request.record.url, request.purpose_key);
        let outline = self.outlines[url as usize];
        let is_prepared = !self.prepared.of(url as usize).is_empty();
        if is_prepared && purpose_key == PurposeKey::PLAIN && !self.spec.workload.cookies {
            return (outline.method, outline.wants);
        }
        let method = self.method_of(url, purpose_key);
        if is_written {
            return (method, outline.wants);
        }
        let mut bytes = std::mem::take(&mut self.pool.at(index).bytes);
        bytes.clear();
        let connection = self.pool.slot(index);
        let mut rendering = self.rendering(connection.request.as_ref().expect("a request is sent"), now);
        if let Some(asked) = &mut rendering.asked {
            asked.is_last = connection.uses != 0 && connection.requests + 1 >= connection.uses;
        }
        let written =
            !is_prepared || rendering.hop.is_some() || rendering.cookie.is_some() || rendering.asked.is_some();
        if written {
            request::write(&self.spec, &rendering, &mut bytes);
        }
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.note_written(&bytes);
        }
        let connection = self.pool.at(index);
        (connection.bytes, connection.is_written) = (bytes, written);
        (method, outline.wants)
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
