//! Causes of failed requests and dropped packets: each has exactly one.

/// Why a request failed. A request with a complete response of any status has no cause, unless the plan expects
/// a property of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureCause {
    /// The connection was not established within the connect timeout, its TLS handshake included.
    ConnectTimeout,
    /// The server's host responded to the connect with RST.
    ConnectRefused,
    /// No route, host or network unreachable, or another error of connect.
    ConnectFailed,
    /// The TLS handshake failed: an alert, no version or cipher in common, the server closed, or it does not speak TLS.
    TlsHandshake,
    /// The server's certificate was refused: another name, an unknown issuer, expired.
    TlsCertificate,
    /// After the handshake the server sent a TLS alert, or an invalid record. A TLS 1.3 server refuses a client's
    /// certificate in this way.
    TlsBroken,
    /// A response delimited by the end of the connection ended without TLS's close_notify: it may be truncated.
    TlsTruncated,
    /// The response was not complete within the response timeout.
    ResponseTimeout,
    /// The server closed before the first byte of a response, other than by its idle timeout.
    ClosedBeforeResponse,
    /// The server closed, by FIN, before the response was complete: a body shorter than announced.
    ClosedEarly,
    /// The connection was reset after it was established.
    Reset,
    /// The response is not HTTP, or breaks its framing.
    Malformed,
    /// The response head is larger than the client accepts.
    HeadTooLarge,
    /// Unrequested bytes followed the response.
    UnsolicitedData,
    /// The server reset the request's stream (HTTP/2, HTTP/3).
    StreamReset,
    /// The server ended its HTTP/2 or HTTP/3 connection (GOAWAY) before it processed the request, and again after one retry; or
    /// with an error code.
    GoAway,
    /// The server closed its QUIC connection with an error of the transport, or its data is not valid QUIC.
    QuicTransportError,
    /// The server closed its HTTP/3 connection with an error of HTTP/3.
    Http3Error,
    /// The server supports no QUIC version of the client.
    VersionNegotiation,
    /// The server did not know the QUIC connection any more: a stateless reset.
    StatelessReset,
    /// Nothing arrived on the QUIC connection for as long as its idle timeout.
    QuicIdleTimeout,
    /// The proxy responded to CONNECT with a status other than 2xx.
    ProxyRefused,
    /// The response was complete; its status is not one that the plan expects.
    UnexpectedStatus,
    /// The response was complete; its body's length is not what the plan expects.
    UnexpectedLength,
    /// The response was complete; its body is not what the plan expects.
    UnexpectedBody,
    /// The response was complete; a value that the plan extracts from it is missing.
    MissingValue,
    /// The response was a redirect beyond the number that the plan follows.
    TooManyRedirects,
    /// The response was a redirect that cannot be followed: no Location, one that cannot be read, or a host the plan
    /// does not name.
    BadRedirect,
    /// No local port was left for this client address.
    NoPorts,
    /// No descriptor was left in this process.
    NoDescriptors,
    /// Another error of this machine's sockets.
    LocalError,
    /// The run was ended (Ctrl-C, or the drain's bound) while the request was in flight.
    Aborted,
}

impl FailureCause {
    /// Every cause, in the order of declaration.
    pub const ALL: [FailureCause; 32] = [
        FailureCause::ConnectTimeout,
        FailureCause::ConnectRefused,
        FailureCause::ConnectFailed,
        FailureCause::TlsHandshake,
        FailureCause::TlsCertificate,
        FailureCause::TlsBroken,
        FailureCause::TlsTruncated,
        FailureCause::ResponseTimeout,
        FailureCause::ClosedBeforeResponse,
        FailureCause::ClosedEarly,
        FailureCause::Reset,
        FailureCause::Malformed,
        FailureCause::HeadTooLarge,
        FailureCause::UnsolicitedData,
        FailureCause::StreamReset,
        FailureCause::GoAway,
        FailureCause::QuicTransportError,
        FailureCause::Http3Error,
        FailureCause::VersionNegotiation,
        FailureCause::StatelessReset,
        FailureCause::QuicIdleTimeout,
        FailureCause::ProxyRefused,
        FailureCause::UnexpectedStatus,
        FailureCause::UnexpectedLength,
        FailureCause::UnexpectedBody,
        FailureCause::MissingValue,
        FailureCause::TooManyRedirects,
        FailureCause::BadRedirect,
        FailureCause::NoPorts,
        FailureCause::NoDescriptors,
        FailureCause::LocalError,
        FailureCause::Aborted,
    ];

    /// The name in JSON, Parquet and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            FailureCause::ConnectTimeout => "connect_timeout",
            FailureCause::ConnectRefused => "connect_refused",
            FailureCause::ConnectFailed => "connect_failed",
            FailureCause::TlsHandshake => "tls_handshake",
            FailureCause::TlsCertificate => "tls_certificate",
            FailureCause::TlsBroken => "tls_broken",
            FailureCause::TlsTruncated => "tls_truncated",
            FailureCause::ResponseTimeout => "response_timeout",
            FailureCause::ClosedBeforeResponse => "closed_before_response",
            FailureCause::ClosedEarly => "closed_early",
            FailureCause::Reset => "reset",
            FailureCause::Malformed => "malformed",
            FailureCause::HeadTooLarge => "head_too_large",
            FailureCause::UnsolicitedData => "unsolicited_data",
            FailureCause::StreamReset => "stream_reset",
            FailureCause::GoAway => "goaway",
            FailureCause::QuicTransportError => "quic_transport_error",
            FailureCause::Http3Error => "h3_error",
            FailureCause::VersionNegotiation => "version_negotiation",
            FailureCause::StatelessReset => "stateless_reset",
            FailureCause::QuicIdleTimeout => "quic_idle_timeout",
            FailureCause::ProxyRefused => "proxy_refused",
            FailureCause::UnexpectedStatus => "unexpected_status",
            FailureCause::UnexpectedLength => "unexpected_length",
            FailureCause::UnexpectedBody => "unexpected_body",
            FailureCause::MissingValue => "missing_value",
            FailureCause::TooManyRedirects => "too_many_redirects",
            FailureCause::BadRedirect => "bad_redirect",
            FailureCause::NoPorts => "no_ports",
            FailureCause::NoDescriptors => "no_descriptors",
            FailureCause::LocalError => "local_error",
            FailureCause::Aborted => "aborted",
        }
    }
}

/// Why the path dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DropCause {
    /// The link's loss, as configured.
    Loss,
    /// The link's queue was full.
    QueueFull,
    /// The link's active queue management (CoDel, PIE), as configured.
    Aqm,
    /// The link had an outage, as configured.
    Outage,
    /// Not a packet that the path can forward.
    Malformed,
    /// The packet's address belongs to no client.
    NoRoute,
    /// In transit when the path was shut down.
    Shutdown,
    /// Sent to a port that the client's address translation had forgotten or does not know, as configured.
    Unmapped,
}

impl DropCause {
    /// Every cause, in the order of declaration (also the order of counter arrays).
    pub const ALL: [DropCause; 8] = [
        DropCause::Loss,
        DropCause::QueueFull,
        DropCause::Aqm,
        DropCause::Outage,
        DropCause::Malformed,
        DropCause::NoRoute,
        DropCause::Shutdown,
        DropCause::Unmapped,
    ];

    /// The name in JSON, Parquet and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            DropCause::Loss => "loss",
            DropCause::QueueFull => "queue_full",
            DropCause::Aqm => "aqm",
            DropCause::Outage => "outage",
            DropCause::Malformed => "malformed",
            DropCause::NoRoute => "no_route",
            DropCause::Shutdown => "shutdown",
            DropCause::Unmapped => "unmapped",
        }
    }

    /// Position in [`DropCause::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
