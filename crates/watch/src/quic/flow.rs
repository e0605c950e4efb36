//! One QUIC connection: its packets, as far as they can be read without its keys. [`decrypt`] has the rest.

mod decrypt;
mod unread;

use std::net::SocketAddr;
use std::sync::Arc;

use schema::{Direction, QuicConnectionRecord, QuicPacketKind, QuicSent, RecordEnd};
use units::Timestamp;
use wire::quic::{ConnectionId, LongBody, LongHeader, LongKind, is_long};
use wire::tls::handshake::{self, ClientHello, kind};

use super::initial::{Content, Initial};
use super::packets::Logged;
use super::protection;
use super::secure::{Packet, PacketKind, Secure};
use super::spin::Spin;
use crate::flow::opposite;
use crate::key::Key;
use crate::out::Out;
use crate::tcp::half::NEVER;
use unread::Unread;

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct QuicFlow {
    pub(super) number: u64,
    pub(super) client_is_second: bool,
    /// Latest capture time of a packet of this connection, by the clock of ageing.
    pub(super) last_packet_at: u64,
    /// When it closed, by that clock; [`NEVER`] before.
    pub(super) over_at: u64,
    pub(super) version: u32,
    original_destination: ConnectionId,
    pub(super) client_id: ConnectionId,
    pub(super) server_id: Option<ConnectionId>,
    initial: Option<Box<Initial>>,
    /// Memory that is reserved for it.
    held: usize,
    sent: [QuicSent; 2],
    spin: [Spin; 2],
    first_at: u64,
    last_at: u64,
    answered_at: Option<u64>,
    /// First short header of each direction.
    secured_at: [Option<u64>; 2],
    /// Handshake round trips towards client and server.
    rtts: [Option<u64>; 2],
    has_rtt: bool,
    version_negotiations: u32,
    retries: u32,
    undecrypted: u32,
    /// Whether it counts as open in the gauges.
    is_in_process: bool,
    closed_at: Option<u64>,
    close_error: Option<u64>,
    pub(super) idle_timeout_ns: Option<u64>,
    client_random: Option<[u8; 32]>,
    /// Cipher suite that the server has chosen.
    cipher_suite: Option<u16>,
    /// With the secrets of a key log.
    secure: Option<Box<Secure>>,
    /// Encrypted packets that cannot be read yet: 0-RTT packets before the server's choice of a protocol, all packets
    /// before the client has reported its secrets, or, where packets are logged, before the server's ServerHello.
    unread: Unread,
    /// Whether packets wait for the secrets.
    awaits_secrets: bool,
    /// Connection IDs that have become known, and the direction of packets to them.
    new_ids: Vec<(ConnectionId, Direction)>,
    server_name: Option<Arc<[u8]>>,
    offered_protocols: Option<Arc<[u8]>>,
    migrations: u32,
    pub(super) migrated_client: Option<SocketAddr>,
    /// Further pairs of ends, after migrations.
    pub(super) paths: Vec<Key>,
    /// Connection IDs by which it is found.
    pub(super) ids: Vec<ConnectionId>,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    /// Captured part of the payload.
    pub(crate) payload: &'a [u8],
    /// Payload length, by the headers.
    pub(crate) length: usize,
    /// Bytes of the IP packet.
    pub(crate) ip_bytes: u64,
}

impl QuicFlow {
    /// The connection that a client's first datagram begins; `None` if it is not an Initial packet. A packet that was
    /// captured as a whole must be protected with the keys of its connection ID.
    pub(super) fn begin(number: u64, datagram: &Datagram<'_>, out: &mut Out<'_>) -> Option<QuicFlow> {
        let header = first_initial(datagram)?;
        let mut flow = QuicFlow {
            number,
            client_is_second: out.client_is_second,
            last_packet_at: out.series.clock(),
            over_at: NEVER,
            version: header.version,
            original_destination: header.destination,
            client_id: header.source,
            server_id: None,
            initial: None,
            held: 0,
            sent: [QuicSent::default(); 2],
            spin: [Spin::default(); 2],
            first_at: out.at,
            last_at: out.at,
            answered_at: None,
            secured_at: [None; 2],
            rtts: [None; 2],
            has_rtt: false,
            version_negotiations: 0,
            retries: 0,
            undecrypted: 0,
            is_in_process: true,
            closed_at: None,
            close_error: None,
            idle_timeout_ns: None,
            client_random: None,
            cipher_suite: None,
            secure: None,
            unread: Unread::default(),
            awaits_secrets: false,
            new_ids: Vec::new(),
            server_name: None,
            offered_protocols: None,
            migrations: 0,
            migrated_client: None,
            paths: Vec::new(),
            ids: Vec::new(),
        };
        if let Some(kind) = header.kind() {
            let body = LongBody::parse(datagram.payload, &header, kind, datagram.length)?;
            let mut initial = Initial::new(header.version, header.destination)?;
            match datagram.payload.get(..body.number_at + body.length) {
                Some(packet) => drop(initial.open(Direction::Up, packet, body.number_at, &mut Vec::new())?),
                // A client may clear the bit that marks QUIC (RFC 9287): then only decryption tells.
                None if header.first & FIXED_BIT == 0 => return None,
                None => {}
            }
            flow.keep_initial(initial, out);
        }
        out.series.connection_opened();
        Some(flow)
    }

    /// Whether a client's datagram begins another connection between the same ends.
    pub(super) fn is_replaced_by(&self, datagram: &Datagram<'_>) -> bool {
        let Some(header) = first_initial(datagram) else { return false };
        let is_known = header.source == self.client_id
            || header.destination == self.original_destination
            || Some(header.destination) == self.server_id;
        // Before the server has a connection ID, the client may begin again: version negotiation, Retry.
        !is_known && (self.server_id.is_some() || self.over_at != NEVER)
    }

    /// Processes a datagram. True when the connection has just closed.
    pub(super) fn receive(
        &mut self,
        direction: Direction,
        datagram: &Datagram<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) -> bool {
        self.last_packet_at = out.series.clock();
        (self.first_at, self.last_at) = (self.first_at.min(out.at), self.last_at.max(out.at));
        let sent = &mut self.sent[direction.index()];
        sent.datagrams += 1;
        sent.ip_bytes += datagram.ip_bytes;
        sent.udp_bytes += datagram.length as u64;
        let was_open = self.closed_at.is_none();
        let (mut rest, mut left, mut packets) = (datagram.payload, datagram.length, 0);
        while left > 0
            && let Some(&first) = rest.first()
        {
            crate::work::spend(1);
            if !is_long(first) {
                // Zeros behind a long packet are padding of the datagram.
                if packets == 0 || rest.iter().any(|&byte| byte != 0) {
                    packets += 1;
                    self.receive_short(direction, first, out);
                    self.receive_data(direction, rest, rest.len() == left, scratch, out);
                }
                break;
            }
            let Some(end) = self.receive_long(direction, rest, left, scratch, out) else { break };
            packets += 1;
            rest = rest.get(end..).unwrap_or(&[]);
            left -= end;
        }
        if direction == Direction::Down && packets > 0 {
            self.answered_at.get_or_insert(out.at);
        }
        self.sent[direction.index()].coalesced_datagrams += u64::from(packets > 1);
        if self.secured_at.iter().all(Option::is_some) {
            self.drop_initial(out);
        }
        was_open && self.closed_at.is_some()
    }

    /// Processes a packet with a long header at the start of `rest`; returns its length, `None` if it is not one.
    fn receive_long(
        &mut self,
        direction: Direction,
        rest: &[u8],
        left: usize,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) -> Option<usize> {
        let header = LongHeader::parse(rest)?;
        if header.version == 0 {
            self.version_negotiations += u32::from(direction == Direction::Down);
            self.log(direction, (QuicPacketKind::VersionNegotiation, 0), left, &[], out);
            return Some(left);
        }
        let Some(kind) = header.kind() else { return Some(left) };
        if kind == LongKind::Retry {
            let is_whole = rest.len() == left;
            if direction == Direction::Down && is_whole {
                self.log(direction, (QuicPacketKind::Retry, 0), left, &[], out);
                self.receive_retry(&header, rest, out);
            }
            return Some(left);
        }
        let body = LongBody::parse(rest, &header, kind, left)?;
        let end = body.number_at + body.length;
        let sent = &mut self.sent[direction.index()];
        match kind {
            LongKind::Initial => sent.initial_packets += 1,
            LongKind::Handshake => sent.handshake_packets += 1,
            LongKind::ZeroRtt => sent.zero_rtt_packets += 1,
            LongKind::Retry => {}
        }
        if kind == LongKind::Initial {
            let is_read = rest.get(..end).is_some_and(|packet| {
                self.receive_initial(direction, &header, packet, body.number_at, scratch, out).is_some()
            });
            self.undecrypted = self.undecrypted.saturating_add(u32::from(!is_read && self.initial.is_some()));
        }
        if direction == Direction::Down && self.server_id.is_none() {
            self.server_id = Some(header.source);
        }
        let protected = match kind {
            LongKind::Handshake => Some(PacketKind::Handshake),
            LongKind::ZeroRtt => Some(PacketKind::Early),
            LongKind::Initial | LongKind::Retry => None,
        };
        if let (Some(packet), Some(kind)) = (rest.get(..end), protected) {
            self.receive_protected(direction, Packet { bytes: packet, number_at: body.number_at, kind }, scratch, out);
        }
        Some(end)
    }

    /// Decrypts and reads an Initial packet; `None` if it cannot be decrypted.
    fn receive_initial(
        &mut self,
        direction: Direction,
        header: &LongHeader,
        packet: &[u8],
        number_at: usize,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) -> Option<()> {
        let mut initial = self.initial.take()?;
        let is_of_version = header.version == self.version;
        let mut opened = None;
        if is_of_version {
            opened = initial.open(direction, packet, number_at, scratch);
        }
        if opened.is_none() {
            // Another version after a negotiation, or another ID after a Retry packet that was not captured.
            let destination = if direction == Direction::Up { header.destination } else { initial.destination };
            if (!is_of_version || destination != initial.destination)
                && let Some(mut other) = Initial::new(header.version, destination)
            {
                opened = other.open(direction, packet, number_at, scratch);
                if opened.is_some() {
                    self.version = header.version;
                    self.client_random = None;
                    *initial = other;
                }
            }
        }
        let Some(number) = opened else {
            self.initial = Some(initial);
            return None;
        };
        initial.note_sent(direction, number, out.at);
        let kind = (QuicPacketKind::Initial, number);
        self.log(direction, kind, packet.len(), protection::payload(scratch, number_at), out);
        let content = initial.read(direction, protection::payload(scratch, number_at));
        self.note_content(direction, &content, &initial, out);
        if content.has_crypto {
            self.note_hello(direction, &initial, out);
        }
        self.keep_initial(*initial, out);
        Some(())
    }

    /// Logs a packet with its frames, if packets are asked for.
    fn log(&self, direction: Direction, kind: (QuicPacketKind, u64), length: usize, payload: &[u8], out: &mut Out<'_>) {
        if out.quic_packets.is_used() {
            let ((kind, number), connection, at) = (kind, out.connection, out.at);
            out.quic_packets.add(Logged { connection, at, direction, kind, number, length }, payload);
        }
    }

    fn note_content(&mut self, direction: Direction, content: &Content, initial: &Initial, out: &mut Out<'_>) {
        if let Some(error) = content.close_error {
            self.note_close(error, out);
        }
        let acknowledged = content.acknowledged.and_then(|number| initial.sent_at(opposite(direction), number));
        if let Some(rtt) = acknowledged.and_then(|sent_at| out.at.checked_sub(sent_at)) {
            self.rtts[direction.index()].get_or_insert(rtt);
        }
    }

    pub(super) fn note_close(&mut self, error: u64, out: &mut Out<'_>) {
        if self.closed_at.is_none() {
            (self.closed_at, self.close_error) = (Some(out.at), Some(error));
            self.over_at = out.series.clock();
            self.close_in_series(out);
        }
    }

    /// Counts the connection as closed in the gauges, once.
    fn close_in_series(&mut self, out: &mut Out<'_>) {
        if std::mem::replace(&mut self.is_in_process, false) {
            out.series.connection_closed();
        }
    }

    fn note_hello(&mut self, direction: Direction, initial: &Initial, out: &mut Out<'_>) {
        let Some((kind, body)) = initial.hello(direction) else { return };
        if direction == Direction::Down {
            return self.note_server_hello(kind, body, out);
        }
        if kind != kind::CLIENT_HELLO || self.client_random.is_some() {
            return;
        }
        let Some(hello) = ClientHello::parse(body) else { return };
        self.client_random = Some(hello.random);
        out.quic_packets.note_parameters(out.connection, &hello);
        self.server_name = hello.server_name.map(|name| out.words.share(name));
        self.offered_protocols = hello.protocols.map(|list| {
            let names: Vec<&[u8]> = handshake::protocols(list).collect();
            let all = names.join(&b',');
            out.words.share(&all[..all.len().min(PROTOCOLS_MAX)])
        });
        let timeout = hello
            .transport_parameters
            .and_then(|parameters| handshake::transport_parameter(parameters, handshake::MAX_IDLE_TIMEOUT));
        self.idle_timeout_ns =
            timeout.filter(|&timeout| timeout > 0).map(|timeout| timeout.saturating_mul(MILLISECOND));
    }

    fn receive_retry(&mut self, header: &LongHeader, packet: &[u8], out: &mut Out<'_>) {
        let Some(initial) = &self.initial else { return };
        // Only a packet with the right integrity tag comes from a server that has seen the client's.
        if self.retries == 0 && !protection::is_retry_valid(header.version, packet, &initial.destination) {
            self.undecrypted = self.undecrypted.saturating_add(1);
            return;
        }
        self.retries = self.retries.saturating_add(1);
        if self.retries == 1
            && let Some(next) = Initial::new(header.version, header.source)
        {
            // The client begins again, with keys that follow from the server's connection ID. Some make another hello.
            self.client_random = None;
            self.drop_initial(out);
            self.keep_initial(next, out);
        }
    }

    fn receive_short(&mut self, direction: Direction, first: u8, out: &mut Out<'_>) {
        self.sent[direction.index()].one_rtt_packets += 1;
        let [client, server] = self.rtts;
        let handshake_ns =
            client.or(server).map(|one| one.saturating_add(server.filter(|_| client.is_some()).unwrap_or(0)));
        self.spin[direction.index()].note(first & SPIN_BIT != 0, out.at, handshake_ns);
        self.secured_at[direction.index()].get_or_insert(out.at);
    }

    /// The handshake's round trips towards client and server, once, when those of the capture point are known.
    pub(super) fn take_rtts(&mut self, are_known: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Option<u64> {
        let [client, server] = self.rtts;
        let rtt = are_known(client, server).filter(|_| !self.has_rtt)?;
        self.has_rtt = true;
        Some(rtt)
    }

    /// Records that a packet with one of its connection IDs came between other ends.
    pub(super) fn note_migration(&mut self) {
        self.migrations = self.migrations.saturating_add(1);
    }

    /// Keeps the state of the handshake if there is memory for it.
    fn keep_initial(&mut self, initial: Initial, out: &mut Out<'_>) {
        out.release(self.held);
        self.held = initial.held();
        if out.hold(self.held) {
            self.initial = Some(Box::new(initial));
        } else {
            (self.held, self.initial) = (0, None);
        }
    }

    fn drop_initial(&mut self, out: &mut Out<'_>) {
        self.initial = None;
        out.release(std::mem::take(&mut self.held));
    }

    /// Mean round trip by the spin bit, of the direction with more samples.
    pub(super) fn spin_rtt_ns(&self) -> Option<u64> {
        Spin::summaries(&self.spin).into_iter().max_by_key(|summary| summary.count)?.mean_ns()
    }

    /// The record in its present state: releases all held memory. `key_ends` are the ends of the key, in its order.
    pub(super) fn record(
        &mut self,
        key_ends: [SocketAddr; 2],
        end: RecordEnd,
        out: &mut Out<'_>,
    ) -> QuicConnectionRecord {
        self.drop_initial(out);
        self.unread.take(out);
        out.reading.undecrypted_tls += u64::from(self.is_undecrypted(out));
        self.close_in_series(out);
        let requests = self.secure.take().map_or(0, |mut secure| {
            secure.finish(out);
            secure.requests()
        });
        let timestamp = |at: u64| Timestamp::from_nanos(at);
        let id = |id: &ConnectionId| (!id.is_empty()).then(|| format!("{id:?}").into());
        let spin_rtt = Spin::summaries(&self.spin);
        let sent = |direction: usize| QuicSent { spin_rtt: spin_rtt[direction], ..self.sent[direction] };
        QuicConnectionRecord {
            connection: self.number,
            client: key_ends[usize::from(self.client_is_second)],
            server: key_ends[usize::from(!self.client_is_second)],
            migrated_client: self.migrated_client,
            migrations: self.migrations,
            version: self.version,
            original_destination_id: id(&self.original_destination),
            client_id: id(&self.client_id),
            server_id: self.server_id.as_ref().and_then(id),
            server_name: self.server_name.take(),
            offered_protocols: self.offered_protocols.take(),
            first_at: timestamp(self.first_at),
            last_at: timestamp(self.last_at),
            answered_at: self.answered_at.map(timestamp),
            secured_at: self.secured_at[0].map(timestamp),
            handshake_rtt_ns: self.rtts[0],
            server_rtt_ns: self.rtts[1],
            version_negotiations: self.version_negotiations,
            retries: self.retries,
            undecrypted_packets: self.undecrypted,
            closed_at: self.closed_at.map(timestamp),
            close_error: self.close_error,
            idle_timeout_ns: self.idle_timeout_ns,
            end,
            up: sent(0),
            down: sent(1),
            requests,
        }
    }
}

/// The header of a datagram that may begin a connection: an Initial packet in a datagram of at least 1200 bytes, or a
/// packet of a version that only exercises version negotiation.
fn first_initial(datagram: &Datagram<'_>) -> Option<LongHeader> {
    if datagram.length < DATAGRAM_MIN {
        return None;
    }
    let header = LongHeader::parse(datagram.payload)?;
    let is_initial = match header.kind() {
        Some(kind) => kind == LongKind::Initial,
        None => wire::quic::is_reserved(header.version),
    };
    (is_initial && header.destination.len() >= DESTINATION_MIN).then_some(header)
}

/// RFC 9000, sections 14.1 and 7.2.
const DATAGRAM_MIN: usize = 1200;
const DESTINATION_MIN: usize = 8;
const FIXED_BIT: u8 = 0x40;
const SPIN_BIT: u8 = 0x20;
const MILLISECOND: u64 = 1_000_000;
/// Longest list of offered protocols that is recorded.
const PROTOCOLS_MAX: usize = 255;
