//! A client's HTTP/3 connection: quinn-proto below, requests and responses above, no I/O and no clock.
//!
//! ```text
//!   datagrams --> receive --> quinn-proto --> streams --> Response --> Event
//!   datagrams <-- transmit <-- quinn-proto <-- streams <-- open, reset
//!                    '--> packets' frames --> Event::Sent
//! ```
//!
//! The owner passes datagrams and the time ([`Connection::receive`], [`Connection::handle_timeout`]), then calls
//! [`Connection::advance`] for events and [`Connection::transmit`] until it returns nothing. Requests that the server's
//! limit of streams does not allow yet wait in the connection, in their order.
//!
//! The server's limits bound what is sent, and [`HEAD_MAX`](crate::response::HEAD_MAX) and the windows of
//! [`Transport`] bound what is stored of its data.

mod event;
mod table;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use bytes::{Bytes, BytesMut};
use http::Request;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, Event as QuicEvent,
    ReadError, Side, StreamEvent, StreamId, VarInt, WriteError,
};
use units::Timestamp;

pub use self::event::{Datagrams, Event, Figures, Negotiated, StreamFault};
use self::table::{Stream, Table, Unsent};
use crate::code::Code;
use crate::control::Control;
use crate::frame::Settings;
use crate::lost::Lost;
use crate::request;
use crate::response::{HEAD_MAX, Part, Response, ResponseFault};
use crate::session::{SentParts, SessionState, TlsClient};
use crate::time::TimeBase;
use crate::transport::{Transport, endpoint_config};

/// Settings for the connections of one client to one server name. They share the tokens that the server issues.
#[derive(Clone)]
pub struct Client {
    config: ClientConfig,
    ecn: bool,
}

impl Client {
    /// Settings with this transport and TLS.
    pub fn new(transport: &Transport, tls: TlsClient) -> Self {
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport.config()));
        Client { config, ecn: transport.ecn }
    }
}

/// One connection. `K` identifies a request for the owner.
pub struct Connection<K> {
    base: TimeBase,
    server: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    quic: quinn_proto::Connection,
    sent: SentParts,
    table: Table<K>,
    /// Requests that wait for a stream.
    waiting: VecDeque<Stream<K>>,
    control: Control,
    is_control_open: bool,
    is_connected: bool,
    is_over: bool,
    retries: u64,
    early_data_offered: bool,
    ecn: bool,
}

impl<K: Copy> Connection<K> {
    /// Begins a connection to `server` at `now`. `seed`: of its random numbers; TLS has its own.
    ///
    /// # Errors
    /// The server's address is not a valid destination, or its name not a valid name of TLS.
    pub fn connect(
        now: Timestamp,
        base: TimeBase,
        client: &Client,
        server: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Self, ConnectError> {
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config(seed)), None, false, None);
        // The name for quinn-proto identifies stored tokens: a client's settings are for one server.
        let (handle, quic) = endpoint.connect(base.instant(now), client.config.clone(), server, TOKENS)?;
        let sent = session(&quic).map(|session| session.sent).unwrap_or_default();
        let early_data_offered = quic.has_0rtt();
        let mut connection = Connection {
            base,
            server,
            endpoint,
            handle,
            quic,
            sent,
            table: Table::default(),
            waiting: VecDeque::new(),
            control: Control::new(Side::Server),
            is_control_open: false,
            is_connected: false,
            is_over: false,
            retries: 0,
            early_data_offered,
            ecn: client.ecn,
        };
        if early_data_offered {
            connection.open_control();
        }
        Ok(connection)
    }

    /// Whether requests can leave before the handshake is finished (0-RTT).
    pub fn has_early_data(&self) -> bool {
        self.early_data_offered && self.quic.is_handshaking()
    }

    /// The server's limit of concurrent requests as far as it is known.
    pub fn streams_limit(&self) -> Option<u32> {
        let limit = session(&self.quic)?.streams_limit?;
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// The client has moved to another address or port: what follows leaves from there, with a connection ID of the
    /// server that was not used before, if there is one (RFC 9000, section 9). False if the connection must not move: its
    /// handshake is not finished, or the server forbids it. Call [`Self::advance`] and [`Self::transmit`] afterwards.
    pub fn migrate(&mut self) -> bool {
        let may_move =
            self.is_connected && !self.is_over && session(&self.quic).is_some_and(|session| !session.forbids_migration);
        if may_move {
            self.quic.local_address_changed();
        }
        may_move
    }

    /// Queues a request. Call [`Self::advance`] and [`Self::transmit`] afterwards.
    pub fn open(&mut self, stream: K, request: &Request<()>, body: &[u8]) {
        let mut frames = Vec::with_capacity(128 + body.len());
        request::put(request, body, &mut frames);
        let response = Response::new(request.method() == http::Method::HEAD);
        self.waiting.push_back(Stream::new(stream, response, frames));
    }

    /// Cancels a request by the identifier of its stream, or one that waits for a stream.
    pub fn cancel(&mut self, is_it: impl Fn(K) -> bool, number: u32) {
        self.waiting.retain(|waiting| !is_it(waiting.key));
        let id = u64::from(number);
        if self.table.get(id).is_some_and(|stream| is_it(stream.key)) {
            self.abandon(id, Code::REQUEST_CANCELLED);
        }
    }

    /// Receives a datagram from the server, with the ECN bits of its IP header.
    pub fn receive(&mut self, now: Timestamp, ecn: u8, datagram: BytesMut) {
        // A long header with the type Retry (RFC 9000, section 17.2.5).
        self.retries +=
            u64::from(datagram.first().is_some_and(|first| first & 0xf0 == 0xf0) && self.quic.is_handshaking());
        let ecn = EcnCodepoint::from_bits(ecn);
        // What the endpoint itself would answer is for datagrams of other connections, and not sent.
        let mut unsent = Vec::new();
        let event = self.endpoint.handle(self.base.instant(now), self.server, None, ecn, datagram, &mut unsent);
        if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
            && handle == self.handle
        {
            self.quic.handle_event(event);
        }
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn next_timeout(&mut self) -> Option<Timestamp> {
        self.quic.poll_timeout().map(|at| self.base.timestamp(at))
    }

    /// Handles a timer that has expired.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.quic.handle_timeout(self.base.instant(now));
    }

    /// Reports what has happened, and passes requests to the transport as far as it takes them.
    pub fn advance(&mut self, now: Timestamp, events: &mut Vec<Event<K>>) {
        loop {
            self.exchange_with_endpoint();
            let Some(event) = self.quic.poll() else { break };
            if self.is_over {
                continue;
            }
            if let Err(code) = self.handle_event(event, events) {
                self.close(now, code);
                events.push(Event::Lost(Lost::Violation(code)));
            }
        }
        if !self.is_over && self.is_control_open {
            self.open_waiting(events);
        }
    }

    /// Appends the next datagrams to `into`, at most `most` of them in one. The packets count as sent.
    pub fn transmit(&mut self, now: Timestamp, most: usize, into: &mut Vec<u8>) -> Option<Datagrams> {
        let transmit = self.quic.poll_transmit(self.base.instant(now), most, into)?;
        // Without marks the acknowledgements count none, and quinn-proto no longer asks for them.
        let ecn = transmit.ecn.filter(|_| self.ecn).map_or(0, |ecn| ecn as u8);
        Some(Datagrams { segment: transmit.segment_size, ecn })
    }

    /// Reports the bytes of requests in the datagrams since the last call.
    pub fn note_transmitted(&mut self, events: &mut Vec<Event<K>>) {
        let mut parts = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts.drain(..) {
            let Some(stream) = self.table.get(part.stream) else { continue };
            // A retransmission adds nothing.
            let bytes = part.end.saturating_sub(stream.sent);
            if bytes > 0 {
                stream.sent = part.end;
                events.push(Event::Sent { stream: stream.key, bytes, last: stream.sent == stream.length });
            }
        }
    }

    /// Closes the connection with a code; [`Self::transmit`] then has the datagram that tells the server.
    pub fn close(&mut self, now: Timestamp, code: Code) {
        self.is_over = true;
        self.quic.close(self.base.instant(now), varint(code), Bytes::new());
    }

    /// Whether the handshake was finished.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Bytes of open requests that left in packets, of those that the server has not acknowledged completely.
    pub fn unacknowledged(&self) -> u64 {
        self.table.iter().filter(|stream| !stream.is_acknowledged).map(|stream| stream.sent).sum()
    }

    /// TLS as negotiated, after [`Event::Connected`].
    pub fn negotiated(&self) -> Option<Negotiated> {
        session(&self.quic).map(|SessionState { alpn, version, suite, kind, .. }| Negotiated {
            alpn,
            version,
            suite,
            kind,
        })
    }

    /// What the connection did so far.
    pub fn figures(&self) -> Figures {
        let stats = self.quic.stats();
        Figures {
            datagrams_sent: stats.udp_tx.datagrams,
            datagrams_received: stats.udp_rx.datagrams,
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            lost_packets: stats.path.lost_packets,
            retries: self.retries,
            early_data_offered: self.early_data_offered,
            early_data_accepted: self.early_data_offered && self.quic.accepted_0rtt() && !self.quic.is_handshaking(),
        }
    }

    fn exchange_with_endpoint(&mut self) {
        while let Some(event) = self.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.quic.handle_event(event);
            }
        }
    }

    fn handle_event(&mut self, event: QuicEvent, events: &mut Vec<Event<K>>) -> Result<(), Code> {
        match event {
            QuicEvent::Connected => {
                self.is_connected = true;
                if self.early_data_offered && !self.quic.accepted_0rtt() {
                    self.forget_early_data(events);
                }
                if !self.is_control_open {
                    self.open_control();
                }
                events.push(Event::Connected);
                events.extend(self.streams_limit().map(Event::Limit));
                Ok(())
            }
            QuicEvent::ConnectionLost { reason } => {
                self.is_over = true;
                events.push(Event::Lost(Lost::of(&reason, session(&self.quic).as_ref())));
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                while let Some(id) = self.quic.streams().accept(Dir::Uni) {
                    self.control.accept(id);
                    self.read_control(id, events)?;
                }
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => self.read_control(id, events),
            QuicEvent::Stream(StreamEvent::Readable { id }) => self.read_response(id, events),
            QuicEvent::Stream(StreamEvent::Writable { id }) => {
                self.write(id);
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Stopped { id, error_code }) => {
                if id.dir() == Dir::Uni {
                    return Err(Code::CLOSED_CRITICAL_STREAM);
                }
                // The response may still arrive (RFC 9114, section 4.1).
                if let Some(stream) = self.table.get(id.into()) {
                    stream.unsent = Unsent::default();
                }
                let _ = self.quic.send_stream(id).reset(error_code);
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Finished { id }) => {
                if let Some(stream) = self.table.get(id.into()) {
                    stream.is_acknowledged = true;
                }
                Ok(())
            }
            QuicEvent::HandshakeDataReady
            | QuicEvent::Stream(_)
            | QuicEvent::DatagramReceived
            | QuicEvent::DatagramsUnblocked => Ok(()),
        }
    }

    /// Opens this side's control stream with its settings.
    fn open_control(&mut self) {
        let Some(id) = self.quic.streams().open(Dir::Uni) else { return };
        let mut bytes = vec![CONTROL_STREAM];
        Settings { max_field_section_size: Some(HEAD_MAX as u64), ..Settings::default() }.put(&mut bytes);
        // A server must allow at least 1024 bytes on it (RFC 9114, section 6.2); one that does not gets an incomplete
        // stream, and waits for the rest.
        let _ = self.quic.send_stream(id).write(&bytes);
        self.is_control_open = true;
    }

    /// The server did not accept early data: its streams never existed.
    fn forget_early_data(&mut self, events: &mut Vec<Event<K>>) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for stream in self.table.take_all() {
            events.push(Event::Failed { stream: stream.key, why: StreamFault::Rejected });
        }
        self.is_control_open = false;
    }

    fn open_waiting(&mut self, events: &mut Vec<Event<K>>) {
        while !self.waiting.is_empty()
            && let Some(id) = self.quic.streams().open(Dir::Bi)
            && let Some(stream) = self.waiting.pop_front()
        {
            let number = u64::from(id);
            events.push(Event::Opened { stream: stream.key, number: u32::try_from(number).unwrap_or(u32::MAX) });
            self.table.insert(number, stream);
            self.write(id);
        }
    }

    /// Writes as much of a request as the server's limits allow.
    fn write(&mut self, id: StreamId) {
        let Some(stream) = self.table.get(id.into()) else { return };
        while !stream.unsent.is_empty() {
            match self.quic.send_stream(id).write(stream.unsent.rest()) {
                Ok(written) => stream.unsent.advance(written),
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    stream.unsent = Unsent::default();
                    return;
                }
            }
        }
        if !std::mem::replace(&mut stream.is_finished, true) {
            // A stopped stream cannot be finished, and need not be.
            let _ = self.quic.send_stream(id).finish();
        }
    }

    fn read_response(&mut self, id: StreamId, events: &mut Vec<Event<K>>) -> Result<(), Code> {
        let Some(Stream { key, response, .. }) = self.table.get(id.into()) else { return Ok(()) };
        let stream = *key;
        let mut receiver = self.quic.recv_stream(id);
        let Ok(mut chunks) = receiver.read(true) else { return Ok(()) };
        let outcome = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let fed = response.feed(&chunk.bytes, |part| {
                        events.push(match part {
                            Part::Received { bytes, head } => Event::Received { stream, bytes, head },
                            Part::Head { status, fields } => Event::Head { stream, status, fields },
                            Part::Body(bytes) => Event::Body { stream, bytes },
                        });
                    });
                    if let Err(fault) = fed {
                        break Outcome::Fault(fault);
                    }
                }
                Ok(None) => break response.end().map_or_else(Outcome::Fault, |()| Outcome::End),
                Err(ReadError::Blocked) => break Outcome::More,
                Err(ReadError::Reset(code)) => break Outcome::Reset(Code(code.into_inner())),
            }
        };
        // The window that this frees is sent with the next transmit.
        let _ = chunks.finalize();
        match outcome {
            Outcome::More => {}
            Outcome::End => {
                events.push(Event::End { stream });
                self.end(id);
            }
            Outcome::Reset(code) => {
                let is_rejected = code == Code::REQUEST_REJECTED;
                let why = if is_rejected { StreamFault::Rejected } else { StreamFault::Reset(code) };
                events.push(Event::Failed { stream, why });
                self.end(id);
            }
            Outcome::Fault(ResponseFault::Connection(code)) => return Err(code),
            Outcome::Fault(ResponseFault::Message) => {
                events.push(Event::Failed { stream, why: StreamFault::Malformed });
                self.abandon(id.into(), Code::MESSAGE_ERROR);
            }
            Outcome::Fault(ResponseFault::HeadTooLarge) => {
                events.push(Event::Failed { stream, why: StreamFault::HeadTooLarge });
                self.abandon(id.into(), Code::EXCESSIVE_LOAD);
            }
        }
        Ok(())
    }

    /// The response of a stream is over. A request that is not written completely is not continued.
    fn end(&mut self, id: StreamId) {
        if let Some(stream) = self.table.remove(id.into())
            && !stream.is_finished
        {
            let _ = self.quic.send_stream(id).reset(varint(Code::REQUEST_CANCELLED));
        }
    }

    /// Ends a stream in both directions.
    fn abandon(&mut self, number: u64, code: Code) {
        if self.table.remove(number).is_some() {
            let id = StreamId::from(VarInt::from_u64(number).unwrap_or(VarInt::MAX));
            // Either direction may have ended already.
            let _ = self.quic.send_stream(id).reset(varint(code));
            let _ = self.quic.recv_stream(id).stop(varint(code));
        }
    }

    /// Reads a stream of the server: control, QPACK, or one of an unknown kind.
    fn read_control(&mut self, id: StreamId, events: &mut Vec<Event<K>>) -> Result<(), Code> {
        let mut receiver = self.quic.recv_stream(id);
        let Ok(mut chunks) = receiver.read(true) else { return Ok(()) };
        let mut outcome = Ok(());
        while outcome.is_ok() {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    outcome = self.control.feed(id, &chunk.bytes, |first| events.push(Event::GoAway { first }));
                }
                Ok(None) | Err(ReadError::Reset(_)) => {
                    outcome = self.control.end(id);
                    break;
                }
                Err(ReadError::Blocked) => break,
            }
        }
        let _ = chunks.finalize();
        if outcome.is_ok() && self.control.is_unknown(id) {
            let _ = self.quic.recv_stream(id).stop(varint(Code::STREAM_CREATION_ERROR));
            self.control.forget(id);
        }
        outcome
    }
}

/// How reading a response went.
enum Outcome {
    More,
    End,
    Reset(Code),
    Fault(ResponseFault),
}

/// The kind of a control stream, its first byte (RFC 9114, section 6.2.1).
const CONTROL_STREAM: u8 = 0x00;
/// The name under which a client's tokens for its server are stored.
const TOKENS: &str = "server";

fn varint(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

fn session(quic: &quinn_proto::Connection) -> Option<SessionState> {
    quic.crypto_session().handshake_data()?.downcast().ok().map(|state| *state)
}
