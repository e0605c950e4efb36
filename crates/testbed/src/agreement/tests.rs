//! Handmade records of both vantage points: what pairs, what does not, and the resulting times.

use std::time::Duration;

use proptest::prelude::*;
use schema::{ConnectionState, FailureCause, Framing, RecordEnd, Sent};

use super::*;
use crate::topology::target::Routing;
use validity::evidence::Agreed;

const RTT: u64 = 48;

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// The load's request on a connection: started, done; `fresh` if the connection was opened for it.
fn load(connection: u64, started: u64, done: u64, fresh: bool) -> RequestRecord {
    RequestRecord {
        sequence: started,
        client: 3,
        connection: Some(connection),
        session: None,
        url: 0,
        stream: None,
        scheduled_at: at(started),
        started_at: Some(at(started)),
        connected_at: fresh.then(|| at(started + RTT)),
        secured_at: None,
        sent_at: Some(at(started)),
        first_byte_at: Some(at(done)),
        done_at: at(done),
        status: 200,
        bytes_received: 1000,
        head_bytes: 200,
        keep_alive: true,
        bytes_sent: 100,
        attempts: 1,
        early_response: false,
        queued: false,
        failure: None,
    }
}

/// The load's call of connect to the first server.
fn connect_call(connection: u64, client: u32, port: u16) -> ConnectCall {
    ConnectCall { connection, client, port, server: "198.18.0.1".parse().unwrap() }
}

/// The captured request on a connection: first byte of the request, last byte of the response.
fn wire(connection: u64, index: u32, port: u16, first: u64, last: u64) -> WireRequest {
    WireRequest {
        connection,
        client: format!("198.19.0.4:{port}").parse().unwrap(),
        server: "198.18.0.1:80".parse().unwrap(),
        index,
        request_first_at: Some(at(first)),
        request_last_at: Some(at(first)),
        response_first_at: Some(at(last)),
        response_last_at: Some(at(last)),
        method: None,
        host: None,
        path: None,
        minor_version: None,
        http_version: 1,
        stream: None,
        referer: None,
        user_agent: None,
        status: Some(200),
        request_bytes: 100,
        response_bytes: 1000,
        framing: Framing::Exact,
        complete: true,
    }
}

/// The captured connection, opened by a SYN.
fn connection(number: u64, port: u16, syn: u64) -> ConnectionRecord {
    ConnectionRecord {
        connection: number,
        client: format!("198.19.0.4:{port}").parse().unwrap(),
        client_index: Some(3),
        server: "198.18.0.1:80".parse().unwrap(),
        roles_seen: true,
        syn_at: Some(at(syn)),
        syn_ack_at: None,
        ack_at: None,
        handshake_rtt_ns: None,
        server_rtt_ns: None,
        first_at: at(syn),
        last_at: at(syn),
        first_data_at: None,
        last_data_at: None,
        closed_at: None,
        open_until: at(syn),
        state: ConnectionState::SF,
        end: RecordEnd::Closed,
        up: Sent::default(),
        down: Sent::default(),
        fragments: 0,
        requests: 1,
        server_name: None,
    }
}

fn agreement() -> Agreement {
    Agreement::new(at(100), vec![RTT * 1_000_000; 8])
}

#[test]
fn a_request_on_a_persistent_connection_takes_one_rtt_and_on_a_new_one_counts_from_its_syn() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    // Opened at 200: SYN at the server 24 later, ACK and request 48 after that, 10 of service, 24 back.
    agreement.load_request(&load(0, 200, 306, true));
    agreement.wire_request(3, &wire(0, 0, 5000, 272, 282));
    // On the persistent connection: first write at 400, at the server 424, 10 of service, 24 back.
    agreement.wire_request(3, &wire(0, 1, 5000, 424, 434));
    agreement.load_request(&load(0, 400, 458, false));
    agreement.wire_connection(&connection(0, 5000, 224));
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.unaccounted(), agreed.differences.count()), (2, 0, 2));
    assert_eq!((agreed.differences.median_ns(), agreed.differences.magnitudes().p99), (0.0, 0));
    assert_eq!(agreed.connections_unaccounted(), 0);
}

/// An idle open connection: its first request finds it open.
#[test]
fn the_first_request_of_an_idle_open_connection_is_timed_from_its_first_byte() {
    for wire_first in [false, true] {
        let mut agreement = agreement();
        agreement.load_connect_call(&connect_call(0, 3, 5000));
        agreement.wire_request(3, &wire(0, 0, 5000, 424, 434));
        if wire_first {
            agreement.wire_connection(&connection(0, 5000, 224));
        }
        agreement.load_request(&load(0, 400, 458, false));
        if !wire_first {
            agreement.wire_connection(&connection(0, 5000, 224));
        }
        let agreed = agreement.finish();
        assert_eq!((agreed.both, agreed.differences.count(), agreed.differences.median_ns()), (1, 1, 0.0));
    }
}

/// Inside TLS no request of the load has a partner, and none may wait for one.
#[test]
fn inside_tls_connections_are_counted_without_requests() {
    let mut agreement = agreement().connections_only();
    for number in 0..3 {
        agreement.load_connect_call(&connect_call(number, 3, 5000 + number as u16));
        agreement.load_request(&load(number, 200, 306, true));
        agreement.wire_connection(&connection(number, 5000 + number as u16, 224));
    }
    assert_eq!(agreement.waiting_records, 0);
    let agreed = agreement.finish();
    assert_eq!((agreed.load_called, agreed.wire_opened, agreed.unaccounted()), (3, 3, 0));
    assert!(!agreed.overflowed);
}

/// Streams of one connection overlap; a request that waited for its stream counts from its last byte.
#[test]
fn concurrent_streams_are_paired_by_number_and_timed_from_the_last_byte_of_the_request() {
    let streams = [0, 4, 8];
    let on_stream = |stream: u32, started: u64, sent: u64, done: u64| RequestRecord {
        stream: Some(stream),
        sent_at: Some(at(sent)),
        ..load(0, started, done, stream == 0)
    };
    let captured = |stream: u32, sent: u64, last: u64| WireRequest {
        stream: Some(stream.into()),
        http_version: 3,
        ..wire(0, stream / 4, 5000, sent, last)
    };
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    // All wait for the handshake that begins at 200; the responses come in the reverse order.
    for (stream, service) in streams.into_iter().zip([30, 20, 10]) {
        agreement.load_request(&on_stream(stream, 200, 250, 250 + service + RTT));
        agreement.wire_request(3, &captured(stream, 274, 274 + service));
    }
    // A request that was sent twice, or in several packets, has no single time.
    agreement.load_request(&RequestRecord { attempts: 2, ..on_stream(12, 300, 400, 458) });
    agreement.wire_request(3, &captured(12, 324, 434));
    agreement.load_request(&RequestRecord { bytes_sent: ONE_PACKET + 1, ..on_stream(16, 300, 320, 458) });
    agreement.wire_request(3, &captured(16, 374, 434));
    agreement.wire_quic_connection();
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.unaccounted(), agreed.differences.count()), (5, 0, 3));
    assert_eq!((agreed.differences.median_ns(), agreed.differences.magnitudes().p99), (0.0, 0));
    assert_eq!((agreed.wire_opened, agreed.load_called), (1, 1));
}

/// A capture that lost a stream, has one of another connection, or read another status.
#[test]
fn streams_that_differ_between_the_vantage_points_are_counted() {
    let on_stream = |stream: u32| RequestRecord { stream: Some(stream), ..load(0, 200, 300, false) };
    let captured =
        |port: u16, stream: u64| WireRequest { stream: Some(stream), http_version: 2, ..wire(0, 0, port, 224, 276) };
    let differences = |wires: &[WireRequest]| {
        let mut agreement = agreement();
        agreement.load_connect_call(&connect_call(0, 3, 5000));
        [1, 3].into_iter().for_each(|stream| agreement.load_request(&on_stream(stream)));
        wires.iter().for_each(|wire| agreement.wire_request(3, wire));
        let agreed = agreement.finish();
        (agreed.both, agreed.unaccounted(), agreed.status_differs, agreed.sends_unaccounted())
    };
    assert_eq!(differences(&[captured(5000, 1), captured(5000, 3)]), (2, 0, 0, 0));
    assert_eq!(differences(&[captured(5000, 1)]), (1, 1, 0, 1), "the capture lost packets of a stream");
    assert_eq!(differences(&[captured(5000, 1), captured(5000, 5)]), (1, 2, 0, 0), "another stream");
    assert_eq!(differences(&[captured(5000, 1), captured(6000, 3)]), (1, 2, 0, 0), "another connection");
    let other = WireRequest { status: Some(500), ..captured(5000, 3) };
    assert_eq!(differences(&[captured(5000, 1), other]), (2, 0, 1, 0));
    let extra = [captured(5000, 1), captured(5000, 3), captured(5000, 7)];
    assert_eq!(differences(&extra), (2, 1, 0, 1), "the load did not send it");
}

/// Two servers behind one name, one of them at a loopback address: one port of a client may connect to both at the same
/// time.
#[test]
fn one_port_to_two_servers_is_two_connections() {
    let second = |text: &str| text.parse::<IpAddr>().unwrap();
    let rewritten =
        Reach { configured: second("127.0.0.1"), connect: second("198.18.0.2"), routing: Routing::Rewritten };
    let mut agreement = agreement().with_servers(&[rewritten]);
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    agreement.load_connect_call(&ConnectCall { server: rewritten.connect, ..connect_call(1, 3, 5000) });
    // The second begins within the first and ends before it.
    agreement.load_request(&load(1, 300, 406, true));
    agreement.load_request(&load(0, 200, 506, true));
    let to_second = WireRequest { server: "127.0.0.1:80".parse().unwrap(), ..wire(1, 0, 5000, 372, 382) };
    agreement.wire_request(3, &wire(0, 0, 5000, 272, 482));
    agreement.wire_request(3, &to_second);
    agreement.wire_connection(&connection(0, 5000, 224));
    agreement.wire_connection(&ConnectionRecord { server: to_second.server, ..connection(1, 5000, 324) });
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.unaccounted(), agreed.connections_unaccounted()), (2, 0, 0));
    assert_eq!((agreed.differences.count(), agreed.differences.magnitudes().p99), (2, 0));
}

#[test]
fn a_reused_port_pairs_by_time() {
    let mut agreement = agreement();
    // The first request on the port is missing in the capture; pairing by order would shift all that follow.
    for (number, started) in [(0, 200), (1, 400), (2, 600)] {
        agreement.load_connect_call(&connect_call(number, 3, 5000));
        agreement.load_request(&load(number, started, started + 106, true));
    }
    for (number, started) in [(1, 400), (2, 600)] {
        agreement.wire_request(3, &wire(number, 0, 5000, started + 72, started + 82));
        agreement.wire_connection(&connection(number, 5000, started + 24));
    }
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.load_only, agreed.wire_only), (2, 1, 0));
    assert_eq!(agreed.differences.magnitudes().p99, 0);
    assert_eq!((agreed.unaccounted(), agreed.load_called, agreed.wire_opened), (1, 3, 2));
}

#[test]
fn a_captured_response_without_a_request_is_counted() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    agreement.load_request(&load(0, 200, 306, true));
    agreement.wire_request(3, &wire(0, 0, 5000, 272, 282));
    agreement.wire_request(3, &WireRequest { request_first_at: None, ..wire(0, 1, 5000, 0, 320) });
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.wire_only, agreed.unaccounted()), (1, 1, 1));
}

#[test]
fn a_failed_request_explains_only_one_captured_response() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    let failed = RequestRecord { failure: Some(FailureCause::ResponseTimeout), ..load(0, 200, 300, true) };
    agreement.load_request(&failed);
    // The response came after the load's timeout.
    agreement.wire_request(3, &wire(0, 0, 5000, 272, 299));
    let agreed = agreement.finish();
    assert_eq!((agreed.failed_at_load, agreed.load_failed, agreed.unaccounted()), (1, 1, 0));
    let more = Agreed { wire_only: 1, ..agreed };
    assert_eq!(more.unaccounted(), 1);
}

#[test]
fn a_retried_request_is_counted_and_not_timed() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(7, 3, 6000));
    // The request began on a connection that the server had closed; its start stays, and it has no connect of its own.
    agreement.load_request(&load(7, 200, 400, false));
    agreement.wire_request(3, &wire(9, 0, 6000, 366, 376));
    agreement.wire_connection(&connection(9, 6000, 318));
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.differences.count(), agreed.unaccounted()), (1, 0, 0));
}

#[test]
fn a_captured_request_with_an_unknown_end_agrees_with_the_load() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    agreement.load_request(&load(0, 200, 306, true));
    // Chunks beyond the snap length, and a server that did not close before the capture ended.
    let unread = WireRequest { framing: Framing::ByDirection, complete: false, ..wire(0, 0, 5000, 272, 282) };
    agreement.wire_request(3, &unread);
    agreement.wire_connection(&connection(0, 5000, 224));
    // A captured response with one byte less cannot be the one that the load received.
    agreement.load_connect_call(&connect_call(1, 3, 5001));
    agreement.load_request(&load(1, 200, 306, true));
    let unanswered = WireRequest { complete: false, response_bytes: 999, ..wire(1, 0, 5001, 272, 282) };
    agreement.wire_request(3, &unanswered);
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.load_only, agreed.differences.count()), (1, 1, 1));
    assert_eq!(agreed.differences.median_ns(), 0.0);
}

#[test]
fn a_408_response_on_an_idle_connection_is_ignored() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    agreement.load_request(&load(0, 200, 306, true));
    agreement.wire_request(3, &wire(0, 0, 5000, 272, 282));
    let timeout_response = WireRequest { request_first_at: None, status: Some(408), ..wire(0, 1, 5000, 0, 5000) };
    agreement.wire_request(3, &timeout_response);
    assert_eq!(agreement.finish().unaccounted(), 0);
}

#[test]
fn requests_of_the_warm_up_are_counted_and_not_timed() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    agreement.load_request(&load(0, 10, 116, true));
    agreement.wire_request(3, &wire(0, 0, 5000, 82, 92));
    agreement.wire_connection(&connection(0, 5000, 34));
    let agreed = agreement.finish();
    assert_eq!((agreed.both, agreed.differences.count()), (1, 0));
}

#[test]
fn memory_is_bounded_if_one_vantage_point_has_no_records() {
    let mut agreement = agreement();
    agreement.load_connect_call(&connect_call(0, 3, 5000));
    for request in 0..WAITING_RECORDS_MAX as u64 + 1 {
        agreement.load_request(&load(0, 200 + 2 * request, 201 + 2 * request, false));
    }
    assert_eq!(agreement.waiting_records, 0);
    assert!(agreement.finish().overflowed);
}

/// A server that drops a request, and a load that retries it without counting: the capture has one more.
#[test]
fn requests_sent_are_compared_with_captured_requests() {
    let run = |attempts: u8, failure: Option<FailureCause>, on_the_wire: u32| {
        let mut agreement = agreement();
        agreement.load_connect_call(&connect_call(0, 3, 5000));
        agreement.load_request(&RequestRecord { attempts, failure, ..load(0, 200, 300, true) });
        (0..on_the_wire)
            .for_each(|index| agreement.wire_request(3, &wire(0, index, 5000, 210 + u64::from(index), 290)));
        agreement.finish().sends_unaccounted()
    };
    assert_eq!(run(1, None, 1), 0);
    assert_eq!(run(1, None, 2), 1, "the load retried a request without counting it");
    assert_eq!(run(1, None, 0), 1, "the load has a response without a captured request");
    // A retried or failed request may have reached the server's end, or not.
    assert_eq!((run(2, None, 1), run(2, None, 2), run(2, None, 3)), (0, 0, 1));
    let failed = Some(FailureCause::ClosedBeforeResponse);
    assert_eq!((run(1, failed, 0), run(1, failed, 1), run(1, failed, 2)), (0, 0, 1));
}

proptest! {
    /// A recorder without CPU time receives all records of one side before those of the other.
    #[test]
    fn connections_with_one_request_are_timed_in_any_order(order in proptest::collection::vec(any::<bool>(), 0..40)) {
        let mut agreement = agreement();
        let (mut loads, mut wires) = (0, 0);
        for is_load in order.into_iter().chain([true; 10]).chain([false; 10]) {
            let turn = if is_load { &mut loads } else { &mut wires };
            if *turn == 10 {
                continue;
            }
            let (number, started) = (*turn, 200 + 200 * *turn);
            *turn += 1;
            // Ports are reused.
            let port = 5000 + (number % 3) as u16;
            if is_load {
                agreement.load_connect_call(&connect_call(number, 3, port));
                agreement.load_request(&load(number, started, started + 106, true));
            } else {
                agreement.wire_request(3, &wire(number, 0, port, started + 72, started + 82));
                agreement.wire_connection(&connection(number, port, started + 24));
            }
        }
        prop_assert!(agreement.first_requests.is_empty() && agreement.waiting.is_empty());
        let agreed = agreement.finish();
        prop_assert_eq!((agreed.both, agreed.unaccounted(), agreed.differences.count()), (10, 0, 10));
        prop_assert_eq!(agreed.differences.magnitudes().p99, 0);
    }

    /// The same pairs result from any order of the records.
    #[test]
    fn pairs_do_not_depend_on_the_order_of_records(order in proptest::collection::vec(any::<bool>(), 0..80)) {
        let mut agreement = agreement();
        agreement.load_connect_call(&connect_call(0, 3, 5000));
        let (mut loads, mut wires) = (0, 0);
        let mut push = |is_load: bool, agreement: &mut Agreement| {
            if is_load && loads < 30 {
                agreement.load_request(&load(0, 200 + 100 * loads, 258 + 100 * loads, false));
                loads += 1;
            } else if wires < 30 {
                agreement.wire_request(3, &wire(0, 1 + wires as u32, 5000, 224 + 100 * wires, 234 + 100 * wires));
                wires += 1;
            } else if loads < 30 {
                agreement.load_request(&load(0, 200 + 100 * loads, 258 + 100 * loads, false));
                loads += 1;
            }
        };
        for is_load in order.into_iter().chain(std::iter::repeat_n(true, 60)) {
            push(is_load, &mut agreement);
        }
        let agreed = agreement.finish();
        prop_assert_eq!((agreed.both, agreed.unaccounted(), agreed.differences.count()), (30, 0, 30));
        prop_assert_eq!(agreed.differences.magnitudes().p99, 0);
    }
}
