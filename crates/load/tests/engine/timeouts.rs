//! Timeouts: a response just before succeeds, one just after fails, and both have a record.

use std::time::Duration;

use schema::FailureCause;
use units::Timestamp;

use crate::world::*;

const NANOSECOND: Duration = Duration::from_nanos(1);

#[test]
fn a_response_before_the_timeout_counts_and_a_later_one_fails() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    let timeout = spec.response_timeout;
    let in_time = World::new(spec.clone(), answering(timeout - ms(2) - NANOSECOND)).run();
    assert_eq!(in_time.load.live().completed, 1);
    let late = World::new(spec, answering(timeout - ms(2))).run();
    assert_eq!(late.failures(FailureCause::ResponseTimeout), 1);
    let record = late.records[0];
    // The response timeout starts with the send, 2 ms after connect was called.
    assert_eq!(record.done_at, at(ms(2) + timeout));
    assert_eq!((record.status, record.first_byte_at), (0, None));
    assert_eq!(late.ends[0].closed_at, record.done_at);
}

/// A server that does not accept connections.
struct Unreachable(Duration);

impl Server for Unreachable {
    fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
        Accept::Ignore
    }

    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        vec![(self.0, Reply::Bytes(OK.to_vec()))]
    }
}

#[test]
fn the_connect_timeout_is_separate_from_the_response_timeout() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    let world = World::new(spec.clone(), Unreachable(Duration::ZERO)).run();
    assert_eq!(world.failures(FailureCause::ConnectTimeout), 1);
    assert_eq!(world.records[0].done_at, at(spec.connect_timeout));
    assert_eq!(world.ends[0].connected_at, None);

    let connected_after = |one_way| {
        let mut world = World::new(spec.clone(), answering(Duration::ZERO));
        world.one_way = one_way;
        world.run().load.live().completed
    };
    assert_eq!(connected_after(spec.connect_timeout / 2 - NANOSECOND), 1);
    assert_eq!(connected_after(spec.connect_timeout / 2), 0);
}

/// The response must be complete within the timeout, also if the server sends a byte per second or an endless head.
#[test]
fn a_slow_trickle_does_not_extend_the_response_timeout() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    for beginning in ["HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "HTTP/1.1 200 OK\r\nX-A: "] {
        let server = move |_: Timestamp, _: u32| {
            let mut replies = vec![(Duration::ZERO, Reply::Bytes(beginning.into()))];
            replies.extend((1..20).map(|second| (Duration::from_secs(second), Reply::Bytes(b"x".to_vec()))));
            replies
        };
        let world = World::new(spec.clone(), server).run();
        assert_eq!(world.failures(FailureCause::ResponseTimeout), 1);
        let record = world.records[0];
        assert_eq!(record.bytes_received, beginning.len() as u64 + 4);
        assert_eq!(record.first_byte_at, Some(at(ms(4))));
    }
}

#[test]
fn a_late_timer_records_the_timeout_at_its_due_time() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    let mut world = World::new(spec, |_: Timestamp, _: u32| Vec::new());
    world.run_until(at(Duration::from_secs(2)));
    world.now = at(Duration::from_secs(9));
    let world = world.run();
    assert_eq!(world.records[0].done_at, at(ms(5002)));
    assert_eq!(world.ends[0].closed_at, at(Duration::from_secs(9)));
}

#[test]
fn a_response_after_the_timeout_is_ignored() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(12);
    spec.duration = None;
    let world = World::new(spec, answering(ms(5500))).run();
    assert_eq!(world.failures(FailureCause::ResponseTimeout), 12);
    assert_eq!(world.load.live().surplus, 0);
}
