//! The tester of a gateway: two ends that measure what lies between them, and send to nobody else.
//!
//! ```text
//!   client (Session)                         gateway                     server (serve)
//!     control connection: handshake, then frames of messages   <------------>  door, session
//!     streams, transactions, connections: TCP                  <------------>  the same port
//!     packets, probes: UDP, one socket a trial                 <------------>  the same port
//! ```
//!
//! One engine and one protocol, in the lab and outside. Read [`handshake`] for who is let in, [`frame`] for what is said
//! after it, [`message`] for what can be asked, and `trial` for what the two ends do.
//!
//! Invariants: neither end sends a byte of a trial to anyone who has not shown that it has the secret, nor a datagram to any
//! address but that of the other end of the control connection, which a handshake of TCP has proved. Either stops when the
//! other is not heard of for 3 s, or a trial's own time is over. A moment of one host is never compared with one of another.

mod client;
mod connect;
pub mod datagram;
pub mod frame;
pub mod handshake;
mod line;
pub mod message;
mod packet;
mod probe;
mod secret;
mod seen;
mod server;
mod session;
mod session_table;
mod stream;
mod transact;
mod trial;
mod work;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use experiment::ExperimentError;
use testbed::LabError;

pub use client::{ServerFacts, Session};
pub use message::Test;
pub use secret::{Keys, Secret, ShortTag, Tag};
pub use seen::{EndReport, ExchangesSeen, RttSeen, SentSeen, TrialSeen};

/// The port of both TCP and UDP.
pub const PORT: u16 = 7021;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Where it listens, with TCP and UDP; port 0 for any.
    pub listen: SocketAddr,
    /// What a client must know. Without one ([`Secret::none`]) only a loopback address is listened at.
    pub secret: Secret,
    /// Ends after so many sessions.
    pub sessions: Option<u32>,
    /// Ends after this time.
    pub lasts: Option<Duration>,
}

/// What a server tells while it serves.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// It listens.
    Listening {
        /// There.
        at: SocketAddr,
    },
    /// A client with the secret has come.
    Begun {
        /// Its address.
        peer: SocketAddr,
    },
    /// A client is gone.
    Ended {
        /// Its address.
        peer: SocketAddr,
        /// How: `said goodbye`, `lost: ..`.
        how: String,
    },
    /// Somebody was turned away; one in a second is told, at most.
    Refused {
        /// Whoever it was.
        peer: SocketAddr,
        /// Why.
        why: String,
        /// How many were turned away so far.
        in_all: u64,
    },
}

/// Serves until `stop` is readable, or what the specification says is over.
///
/// # Errors
/// The address cannot be listened at, or is to be reached from other hosts though there is no secret.
pub fn serve(spec: &ServerSpec, stop: BorrowedFd<'_>, tell: &mut dyn FnMut(ServerEvent)) -> Result<(), LabError> {
    server::serve(spec, stop, tell)
}

/// Why a session or a trial could not be.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// The network says that there is no way, or nobody there.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// The server's address.
        address: SocketAddr,
        /// What the kernel said: by an ICMP message, or of itself.
        source: io::Error,
    },
    /// Nothing came back.
    #[error(
        "no answer from {address}: is gateway server running there, and does the gateway let TCP and UDP port {} through?",
        .address.port()
    )]
    NoAnswer {
        /// The server's address.
        address: SocketAddr,
    },
    /// The server closed the connection on our proof.
    #[error("the server at {address} does not know this secret")]
    WrongSecret {
        /// The server's address.
        address: SocketAddr,
    },
    /// Something else answers there, or it has closed its door.
    #[error(
        "what answers at {address} is no gateway server (or one that has closed its door to this address, which it does \
         for a minute after three wrong secrets)"
    )]
    NotAServer {
        /// The server's address.
        address: SocketAddr,
    },
    /// The two ends do not speak the same.
    #[error("versions differ: {here} here, {there} there")]
    OtherVersion {
        /// The client's version.
        here: String,
        /// The server's.
        there: String,
    },
    /// One session at a time.
    #[error("the server is in use by {by}")]
    Busy {
        /// The address of the other client.
        by: String,
    },
    /// TCP comes through, UDP does not. The session goes on.
    #[error(
        "UDP does not come through to {address}: TCP alone can be measured (--tests stream,transactions,connections)"
    )]
    UdpBlocked {
        /// The server's address.
        address: SocketAddr,
    },
    /// The other end was not heard of any more.
    #[error("the server was lost {} ms after the trial began: {why}", .at.as_millis())]
    Lost {
        /// Since the trial, or the opening of the session, began.
        at: Duration,
        /// How that was noticed.
        why: String,
    },
    /// The trial cannot be. The session goes on.
    #[error("{0}")]
    Refused(String),
    /// The system failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
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
