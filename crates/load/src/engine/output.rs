//! What the driver is to do.

use units::Timestamp;

use super::Load;
use crate::connection::{ConnectionKey, State};
use crate::queues::Queue;

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
    Close,
}

impl Load {
    /// The next thing to do. Handing it out is the moment at which it counts as done: `now` becomes `started_at` of a
    /// request whose Connect (or Send on an open connection) this is, `opened_at` or `closed_at` of a connection.
    pub fn poll_action(&mut self, now: Timestamp) -> Option<Action<'_>> {
        while let Some(Pending { key, what }) = self.actions.pop_front() {
            let Some(connection) = self.pool.find(key) else { continue };
            match (what, connection.state) {
                (What::Connect, State::Wanted) => {
                    let target = self.hand_out_connect(now, key.index);
                    return Some(Action::Connect { key, client: self.pool.at(key.index).client, target });
                }
                (What::Send, State::Ready) => {
                    let request = self.hand_out_send(now, key.index);
                    return Some(Action::Send { key, request, bytes: &self.requests[request], prepared: true });
                }
                (What::Close, State::Closing) => {
                    self.hand_out_close(now, key.index);
                    return Some(Action::Close { key });
                }
                // The connection has moved on since (closed before its Send went out, say).
                (What::Connect | What::Send | What::Close, _) => {}
            }
        }
        None
    }

    /// A request of the workload: the same bytes for every [`Action::Send`] of it.
    pub fn request(&self, request: usize) -> &[u8] {
        &self.requests[request]
    }

    /// What is left to write of the request on a connection; empty when there is nothing.
    pub fn unsent(&self, key: ConnectionKey) -> &[u8] {
        let Some(connection) = self.pool.find(key).filter(|connection| connection.state == State::Awaiting) else {
            return &[];
        };
        let Some(request) = &connection.request else { return &[] };
        &self.requests[request.url as usize][connection.sent..]
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
        let number = self.live.connections_opened;
        self.live.connections_opened += 1;
        self.live.connections += 1;
        let connection = self.pool.at(index);
        connection.state = State::Connecting;
        connection.number = number;
        connection.opened_at = now;
        let request = connection.request.as_mut().expect("a connection is opened for a request");
        request.connection = Some(number);
        let target = usize::from(connection.endpoint);
        if request.started_at.is_none() {
            request.started_at = Some(now);
            self.count_start();
        }
        self.queues.push(Queue::Connecting, index, now + self.spec.connect_timeout);
        target
    }

    fn hand_out_send(&mut self, now: Timestamp, index: u32) -> usize {
        let connection = self.pool.at(index);
        connection.state = State::Awaiting;
        connection.requests += 1;
        connection.sent = 0;
        let request = connection.request.as_mut().expect("a request is sent");
        let asked = request.url as usize;
        let starts = request.started_at.is_none();
        if starts {
            request.started_at = Some(now);
        }
        connection.response.reset(self.spec.workload.requests[asked].method);
        if self.first_head.is_none() {
            connection.response.keep_head();
        }
        if starts {
            self.count_start();
        }
        self.queues.push(Queue::Awaiting, index, now + self.spec.response_timeout);
        asked
    }

    fn hand_out_close(&mut self, now: Timestamp, index: u32) {
        let end = self.pool.at(index).end(now);
        self.ends.push(end);
        self.pool.release(index);
        self.live.connections -= 1;
    }

    fn count_start(&mut self) {
        self.live.backlog -= 1;
        self.live.in_flight += 1;
        self.live.started += 1;
    }
}
