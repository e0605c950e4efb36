//! Socket I/O of the load: carries out the load core's actions, and reports socket events to it.

mod actions;
mod failures;
mod figures;
mod migration;
mod quic;
mod recording;
mod ring;
mod secure;
mod streams;
mod tunnel;

use std::net::IpAddr;

use load::{ConnectionKey, Load, ShardSampler};
use sys::clock::Clock;
use sys::epoll::Event;
use sys::socket::{Read, TcpSocket};
use units::Timestamp;

use self::failures::{connect_cause, note_unacknowledged, stream_cause};
pub(crate) use self::migration::Migration;
use self::streams::Streams;
use super::endpoints::Endpoints;
use super::h2::{H2Event, Http2};
use super::poller::{PendingOperations, Poller};
use super::quic::Quic;
use super::stalls::Stalls;
use super::tls::{Session, Tls};
use super::tunnel::{Tunnel, Tunnelling};
use crate::recorder::Handover;

/// Largest read: a response of usual size in one call; the rest of a larger one is discarded without copying.
const READ_BUFFER: usize = 64 << 10;
/// From this many bytes on, a system call that discards a body without copying pays off.
const DISCARD_FROM: u64 = 4 << 10;
/// Most reads of one connection before other connections are served.
const READS_PER_VISIT: usize = 4;

/// Chooses a client's source address for a server address.
pub type SourceAddress = Box<dyn Fn(u32, IpAddr) -> Option<IpAddr> + Send>;

/// The load with real sockets.
pub struct LoadIo {
    load: Load,
    /// Samples the load core's gauges.
    sampler: ShardSampler,
    stalls: Stalls,
    servers: Vec<Endpoints>,
    source: SourceAddress,
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    handover: Option<Handover>,
    /// Whether local ports are recorded for the packet capture.
    records_ports: bool,
    /// Connections with more to read than one iteration allowed.
    unread: Vec<ConnectionKey>,
    /// Whether the last iteration left actions for the next.
    more: bool,
    /// TLS, for secure targets.
    tls: Option<Tls>,
    /// Tunnels, for secure targets behind a proxy.
    tunnelling: Option<Tunnelling>,
    /// HTTP/2, if connections carry its streams.
    http2: Option<Streams>,
    /// The connections of HTTP/3, which replace `sockets`.
    quic: Option<Box<Quic>>,
    /// When clients move their QUIC connections, the latest first.
    migrations: Vec<Migration>,
    /// Connections whose HTTP/2 or HTTP/3 has work.
    changed_streams: Vec<ConnectionKey>,
    /// Reused buffer for HTTP/2 events.
    h2_events: Vec<H2Event>,
    /// Reused buffer for data to encrypt, or for a head.
    plain: Vec<u8>,
    /// Sockets that the ring still has to close, and what is pending on them.
    closing: Vec<(TcpSocket, ConnectionKey, PendingOperations)>,
    /// Requests queued in a ring, not yet submitted, and their lengths.
    queued: Vec<(ConnectionKey, usize)>,
    on_ring: bool,
    /// Completions handled since the core was last called.
    completions_handled: usize,
}

struct Socket {
    key: ConnectionKey,
    tcp: TcpSocket,
    client: u32,
    /// Index into [`Load::targets`].
    target: usize,
    connecting: bool,
    /// Whether this is a Unix socket, which does not support discarding without copying.
    unix: bool,
    /// Whether epoll has reported the end of the stream or an error, which a read finds after the received bytes.
    ends: bool,
    /// Whether a ring receives on this socket.
    receiving: bool,
    /// Whether a ring waits for space to send on this socket, or sends the rest of a request.
    sending: bool,
    /// Index of the workload's request that was sent last.
    request: usize,
    /// Present from the established connection on, with TLS.
    session: Option<Box<Session>>,
    /// Present until the proxy has created the tunnel.
    tunnel: Option<Box<Tunnel>>,
    /// Present from the time at which the connection can carry streams.
    http2: Option<Box<Http2>>,
    /// Bytes read with TLS or HTTP/2 since the connection began.
    read_bytes: u64,
}

impl Socket {
    /// Whether a read that returns fewer bytes than it could must be followed by another. A TCP socket has no more bytes
    /// then, and epoll reports bytes that arrive later (epoll(7)), but an end of the stream only once.
    fn reads_to_end(&self) -> bool {
        self.ends || self.unix
    }
}

impl LoadIo {
    /// The load, with the sampler of its gauges, against `servers` (one for each of [`Load::targets`]), with each
    /// client's source address from `source`. `records_ports`: records each connection's local port, which identifies
    /// it in the capture.
    pub fn new(
        load: Load,
        sampler: ShardSampler,
        servers: Vec<Endpoints>,
        source: SourceAddress,
        handover: Handover,
        records_ports: bool,
    ) -> Self {
        LoadIo {
            load,
            sampler,
            stalls: Stalls::default(),
            servers,
            source,
            sockets: Vec::new(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            handover: Some(handover),
            records_ports,
            unread: Vec::new(),
            more: false,
            tls: None,
            tunnelling: None,
            http2: None,
            quic: None,
            migrations: Vec::new(),
            changed_streams: Vec::new(),
            h2_events: Vec::new(),
            plain: Vec::new(),
            closing: Vec::new(),
            queued: Vec::new(),
            on_ring: false,
            completions_handled: 0,
        }
    }

    /// The time of an event for the load core, after sampling its gauges: they have not changed since the last event.
    /// Each event has its own time, because a request may begin and end within one iteration.
    #[inline]
    fn now(&mut self, clock: &Clock) -> Timestamp {
        sampled_now(&self.load, &mut self.sampler, &mut self.stalls, clock)
    }

    /// Notes that the loop is busy at `now`.
    pub fn working(&mut self, now: Timestamp) {
        self.stalls.working(now);
    }

    /// Notes that the loop waited from `from` to `to`, and meant to wait until `until`; something is due at `due`;
    /// `ready`: an event had happened.
    pub fn waited(&mut self, from: Timestamp, until: Timestamp, due: Timestamp, to: Timestamp, ready: bool) {
        self.stalls.waited(from, until, due, to, ready);
    }

    /// Whether a response may arrive.
    pub fn awaits(&self) -> bool {
        self.load.live().in_flight > 0
    }

    /// Notifies the core of the time, and carries out its actions.
    pub fn process_due(&mut self, poller: &mut Poller, clock: &Clock) {
        self.on_ring = poller.ring().is_some();
        self.completions_handled = 0;
        let now = self.now(clock);
        self.note_unacknowledged_at_timeout(now);
        self.load.handle_time(now);
        self.expire_quic_timers(now);
        self.migrate_due(now, poller, clock);
        self.perform_all_actions(poller, clock);
        // Connections with more to read than one iteration allows: edge-triggered readiness is not reported again.
        for key in std::mem::take(&mut self.unread) {
            if self.quic.is_some() {
                self.read_quic(key, clock);
            } else {
                self.read(key, clock);
            }
            self.perform_all_actions(poller, clock);
        }
    }

    /// Handles a connection's descriptor that is ready.
    pub fn ready(&mut self, event: &Event, poller: &mut Poller, clock: &Clock) {
        let key = ConnectionKey::from_token(event.token());
        if self.quic.is_some() {
            self.read_quic(key, clock);
            return self.follow_up(poller, clock);
        }
        let Some(socket) = self.socket(key) else { return };
        socket.ends |= event.hangs_up();
        if event.writable() {
            if socket.connecting {
                match socket.tcp.take_error() {
                    Ok(()) => {
                        socket.connecting = false;
                        let now = self.now(clock);
                        self.load.handle_connected(now, key);
                        if self.load.wants_handshake(key) {
                            self.begin_tunnel(key, clock);
                        } else {
                            self.begin_streams(key, clock);
                        }
                    }
                    Err(error) => {
                        self.drop_failed(key, connect_cause(&error), clock);
                        return self.follow_up(poller, clock);
                    }
                }
            } else {
                self.send_rest(key, clock);
            }
            self.follow_up(poller, clock);
        }
        if event.readable() {
            self.read(key, clock);
            self.follow_up(poller, clock);
        }
    }

    /// Passes the remaining records, with the gauges up to `now`; returns the core.
    pub fn into_load(mut self, now: Timestamp) -> Load {
        if let Some(handover) = self.handover.take() {
            handover.finish(&mut self.load, &mut self.sampler, &mut self.stalls, now);
        }
        self.load
    }

    fn send_rest(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(socket)) = self.sockets.get(key.index()) else { return };
        if socket.tunnel.is_some() {
            return self.write_tunnel(key, clock);
        }
        if socket.http2.is_some() {
            // There may be space for what h2 could not write, and then possibly more to read.
            self.advance(key, clock);
            return self.read(key, clock);
        }
        if socket.session.is_some() {
            return self.send_sealed(key, clock);
        }
        let rest = self.load.unsent(key);
        if rest.is_empty() {
            return;
        }
        match socket.tcp.send(rest) {
            Ok(sent) => {
                let now = self.now(clock);
                self.load.handle_sent(now, key, sent.unwrap_or(0));
            }
            Err(error) => self.drop_failed(key, stream_cause(&error), clock),
        }
    }

    fn read(&mut self, key: ConnectionKey, clock: &Clock) {
        for _ in 0..READS_PER_VISIT {
            let Some(Some(socket)) = self.sockets.get(key.index()).filter(|s| s.as_ref().is_some_and(|s| s.key == key))
            else {
                return;
            };
            if socket.tunnel.is_some() && !self.read_tunnel(key, clock) {
                return;
            }
            let Some(Some(socket)) = self.sockets.get(key.index()) else { return };
            if socket.session.is_some() {
                return self.read_sealed(key, clock);
            }
            if socket.http2.is_some() {
                return self.read_streams(key, clock);
            }
            // Bytes that certainly belong to a body are counted, not copied.
            let discardable = self.load.discardable(key);
            let discard = discardable >= DISCARD_FROM && !socket.unix;
            let limit = if discard { usize::try_from(discardable).unwrap_or(usize::MAX) } else { self.buffer.len() };
            let reads_to_end = socket.reads_to_end();
            let outcome = if discard { socket.tcp.discard(limit) } else { socket.tcp.read(&mut self.buffer) };
            if self.load.wants_acknowledged(key) {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
            }
            if matches!(outcome, Ok(Read::End)) {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
            }
            if matches!(outcome, Ok(Read::Later)) {
                return;
            }
            let is_drained = !reads_to_end && matches!(outcome, Ok(Read::Bytes(length)) if length < limit);
            let now = self.now(clock);
            match outcome {
                Ok(Read::Bytes(length)) if discard => self.load.handle_discarded(now, key, length as u64),
                Ok(Read::Bytes(length)) => self.load.handle_bytes(now, key, &self.buffer[..length]),
                Ok(Read::End) => return self.load.handle_eof(now, key),
                Ok(Read::Later) => {}
                Err(error) => return self.drop_failed(key, stream_cause(&error), clock),
            }
            if is_drained {
                return;
            }
        }
        self.unread.push(key);
    }

    fn open(&mut self, key: ConnectionKey, client: u32, target: usize, tcp: TcpSocket, unix: bool) {
        if self.sockets.len() <= key.index() {
            self.sockets.resize_with(key.index() + 1, || None);
        }
        self.sockets[key.index()] = Some(Socket {
            key,
            tcp,
            client,
            target,
            connecting: true,
            unix,
            ends: false,
            receiving: false,
            sending: false,
            request: 0,
            session: None,
            tunnel: None,
            http2: None,
            read_bytes: 0,
        });
    }

    fn socket(&mut self, key: ConnectionKey) -> Option<&mut Socket> {
        self.sockets.get_mut(key.index())?.as_mut().filter(|socket| socket.key == key)
    }
}

/// The current time, after sampling the gauges and noting that the loop is busy: for code that borrows the core
/// separately.
#[inline]
fn sampled_now(load: &Load, sampler: &mut ShardSampler, stalls: &mut Stalls, clock: &Clock) -> Timestamp {
    let now = clock.now();
    if sampler.is_due(now) {
        sampler.sample(now, load.live());
    }
    stalls.working(now);
    now
}
