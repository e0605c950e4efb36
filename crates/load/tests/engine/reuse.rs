//! Reuse of connections, their end, and the race with the server's idle timeout.

use std::time::Duration;

use load::{Arrivals, HttpVersion, RACE_MARGIN, Retry, Reuse, Target, Workload};
use schema::{FailureCause, Method};
use units::Timestamp;

use crate::world::*;

#[test]
fn a_request_reuses_an_idle_connection_of_its_client() {
    let mut spec = spec(constant(100.0));
    spec.clients = 5;
    let world = World::new(spec, answering(ms(1))).run();
    assert_eq!(world.connects.len(), 5, "one connection per client");
    for record in &world.records {
        let end = world.ends.iter().find(|end| Some(end.connection) == record.connection).unwrap();
        assert_eq!(end.client, record.client);
        assert_eq!(record.connected_at.is_some(), record.scheduled_at == end.opened_at);
    }
    assert!(world.ends.iter().all(|end| end.requests == 200 && end.bytes_received == 200 * OK.len() as u64));
}

#[test]
fn records_contain_head_bytes_and_keep_alive() {
    let head = OK.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let world = World::new(spec(constant(100.0)), answering(ms(1))).run();
    assert!(!world.records.is_empty());
    for record in &world.records {
        assert_eq!((record.head_bytes as usize, record.body_bytes() as usize), (head, OK.len() - head));
        assert!(record.keep_alive);
    }
    assert_eq!(world.load.first_head(), Some(&OK[..head]));
}

#[test]
fn at_the_connection_limit_the_longest_idle_connection_is_closed() {
    let mut spec = spec(constant(10.0));
    spec.clients = 4;
    spec.connections_max = 3;
    spec.duration = Some(Duration::from_secs(4));
    let world = World::new(spec, answering(ms(1))).run();
    // With four clients in a fixed order and at most three connections, the next client's connection was always just
    // closed.
    assert_eq!(world.connects.len(), 40);
    assert_eq!(world.open_max, 3);
    assert_eq!(world.load.live().cap_hits, 0);
    let mut ends = world.ends.clone();
    ends.sort_by_key(|end| end.connection);
    assert!(ends[..37].iter().zip(&ends[3..]).all(|(old, new)| old.closed_at == new.opened_at));
}

/// With four clients on four overloaded connections, every connection serves its own client: the backlog does not cause
/// a new connection for each request.
#[test]
fn backlog_does_not_reopen_connections() {
    let mut spec = spec(constant(2000.0));
    (spec.connections_max, spec.clients, spec.duration) = (4, 4, Some(Duration::from_secs(1)));
    spec.response_timeout = Duration::from_secs(60);
    let world = World::new(spec, answering(ms(3))).run();
    assert_eq!(world.records.len(), 2000);
    assert!(world.records.iter().all(|record| record.failure.is_none()));
    assert_eq!(world.connects.len(), 4, "{:?}", world.connects);
    // Requests of each client stay in the order of its arrivals.
    for client in 0..4 {
        let own: Vec<_> = world.records.iter().filter(|record| record.client == client).collect();
        assert!(own.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    }
}

/// A client without a connection gets one after a bounded number of other requests.
#[test]
fn backlog_is_served_fairly_across_clients() {
    let mut spec = spec(constant(2000.0));
    (spec.connections_max, spec.clients, spec.duration) = (3, 4, Some(Duration::from_secs(2)));
    spec.response_timeout = Duration::from_secs(60);
    let world = World::new(spec, answering(ms(3))).run();
    assert_eq!(world.records.len(), 4000);
    assert!(world.records.iter().all(|record| record.failure.is_none()));
    // Far fewer connections than requests are opened, although one of the four clients never has a connection.
    assert!(world.connects.len() < 400, "{}", world.connects.len());
}

/// Without reuse the client closes the connection, whether the server closes it late or not at all.
#[test]
fn without_keep_alive_a_connection_is_closed_after_its_response() {
    let mut spec = spec(constant(10.0));
    spec.reuse = Reuse::Close;
    let late = |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec())), (ms(300), Reply::Fin)];
    let never = |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec()))];
    for world in
        [World::new(spec.clone(), late).run().records_and_ends(), World::new(spec, never).run().records_and_ends()]
    {
        let (records, ends) = world;
        assert_eq!(ends.len(), 100);
        assert!(ends.iter().all(|end| end.closed_at.since(end.opened_at) == ms(5)));
        assert!(
            records.iter().all(|record| record.done_at.since(record.scheduled_at) == ms(5) && record.failure.is_none())
        );
    }
}

/// If the server announces the close but does not close, the closed loop sends the next request immediately.
#[test]
fn a_closed_loop_does_not_wait_for_a_server_that_announces_its_close() {
    let mut spec = spec(constant(1.0));
    (spec.arrivals, spec.connections_max, spec.duration) = (Arrivals::Closed, 1, Some(ms(1000)));
    for response in [OK_CLOSE, b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"] {
        let server = move |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(response.to_vec()))];
        let world = World::new(spec.clone(), server).run();
        // Connect and request take 2 ms each, the server 1 ms.
        assert_eq!(world.records.len(), 200);
        assert!(world.ends.iter().all(|end| end.closed_at.since(end.opened_at) == ms(5)));
    }
}

#[test]
fn http_1_0_connections_are_persistent_only_if_the_server_agrees() {
    let mut spec = spec(constant(10.0));
    spec.version = HttpVersion::Http10;
    spec.clients = 1;
    let silent = |_: Timestamp, _: u32| {
        vec![(ms(1), Reply::Bytes(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec())), (ms(1), Reply::Fin)]
    };
    assert_eq!(World::new(spec.clone(), silent).run().connects.len(), 100);
    let agreeing = |_: Timestamp, _: u32| {
        let response = b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx";
        vec![(ms(1), Reply::Bytes(response.to_vec()))]
    };
    assert_eq!(World::new(spec, agreeing).run().connects.len(), 1);
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let server = |_: Timestamp, _: u32| {
        let head = b"HTTP/1.1 200 OK\r\n\r\nsome".to_vec();
        vec![(ms(1), Reply::Bytes(head)), (ms(50), Reply::Bytes(b" more".to_vec())), (ms(80), Reply::Fin)]
    };
    let world = World::new(spec(constant(10.0)), server).run();
    assert!(world.records.iter().all(|record| record.failure.is_none() && record.bytes_received == 28));
    assert!(world.records.iter().all(|record| record.done_at.since(record.scheduled_at) == ms(84)));
}

/// A server that responds immediately, and closes connections that have been idle for 100 ms.
struct ShortIdleTimeout;

impl Server for ShortIdleTimeout {
    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        vec![(Duration::ZERO, Reply::Bytes(OK.to_vec()))]
    }

    fn idle_timeout(&self) -> Option<Duration> {
        Some(ms(100))
    }
}

#[test]
fn an_idle_connection_closed_by_the_server_is_dropped_without_failure() {
    let mut spec = spec(constant(5.0));
    spec.clients = 1;
    let world = World::new(spec, ShortIdleTimeout).run();
    let live = world.load.live();
    assert_eq!((live.completed, live.failed, live.retried), (50, 0, 0));
    assert_eq!(world.connects.len(), 50);
}

/// The server closes 100 ms after its response, and the one-way delay is 20 ms. A request sent 90 ms after the arrival
/// of the response crosses the FIN and causes a reset.
#[test]
fn a_request_that_crosses_the_servers_close_is_retried() {
    let mut spec = spec(constant(1000.0 / 210.0));
    spec.clients = 1;
    spec.requests_max = Some(2);
    let race = |spec| {
        let mut world = World::new(spec, ShortIdleTimeout);
        world.one_way = ms(20);
        // The first request connects until 40 ms, and its response arrives at 80 ms. The server closes at 160 ms; the
        // FIN arrives at 180 ms.
        world.run()
    };
    // The second request at 210 ms, after the FIN, opens a new connection.
    assert_eq!(race(spec.clone()).load.live().retried, 0);
    // The second request at 170 ms crosses the FIN.
    spec.arrivals = constant(1000.0 / 170.0);
    let world = race(spec.clone());
    assert_eq!(world.load.live().retried, 1);
    let again = world.records.iter().find(|record| record.sequence == 1).unwrap();
    assert_eq!(again.failure, None);
    assert_eq!((again.scheduled_at, again.started_at), (at(ms(170)), Some(at(ms(170)))));
    assert_eq!(again.connected_at, None, "connect times are those of single handshakes");
    assert_eq!(again.connection, Some(1));
    // FIN at 180 ms, connect until 220 ms, response at 260 ms.
    assert_eq!(again.done_at, at(ms(260)));
    let first = world.records.iter().find(|record| record.sequence == 0).unwrap();
    assert_eq!((again.bytes_sent, again.attempts), (first.bytes_sent, 2), "the first attempt was not acknowledged");
    assert_eq!(first.attempts, 1);
    spec.retry = Retry::Never;
    let world = race(spec.clone());
    assert_eq!((world.load.live().retried, world.failures(FailureCause::ClosedBeforeResponse)), (0, 1));
    spec.retry = Retry::IdleRace;

    // A POST may have been processed, so it is not retried.
    spec.workload.requests[0].method = Method::Post;
    let world = race(spec);
    assert_eq!(world.load.live().retried, 0);
    assert_eq!(world.failures(FailureCause::ClosedBeforeResponse), 1);
}

#[test]
fn a_request_is_retried_only_once() {
    let mut spec = spec(constant(2.0));
    spec.clients = 1;
    spec.requests_max = Some(2);
    let mut requests = 0;
    // The first request succeeds, the second crosses a close, every later one gets a reset.
    let server = move |_: Timestamp, _: u32| {
        requests += 1;
        let replies = match requests {
            1 => vec![Reply::Bytes(OK.to_vec())],
            2 => vec![Reply::Crossed, Reply::Fin],
            _ => vec![Reply::Reset],
        };
        replies.into_iter().map(|reply| (Duration::ZERO, reply)).collect()
    };
    let world = World::new(spec, server).run();
    assert_eq!(world.load.live().retried, 1);
    assert_eq!(world.failures(FailureCause::Reset), 1);
}

/// A server that reads a request on a persistent connection and closes fails the request: its FIN acknowledges the
/// request, and a reset later than a round trip is not a race.
#[test]
fn a_request_acknowledged_and_dropped_by_the_server_fails() {
    for (after, reply) in [(ms(0), Reply::Fin), (ms(500), Reply::Fin), (ms(500), Reply::Reset)] {
        let mut spec = spec(constant(2.0));
        (spec.clients, spec.requests_max) = (1, Some(10));
        let server = move |_: Timestamp, nth: u32| {
            if nth == 0 { vec![(ms(1), Reply::Bytes(OK.to_vec()))] } else { vec![(after, reply.clone())] }
        };
        let world = World::new(spec, server).run();
        let live = world.load.live();
        assert_eq!((live.completed, live.failed, live.retried, live.sends), (5, 5, 0, 10));
        assert!(world.records.iter().all(|record| record.attempts == 1));
    }
}

/// A server that closes with an unread request resets the connection.
#[test]
fn a_reset_within_one_rtt_is_retried() {
    let mut spec = spec(constant(2.0));
    (spec.clients, spec.requests_max) = (1, Some(2));
    let mut requests = 0;
    let server = move |_: Timestamp, _: u32| {
        requests += 1;
        vec![(ms(0), if requests == 2 { Reply::Reset } else { Reply::Bytes(OK.to_vec()) })]
    };
    let live = World::new(spec, server).run().load.live();
    assert_eq!((live.completed, live.retried, live.sends), (2, 1, 3));
}

/// No byte of the request was acknowledged, but the close arrives too late for a race.
#[test]
fn a_close_later_than_one_rtt_fails_the_request() {
    let mut spec = spec(constant(1.0));
    (spec.clients, spec.requests_max) = (1, Some(2));
    let crossing = |after| {
        move |_: Timestamp, nth: u32| match nth {
            0 => vec![(ms(1), Reply::Bytes(OK.to_vec()))],
            _ => vec![(after, Reply::Crossed), (after, Reply::Fin)],
        }
    };
    // The round trip is 2 ms.
    let race = World::new(spec.clone(), crossing(RACE_MARGIN)).run();
    assert_eq!((race.load.live().retried, race.load.live().completed), (1, 2));
    let late = World::new(spec, crossing(RACE_MARGIN + ms(1))).run();
    assert_eq!((late.load.live().retried, late.failures(FailureCause::ClosedBeforeResponse)), (0, 1));
}

/// The kernel accepted no byte of the request, since the connection had ended before.
#[test]
fn a_request_refused_by_the_kernel_is_sent_on_another_connection() {
    let mut spec = spec(constant(2.0));
    (spec.clients, spec.requests_max) = (1, Some(2));
    let mut world = World::new(spec, answering(ms(1)));
    world.fails_to_send = Some(1);
    let world = world.run();
    assert_eq!((world.load.live().completed, world.load.live().retried), (2, 1));
}

/// A server that sends two responses per request: requests are paired with earlier responses. The surplus response is
/// detected after the load.
#[test]
fn unsolicited_responses_are_reported_after_the_load() {
    let mut spec = spec(constant(1.0));
    (spec.arrivals, spec.connections_max, spec.duration) = (Arrivals::Closed, 1, Some(ms(1000)));
    // The server reads the next request after it has responded to the one before.
    let mut free_at = Timestamp::ZERO;
    let twice = move |now: Timestamp, _: u32| {
        let reads_at = free_at.max(now);
        free_at = reads_at + ms(32);
        let after = reads_at.since(now);
        vec![(after + ms(30), Reply::Bytes(OK.to_vec())), (after + ms(32), Reply::Bytes(OK.to_vec()))]
    };
    let world = World::new(spec.clone(), twice).run();
    let live = world.load.live();
    assert_eq!((live.surplus, live.failed), (1, 0), "the connection had one response too many");
    assert_eq!(live.untrusted, live.sends);
    let one_response_each = World::new(spec, answering(ms(30))).run();
    assert_eq!((one_response_each.load.live().surplus, one_response_each.load.live().untrusted), (0, 0));
    let last = one_response_each.records.iter().map(|record| record.done_at).max().unwrap();
    assert!(
        one_response_each.now.since(last) <= ms(32 + 2),
        "idle connections are watched for as long as a response took"
    );
}

#[test]
fn a_close_seen_before_sending_is_not_a_retry() {
    let mut spec = spec(constant(2.0));
    spec.clients = 1;
    spec.requests_max = Some(2);
    let mut world = World::new(spec, answering(ms(1)));
    world.run_until(at(ms(400)));
    let key = world.only_key();
    world.deliver_at(at(ms(500)), key, Reply::Fin);
    let world = world.run();
    let live = world.load.live();
    assert_eq!((live.completed, live.retried), (2, 0));
    let second = world.records.iter().find(|record| record.sequence == 1).unwrap();
    assert_eq!((second.started_at, second.connected_at), (Some(at(ms(500))), Some(at(ms(502)))));
}

#[test]
fn urls_are_requested_in_turn_and_connections_belong_to_one_host() {
    let mut spec = spec(constant(100.0));
    spec.clients = 2;
    spec.workload = Workload::of(["http://a/1", "http://a/2", "http://b/3"].map(|url| Target::parse(url).unwrap()));
    let world = World::new(spec, answering(ms(1))).run();
    assert!(world.records.iter().all(|record| u64::from(record.url) == record.sequence % 3));
    assert_eq!(world.connects.len(), 4, "one connection per client and host");
    for end in &world.ends {
        let mut urls: Vec<u32> = world
            .records
            .iter()
            .filter(|record| record.connection == Some(end.connection))
            .map(|record| record.url)
            .collect();
        urls.sort_unstable();
        urls.dedup();
        assert!(urls == [0, 1] || urls == [2], "{urls:?}");
    }
    let by_url = world.outcome(true, None, &["1", "2", "3"]).load.by_url;
    assert_eq!(by_url.iter().map(|part| part.completed).sum::<u64>(), 1000);
}
