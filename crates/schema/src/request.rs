//! One request as the load generator saw it.

use units::Timestamp;

use crate::FailureCause;

/// HTTP methods the generator sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Method {
    /// GET
    #[default]
    #[serde(rename = "GET")]
    Get,
    /// HEAD: the response has no body whatever its header says.
    #[serde(rename = "HEAD")]
    Head,
    /// POST, with a body.
    #[serde(rename = "POST")]
    Post,
    /// PUT
    #[serde(rename = "PUT")]
    Put,
    /// PATCH
    #[serde(rename = "PATCH")]
    Patch,
    /// DELETE
    #[serde(rename = "DELETE")]
    Delete,
    /// OPTIONS
    #[serde(rename = "OPTIONS")]
    Options,
}

impl Method {
    /// Every method, in the order of declaration.
    pub const ALL: [Method; 7] =
        [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Options];

    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }
}

/// One request, from the moment it was meant to start. Moments that did not happen are `None`; a timed-out request
/// has its `done_at` at the timeout and a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RequestRecord {
    /// Number in the run, from 0: of the arrival in the schedule; where requests follow from responses (sessions,
    /// redirects), in the order in which they came to be intended. With several lanes numbers may be left out.
    pub sequence: u64,
    /// Index of the virtual client (its address is the client base plus this).
    pub client: u32,
    /// Sequence number of the connection in the run, from 0; `None` if none was ever opened for it.
    pub connection: Option<u64>,
    /// Number of the session in the run, from 0; `None` where the plan has no sessions.
    pub session: Option<u64>,
    /// Index into the run's list of requests.
    pub url: u32,
    /// HTTP/2: the stream's identifier on its connection; `None` with HTTP/1, or if none was opened.
    pub stream: Option<u32>,
    /// When the schedule meant it to start.
    pub intended_at: Timestamp,
    /// connect(2) called, or first write on an open connection.
    pub started_at: Option<Timestamp>,
    /// TCP connection established; `None` on a connection that was open already.
    pub connected_at: Option<Timestamp>,
    /// TLS handshake finished: the request may be sent. `None` without TLS, and where `connected_at` is.
    pub secured_at: Option<Timestamp>,
    /// Last byte of the request handed to the kernel, encrypted where there is TLS.
    pub sent_at: Option<Timestamp>,
    /// First byte of the response read.
    pub first_byte_at: Option<Timestamp>,
    /// Last byte of the response read, or the moment of failure.
    pub done_at: Timestamp,
    /// Status code; 0 if no status line was read.
    pub status: u16,
    /// Response bytes read for this request: head and body, interim responses included, as they are inside TLS.
    pub bytes_received: u64,
    /// Of these, bytes of the head, interim responses' heads included; 0 if no head was whole. What is left is the body as
    /// it came, the framing of chunks included.
    pub head_bytes: u32,
    /// Whether the response left its connection open to a further request, as far as it says. False if it was not whole.
    pub keeps_connection: bool,
    /// Request bytes that the kernel took and the peer acknowledged, as they are inside TLS; of every attempt.
    pub bytes_sent: u64,
    /// Times the request was sent: 0 if never, 2 if it was retried on a fresh connection.
    pub attempts: u8,
    /// The response was whole before the server had received the whole request.
    pub early_response: bool,
    /// It waited until a connection became free, as many being open and busy as may be: what it was late by is then no fault of the
    /// generator's. Not in the table of requests.
    pub queued: bool,
    /// Why it failed; `None` if a whole response arrived.
    pub failure: Option<FailureCause>,
}

impl RequestRecord {
    /// Bytes of the body as it came, the framing of chunks included; none before the head was whole.
    pub fn body_bytes(&self) -> u64 {
        if self.head_bytes == 0 { 0 } else { self.bytes_received.saturating_sub(u64::from(self.head_bytes)) }
    }

    /// done - intended: the headline.
    pub fn response_time_ns(&self) -> u64 {
        self.done_at.as_nanos().saturating_sub(self.intended_at.as_nanos())
    }

    /// done - started; `None` if it never started.
    pub fn service_time_ns(&self) -> Option<u64> {
        Some(self.done_at.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }

    /// started - intended: what the generator was late by; `None` if it never started.
    pub fn send_lag_ns(&self) -> Option<u64> {
        Some(self.started_at?.as_nanos().saturating_sub(self.intended_at.as_nanos()))
    }

    /// connected - started; `None` on a connection that was open already, or one never established.
    pub fn connect_ns(&self) -> Option<u64> {
        Some(self.connected_at?.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }

    /// secured - connected; `None` without TLS, on a connection that was open already, or where the handshake failed.
    pub fn tls_handshake_ns(&self) -> Option<u64> {
        Some(self.secured_at?.as_nanos().saturating_sub(self.connected_at?.as_nanos()))
    }

    /// first byte - started; `None` if no byte came.
    pub fn first_byte_ns(&self) -> Option<u64> {
        Some(self.first_byte_at?.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }
}
