//! HTTP/3: one handshake for connection and TLS, and requests before it is finished.

use std::time::Duration;

use load::{Action, ConnectionKey, HttpVersion, Load, LoadSpec, Retry, StreamFailure, StreamKey, Target, Workload};
use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use crate::world::{at, constant, ms, spec};

fn http3(requests: u64) -> LoadSpec {
    let mut spec = spec(constant(10.0));
    spec.workload = Workload::of([Target::parse("https://server/").unwrap()]);
    spec.version = HttpVersion::Http3;
    spec.streams_max = 100;
    spec.requests_max = Some(requests);
    spec.duration = None;
    spec.clients = 1;
    spec
}

fn connect(load: &mut Load, now: Timestamp) -> ConnectionKey {
    load.handle_time(now);
    match load.poll_action(now) {
        Some(Action::Connect { key, .. }) => key,
        other => panic!("{other:?}"),
    }
}

fn open(load: &mut Load, now: Timestamp) -> StreamKey {
    match load.poll_action(now) {
        Some(Action::Open { stream, .. }) => stream,
        other => panic!("{other:?}"),
    }
}

fn secured(load: &mut Load, now: Timestamp, key: ConnectionKey) {
    load.handle_connected(now, key);
    load.handle_secured(now, key);
}

fn respond(load: &mut Load, now: Timestamp, stream: StreamKey) {
    load.handle_stream_bytes(now, stream, 40, true);
    load.handle_stream_head(stream, 200, b"");
    load.handle_stream_end(now, stream);
}

fn records(load: &mut Load) -> Vec<RequestRecord> {
    let mut records = Vec::new();
    load.take_records(&mut records);
    records
}

#[test]
fn connection_and_tls_are_established_together() {
    let mut load = Load::new(http3(1), Timestamp::ZERO);
    let key = connect(&mut load, at(ms(0)));
    assert!(load.poll_action(at(ms(0))).is_none(), "the request waits for the handshake");
    secured(&mut load, at(ms(62)), key);
    let stream = open(&mut load, at(ms(62)));
    load.handle_stream_opened(stream, 0);
    load.handle_stream_sent(at(ms(62)), stream, 30, true);
    respond(&mut load, at(ms(124)), stream);
    let record = &records(&mut load)[0];
    assert_eq!((record.connected_at, record.secured_at), (Some(at(ms(62))), Some(at(ms(62)))));
    assert_eq!((record.connect_ns(), record.tls_handshake_ns()), (Some(62_000_000), None));
    assert_eq!((record.stream, record.done_at, record.failure), (Some(0), at(ms(124)), None));
}

#[test]
fn early_data_is_sent_before_the_handshake_is_finished() {
    let mut load = Load::new(http3(1), Timestamp::ZERO);
    let key = connect(&mut load, at(ms(0)));
    load.handle_early_data(at(ms(0)), key);
    load.handle_stream_limit(at(ms(0)), key, 100);
    let stream = open(&mut load, at(ms(0)));
    load.handle_stream_opened(stream, 0);
    load.handle_stream_sent(at(ms(0)), stream, 30, true);
    secured(&mut load, at(ms(62)), key);
    respond(&mut load, at(ms(62)), stream);
    let record = &records(&mut load)[0];
    assert_eq!((record.sent_at, record.connected_at), (Some(at(ms(0))), Some(at(ms(62)))));
    assert_eq!((record.first_byte_at, record.done_at), (Some(at(ms(62))), at(ms(62))));
    // A connection reports its handshake once.
    secured(&mut load, at(ms(70)), key);
    load.abort(at(ms(80)));
    assert!(matches!(load.poll_action(at(ms(80))), Some(Action::Close { .. })));
    let mut ends = Vec::new();
    load.take_connections(&mut ends);
    assert_eq!((ends[0].connected_at, ends[0].secured_at), (Some(at(ms(62))), Some(at(ms(62)))));
}

#[test]
fn rejected_early_data_is_sent_once_more() {
    for retry in [Retry::IdleRace, Retry::Never] {
        let mut load = Load::new(LoadSpec { retry, ..http3(1) }, Timestamp::ZERO);
        let key = connect(&mut load, at(ms(0)));
        load.handle_early_data(at(ms(0)), key);
        let stream = open(&mut load, at(ms(0)));
        load.handle_stream_sent(at(ms(0)), stream, 30, true);
        load.handle_stream_failure(at(ms(62)), stream, StreamFailure::Refused);
        secured(&mut load, at(ms(62)), key);
        if retry == Retry::IdleRace {
            let again = open(&mut load, at(ms(62)));
            load.handle_stream_sent(at(ms(62)), again, 30, true);
            respond(&mut load, at(ms(124)), again);
        }
        let record = &records(&mut load)[0];
        match retry {
            Retry::IdleRace => {
                assert_eq!((record.failure, record.attempts, record.done_at), (None, 2, at(ms(124))));
                assert_eq!(load.live().retried, 1);
            }
            Retry::Never => assert_eq!(record.failure, Some(FailureCause::StreamReset)),
        }
    }
}

#[test]
fn a_handshake_that_fails_after_early_data_fails_its_requests() {
    let mut load = Load::new(http3(1), Timestamp::ZERO);
    let key = connect(&mut load, at(ms(0)));
    load.handle_early_data(at(ms(0)), key);
    let stream = open(&mut load, at(ms(0)));
    load.handle_stream_sent(at(ms(0)), stream, 30, true);
    load.handle_failure(at(ms(62)), key, FailureCause::VersionNegotiation);
    assert_eq!(records(&mut load)[0].failure, Some(FailureCause::VersionNegotiation));
}

#[test]
fn a_handshake_without_end_fails_at_the_connect_timeout() {
    let mut load = Load::new(http3(1), Timestamp::ZERO);
    connect(&mut load, at(ms(0)));
    load.handle_time(at(Duration::from_secs(3)));
    let record = &records(&mut load)[0];
    assert_eq!((record.failure, record.done_at), (Some(FailureCause::ConnectTimeout), at(Duration::from_secs(3))));
}

#[test]
fn streams_from_the_goaway_identifier_on_move_to_another_connection() {
    let mut load = Load::new(http3(3), Timestamp::ZERO);
    let key = connect(&mut load, at(ms(0)));
    secured(&mut load, at(ms(20)), key);
    let mut streams = vec![open(&mut load, at(ms(20)))];
    for arrival in [100, 200] {
        load.handle_time(at(ms(arrival)));
        streams.push(open(&mut load, at(ms(arrival))));
    }
    for (stream, number) in streams.iter().zip([0, 4, 8]) {
        load.handle_stream_opened(*stream, number);
    }
    load.handle_goaway(at(ms(210)), key, 4, false);
    assert_eq!(load.live().retried, 2, "streams 4 and 8");
    assert!(matches!(load.poll_action(at(ms(210))), Some(Action::Connect { .. })));
    respond(&mut load, at(ms(220)), streams[0]);
    assert_eq!(records(&mut load)[0].failure, None);
}
