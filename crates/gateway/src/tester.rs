//! The tester of a gateway: client and server, which measure the network between them and send to no other host.
//!
//! ```text
//!   client (Session)                         gateway                     server (serve)
//!     control connection: handshake, then frames of messages   <------------>  handshake, session
//!     streams, transactions, connections: TCP                  <------------>  the same port
//!     packets, probes: UDP, a socket per trial                 <------------>  the same port
//! ```
//!
//! The same protocol serves emulated and real gateways. Read [`handshake`] for authentication, [`frame`] for framing,
//! [`message`] for the messages, and `trial` for the work of both ends.
//!
//! Invariants: trial data goes to authenticated peers only, and datagrams only to the address of the control
//! connection, which the TCP handshake has verified. Each end stops when nothing arrives from the other for 3 s, or at
//! the end of the trial. Timestamps of different hosts are never compared.

mod client;
mod connect;
mod control_connection;
pub mod datagram;
pub mod frame;
pub mod handshake;
pub mod message;
mod packet;
mod probe;
mod report;
mod secret;
mod server;
mod session;
mod session_table;
mod stream;
mod transact;
mod trial;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use experiment::ExperimentError;
use testbed::TestbedError;

pub use client::{ServerFacts, Session};
pub use message::Test;
pub use report::{EndReport, ExchangesReport, RttReport, SentReport, TrialReport};
pub use secret::{Keys, Secret, ShortTag, Tag};

/// The port of both TCP and UDP.
pub const PORT: u16 = 7021;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Listening address, TCP and UDP; port 0 for any free port.
    pub listen: SocketAddr,
    /// Shared secret. Without one ([`Secret::none`]) the server listens on loopback only.
    pub secret: Secret,
    /// Number of sessions after which the server ends.
    pub sessions: Option<u32>,
    /// Time after which the server ends.
    pub lasts: Option<Duration>,
}

/// Events of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// The server listens.
    Listening {
        /// Listening address.
        at: SocketAddr,
    },
    /// An authenticated client connected.
    Begun {
        /// Its address.
        peer: SocketAddr,
    },
    /// A session ended.
    Ended {
        /// Its address.
        peer: SocketAddr,
        /// How: `closed by the client`, `lost: ..`.
        how: String,
    },
    /// A connection was rejected; reported at most once a second.
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// Why.
        why: String,
        /// Rejected connections so far.
        in_all: u64,
    },
}

/// Serves until `stop` is readable, or until the configured end.
///
/// # Errors
/// The server cannot listen on the address, or the address is not loopback and there is no secret.
pub fn serve(spec: &ServerSpec, stop: BorrowedFd<'_>, tell: &mut dyn FnMut(ServerEvent)) -> Result<(), TestbedError> {
    server::serve(spec, stop, tell)
}

/// Why a session or a trial failed.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// The network reported that the server is unreachable, or the port is closed.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// The server's address.
        address: SocketAddr,
        /// The kernel's error, possibly from an ICMP message.
        source: io::Error,
    },
    /// No response.
    #[error(
        "no answer from {address}: is gateway server running there, and does the gateway let TCP and UDP port {} through?",
        .address.port()
    )]
    NoAnswer {
        /// The server's address.
        address: SocketAddr,
    },
    /// The server rejected the client's proof.
    #[error("the server at {address} does not know this secret")]
    WrongSecret {
        /// The server's address.
        address: SocketAddr,
    },
    /// Another server responds, or this one is blocking the address.
    #[error(
        "what responds at {address} is not a gateway server (or one that blocks this address for a minute, which \
         it does after three wrong secrets)"
    )]
    NotAServer {
        /// The server's address.
        address: SocketAddr,
    },
    /// Versions differ.
    #[error("versions differ: client {here}, server {there}; install the same at both ends")]
    OtherVersion {
        /// The client's version.
        here: String,
        /// The server's.
        there: String,
    },
    /// One session at a time.
    #[error("the server is in use by {by}; it serves one session at a time")]
    Busy {
        /// The address of the other client.
        by: String,
    },
    /// TCP passes, UDP does not. The session continues.
    #[error(
        "UDP does not come through to {address}: TCP alone can be measured (--tests stream,transactions,connections)"
    )]
    UdpBlocked {
        /// The server's address.
        address: SocketAddr,
    },
    /// Nothing arrived from the server any more.
    #[error("the server was lost {} ms after the trial began: {why}", .at.as_millis())]
    Lost {
        /// Since the start of the trial, or of the session.
        at: Duration,
        /// How the loss was detected.
        why: String,
    },
    /// The server rejected the trial. The session continues.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl From<TesterError> for ExperimentError {
    fn from(error: TesterError) -> Self {
        ExperimentError::Peer(Box::new(error))
    }
}

/// Whether an experiment ended because the server does not know the secret.
pub fn is_wrong_secret(error: &ExperimentError) -> bool {
    let ExperimentError::Peer(error) = error else { return false };
    matches!(error.downcast_ref(), Some(TesterError::WrongSecret { .. }))
}
