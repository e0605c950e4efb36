//! Socket I/O of the load with HTTP/3: the core's actions go to QUIC connections, their events to the core.

use std::io;

use http3::client::StreamFault;
use http3::{Event, Lost};
use load::{ConnectionKey, StreamFailure, StreamKey};
use schema::FailureCause;
use sys::clock::Clock;
use units::Timestamp;

use super::streams::write_head;
use super::{LoadIo, READS_PER_VISIT, connect_cause, stream_cause};
use crate::drive::endpoints::Endpoint;
use crate::drive::poller::Poller;
use crate::drive::quic::{Arrived, Quic};

impl LoadIo {
    /// Adds QUIC, for HTTP/3. After [`Self::with_tls`].
    pub(crate) fn with_quic(mut self, quic: Option<Quic>) -> Self {
        if let Some(quic) = &quic {
            self.tls = self.tls.map(|tls| tls.with_early_data(quic.uses_early_data()));
        }
        self.quic = quic.map(Box::new);
        self
    }

    /// QUIC connections and their counts.
    pub(crate) fn quic(&self) -> Option<&Quic> {
        self.quic.as_deref()
    }

    /// Begins a connection.
    pub(super) fn connect_quic(
        &mut self,
        key: ConnectionKey,
        client: u32,
        target: usize,
        poller: &mut Poller,
        clock: &Clock,
    ) {
        let now = self.now(clock);
        let (Some(quic), Some(tls)) = (&mut self.quic, &mut self.tls) else { return };
        let outcome = match self.servers[target].next_endpoint() {
            Endpoint::Tcp(server) => {
                let source = (self.source)(client, server.ip());
                let udp = quic.connect(now, (key, client, target), (source, server), tls);
                let port = udp.and_then(|udp| {
                    poller.watch_datagrams(udp, key)?;
                    udp.local_port()
                });
                port.map(|port| (port, server.ip()))
            }
            // A plan with HTTP/3 has no Unix socket.
            Endpoint::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match outcome {
            Ok((port, server)) => self.note_connect_call(key, client, port, server),
            Err(error) => {
                // Unlike TCP, a socket that is not bound finds no port with EAGAIN.
                let is_full = error.raw_os_error() == Some(libc::EAGAIN);
                let cause = if is_full { FailureCause::NoPorts } else { connect_cause(&error) };
                return self.drop_quic(key, cause, clock);
            }
        }
        let Some(quic) = &mut self.quic else { return };
        let early = quic.connection(key).filter(|connection| connection.has_early_data());
        if let Some(limit) = early.map(|connection| connection.streams_limit()) {
            self.load.handle_early_data(now, key);
            if let Some(limit) = limit {
                self.load.handle_stream_limit(now, key, limit);
            }
        }
        self.mark_changed(key);
    }

    /// Handles the timers of connections that are due.
    pub(super) fn expire_quic_timers(&mut self, now: Timestamp) {
        while let Some(key) = self.quic.as_mut().and_then(|quic| quic.expire(now)) {
            self.mark_changed(key);
        }
    }

    /// Reads the datagrams of a connection, and sends what could not be sent before.
    pub(super) fn read_quic(&mut self, key: ConnectionKey, clock: &Clock) {
        for _ in 0..READS_PER_VISIT {
            let now = self.now(clock);
            let Some(quic) = &mut self.quic else { return };
            let arrived = match quic.receive(now, key) {
                Ok(arrived) => arrived,
                Err(error) => return self.drop_unreachable(key, &error, clock),
            };
            self.advance_quic(key, clock);
            if arrived != Arrived::More {
                return;
            }
        }
        self.unread.push(key);
    }

    /// Advances a connection, reports to the core, and sends.
    pub(super) fn advance_quic(&mut self, key: ConnectionKey, clock: &Clock) {
        let now = self.now(clock);
        let Some(quic) = &mut self.quic else { return };
        let outcome = quic.advance(now, key);
        let mut events = std::mem::take(&mut quic.events);
        let now = self.now(clock);
        for event in events.drain(..) {
            self.handle_quic_event(now, key, event, clock);
        }
        if let Some(quic) = &mut self.quic {
            quic.events = events;
        }
        if let Err(error) = outcome {
            self.drop_unreachable(key, &error, clock);
        }
    }

    fn handle_quic_event(&mut self, now: Timestamp, key: ConnectionKey, event: Event<StreamKey>, clock: &Clock) {
        match event {
            Event::Connected => {
                let Some(quic) = &mut self.quic else { return };
                quic.note_handshake();
                let negotiated = quic.connection(key).and_then(|connection| connection.negotiated());
                if let (Some(tls), Some(negotiated)) = (&mut self.tls, negotiated) {
                    tls.quic_secured(negotiated);
                }
                // QUIC has one handshake for both.
                self.load.handle_connected(now, key);
                self.load.handle_secured(now, key);
            }
            Event::Limit(limit) => self.load.handle_stream_limit(now, key, limit),
            Event::Opened { stream, number } => self.load.handle_stream_opened(stream, number),
            Event::Sent { stream, bytes, last } => self.load.handle_stream_sent(now, stream, bytes, last),
            Event::Received { stream, bytes, head } => {
                self.load.handle_received(key, bytes);
                self.load.handle_stream_bytes(now, stream, bytes, head);
            }
            Event::Head { stream, status, fields } => {
                self.plain.clear();
                if self.load.stream_wants_head(stream) {
                    write_head(3, status, &fields, &mut self.plain);
                }
                self.load.handle_stream_head(stream, status, &self.plain);
            }
            Event::Body { stream, bytes } => self.load.handle_stream_body(stream, &bytes),
            Event::End { stream } => self.load.handle_stream_end(now, stream),
            Event::Failed { stream, why } => self.load.handle_stream_failure(now, stream, failure(why)),
            Event::GoAway { first } => {
                self.load.handle_goaway(now, key, u32::try_from(first).unwrap_or(u32::MAX), false);
            }
            Event::Lost(lost) => self.handle_lost(key, &lost, clock),
        }
    }

    /// A connection has ended.
    fn handle_lost(&mut self, key: ConnectionKey, lost: &Lost, clock: &Clock) {
        let (Some(quic), Some(tls)) = (&mut self.quic, &mut self.tls) else { return };
        let connection = quic.connection(key);
        let is_connected = connection.as_ref().is_some_and(|connection| connection.is_connected());
        let unacknowledged = connection.map_or(0, |connection| connection.unacknowledged());
        if *lost != Lost::Closed {
            quic.note_failure(|| lost.to_string());
        }
        let cause = match lost {
            Lost::Closed => None,
            Lost::ClosedWith(_) => Some(FailureCause::Http3Error),
            Lost::Violation(_) => Some(FailureCause::Malformed),
            Lost::Transport { code: CONNECTION_REFUSED, by_server: true, .. } if !is_connected => {
                Some(FailureCause::ConnectRefused)
            }
            Lost::Transport { .. } => Some(FailureCause::QuicTransportError),
            Lost::Tls(error) => Some(tls.failed(error, is_connected)),
            Lost::VersionNegotiation => Some(FailureCause::VersionNegotiation),
            Lost::StatelessReset => Some(FailureCause::StatelessReset),
            Lost::IdleTimeout if !is_connected => Some(FailureCause::ConnectTimeout),
            Lost::IdleTimeout => Some(FailureCause::QuicIdleTimeout),
        };
        self.load.handle_unacknowledged(key, unacknowledged);
        match cause {
            Some(cause) => self.drop_quic(key, cause, clock),
            None => {
                let now = self.now(clock);
                if let Some(quic) = &mut self.quic {
                    quic.discard(key, now);
                }
                self.load.handle_eof(now, key);
            }
        }
    }

    /// The socket has reported an error, of an earlier datagram or of its own.
    fn drop_unreachable(&mut self, key: ConnectionKey, error: &io::Error, clock: &Clock) {
        let Some(quic) = &mut self.quic else { return };
        let Some(connection) = quic.connection(key) else { return };
        let cause = if connection.is_connected() { stream_cause(error) } else { connect_cause(error) };
        self.drop_quic(key, cause, clock);
    }

    pub(super) fn drop_quic(&mut self, key: ConnectionKey, cause: FailureCause, clock: &Clock) {
        let now = self.now(clock);
        if let Some(quic) = &mut self.quic {
            quic.discard(key, now);
        }
        self.load.handle_failure(now, key, cause);
    }
}

/// Error code of the transport with which a server refuses a new connection (RFC 9000, section 20.1).
const CONNECTION_REFUSED: u64 = 0x02;

fn failure(why: StreamFault) -> StreamFailure {
    match why {
        StreamFault::Rejected => StreamFailure::Refused,
        StreamFault::Reset(_) => StreamFailure::Failed(FailureCause::StreamReset),
        StreamFault::Malformed => StreamFailure::Failed(FailureCause::Malformed),
        StreamFault::HeadTooLarge => StreamFailure::Failed(FailureCause::HeadTooLarge),
    }
}
