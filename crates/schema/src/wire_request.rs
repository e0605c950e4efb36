//! One HTTP request as seen on the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

use crate::record;

/// How the end of a message was determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Framing {
    /// By its head: a length, chunks, no body, or the end of the connection where HTTP says so.
    #[default]
    Exact,
    /// The head could not be read in full (snap length, capture loss), or the connection was open before the capture:
    /// the message goes from one change of direction to the next. Pipelined requests are then counted as one.
    ByDirection,
    /// HTTP/2 and HTTP/3: frames were not captured or fields could not be decoded, so that bytes, strings or the end of
    /// the message may be missing.
    FramesMissing,
}

impl Framing {
    /// All of them, from strong to weak.
    pub const ALL: [Framing; 3] = [Framing::Exact, Framing::ByDirection, Framing::FramesMissing];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Framing::Exact => "exact",
            Framing::ByDirection => "by_direction",
            Framing::FramesMissing => "frames_missing",
        }
    }
}

record! {
    // About 250 bytes a row and its text: few rows a part, so that a capture of any length is logged in a few MB.
    /// One HTTP request as seen in packets (watch), in the order of ending. Times are capture times: nanoseconds
    /// since the run's zero where a load or a program ran, since 1970 (UTC) in the logs of `yamabiko watch`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WireRequest in "wire_requests", 8_192 rows a part {
        /// Number of its connection: see connections.parquet, for HTTP/3 quic_connections.parquet.
        pub connection: u64,
        /// Place of the request on its connection, from 0.
        pub index: u32,
        /// Address of the end that sent the request.
        pub client: SocketAddr,
        /// Address of the end that responded.
        pub server: SocketAddr [few],
        /// First byte of the request. Null if it was not seen.
        pub request_first_at: Option<Timestamp>,
        /// Last byte of the request. Null if it was not seen.
        pub request_last_at: Option<Timestamp>,
        /// First byte of the final response. Null if none was seen.
        pub response_first_at: Option<Timestamp>,
        /// Last byte of the response, or the last that was seen. Null if none was.
        pub response_last_at: Option<Timestamp>,
        // At most 32 bytes.
        /// Method as sent. Null if it could not be read.
        pub method: Option<Arc<[u8]>>,
        /// Value of the Host field, or of `:authority`, cut at 255 bytes. Null if it could not be read.
        pub host: Option<Arc<[u8]>>,
        /// Request target as sent, cut at 1024 bytes; bytes other than text as \xNN. Null if it could not be read.
        pub path: Option<Arc<[u8]>>,
        /// Status of the final response. Null if it could not be read.
        pub status: Option<u16> [few],
        /// Bytes of the request: head and body; in HTTP/2 and 3 their frames, frame headers included.
        pub request_bytes: u64 [unit "bytes"],
        /// Bytes of the responses: heads and bodies, interim ones included; in HTTP/2 and 3 their frames.
        pub response_bytes: u64 [unit "bytes"],
        // The weaker of request and response.
        /// How the ends of the messages were found: exact, by heads or frames; by_direction, from one change of
        /// direction to the next; frames_missing, by frames of which some were not captured or not decoded.
        pub framing: Framing,
        /// Whether the response was seen to its end.
        pub complete: bool,
        /// Major version of HTTP: 1, 2 or 3.
        pub http_version: u8,
        /// Number of its stream. Null in HTTP/1, which has none.
        pub stream: Option<u64>,
    }
    besides {
        /// The minor version of HTTP/1 that the request names, 0 or 1 or another digit.
        pub minor_version: Option<u8>,
        /// Value of the Referer field, as sent, cut at 1024 bytes.
        pub referer: Option<Arc<[u8]>>,
        /// Value of the User-Agent field, as sent, cut at 1024 bytes.
        pub user_agent: Option<Arc<[u8]>>,
    }
}

impl WireRequest {
    /// Service time in packets: last byte of the request to last byte of the response, at the capture point.
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
