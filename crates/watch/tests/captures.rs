//! Captures that differ from the wire: acknowledgements before their segments, packets captured twice, clocks that
//! jump, tunnels.

#[path = "support/packets.rs"]
mod support;

use std::time::Duration;

use support::*;
use units::Timestamp;
use watch::{Reading, Watch, WatchSpec};
use wire::link::LinkType;
use wire::tunnel::{Tunnel, Unread};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x.org\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const MILLI: u64 = 1_000_000;

/// A packet to be written to a file: its time in ns, and its bytes as raw IP.
type Sent = (u64, Vec<u8>);

/// A connection with a request: SYN at 1000 ms, RTT 48 ms to the client, the response 20 ms after the request.
fn visit() -> Vec<Sent> {
    let mut talk = Talk::new();
    talk.open()
        .send(CLIENT, ACK | PSH, GET)
        .wait(5)
        .send(SERVER, ACK, b"")
        .wait(15)
        .send_data(SERVER, OK)
        .wait(10)
        .close();
    numbered(&talk.packets)
}

/// The packets with an IP identification each, numbered per connection as by Linux.
fn numbered(packets: &[(u64, Packet)]) -> Vec<Sent> {
    let sent = packets.iter().zip(1u16..).map(|((at, packet), number)| (at * MILLI, with_id(packet.bytes(), number)));
    sent.collect()
}

fn with_id(mut bytes: Vec<u8>, id: u16) -> Vec<u8> {
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    bytes
}

/// The same TCP segment over IPv6, which has no identification.
fn as_v6(bytes: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((bytes.len() - 20) as u16).to_be_bytes());
    packet.extend([6, 64]);
    for address in [&bytes[12..16], &bytes[16..20]] {
        packet.extend([0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(address);
    }
    packet.extend(&bytes[20..]);
    packet
}

fn watched(sent: &[Sent], spec: WatchSpec) -> (Outcome, Reading) {
    let mut watch = Watch::new(spec);
    for (at, bytes) in sent {
        watch.handle_packet(Timestamp::from_nanos(*at), LinkType::RawIp, bytes, bytes.len() as u32);
    }
    let last = sent.iter().map(|(at, _)| *at).max().unwrap_or(0);
    watch.finish(Timestamp::from_nanos(last));
    let reading = watch.reading().clone();
    (finish(watch, Timestamp::from_nanos(last)), reading)
}

fn file() -> WatchSpec {
    WatchSpec { duplicates: true, disorder: Duration::ZERO, ..WatchSpec::default() }
}

#[test]
fn acknowledgement_before_its_segment_waits_for_it() {
    let straight = watched(&visit(), file()).0;
    for early_us in [1, 20, 5_000, 40_000] {
        // The server's pure acknowledgement of the request is stamped before it; so is the client's of the response.
        for (segment, acknowledgement) in [(3, 4), (5, 6)] {
            let mut sent = visit();
            sent[acknowledgement].0 = sent[segment].0 - early_us * 1000;
            sent.sort_by_key(|(at, _)| *at);
            let (outcome, reading) = watched(&sent, file());
            assert_eq!(outcome.requests_seen(), ["GET /a 200 exact"], "{early_us} us before");
            let connection = outcome.connection();
            for sent in [&connection.up, &connection.down] {
                assert_eq!((sent.missing_bytes, sent.out_of_order_packets, sent.retransmitted_packets), (0, 0, 0));
                assert!(sent.data_rtt.count == 0 || sent.data_rtt.min_ns > 0, "a negative time is no sample");
            }
            assert_eq!(connection.handshake_rtt_ns, straight.connection().handshake_rtt_ns);
            assert_eq!(reading.early_acks.count, 1, "{reading:?}");
            assert_eq!(reading.early_acks.most_ns, early_us * 1000);
        }
    }
}

#[test]
fn segment_that_never_arrives_counts_as_missing_after_the_wait() {
    let mut sent = visit();
    sent.remove(3);
    let (outcome, reading) = watched(&sent, file());
    assert_eq!(outcome.connection().up.missing_bytes, GET.len() as u64);
    assert_eq!(outcome.requests.iter().filter(|request| request.status == Some(200)).count(), 1);
    assert_eq!(reading.early_acks.count, 0);
    // One direction alone: there is nothing to wait for, and the wait loses nothing.
    let up: Vec<Sent> = visit().into_iter().filter(|(_, bytes)| bytes[12..16] == [198, 19, 0, 1]).collect();
    let (outcome, _) = watched(&up, file());
    assert_eq!(outcome.connection().up.packets, up.len() as u64);
    assert_eq!(outcome.requests.len(), 1);
}

#[test]
fn handshake_out_of_order_has_no_rtt() {
    let mut sent = visit();
    // SYN-ACK before SYN; ACK before SYN-ACK.
    sent[1].0 = sent[0].0 - 20_000;
    sent.swap(0, 1);
    let (outcome, reading) = watched(&sent, file());
    assert_eq!(
        (outcome.connection().server_rtt_ns, outcome.requests_seen()),
        (None, vec!["GET /a 200 exact".to_owned()])
    );
    assert_eq!((reading.early_acks.count, reading.early_acks.most_ns), (1, 20_000));
    let mut sent = visit();
    sent[2].0 = sent[1].0 - 20_000;
    sent.swap(1, 2);
    let (outcome, reading) = watched(&sent, file());
    assert_eq!(
        (outcome.connection().handshake_rtt_ns, outcome.requests_seen()),
        (None, vec!["GET /a 200 exact".to_owned()])
    );
    assert_eq!((reading.early_acks.count, reading.early_acks.most_ns), (1, 20_000));
}

#[test]
fn packets_captured_twice_are_counted_once() {
    let straight = watched(&visit(), file()).0;
    let straight_v6: Vec<Sent> = visit().into_iter().map(|(at, bytes)| (at, as_v6(&bytes))).collect();
    let straight_v6 = watched(&straight_v6, file()).0;
    for apart_us in [0u64, 20, 1_000, 4_000] {
        for v6 in [false, true] {
            let mut sent: Vec<Sent> = Vec::new();
            for (at, bytes) in visit() {
                let mut bytes = if v6 { as_v6(&bytes) } else { bytes };
                sent.push((at, bytes.clone()));
                // The other interface is one hop further.
                bytes[if v6 { 7 } else { 8 }] -= 1;
                sent.push((at + apart_us * 1000, bytes));
            }
            sent.sort_by_key(|(at, _)| *at);
            let copies = sent.len() as u64 / 2;
            let (outcome, reading) = watched(&sent, file());
            let straight = if v6 { &straight_v6 } else { &straight };
            assert_eq!(reading.duplicates, copies, "{apart_us} us apart, IPv6 {v6}");
            assert_eq!(outcome.connections, straight.connections, "{apart_us} us apart, IPv6 {v6}");
            assert_eq!(outcome.requests, straight.requests);
            let packets =
                |outcome: &Outcome| outcome.seconds.iter().map(|row| (row.packets, row.bytes)).collect::<Vec<_>>();
            assert_eq!(packets(&outcome), packets(straight), "copies are excluded from every row");
        }
    }
    // A run's own capture does not search for copies.
    let twice: Vec<Sent> = visit().into_iter().flat_map(|sent| [sent.clone(), sent]).collect();
    let (outcome, reading) = watched(&twice, WatchSpec::default());
    assert_eq!((reading.duplicates, outcome.connection().up.retransmitted_packets), (0, 1));
}

#[test]
fn retransmission_is_not_a_copy() {
    let retransmitted = |again: fn(&Sent) -> Sent| {
        let mut sent = visit();
        sent.push(again(&sent[5]));
        sent.sort_by_key(|(at, _)| *at);
        let (outcome, reading) = watched(&sent, file());
        (outcome.connection().down.retransmitted_packets, reading.duplicates)
    };
    // Soon, as a separate packet; late, by a sender that writes one identification into all of its packets.
    assert_eq!(retransmitted(|(at, bytes)| (at + 1000, with_id(bytes.clone(), 999))), (1, 0));
    assert_eq!(retransmitted(|(at, bytes)| (at + 5 * MILLI + 1, bytes.clone())), (1, 0));
    assert_eq!(retransmitted(|(at, bytes)| (at + 5 * MILLI, bytes.clone())), (0, 1));
}

#[test]
fn sack_identifies_a_retransmission_without_ip_identification() {
    for is_requested in [false, true] {
        let mut talk = Talk::new();
        talk.open().send(SERVER, ACK, &[7; 1000]).send(SERVER, ACK, &[8; 1000]);
        let again = talk.packets[3].1.clone();
        if is_requested {
            let mut sack = talk.make(CLIENT, ACK, b"");
            sack.acknowledgement = again.sequence;
            let edge = again.sequence + 1000;
            sack.options = [&[1, 1, 5, 10][..], &edge.to_be_bytes(), &(edge + 1000).to_be_bytes()].concat();
            talk.packets.push((talk.at + 1, sack));
        }
        talk.packets.push((talk.at + 2, again));
        talk.wait(10).send(CLIENT, ACK, b"").close();
        let sent: Vec<Sent> = talk.packets.iter().map(|(at, packet)| (at * MILLI, as_v6(&packet.bytes()))).collect();
        let (outcome, reading) = watched(&sent, file());
        let found = (outcome.connection().down.retransmitted_packets, reading.duplicates);
        assert_eq!(found, if is_requested { (1, 0) } else { (0, 1) }, "requested: {is_requested}");
    }
}

/// A kernel without the socket responds to each packet in transit, with the same bytes each time.
#[test]
fn repeated_resets_without_ip_identification_are_not_copies() {
    let mut talk = Talk::new();
    talk.open().send(CLIENT, ACK | PSH, GET);
    let reset = talk.make(SERVER, RST, b"");
    for after in [1, 2] {
        talk.packets.push((talk.at + after, reset.clone()));
    }
    let sent: Vec<Sent> = talk.packets.iter().map(|(at, packet)| (at * MILLI, as_v6(&packet.bytes()))).collect();
    let (outcome, reading) = watched(&sent, file());
    assert_eq!(reading.duplicates, 0);
    assert_eq!(outcome.connection().last_at.as_nanos(), sent.last().unwrap().0);
}

#[test]
fn clock_jump_is_detected_within_a_connection() {
    let whole = visit();
    for cut in 1..whole.len() - 1 {
        let mut sent = whole.clone();
        for (at, _) in &mut sent[cut..] {
            *at += 3_600_000 * MILLI;
        }
        let (outcome, reading) = watched(&sent, file());
        assert_eq!(outcome.connections.len(), 1, "one connection, before and after (packet {cut})");
        assert_eq!(reading.jumps.count, 1, "before packet {cut}: {reading:?}");
        assert_eq!(reading.jumps.first_packet, cut as u64 + 1);
        assert!(reading.jumps.most_ns >= 3_600_000 * MILLI);
    }
    // No packet follows after the end.
    let mut sent = whole.clone();
    sent.extend(whole.iter().map(|(at, bytes)| {
        let mut bytes = bytes.clone();
        bytes[15] = 9;
        (at + 3_600_000 * MILLI, bytes)
    }));
    assert_eq!(watched(&sent[..], file()).1.jumps.count, 0);
}

/// The senders' own clocks distinguish an hour of silence from a clock that was set.
#[test]
fn tcp_timestamps_distinguish_silence_from_a_clock_jump() {
    for (ticks, jumps) in [(3_600_000u32, 0), (5, 1)] {
        let mut talk = Talk::new();
        talk.open();
        let stamped = |talk: &mut Talk, from_client: bool, stamp: u32| {
            let mut packet = talk.make(from_client, ACK, b"x");
            packet.options = [&[1, 1, 8, 10][..], &stamp.to_be_bytes(), &[0, 0, 0, 1]].concat();
            let end = if from_client { &mut talk.client } else { &mut talk.server };
            end.next += 1;
            talk.packets.push((talk.at, packet));
        };
        stamped(&mut talk, CLIENT, 1000);
        talk.wait(5).send(SERVER, ACK, b"").wait(3_600_000);
        stamped(&mut talk, CLIENT, 1000 + ticks);
        talk.wait(5).send(SERVER, ACK, b"").close();
        let reading = watched(&numbered(&talk.packets), file()).1;
        assert_eq!(reading.jumps.count, jumps, "{ticks} ticks");
    }
}

#[test]
fn packets_out_of_time_order_are_counted_beyond_the_limit() {
    let mut sent = visit();
    for (at, _) in &mut sent[..5] {
        *at += 2_000 * MILLI;
    }
    let late = watched(&sent, file()).1.late;
    assert_eq!((late.count, late.first_packet), (sent.len() as u64 - 5, 6));
    assert!(late.most_ns > 1_900 * MILLI);
    // In a live capture, packets of two queues may be slightly out of order.
    let mut sent = visit();
    sent[5].0 -= 90 * MILLI;
    assert_eq!(watched(&sent, WatchSpec::default()).1.late.count, 0);
    assert_eq!(watched(&sent, file()).1.late.count, 1);
}

#[test]
fn tunnelled_packets_give_the_same_records() {
    let straight = watched(&visit(), file()).0;
    let vxlan = |bytes: &[u8]| {
        let inner = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], bytes].concat();
        let mut udp = vec![0xC0, 1, 0x12, 0xB5];
        udp.extend((16 + inner.len() as u16).to_be_bytes());
        udp.extend([0, 0, 8, 0, 0, 0, 0, 0, 5, 0]);
        udp.extend(&inner);
        let mut outer = vec![0x45, 0];
        outer.extend((20 + udp.len() as u16).to_be_bytes());
        outer.extend([0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        [outer, udp].concat()
    };
    let mut sent: Vec<Sent> = visit().into_iter().map(|(at, bytes)| (at, vxlan(&bytes))).collect();
    let (outcome, reading) = watched(&sent, file());
    assert_eq!((outcome.connections, outcome.requests), (straight.connections, straight.requests));
    assert_eq!(reading.tunnels().collect::<Vec<_>>(), [(Tunnel::Vxlan, sent.len() as u64)]);
    assert_eq!(reading.unread(), []);
    // Captured inside the tunnel and outside, each packet appears twice.
    sent.extend(visit());
    sent.sort_by_key(|(at, _)| *at);
    assert_eq!(watched(&sent, file()).1.duplicates, sent.len() as u64 / 2);
}

#[test]
fn unread_protocols_are_named_and_truncated_packets_counted() {
    let mut watch = Watch::new(file());
    let esp = [&[0x45, 0, 0, 60, 0, 1, 0, 0, 64, 50, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..], &[0; 40]].concat();
    let arp = [&[0xFF; 12][..], &[8, 6], &[0; 28]].concat();
    for at in 0..3 {
        watch.handle_packet(millis(at), LinkType::RawIp, &esp, 60);
    }
    watch.handle_packet(millis(3), LinkType::Ethernet, &arp, 42);
    watch.handle_unknown(millis(4), 147, 100);
    let (_, syn) = &visit()[0];
    watch.handle_packet(millis(5), LinkType::RawIp, &syn[..30], syn.len() as u32);
    let reading = watch.reading();
    let unread: Vec<_> = reading.unread().into_iter().map(|(what, packets)| (what.unwrap(), packets)).collect();
    assert_eq!(unread, [(Unread::Protocol(50), 3), (Unread::EtherType(0x0806), 1), (Unread::Link(147), 1)]);
    let counts = watch.live().counts;
    assert_eq!((counts.packets, counts.other, counts.malformed, reading.cut, counts.tcp), (6, 5, 1, 1, 0));
}

#[test]
fn connection_without_its_first_data_is_counted_as_unread() {
    let mut talk = Talk::new();
    talk.open().send_data(CLIENT, GET).send_data(SERVER, OK).close();
    let mut watch = Watch::new(WatchSpec::default());
    talk.feed(&mut watch, 40);
    watch.finish(millis(talk.at));
    assert_eq!(watch.reading().unread_streams, 1);
    assert_eq!(finish(watch, millis(talk.at)).requests.len(), 0);
    let mut watch = Watch::new(WatchSpec::default());
    talk.feed(&mut watch, 48);
    assert_eq!(watch.reading().unread_streams, 0);
}

#[test]
fn request_after_a_proxy_header_or_blank_line_is_parsed() {
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n";
    let binary = [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x21, 0x11, 0, 12], &[7; 12]].concat();
    let long = [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x21, 0x11, 2, 0], &[7; 512]].concat();
    for (before, proxied) in
        [(&line[..], 1), (&binary, 1), (&long, 1), (b"\r\n", 0), (b"\n\n", 0), (b"\r\n\r\n\r\n", 0), (b"", 0)]
    {
        let all = [before, GET].concat();
        // In one segment, cut at any byte, and byte by byte.
        for cut in 0..=all.len() {
            let mut talk = Talk::new();
            talk.open();
            let (first, rest) = all.split_at(cut);
            for part in [first, rest] {
                if !part.is_empty() {
                    talk.send_data(CLIENT, part);
                }
            }
            talk.send_data(SERVER, OK).send_data(CLIENT, GET).send_data(SERVER, OK).close();
            let (outcome, reading) = watched(&numbered(&talk.packets), file());
            assert_eq!(outcome.requests_seen(), ["GET /a 200 exact", "GET /a 200 exact"], "{before:?} cut at {cut}");
            assert_eq!(reading.proxied, proxied);
        }
        let mut talk = Talk::new();
        talk.open();
        for byte in &all {
            talk.send(CLIENT, ACK, &[*byte]);
        }
        talk.wait(5).send_data(SERVER, OK).close();
        assert_eq!(
            watched(&numbered(&talk.packets), file()).0.requests_seen(),
            ["GET /a 200 exact"],
            "{before:?} byte by byte"
        );
    }
    // A header without end, and bytes that only begin like one.
    for other in [&b"PROXY without end"[..], b"\r\n\r\n\0\r\nQUIT\n\x21", b"PROXY \r\nEHLO x\r\n"] {
        let mut talk = Talk::new();
        talk.open().send_data(CLIENT, other).send_data(SERVER, b"220 hello\r\n").close();
        assert_eq!(watched(&numbered(&talk.packets), file()).0.requests_seen(), [""; 0]);
    }
}
