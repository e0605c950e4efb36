//! One connection, from the wish for it to its end.

use schema::Method;
use units::Timestamp;

use crate::http1::Response;
use crate::in_flight::InFlightRequest;

/// Names a connection between [`Load`](crate::Load) and its driver. A key outlives its connection harmlessly: calls
/// with a key whose connection is gone are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionKey {
    /// As an epoll or io_uring token. Bit 31 is always 0, so tokens with it set are the driver's own.
    pub const fn token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Back from [`Self::token`].
    pub const fn from_token(token: u64) -> Self {
        ConnectionKey { index: token as u32, generation: (token >> 32) as u32 }
    }

    /// Position in an array of connections. Indices are taken again after a Close, and stay below the largest number
    /// of connections that were ever open at once.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// A connection that has ended, whether it was established or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ConnectionEnd {
    /// Sequence number of the connection in the run, from 0, in order of opening.
    pub connection: u64,
    /// Index of its client.
    pub client: u32,
    /// Connect called.
    pub opened_at: Timestamp,
    /// Established; `None` if it never was.
    pub connected_at: Option<Timestamp>,
    /// TLS handshake finished; `None` without TLS, or if it never was.
    pub secured_at: Option<Timestamp>,
    /// Closed by the client: when its last response was complete, or when the server had closed or reset it.
    pub closed_at: Timestamp,
    /// Requests sent on it.
    pub requests: u32,
    /// Bytes read from it, as they are inside TLS.
    pub bytes_received: u64,
}

/// Where a connection is in its life. Each state but Free, Wanted, Ready and Closing has its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is unused.
    Free,
    /// Connect is in the action queue, not handed out: not in process yet.
    Wanted,
    /// Connect was handed out.
    Connecting,
    /// Established; TLS shakes hands. Still in the queue of those that connect.
    Securing,
    /// Ready for a request; Send is in the action queue.
    Ready,
    /// Send was handed out.
    Awaiting,
    /// Open for streams, whose requests are not here; in the queue of idle ones while it has none.
    Carrying,
    /// Kept open, no request.
    Idle,
    /// Close is in the action queue.
    Closing,
}

/// A slot keeps so much memory for requests to come: more than any without a long body takes.
const WRITTEN_KEPT: usize = 16 << 10;

/// A slot of the pool.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) client: u32,
    /// Closed loop: which of the connections it stands for.
    pub(crate) worker: u32,
    pub(crate) endpoint: u16,
    pub(crate) number: u64,
    pub(crate) opened_at: Timestamp,
    pub(crate) connected_at: Option<Timestamp>,
    pub(crate) secured_at: Option<Timestamp>,
    pub(crate) requests: u32,
    /// Requests that it is to carry at most; 0 for any number.
    pub(crate) uses: u32,
    pub(crate) bytes_received: u64,
    /// Present in Wanted, Connecting, Securing, Ready and Awaiting.
    pub(crate) request: Option<InFlightRequest>,
    /// The request was written into `bytes`; otherwise it is one of the prepared ones.
    pub(crate) is_written: bool,
    /// The request, if it was written for this connection. The memory is used again.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the request written to the kernel.
    pub(crate) sent: usize,
    /// Of these, the ones that the peer had not acknowledged when that was last noted.
    pub(crate) unacknowledged: u64,
    pub(crate) response: Response,
}

impl Connection {
    pub(crate) fn new() -> Self {
        Connection {
            generation: 0,
            state: State::Free,
            client: 0,
            worker: 0,
            endpoint: 0,
            number: 0,
            opened_at: Timestamp::ZERO,
            connected_at: None,
            secured_at: None,
            requests: 0,
            uses: 0,
            bytes_received: 0,
            request: None,
            is_written: false,
            bytes: Vec::new(),
            sent: 0,
            unacknowledged: 0,
            response: Response::new(Method::Get),
        }
    }

    /// Time from connect called to established: a measured RTT.
    pub(crate) fn handshake(&self) -> std::time::Duration {
        self.connected_at.map_or(std::time::Duration::ZERO, |at| at.since(self.opened_at))
    }

    /// Whether it has carried as many requests as it is to carry.
    pub(crate) fn is_used_up(&self) -> bool {
        self.uses != 0 && self.requests >= self.uses
    }

    /// The request that was written for this connection is over.
    pub(crate) fn forget_written(&mut self) {
        self.is_written = false;
        if self.bytes.capacity() > WRITTEN_KEPT {
            self.bytes = Vec::new();
        }
    }

    /// Whether connect was called and the connection is not closed.
    pub(crate) fn is_in_process(&self) -> bool {
        match self.state {
            State::Free | State::Wanted => false,
            State::Connecting
            | State::Securing
            | State::Ready
            | State::Awaiting
            | State::Carrying
            | State::Idle
            | State::Closing => true,
        }
    }

    pub(crate) fn end(&self, closed_at: Timestamp) -> ConnectionEnd {
        ConnectionEnd {
            connection: self.number,
            client: self.client,
            opened_at: self.opened_at,
            connected_at: self.connected_at,
            secured_at: self.secured_at,
            closed_at,
            requests: self.requests,
            bytes_received: self.bytes_received,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_keys_round_trip_through_poll_tokens() {
        let key = ConnectionKey { index: 7, generation: u32::MAX };
        assert_eq!(ConnectionKey::from_token(key.token()), key);
    }
}
