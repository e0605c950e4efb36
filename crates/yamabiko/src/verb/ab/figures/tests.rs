use units::Timestamp;

use super::*;

fn at(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1000)
}

/// A complete response of 200 bytes with a head of 50, on a new connection.
fn complete() -> RequestRecord {
    RequestRecord {
        sequence: 0,
        client: 0,
        connection: Some(0),
        session: None,
        url: 0,
        stream: None,
        scheduled_at: at(0),
        started_at: Some(at(10)),
        connected_at: Some(at(30)),
        secured_at: None,
        sent_at: Some(at(35)),
        first_byte_at: Some(at(100)),
        done_at: at(150),
        status: 200,
        bytes_received: 200,
        head_bytes: 50,
        keep_alive: true,
        bytes_sent: 80,
        attempts: 1,
        early_response: false,
        queued: false,
        failure: None,
    }
}

fn failed_with(cause: FailureCause) -> RequestRecord {
    RequestRecord { failure: Some(cause), keep_alive: false, ..complete() }
}

#[test]
fn ab_times_of_a_request_are_split_as_by_ab() {
    let us = |times: RequestTimes| {
        [times.connect_ns, times.processing_ns(), times.waiting_ns, times.total_ns].map(|ns| ns / 1000)
    };
    assert_eq!(us(times(&complete()).unwrap()), [20, 120, 65, 140]);
    let secured = RequestRecord { secured_at: Some(at(33)), ..complete() };
    assert_eq!(us(times(&secured).unwrap()), [23, 117, 65, 140], "the TLS handshake counts as connecting");
    let open = RequestRecord { connected_at: None, ..complete() };
    assert_eq!(us(times(&open).unwrap()), [0, 140, 65, 140]);
    let unanswered = RequestRecord { first_byte_at: None, ..failed_with(FailureCause::ResponseTimeout) };
    assert_eq!(
        us(times(&unanswered).unwrap()),
        [20, 120, 115, 140],
        "a request without a response waits until its timeout"
    );
    let refused = RequestRecord {
        connected_at: None,
        sent_at: None,
        first_byte_at: None,
        bytes_sent: 0,
        ..failed_with(FailureCause::ConnectRefused)
    };
    assert_eq!(us(times(&refused).unwrap()), [140, 0, 0, 140], "a refused request spends its whole time connecting");
    assert_eq!(times(&RequestRecord { started_at: None, ..refused }), None);
}

#[test]
fn ab_counts_each_failure_once() {
    let longer = RequestRecord { bytes_received: 201, ..complete() };
    let records = [
        complete(),
        longer,
        failed_with(FailureCause::ClosedEarly),
        failed_with(FailureCause::Reset),
        failed_with(FailureCause::ConnectRefused),
        failed_with(FailureCause::Malformed),
    ];
    let counted = Failed { connect: 1, receive: 1, length: 2, exceptions: 1 };
    assert_eq!(failed(&records, Some(document_bytes(&records))), counted);
    assert_eq!(
        failed(&records, None),
        Failed { length: 1, ..counted },
        "lengths may vary, truncated bodies are failures"
    );
}

#[test]
fn ab_document_is_the_first_complete_response() {
    let head_only = RequestRecord { bytes_received: 50, ..complete() };
    assert_eq!(document_bytes(&[failed_with(FailureCause::ClosedEarly), complete(), head_only]), 150);
    assert_eq!(document_bytes(&[head_only]), 0);
    assert_eq!(document_bytes(&[]), 0);
}

#[test]
fn ab_ignores_requests_in_flight_at_the_end() {
    let late = RequestRecord { done_at: at(1001), ..complete() };
    let edge = RequestRecord { done_at: at(1000), ..complete() };
    let remaining = ended_within(vec![complete(), late, edge, failed_with(FailureCause::Aborted)], 0.001);
    assert_eq!(remaining, [complete(), edge]);
    assert!(ended_within(Vec::new(), 1.0).is_empty());
}

#[test]
fn ab_server_software_is_the_first_word_of_the_header() {
    assert_eq!(software(b"HTTP/1.1 200 OK\r\nSERVER: Apache/2.4 (Debian)\r\n\r\n"), "Apache/2.4");
    assert_eq!(software(b"HTTP/1.1 200 OK\r\nX: Server: no\r\n\r\n"), "");
    assert_eq!(software(b"HTTP/1.1 200 OK\r\nServer:\r\n\r\n"), "");
    assert_eq!(software(b""), "");
}

#[test]
fn ab_unsent_request_is_a_write_error() {
    assert!(is_write_error(&RequestRecord { sent_at: None, ..failed_with(FailureCause::Reset) }));
    assert!(!is_write_error(&failed_with(FailureCause::Reset)));
    assert!(!is_write_error(&complete()));
}
