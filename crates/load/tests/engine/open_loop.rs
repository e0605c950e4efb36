//! The open loop does not wait for the server, and counts backlog at the connection limit.

use std::time::Duration;

use load::Reuse;
use proptest::prelude::*;
use stats::Rng;
use units::Timestamp;

use crate::world::*;

#[test]
fn constant_arrivals_are_exact_to_the_nanosecond() {
    let world = World::new(spec(constant(1000.0)), answering(ms(3))).run();
    assert_eq!(world.records.len(), 10_000);
    for record in &world.records {
        assert_eq!(record.scheduled_at.as_nanos(), record.sequence * 1_000_000);
        assert_eq!(record.started_at, Some(record.scheduled_at));
        assert!(record.failure.is_none());
    }
    let (start, end) = world.load.measured();
    assert_eq!((start, end), (Timestamp::ZERO, Some(at(Duration::from_secs(10)))));
}

/// Response times contain a stall of two seconds in full, for each request scheduled during the stall. A closed loop
/// would omit these requests (coordinated omission).
#[test]
fn a_server_stall_is_fully_visible_in_response_times() {
    let (from, to) = (at(Duration::from_secs(3)), at(Duration::from_secs(5)));
    let server = move |now: Timestamp, _: u32| {
        let stalled = if now >= from && now < to { to.since(now) } else { Duration::ZERO };
        vec![(stalled, Reply::Bytes(OK.to_vec()))]
    };
    let mut spec = spec(constant(1000.0));
    spec.connections_max = 10_000;
    let world = World::new(spec, server).run();
    for record in &world.records {
        // Opening a new connection takes a round trip.
        let opening = if record.connected_at.is_some() { ms(2) } else { Duration::ZERO };
        let reaches_server = record.scheduled_at + opening + ms(1);
        let expected =
            if reaches_server >= from && reaches_server < to { to.since(reaches_server) } else { Duration::ZERO };
        assert_eq!(record.done_at.since(record.scheduled_at), opening + ms(2) + expected, "{record:?}");
        assert_eq!(record.send_lag_ns(), Some(0));
    }
    let outcome = world.outcome(true, None, &["http://server/"]);
    let response = outcome.load.response_time_ns;
    // A fifth of the requests is scheduled evenly during the stall: p90 is half of its length, p99 nearly all of it.
    assert!((0.99e9..1.01e9).contains(&(response.p90 as f64)), "{response:?}");
    assert!((1.88e9..1.92e9).contains(&(response.p99 as f64)), "{response:?}");
    assert_eq!(response.count, 10_000);
}

#[test]
fn a_server_that_never_answers_does_not_slow_the_arrivals() {
    let world = World::new(spec(constant(100.0)), |_: Timestamp, _: u32| Vec::new()).run();
    assert_eq!(world.records.len(), 1000);
    assert!(world.records.iter().all(|record| record.send_lag_ns() == Some(0)));
    // At 100/s, requests stay open for the timeout of five seconds and a round trip.
    assert!((500..=501).contains(&world.open_max), "{}", world.open_max);
}

#[test]
fn the_connection_limit_causes_backlog() {
    let mut spec = spec(constant(200.0));
    spec.connections_max = 10;
    spec.clients = 1;
    spec.duration = Some(Duration::from_secs(2));
    let mut world = World::new(spec, answering(ms(98)));
    world.run_until(at(Duration::from_secs(2)));
    let live = world.load.live();
    // Ten connections with 100 ms per request achieve 100/s, half of the offered rate.
    assert!((195..=205).contains(&live.backlog), "{live:?}");
    assert_eq!(live.in_flight, 10);
    assert!(live.cap_hits >= 380, "{live:?}");
    let world = world.run();
    assert_eq!(world.open_max, 10);
    let started: Vec<_> = {
        let mut records = world.records.clone();
        records.sort_by_key(|record| record.sequence);
        records.iter().map(|record| record.started_at).collect()
    };
    assert!(started.is_sorted(), "requests start in the order of their scheduled times");
    let last = world.records.iter().find(|record| record.sequence == 399).unwrap();
    assert!(last.send_lag_ns().unwrap() > 1_900_000_000, "the wait for a connection is send lag: {last:?}");
}

#[test]
fn below_the_connection_limit_no_request_waits() {
    let mut at_limit = spec(constant(100.0));
    // At 100/s with 10 ms in the server and 2 ms of round trip, two requests are concurrent.
    at_limit.clients = 1;
    at_limit.connections_max = 2;
    let world = World::new(at_limit.clone(), answering(ms(10))).run();
    assert_eq!(world.load.live().cap_hits, 0);
    at_limit.connections_max = 1;
    let world = World::new(at_limit, answering(ms(10))).run();
    assert!(world.load.live().cap_hits > 0);
}

#[test]
fn a_late_generator_keeps_the_scheduled_times() {
    let mut world = World::new(spec(constant(1000.0)), answering(ms(1)));
    world.run_until(at(ms(100)));
    // The generator stalls for half a second.
    world.now = at(ms(600));
    let world = world.run();
    assert_eq!(world.records.len(), 10_000);
    let late = world.records.iter().find(|record| record.sequence == 200).unwrap();
    assert_eq!((late.scheduled_at, late.started_at), (at(ms(200)), Some(at(ms(600)))));
    assert_eq!(late.send_lag_ns(), Some(400_000_000));
}

#[test]
fn arrivals_beyond_the_limit_of_one_call_are_made_by_the_next() {
    let mut spec = spec(constant(1e6));
    spec.duration = Some(ms(50));
    spec.connections_max = 100;
    let mut world = World::new(spec, answering(Duration::ZERO));
    world.now = at(ms(50));
    let world = world.run();
    assert_eq!(world.records.len(), 50_000);
}

#[test]
fn the_warm_up_is_offered_but_not_measured() {
    let mut spec = spec(constant(100.0));
    spec.warmup = Duration::from_secs(2);
    let world = World::new(spec, answering(ms(1))).run();
    let live = world.load.live();
    assert_eq!((live.offered, live.offered_measured), (1200, 1000));
    assert_eq!(world.load.measured(), (at(Duration::from_secs(2)), Some(at(Duration::from_secs(12)))));
    let load = world.outcome(true, None, &["u"]).load;
    assert_eq!((load.offered_requests, load.completed, load.offered_rate_per_s), (1000, 1000, 100.0));
}

#[test]
fn a_request_limit_ends_the_phase_at_the_next_scheduled_time() {
    let mut spec = spec(constant(100.0));
    spec.warmup = Duration::from_secs(1);
    spec.requests_max = Some(250);
    let world = World::new(spec.clone(), answering(ms(1))).run();
    assert_eq!(world.load.live().offered_measured, 250);
    assert_eq!(world.load.measured().1, Some(at(ms(3500))));
    // A shorter duration ends the phase earlier.
    spec.duration = Some(Duration::from_secs(2));
    let world = World::new(spec.clone(), answering(ms(1))).run();
    assert_eq!(world.load.live().offered_measured, 200);
    spec.requests_max = Some(0);
    let world = World::new(spec, answering(ms(1))).run();
    assert_eq!(world.load.live().offered_measured, 0);
}

#[test]
fn stopping_ends_the_phase_and_every_request_is_counted() {
    let mut spec = spec(constant(200.0));
    spec.connections_max = 10;
    spec.clients = 1;
    let mut world = World::new(spec, answering(ms(98)));
    world.run_until(at(Duration::from_secs(1)));
    let waiting = world.load.live().backlog;
    assert!(waiting > 80);
    world.load.stop(world.now);
    let world = world.run();
    assert_eq!(world.load.measured().1, Some(at(Duration::from_secs(1))));
    assert_eq!(world.failures(schema::FailureCause::Aborted) as u64, waiting);
    assert!(world.records.iter().filter(|record| record.started_at.is_some()).all(|record| record.failure.is_none()));
}

/// Stopping a generator that is a second behind a rate of 10^9/s does not schedule all missed arrivals.
#[test]
fn a_stop_far_behind_the_schedule_ends_the_phase_at_the_last_arrival() {
    let mut spec = spec(constant(1e9));
    spec.connections_max = 1;
    let mut load = load::Load::new(spec, Timestamp::ZERO);
    let now = at(Duration::from_secs(1));
    load.handle_time(now);
    load.stop(now);
    let mut records = Vec::new();
    load.take_records(&mut records);
    let offered = load.live().offered_measured;
    assert!((4096..2_000_000).contains(&offered), "{offered}");
    assert_eq!(
        load.measured().1,
        Some(Timestamp::from_nanos(offered)),
        "the phase ends with the last scheduled arrival"
    );
    assert_eq!(records.len() as u64 + load.unfinished_measured(), offered);
}

#[test]
fn an_abort_ends_all_requests_immediately() {
    let mut world = World::new(spec(constant(100.0)), |_: Timestamp, _: u32| Vec::new());
    world.run_until(at(Duration::from_secs(1)));
    let world = world.end();
    assert_eq!(world.failures(schema::FailureCause::Aborted), world.records.len());
    assert!(world.load.finished());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut spec = spec(poisson(300.0));
        spec.seed = seed;
        let mut rng = Rng::named(seed, "server");
        let server = move |_: Timestamp, _: u32| {
            vec![(Duration::from_secs_f64(rng.exponential() * 0.01), Reply::Bytes(OK.to_vec()))]
        };
        World::new(spec, server).run().records
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A server with random behaviour. `World` checks at every step that all requests and connections are accounted for.
fn erratic(seed: u64) -> impl Server {
    let mut rng = Rng::named(seed, "erratic");
    move |_: Timestamp, _: u32| {
        (0..1 + rng.below(3))
            .map(|_| {
                let reply = match rng.below(9) {
                    0 => Reply::Fin,
                    1 => Reply::Reset,
                    2 => Reply::Bytes(OK_CLOSE.to_vec()),
                    3 => Reply::Bytes(OK[..rng.below(OK.len() as u64) as usize].to_vec()),
                    4 => Reply::Bytes((0..rng.below(50)).map(|_| rng.next() as u8).collect()),
                    _ => Reply::Bytes(OK.to_vec()),
                };
                (Duration::from_micros(rng.below(300_000)), reply)
            })
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn every_request_ends_exactly_once_whatever_the_server_does(
        seed: u64,
        per_second in 1.0f64..400.0,
        connections_max in 1u32..40,
        clients in 1u32..20,
        close: bool,
        shape in 0u8..3,
        write_max in 1usize..200,
        stop_after_ms in prop::option::of(0u64..3000),
    ) {
        let arrivals = match shape {
            0 => load::Arrivals::Closed,
            1 => constant(per_second),
            _ => poisson(per_second),
        };
        let mut spec = spec(arrivals);
        spec.seed = seed;
        spec.connections_max = connections_max;
        spec.clients = clients;
        spec.reuse = if close { Reuse::Close } else { Reuse::KeepAlive };
        spec.response_timeout = ms(400);
        spec.warmup = ms(200);
        spec.duration = Some(Duration::from_secs(2));
        let mut world = World::new(spec, erratic(seed));
        world.write_max = write_max;
        if let Some(stop) = stop_after_ms {
            world.run_until(at(ms(stop)));
            world.load.stop(world.now);
        }
        let world = world.run();
        prop_assert!(world.open_max <= connections_max as usize);
        let outcome = world.outcome(shape != 0, None, &["u"]);
        let failed: u64 = outcome.load.failed.values().sum();
        prop_assert_eq!(outcome.load.offered_requests, outcome.load.completed + failed);
    }
}
