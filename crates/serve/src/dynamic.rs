//! The dynamic server behind the static one: requests under certain prefixes are answered by another program.
//!
//! ```text
//!   worker                             relay: one thread, one tokio runtime on it
//!   Connection --Front--> orders ----> exchange: cache -> queue, limits -> upstream (HTTP/1.1 or FastCGI, TCP or Unix)
//!        ^                                 |                                  ^
//!        '---- events, eventfd <-----------'                      keeper -> program in its place and control group
//! ```
//!
//! A worker never waits for a dynamic program: it hands an [`Ask`] over and goes on; what comes back are [`Event`]s, told by
//! a descriptor in its own set. Both ways are bounded by credit: of an answer at most [`ANSWER_WINDOW`] bytes are between
//! upstream and client, of a request's body at most [`BODY_WINDOW`].
//!
//! Read `front.rs` for the worker's side, `relay.rs` for the thread, `upstream.rs` for one exchange with an upstream,
//! `program.rs` for the program that the server starts.

use std::io::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::cache::Finding;
use crate::request::Body;

pub use account::{Account, ProgramAccount, RouteAccount};
pub use spec::{DynamicLimits, DynamicSpec, FastCgiScript, ProgramSpec, Route, RouteError, Transport, Upstream};

pub(crate) use front::Front;
#[cfg(test)]
pub(crate) use front::{Played, Told};
pub(crate) use relay::{Accounts, Relay};

mod account;
mod admission;
mod cached;
mod client;
mod fastcgi;
mod fields;
mod front;
mod http1;
mod interim;
mod program;
mod relay;
mod route;
mod socket;
mod spec;
pub(crate) mod upstream;

/// Names an exchange between worker and relay: the connection's token. One exchange at a time has it.
pub(crate) type Ticket = u64;

/// A request for a dynamic program, as a worker hands it over.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Chosen by the worker; events come back under it.
    pub(crate) ticket: Ticket,
    /// As [`Front::routed`] said.
    pub(crate) route: usize,
    /// The whole head of the request as it came, with its empty line; already found to be well formed.
    pub(crate) head: Box<[u8]>,
    /// What follows the head.
    pub(crate) body: Body,
    /// Who asks.
    pub(crate) peer: SocketAddr,
    /// Where it was asked.
    pub(crate) local: SocketAddr,
    /// Over TLS.
    pub(crate) secure: bool,
}

/// What a worker hears of an exchange: any number of `Room` and `Interim`, then `Head`, `Body` as often as need be, and
/// `End` or `Broken`; `Room` may come at any time before these. After `End` or `Broken` nothing follows.
#[derive(Debug)]
pub(crate) enum Event {
    /// The request's body may come: so many bytes more. The first one comes when the upstream is about to be asked,
    /// and is the moment for `100 Continue`.
    Room(usize),
    /// An interim response; a client of HTTP/1.0 must not see it.
    Interim {
        /// 102 to 199.
        status: u16,
        /// Every field line with its CRLF.
        fields: Bytes,
    },
    /// The answer begins.
    Head {
        /// 200 to 599.
        status: u16,
        /// Every field line with its CRLF, `Date` among them; without `Connection`, `Content-Length`,
        /// `Transfer-Encoding` and what else concerns one hop only.
        fields: Bytes,
        /// Length of the content, when it is known: for HEAD and 304 that of an answer to GET. Otherwise it ends with `End`.
        length: Option<u64>,
        /// What the cache had to do with it.
        finding: Finding,
    },
    /// Content. None comes for HEAD, 204 and 304.
    Body(Bytes),
    /// The answer is whole.
    End,
    /// The answer will not become whole: the connection must be cut, so that the client sees it.
    Broken,
}

/// A line for the operator, on stderr, wherever that goes: a terminal that is gone ends nothing. What programs say cannot
/// steer the terminal.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", units::printable_lines(&line.to_string()));
}

/// Bytes of one answer that may be on their way between relay and client.
pub(crate) const ANSWER_WINDOW: usize = 256 << 10;
/// Bytes of one request's body that may be on their way between client and upstream.
pub(crate) const BODY_WINDOW: usize = 64 << 10;

#[cfg(test)]
mod tests;
