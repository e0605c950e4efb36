//! QUIC connections made by hand, with real protection.

mod secure;

use proptest::prelude::*;
use schema::{QuicConnectionRecord, RecordEnd, RttSummary};
use units::Timestamp;
use wire::link::LinkType;
use wire::quic::{ConnectionId, VERSION_1, VERSION_2};

use super::protection::{Protection, initial};
use super::sealing::{bytes, client_initial, long, long_from, protect};
use crate::{CapturePoint, Limits, Watch, WatchSpec};

const CLIENT: ([u8; 4], u16) = ([198, 19, 0, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([198, 18, 0, 1], 443);
const MS: u64 = 1_000_000;

fn id(text: &str) -> ConnectionId {
    ConnectionId::new(&bytes(text)).unwrap()
}

/// A UDP packet over IPv4.
fn packet(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((28 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(from.0);
    packet.extend(to.0);
    packet.extend(from.1.to_be_bytes());
    packet.extend(to.1.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A connection with 50 ms between the ends, captured at the server.
struct Talk {
    watch: Watch,
    version: u32,
    original: ConnectionId,
    client_id: ConnectionId,
    server_id: ConnectionId,
    client: ([u8; 4], u16),
    at: u64,
}

impl Talk {
    fn new(version: u32) -> Talk {
        Talk::with(version, WatchSpec::default())
    }

    fn with(version: u32, spec: WatchSpec) -> Talk {
        Talk {
            watch: Watch::new(spec),
            version,
            original: id("8394c8f03e515708"),
            client_id: id("c1c2c3c4"),
            server_id: id("f067a5502a4262b5"),
            client: CLIENT,
            at: 1_000 * MS,
        }
    }

    fn keys(&self) -> [Protection; 2] {
        initial(self.version, &self.original).unwrap()
    }

    fn send(&mut self, is_up: bool, payload: &[u8]) {
        self.send_cut(is_up, payload, usize::MAX);
    }

    fn send_cut(&mut self, is_up: bool, payload: &[u8], snap: usize) {
        let (from, to) = if is_up { (self.client, SERVER) } else { (SERVER, self.client) };
        let packet = packet(from, to, payload);
        let kept = packet.len().min(snap);
        self.watch.handle_packet(Timestamp::from_nanos(self.at), LinkType::RawIp, &packet[..kept], packet.len() as u32);
    }

    fn wait(&mut self, ms: u64) -> &mut Talk {
        self.at += ms * MS;
        self
    }

    fn initial_code(&self) -> u8 {
        if self.version == VERSION_2 { 1 } else { 0 }
    }

    fn client_initial(&self, number: u32, frames: &[u8]) -> Vec<u8> {
        let mut plain = frames.to_vec();
        plain.resize(1162, 0);
        long(&self.keys()[0], self.initial_code(), self.version, [self.original, self.client_id], number, &plain)
    }

    fn server_initial(&self, number: u32, frames: &[u8]) -> Vec<u8> {
        long(&self.keys()[1], self.initial_code(), self.version, [self.client_id, self.server_id], number, frames)
    }

    fn short(&self, is_up: bool, spin: bool) -> Vec<u8> {
        let id = if is_up { self.server_id } else { self.client_id };
        [&[0x40 | u8::from(spin) << 5], id.as_bytes(), &[7; 40]].concat()
    }

    fn send_short(&mut self, is_up: bool, spin: bool) {
        let packet = self.short(is_up, spin);
        self.send(is_up, &packet);
    }

    /// The client's hello, the server's acknowledgement and hello 1 ms later, the client's acknowledgement 50 ms later.
    fn handshake(&mut self) {
        let (_, hello) = client_initial();
        let first = self.client_initial(0, &hello[..245]);
        self.send(true, &first);
        let answer = self.server_initial(0, &[&ack(0)[..], b"\x06\x00\x04\x02\x00\x00\x00"].concat());
        let handshake =
            long(&self.keys()[1], self.initial_code() + 2, self.version, [self.client_id, self.server_id], 0, &[0; 30]);
        self.wait(1).send(false, &[answer, handshake].concat());
        let acknowledgement = self.client_initial(1, &ack(0));
        self.wait(50).send(true, &acknowledgement);
    }

    fn finish(mut self) -> Vec<QuicConnectionRecord> {
        self.watch.finish(Timestamp::from_nanos(self.at));
        assert_eq!(self.watch.live().bytes_held, 0);
        let mut records = Vec::new();
        self.watch.take_quic_connections(&mut records);
        records
    }

    #[track_caller]
    fn connection(self) -> QuicConnectionRecord {
        let records = self.finish();
        assert_eq!(records.len(), 1, "{records:#?}");
        records.into_iter().next().unwrap()
    }
}

fn ack(number: u8) -> [u8; 5] {
    [2, number, 0, 0, 0]
}

#[test]
fn handshake_shows_version_ids_hello_and_round_trips() {
    for version in [VERSION_1, VERSION_2] {
        let mut talk = Talk::new(version);
        talk.handshake();
        talk.wait(1).send_short(false, false);
        talk.wait(1).send_short(true, false);
        assert_eq!(talk.watch.quic_handshake_rtt().count, 1);
        let counts = talk.watch.live().counts;
        assert_eq!((counts.quic, counts.other, counts.tcp, counts.quic_connections), (5, 0, 0, 1));
        let record = talk.connection();
        assert_eq!(record.version, version);
        assert_eq!(record.original_destination_id.as_deref(), Some("8394c8f03e515708"));
        assert_eq!(
            (record.client_id.as_deref(), record.server_id.as_deref()),
            (Some("c1c2c3c4"), Some("f067a5502a4262b5"))
        );
        assert_eq!(record.server_name.as_deref(), Some(&b"example.com"[..]));
        assert_eq!(record.offered_protocols.as_deref(), Some(&b"alpn"[..]));
        assert_eq!(record.idle_timeout_ns, Some(30_000 * MS));
        assert_eq!((record.handshake_rtt_ns, record.server_rtt_ns), (Some(50 * MS), Some(MS)));
        assert_eq!(record.answered_at, Some(Timestamp::from_nanos(1_001 * MS)));
        assert_eq!(record.secured_at, Some(Timestamp::from_nanos(1_053 * MS)));
        let packets = |sent: &schema::QuicSent| {
            [
                sent.datagrams,
                sent.coalesced_datagrams,
                sent.initial_packets,
                sent.handshake_packets,
                sent.one_rtt_packets,
            ]
        };
        assert_eq!((packets(&record.up), packets(&record.down)), ([3, 0, 2, 0, 1], [2, 1, 1, 1, 1]));
        assert_eq!((record.undecrypted_packets, record.end), (0, RecordEnd::CaptureEnd));
        assert_eq!(record.up.ip_bytes - record.up.udp_bytes, 3 * 28);
    }
}

#[test]
fn hello_in_several_packets_out_of_order_is_read() {
    let (_, hello) = client_initial();
    let crypto = &hello[4..245];
    let part = |from: usize, to: usize| {
        [
            &[6][..],
            &(0x4000 | from as u16).to_be_bytes(),
            &(0x4000 | (to - from) as u16).to_be_bytes(),
            &crypto[from..to],
        ]
        .concat()
    };
    let mut talk = Talk::new(VERSION_1);
    let first = talk.client_initial(0, &[part(100, 180), part(0, 60)].concat());
    let second = talk.client_initial(1, &[part(180, 241), vec![1], part(50, 120)].concat());
    talk.send(true, &first);
    talk.send(true, &second);
    assert_eq!(talk.connection().server_name.as_deref(), Some(&b"example.com"[..]));
}

#[test]
fn only_packets_that_decrypt_begin_a_connection() {
    let talk = Talk::new(VERSION_1);
    let good = talk.client_initial(0, &client_initial().1[..245]);
    let mut damaged = good.clone();
    damaged[700] ^= 1;
    let mut other = Talk::new(VERSION_1);
    other.send(true, &damaged);
    other.send(true, &good[..1199]);
    other.send_short(true, true);
    other.send(false, &talk.server_initial(0, &ack(0)));
    let counts = other.watch.live().counts;
    assert_eq!((counts.quic, counts.other), (0, 4));
    // Cut by the snap length, it cannot be decrypted.
    other.send_cut(true, &good, 1024);
    let record = other.connection();
    assert_eq!((record.undecrypted_packets, record.server_name), (1, None));
}

/// RFC 9287: a client that remembers the server's permission clears the bit that marks QUIC from its first packet on.
#[test]
fn packets_without_the_quic_bit_are_read() {
    let mut talk = Talk::new(VERSION_1);
    let mut plain = client_initial().1[..245].to_vec();
    plain.resize(1162, 0);
    let greased = |first| long_from(first, &talk.keys()[0], 0, VERSION_1, [talk.original, talk.client_id], 0, &plain);
    let first = greased(0x83);
    let mut damaged = first.clone();
    damaged[700] ^= 1;
    talk.send(true, &damaged);
    talk.send_cut(true, &first, 1024);
    let counts = talk.watch.live().counts;
    assert_eq!((counts.quic, counts.other), (0, 2), "without the bit only decryption tells");
    talk.send(true, &first);
    let answer = talk.server_initial(0, &ack(0));
    talk.wait(50).send(false, &answer);
    // After a long packet, a short one without the QUIC bit is read as a packet, and zero bytes as padding.
    let coalesced = |rest: &[u8]| [&talk.server_initial(1, &ack(0))[..], rest].concat();
    let [with_packet, with_padding] = [coalesced(&[0, 7, 7, 7, 9, 9]), coalesced(&[0; 40])];
    talk.send(false, &with_packet);
    talk.send(false, &with_padding);
    let record = talk.connection();
    assert_eq!((record.up.initial_packets, record.server_name.is_some()), (1, true));
    assert_eq!((record.down.one_rtt_packets, record.down.coalesced_datagrams), (1, 1));
}

#[test]
fn retry_and_version_negotiation_are_followed() {
    let mut talk = Talk::new(VERSION_1);
    let first = talk.client_initial(0, &client_initial().1[..245]);
    talk.send(true, &first);
    // The client of the standard's example has no connection ID.
    let retry = bytes("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let mut forged = retry.clone();
    forged[20] ^= 1;
    talk.wait(1).send(false, &forged);
    talk.wait(1).send(false, &retry);
    talk.original = id("f067a5502a4262b5");
    let again = talk.client_initial(1, &client_initial().1[..245]);
    talk.wait(50).send(true, &again);
    let answer = talk.server_initial(0, &ack(1));
    talk.wait(1).send(false, &answer);
    let record = talk.connection();
    assert_eq!((record.retries, record.undecrypted_packets, record.server_rtt_ns), (1, 1, Some(MS)));
    assert_eq!(record.server_name.as_deref(), Some(&b"example.com"[..]));

    let mut talk = Talk::new(VERSION_2);
    let mut greased = talk.client_initial(0, &[]);
    greased[1..5].copy_from_slice(&[0x1A, 0x2A, 0x3A, 0x4A]);
    talk.send(true, &greased);
    let offer =
        [&[0x80, 0, 0, 0, 0, 4][..], &bytes("c1c2c3c4"), &[8], &bytes("8394c8f03e515708"), &[0, 0, 0, 1]].concat();
    talk.wait(1).send(false, &offer);
    assert_eq!(talk.watch.live().counts.quic, 2);
    let record = talk.connection();
    assert_eq!((record.version, record.version_negotiations), (0x1A2A_3A4A, 1));
}

#[test]
fn client_behind_a_new_address_is_followed_by_its_connection_id() {
    let mut talk = Talk::new(VERSION_1);
    talk.handshake();
    talk.client = ([198, 19, 0, 9], 50_000);
    talk.wait(1_000).send_short(true, true);
    talk.wait(1).send_short(false, true);
    // The same connection ID to another server is another connection's.
    let stray = packet(talk.client, ([198, 18, 0, 2], 443), &talk.short(true, true));
    talk.watch.handle_packet(Timestamp::from_nanos(talk.at), LinkType::RawIp, &stray, stray.len() as u32);
    assert_eq!(talk.watch.live().counts.other, 1);
    let record = talk.connection();
    assert_eq!((record.migrations, record.client.to_string()), (1, "198.19.0.1:40000".into()));
    assert_eq!(record.migrated_client.map(|client| client.to_string()), Some("198.19.0.9:50000".into()));
    assert_eq!((record.up.one_rtt_packets, record.down.one_rtt_packets), (1, 1));
}

#[test]
fn spin_bit_gives_the_round_trip_over_the_life() {
    let mut talk = Talk::new(VERSION_1);
    talk.handshake();
    for packet in 0..1_000u64 {
        let spin = packet / 51 % 2 == 1;
        talk.wait(1).send_short(true, spin);
    }
    let record = talk.connection();
    let RttSummary { count, min_ns, max_ns, .. } = record.up.spin_rtt;
    assert_eq!((count, min_ns, max_ns), (18, 51 * MS, 51 * MS));
    assert_eq!(record.down.spin_rtt.count, 0);
}

#[test]
fn connections_end_by_close_by_their_timeout_and_by_the_next_one() {
    let mut talk = Talk::new(VERSION_1);
    talk.handshake();
    let close = talk.client_initial(2, &[0x1C, 0x41, 0x28, 0, 0]);
    talk.wait(1).send(true, &close);
    talk.watch.handle_time(Timestamp::from_nanos(talk.at + 10_000 * MS));
    let mut records = Vec::new();
    talk.watch.take_quic_connections(&mut records);
    assert_eq!((records.len(), records[0].end, records[0].close_error), (1, RecordEnd::Closed, Some(0x128)));

    // Announced: 30 s.
    let mut talk = Talk::new(VERSION_1);
    talk.handshake();
    for (seconds, closed) in [(29, 0), (35, 1)] {
        talk.watch.handle_time(Timestamp::from_nanos(talk.at + seconds * 1_000 * MS));
        let mut records = Vec::new();
        talk.watch.take_quic_connections(&mut records);
        assert_eq!(records.len(), closed, "after {seconds} s");
        assert!(records.iter().all(|record| record.end == RecordEnd::Idle));
    }

    let mut talk = Talk::new(VERSION_1);
    talk.handshake();
    (talk.original, talk.client_id, talk.server_id) = (id("0102030405060708"), id("d1d2d3d4"), id("1111111111111111"));
    talk.wait(5).handshake();
    let records = talk.finish();
    assert_eq!(records.iter().map(|record| record.end).collect::<Vec<_>>(), [RecordEnd::Reused, RecordEnd::CaptureEnd]);
    assert_eq!(records.iter().map(|record| record.connection).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn number_of_connections_is_bounded() {
    let limits = Limits { flows: 4, held_in_all: 40_000, ..Limits::default() };
    let mut talk =
        Talk::with(VERSION_1, WatchSpec { limits, capture_point: CapturePoint::AtClient, ..WatchSpec::default() });
    let first = talk.client_initial(0, &client_initial().1[..245]);
    for port in 0..20 {
        talk.client.1 = 30_000 + port;
        talk.send(true, &first);
        assert!(talk.watch.live().flows_held <= 4 && talk.watch.live().bytes_held <= 40_000);
    }
    let records = talk.finish();
    assert_eq!(records.len(), 20);
    assert_eq!(records.iter().filter(|record| record.end == RecordEnd::Evicted).count(), 16);
}

proptest! {
    /// Damaged, cut and repeated datagrams neither panic nor hold memory, and every one is counted once.
    #[test]
    fn changed_datagrams_are_survived(
        script in prop::collection::vec((0usize..6, any::<u16>(), any::<u8>(), 20usize..1400, any::<bool>()), 0..40),
    ) {
        let mut talk = Talk::new(VERSION_1);
        let hello = client_initial().1;
        let datagrams = [
            talk.client_initial(0, &hello[..245]),
            talk.server_initial(0, &[&ack(0)[..], b"\x06\x00\x04\x02\x00\x00\x00"].concat()),
            talk.client_initial(1, &ack(0)),
            bytes("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba"),
            talk.short(true, true),
            talk.short(false, false),
        ];
        for (which, at, value, snap, is_up) in &script {
            let mut datagram = datagrams[*which].clone();
            let at = usize::from(*at) % (4 * datagram.len());
            if let Some(byte) = datagram.get_mut(at) { *byte = *value; }
            talk.wait(7).send_cut(*is_up, &datagram, *snap);
        }
        let counts = talk.watch.live().counts;
        prop_assert_eq!(counts.packets, counts.quic + counts.other + counts.malformed);
        let records = talk.finish();
        let seen: u64 = records.iter().map(|record| record.up.datagrams + record.down.datagrams).sum();
        prop_assert_eq!(seen, counts.quic);
        prop_assert_eq!(records.len() as u64, counts.quic_connections);
    }
}
