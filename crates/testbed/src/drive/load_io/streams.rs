//! Socket I/O of the load with streams: the core's actions go to HTTP/2, its events to the core.

use load::{ConnectionKey, Load, StreamFailure, StreamKey};
use schema::FailureCause;
use sys::clock::Clock;
use sys::socket::Read;
use units::Timestamp;

use super::secure::SEAL_MAX;
use super::{LoadIo, READS_PER_VISIT, Socket, note_unacknowledged, stream_cause, told};
use crate::drive::h2::{Http2, News, Why};

impl LoadIo {
    /// Adds HTTP/2 with the settings of the load's specification.
    pub fn with_http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    /// The connection can carry streams from now on.
    pub(super) fn begin_streams(&mut self, key: ConnectionKey) {
        if self.http2
            && let Some(socket) = self.socket(key)
        {
            socket.http2 = Some(Box::new(Http2::new()));
            self.stirred.push(key);
        }
    }

    /// Opens the stream of a request.
    pub(super) fn stir(&mut self, key: ConnectionKey) {
        if self.stirred.last() != Some(&key) {
            self.stirred.push(key);
        }
    }

    /// Advances HTTP/2 on the connections that were changed, and writes the output.
    pub(super) fn advance_stirred(&mut self, clock: &Clock) {
        let mut stirred = std::mem::take(&mut self.stirred);
        for key in stirred.drain(..) {
            self.advance(key, clock);
        }
        // Keeps the allocation; connections that changed meanwhile remain.
        stirred.append(&mut self.stirred);
        self.stirred = stirred;
    }

    /// Advances HTTP/2 on a connection, reports to the core, and writes.
    pub(super) fn advance(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(socket)) = self.sockets.get_mut(key.index()).filter(|s| s.as_ref().is_some_and(|s| s.key == key))
        else {
            return;
        };
        let Some(http2) = &mut socket.http2 else { return };
        http2.advance(&mut self.news);
        self.tell(key, clock);
        self.write_streams(key, clock);
    }

    /// Writes the output of HTTP/2.
    pub(super) fn write_streams(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(Socket { tcp, session, http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
            return;
        };
        let written = match session {
            None => http2.write(|bytes| tcp.send(bytes)).map_err(Trouble::Socket),
            Some(session) => loop {
                match session.flush(tcp) {
                    Ok(true) => {}
                    Ok(false) => break Ok(false),
                    Err(error) => break Err(Trouble::Socket(error)),
                }
                http2.wrote(session.take_sent());
                self.plain.clear();
                http2.copy_unwritten(SEAL_MAX, &mut self.plain);
                if self.plain.is_empty() {
                    break Ok(true);
                }
                if let Err(error) = session.seal(&self.plain) {
                    break Err(Trouble::Tls(error));
                }
            },
        };
        let goes_on = http2.goes_on();
        let now = told(&self.load, &mut self.sampler, &mut self.stalls, clock);
        while let Some((stream, bytes, last)) = http2.next_sent() {
            self.load.handle_stream_sent(now, stream, u64::from(bytes), last);
        }
        match written {
            // The socket has space for more than h2 was allowed to write.
            Ok(true) if goes_on => self.stir(key),
            // The socket reports when it accepts the rest.
            Ok(_) => {}
            Err(Trouble::Socket(error)) => self.drop_failed(key, stream_cause(&error), clock),
            Err(Trouble::Tls(error)) => self.drop_session(key, &error, clock),
        }
    }

    /// Reads the server's data without TLS.
    pub(super) fn read_streams(&mut self, key: ConnectionKey, clock: &Clock) {
        for _ in 0..READS_PER_VISIT {
            let Some(Some(Socket { tcp, http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else { return };
            if http2.is_full() {
                // The server does not read its requests. When it reads again, the socket becomes writable and the loop
                // continues.
                return self.advance(key, clock);
            }
            match tcp.read(&mut self.buffer) {
                Ok(Read::Bytes(length)) => {
                    let bytes = &self.buffer[..length];
                    self.load.handle_received(key, length as u64);
                    http2.take_in(bytes, &mut self.news);
                    self.advance(key, clock);
                }
                Ok(Read::End) => {
                    note_unacknowledged(&mut self.load, key, tcp);
                    let now = self.now(clock);
                    return self.load.handle_eof(now, key);
                }
                Ok(Read::Later) => return,
                Err(error) => return self.drop_failed(key, stream_cause(&error), clock),
            }
        }
        self.again.push(key);
    }

    /// Reports HTTP/2 events to the core.
    fn tell(&mut self, key: ConnectionKey, clock: &Clock) {
        let now = self.now(clock);
        let mut news = std::mem::take(&mut self.news);
        for one in news.drain(..) {
            self.load.tell(now, key, one, &mut self.plain);
        }
        self.news = news;
    }
}

enum Trouble {
    Socket(std::io::Error),
    Tls(rustls::Error),
}

/// HTTP/2 events as calls of the core.
trait Tell {
    fn tell(&mut self, now: Timestamp, key: ConnectionKey, news: News, room: &mut Vec<u8>);
}

impl Tell for Load {
    fn tell(&mut self, now: Timestamp, key: ConnectionKey, news: News, room: &mut Vec<u8>) {
        match news {
            News::Limit(limit) => self.handle_stream_limit(now, key, limit),
            News::Received { stream, bytes, head } => self.handle_stream_bytes(now, stream, u64::from(bytes), head),
            News::Head { stream, status, fields } => {
                room.clear();
                if self.stream_wants_head(stream) {
                    write_head(status, &fields, room);
                }
                self.handle_stream_head(stream, status, room);
            }
            News::Body { stream, bytes } => self.handle_stream_body(stream, &bytes),
            News::End { stream } => self.handle_stream_end(now, stream),
            News::Failed { stream, why } => self.handle_stream_failure(now, stream, failure(why)),
            News::Leaves { last, error } => self.handle_goaway(now, key, last, error),
            News::Broken => self.handle_failure(now, key, FailureCause::Malformed),
        }
    }
}

fn failure(why: Why) -> StreamFailure {
    match why {
        Why::Refused => StreamFailure::Refused,
        Why::Reset => StreamFailure::Failed(FailureCause::StreamReset),
        Why::Malformed => StreamFailure::Failed(FailureCause::Malformed),
        Why::HeadTooLarge => StreamFailure::Failed(FailureCause::HeadTooLarge),
        Why::GoAway => StreamFailure::Failed(FailureCause::GoAway),
    }
}

/// A head in the form of HTTP/1.
fn write_head(status: u16, fields: &http::HeaderMap, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("HTTP/2 {status}\r\n").as_bytes());
    for (name, value) in fields {
        into.extend_from_slice(name.as_str().as_bytes());
        into.extend_from_slice(b": ");
        into.extend_from_slice(value.as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
}

impl LoadIo {
    /// A stream for a request of the core: its identifier, or a report that it cannot be opened.
    pub(super) fn note_opened(&mut self, key: ConnectionKey, stream: StreamKey, number: Option<u32>, clock: &Clock) {
        match number {
            Some(number) => self.load.handle_stream_opened(stream, number),
            // h2 knows more than the core: that the connection is closing, or that a header is not allowed.
            None => {
                let failure = StreamFailure::Failed(FailureCause::LocalError);
                let now = self.now(clock);
                self.load.handle_stream_failure(now, stream, failure);
            }
        }
        self.stir(key);
    }
}
