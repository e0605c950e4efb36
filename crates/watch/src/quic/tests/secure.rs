//! Connections that are decrypted with a key log.

use std::sync::Arc;

use super::*;
use crate::crypto::{Secret, Suite};
use crate::quic::protection::labels;
use crate::{KeyLog, Limits};
use schema::{Direction, QuicFrame, QuicPacket, QuicPacketKind};

/// A key log with secrets for the client of the standard's example.
fn key_log() -> Arc<KeyLog> {
    let random = "ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c";
    let line = |label: &str, digits: &str| format!("{label} {random} {}\n", digits.repeat(32));
    let text = [
        line("CLIENT_EARLY_TRAFFIC_SECRET", "11"),
        line("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "22"),
        line("SERVER_HANDSHAKE_TRAFFIC_SECRET", "33"),
        line("CLIENT_TRAFFIC_SECRET_0", "44"),
        line("SERVER_TRAFFIC_SECRET_0", "55"),
    ]
    .concat();
    Arc::new(KeyLog::parse(text.as_bytes()).unwrap())
}

/// The secret of a line of [`key_log`].
fn secret(digits: u8) -> Secret {
    Secret::new(Suite::Aes128, &[digits; 32]).unwrap()
}

impl Talk {
    /// A handshake of a server that chooses `protocol`, with the secrets in the key log; early data before it.
    fn secure_handshake(&mut self, protocol: &[u8], early: &[u8]) {
        let (_, hello) = client_initial();
        let first = self.client_initial(0, &hello[..245]);
        self.send(true, &first);
        if !early.is_empty() {
            let protection = Protection::new(self.version, &secret(0x11)).unwrap();
            let packet =
                long(&protection, self.initial_code() + 1, self.version, [self.original, self.client_id], 0, early);
            self.wait(1).send(true, &packet);
        }
        let body = [&[3, 3][..], &[9; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
        let hello = [&[2, 0, 0, body.len() as u8][..], &body].concat();
        let answer = self.server_initial(0, &[&ack(0)[..], &[6, 0, hello.len() as u8], &hello].concat());
        let list = [&[0, protocol.len() as u8 + 1, protocol.len() as u8][..], protocol].concat();
        let extension = [&[0, 16, 0, list.len() as u8][..], &list].concat();
        let extensions = [&[8, 0, 0, extension.len() as u8 + 2, 0, extension.len() as u8][..], &extension].concat();
        let crypto = [&[6, 0, extensions.len() as u8][..], &extensions].concat();
        let protection = Protection::new(self.version, &secret(0x33)).unwrap();
        let code = self.initial_code() + 2;
        let handshake = long(&protection, code, self.version, [self.client_id, self.server_id], 0, &crypto);
        self.wait(1).send(false, &[answer, handshake].concat());
    }

    /// A 1-RTT packet, protected with this secret in this key phase.
    fn send_data(&mut self, is_up: bool, secret: &Secret, mask: &Secret, phase: bool, number: u32, frames: &[u8]) {
        let id = if is_up { self.server_id } else { self.client_id };
        let mut header = vec![0x43 | u8::from(phase) << 2];
        header.extend(id.as_bytes());
        header.extend(number.to_be_bytes());
        let mut protection = Protection::new(self.version, mask).unwrap();
        protection.keys = Protection::updated_keys(self.version, secret).unwrap();
        let packet = protect(&protection, &header, 1 + id.len(), number.into(), frames);
        self.send(is_up, &packet);
    }
}

/// A STREAM frame with an end.
fn stream(id: u8, bytes: &[u8]) -> Vec<u8> {
    [&[0x0B, id, bytes.len() as u8][..], bytes].concat()
}

/// Heads of a request for this path, and of a response.
fn get(path: &str) -> Vec<u8> {
    [&[1, 6 + path.len() as u8, 0, 0, 0xD1, 0xD7, 0x51, path.len() as u8], path.as_bytes()].concat()
}
const OK: [u8; 5] = [1, 3, 0, 0, 0xD9];

#[test]
fn http3_is_read_with_a_key_log_through_key_updates_and_early_data() {
    for version in [VERSION_1, VERSION_2] {
        let mut talk = Talk::with(version, WatchSpec { key_log: Some(key_log()), ..WatchSpec::default() });
        // Version 2 has other codes for the types of packets.
        talk.secure_handshake(b"h3", &stream(0, &get("/early")));
        let early_at = talk.at - MS;
        let (up, down) = (secret(0x44), secret(0x55));
        talk.wait(50).send_data(true, &up, &up, false, 1, &stream(4, &get("/a")));
        talk.wait(1).send_data(false, &down, &down, false, 0, &[stream(4, &OK), stream(0, &OK)].concat());
        let label = labels(version).update;
        let (next_up, next_down) = (up.next(label), down.next(label));
        talk.wait(1).send_data(true, &next_up, &up, true, 2, &stream(8, &get("/b")));
        // A packet from before the update arrives late.
        talk.wait(1).send_data(true, &up, &up, false, 3, &stream(12, &get("/c")));
        talk.wait(1).send_data(false, &next_down, &down, true, 1, &[stream(8, &OK), stream(12, &OK)].concat());
        let last = next_up.next(label);
        talk.wait(1).send_data(
            true,
            &last,
            &up,
            false,
            4,
            &[&stream(16, &get("/d"))[..], &[0x1D, 0x41, 0, 0]].concat(),
        );
        talk.wait(1).send_data(true, &secret(0x66), &up, false, 5, &stream(20, &get("/unknown")));
        let mut requests = Vec::new();
        talk.watch.finish(Timestamp::from_nanos(talk.at));
        talk.watch.take_requests(&mut requests);
        let seen: Vec<_> = requests
            .iter()
            .map(|request| {
                let path = String::from_utf8_lossy(request.path.as_deref().unwrap_or(b"?")).into_owned();
                (path, request.status, request.complete, request.http_version)
            })
            .collect();
        let complete = |path: &str| (path.to_owned(), Some(200), true, 3);
        let expected = ["/a", "/early", "/b", "/c"].map(complete);
        assert_eq!(seen[..4], expected, "version {version:x}");
        assert_eq!(seen[4], ("/d".to_owned(), None, false, 3));
        assert_eq!(requests[1].request_first_at, Some(Timestamp::from_nanos(early_at)));
        let record = talk.connection();
        assert_eq!((record.requests, record.undecrypted_packets, record.close_error), (5, 1, Some(0x100)));
        assert_eq!(record.end, RecordEnd::Closed);
    }
}

#[test]
fn other_protocols_and_unknown_secrets_give_no_requests() {
    let mut talk = Talk::with(VERSION_1, WatchSpec { key_log: Some(key_log()), ..WatchSpec::default() });
    talk.secure_handshake(b"hq", &[]);
    let up = secret(0x44);
    talk.send_data(true, &up, &up, false, 1, &stream(4, &get("/a")));
    assert_eq!(talk.connection().requests, 0);
    let log = format!("CLIENT_TRAFFIC_SECRET_0 {} {}\n", "00".repeat(32), "11".repeat(32));
    let log = Arc::new(KeyLog::parse(log.as_bytes()).unwrap());
    let mut talk = Talk::with(VERSION_1, WatchSpec { key_log: Some(log), ..WatchSpec::default() });
    talk.secure_handshake(b"h3", &[]);
    talk.watch.finish(Timestamp::from_nanos(talk.at));
    assert_eq!(talk.watch.reading().undecrypted_tls, 1);
}

impl Talk {
    /// Reports the secrets of [`key_log`] whose labels begin so.
    fn report(&mut self, label: &str) {
        let random = "ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c";
        let random: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&random[2 * at..2 * at + 2], 16).unwrap()).collect();
        let random = random.try_into().unwrap();
        for (name, byte) in [
            ("CLIENT_EARLY_TRAFFIC_SECRET", 0x11),
            ("CLIENT_HANDSHAKE_TRAFFIC_SECRET", 0x22),
            ("SERVER_HANDSHAKE_TRAFFIC_SECRET", 0x33),
            ("CLIENT_TRAFFIC_SECRET_0", 0x44),
            ("SERVER_TRAFFIC_SECRET_0", 0x55),
        ] {
            if name.starts_with(label) {
                self.watch.report_secret(name, &random, &[byte; 32]);
            }
        }
    }
}

/// The client has the secrets half a round trip after the capture has the server's first packets.
#[test]
fn secrets_reported_before_the_clients_next_packet_decrypt_what_came_before() {
    let spec = WatchSpec { secrets_are_reported: true, ..WatchSpec::default() };
    let (up, down) = (secret(0x44), secret(0x55));
    let mut talk = Talk::with(VERSION_1, spec.clone());
    talk.report("CLIENT_EARLY");
    talk.secure_handshake(b"h3", &stream(0, &get("/early")));
    let early_at = talk.at - MS;
    // The response to early data, before the client's handshake is finished.
    talk.wait(1).send_data(false, &down, &down, false, 0, &stream(0, &OK));
    let answered_at = talk.at;
    talk.report("CLIENT");
    talk.report("SERVER");
    talk.wait(50).send_data(true, &up, &up, false, 1, &stream(4, &get("/a")));
    talk.wait(1).send_data(false, &down, &down, false, 1, &stream(4, &OK));
    talk.watch.finish(Timestamp::from_nanos(talk.at));
    let mut requests = Vec::new();
    talk.watch.take_requests(&mut requests);
    let seen: Vec<_> = requests.iter().map(|request| (request.path.as_deref(), request.status)).collect();
    assert_eq!(seen, [(Some(&b"/early"[..]), Some(200)), (Some(&b"/a"[..]), Some(200))]);
    let times = (requests[0].request_first_at, requests[0].response_last_at);
    assert_eq!(times, (Some(Timestamp::from_nanos(early_at)), Some(Timestamp::from_nanos(answered_at))));
    assert_eq!((talk.watch.reading().undecrypted_tls, talk.watch.live().bytes_held), (0, 0));

    // Lost secrets are counted, a handshake that the client gave up is not.
    for (labels, undecrypted) in [(&[][..], 1), (&["CLIENT_HANDSHAKE"], 0)] {
        let mut talk = Talk::with(VERSION_1, spec.clone());
        talk.secure_handshake(b"h3", &[]);
        labels.iter().for_each(|label| talk.report(label));
        talk.wait(50).send_data(true, &up, &up, false, 1, &stream(4, &get("/a")));
        talk.watch.finish(Timestamp::from_nanos(talk.at));
        assert_eq!((talk.watch.reading().undecrypted_tls, talk.watch.live().bytes_held), (undecrypted, 0));
    }
}

/// Without secrets, held packets stay within the limits.
#[test]
fn packets_that_wait_for_secrets_are_bounded() {
    let limits = Limits { held_per_direction: 20_000, ..Limits::default() };
    let spec = WatchSpec { secrets_are_reported: true, limits, ..WatchSpec::default() };
    let mut talk = Talk::with(VERSION_1, spec);
    talk.secure_handshake(b"h3", &[]);
    let down = secret(0x55);
    for number in 0..100 {
        talk.wait(1).send_data(false, &down, &down, false, number, &stream(0, &[0; 200]));
    }
    let held = talk.watch.live().bytes_held;
    assert!((1..40_000).contains(&held), "{held}");
}

#[test]
fn client_that_migrates_on_purpose_is_followed_with_a_key_log() {
    let mut talk = Talk::with(VERSION_1, WatchSpec { key_log: Some(key_log()), ..WatchSpec::default() });
    talk.secure_handshake(b"h3", &[]);
    let (up, down) = (secret(0x44), secret(0x55));
    let new = [&[0x18, 1, 0, 8][..], &[0xAB; 8], &[7; 16]].concat();
    talk.send_data(false, &down, &down, false, 0, &new);
    talk.server_id = id("abababababababab");
    talk.client = ([198, 19, 0, 7], 41_000);
    talk.wait(9).send_data(true, &up, &up, false, 1, &stream(4, &get("/a")));
    let record = talk.connection();
    assert_eq!((record.migrations, record.requests), (1, 1));
}

/// Logged packets as direction, type, number and, of streams, their bytes.
fn logged(talk: &mut Talk) -> Vec<QuicPacket> {
    let mut packets = Vec::new();
    talk.watch.take_quic_packets(&mut packets);
    packets
}

#[test]
fn decrypted_packets_are_reported_with_numbers_and_frames() {
    let spec = WatchSpec { key_log: Some(key_log()), quic_packets: true, ..WatchSpec::default() };
    let mut talk = Talk::with(VERSION_1, spec);
    talk.secure_handshake(b"h3", &[]);
    let (up, down) = (secret(0x44), secret(0x55));
    let windows = [&[0x10, 0x41, 0][..], &[0x11, 0, 0x42, 0], &[2, 3, 5, 0, 1]].concat();
    talk.wait(50).send_data(true, &up, &up, false, 7, &[windows, stream(0, b"get")].concat());
    talk.wait(1).send_data(false, &down, &down, false, 9, &[2, 7, 0, 0, 0]);
    let packets = logged(&mut talk);
    let kinds: Vec<_> = packets.iter().map(|packet| (packet.direction, packet.kind, packet.number)).collect();
    let expected = [
        (Direction::Up, QuicPacketKind::Initial, 0),
        (Direction::Down, QuicPacketKind::Initial, 0),
        (Direction::Down, QuicPacketKind::Handshake, 0),
        (Direction::Up, QuicPacketKind::Data, 7),
        (Direction::Down, QuicPacketKind::Data, 9),
    ];
    assert_eq!(kinds, expected);
    assert!(matches!(packets[0].frames.last(), Some(QuicFrame::ClientParameters { ack_delay_exponent: 3, .. })));
    let expected = [
        QuicFrame::MaxData { bytes: 256 },
        QuicFrame::MaxStreamData { id: 0, bytes: 512 },
        QuicFrame::Ack { ranges: vec![(2, 3)], delay: 5 },
        QuicFrame::Stream { id: 0, offset: 0, length: 3, ends: true },
    ];
    assert_eq!((packets[3].frames.as_slice(), packets[3].is_ack_eliciting), (&expected[..], true));
    assert!(!packets[4].is_ack_eliciting);
    assert_eq!((logged(&mut talk).len(), talk.watch.quic_packets_lost()), (0, 0));
}

#[test]
fn packets_before_an_overtaken_server_hello_are_reported() {
    let spec = WatchSpec { key_log: Some(key_log()), quic_packets: true, ..WatchSpec::default() };
    let mut talk = Talk::with(VERSION_1, spec);
    let (_, hello) = client_initial();
    let first = talk.client_initial(0, &hello[..245]);
    talk.send(true, &first);
    // The server's connection ID is in its first packet, of a type that secrets decrypt.
    let protection = Protection::new(talk.version, &secret(0x33)).unwrap();
    let ids = [talk.client_id, talk.server_id];
    let handshake = long(&protection, talk.initial_code() + 2, talk.version, ids, 1, &[1]);
    talk.wait(1).send(false, &handshake);
    let down = secret(0x55);
    talk.wait(1).send_data(false, &down, &down, false, 0, &[1]);
    assert_eq!(logged(&mut talk).len(), 1);
    let body = [&[3, 3][..], &[9; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    let hello = [&[2, 0, 0, body.len() as u8][..], &body].concat();
    let answer = talk.server_initial(0, &[&ack(0)[..], &[6, 0, hello.len() as u8], &hello].concat());
    talk.wait(1).send(false, &answer);
    talk.wait(1).send_data(false, &down, &down, false, 1, &[1]);
    let packets = logged(&mut talk);
    let seen: Vec<_> = packets.iter().map(|packet| (packet.at.as_nanos() / MS, packet.kind, packet.number)).collect();
    let start = seen[1].0;
    let expected = [
        (start + 2, QuicPacketKind::Initial, 0),
        (start, QuicPacketKind::Handshake, 1),
        (start + 1, QuicPacketKind::Data, 0),
        (start + 3, QuicPacketKind::Data, 1),
    ];
    assert_eq!(seen, expected);
}
