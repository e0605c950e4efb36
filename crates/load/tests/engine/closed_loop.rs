//! The closed loop: a fixed number of connections, each with one request at a time.

use std::time::Duration;

use load::{Arrivals, Reuse};
use schema::FailureCause;
use units::Timestamp;

use crate::world::*;

#[test]
fn a_closed_loop_connection_sends_its_next_request_when_the_last_has_ended() {
    let mut spec = spec(Arrivals::Closed);
    spec.connections_max = 7;
    spec.clients = 3;
    let world = World::new(spec, answering(ms(8))).run();
    assert_eq!((world.open_max, world.connects.len()), (7, 7));
    let clients: Vec<u32> = world.connects.iter().map(|&(_, client)| client).collect();
    assert_eq!(clients, [0, 1, 2, 0, 1, 2, 0], "connection j belongs to client j mod clients");
    for connection in 0..7 {
        let on_it: Vec<_> = world.records.iter().filter(|record| record.connection == Some(connection)).collect();
        assert!(on_it.windows(2).all(|pair| pair[1].scheduled_at == pair[0].done_at));
        // 2 ms to connect, then 10 ms per request for 10 s. The last request begins within the phase and ends after it.
        assert_eq!(on_it.len(), 1000);
    }
}

#[test]
fn without_keep_alive_closed_loop_clients_take_turns() {
    let mut spec = spec(Arrivals::Closed);
    spec.connections_max = 2;
    spec.clients = 5;
    spec.reuse = Reuse::Close;
    spec.duration = Some(ms(100));
    // The result does not depend on whether server or client closes the connection.
    let closes = |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec())), (ms(2), Reply::Fin)];
    let never_closes = |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec()))];
    let world = World::new(spec.clone(), closes).run();
    assert_eq!(world.records, World::new(spec, never_closes).run().records);
    assert_eq!(world.open_max, 2);
    let clients: Vec<u32> = world.connects.iter().map(|&(_, client)| client).collect();
    assert!(clients.len() > 20);
    assert!(clients.iter().enumerate().all(|(position, &client)| client == position as u32 % 5), "{clients:?}");
    // The client closes the connection when the response is complete, and opens the next one.
    let gaps: Vec<_> = world.ends.iter().map(|end| end.closed_at.since(end.opened_at)).collect();
    assert!(gaps.iter().all(|&gap| gap == ms(2) + ms(2) + ms(1)), "{gaps:?}");
}

#[test]
fn a_closed_loop_request_limit_is_exact_and_the_phase_ends_with_the_last_request() {
    let mut spec = spec(Arrivals::Closed);
    spec.connections_max = 4;
    spec.requests_max = Some(10);
    spec.duration = None;
    let world = World::new(spec.clone(), answering(ms(8))).run();
    assert_eq!(world.records.len(), 10);
    let last = world.records.iter().map(|record| record.done_at).max().unwrap();
    assert_eq!(world.load.measured().1, Some(last + Duration::from_nanos(1)));
    let load = world.outcome(false, None, &["u"]).load;
    assert_eq!(load.loop_kind, "closed");
    assert!((load.achieved_rate_per_s - 10.0 / last.as_secs_f64()).abs() < 0.001, "all ten requests are achieved");
    // With more connections than requests, only one connection per request is opened.
    spec.requests_max = Some(3);
    let world = World::new(spec, answering(ms(8))).run();
    assert_eq!((world.records.len(), world.open_max), (3, 3));
}

struct Refusing {
    until: Timestamp,
}

impl Server for Refusing {
    fn connect(&mut self, now: Timestamp, _client: u32) -> Accept {
        if now < self.until { Accept::Refuse } else { Accept::Yes }
    }

    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        vec![(ms(8), Reply::Bytes(OK.to_vec()))]
    }
}

#[test]
fn refused_connections_are_retried_with_backoff() {
    let mut spec = spec(Arrivals::Closed);
    spec.connections_max = 1;
    spec.duration = Some(Duration::from_secs(6));
    let world = World::new(spec, Refusing { until: at(Duration::from_secs(4)) }).run();
    let pauses: Vec<u128> =
        world.connects.windows(2).map(|pair| (pair[1].0.since(pair[0].0) - ms(2)).as_millis()).collect();
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    assert_eq!(world.failures(FailureCause::ConnectRefused), 10);
    assert!(world.records.iter().filter(|record| record.failure.is_none()).count() > 100);
}

#[test]
fn a_closed_connection_is_replaced_by_one_of_the_same_client() {
    let mut spec = spec(Arrivals::Closed);
    spec.connections_max = 3;
    spec.clients = 3;
    spec.duration = Some(ms(500));
    let server = |_: Timestamp, nth: u32| {
        if nth < 4 {
            vec![(ms(1), Reply::Bytes(OK.to_vec()))]
        } else {
            vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec())), (ms(1), Reply::Fin)]
        }
    };
    let world = World::new(spec, server).run();
    assert_eq!(world.open_max, 3);
    assert!(world.ends.iter().filter(|end| end.requests == 5).count() > 30);
    for client in 0..3 {
        assert!(world.connects.iter().filter(|&&(_, other)| other == client).count() > 10);
    }
}

/// A server that refuses every second connection.
struct RefusesEverySecond(u32);

impl Server for RefusesEverySecond {
    fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
        self.0 += 1;
        if self.0.is_multiple_of(2) { Accept::Refuse } else { Accept::Yes }
    }

    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        vec![(ms(1), Reply::Bytes(OK_CLOSE.to_vec())), (ms(1), Reply::Fin)]
    }
}

#[test]
fn a_response_resets_the_backoff() {
    for reuse in [Reuse::Close, Reuse::KeepAlive] {
        let mut spec = spec(Arrivals::Closed);
        spec.reuse = reuse;
        spec.connections_max = 1;
        spec.duration = Some(Duration::from_secs(1));
        let world = World::new(spec, RefusesEverySecond(0)).run();
        let longest = world.connects.windows(2).map(|pair| pair[1].0.since(pair[0].0)).max();
        assert_eq!(longest, Some(ms(2) + ms(10)));
    }
}
