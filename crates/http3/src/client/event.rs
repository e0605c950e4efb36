//! What a connection reports.

use bytes::Bytes;
use http::header::HeaderMap;

use crate::code::Code;
use crate::lost::Lost;

/// Events of a connection, in the order in which they happened. `K` identifies a request for the owner.
#[derive(Debug)]
pub enum Event<K> {
    /// The handshake is finished.
    Connected,
    /// The server allows this many concurrent requests. Comes with [`Event::Connected`], or before with early data.
    Limit(u32),
    /// A request has its stream. Comes once, possibly late if the server's limit was reached.
    Opened {
        /// The request.
        stream: K,
        /// Identifier of the stream.
        number: u32,
    },
    /// Bytes of a request's frames left in a packet for the first time; `last`: the request is complete.
    Sent {
        /// The request.
        stream: K,
        /// Their number.
        bytes: u64,
        /// Whether they complete the request.
        last: bool,
    },
    /// Bytes of a response's frames arrived, heads of frames included; `head`: of HEADERS.
    Received {
        /// The request.
        stream: K,
        /// Their number.
        bytes: u64,
        /// Whether they are of HEADERS.
        head: bool,
    },
    /// The head of a response.
    Head {
        /// The request.
        stream: K,
        /// The status.
        status: u16,
        /// The header fields.
        fields: HeaderMap,
    },
    /// Bytes of a response's body.
    Body {
        /// The request.
        stream: K,
        /// The bytes.
        bytes: Bytes,
    },
    /// The response is complete.
    End {
        /// The request.
        stream: K,
    },
    /// No response will arrive.
    Failed {
        /// The request.
        stream: K,
        /// Why.
        why: StreamFault,
    },
    /// The server processes no request on streams from `first` on (GOAWAY).
    GoAway {
        /// Identifier of the first such stream.
        first: u64,
    },
    /// The connection has ended. The last event.
    Lost(Lost),
}

/// Why a request got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The server has not processed it: H3_REQUEST_REJECTED, or early data that the server did not accept.
    Rejected,
    /// The server reset its stream, with this code.
    Reset(Code),
    /// The response is malformed.
    Malformed,
    /// The head of the response is larger than accepted.
    HeadTooLarge,
}

/// A datagram to send, or several of the same length that the kernel divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Length of each datagram but the last; `None` if there is one.
    pub segment: Option<usize>,
    /// The ECN bits of their IP headers.
    pub ecn: u8,
}

/// What a connection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Retry packets received: the server validated the client's address.
    pub retries: u64,
    /// Whether early data was offered.
    pub early_data_offered: bool,
    /// Whether the server accepted it.
    pub early_data_accepted: bool,
}

/// TLS as negotiated.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The protocol that ALPN chose.
    pub alpn: Option<Vec<u8>>,
    /// The version.
    pub version: Option<rustls::ProtocolVersion>,
    /// The cipher suite.
    pub suite: Option<rustls::SupportedCipherSuite>,
    /// Whether the session was resumed.
    pub kind: Option<rustls::HandshakeKind>,
}
