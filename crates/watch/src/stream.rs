//! The protocol of a connection: recognized by its first bytes, and parsed as far as supported.

use std::sync::Arc;

use schema::Direction;
use wire::tls::{self, ServerName};

use crate::http::{self, Http};
use crate::http2::{self, Http2};
use crate::out::Out;
use crate::preamble::{self, Preamble};
use crate::tcp::Sink;
use crate::tls::Tls;
use crate::work;

/// The protocol above TCP.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Unknown; whether the connection was seen from its first byte.
    Unknown {
        is_fresh: bool,
    },
    /// A header of the PROXY protocol before the client's first byte, not complete yet.
    Proxied(Box<Header>),
    Http(Box<Http>),
    Http2(Box<Http2>),
    /// TLS, until the server name is read.
    Tls(Box<Hello>),
    /// TLS that is decrypted.
    Secure(Box<Tls>),
    /// A protocol that is not parsed.
    Opaque,
    /// HTTP with this number of requests, closed. Closed connections are stored for a while, without their readers.
    Ended {
        requests: u32,
    },
}

/// A PROXY protocol header that is being received.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Bytes of the header so far, while they may be the start of another protocol.
    held: Vec<u8>,
    /// Remaining bytes.
    left: u64,
}

/// The start of a TLS client's stream.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    held: Vec<u8>,
    tries: u8,
}

/// One direction of a stream, while one packet is processed.
pub(crate) struct Feed<'a, 'b> {
    pub(crate) stream: &'a mut Stream,
    pub(crate) server_name: &'a mut Option<Box<Arc<[u8]>>>,
    pub(crate) direction: Direction,
    pub(crate) out: &'a mut Out<'b>,
}

impl Stream {
    /// A SYN arrived, and (`is_fresh`) no data before it: the next byte is the stream's first.
    pub(crate) fn starts(&mut self, is_fresh: bool) {
        if let Stream::Unknown { is_fresh: known } = self {
            *known |= is_fresh;
        }
    }

    /// Number of HTTP requests.
    pub(crate) fn requests(&self) -> u32 {
        match self {
            Stream::Http(http) => http.requests(),
            Stream::Http2(http) => http.requests(),
            Stream::Secure(tls) => tls.requests(),
            Stream::Ended { requests } => *requests,
            _ => 0,
        }
    }

    /// The connection closed.
    pub(crate) fn close_session(&mut self, out: &mut Out<'_>) {
        match self {
            Stream::Http(http) => http.close_session(out),
            Stream::Http2(http) => http.close_session(out),
            Stream::Secure(tls) => tls.close_session(out),
            _ => {}
        }
    }

    /// The stream ended.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        match self {
            Stream::Http(http) => {
                http.close_session(out);
                http.finish(out);
                *self = Stream::Ended { requests: http.requests() };
            }
            Stream::Http2(http) => {
                http.close_session(out);
                http.finish(out);
                *self = Stream::Ended { requests: http.requests() };
            }
            Stream::Tls(hello) => {
                out.release(hello.held.len());
                *self = Stream::Opaque;
            }
            Stream::Secure(tls) => {
                tls.finish(out);
                *self = Stream::Ended { requests: tls.requests() };
            }
            Stream::Proxied(header) => {
                out.release(header.held.len());
                *self = Stream::Opaque;
            }
            Stream::Unknown { .. } | Stream::Opaque | Stream::Ended { .. } => {}
        }
    }
}

impl Feed<'_, '_> {
    fn recognise(&mut self, is_fresh: bool, bytes: &[u8], length: u64) {
        if is_fresh && self.direction == Direction::Up {
            match preamble::read(bytes) {
                Preamble::Length(header) => return self.pass_header(header as u64, bytes, length),
                // If the rest was not captured, its content is unknown.
                Preamble::Incomplete if bytes.len() as u64 == length && self.out.hold(bytes.len()) => {
                    *self.stream = Stream::Proxied(Box::new(Header { held: bytes.to_vec(), left: 0 }));
                    return;
                }
                Preamble::Incomplete | Preamble::None => {}
            }
        }
        self.recognise_protocol(is_fresh, bytes, length);
    }

    /// Skips a header of the PROXY protocol of this length: behind it is the stream's first byte.
    fn pass_header(&mut self, header: u64, bytes: &[u8], length: u64) {
        self.out.reading.proxied += 1;
        self.pass_rest(header, bytes, length);
    }

    fn pass_rest(&mut self, left: u64, bytes: &[u8], length: u64) {
        if left > length {
            *self.stream = Stream::Proxied(Box::new(Header { held: Vec::new(), left: left - length }));
            return;
        }
        *self.stream = Stream::Unknown { is_fresh: true };
        if length > left {
            self.recognise_protocol(true, bytes.get(left as usize..).unwrap_or(&[]), length - left);
        }
    }

    /// More bytes of a possible header of the PROXY protocol.
    fn read_header(&mut self, bytes: &[u8], length: u64) {
        let Stream::Proxied(header) = self.stream else { return };
        if header.left > 0 {
            let left = header.left;
            return self.pass_rest(left, bytes, length);
        }
        let before = header.held.len();
        let mut held = std::mem::take(&mut header.held);
        held.extend_from_slice(&bytes[..bytes.len().min(HEADER_PROBE_BYTES)]);
        self.out.release(before);
        match preamble::read(&held) {
            Preamble::Length(header) => self.pass_header((header - before) as u64, bytes, length),
            Preamble::Incomplete if bytes.len() as u64 == length && self.out.hold(held.len()) => {
                *self.stream = Stream::Proxied(Box::new(Header { held, left: 0 }));
            }
            Preamble::Incomplete | Preamble::None => {
                // The start of another protocol.
                *self.stream = Stream::Unknown { is_fresh: true };
                if self.out.later_protocols && http2::may_be_preface(&held) {
                    *self.stream = Stream::Http2(Box::new(Http2::new(true)));
                    self.bytes(&held[..before], before as u64);
                    return self.bytes(bytes, length);
                }
                self.recognise_protocol(true, &held[..before], before as u64);
                match self.stream {
                    Stream::Unknown { is_fresh } => {
                        let is_fresh = *is_fresh;
                        self.recognise_protocol(is_fresh, bytes, length);
                    }
                    _ => self.bytes(bytes, length),
                }
            }
        }
    }

    fn recognise_protocol(&mut self, is_fresh: bool, bytes: &[u8], length: u64) {
        // RFC 9112, section 2.2: an empty line before a request is ignored.
        let blank = match self.direction {
            Direction::Up if is_fresh => bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count(),
            _ => 0,
        };
        if blank > 0 && blank as u64 == length {
            return;
        }
        let first = &bytes[blank..];
        let may_be_http2 = match self.direction {
            Direction::Up if is_fresh => http2::may_be_preface(bytes),
            Direction::Down if is_fresh => http2::may_be_server(bytes),
            direction => http2::are_frames(direction, bytes, length),
        };
        if may_be_http2 && self.out.later_protocols {
            *self.stream = Stream::Http2(Box::new(Http2::new(is_fresh)));
            return self.bytes(bytes, length);
        }
        let may_be_http = match self.direction {
            Direction::Up => http::may_be_request(first),
            Direction::Down => http::may_be_response(first),
        };
        if may_be_http {
            *self.stream = Stream::Http(Box::new(Http::new(is_fresh)));
            self.bytes(bytes, length);
        } else if first.is_empty() {
            self.out.reading.unread_streams += u64::from(is_fresh);
            *self.stream = Stream::Unknown { is_fresh: false };
        } else if is_fresh && self.direction == Direction::Up && tls::is_handshake(bytes) != Some(false) {
            *self.stream = if self.out.secrets.is_used() {
                Stream::Secure(Box::new(Tls::new()))
            } else {
                Stream::Tls(Box::default())
            };
            self.bytes(bytes, length);
        } else if is_fresh {
            *self.stream = Stream::Opaque;
        }
    }

    /// The connection switched to HTTP/2: the last `left` bytes are its first.
    #[cold]
    fn upgrade(&mut self, bytes: &[u8], length: u64, left: u64) {
        let Stream::Http(http) = self.stream else { return };
        let Some(upgrade) = http.take_upgrade() else { return };
        *self.stream = Stream::Http2(Box::new(Http2::of_upgrade(upgrade, self.out)));
        if left > 0 {
            self.bytes(bytes.get((length - left) as usize..).unwrap_or(&[]), left);
        }
    }

    /// Bytes of a connection that is decrypted.
    fn decrypt(&mut self, bytes: &[u8], length: u64) {
        // The connection has the protocol inside, which is fed in the same way.
        let Stream::Secure(mut tls) = std::mem::replace(self.stream, Stream::Opaque) else { return };
        if tls.receive(self.direction, bytes, length, self.server_name, self.out) {
            *self.stream = Stream::Secure(tls);
        } else {
            tls.close_session(self.out);
            tls.finish(self.out);
            *self.stream = Stream::Ended { requests: tls.requests() };
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
        if name == ServerName::Incomplete && !is_cut && hello.tries < PARSE_ATTEMPTS_MAX {
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
            Stream::Http(http) => {
                let left = http.receive(self.direction, bytes, length, self.out);
                if http.has_upgraded() {
                    self.upgrade(bytes, length, left);
                }
            }
            Stream::Http2(http) => http.receive(self.direction, bytes, length, self.out),
            Stream::Tls(_) if self.direction == Direction::Up => self.read_hello(bytes, length),
            Stream::Tls(_) => {}
            Stream::Secure(_) => self.decrypt(bytes, length),
            Stream::Proxied(_) if self.direction == Direction::Up => self.read_header(bytes, length),
            Stream::Proxied(header) => {
                // A server that sends before the header is complete does not speak HTTP.
                self.out.release(header.held.len());
                *self.stream = Stream::Opaque;
            }
            Stream::Unknown { is_fresh } => {
                let is_fresh = *is_fresh;
                self.recognise(is_fresh, bytes, length);
            }
        }
    }

    fn end(&mut self) {
        match self.stream {
            Stream::Http(http) => http.end(self.direction, self.out),
            Stream::Secure(tls) => tls.end(self.direction, self.server_name, self.out),
            _ => {}
        }
    }

    fn is_read(&self) -> bool {
        match &*self.stream {
            Stream::Opaque | Stream::Ended { .. } => false,
            Stream::Http(http) => !http.is_opaque(),
            Stream::Http2(http) => !http.is_opaque(),
            Stream::Tls(_) | Stream::Proxied(_) => self.direction == Direction::Up,
            Stream::Unknown { .. } | Stream::Secure(_) => true,
        }
    }

    fn skipped_bytes(&self) -> u64 {
        match &*self.stream {
            Stream::Http(http) => http.skipped_bytes(self.direction),
            Stream::Http2(http) => http.skipped_bytes(self.direction),
            Stream::Proxied(header) if self.direction == Direction::Up => header.left,
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

/// Bytes of a segment that show whether a header of the PROXY protocol continues in it: the longest of version 1.
const HEADER_PROBE_BYTES: usize = 128;
/// A ClientHello has a few kilobytes, even with post-quantum keys.
const HELLO_MAX: usize = 16 * 1024;
/// Maximum number of parse attempts for a hello in very small segments.
const PARSE_ATTEMPTS_MAX: u8 = 64;
