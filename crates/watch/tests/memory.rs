//! Memory limits: two million connections pass through a table of a few thousand, and every one is recorded.

#[path = "support/packets.rs"]
mod support;

use schema::{ConnectionState, RecordEnd};
use support::*;
use units::Timestamp;
use watch::{Limits, Watch, WatchSpec};
use wire::link::LinkType;

/// A header of 40 bytes whose ends, numbers and flags are set in place.
fn patch(bytes: &mut [u8; 40], connection: u32, is_up: bool, sequence: u32, acknowledgement: u32, flags: u8) {
    let (client, port) = ((0xC613_0000u32 + connection / 50_000).to_be_bytes(), (10_000 + connection % 50_000) as u16);
    let (server, listens) = ([198, 18, 0, 1], 80u16);
    let ends = if is_up { [(client, port), (server, listens)] } else { [(server, listens), (client, port)] };
    for (at, (address, port)) in ends.into_iter().enumerate() {
        bytes[12 + 4 * at..16 + 4 * at].copy_from_slice(&address);
        bytes[20 + 2 * at..22 + 2 * at].copy_from_slice(&port.to_be_bytes());
    }
    bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
    bytes[28..32].copy_from_slice(&acknowledgement.to_be_bytes());
    bytes[33] = flags;
}

#[test]
fn two_million_connections_stay_within_the_memory_limit_and_are_recorded() {
    const CONNECTIONS: u32 = 2_000_000;
    let limits = Limits { flows: 4096, ..Limits::default() };
    let mut watch = Watch::new(WatchSpec { limits, ..WatchSpec::default() });
    let mut bytes = [0u8; 40];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    (bytes[32], bytes[34]) = (0x50, 1);
    let (mut records, mut closed, mut at, mut most) = (Vec::new(), 0u64, 0u64, 0);
    for connection in 0..CONNECTIONS {
        let packets = [
            (true, 0, 0, SYN),
            (false, 0, 1, SYN | ACK),
            (true, 1, 1, FIN | ACK),
            (false, 1, 2, FIN | ACK),
            (true, 2, 2, ACK),
        ];
        for (is_up, sequence, acknowledgement, flags) in packets {
            at += 1000;
            patch(&mut bytes, connection, is_up, sequence, acknowledgement, flags);
            watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &bytes, 40);
        }
        most = most.max(watch.live().flows_held);
        if connection % 1024 == 0 {
            watch.take_connections(&mut records);
            closed += records
                .drain(..)
                .filter(|record| record.state == ConnectionState::SF && record.up.packets == 3)
                .count() as u64;
        }
    }
    watch.finish(Timestamp::from_nanos(at));
    watch.take_connections(&mut records);
    closed +=
        records.drain(..).filter(|record| record.state == ConnectionState::SF && record.up.packets == 3).count() as u64;
    assert_eq!((closed, most), (u64::from(CONNECTIONS), 4096));
    assert_eq!(watch.handshake_rtt().count, u64::from(CONNECTIONS));
}

#[test]
fn syn_flood_evicts_connections_and_counts_them() {
    let limits = Limits { flows: 1000, ..Limits::default() };
    let mut watch = Watch::new(WatchSpec { limits, ..WatchSpec::default() });
    let mut bytes = [0u8; 40];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    (bytes[32], bytes[34]) = (0x50, 1);
    for connection in 0..200_000 {
        patch(&mut bytes, connection, true, 7, 0, SYN);
        watch.handle_packet(Timestamp::from_nanos(u64::from(connection) * 1000), LinkType::RawIp, &bytes, 40);
    }
    let live = watch.live();
    assert_eq!((live.flows_held, live.connections, live.counts.evicted), (1000, 1000, 199_000));
    let outcome = finish(watch, millis(1000));
    assert_eq!(outcome.connections.len(), 200_000);
    assert_eq!(outcome.connections.iter().filter(|record| record.end == RecordEnd::Evicted).count(), 199_000);
}

#[test]
fn endless_heads_and_many_holes_are_bounded() {
    let limits = Limits { held_per_direction: 10_000, held_in_all: 50_000, ..Limits::default() };
    let mut watch = Watch::new(WatchSpec { limits, ..WatchSpec::default() });
    for port in 0..100 {
        let mut talk = Talk::from_port(20_000 + port);
        talk.open().send(CLIENT, ACK, b"GET / HTTP/1.1\r\n");
        for _ in 0..200 {
            talk.send(CLIENT, ACK, &[b'x'; 100]);
            talk.client.next += 1;
        }
        talk.feed(&mut watch, 65_536);
        assert!(watch.live().bytes_held <= 50_000);
    }
    finish(watch, millis(60_000));
}

#[test]
fn finish_in_portions_records_every_connection() {
    let mut watch = Watch::new(WatchSpec::default());
    let mut bytes = [0u8; 40];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    (bytes[32], bytes[34]) = (0x50, 1);
    for connection in 0..10_050 {
        patch(&mut bytes, connection, true, 7, 0, SYN);
        watch.handle_packet(Timestamp::from_nanos(1), LinkType::RawIp, &bytes, 40);
    }
    let (mut numbers, mut records, mut more) = (Vec::new(), Vec::new(), true);
    while more {
        more = watch.finish_some(millis(1), 100);
        watch.take_connections(&mut records);
        assert!(records.len() <= 100);
        numbers.extend(records.drain(..).map(|record| record.connection));
    }
    assert_eq!(numbers, (0..10_050).collect::<Vec<u64>>());
    let mut seconds = Vec::new();
    watch.take_seconds(&mut seconds);
    assert_eq!(seconds.iter().map(|second| second.packets).sum::<u64>(), 10_050, "the last second is recorded once");
    assert_eq!(watch.live().flows_held, 0);
}
