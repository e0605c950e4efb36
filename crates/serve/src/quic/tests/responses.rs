//! Responses: files, programs, and how much of them is in memory.

use std::time::Duration;

use bytes::Bytes;
use http3::Code;
use quinn_proto::{Dir, TransportConfig};

use super::world::{SIZES, Setup, World, small_windows};
use super::{content, data, get, headers, request};
use crate::dynamic::{Event, RelayCall, Ticket};

#[test]
fn files_are_served_as_over_http_1() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let streams = SIZES.map(|size| (size, world.get(client, &format!("/{size}"))));
    for (size, stream) in streams {
        let (status, fields, body) = world.response(client, stream);
        assert!(status == 200 && body == content(size), "{size}: {}", body.len());
        assert!(fields.contains("server: yamabiko") && fields.contains(&format!("content-length: {size}")), "{fields}");
        assert!(!fields.contains("connection:") && !fields.contains("transfer-encoding:"), "{fields}");
    }
    for (method, path, more, status, length) in [
        ("HEAD", "/6", ("a", "b"), 200, 0),
        ("GET", "/6", ("range", "bytes=1-2"), 206, 2),
        ("GET", "/300000", ("range", "bytes=100-150099"), 206, 150_000),
        ("GET", "/absent", ("a", "b"), 404, 14),
        ("POST", "/6", ("content-length", "3"), 405, 23),
        ("OPTIONS", "/6", ("a", "b"), 204, 0),
    ] {
        let sent = [request(method, path, &[more]), if method == "POST" { data(b"abc") } else { Vec::new() }].concat();
        let stream = world.open(client, Dir::Bi, &sent, true);
        let response = world.response(client, stream);
        assert_eq!((response.0, response.2.len()), (status, length), "{method} {path}");
    }
    // Trailers are read and ignored.
    let sent = [request("POST", "/6", &[]), data(b"abc"), headers(&[("x-sum", "1")])].concat();
    let stream = world.open(client, Dir::Bi, &sent, true);
    assert_eq!(world.response(client, stream).0, 405);
}

#[test]
fn requests_arrive_in_any_pieces() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let bytes = get("/6");
    let stream = world.open(client, Dir::Bi, b"", false);
    for byte in &bytes {
        world.send(client, stream, &[*byte], false);
        world.run(Duration::from_millis(30));
    }
    // The host needs no end of a request for a file, and may have answered.
    let _ = world.clients[client].quic.send_stream(stream).finish();
    assert_eq!(world.response(client, stream).2, content(6));
}

#[test]
fn many_requests_one_after_the_other_use_one_connection() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    for number in 0..400 {
        let stream = world.get(client, "/1000");
        assert_eq!(world.response(client, stream).2, content(1000), "{number}");
        world.clients[client].received.remove(&stream);
    }
    assert_eq!((world.clients.len(), world.figures.total().opened), (1, 1));
}

#[test]
fn bodies_of_requests_go_to_the_program_and_its_response_back() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let sent = [request("POST", "/app/x", &[]), data(b"abc"), data(b"de")].concat();
    let stream = world.open(client, Dir::Bi, &sent, true);
    world.run(Duration::from_millis(50));
    let Some(RelayCall::RelayRequest(head)) = world.relay.next() else { panic!("no request") };
    let head = String::from_utf8(head.into()).unwrap();
    assert!(head.starts_with("POST /app/x HTTP/1.1\r\nhost: server\r\n"), "{head}");
    let token = world.host_token();
    let event = |world: &mut World, event| {
        let ticket = Ticket { connection: token, stream: u64::from(stream) };
        world.host.relay_event(&mut world.context, ticket, event);
        world.turn();
    };
    event(&mut world, Event::Room(100));
    let mut body = Vec::new();
    while let Some(call) = world.relay.next() {
        match call {
            RelayCall::Body(bytes) => body.extend_from_slice(&bytes),
            RelayCall::BodyEnded => body.push(b'.'),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(body, b"abcde.");
    event(&mut world, Event::Interim { status: 103, fields: Bytes::from_static(b"Link: </a>\r\n") });
    let fields = Bytes::from_static(b"Date: now\r\nX-By: app\r\n");
    let finding = crate::cache::Finding::NONE;
    event(&mut world, Event::Head { status: 201, fields, length: None, finding });
    for _ in 0..40 {
        event(&mut world, Event::Body(Bytes::from(vec![7; 5000])));
    }
    event(&mut world, Event::End);
    let (status, fields, body) = world.response(client, stream);
    assert_eq!((status, body.len()), (201, 200_000));
    assert!(fields.contains("x-by: app") && !fields.contains("transfer-encoding"), "{fields}");
}

#[test]
fn a_broken_response_of_the_program_resets_its_stream() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let stream = world.get(client, "/app");
    world.run(Duration::from_millis(50));
    let ticket = Ticket { connection: world.host_token(), stream: u64::from(stream) };
    let finding = crate::cache::Finding::NONE;
    let head = Event::Head { status: 200, fields: Bytes::new(), length: Some(10), finding };
    world.host.relay_event(&mut world.context, ticket, head);
    world.host.relay_event(&mut world.context, ticket, Event::Broken);
    world.assert_reset(client, stream, Code::INTERNAL_ERROR, "a broken response");
}

#[test]
fn a_request_for_another_host_on_the_same_connection_is_misdirected() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    for (host, status) in [("server", 200), ("other.example", 421), ("server:443", 200)] {
        let fields = [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", "/6")];
        let stream = world.open(client, Dir::Bi, &headers(&fields), true);
        assert_eq!(world.response(client, stream).0, status, "{host}");
    }
}

#[test]
fn a_head_above_the_limit_is_answered_431() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let long = "v".repeat(9000);
    let stream = world.open(client, Dir::Bi, &request("GET", "/6", &[("a", &long)]), true);
    assert_eq!(world.response(client, stream).0, 431);
    // Of one byte of the section each.
    let mut section = get("/6")[2..].to_vec();
    section.extend_from_slice(&[0xc5; 20_000]);
    let stream = world.open(client, Dir::Bi, &super::framed(http3::frame::HEADERS, &section), true);
    assert_eq!(world.response(client, stream).0, 431);
}

/// The client's windows let through what is read only: neither QUIC nor HTTP has the rest of the file in memory.
#[test]
fn a_client_that_does_not_read_gets_no_more_than_its_window_in_memory() {
    let mut world = World::new(Setup::default());
    let client = world.begin(world.tls(false), small_windows(10_000));
    world.until("a handshake", |world| world.clients[client].connected);
    world.clients[client].reads = false;
    let stream = world.get(client, &format!("/{}", 3 << 20));
    world.run(Duration::from_secs(5));
    let written = world.written();
    assert!((9_000..=super::super::SEND_WINDOW_MIN).contains(&written), "{written}");
    // It reads after all.
    world.clients[client].reads = true;
    assert!(world.response(client, stream).2 == content(3 << 20));
}

#[test]
fn windows_of_fast_readers_grow_and_shrink_again() {
    let mut world = World::new(Setup::default());
    let client = world.begin(world.tls(false), TransportConfig::default());
    world.until("a handshake", |world| world.clients[client].connected);
    let stream = world.get(client, &format!("/{}", 3 << 20));
    let mut largest = 0;
    world.until("the response", |world| {
        largest = largest.max(world.window());
        world.clients[client].received[&stream].1
    });
    assert!(largest >= 8 * super::super::SEND_WINDOW_MIN, "{largest}");
    world.run(Duration::from_secs(1));
    assert_eq!(world.window(), super::super::SEND_WINDOW_MIN);
    assert_eq!(world.host.send_memory_left, super::super::SEND_MEMORY_MAX);
}
