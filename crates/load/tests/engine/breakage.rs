//! Failures of servers and sockets: every request ends once, with one cause.

use std::time::Duration;

use load::workload::Template;
use load::{Action, Arrivals, Load};
use schema::{FailureCause, Method};
use units::Timestamp;

use crate::world::*;

/// One request to a server that sends `replies`.
fn one(replies: &[(u64, Reply)]) -> World<impl Server + use<>> {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    let replies: Vec<_> = replies.iter().map(|(after, reply)| (ms(*after), reply.clone())).collect();
    World::new(spec, move |_: Timestamp, _: u32| replies.clone()).run()
}

fn bytes(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

#[test]
fn every_kind_of_failure_has_its_cause() {
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello";
    let cases: [(&[(u64, Reply)], FailureCause); 10] = [
        (&[(1, Reply::Fin)], FailureCause::ClosedBeforeResponse),
        (&[(1, Reply::Reset)], FailureCause::Reset),
        (&[(1, bytes(short)), (2, Reply::Fin)], FailureCause::ClosedEarly),
        (&[(1, bytes(short)), (2, Reply::Reset)], FailureCause::Reset),
        (&[(1, bytes("HTTP/1.1 100 Continue\r\n\r\n")), (2, Reply::Fin)], FailureCause::ClosedEarly),
        (&[(1, bytes("SSH-2.0-OpenSSH_9.2\r\n"))], FailureCause::Malformed),
        (&[(1, bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!"))], FailureCause::UnsolicitedData),
        (&[(1, bytes("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n"))], FailureCause::Malformed),
        (&[(1, bytes(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(65536))))], FailureCause::HeadTooLarge),
        (&[(1, bytes("HTTP/1.1 200 OK\r\nContent-Len")), (2, Reply::Fin)], FailureCause::ClosedEarly),
    ];
    for (replies, cause) in cases {
        let world = one(replies);
        assert_eq!(world.records.len(), 1);
        assert_eq!(world.records[0].failure, Some(cause), "{replies:?}");
        assert_eq!(world.ends.len(), 1);
    }
}

#[test]
fn malformed_responses_are_counted_by_reason_with_the_first_fault() {
    let mut spec = spec(constant(10.0));
    (spec.clients, spec.requests_max) = (1, Some(5));
    let mut lengths = ["+5", "-5", "5, 6", "5", "+6"].into_iter();
    let server = move |_: Timestamp, _: u32| {
        let length = lengths.next().unwrap();
        vec![(ms(1), bytes(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello")))]
    };
    let world = World::new(spec, server).run();
    let reasons = world.load.malformed_responses();
    let reasons: Vec<_> = reasons.iter().map(|part| (&*part.reason, part.count, &*part.first)).collect();
    assert_eq!(
        reasons,
        [
            ("content_length_not_a_number", 3, "Content-Length `+5` is not a number"),
            ("content_lengths_differ", 1, "Content-Length has the different values `5, 6`"),
        ]
    );
    assert_eq!((world.load.live().completed, world.load.live().failed), (1, 4));
    // A missing or truncated response is not malformed.
    assert!(one(&[(1, Reply::Fin)]).load.malformed_responses().is_empty());
    assert!(one(&[(1, bytes("HTTP/1.1 200 OK\r\n")), (2, Reply::Fin)]).load.malformed_responses().is_empty());
    let garbage = one(&[(1, bytes("SSH")), (2, Reply::Fin)]).load.malformed_responses();
    assert_eq!(garbage[0].first, "`SSH` is not the beginning of an HTTP/1 response");
    let large = one(&[(1, bytes(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(65536))))]).load.malformed_responses();
    assert_eq!(large[0].first, "head of more than `65536` bytes");
}

#[test]
fn a_truncated_body_keeps_the_status() {
    let world = one(&[(1, bytes("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnope")), (5, Reply::Fin)]);
    assert_eq!((world.records[0].status, world.records[0].failure), (404, Some(FailureCause::ClosedEarly)));
    let load = world.outcome(true, None, &["u"]).load;
    assert_eq!(load.status.get("404"), None, "only complete responses are counted by status");
    assert_eq!(load.failed["closed_early"], 1);
}

#[test]
fn an_error_status_is_a_completed_request() {
    let world = one(&[(1, bytes("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"))]);
    assert_eq!((world.records[0].status, world.records[0].failure), (503, None));
}

#[test]
fn unsolicited_bytes_close_the_connection() {
    let mut spec = spec(constant(10.0));
    spec.clients = 1;
    spec.requests_max = Some(3);
    let server = |_: Timestamp, _: u32| vec![(ms(1), Reply::Bytes(OK.to_vec())), (ms(20), bytes("surprise"))];
    let world = World::new(spec, server).run();
    let live = world.load.live();
    // All responses were complete, but they cannot be attributed to requests with certainty.
    assert_eq!((live.completed, live.surplus, live.untrusted), (3, 3, 3));
    assert_eq!(world.connects.len(), 3);
}

/// An empty line after a response is skipped and counted, whether it arrives with the body or later.
#[test]
fn stray_empty_lines_are_skipped_and_counted() {
    let with_the_body = [OK, b"\r\n"].concat();
    let scripts: [Vec<(Duration, Reply)>; 3] = [
        vec![(ms(1), Reply::Bytes(with_the_body))],
        vec![(ms(1), Reply::Bytes(OK.to_vec())), (ms(6), bytes("\r\n"))],
        vec![(ms(1), Reply::Bytes(OK.to_vec())), (ms(6), bytes("\r")), (ms(7), bytes("\n"))],
    ];
    for script in scripts {
        let mut spec = spec(constant(10.0));
        (spec.clients, spec.requests_max) = (1, Some(5));
        let world = World::new(spec, move |_: Timestamp, _: u32| script.clone()).run();
        let live = world.load.live();
        assert_eq!((live.completed, live.surplus, live.stray_lines, world.connects.len()), (5, 0, 5, 1));
    }
    // In a closed loop the empty line arrives after the next request was sent, and is not the first byte of its
    // response.
    let mut spec = spec(Arrivals::Closed);
    (spec.connections_max, spec.requests_max, spec.duration) = (1, Some(5), None);
    let late = |_: Timestamp, _: u32| vec![(ms(5), Reply::Bytes(OK.to_vec())), (ms(6), bytes("\r\n"))];
    let world = World::new(spec, late).run();
    let live = world.load.live();
    assert_eq!((live.completed, live.surplus, live.stray_lines), (5, 0, 5));
    assert!(world.records[1..].iter().all(|record| record.first_byte_at.unwrap() == record.done_at));
}

#[test]
fn a_request_written_in_pieces_is_sent_with_its_last_piece() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    spec.workload.requests[0].method = Method::Post;
    spec.workload.requests[0].body = Template::bytes(&[b'x'; 100]);
    let mut load = Load::new(spec, Timestamp::ZERO);
    let now = |nanos| Timestamp::from_nanos(nanos);
    load.handle_time(now(0));
    let Some(Action::Connect { key, .. }) = load.poll_action(now(0)) else { panic!("the first action is a Connect") };
    load.handle_connected(now(10), key);
    let Some(Action::Send { bytes, .. }) = load.poll_action(now(11)) else { panic!("the second action is a Send") };
    let whole = bytes.to_vec();
    load.handle_sent(now(12), key, whole.len() - 100);
    assert_eq!(load.unsent(key), vec![b'x'; 100]);
    load.handle_sent(now(20), key, 99);
    assert_eq!(load.unsent(key), b"x");
    load.handle_sent(now(30), key, 1);
    assert!(load.unsent(key).is_empty());
    load.handle_bytes(now(40), key, OK);
    let mut records = Vec::new();
    load.take_records(&mut records);
    assert_eq!((records[0].sent_at, records[0].bytes_sent), (Some(now(30)), whole.len() as u64));
}

/// A response such as 413 before the server has read the body completes the request and closes the connection.
#[test]
fn a_response_before_the_request_was_written_ends_the_connection() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    spec.workload.requests[0].method = Method::Post;
    spec.workload.requests[0].body = Template::bytes(&[b'x'; 100]);
    let mut load = Load::new(spec, Timestamp::ZERO);
    load.handle_time(Timestamp::ZERO);
    let Some(Action::Connect { key, .. }) = load.poll_action(Timestamp::ZERO) else {
        panic!("the first action is a Connect")
    };
    load.handle_connected(at(ms(1)), key);
    assert!(matches!(load.poll_action(at(ms(1))), Some(Action::Send { .. })));
    load.handle_sent(at(ms(1)), key, 50);
    load.handle_bytes(at(ms(2)), key, OK);
    assert_eq!(load.poll_action(at(ms(2))), Some(Action::Close { key }));
    assert_eq!(load.live().completed, 1);
}

#[test]
fn a_long_body_can_be_discarded_unread() {
    let mut spec = spec(constant(1.0));
    spec.requests_max = Some(1);
    let mut load = Load::new(spec, Timestamp::ZERO);
    load.handle_time(Timestamp::ZERO);
    let Some(Action::Connect { key, .. }) = load.poll_action(Timestamp::ZERO) else {
        panic!("the first action is a Connect")
    };
    load.handle_connected(at(ms(1)), key);
    assert_eq!(load.discardable(key), 0);
    assert!(matches!(load.poll_action(at(ms(1))), Some(Action::Send { .. })));
    let length = load.unsent(key).len();
    load.handle_sent(at(ms(1)), key, length);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc";
    load.handle_bytes(at(ms(2)), key, head);
    assert_eq!(load.discardable(key), 999_997);
    load.handle_discarded(at(ms(3)), key, 999_990);
    assert_eq!(load.live().completed, 0);
    load.handle_discarded(at(ms(4)), key, 7);
    let mut records = Vec::new();
    load.take_records(&mut records);
    assert_eq!(records[0].bytes_received, head.len() as u64 - 3 + 1_000_000);
    assert_eq!((records[0].done_at, records[0].failure), (at(ms(4)), None));
}

#[test]
fn failures_of_the_local_machine_have_their_own_causes() {
    for cause in
        [FailureCause::NoPorts, FailureCause::NoDescriptors, FailureCause::LocalError, FailureCause::ConnectFailed]
    {
        let mut spec = spec(constant(1.0));
        spec.requests_max = Some(1);
        let mut load = Load::new(spec, Timestamp::ZERO);
        load.handle_time(Timestamp::ZERO);
        let Some(Action::Connect { key, .. }) = load.poll_action(Timestamp::ZERO) else {
            panic!("the first action is a Connect")
        };
        load.handle_failure(Timestamp::ZERO, key, cause);
        assert_eq!(load.poll_action(Timestamp::ZERO), Some(Action::Close { key }));
        let mut records = Vec::new();
        load.take_records(&mut records);
        assert_eq!(records[0].failure, Some(cause));
        // The key is void now: later events are ignored.
        load.handle_connected(at(ms(1)), key);
        load.handle_bytes(at(ms(1)), key, b"x");
        load.handle_eof(at(ms(1)), key);
        load.handle_failure(at(ms(1)), key, cause);
        assert_eq!(load.poll_action(at(ms(1))), None);
        assert_eq!((load.live().failed, load.live().connections), (1, 0));
    }
}

#[test]
fn a_server_that_closes_every_connection_does_not_delay_the_schedule() {
    let mut spec = spec(constant(100.0));
    spec.connections_max = 5;
    let world = World::new(spec, |_: Timestamp, _: u32| vec![(Duration::ZERO, Reply::Fin)]).run();
    assert_eq!(world.failures(FailureCause::ClosedBeforeResponse), 1000);
    assert_eq!(world.load.live().cap_hits, 0);
}
