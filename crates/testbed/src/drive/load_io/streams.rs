//! Socket I/O of the load with streams: the core's actions go to HTTP/2, its events to the core.

use std::sync::Arc;

use load::{ConnectionKey, Load, StreamFailure, StreamKey};
use plan::Http2Plan;
use schema::FailureCause;
use sys::clock::Clock;
use sys::socket::Read;
use units::{Bytes, Timestamp};

use super::secure::SEAL_MAX;
use super::{LoadIo, READS_PER_VISIT, Socket, note_unacknowledged, sampled_now, stream_cause};
use crate::drive::h2::{H2Event, Http2, Why, Windows};
use crate::http2_frames::{ConnectionFrames, FrameLog};

impl LoadIo {
    /// Adds HTTP/2. `frames` keeps its frames for `yamabiko explain`.
    pub fn with_http2(mut self, windows: Option<Http2Plan>, frames: Option<Arc<FrameLog>>) -> Self {
        // A checked plan has windows below 2^31.
        let size = |bytes: Bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX >> 1);
        self.http2 = windows.map(|plan| Streams {
            windows: Windows { stream: size(plan.stream_window), connection: size(plan.connection_window) },
            // Behind a proxy's response the places of frames are not known.
            frames: frames.filter(|_| self.tunnelling.is_none()),
        });
        self
    }

    /// Starts HTTP/2 on a connection that can carry streams from now on.
    pub(super) fn begin_streams(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(streams) = &self.http2 else { return };
        let begun = streams.begin(&self.load, key, clock);
        if let Some(socket) = self.socket(key) {
            socket.http2 = Some(begun);
            self.changed_streams.push(key);
        }
    }

    /// Notes that HTTP/2 on this connection has work.
    pub(super) fn mark_changed(&mut self, key: ConnectionKey) {
        if self.changed_streams.last() != Some(&key) {
            self.changed_streams.push(key);
        }
    }

    /// Advances HTTP/2 on the connections that were changed, and writes the output.
    pub(super) fn advance_changed(&mut self, clock: &Clock) {
        let mut changed_streams = std::mem::take(&mut self.changed_streams);
        for key in changed_streams.drain(..) {
            self.advance(key, clock);
        }
        // The vector is reused; connections that changed meanwhile remain.
        changed_streams.append(&mut self.changed_streams);
        self.changed_streams = changed_streams;
    }

    /// Advances HTTP/2 on a connection, reports to the core, and writes.
    pub(super) fn advance(&mut self, key: ConnectionKey, clock: &Clock) {
        if self.quic.is_some() {
            return self.advance_quic(key, clock);
        }
        let Some(Some(socket)) = self.sockets.get_mut(key.index()).filter(|s| s.as_ref().is_some_and(|s| s.key == key))
        else {
            return;
        };
        let Some(http2) = &mut socket.http2 else { return };
        http2.advance(&mut self.h2_events);
        if let (Some(kept), Some(log)) = (http2.kept(), self.http2.as_ref().and_then(|streams| streams.frames.as_ref()))
        {
            log.add(kept.rows());
        }
        self.report_h2_events(key, clock);
        self.write_streams(key, clock);
    }

    /// Writes the output of HTTP/2.
    pub(super) fn write_streams(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(Socket { tcp, session, http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
            return;
        };
        let written = match session {
            None => http2.write(|bytes| tcp.send(bytes)).map_err(WriteError::Socket),
            Some(session) => loop {
                match session.flush(tcp) {
                    Ok(true) => {}
                    Ok(false) => break Ok(false),
                    Err(error) => break Err(WriteError::Socket(error)),
                }
                http2.note_written(session.take_sent());
                self.plain.clear();
                http2.copy_unwritten(SEAL_MAX, &mut self.plain);
                if self.plain.is_empty() {
                    break Ok(true);
                }
                if let Err(error) = session.seal(&self.plain) {
                    break Err(WriteError::Tls(error));
                }
            },
        };
        let has_more = http2.has_more();
        let now = sampled_now(&self.load, &mut self.sampler, &mut self.stalls, clock);
        while let Some((stream, bytes, last)) = http2.next_sent() {
            self.load.handle_stream_sent(now, stream, u64::from(bytes), last);
        }
        match written {
            // The pipe was full, so h2 has more output, and the socket has space for it.
            Ok(true) if has_more => self.mark_changed(key),
            // The socket reports when it accepts the rest.
            Ok(_) => {}
            Err(WriteError::Socket(error)) => self.drop_failed(key, stream_cause(&error), clock),
            Err(WriteError::Tls(error)) => self.drop_session(key, &error, clock),
        }
    }

    /// Reads the server's data without TLS.
    pub(super) fn read_streams(&mut self, key: ConnectionKey, clock: &Clock) {
        for _ in 0..READS_PER_VISIT {
            let Some(Some(socket)) = self.sockets.get_mut(key.index()) else { return };
            let reads_to_end = socket.reads_to_end();
            let Socket { tcp, http2: Some(http2), .. } = socket else { return };
            if http2.is_full() {
                // The server does not read its requests. When it reads again, the socket becomes writable and the loop
                // continues.
                return self.advance(key, clock);
            }
            match tcp.read(&mut self.buffer) {
                Ok(Read::Bytes(length)) => {
                    let bytes = &self.buffer[..length];
                    self.load.handle_received(key, length as u64);
                    if let Some(kept) = http2.kept() {
                        kept.begin_read(clock.now());
                    }
                    http2.receive(bytes, &mut self.h2_events);
                    let from = socket.read_bytes;
                    if let Some(kept) = http2.kept() {
                        kept.end_read(from..from + length as u64);
                    }
                    socket.read_bytes += length as u64;
                    self.advance(key, clock);
                    if length < self.buffer.len() && !reads_to_end {
                        return;
                    }
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
        self.unread.push(key);
    }

    /// Reports HTTP/2 events to the core.
    fn report_h2_events(&mut self, key: ConnectionKey, clock: &Clock) {
        let now = self.now(clock);
        let mut h2_events = std::mem::take(&mut self.h2_events);
        for event in h2_events.drain(..) {
            self.load.handle_h2_event(now, key, event, &mut self.plain);
        }
        self.h2_events = h2_events;
    }
}

/// HTTP/2 of the load's connections.
pub(super) struct Streams {
    windows: Windows,
    /// Keeps frames for `yamabiko explain`.
    frames: Option<Arc<FrameLog>>,
}

impl Streams {
    /// HTTP/2 on a connection.
    pub(super) fn begin(&self, load: &Load, key: ConnectionKey, clock: &Clock) -> Box<Http2> {
        let mut http2 = Box::new(Http2::new(self.windows));
        if let Some(connection) = load.connection_number(key).filter(|_| self.frames.is_some()) {
            http2.keep(ConnectionFrames::new(connection, clock.now()));
        }
        http2
    }
}

enum WriteError {
    Socket(std::io::Error),
    Tls(rustls::Error),
}

/// HTTP/2 events as calls of the core.
trait HandleH2Event {
    fn handle_h2_event(&mut self, now: Timestamp, key: ConnectionKey, event: H2Event, buffer: &mut Vec<u8>);
}

impl HandleH2Event for Load {
    fn handle_h2_event(&mut self, now: Timestamp, key: ConnectionKey, event: H2Event, buffer: &mut Vec<u8>) {
        match event {
            H2Event::Limit(limit) => self.handle_stream_limit(now, key, limit),
            H2Event::Received { stream, bytes, head } => self.handle_stream_bytes(now, stream, u64::from(bytes), head),
            H2Event::Head { stream, status, fields } => {
                buffer.clear();
                if self.stream_wants_head(stream) {
                    write_head(2, status, &fields, buffer);
                }
                self.handle_stream_head(stream, status, buffer);
            }
            H2Event::Body { stream, bytes } => self.handle_stream_body(stream, &bytes),
            H2Event::End { stream } => self.handle_stream_end(now, stream),
            H2Event::Failed { stream, why } => self.handle_stream_failure(now, stream, failure(why)),
            H2Event::GoAway { last, error } => self.handle_goaway(now, key, last.saturating_add(1), error),
            H2Event::Broken => self.handle_failure(now, key, FailureCause::Malformed),
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
pub(super) fn write_head(version: u8, status: u16, fields: &http::HeaderMap, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("HTTP/{version} {status}\r\n").as_bytes());
    for (name, value) in fields {
        into.extend_from_slice(name.as_str().as_bytes());
        into.extend_from_slice(b": ");
        into.extend_from_slice(value.as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
}

impl LoadIo {
    /// Reports to the core the number of the stream that was opened for a request, or that none could be opened.
    pub(super) fn note_opened(&mut self, key: ConnectionKey, stream: StreamKey, number: Option<u32>, clock: &Clock) {
        match number {
            Some(number) => self.load.handle_stream_opened(stream, number),
            // h2 refuses what the core cannot know: the connection is closing, or a header is not allowed.
            None => {
                let failure = StreamFailure::Failed(FailureCause::LocalError);
                let now = self.now(clock);
                self.load.handle_stream_failure(now, stream, failure);
            }
        }
        self.mark_changed(key);
    }
}
