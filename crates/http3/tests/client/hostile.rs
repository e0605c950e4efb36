//! Servers that violate QUIC or HTTP/3, vanish, or send without end.

use std::time::Duration;

use http3::client::StreamFault;
use http3::frame::{self, put_head};
use http3::response::HEAD_MAX;
use http3::{Code, Event, Lost};
use proptest::prelude::*;
use quinn_proto::TransportConfig;

use super::world::{MS, Setup, World, headers, response, settings};

const SOON: Duration = Duration::from_secs(20);

/// A request to a server that responds with these bytes, and opens these streams.
fn outcome(bytes: Vec<u8>, ends: bool, uni: Vec<(Vec<u8>, bool)>) -> World {
    let mut world = World::new(20 * MS, Setup::default());
    world.server.respond = Box::new(move |_| (bytes.clone(), ends));
    world.server.uni = uni;
    world.connect();
    world.request(1, "/");
    world.run(SOON, |world| world.lost().is_some() || world.fault(1).is_some() || world.ended() == 1);
    world
}

fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_head(kind, payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn violations_close_the_connection_with_their_codes() {
    let usual = || vec![(settings(), false)];
    let ok = || response(b"x");
    for (what, bytes, uni, code) in [
        ("DATA first", framed(frame::DATA, b"x"), usual(), Code::FRAME_UNEXPECTED),
        ("SETTINGS on a request", framed(frame::SETTINGS, b""), usual(), Code::FRAME_UNEXPECTED),
        ("a dynamic entry", framed(frame::HEADERS, &[0, 0, 0x80]), usual(), Code::QPACK_DECOMPRESSION_FAILED),
        ("a required entry", framed(frame::HEADERS, &[1, 0, 0xd9]), usual(), Code::QPACK_DECOMPRESSION_FAILED),
        ("a push", framed(frame::PUSH_PROMISE, &[0, 0, 0]), usual(), Code::ID_ERROR),
        ("a frame cut off", [headers(&[(":status", "200")]), vec![0, 9, 1]].concat(), usual(), Code::FRAME_ERROR),
        ("no SETTINGS", ok(), vec![(vec![0, 0x07, 1, 0], false)], Code::MISSING_SETTINGS),
        ("a control stream that ends", ok(), vec![(settings(), true)], Code::CLOSED_CRITICAL_STREAM),
        ("two control streams", ok(), vec![(settings(), false), (settings(), false)], Code::STREAM_CREATION_ERROR),
        ("a push stream", ok(), vec![(vec![1, 0], false)], Code::ID_ERROR),
        (
            "an insertion",
            ok(),
            vec![(settings(), false), (vec![2, 0xc0, 1, 2], false)],
            Code::QPACK_ENCODER_STREAM_ERROR,
        ),
    ] {
        let mut world = outcome(bytes, true, uni);
        world.run(SOON, |world| world.lost().is_some());
        assert_eq!(world.lost(), Some(&Lost::Violation(code)), "{what}");
        // Lost is the last event.
        assert!(matches!(world.events.last(), Some((_, Event::Lost(_)))), "{what}");
    }
}

#[test]
fn a_malformed_message_fails_its_request_only() {
    for (what, bytes) in [
        ("no status", headers(&[("server", "x")])),
        ("a body shorter than announced", headers(&[(":status", "200"), ("content-length", "5")])),
        ("an empty stream", vec![]),
    ] {
        let mut world = outcome(bytes, true, vec![(settings(), false)]);
        assert_eq!((world.fault(1), world.lost()), (Some(StreamFault::Malformed), None), "{what}");
        world.server.respond = Box::new(|_| (response(b"x"), true));
        world.request(2, "/");
        world.run(SOON, |world| world.ended() == 1);
        assert_eq!(world.ended(), 1, "{what}");
    }
}

#[test]
fn endless_heads_are_refused() {
    // One frame of a length that no memory has, with bytes that never end.
    let mut endless = Vec::new();
    put_head(frame::HEADERS, 1 << 40, &mut endless);
    endless.resize(1 << 20, 0);
    let world = outcome(endless, false, vec![(settings(), false)]);
    assert_eq!((world.fault(1), world.lost()), (Some(StreamFault::HeadTooLarge), None));
    let long = "v".repeat(HEAD_MAX);
    let world = outcome(headers(&[(":status", "200"), ("a", &long)]), true, vec![(settings(), false)]);
    assert_eq!(world.fault(1), Some(StreamFault::HeadTooLarge));
    // Interim responses and unknown frames without end are read, and nothing of them is stored.
    let world =
        outcome(headers(&[(":status", "103"), ("link", "</a>")]).repeat(10_000), false, vec![(settings(), false)]);
    assert_eq!((world.fault(1), world.lost(), world.ended()), (None, None, 0));
    let world = outcome(framed(0x21, &[0; 1000]).repeat(1000), false, vec![(settings(), false)]);
    assert_eq!((world.fault(1), world.lost(), world.ended()), (None, None, 0));
}

#[test]
fn streams_of_unknown_kinds_are_stopped() {
    let unknown = vec![0x40, 0x54, 1, 2, 3];
    let mut uni = vec![(settings(), false)];
    uni.extend((0..40).map(|_| (unknown.clone(), false)));
    let world = outcome(response(b"x"), true, uni);
    assert_eq!((world.ended(), world.lost()), (1, None));
}

#[test]
fn a_server_of_another_version_or_protocol_is_named() {
    let mut world = World::new(20 * MS, Setup { versions: vec![0xff00_001d], ..Setup::default() });
    world.connect();
    world.run(SOON, |world| world.lost().is_some());
    assert_eq!(world.lost(), Some(&Lost::VersionNegotiation));

    let mut world = World::new(20 * MS, Setup { alpn: b"hq-interop", ..Setup::default() });
    world.connect();
    world.run(SOON, |world| world.lost().is_some());
    let alert = rustls::AlertDescription::NoApplicationProtocol;
    assert_eq!(world.lost(), Some(&Lost::Tls(rustls::Error::AlertReceived(alert))));
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let mut world = World::new(20 * MS, Setup { name: "other.example", ..Setup::default() });
    world.connect();
    world.run(SOON, |world| world.lost().is_some());
    let Some(Lost::Tls(rustls::Error::InvalidCertificate(_))) = world.lost() else { panic!("{:?}", world.lost()) };
}

#[test]
fn a_server_that_restarts_resets_the_connection() {
    let mut world = World::new(20 * MS, Setup::default());
    world.connect();
    world.request(1, "/bytes/10");
    world.run(SOON, |world| world.ended() == 1);
    world.restart_server();
    world.request(2, "/bytes/10");
    world.run(SOON, |world| world.lost().is_some());
    assert_eq!(world.lost(), Some(&Lost::StatelessReset));
}

#[test]
fn a_server_that_vanishes_ends_in_the_idle_timeout() {
    for connected in [false, true] {
        let mut world = World::new(20 * MS, Setup { server_transport: without_idle_timeout(), ..Setup::default() });
        world.connect();
        if connected {
            world.request(1, "/bytes/10");
            world.run(SOON, |world| world.ended() == 1);
        }
        let begin = world.now;
        world.down.drops = Some(Box::new(|_| true));
        world.request(2, "/bytes/10");
        world.run(Duration::from_secs(120), |world| world.lost().is_some());
        assert_eq!(world.lost(), Some(&Lost::IdleTimeout));
        assert!(world.now.since(begin) <= Duration::from_secs(31), "{:?}", world.now.since(begin));
    }
}

fn without_idle_timeout() -> TransportConfig {
    let mut config = TransportConfig::default();
    config.max_idle_timeout(None);
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_of_a_server_end_in_a_response_a_failure_or_silence(
        bytes in prop::collection::vec(any::<u8>(), 0..200), ends in any::<bool>(), control in any::<bool>(),
    ) {
        let (response, uni) = if control { (response(b"x"), bytes) } else { (bytes, settings()) };
        let world = outcome(response, ends, vec![(uni, ends && control)]);
        prop_assert!(world.ended() <= 1);
    }
}
