//! Why a connection ended.

use quinn_proto::ConnectionError;
use rustls::{AlertDescription, Error as TlsError};

use crate::code::Code;
use crate::session::SessionState;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    /// The server closed it without an error.
    Closed,
    /// The server closed it with an error of HTTP/3.
    ClosedWith(Code),
    /// The server violated HTTP/3, so this side closed it.
    Violation(Code),
    /// An error of the transport, found by this side or reported by the server.
    Transport {
        /// The error in words, with its code.
        text: String,
        /// The code (RFC 9000, section 20.1).
        code: u64,
        /// Whether the server reported it.
        by_server: bool,
    },
    /// TLS failed: found by this side, or an alert of the server.
    Tls(TlsError),
    /// The server supports no version that this side supports.
    VersionNegotiation,
    /// The server does not know the connection any more.
    StatelessReset,
    /// Nothing arrived for as long as the idle timeout.
    IdleTimeout,
}

impl Lost {
    /// The reason that quinn-proto gives. `session`: of the connection.
    pub(crate) fn of(error: &ConnectionError, session: Option<&SessionState>) -> Self {
        match error {
            ConnectionError::VersionMismatch => Lost::VersionNegotiation,
            ConnectionError::Reset => Lost::StatelessReset,
            ConnectionError::TimedOut => Lost::IdleTimeout,
            ConnectionError::ApplicationClosed(close) => match Code(close.error_code.into_inner()) {
                // Some servers close with 0, which HTTP/3 does not define.
                Code::NO_ERROR | Code(0) => Lost::Closed,
                code => Lost::ClosedWith(code),
            },
            ConnectionError::ConnectionClosed(close) => {
                let code = u64::from(close.error_code);
                match alert(code) {
                    Some(alert) => Lost::Tls(TlsError::AlertReceived(alert)),
                    None if code == 0 => Lost::Closed,
                    None => Lost::Transport { text: close.to_string(), code, by_server: true },
                }
            }
            ConnectionError::TransportError(error) => match session.and_then(|session| session.error.clone()) {
                Some(error) => Lost::Tls(error),
                None => Lost::Transport { text: error.to_string(), code: error.code.into(), by_server: false },
            },
            ConnectionError::LocallyClosed => Lost::Closed,
            ConnectionError::CidsExhausted => {
                Lost::Transport { text: "no connection identifier is left".into(), code: 0, by_server: false }
            }
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Closed => f.write_str("the server closed the connection"),
            Lost::ClosedWith(code) => write!(f, "the server closed the connection with the HTTP/3 error {code}"),
            Lost::Violation(code) => write!(f, "the server's data is not valid HTTP/3 ({code})"),
            Lost::Transport { text, by_server: true, .. } => write!(f, "the server closed the QUIC connection: {text}"),
            Lost::Transport { text, by_server: false, .. } => write!(f, "the server's data is not valid QUIC: {text}"),
            Lost::Tls(error) => write!(f, "TLS failed: {error}"),
            Lost::VersionNegotiation => f.write_str("the server does not support QUIC version 1"),
            Lost::StatelessReset => f.write_str("the server does not know the QUIC connection (stateless reset)"),
            Lost::IdleTimeout => f.write_str("nothing arrived for as long as the idle timeout"),
        }
    }
}

/// The TLS alert of an error code (RFC 9001, section 4.8).
fn alert(code: u64) -> Option<AlertDescription> {
    code.checked_sub(CRYPTO_ERROR).and_then(|alert| u8::try_from(alert).ok()).map(AlertDescription::from)
}

const CRYPTO_ERROR: u64 = 0x100;
