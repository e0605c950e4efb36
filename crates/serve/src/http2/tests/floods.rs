//! Hostile clients: what they can make the server do or store is bounded.

use super::*;
use crate::dynamic::RelayCall;
use crate::http2::{IDLE_FRAMES_MAX, RESETS_MAX, SECTION_BYTES_MAX, SECTION_FRAMES_MAX, STREAMS_MAX};

/// Sends `bytes(n)` for n = 0, 1 .. until the server ends the connection; returns the number.
fn until_over(test: &mut TestConnection, most: usize, bytes: impl Fn(usize) -> Vec<u8>) -> usize {
    for number in 0..most {
        test.send(&bytes(number));
        if test.connection.step() == Step::SendFin {
            return number;
        }
    }
    panic!("the server accepts {most}");
}

/// CVE-2023-44487.
#[test]
fn a_client_that_resets_its_requests_is_disconnected() {
    let mut test = TestConnection::with(&[]);
    let ended = until_over(&mut test, 1000, |number| {
        let stream = 2 * number as u32 + 1;
        [get(stream, "/app"), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    assert_eq!(ended, RESETS_MAX as usize);
    test.assert_over(ErrorCode::EnhanceYourCalm, "rapid reset");
    // Each exchange was cancelled.
    let (mut begun, mut cancelled) = (0, 0);
    while let Some(call) = test.relay.next() {
        begun += usize::from(matches!(call, RelayCall::RelayRequest(_)));
        cancelled += usize::from(call == RelayCall::Cancel);
    }
    assert_eq!((begun, cancelled), (ended + 1, ended + 1));
    // A client that also completes requests may give up as many.
    let mut test = TestConnection::with(&[]);
    for number in 0..1000 {
        let stream = 4 * number + 1;
        test.send(&get(stream, "/app"));
        test.send(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        test.send(&get(stream + 2, "/6"));
    }
    assert_eq!(test.connection.step(), Step::Receive);
}

#[test]
fn requests_beyond_the_limit_of_streams_are_refused() {
    let mut test = TestConnection::with(&[]);
    for number in 0..STREAMS_MAX as u32 {
        test.send(&get(2 * number + 1, "/app"));
    }
    assert_eq!(test.frames(), []);
    let next = 2 * STREAMS_MAX as u32 + 1;
    test.send(&get(next, "/6"));
    let frames = test.frames();
    assert_eq!(
        (frames[0].kind, frames[0].stream, frames[0].code()),
        (RST_STREAM, next, ErrorCode::RefusedStream as u32)
    );
    // A free place is used again.
    test.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    test.send(&get(next + 2, "/6"));
    assert_eq!(test.response(next + 2).0, 200);
    let ended = until_over(&mut test, 1000, |number| {
        [get(next + 4 + 4 * number as u32, "/app"), get(next + 6 + 4 * number as u32, "/app")].concat()
    });
    assert!(ended < RESETS_MAX as usize, "{ended}");
    test.assert_over(ErrorCode::EnhanceYourCalm, "endless refused requests");
}

/// CVE-2024-27316.
#[test]
fn a_field_section_without_end_ends_the_connection() {
    for (piece, most) in
        [(0, SECTION_FRAMES_MAX), (1, SECTION_FRAMES_MAX), (FRAME_BYTES_MAX, SECTION_BYTES_MAX / FRAME_BYTES_MAX)]
    {
        let mut test = TestConnection::with(&[]);
        test.send(&frame(HEADERS, 0, 1, b""));
        let ended = until_over(&mut test, 100, |_| frame(CONTINUATION, 0, 1, &vec![0; piece]));
        assert!(ended <= most, "{piece}: {ended}");
        test.assert_over(ErrorCode::EnhanceYourCalm, "a section without end");
    }
}

#[test]
fn frames_without_use_are_limited() {
    for (why, bytes) in [
        ("PING", frame(PING, 0, 0, &[1; 8])),
        ("PING ACK", frame(PING, ACK, 0, &[1; 8])),
        ("SETTINGS", settings_frame(&[])),
        ("SETTINGS ACK", frame(SETTINGS, ACK, 0, b"")),
        ("PRIORITY", frame(PRIORITY, 0, 9, &[0; 5])),
        ("WINDOW_UPDATE", window_frame(0, 1)),
        ("empty DATA", frame(DATA, 0, 1, b"")),
        ("an unknown frame", frame(0x77, 0, 1, b"")),
    ] {
        let mut test = TestConnection::with(&[]);
        test.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/app", &[])));
        let ended = until_over(&mut test, 2000, |_| bytes.clone());
        assert!(ended.abs_diff(IDLE_FRAMES_MAX as usize) <= 2, "{why}: {ended}");
        test.assert_over(ErrorCode::EnhanceYourCalm, why);
    }
    // With requests between them they are not counted.
    let mut test = TestConnection::with(&[]);
    for number in 0..3000 {
        test.send(&[frame(PING, 0, 0, &[1; 8]), get(2 * number + 1, "/6"), window_frame(0, 6)].concat());
    }
    assert_eq!(test.connection.step(), Step::Receive);
}

/// A client that reads nothing: neither acknowledgements nor responses are collected without bound.
#[test]
fn the_output_for_a_client_that_does_not_read_is_bounded() {
    let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
    let mut input = window_frame(0, 1 << 30);
    for number in 0..120u32 {
        input.extend(get(2 * number + 1, "/300000"));
        input.extend(frame(PING, 0, 0, &[1; 8]));
    }
    for piece in input.chunks(1000) {
        if test.connection.step() == Step::Receive {
            test.connection.take(&mut test.context, piece);
            test.connection.settle(&mut test.context);
        }
    }
    assert!(test.context.backlog.bytes() < 150_000, "{}", test.context.backlog.bytes());
}

/// With a closed window nothing of a response is kept but its place in the file.
#[test]
fn responses_that_the_windows_do_not_permit_use_no_buffers() {
    let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, 0)]);
    for number in 0..100 {
        test.send(&get(2 * number + 1, "/20000"));
        test.send(&get(2 * number + 1001, "/6"));
        test.send(&frame(RST_STREAM, 0, 2 * number + 1001, &[0; 4]));
    }
    assert!(test.context.backlog.bytes() < 1000, "{}", test.context.backlog.bytes());
}

#[test]
fn a_long_head_gets_431_and_the_connection_goes_on() {
    let mut test = TestConnection::with(&[]);
    let long = "v".repeat(9000);
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", "/6", &[("a", &long)])));
    assert_eq!(test.response(1).0, 431);
    let many: Vec<(&str, &str)> = (0..150).map(|_| ("a", "b")).collect();
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &request("GET", "/6", &many)));
    assert_eq!(test.response(3).0, 431);
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &request("GET", &format!("/{long}"), &[])));
    assert_eq!(test.response(5).0, 414);
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 7, &request("HEAD", "/6", &[("a", &long)])));
    assert_eq!(test.response(7).2, b"");
    // An index of one byte for a field of 4 KB: the head grows, the memory does not.
    let mut bomb = request("GET", "/6", &[]);
    bomb.extend([0x40, 1, b'b', 0x7f, 0x81, 0x1e]);
    bomb.extend([b'v'; 3968]);
    bomb.extend([0xbe; 10_000]);
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 9, &bomb));
    assert_eq!(test.response(9).0, 431);
    test.send(&get(11, "/6"));
    assert_eq!(test.response(11).0, 200);
}
