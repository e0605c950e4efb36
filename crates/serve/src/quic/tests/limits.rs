//! Limits of what clients can use, and how connections end.

use std::net::SocketAddr;
use std::time::Duration;

use http3::Code;
use quinn_proto::{ConnectionError, Dir, TransportConfig, VarInt};

use super::super::{SEND_WINDOW_MIN, UNPROVEN_HANDSHAKES_MAX};
use super::world::{Setup, World, small_windows};
use super::{content, get, request};
use crate::spec::Limits;

/// A client's first datagram.
fn initial(world: &mut World) -> Vec<u8> {
    let client = world.begin(world.tls(false), TransportConfig::default());
    world.clients[client].is_gone = true;
    let address = world.clients[client].address;
    world.wire().take_from(address).remove(0)
}

/// RFC 9000, section 8.1: until the client has proved its address, at most three times what it sent.
#[test]
fn an_unproven_address_gets_at_most_three_times_what_it_sent() {
    let mut world = World::new(Setup::default());
    let bytes = initial(&mut world);
    let before = world.wire().sent;
    world.spoof("203.0.113.9:1000".parse().unwrap(), &bytes);
    world.run(Duration::from_secs(60));
    let sent = world.wire().sent - before;
    assert!(sent > 0 && sent <= 3 * bytes.len() as u64, "{sent} of {}", bytes.len());
    // The handshake has its time, then nothing is left.
    assert_eq!((world.host.table.length(), world.host.unproven), (0, 0));
}

#[test]
fn a_flood_of_unproven_addresses_is_told_to_prove_them() {
    let mut world = World::new(Setup { cap: 1000, ..Setup::default() });
    let clients: Vec<usize> =
        (0..UNPROVEN_HANDSHAKES_MAX).map(|_| world.begin(world.tls(false), TransportConfig::default())).collect();
    for client in clients {
        // They do not answer.
        world.clients[client].is_gone = true;
    }
    world.run(Duration::from_millis(15));
    assert_eq!(world.host.unproven, UNPROVEN_HANDSHAKES_MAX);
    let bytes = initial(&mut world);
    for number in 0..1000u16 {
        let peer = SocketAddr::from(([203, 0, 113, number as u8], 1000 + number));
        world.spoof(peer, &bytes);
    }
    let (sent, datagrams) = (world.wire().sent, world.wire().datagrams);
    world.run(Duration::from_millis(15));
    assert_eq!(world.host.table.length(), UNPROVEN_HANDSHAKES_MAX);
    // A Retry each, shorter than what it answers.
    let (sent, datagrams) = (world.wire().sent - sent, world.wire().datagrams - datagrams);
    assert!(datagrams >= 1000 && sent < 300 * datagrams, "{sent} bytes in {datagrams}");
    // A client with that address connects with one round trip more.
    let client = world.connect_with_control();
    let stream = world.get(client, "/6");
    assert_eq!(world.response(client, stream).0, 200);
    assert_eq!(world.host.unproven, UNPROVEN_HANDSHAKES_MAX);
    world.run(Duration::from_secs(31));
    assert_eq!(world.host.unproven, 0, "handshakes have their time");
}

#[test]
fn a_full_server_displaces_the_longest_idle_connection() {
    let mut world = World::new(Setup { cap: 2, ..Setup::default() });
    let first = world.connect_with_control();
    world.run(Duration::from_millis(10));
    let second = world.connect_with_control();
    let stream = world.get(first, "/6");
    world.response(first, stream);
    // Both were just used.
    let refused = world.connect();
    assert!(matches!(world.clients[refused].lost, Some(ConnectionError::ConnectionClosed(_))));
    world.run(Duration::from_secs(2));
    let third = world.connect_with_control();
    world.assert_over(second, Code::NO_ERROR, "the longest idle one");
    for client in [first, third] {
        let stream = world.get(client, "/6");
        assert_eq!(world.response(client, stream).0, 200);
    }
}

#[test]
fn one_address_has_a_limit() {
    let mut world = World::new(Setup { per_address: 1, ..Setup::default() });
    let first = world.connect_with_control();
    let address = world.clients[first].address;
    let second = world.begin(world.tls(false), TransportConfig::default());
    // Another port of the same address.
    let moved = SocketAddr::new(address.ip(), 5001);
    let before = world.clients[second].address;
    let bytes = world.wire().take_from(before);
    world.clients[second].address = moved;
    for bytes in bytes {
        world.spoof(moved, &bytes);
    }
    world.until("a refusal", |world| world.clients[second].lost.is_some());
    let stream = world.get(first, "/6");
    assert_eq!(world.response(first, stream).0, 200);
}

/// CVE-2023-44487 in its form for HTTP/3.
#[test]
fn a_client_that_cancels_its_requests_is_disconnected() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let mut number = 0;
    while world.clients[client].lost.is_none() {
        let stream = world.get(client, &format!("/{}", 3 << 20));
        world.run(Duration::from_millis(25));
        world.clients[client].cancel(stream);
        world.run(Duration::from_millis(25));
        number += 1;
        assert!(number < 500, "the server accepts any number");
    }
    assert!(number > 200, "{number}");
    world.assert_over(client, Code::EXCESSIVE_LOAD, "cancelled requests");
}

#[test]
fn concurrent_requests_are_limited_by_streams() {
    let mut world = World::new(Setup::default());
    let client = world.begin(world.tls(false), small_windows(2000));
    world.until("a handshake", |world| world.clients[client].connected);
    world.clients[client].reads = false;
    let mut opened = 0;
    while let Some(stream) = world.clients[client].quic.streams().open(Dir::Bi) {
        opened += 1;
        world.send(client, stream, &get("/300000"), true);
    }
    assert_eq!(opened, crate::http3::STREAMS_MAX);
    world.run(Duration::from_secs(1));
    assert!(world.written() <= SEND_WINDOW_MIN);
}

#[test]
fn a_response_that_is_not_read_is_reset_after_the_stall_time() {
    let limits = Limits { stall_time: Duration::from_secs(5), ..Limits::default() };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    let client = world.begin(world.tls(false), small_windows(2000));
    world.until("a handshake", |world| world.clients[client].connected);
    world.clients[client].reads = false;
    // One that is longer than all windows, and one that QUIC has taken whole.
    let long = world.get(client, "/300000");
    let short = world.get(client, "/20000");
    world.run(Duration::from_secs(4));
    assert_eq!(world.host.table.length(), 1);
    assert!(!world.is_idle());
    world.run(Duration::from_secs(10));
    assert!(world.is_idle());
    world.clients[client].reads = true;
    for stream in [long, short] {
        world.until("a reset", |world| world.clients[client].reset.contains_key(&stream));
    }
}

#[test]
fn an_idle_connection_ends_although_its_client_keeps_it_alive() {
    let limits = Limits { idle_time: Duration::from_secs(20), ..Limits::default() };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_secs(3)));
    let client = world.begin(world.tls(false), transport);
    world.until("a handshake", |world| world.clients[client].connected);
    let stream = world.get(client, "/6");
    world.response(client, stream);
    let begin = world.now;
    world.assert_over(client, Code::NO_ERROR, "the idle timeout");
    assert!((19..=22).contains(&world.now.since(begin).as_secs()));
}

#[test]
fn a_request_whose_head_does_not_arrive_is_reset() {
    let limits = Limits { head_time: Duration::from_secs(5), ..Limits::default() };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    let client = world.connect_with_control();
    let stream = world.open(client, Dir::Bi, &get("/6")[..5], false);
    let begin = world.now;
    world.assert_reset(client, stream, Code::REQUEST_INCOMPLETE, "half a head");
    assert!((4..=7).contains(&world.now.since(begin).as_secs()));
}

#[test]
fn content_that_nobody_takes_does_not_use_memory() {
    let mut world =
        World::new(Setup { limits: Limits { body_bytes: 100 << 20, ..Limits::default() }, ..Setup::default() });
    let client = world.connect_with_control();
    let stream = world.open(client, Dir::Bi, &request("POST", "/app", &[]), false);
    let mut sent = 0;
    let piece = super::data(&vec![1; 60_000]);
    for _ in 0..200 {
        world.run(Duration::from_millis(25));
        match world.clients[client].quic.send_stream(stream).write(&piece) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    // The windows of QUIC, and what was read.
    assert!((128 << 10..=512 << 10).contains(&sent), "{sent}");
}

#[test]
fn a_stopping_server_finishes_its_responses() {
    let mut world = World::new(Setup::default());
    let (busy, idle) = (world.connect_with_control(), world.connect_with_control());
    let stream = world.get(busy, &format!("/{}", 3 << 20));
    world.until("the response", |world| !world.clients[busy].received[&stream].0.is_empty());
    world.context.stopping = true;
    world.host.stop();
    world.assert_over(idle, Code::NO_ERROR, "an idle connection");
    // It is told, and later requests are rejected, to be repeated elsewhere.
    let late = world.get(busy, "/6");
    world.assert_reset(busy, late, Code::REQUEST_REJECTED, "a request after GOAWAY");
    assert!(world.response(busy, stream).2 == content(3 << 20));
    let control = world.clients[busy].received.iter().find(|(stream, _)| stream.dir() == Dir::Uni).unwrap().1.0.clone();
    assert!(control.ends_with(&[http3::frame::GOAWAY as u8, 1, 4]), "{control:x?}");
    world.assert_over(busy, Code::NO_ERROR, "after its last response");
    let refused = world.connect();
    assert!(world.clients[refused].lost.is_some());
    world.run(Duration::from_secs(5));
    assert!(world.host.is_over());
}

#[test]
fn lost_datagrams_are_repeated_and_nothing_stays() {
    let mut world = World::new(Setup::default());
    world.wire().drop_each = Some(7);
    let client = world.connect_with_control();
    let stream = world.get(client, &format!("/{}", 3 << 20));
    assert!(world.response(client, stream).2 == content(3 << 20));
    let now = world.instant();
    world.clients[client].quic.close(now, VarInt::from_u32(0x100), Default::default());
    world.run(Duration::from_secs(200));
    assert_eq!((world.host.table.length(), world.host.endpoint.open_connections()), (0, 0));
}

/// A socket without space: nothing is taken from QUIC meanwhile.
#[test]
fn a_blocked_socket_delays_and_loses_nothing() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    world.wire().blocked = true;
    let stream = world.get(client, "/300000");
    world.run(Duration::from_secs(1));
    assert!(world.clients[client].received[&stream].0.is_empty() && world.host.has_work());
    world.wire().blocked = false;
    assert!(world.response(client, stream).2 == content(300_000));
}
