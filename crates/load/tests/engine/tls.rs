//! Connections with a TLS handshake. The driver makes the handshake; the engine handles its beginning and its end.

use std::time::Duration;

use load::{LoadSpec, RequestSpec, Reuse, Target, Workload};
use schema::FailureCause;
use units::Timestamp;

use crate::world::*;

/// A server with this handshake that sends these replies immediately.
struct Secure {
    handshake: Handshake,
    replies: Vec<Reply>,
}

impl Server for Secure {
    fn handshake(&mut self, _now: Timestamp) -> Handshake {
        self.handshake
    }

    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        self.replies.iter().map(|reply| (Duration::ZERO, reply.clone())).collect()
    }
}

fn answering_over(handshake: Handshake) -> Secure {
    Secure { handshake, replies: vec![Reply::Bytes(OK.to_vec())] }
}

fn secure_spec(requests: u64) -> LoadSpec {
    let mut spec = spec(constant(10.0));
    spec.workload = Workload::of([Target::parse("https://server/").unwrap()]);
    spec.requests_max = Some(requests);
    spec.clients = 1;
    spec
}

const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";

#[test]
fn only_the_first_request_waits_for_the_tls_handshake() {
    let world = World::new(secure_spec(3), answering_over(Handshake::RoundTrips(2))).run();
    let first = &world.records[0];
    // The round trip is 2 ms: connected after 2 ms, secured after two more round trips, response after another.
    assert_eq!(first.connected_at, Some(at(ms(2))));
    assert_eq!(first.secured_at, Some(at(ms(6))));
    assert_eq!(first.sent_at, Some(at(ms(6))));
    assert_eq!(first.done_at, at(ms(8)));
    assert_eq!((first.connect_ns(), first.tls_handshake_ns()), (Some(2_000_000), Some(4_000_000)));
    for later in &world.records[1..] {
        assert_eq!((later.connected_at, later.secured_at, later.tls_handshake_ns()), (None, None, None));
        assert_eq!(later.service_time_ns(), Some(2_000_000));
    }
    assert_eq!(world.ends.len(), 1);
    assert_eq!((world.ends[0].connected_at, world.ends[0].secured_at), (first.connected_at, first.secured_at));
    let load = world.outcome(true, None, &["u"]).load;
    let handshakes = load.tls_handshake_ns.expect("a handshake was made");
    assert_eq!((handshakes.count, handshakes.min / 1_000), (1, 4_000));
}

#[test]
fn without_tls_no_handshake_time_is_recorded() {
    let mut spec = spec(constant(10.0));
    spec.requests_max = Some(2);
    let world = World::new(spec, answering(ms(1))).run();
    assert!(world.records.iter().all(|record| record.secured_at.is_none()));
    assert_eq!(world.outcome(true, None, &["u"]).load.tls_handshake_ns, None);
}

#[test]
fn without_keep_alive_every_request_has_a_handshake() {
    let mut spec = secure_spec(5);
    spec.reuse = Reuse::Close;
    let replies = vec![Reply::Bytes(OK_CLOSE.to_vec()), Reply::CloseNotify, Reply::Fin];
    let world = World::new(spec, Secure { handshake: Handshake::RoundTrips(1), replies }).run();
    assert!(world.records.iter().all(|record| record.tls_handshake_ns() == Some(2_000_000)));
    // Every connection has its own handshake and one request.
    assert!(world.ends.iter().all(|end| end.secured_at.is_some() && end.requests == 1));
    assert_eq!(world.load.live().completed, 5);
}

#[test]
fn the_connect_timeout_covers_connect_and_handshake() {
    let spec = secure_spec(1);
    let timeout = spec.connect_timeout;
    let world = World::new(spec.clone(), answering_over(Handshake::Silence)).run();
    let record = &world.records[0];
    assert_eq!(record.failure, Some(FailureCause::ConnectTimeout));
    assert_eq!((record.connected_at, record.secured_at), (Some(at(ms(2))), None));
    assert_eq!(record.done_at, at(timeout));

    let completed = |one_way| {
        let mut world = World::new(spec.clone(), answering_over(Handshake::RoundTrips(2)));
        world.one_way = one_way;
        world.run().load.live().completed
    };
    // Three round trips until a request may be sent: just within the timeout, and just outside.
    assert_eq!(completed(timeout / 6 - Duration::from_nanos(1)), 1);
    assert_eq!(completed(timeout / 6), 0);
}

#[test]
fn a_failed_handshake_has_its_cause() {
    for (handshake, cause) in [
        (Handshake::Fails(FailureCause::TlsCertificate), FailureCause::TlsCertificate),
        (Handshake::Fails(FailureCause::TlsHandshake), FailureCause::TlsHandshake),
        (Handshake::Fails(FailureCause::Reset), FailureCause::Reset),
        (Handshake::Fin, FailureCause::TlsHandshake),
    ] {
        let world = World::new(secure_spec(4), answering_over(handshake)).run();
        assert_eq!(world.failures(cause), 4);
        assert_eq!(world.load.live().retried, 0, "a failed handshake is not retried");
        for record in &world.records {
            assert!(record.connected_at.is_some() && record.secured_at.is_none() && record.sent_at.is_none());
        }
        assert!(world.ends.iter().all(|end| end.requests == 0));
    }
}

/// For a body that ends with the connection, close_notify marks it as complete; a FIN alone does not.
#[test]
fn a_body_without_length_needs_close_notify() {
    let outcome = |replies: Vec<Reply>| {
        let server = Secure { handshake: Handshake::RoundTrips(1), replies };
        let world = World::new(secure_spec(1), server).run();
        (world.records[0].failure, world.records[0].status, world.ends[0].closed_at)
    };
    let body = || Reply::Bytes(UNTIL_CLOSE.to_vec());
    let (failure, status, closed_at) = outcome(vec![body(), Reply::CloseNotify, Reply::Fin]);
    assert_eq!((failure, status), (None, 200));
    assert_eq!(closed_at, at(ms(6)));
    assert_eq!(outcome(vec![body(), Reply::Cut]).0, Some(FailureCause::TlsTruncated));
    // The body is complete even if the server keeps its side of TCP open.
    assert_eq!(outcome(vec![body(), Reply::CloseNotify]).0, None);
}

/// After a body with a length, and on an idle connection, a missing close_notify is not an error.
#[test]
fn a_body_with_length_needs_no_close_notify() {
    for end in [Reply::Cut, Reply::Fin] {
        let replies = vec![Reply::Bytes(OK_CLOSE.to_vec()), end.clone()];
        let world = World::new(secure_spec(2), Secure { handshake: Handshake::RoundTrips(1), replies }).run();
        assert_eq!(world.load.live().completed, 2);
        let persistent = vec![Reply::Bytes(OK.to_vec()), end];
        let world =
            World::new(secure_spec(2), Secure { handshake: Handshake::RoundTrips(1), replies: persistent }).run();
        assert_eq!((world.load.live().completed, world.ends.len()), (2, 2));
    }
}

#[test]
fn a_body_shorter_than_announced_is_closed_early_even_with_close_notify() {
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello".to_vec();
    for end in [Reply::CloseNotify, Reply::Cut, Reply::Fin] {
        let replies = vec![Reply::Bytes(short.clone()), end];
        let world = World::new(secure_spec(1), Secure { handshake: Handshake::RoundTrips(1), replies }).run();
        assert_eq!(world.failures(FailureCause::ClosedEarly), 1);
    }
}

/// A request whose persistent connection was closed is sent on a new one, whose handshake is not in the request's
/// record.
#[test]
fn a_retried_request_has_a_new_handshake() {
    struct Idle;
    impl Server for Idle {
        fn request(&mut self, _now: Timestamp, nth: u32) -> Vec<(Duration, Reply)> {
            if nth == 0 {
                vec![(Duration::ZERO, Reply::Bytes(OK.to_vec()))]
            } else {
                [Reply::Crossed, Reply::CloseNotify, Reply::Fin].map(|reply| (Duration::ZERO, reply)).to_vec()
            }
        }
    }
    let world = World::new(secure_spec(2), Idle).run();
    assert_eq!((world.load.live().completed, world.load.live().retried), (2, 1));
    assert_eq!(world.records[1].secured_at, None);
    assert!(world.ends.iter().all(|end| end.secured_at.is_some()));
}

/// http and https on the same host and port are different endpoints, which share no connection.
#[test]
fn secure_and_plain_targets_do_not_share_connections() {
    let mut spec = secure_spec(4);
    spec.workload.requests.push(RequestSpec::get(Target::parse("http://server:443/").unwrap()));
    let world = World::new(spec, answering_over(Handshake::RoundTrips(1))).run();
    let mut secured: Vec<bool> = world.ends.iter().map(|end| end.secured_at.is_some()).collect();
    secured.sort_unstable();
    assert_eq!(secured, [false, true]);
}
