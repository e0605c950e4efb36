//! The QUIC connections of a loop: their sockets, timers and counts.
//!
//! ```text
//!   socket --datagrams--> receive --> http3::Connection --> events --> load core (load_io/quic.rs)
//!   socket <--datagrams-- send <----- http3::Connection <-- open, cancel, close
//!                                        '--> Timers: when the connection wants to be called again
//! ```
//!
//! Each connection has a socket of its own, connected to the server, at its client's address: as in browsers, and so
//! that an ICMP error reaches the connection that caused it. A connection has one timer, the earliest of its own; one
//! that is idle is not touched.

mod timers;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bytes::BytesMut;
use http::Request;
use http3::client::Datagrams;
use http3::{Client, Code, CongestionControl, Connection, Event, TimeBase, Transport};
use load::{ConnectionKey, StreamKey};
use plan::Http3Plan;
use schema::document;
use stats::Rng;
use sys::clock::Clock;
use sys::udp::{UdpReceiver, UdpSocket};
use units::Timestamp;
use units::time::saturating_nanos;

use self::timers::Timers;
use super::tls::Tls;

/// Datagrams that the kernel divides: at 1452 bytes they fit into one packet of its limit.
const DATAGRAMS_PER_SEND: usize = 32;

/// The QUIC connections of a loop.
pub struct Quic {
    base: TimeBase,
    transport: Transport,
    plan: Http3Plan,
    /// Settings of each client that has connected, by target; they hold its tokens.
    clients: Vec<Option<Client>>,
    sockets: Vec<Option<QuicSocket>>,
    timers: Timers,
    receiver: UdpReceiver,
    random: Rng,
    figures: document::Quic,
    /// Reused buffer for events.
    pub(super) events: Vec<Event<StreamKey>>,
}

struct QuicSocket {
    key: ConnectionKey,
    client: u32,
    /// The client's address, if it has one of its own, and the server's.
    ends: (Option<IpAddr>, SocketAddr),
    udp: UdpSocket,
    connection: Box<Connection<StreamKey>>,
    /// Datagrams that the socket did not accept yet.
    unsent: Vec<u8>,
    of_unsent: Datagrams,
}

/// What a read of a socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Datagrams; more may wait.
    More,
    /// All datagrams were read.
    All,
    /// None.
    Nothing,
}

impl Quic {
    /// No connections yet. `random`: for connection identifiers and packet numbers.
    pub(crate) fn new(plan: &Http3Plan, clock: &Clock, random: Rng) -> Self {
        let transport = Transport {
            stream_window: plan.stream_window.0,
            connection_window: plan.connection_window.0,
            congestion_control: match plan.congestion_control {
                plan::CongestionControl::Cubic => CongestionControl::Cubic,
                plan::CongestionControl::Bbr => CongestionControl::Bbr,
                plan::CongestionControl::NewReno => CongestionControl::NewReno,
            },
            initial_rtt: plan.initial_rtt,
            initial_window: plan.initial_window.0,
            idle_timeout: plan.idle_timeout,
            keep_alive: plan.keep_alive,
            ecn: plan.ecn,
            segmentation_offload: plan.offload,
            spin_bit: plan.spin_bit,
        };
        let (instant, at) = clock.paired();
        let figures = document::Quic {
            stream_window_bytes: transport.stream_window,
            connection_window_bytes: transport.connection_window,
            congestion_control: plan.congestion_control.name().into(),
            initial_rtt_ns: saturating_nanos(transport.initial_rtt),
            initial_window_bytes: transport.initial_window,
            idle_timeout_ns: saturating_nanos(transport.idle_timeout),
            keep_alive_ns: transport.keep_alive.map(saturating_nanos),
            ecn: transport.ecn,
            offload: plan.offload,
            spin_bit: transport.spin_bit,
            ..document::Quic::default()
        };
        Quic {
            base: TimeBase::new(instant, at),
            transport,
            plan: *plan,
            clients: Vec::new(),
            sockets: Vec::new(),
            timers: Timers::default(),
            receiver: UdpReceiver::default(),
            random,
            figures,
            events: Vec::new(),
        }
    }

    /// Whether requests may leave before a handshake is finished.
    pub(super) fn uses_early_data(&self) -> bool {
        self.plan.early_data
    }

    /// Settings and counts, of the connections that have ended.
    pub(crate) fn document(&self) -> document::Quic {
        self.figures.clone()
    }

    /// Opens a socket and begins a connection.
    ///
    /// # Errors
    /// The errors of [`UdpSocket::connect`]; InvalidInput if the destination or the server's name is not valid.
    pub(super) fn connect(
        &mut self,
        now: Timestamp,
        (key, client, target): (ConnectionKey, u32, usize),
        (source, server): (Option<IpAddr>, SocketAddr),
        tls: &mut Tls,
    ) -> io::Result<&UdpSocket> {
        let udp = open_socket(&self.plan, source, server)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let index = client as usize * tls.targets().max(1) + target;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        if self.clients[index].is_none() {
            let tls = tls.quic_client(client, target).ok_or_else(invalid)?;
            self.clients[index] = Some(Client::new(&self.transport, tls));
        }
        let settings = self.clients[index].as_ref().ok_or_else(invalid)?;
        let mut seed = [0; 32];
        for piece in seed.chunks_exact_mut(8) {
            piece.copy_from_slice(&self.random.next().to_ne_bytes());
        }
        let connection = Connection::connect(now, self.base, settings, server, seed).map_err(|_| invalid())?;
        if self.sockets.len() <= key.index() {
            self.sockets.resize_with(key.index() + 1, || None);
        }
        let of_unsent = Datagrams { segment: None, ecn: 0 };
        let socket = QuicSocket {
            key,
            client,
            ends: (source, server),
            udp,
            connection: Box::new(connection),
            unsent: Vec::new(),
            of_unsent,
        };
        Ok(&self.sockets[key.index()].insert(socket).udp)
    }

    /// The connection, if it still exists.
    pub(super) fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection<StreamKey>> {
        Some(&mut *self.socket(key)?.connection)
    }

    pub(super) fn open(&mut self, key: ConnectionKey, stream: StreamKey, request: &Request<()>, body: &[u8]) {
        if let Some(connection) = self.connection(key) {
            connection.open(stream, request, body);
        }
    }

    pub(super) fn cancel(&mut self, key: ConnectionKey, stream: StreamKey, number: u32) {
        if let Some(connection) = self.connection(key) {
            connection.cancel(|other| other == stream, number);
        }
    }

    /// Receives the datagrams that wait, as many as fit into one call.
    ///
    /// # Errors
    /// An error that an earlier datagram caused, or one of the socket.
    pub(super) fn receive(&mut self, now: Timestamp, key: ConnectionKey) -> io::Result<Arrived> {
        let Quic { sockets, receiver, .. } = self;
        let Some(Some(socket)) = sockets.get_mut(key.index()) else { return Ok(Arrived::Nothing) };
        if socket.key != key {
            return Ok(Arrived::Nothing);
        }
        let messages = receiver.receive(&socket.udp)?;
        for index in 0..messages {
            let message = receiver.message(index);
            for datagram in message.datagrams() {
                socket.connection.receive(now, message.ecn, BytesMut::from(datagram));
            }
        }
        Ok(match messages {
            0 => Arrived::Nothing,
            UdpReceiver::MESSAGES => Arrived::More,
            _ => Arrived::All,
        })
    }

    /// Reports what has happened on a connection into `events`, and sends what it has to send as far as the socket
    /// accepts it.
    ///
    /// # Errors
    /// An error that an earlier datagram caused, or one of the socket.
    pub(super) fn advance(&mut self, now: Timestamp, key: ConnectionKey) -> io::Result<()> {
        let Quic { sockets, events, .. } = self;
        let Some(Some(socket)) = sockets.get_mut(key.index()).filter(|it| it.as_ref().is_some_and(|it| it.key == key))
        else {
            return Ok(());
        };
        socket.connection.advance(now, events);
        let outcome = socket.send(now, events);
        let due = socket.connection.next_timeout();
        self.timers.set(key, due);
        outcome
    }

    /// Prepares counts of moves, which are absent otherwise.
    pub(super) fn expect_migrations(&mut self) {
        self.figures.migrations.get_or_insert(0);
        self.figures.migrations_refused.get_or_insert(0);
    }

    /// The connections of these clients.
    pub(super) fn connections_of(&self, clients: &Range<u32>) -> Vec<ConnectionKey> {
        let sockets = self.sockets.iter().flatten().filter(|socket| clients.contains(&socket.client));
        sockets.map(|socket| socket.key).collect()
    }

    /// Moves a connection to another port of its client; returns its new socket, `None` if it must not move.
    ///
    /// # Errors
    /// No port or descriptor is available: the connection stays where it is.
    pub(super) fn migrate(&mut self, key: ConnectionKey) -> io::Result<Option<&UdpSocket>> {
        let Some(Some(socket)) =
            self.sockets.get_mut(key.index()).filter(|it| it.as_ref().is_some_and(|it| it.key == key))
        else {
            return Ok(None);
        };
        let (source, server) = socket.ends;
        let udp = open_socket(&self.plan, source, server)?;
        if !socket.connection.migrate() {
            self.figures.migrations_refused = self.figures.migrations_refused.map(|count| count + 1);
            return Ok(None);
        }
        self.figures.migrations = self.figures.migrations.map(|count| count + 1);
        // Datagrams on their way to the old port are lost, as when a client leaves a network.
        let old = std::mem::replace(&mut socket.udp, udp);
        self.figures.receive_drops += old.overflowed().unwrap_or(0);
        Ok(Some(&socket.udp))
    }

    /// The earliest timer of all connections.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Handles a timer that is due, and returns its connection.
    pub(super) fn expire(&mut self, now: Timestamp) -> Option<ConnectionKey> {
        let key = self.timers.take_due(now)?;
        if let Some(connection) = self.connection(key) {
            connection.handle_timeout(now);
        }
        Some(key)
    }

    /// Tells the server that a connection ends, if it does not know, and closes the socket.
    pub(super) fn close(&mut self, key: ConnectionKey, now: Timestamp) {
        let Some(socket) = self.socket(key) else { return };
        socket.connection.close(now, Code::NO_ERROR);
        self.discard(key, now);
    }

    /// Sends what is left to send on a connection that has ended, and closes the socket.
    pub(super) fn discard(&mut self, key: ConnectionKey, now: Timestamp) {
        self.timers.set(key, None);
        if self.socket(key).is_none() {
            return;
        }
        let Some(mut socket) = self.sockets[key.index()].take() else { return };
        // Whether the server learns of it is of no consequence for the load.
        let _ = socket.send(now, &mut Vec::new());
        let figures = socket.connection.figures();
        let sum = &mut self.figures;
        sum.datagrams_sent += figures.datagrams_sent;
        sum.datagrams_received += figures.datagrams_received;
        sum.bytes_sent += figures.bytes_sent;
        sum.bytes_received += figures.bytes_received;
        sum.lost_packets += figures.lost_packets;
        sum.retries += figures.retries;
        sum.early_data_offered += u64::from(figures.early_data_offered);
        sum.early_data_accepted += u64::from(figures.early_data_accepted);
        sum.receive_drops += socket.udp.overflowed().unwrap_or(0);
    }

    /// Counts a finished handshake.
    pub(super) fn note_handshake(&mut self) {
        self.figures.handshakes += 1;
    }

    /// Stores the text of the first failure.
    pub(super) fn note_failure(&mut self, text: impl FnOnce() -> String) {
        self.figures.first_failure.get_or_insert_with(text);
    }

    fn socket(&mut self, key: ConnectionKey) -> Option<&mut QuicSocket> {
        self.sockets.get_mut(key.index())?.as_mut().filter(|socket| socket.key == key)
    }
}

/// Opens the socket of one connection.
fn open_socket(plan: &Http3Plan, source: Option<IpAddr>, server: SocketAddr) -> io::Result<UdpSocket> {
    let mut udp = UdpSocket::connect(source, server)?;
    if !plan.offload {
        udp.disable_offload()?;
    }
    Ok(udp)
}

impl QuicSocket {
    /// Sends until nothing is left or the socket is full.
    fn send(&mut self, now: Timestamp, events: &mut Vec<Event<StreamKey>>) -> io::Result<()> {
        loop {
            if self.unsent.is_empty() {
                let Some(next) = self.connection.transmit(now, DATAGRAMS_PER_SEND, &mut self.unsent) else {
                    return Ok(());
                };
                self.of_unsent = next;
            }
            let accepted = match self.udp.send(&self.unsent, self.of_unsent.segment, self.of_unsent.ecn) {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.unsent.clear();
                    return Err(error);
                }
            };
            self.unsent.drain(..accepted);
            if !self.unsent.is_empty() {
                // The socket reports when it accepts more.
                return Ok(());
            }
            self.connection.note_transmitted(events);
        }
    }
}
