//! The load core's actions, carried out on sockets.

use load::Action;
use sys::clock::Clock;

use super::failures::{connect_cause, stream_cause};
use super::{LoadIo, Socket, ring};
use crate::drive::poller::Poller;

/// Most actions before the loop handles packets and responses again. A connect, which takes 5 to 25 us and far more if
/// ports are scarce, is the last action: responses that are read first free connections, and the next request may need
/// no new one.
const ACTIONS_PER_VISIT: usize = 64;

/// Most consecutive rounds of connections with streams before others are served: a large body is sent in as many pieces
/// as its socket accepts.
const STREAM_ROUNDS_PER_VISIT: usize = 16;

impl LoadIo {
    pub(super) fn perform_all_actions(&mut self, poller: &mut Poller, clock: &Clock) {
        self.more = !self.perform_actions(true, poller, clock);
        self.advance_streams(poller, clock);
        self.submit(poller, clock);
    }

    /// Carries out the actions caused by a response, and no others, because more responses may be waiting to be read.
    pub(super) fn follow_up(&mut self, poller: &mut Poller, clock: &Clock) {
        self.more |= !self.perform_actions(false, poller, clock);
        self.advance_streams(poller, clock);
        self.submit(poller, clock);
    }

    /// Writes the streams that were opened on connections, and carries out resulting actions.
    fn advance_streams(&mut self, poller: &mut Poller, clock: &Clock) {
        for _ in 0..STREAM_ROUNDS_PER_VISIT {
            if self.changed_streams.is_empty() {
                return;
            }
            self.advance_changed(clock);
            self.more |= !self.perform_actions(false, poller, clock);
        }
        self.more |= !self.changed_streams.is_empty();
    }

    /// Carries out a limited number of the core's actions; true if none is left. `with_new_requests`: also for requests
    /// that wait for a connection.
    fn perform_actions(&mut self, with_new_requests: bool, poller: &mut Poller, clock: &Clock) -> bool {
        let mut carried_out = 0;
        // The clock as read after the last action, if that was recent.
        let mut read = None;
        while carried_out < ACTIONS_PER_VISIT {
            let now = read.take().unwrap_or_else(|| self.now(clock));
            let action = if with_new_requests { self.load.poll_action(now) } else { self.load.poll_follow_up(now) };
            let Some(action) = action else { return true };
            carried_out += 1;
            match action {
                Action::Connect { key, client, target } if self.quic.is_some() => {
                    carried_out = ACTIONS_PER_VISIT;
                    self.connect_quic(key, client, target, poller, clock);
                }
                Action::Connect { key, client, target } => {
                    carried_out = ACTIONS_PER_VISIT;
                    let server = self.servers[target].next_endpoint();
                    let outcome = server.connect(|address| (self.source)(client, address)).and_then(|tcp| {
                        poller.watch_connecting(&tcp, key)?;
                        Ok(tcp)
                    });
                    let address = server.ip();
                    match outcome {
                        Ok(tcp) => {
                            if let Some(address) = address {
                                self.note_port(key, client, address, &tcp);
                            }
                            self.open(key, client, target, tcp, address.is_none());
                        }
                        // The core reacts with Action::Close, as for every connection that it opened.
                        Err(error) => {
                            let now = self.now(clock);
                            self.load.handle_failure(now, key, connect_cause(&error));
                        }
                    }
                }
                Action::Send { key, request, bytes, prepared } => {
                    let Some(Some(socket)) = self.sockets.get_mut(key.index()) else { continue };
                    if socket.session.is_some() {
                        self.send_sealed(key, clock);
                        continue;
                    }
                    if let Some(ring) =
                        poller.ring().filter(|_| prepared && bytes.len() <= ring::QUEUED_REQUEST_BYTES_MAX)
                    {
                        socket.request = request;
                        ring.send(&socket.tcp, key, request, bytes);
                        self.queued.push((key, bytes.len()));
                        if self.queued.len() >= ring::SENDS_PER_CALL {
                            self.submit(poller, clock);
                        }
                        continue;
                    }
                    match socket.tcp.send(bytes) {
                        Ok(sent) => {
                            let sent = sent.unwrap_or(0);
                            if let Some(ring) = poller.ring().filter(|_| sent < bytes.len()) {
                                socket.sending = true;
                                ring.wait_writable(&socket.tcp, key);
                            }
                            let now = self.now(clock);
                            self.load.handle_sent(now, key, sent);
                            read = Some(now);
                        }
                        Err(error) => self.drop_failed(key, stream_cause(&error), clock),
                    }
                }
                Action::Open { key, stream, head, body, .. } => {
                    if let Some(quic) = &mut self.quic {
                        quic.open(key, stream, head.as_http(), body);
                        self.mark_changed(key);
                        continue;
                    }
                    let Some(Some(Socket { http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
                        continue;
                    };
                    let number = http2.open(stream, head.as_http(), body);
                    self.note_opened(key, stream, number, clock);
                }
                Action::Reset { key, stream, number } => {
                    if let Some(quic) = &mut self.quic {
                        quic.cancel(key, stream, number);
                        self.mark_changed(key);
                        continue;
                    }
                    let Some(Some(Socket { http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
                        continue;
                    };
                    http2.reset(number);
                    self.mark_changed(key);
                }
                Action::Close { key } => {
                    if let Some(quic) = &mut self.quic {
                        quic.close(key, clock.now());
                        continue;
                    }
                    if let Some(Some(Socket { session: Some(session), tcp, .. })) = self.sockets.get_mut(key.index()) {
                        session.send_close_notify(tcp);
                    }
                    self.close_socket(key);
                }
            }
        }
        false
    }
}
