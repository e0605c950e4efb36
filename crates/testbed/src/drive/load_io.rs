//! The load's hands: sockets for the load core's actions, and the socket's news back to it.

mod failures;
mod figures;
mod ring;
mod secure;
mod streams;
mod tunnel;

use std::net::IpAddr;

use load::{Action, ConnectionKey, LaneSampler, Load};
use sys::clock::Clock;
use sys::epoll::Event;
use sys::socket::{Read, TcpSocket};
use units::Timestamp;

use self::failures::{connect_cause, note_unacknowledged, stream_cause};
use super::endpoints::Endpoints;
use super::h2::{Http2, News};
use super::poller::Poller;
use super::stalls::Stalls;
use super::tls::{Session, Tls};
use super::tunnel::{Tunnel, Tunnelling};
use crate::recorder::Handover;

/// One read takes at most so much: a response of usual size in one call; the rest of a larger one is thrown away unread.
const READ_BUFFER: usize = 64 << 10;
/// From so many bytes on it is worth a system call of its own to throw a body away unread.
const DISCARD_FROM: u64 = 4 << 10;
/// Reads of one connection before the others have their turn.
const READS_PER_VISIT: usize = 4;

/// Actions carried out before the loop looks at packets and answers again. A connect, which takes 5 to 25 us and far
/// more where ports are scarce, is the last: answers that are read first free connections, and the next request may
/// need none of its own.
const ACTIONS_PER_VISIT: usize = 64;

/// Times that connections with streams work in a row before the others have their turn: a large body goes out in as many
/// pieces as its socket takes.
const STREAM_ROUNDS_PER_VISIT: usize = 16;

/// Chooses a client's source address towards a server's address.
pub type SourceAddress = Box<dyn Fn(u32, IpAddr) -> Option<IpAddr> + Send>;

/// The load over real sockets.
pub struct LoadIo {
    load: Load,
    /// Samples the core's gauges.
    sampler: LaneSampler,
    stalls: Stalls,
    servers: Vec<Endpoints>,
    source: SourceAddress,
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    handover: Option<Handover>,
    /// Ports are noted for a second witness.
    notes_ports: bool,
    again: Vec<ConnectionKey>,
    /// The last visit left actions for the next.
    more: bool,
    /// For secure targets.
    tls: Option<Tls>,
    /// For secure targets behind a proxy.
    tunnelling: Option<Tunnelling>,
    /// Connections carry streams.
    http2: bool,
    /// Connections whose HTTP/2 has something to do.
    stirred: Vec<ConnectionKey>,
    /// Room for what HTTP/2 tells.
    news: Vec<News>,
    /// Room for what is to be sealed, or a head to be told.
    plain: Vec<u8>,
    /// Sockets that a ring is still to close, and whether operations on them are under way.
    closing: Vec<(TcpSocket, ConnectionKey, bool)>,
    /// Requests queued in a ring, not yet handed to the kernel, and their lengths.
    queued: Vec<(ConnectionKey, usize)>,
    on_ring: bool,
    /// Completions taken in since the core was last asked.
    taken_in: usize,
}

struct Socket {
    key: ConnectionKey,
    tcp: TcpSocket,
    client: u32,
    /// Index into [`Load::targets`].
    target: usize,
    connecting: bool,
    /// It is a Unix socket, of which nothing can be thrown away unread.
    unix: bool,
    /// A ring receives on it.
    receiving: bool,
    /// A ring waits for room to send on it, or sends what did not fit.
    sending: bool,
    /// Which request of the workload it sent last.
    request: usize,
    /// From the connection being established, where there is TLS.
    session: Option<Box<Session>>,
    /// Until the proxy has made it.
    tunnel: Option<Box<Tunnel>>,
    /// From when it can carry streams.
    http2: Option<Box<Http2>>,
}

impl LoadIo {
    /// The load, with the sampler of its gauges, against `servers` (one for each of [`Load::targets`]), with each client's address from `source`.
    /// `notes_ports`: hand over each connection's local port as well, by which the wire knows it.
    pub fn new(
        load: Load,
        sampler: LaneSampler,
        servers: Vec<Endpoints>,
        source: SourceAddress,
        handover: Handover,
        notes_ports: bool,
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
            notes_ports,
            again: Vec::new(),
            more: false,
            tls: None,
            tunnelling: None,
            http2: false,
            stirred: Vec::new(),
            news: Vec::new(),
            plain: Vec::new(),
            closing: Vec::new(),
            queued: Vec::new(),
            on_ring: false,
            taken_in: 0,
        }
    }

    /// The time at which the core is told something, or asked. Its gauges were as they stand until now: whatever was read, decrypted or
    /// taken apart meanwhile. A request may begin and end within one turn.
    #[inline]
    fn now(&mut self, clock: &Clock) -> Timestamp {
        told(&self.load, &mut self.sampler, &mut self.stalls, clock)
    }

    /// The loop is at work at `now`.
    pub fn working(&mut self, now: Timestamp) {
        self.stalls.working(now);
    }

    /// The loop waited from `from` to `to`, and meant to until `until` at the longest; something is due at `due`; `ready`: something had happened.
    pub fn waited(&mut self, from: Timestamp, until: Timestamp, due: Timestamp, to: Timestamp, ready: bool) {
        self.stalls.waited(from, until, due, to, ready);
    }

    /// Whether an answer may come.
    pub fn awaits(&self) -> bool {
        self.load.live().in_flight > 0
    }

    /// Lets the core act on the time, and does what it asks.
    pub fn turn(&mut self, poller: &mut Poller, clock: &Clock) {
        self.on_ring = poller.ring().is_some();
        self.taken_in = 0;
        let now = self.now(clock);
        self.note_timing_out(now);
        self.load.handle_time(now);
        self.act(poller, clock);
        // Connections that had more to read than one visit allows: edge-triggered readiness would not come again.
        for key in std::mem::take(&mut self.again) {
            self.read(key, clock);
            self.act(poller, clock);
        }
    }

    /// A connection's descriptor is ready.
    pub fn ready(&mut self, event: &Event, poller: &mut Poller, clock: &Clock) {
        let key = ConnectionKey::from_token(event.token());
        let Some(socket) = self.socket(key) else { return };
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
                            self.begin_streams(key);
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

    /// Whether no target is secured, and connections carry one request at a time.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.http2
    }

    /// Whether the load is a closed loop.
    pub fn is_closed(&self) -> bool {
        self.load.is_closed()
    }

    /// Hands finished records to the recorder.
    pub fn flush(&mut self, now: Timestamp) {
        if let Some(handover) = &mut self.handover {
            handover.pass(&mut self.load, &mut self.sampler, &mut self.stalls, now);
        }
    }

    /// Hands over the rest, with the levels up to `now`; returns the core.
    pub fn into_load(mut self, now: Timestamp) -> Load {
        if let Some(handover) = self.handover.take() {
            handover.finish(&mut self.load, &mut self.sampler, &mut self.stalls, now);
        }
        self.load
    }

    fn act(&mut self, poller: &mut Poller, clock: &Clock) {
        self.more = !self.act_once(true, poller, clock);
        self.let_streams_work(poller, clock);
        self.hand_over(poller, clock);
    }

    /// Does what follows from an answer, and nothing new: more answers may be waiting to be read.
    fn follow_up(&mut self, poller: &mut Poller, clock: &Clock) {
        self.more |= !self.act_once(false, poller, clock);
        self.let_streams_work(poller, clock);
        self.hand_over(poller, clock);
    }

    /// Writes what was opened on connections with streams, and does what follows from it.
    fn let_streams_work(&mut self, poller: &mut Poller, clock: &Clock) {
        for _ in 0..STREAM_ROUNDS_PER_VISIT {
            if self.stirred.is_empty() {
                return;
            }
            self.advance_stirred(clock);
            self.more |= !self.act_once(false, poller, clock);
        }
        self.more |= !self.stirred.is_empty();
    }

    /// Does what the core asks, at most so much; true if that was all. `anew`: also for requests that wait for a connection.
    fn act_once(&mut self, anew: bool, poller: &mut Poller, clock: &Clock) -> bool {
        let mut carried_out = 0;
        // The clock as it was read after the last action, where that was just now.
        let mut read = None;
        while carried_out < ACTIONS_PER_VISIT {
            let now = read.take().unwrap_or_else(|| self.now(clock));
            let action = if anew { self.load.poll_action(now) } else { self.load.poll_follow_up(now) };
            let Some(action) = action else { return true };
            carried_out += 1;
            match action {
                Action::Connect { key, client, target } => {
                    carried_out = ACTIONS_PER_VISIT;
                    let server = self.servers[target].take();
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
                        // The core answers with a Close, as for every connection it asked for.
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
                    if let Some(ring) = poller.ring().filter(|_| prepared && bytes.len() <= ring::SENT_AT_ONCE_MAX) {
                        socket.request = request;
                        ring.send(&socket.tcp, key, request, bytes);
                        self.queued.push((key, bytes.len()));
                        if self.queued.len() >= ring::SENDS_PER_CALL {
                            self.hand_over(poller, clock);
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
                    let Some(Some(Socket { http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
                        continue;
                    };
                    let number = http2.open(stream, head.as_http(), body);
                    self.note_opened(key, stream, number, clock);
                }
                Action::Reset { key, number } => {
                    let Some(Some(Socket { http2: Some(http2), .. })) = self.sockets.get_mut(key.index()) else {
                        continue;
                    };
                    http2.reset(number);
                    self.stir(key);
                }
                Action::Close { key } => {
                    if let Some(Some(Socket { session: Some(session), tcp, .. })) = self.sockets.get_mut(key.index()) {
                        session.say_goodbye(tcp);
                    }
                    self.forget(key);
                }
            }
        }
        false
    }

    fn send_rest(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(socket)) = self.sockets.get(key.index()) else { return };
        if socket.tunnel.is_some() {
            return self.write_tunnel(key, clock);
        }
        if socket.http2.is_some() {
            // There is room for what h2 could not say, and then perhaps to read on.
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
            // Bytes that are certainly a body's are counted, not copied.
            let discardable = self.load.discardable(key);
            let discard = discardable >= DISCARD_FROM && !socket.unix;
            let outcome = if discard {
                socket.tcp.discard(usize::try_from(discardable).unwrap_or(usize::MAX))
            } else {
                socket.tcp.read(&mut self.buffer)
            };
            if self.load.wants_acknowledged(key) {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
            }
            if matches!(outcome, Ok(Read::End)) {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
            }
            if matches!(outcome, Ok(Read::Later)) {
                return;
            }
            let now = self.now(clock);
            match outcome {
                Ok(Read::Bytes(length)) if discard => self.load.handle_discarded(now, key, length as u64),
                Ok(Read::Bytes(length)) => self.load.handle_bytes(now, key, &self.buffer[..length]),
                Ok(Read::End) => return self.load.handle_eof(now, key),
                Ok(Read::Later) => {}
                Err(error) => return self.drop_failed(key, stream_cause(&error), clock),
            }
        }
        self.again.push(key);
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
            receiving: false,
            sending: false,
            request: 0,
            session: None,
            tunnel: None,
            http2: None,
        });
    }

    fn socket(&mut self, key: ConnectionKey) -> Option<&mut Socket> {
        self.sockets.get_mut(key.index())?.as_mut().filter(|socket| socket.key == key)
    }
}

/// The time, after the gauges were sampled and the loop was seen at work: for where the core is borrowed apart from the rest.
#[inline]
fn told(load: &Load, sampler: &mut LaneSampler, stalls: &mut Stalls, clock: &Clock) -> Timestamp {
    let now = clock.now();
    if sampler.is_due(now) {
        sampler.sample(now, load.live());
    }
    stalls.working(now);
    now
}
