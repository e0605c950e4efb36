//! Many requests on a connection: limits, cancelled requests, GOAWAY, close.

use std::time::Duration;

use http3::client::StreamFault;
use http3::frame::{self, put_head};
use http3::{Code, Event, Lost};

use super::world::{MS, Setup, World, response, settings, streams};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn requests_share_a_connection() {
    let mut world = World::new(20 * MS, Setup::default());
    world.connect();
    for key in 0..50 {
        world.request(key, &format!("/bytes/{}", 1000 * key));
    }
    world.run(SOON, |world| world.ended() == 50);
    assert_eq!(world.ended(), 50);
    for key in 0..50 {
        assert_eq!(world.body_bytes(key), 1000 * key as usize);
    }
    let numbers = world.events.iter().filter_map(|(_, event)| match event {
        Event::Opened { stream, number } => Some((*stream, *number)),
        _ => None,
    });
    assert!(numbers.eq((0..50).map(|key| (key, 4 * key))));
}

#[test]
fn requests_beyond_the_servers_limit_wait_for_a_stream() {
    let mut world = World::new(20 * MS, Setup { server_transport: streams(3), ..Setup::default() });
    world.connect();
    for key in 0..20 {
        world.request(key, "/bytes/10");
    }
    world.run(SOON, |world| world.ended() == 20);
    assert_eq!(world.ended(), 20);
    assert!(world.has(|event| matches!(event, Event::Limit(3))));
    // Never more than three between their opening and their end.
    let mut open = 0i32;
    for (_, event) in &world.events {
        open += match event {
            Event::Opened { .. } => 1,
            Event::End { .. } => -1,
            _ => 0,
        };
        assert!(open <= 3);
    }
}

#[test]
fn a_cancelled_request_reports_nothing_more() {
    let mut world = World::new(20 * MS, Setup { server_transport: streams(1), ..Setup::default() });
    world.connect();
    world.request(1, "/bytes/5000000");
    world.request(2, "/bytes/10");
    world.request(3, "/bytes/10");
    world.run(60 * MS, |_| false);
    let connection = world.connection.as_mut().unwrap();
    // Request 3 waits for a stream, and has no number.
    connection.cancel(|key| key == 3, 0);
    connection.cancel(|key| key == 1, 0);
    let cancelled = world.events.len();
    world.advance_client();
    world.run(SOON, |world| world.ended() == 1);
    let later = &world.events[cancelled..];
    assert!(later.iter().all(|(_, event)| !matches!(event, Event::Body { stream: 1 | 3, .. })));
    assert!(later.iter().any(|(_, event)| matches!(event, Event::End { stream: 2 })));
}

#[test]
fn a_stream_that_the_server_resets_fails_with_its_code() {
    let mut world = World::new(20 * MS, Setup::default());
    world.server.respond = Box::new(|_| (vec![], false));
    world.connect();
    for (key, code) in [(1, Code::INTERNAL_ERROR), (2, Code::REQUEST_REJECTED)] {
        world.request(key, "/");
        world.run(100 * MS, |_| false);
        let connection = world.server.connections.values_mut().next().unwrap();
        let id = quinn_proto::StreamId::new(quinn_proto::Side::Client, quinn_proto::Dir::Bi, u64::from(key) - 1);
        connection.send_stream(id).reset(quinn_proto::VarInt::from_u64(code.0).unwrap()).unwrap();
        world.advance_server();
        world.run(100 * MS, |_| false);
    }
    assert_eq!(world.fault(1), Some(StreamFault::Reset(Code::INTERNAL_ERROR)));
    assert_eq!(world.fault(2), Some(StreamFault::Rejected));
    assert_eq!(world.lost(), None);
}

#[test]
fn goaway_tells_the_first_stream_that_is_not_processed() {
    let mut goaway = settings();
    put_head(frame::GOAWAY, 1, &mut goaway);
    goaway.push(8);
    let mut world = World::new(20 * MS, Setup::default());
    world.server.uni = vec![(goaway, false)];
    world.connect();
    world.request(1, "/bytes/10");
    world.run(SOON, |world| world.ended() == 1);
    assert!(world.has(|event| matches!(event, Event::GoAway { first: 8 })));
    assert_eq!((world.ended(), world.lost()), (1, None));
}

#[test]
fn the_servers_close_is_reported_with_its_code() {
    for (code, lost) in [
        (Code::NO_ERROR, Lost::Closed),
        (Code::INTERNAL_ERROR, Lost::ClosedWith(Code::INTERNAL_ERROR)),
        (Code(0x4242), Lost::ClosedWith(Code(0x4242))),
    ] {
        let mut world = World::new(20 * MS, Setup::default());
        world.connect();
        world.request(1, "/bytes/10");
        world.run(SOON, |world| world.ended() == 1);
        let connection = world.server.connections.values_mut().next().unwrap();
        connection.close(std::time::Instant::now(), quinn_proto::VarInt::from_u64(code.0).unwrap(), "".into());
        world.advance_server();
        world.run(100 * MS, |world| world.lost().is_some());
        assert_eq!(world.lost(), Some(&lost));
    }
}

#[test]
fn early_data_that_the_server_forgot_is_rejected_and_can_be_repeated() {
    let mut world = World::new(20 * MS, Setup { early_data: true, ..Setup::default() });
    world.connect();
    world.request(1, "/bytes/10");
    world.run(Duration::from_secs(1), |_| false);
    // Another server, which trusts the same certificate but does not know the session.
    world.restart_server();
    world.events.clear();
    world.connect();
    assert!(world.connection.as_ref().unwrap().has_early_data());
    world.request(2, "/bytes/10");
    world.run(Duration::from_secs(1), |world| world.fault(2).is_some());
    assert_eq!(world.fault(2), Some(StreamFault::Rejected));
    world.request(3, "/bytes/10");
    world.run(SOON, |world| world.ended() == 1);
    assert_eq!((world.ended(), world.body_bytes(3)), (1, 10));
    let figures = world.connection.as_ref().unwrap().figures();
    assert!(figures.early_data_offered && !figures.early_data_accepted);
}

#[test]
fn a_response_before_the_end_of_the_upload_is_complete() {
    // The server stops reading after its response.
    let mut world = World::new(20 * MS, Setup::default());
    world.server.respond = Box::new(|_| (response(b"no"), true));
    world.server.responds_early = true;
    world.up.rate = Some(100_000);
    world.connect();
    world.send(1, "/", &vec![b'y'; 1_000_000]);
    world.run(SOON, |world| world.ended() == 1);
    assert_eq!((world.ended(), world.body_bytes(1)), (1, 2));
    assert!(!world.has(|event| matches!(event, Event::Sent { last: true, .. })));
    world.request(2, "/");
    world.run(SOON, |world| world.ended() == 2);
    assert_eq!((world.ended(), world.lost()), (2, None));
}
