//! Requests before the end of the handshake (RFC 8446, section 8; RFC 8470; RFC 9114, section 10.9).

use std::time::Duration;

use quinn_proto::{Dir, TransportConfig};

use super::world::{Setup, World};
use super::{content, get, request};
use crate::dynamic::RelayCall;

#[test]
fn safe_requests_are_answered_and_others_are_too_early() {
    let mut world = World::new(Setup::default());
    let tls = world.tls(true);
    let first = world.begin(tls.clone(), TransportConfig::default());
    world.until("a handshake", |world| world.clients[first].connected);
    assert!(!world.clients[first].quic.has_0rtt());
    world.run(Duration::from_millis(100));

    let begin = world.now;
    let second = world.begin(tls.clone(), TransportConfig::default());
    assert!(world.clients[second].quic.has_0rtt());
    let safe = world.open(second, Dir::Bi, &get("/6"), true);
    let unsafe_method = world.open(second, Dir::Bi, &request("POST", "/app", &[]), true);
    let to_program = world.open(second, Dir::Bi, &get("/app"), true);
    let (status, _, body) = world.response(second, safe);
    assert_eq!((status, body), (200, content(6)));
    // One round trip.
    assert!(world.now.since(begin) <= Duration::from_millis(25), "{:?}", world.now.since(begin));
    assert!(world.clients[second].quic.accepted_0rtt());
    assert_eq!(world.response(second, unsafe_method).0, 425);
    let Some(RelayCall::RelayRequest(head)) = world.relay.next() else { panic!("no request") };
    assert!(String::from_utf8_lossy(&head).contains("early-data: 1\r\n"));
    assert!(world.relay.next().is_none(), "only the safe request");
    // After the handshake every method is accepted.
    world.run(Duration::from_millis(100));
    world.open(second, Dir::Bi, &request("POST", "/app", &[]), true);
    world.run(Duration::from_millis(100));
    let Some(RelayCall::RelayRequest(head)) = world.relay.next() else { panic!("no request") };
    assert!(head.starts_with(b"POST") && !String::from_utf8_lossy(&head).contains("early-data"));
    let _ = to_program;
}

/// A session is valid once: the same first flight again is no early data.
#[test]
fn a_replayed_first_flight_is_not_processed() {
    let mut world = World::new(Setup::default());
    let tls = world.tls(true);
    let first = world.begin(tls.clone(), TransportConfig::default());
    world.until("a handshake", |world| world.clients[first].connected);
    world.run(Duration::from_millis(100));
    let second = world.begin(tls, TransportConfig::default());
    world.open(second, Dir::Bi, &get("/app"), true);
    let address = world.clients[second].address;
    let flight = world.wire().copies_to_host(address);
    assert!(!flight.is_empty());
    world.run(Duration::from_millis(200));
    assert!(matches!(world.relay.next(), Some(RelayCall::RelayRequest(_))));
    for (number, bytes) in flight.iter().cycle().take(3 * flight.len()).enumerate() {
        let peer = std::net::SocketAddr::from(([203, 0, 113, (number / flight.len()) as u8], 4000));
        world.spoof(peer, bytes);
    }
    world.run(Duration::from_millis(200));
    assert!(world.relay.next().is_none(), "a replayed request reached the program");
}
