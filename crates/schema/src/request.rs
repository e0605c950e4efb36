//! One request as the load generator saw it.

use units::Timestamp;

use crate::table::zero_or_one;
use crate::{FailureCause, record};

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

record! {
    /// One request, in order of completion. Times count from the run's zero on the monotonic clock of the machine
    /// that measured. Requests of the warm-up are included; a failed request ends at its failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct RequestRecord in "requests" {
        // Of an arrival of the schedule: its number there. Where requests follow from responses (sessions, redirects):
        // in the order in which they came to be scheduled. With several shards numbers may be left out.
        /// Number of the request in the run, in order of scheduled time, from 0.
        pub sequence: u64,
        /// Index of the virtual client; its address is the first client address plus this.
        pub client: u32,
        /// Number of the connection in the run, from 0. Null if none was ever opened for the request.
        pub connection: Option<u64>,
        /// Number of the session in the run, from 0. Null where the plan has no sessions.
        pub session: Option<u64>,
        /// HTTP/2: the stream's identifier on its connection. Null with HTTP/1, or if none was opened.
        pub stream: Option<u32>,
        /// Index into the run's list of requests, from 0: the order of plan.toml, or of first appearance in a log.
        pub url: u32 [few],
        /// Scheduled start.
        pub scheduled_at: Timestamp,
        /// connect called, or the first write on an open connection. Null if it never started.
        pub started_at: Option<Timestamp>,
        /// Connection established. Null on a connection that was open already, or one never established.
        pub connected_at: Option<Timestamp>,
        /// TLS handshake finished. Null without TLS, on a connection that was open already, or if it failed.
        pub secured_at: Option<Timestamp>,
        /// Last byte of the request written to the kernel. Null if it never was.
        pub sent_at: Option<Timestamp>,
        /// First byte of the response read. Null if none came.
        pub first_byte_at: Option<Timestamp>,
        /// Last byte of the response read, or the moment of failure.
        pub done_at: Timestamp,
        /// HTTP status code. Null if no status line was read.
        pub status: u16 [few, null if |row| row.status == 0],
        // As they are inside TLS, as are `bytes_sent`.
        /// Bytes of the response read: head and body, interim responses included.
        pub bytes_received: u64 [unit "bytes"],
        // The body is counted as it came, the framing of chunks included.
        /// Of bytes_received, those of heads, interim responses included; the rest is the body as it came. Null if no
        /// head was complete.
        pub head_bytes: u32 [unit "bytes", few, null if |row| row.head_bytes == 0],
        /// 1 if the response left its connection open to a further request, else 0. Null if the request failed.
        pub keep_alive: bool [few, as zero_or_one, null if |row| row.failure.is_some()],
        // Of every attempt.
        /// Bytes of the request that the server's host acknowledged.
        pub bytes_sent: u64 [unit "bytes"],
        /// Times the request was sent: 0 if never, 2 if it was retried on a fresh connection.
        pub attempts: u8 [few],
        /// 1 if the response was complete before the server had received the whole request, else 0.
        pub early_response: bool [few, as zero_or_one],
        /// Why it failed, such as response_timeout. Null if a complete response arrived, whatever its status, that is as
        /// the plan expects.
        pub failure: Option<FailureCause> [name "cause"],
    }
    besides {
        /// It waited until a connection became free, as many being open and busy as may be: what it was late by is then no fault
        /// of the generator's.
        pub queued: bool,
    }
}

impl RequestRecord {
    /// Bytes of the body as it came, the framing of chunks included; none before the head was complete.
    pub fn body_bytes(&self) -> u64 {
        if self.head_bytes == 0 { 0 } else { self.bytes_received.saturating_sub(u64::from(self.head_bytes)) }
    }

    /// done - scheduled: the headline.
    pub fn response_time_ns(&self) -> u64 {
        self.done_at.as_nanos().saturating_sub(self.scheduled_at.as_nanos())
    }

    /// done - started; `None` if it never started.
    pub fn service_time_ns(&self) -> Option<u64> {
        Some(self.done_at.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }

    /// started - scheduled: what the generator was late by; `None` if it never started.
    pub fn send_lag_ns(&self) -> Option<u64> {
        Some(self.started_at?.as_nanos().saturating_sub(self.scheduled_at.as_nanos()))
    }

    /// connected - started; `None` on a connection that was open already, or one never established.
    pub fn connect_ns(&self) -> Option<u64> {
        Some(self.connected_at?.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }

    /// secured - connected; `None` without TLS, on a connection that was open already, where the handshake failed, or
    /// where both are the same time: QUIC has one handshake for both.
    pub fn tls_handshake_ns(&self) -> Option<u64> {
        let handshake = self.secured_at?.as_nanos().saturating_sub(self.connected_at?.as_nanos());
        (handshake > 0).then_some(handshake)
    }

    /// first byte - started; `None` if no byte came.
    pub fn first_byte_ns(&self) -> Option<u64> {
        Some(self.first_byte_at?.as_nanos().saturating_sub(self.started_at?.as_nanos()))
    }
}
