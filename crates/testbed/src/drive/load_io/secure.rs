//! Socket I/O of the load with TLS: the same events for the core, decrypted; the same requests, encrypted.

use load::ConnectionKey;
use schema::FailureCause;
use sys::clock::Clock;
use sys::socket::Read;

use super::{LoadIo, READS_PER_VISIT, Socket, note_unacknowledged, sampled_now, stream_cause};
use crate::drive::tls::{READ_BUFFER, Tls, TlsEvent};

impl LoadIo {
    /// Adds TLS for secure targets.
    pub fn with_tls(mut self, tls: Option<Tls>) -> Self {
        if tls.is_some() {
            self.buffer = vec![0; READ_BUFFER].into_boxed_slice();
        }
        self.tls = tls.map(|tls| tls.of_targets(self.load.targets()));
        self
    }

    /// TLS settings and counters.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Starts the TLS handshake of an established connection.
    pub(super) fn begin_handshake(&mut self, key: ConnectionKey, clock: &Clock) {
        let (Some(Some(socket)), Some(tls)) = (self.sockets.get_mut(key.index()), &mut self.tls) else { return };
        let begun = tls.session(socket.client, socket.target).and_then(|mut session| session.begin().map(|()| session));
        match begun {
            Ok(session) => {
                socket.session = Some(Box::new(session));
                self.send_sealed(key, clock);
            }
            Err(error) => self.drop_session(key, &error, clock),
        }
    }

    /// Writes TLS messages, then the rest of the request.
    pub(super) fn send_sealed(&mut self, key: ConnectionKey, clock: &Clock) {
        loop {
            let Some(Some(socket)) = self.sockets.get_mut(key.index()) else { return };
            if socket.http2.is_some() {
                return self.write_streams(key, clock);
            }
            let Some(session) = &mut socket.session else { return };
            match session.flush(&socket.tcp) {
                Ok(true) => {}
                // The socket reports when it accepts more.
                Ok(false) => return,
                Err(error) => return self.drop_failed(key, stream_cause(&error), clock),
            }
            match session.take_sent() {
                0 => {}
                sent => {
                    let now = sampled_now(&self.load, &mut self.sampler, &mut self.stalls, clock);
                    self.load.handle_sent(now, key, sent);
                }
            }
            let rest = self.load.unsent(key);
            if rest.is_empty() {
                return;
            }
            if let Err(error) = session.seal(&rest[..rest.len().min(SEAL_MAX)]) {
                return self.drop_session(key, &error, clock);
            }
        }
    }

    pub(super) fn read_sealed(&mut self, key: ConnectionKey, clock: &Clock) {
        for _ in 0..READS_PER_VISIT {
            let LoadIo { load, sampler, stalls, sockets, buffer, tls: Some(tls), h2_events, http2: streams, .. } = self
            else {
                return;
            };
            let Some(Some(socket)) = sockets.get_mut(key.index()).filter(|s| s.as_ref().is_some_and(|s| s.key == key))
            else {
                return;
            };
            let reads_to_end = socket.reads_to_end();
            let Socket { session: Some(session), http2, read_bytes, .. } = socket else { return };
            if http2.as_ref().is_some_and(|http2| http2.is_full()) {
                // The server does not read requests: reading its responses pauses.
                return self.advance(key, clock);
            }
            let incomplete_bytes = session.copy_incomplete_to(buffer);
            let space = buffer.len() - incomplete_bytes;
            match socket.tcp.read(&mut buffer[incomplete_bytes..]) {
                Ok(Read::Bytes(length)) => {
                    let was_secured = session.secured();
                    let mut early = Vec::new();
                    let mut closes = false;
                    if load.wants_acknowledged(key) {
                        note_unacknowledged(load, key, &socket.tcp);
                    }
                    let first_byte = *read_bytes - incomplete_bytes as u64;
                    *read_bytes += length as u64;
                    if let Some(kept) = http2.as_mut().and_then(|http2| http2.kept()) {
                        kept.begin_read(clock.now());
                    }
                    let outcome = session.receive(&mut buffer[..incomplete_bytes + length], |event| match event {
                        // With HTTP/2 the ALPN result is checked after this call, because it needs the session.
                        TlsEvent::Secured if streams.is_some() => {}
                        TlsEvent::Secured => load.handle_secured(sampled_now(load, sampler, stalls, clock), key),
                        TlsEvent::Plain(bytes) => match http2 {
                            Some(http2) => {
                                load.handle_received(key, bytes.len() as u64);
                                http2.receive(bytes, h2_events);
                            }
                            None if streams.is_some() => early.extend_from_slice(bytes),
                            None => load.handle_bytes(sampled_now(load, sampler, stalls, clock), key, bytes),
                        },
                        TlsEvent::CloseNotify if streams.is_some() => closes = true,
                        TlsEvent::CloseNotify => {
                            note_unacknowledged(load, key, &socket.tcp);
                            load.handle_close_notify(sampled_now(load, sampler, stalls, clock), key);
                        }
                    });
                    if closes {
                        note_unacknowledged(load, key, &socket.tcp);
                    }
                    if !was_secured && session.secured() {
                        tls.secured(session);
                        if let Some(streams) = streams {
                            if !tls.chose_http2(session) {
                                return self.drop_failed(key, FailureCause::TlsHandshake, clock);
                            }
                            load.handle_secured(sampled_now(load, sampler, stalls, clock), key);
                            let mut begun = streams.begin(load, key, clock);
                            load.handle_received(key, early.len() as u64);
                            begun.receive(&early, h2_events);
                            *http2 = Some(begun);
                            self.changed_streams.push(key);
                        }
                    }
                    let last_byte = *read_bytes - session.incomplete_bytes() as u64;
                    if let Some(kept) = http2.as_mut().and_then(|http2| http2.kept()) {
                        kept.end_read(first_byte..last_byte.max(first_byte));
                    }
                    if self.http2.is_some() {
                        self.advance(key, clock);
                        if closes {
                            let now = self.now(clock);
                            self.load.handle_close_notify(now, key);
                        }
                    }
                    match outcome {
                        // The server waits for TLS messages of the handshake or of a key update.
                        Ok(()) => self.send_sealed(key, clock),
                        Err(error) => return self.drop_session(key, &error, clock),
                    }
                    if length < space && !reads_to_end {
                        return;
                    }
                }
                Ok(Read::End) if session.closed_by_peer() => {
                    note_unacknowledged(load, key, &socket.tcp);
                    return load.handle_eof(sampled_now(load, sampler, stalls, clock), key);
                }
                Ok(Read::End) => {
                    note_unacknowledged(load, key, &socket.tcp);
                    if !session.secured() {
                        tls.failed_without_alert("the server closed the connection in the middle of the TLS handshake");
                    }
                    return load.handle_truncated(sampled_now(load, sampler, stalls, clock), key);
                }
                Ok(Read::Later) => return,
                Err(error) => {
                    if !session.secured() {
                        tls.failed_without_alert("the connection was reset in the middle of the TLS handshake");
                    }
                    return self.drop_failed(key, stream_cause(&error), clock);
                }
            }
        }
        self.unread.push(key);
    }

    /// Closes a connection whose TLS failed: sends an alert to the server, if it still reads, and reports the cause to
    /// the core.
    pub(super) fn drop_session(&mut self, key: ConnectionKey, error: &rustls::Error, clock: &Clock) {
        let (Some(Some(socket)), Some(tls)) = (self.sockets.get_mut(key.index()), &mut self.tls) else { return };
        let mut secured = false;
        if let Some(session) = &mut socket.session {
            secured = session.secured();
            // The alert only helps in the server's log.
            let _ = session.flush(&socket.tcp);
        }
        let cause = tls.failed(error, secured);
        self.drop_failed(key, cause, clock);
    }
}

/// Largest part of a request that is encrypted at a time: what a socket's buffer usually accepts.
pub(super) const SEAL_MAX: usize = 64 << 10;
