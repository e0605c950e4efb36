//! The state of one connection, from the queued Connect to its end.

use schema::Method;
use units::Timestamp;

use crate::http1::Response;
use crate::in_flight::InFlightRequest;

/// Identifies a connection between [`Load`](crate::Load) and its driver. Calls with the key of a closed connection are
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionKey {
    /// The key as an epoll or io_uring token. Bit 31 is always 0, so the driver may use tokens with that bit for
    /// itself.
    pub const fn token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key of a token from [`Self::token`].
    pub const fn from_token(token: u64) -> Self {
        ConnectionKey { index: token as u32, generation: (token >> 32) as u32 }
    }

    /// Index into an array of connections. Indices are reused after a Close, and stay below the maximum number of
    /// connections that were open concurrently.
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
    /// When connect was called.
    pub opened_at: Timestamp,
    /// When it was established; `None` if it never was.
    pub connected_at: Option<Timestamp>,
    /// When the TLS handshake finished; `None` without TLS, or if it did not finish.
    pub secured_at: Option<Timestamp>,
    /// When the client closed it: after its last response, or after the server closed or reset it.
    pub closed_at: Timestamp,
    /// Requests sent on it.
    pub requests: u32,
    /// Bytes read from it, counted inside TLS.
    pub bytes_received: u64,
}

/// The state of a connection. Each state except Free, ConnectQueued, Ready and Closing has its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is unused.
    Free,
    /// Connect is in the action queue; the driver has not fetched it.
    ConnectQueued,
    /// The driver has fetched Connect.
    Connecting,
    /// Established; the TLS handshake is in progress. Still in the queue of the connect deadlines.
    Securing,
    /// Ready for a request; Send is in the action queue.
    Ready,
    /// The driver has fetched Send; the response is pending.
    Awaiting,
    /// HTTP/2 and HTTP/3: ready for streams, whose requests are stored elsewhere. In the queue of idle connections while it has
    /// none.
    StreamsReady,
    /// Open, without a request.
    Idle,
    /// Close is in the action queue.
    Closing,
}

/// Maximum buffer that a slot keeps for later requests: enough for every request without a long body.
const WRITE_BUFFER_KEPT_MAX: usize = 16 << 10;

/// A slot of the pool.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) client: u32,
    /// Closed loop: the worker that uses the connection.
    pub(crate) worker: u32,
    pub(crate) endpoint: u16,
    pub(crate) number: u64,
    pub(crate) opened_at: Timestamp,
    pub(crate) connected_at: Option<Timestamp>,
    pub(crate) secured_at: Option<Timestamp>,
    pub(crate) requests: u32,
    /// Maximum requests on the connection; 0 for unlimited.
    pub(crate) uses: u32,
    pub(crate) bytes_received: u64,
    /// The request; present in ConnectQueued, Connecting, Securing, Ready and Awaiting.
    pub(crate) request: Option<InFlightRequest>,
    /// Whether the request was written into `bytes`; otherwise it is a prepared one.
    pub(crate) is_written: bool,
    /// The bytes of the request, if it was written for this connection. The buffer is reused.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the request written to the kernel.
    pub(crate) sent: usize,
    /// Bytes of `sent` that the peer had not acknowledged at the last report.
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

    /// Time from the call of connect to the established connection: a measured RTT.
    pub(crate) fn handshake(&self) -> std::time::Duration {
        self.connected_at.map_or(std::time::Duration::ZERO, |at| at.since(self.opened_at))
    }

    /// Whether the connection has carried its maximum number of requests.
    pub(crate) fn is_used_up(&self) -> bool {
        self.uses != 0 && self.requests >= self.uses
    }

    /// Discards the bytes of an ended request.
    pub(crate) fn forget_written(&mut self) {
        self.is_written = false;
        if self.bytes.capacity() > WRITE_BUFFER_KEPT_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Whether connect was called and the connection is not closed.
    pub(crate) fn is_in_process(&self) -> bool {
        match self.state {
            State::Free | State::ConnectQueued => false,
            State::Connecting
            | State::Securing
            | State::Ready
            | State::Awaiting
            | State::StreamsReady
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
