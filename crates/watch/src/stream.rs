//! What a connection carries: found out from its first bytes, read as far as it is understood.

use std::sync::Arc;

use ledger::Direction;
use wire::tls::{self, ServerName};

use crate::http::{self, Http};
use crate::out::Out;
use crate::tcp::Sink;
use crate::work;

/// The protocol above TCP.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Not known yet; whether the connection was seen from its first byte.
    Unknown {
        is_fresh: bool,
    },
    Http(Box<Http>),
    /// TLS, until the server name is read.
    Tls(Box<Hello>),
    /// Nothing to be read in it.
    Opaque,
    /// It was HTTP, with so many requests, and is over. Closed connections are kept for a while: without their readers.
    Ended {
        requests: u32,
    },
}

/// The start of what a TLS client sent.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    held: Vec<u8>,
    tries: u8,
}

/// One direction of a stream, for the time of one packet.
pub(crate) struct Feed<'a, 'b> {
    pub(crate) stream: &'a mut Stream,
    pub(crate) server_name: &'a mut Option<Box<Arc<[u8]>>>,
    pub(crate) direction: Direction,
    pub(crate) out: &'a mut Out<'b>,
}

impl Stream {
    /// A SYN came, and (`is_fresh`) no data before it: what comes is the stream's first byte.
    pub(crate) fn starts(&mut self, is_fresh: bool) {
        if let Stream::Unknown { is_fresh: known } = self {
            *known |= is_fresh;
        }
    }

    /// HTTP requests seen.
    pub(crate) fn requests(&self) -> u32 {
        match self {
            Stream::Http(http) => http.requests(),
            Stream::Ended { requests } => *requests,
            _ => 0,
        }
    }

    /// The connection is no longer in process.
    pub(crate) fn close_session(&mut self, out: &mut Out<'_>) {
        if let Stream::Http(http) = self {
            http.close_session(out);
        }
    }

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        match self {
            Stream::Http(http) => {
                http.close_session(out);
                http.finish(out);
                *self = Stream::Ended { requests: http.requests() };
            }
            Stream::Tls(hello) => {
                out.release(hello.held.len());
                *self = Stream::Opaque;
            }
            Stream::Unknown { .. } | Stream::Opaque | Stream::Ended { .. } => {}
        }
    }
}

impl Feed<'_, '_> {
    fn recognise(&mut self, is_fresh: bool, bytes: &[u8], length: u64) {
        let may_be_http = match self.direction {
            Direction::Up => http::may_be_request(bytes),
            Direction::Down => http::may_be_response(bytes),
        };
        if may_be_http {
            *self.stream = Stream::Http(Box::new(Http::new(is_fresh)));
            self.bytes(bytes, length);
        } else if bytes.is_empty() {
            *self.stream = Stream::Unknown { is_fresh: false };
        } else if is_fresh && self.direction == Direction::Up && tls::is_handshake(bytes) != Some(false) {
            *self.stream = Stream::Tls(Box::default());
            self.bytes(bytes, length);
        } else if is_fresh {
            *self.stream = Stream::Opaque;
        }
    }

    fn read_hello(&mut self, bytes: &[u8], length: u64) {
        let Stream::Tls(hello) = self.stream else { return };
        let fits = hello.held.len() + bytes.len() <= HELLO_MAX && self.out.hold(bytes.len());
        if fits {
            hello.held.extend_from_slice(bytes);
        }
        hello.tries += 1;
        work::spend(hello.held.len());
        let name = tls::server_name(&hello.held);
        let is_cut = !fits || (bytes.len() as u64) < length;
        if name == ServerName::Incomplete && !is_cut && hello.tries < TRIES_MAX {
            return;
        }
        if let ServerName::Name(name) = name {
            *self.server_name = Some(Box::new(self.out.words.share(&name)));
        }
        self.out.release(hello.held.len());
        *self.stream = Stream::Opaque;
    }
}

impl Sink for Feed<'_, '_> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8], length: u64) {
        match self.stream {
            Stream::Opaque | Stream::Ended { .. } => {}
            Stream::Http(http) => http.receive(self.direction, bytes, length, self.out),
            Stream::Tls(_) if self.direction == Direction::Up => self.read_hello(bytes, length),
            Stream::Tls(_) => {}
            Stream::Unknown { is_fresh } => {
                let is_fresh = *is_fresh;
                self.recognise(is_fresh, bytes, length);
            }
        }
    }

    fn end(&mut self) {
        if let Stream::Http(http) = self.stream {
            http.end(self.direction, self.out);
        }
    }

    fn is_read(&self) -> bool {
        match &*self.stream {
            Stream::Opaque | Stream::Ended { .. } => false,
            Stream::Http(http) => !http.is_opaque(),
            Stream::Tls(_) => self.direction == Direction::Up,
            Stream::Unknown { .. } => true,
        }
    }

    fn passed_over(&self) -> u64 {
        match &*self.stream {
            Stream::Http(http) => http.passed_over(self.direction),
            _ => 0,
        }
    }

    fn hold(&mut self, bytes: usize) -> bool {
        self.out.hold(bytes)
    }

    fn release(&mut self, bytes: usize) {
        self.out.release(bytes);
    }
}

/// A ClientHello is a few kilobytes, with post-quantum keys in it too.
const HELLO_MAX: usize = 16 * 1024;
/// A hello sent byte by byte is not worth reading again and again.
const TRIES_MAX: u8 = 64;
