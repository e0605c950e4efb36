//! Dynamic responses: another program responds to requests below certain prefixes.
//!
//! ```text
//!   worker                                    relay: one thread, one tokio runtime on it
//!   Connection --RelayHandle--> commands ---> exchange: cache -> queue, limits -> upstream (HTTP/1.1, FastCGI; TCP, Unix)
//!        ^                                       |                                   ^
//!        '------- events, eventfd <--------------'              keeper -> program in its sandbox and control group
//! ```
//!
//! A worker never waits for a dynamic program: it sends a [`RelayRequest`] and continues; the relay returns [`Event`]s,
//! signalled by an eventfd. Both directions have a window: at most [`ANSWER_WINDOW`] bytes of a response are between
//! upstream and client, at most [`BODY_WINDOW`] of a request's body.
//!
//! Read `handles.rs` for the worker's side, `relay.rs` for the thread, `upstream.rs` for one exchange with an upstream,
//! `program.rs` for the program that the server starts.

use std::io::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::cache::Finding;
use crate::request::Body;

pub use spec::{DynamicLimits, DynamicSpec, FastCgiScript, ProgramSpec, Route, RouteError, Transport, Upstream};
pub use usage::{DynamicUsage, ProgramUsage, RouteCounters};

pub(crate) use handles::RelayHandle;
#[cfg(test)]
pub(crate) use handles::{FakeRelay, RelayCall};
pub(crate) use relay::{Relay, UsageReader};

mod admission;
mod cached;
mod client;
mod fastcgi;
mod fields;
mod handles;
mod http1;
mod interim;
mod program;
mod relay;
mod route;
mod socket;
mod spec;
pub(crate) mod upstream;
mod usage;

/// Identifies an exchange between worker and relay. A stream of a connection has one exchange at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The connection's token.
    pub(crate) connection: u64,
    /// The stream; 0 without streams.
    pub(crate) stream: u64,
}

impl From<u64> for Ticket {
    /// Of a connection without streams.
    fn from(connection: u64) -> Self {
        Ticket { connection, stream: 0 }
    }
}

/// A request for a dynamic program, sent from a worker to the relay.
#[derive(Debug)]
pub(crate) struct RelayRequest {
    /// Chosen by the worker; events carry it.
    pub(crate) ticket: Ticket,
    /// From [`RelayHandle::routed`].
    pub(crate) route: usize,
    /// The complete, well-formed head of the request as received, with its empty line.
    pub(crate) head: Box<[u8]>,
    /// The announced body.
    pub(crate) body: Body,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The local address.
    pub(crate) local: SocketAddr,
    /// Received over TLS.
    pub(crate) secure: bool,
}

/// Events of an exchange for its worker: any number of `Room` and `Interim`, then `Head`, `Body` as often as needed,
/// and `End` or `Broken`; `Room` may come at any time before these. Nothing follows `End` or `Broken`.
#[derive(Debug)]
pub(crate) enum Event {
    /// This number of additional bytes of the request's body may be sent. The first one comes just before the upstream
    /// request and triggers `100 Continue`.
    Room(usize),
    /// An interim response; not for HTTP/1.0 clients.
    Interim {
        /// 102 to 199.
        status: u16,
        /// Every field line with its CRLF.
        fields: Bytes,
    },
    /// The response begins.
    Head {
        /// 200 to 599.
        status: u16,
        /// Every field line with its CRLF, including `Date`; without `Connection`, `Content-Length`,
        /// `Transfer-Encoding` and other hop-by-hop fields.
        fields: Bytes,
        /// Length of the content, if known: for HEAD and 304 that of a response to GET. Otherwise the content ends with
        /// `End`.
        length: Option<u64>,
        /// Outcome of the result cache.
        finding: Finding,
    },
    /// Content. None for HEAD, 204 and 304.
    Body(Bytes),
    /// The response is complete.
    End,
    /// The response stays incomplete: the connection must be reset, so that the client notices.
    Broken,
}

/// Prints a line on stderr. A closed stderr is ignored. Text of programs is made printable.
fn print_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", units::printable_lines(&line.to_string()));
}

/// Bytes of one response in transit between relay and client.
pub(crate) const ANSWER_WINDOW: usize = 256 << 10;
/// Bytes of one request body in transit between client and upstream.
pub(crate) const BODY_WINDOW: usize = 64 << 10;

#[cfg(test)]
mod tests;
