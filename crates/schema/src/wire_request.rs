//! One HTTP request as seen on the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

/// How the end of a message was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Framing {
    /// By its head: a length, chunks, no body, or the end of the connection where HTTP says so.
    #[default]
    Exact,
    /// The head could not be read in full (snap length, capture loss), or the connection was open before the capture:
    /// the message goes from one change of direction to the next. Pipelined requests are then counted as one.
    ByDirection,
}

impl Framing {
    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Framing::Exact => "exact",
            Framing::ByDirection => "by_direction",
        }
    }
}

/// One request and its response. What was not seen or could not be read is `None`; nothing is guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// The connection's sequence number: see [`crate::ConnectionRecord::connection`].
    pub connection: u64,
    /// The end that sent the request.
    pub client: SocketAddr,
    /// The end that answered it.
    pub server: SocketAddr,
    /// Place of the request on its connection, from 0.
    pub index: u32,
    /// First byte of the request.
    pub request_first_at: Option<Timestamp>,
    /// Last byte of the request.
    pub request_last_at: Option<Timestamp>,
    /// First byte of the response; of the final one, where interim (1xx) responses came before it.
    pub response_first_at: Option<Timestamp>,
    /// Last byte of the response; the last byte seen, where it did not end.
    pub response_last_at: Option<Timestamp>,
    /// Method, as sent, at most 32 bytes.
    pub method: Option<Arc<[u8]>>,
    /// Value of the Host field, as sent, cut at 255 bytes.
    pub host: Option<Arc<[u8]>>,
    /// Request target, as sent, cut at 1024 bytes.
    pub path: Option<Arc<[u8]>>,
    /// The minor version of HTTP/1 that the request names, 0 or 1 or another digit. Not in the table of requests.
    pub minor_version: Option<u8>,
    /// Value of the Referer field, as sent, cut at 1024 bytes. Not in the table of requests.
    pub referer: Option<Arc<[u8]>>,
    /// Value of the User-Agent field, as sent, cut at 1024 bytes. Not in the table of requests.
    pub user_agent: Option<Arc<[u8]>>,
    /// Status of the final response.
    pub status: Option<u16>,
    /// Bytes of the request: head and body.
    pub request_bytes: u64,
    /// Bytes of the responses: heads and bodies, interim ones included.
    pub response_bytes: u64,
    /// How the ends were found; the weaker of request and response.
    pub framing: Framing,
    /// Whether the response was seen to its end.
    pub complete: bool,
}

impl WireRequest {
    /// Service time as the wire saw it: last byte of the request to last byte of the response, at the capture point.
    /// `None` where either was not seen. A response that overtakes its request's body gives 0.
    pub fn service_time_ns(&self) -> Option<u64> {
        let last = self.response_last_at.filter(|_| self.complete)?;
        Some(last.as_nanos().saturating_sub(self.request_last_at?.as_nanos()))
    }

    /// First byte of the request to last byte of the response: how long it was in flight on the wire.
    pub fn in_flight_ns(&self) -> Option<u64> {
        let last = self.response_last_at.filter(|_| self.complete)?;
        Some(last.as_nanos().saturating_sub(self.request_first_at?.as_nanos()))
    }
}
