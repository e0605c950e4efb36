//! Malformed frames, frames in a wrong state, and the error code of each (RFC 9113).

use super::*;

#[derive(Clone, Copy, Debug)]
enum Expected {
    Connection(ErrorCode),
    Stream(ErrorCode),
    Nothing,
}

use ErrorCode::*;
use Expected::{Connection as Ends, Nothing, Stream as Resets};

/// Stream 1 is closed, stream 3 waits for the rest of its content, stream 5 for the relay.
fn case(why: &str, bytes: Vec<u8>, expected: Expected) {
    let mut test = TestConnection::with(&[]);
    test.send(&get(1, "/6"));
    test.send(&frame(HEADERS, END_HEADERS, 3, &request("POST", "/app", &[])));
    test.send(&get(5, "/app"));
    test.frames();
    test.send(&bytes);
    match expected {
        Ends(code) => test.assert_over(code, why),
        Resets(code) => {
            let mut frames = test.frames();
            frames.retain(|frame| frame.kind != WINDOW_UPDATE);
            let last = frames.last().unwrap_or_else(|| panic!("{why}: no frame"));
            assert_eq!((last.kind, last.code()), (RST_STREAM, code as u32), "{why}: {frames:?}");
            // Other streams go on.
            test.send(&get(99, "/6"));
            assert_eq!(test.response(99).0, 200, "{why}");
        }
        Nothing => {
            assert_eq!(test.frames(), [], "{why}");
            test.send(&get(99, "/6"));
            assert_eq!(test.response(99).0, 200, "{why}");
        }
    }
}

#[test]
fn frames_of_wrong_sizes_end_the_connection_or_the_stream() {
    let long = FRAME_BYTES_MAX + 1;
    case("a frame above the maximum", frame(DATA, 0, 3, &vec![0; long]), Ends(FrameSizeError));
    case("HEADERS above the maximum", frame(HEADERS, END_HEADERS, 7, &vec![0; long]), Ends(FrameSizeError));
    case("PING of 7 bytes", frame(PING, 0, 0, &[0; 7]), Ends(FrameSizeError));
    case("SETTINGS of 5 bytes", frame(SETTINGS, 0, 0, &[0; 5]), Ends(FrameSizeError));
    case("SETTINGS ACK with content", frame(SETTINGS, ACK, 0, &[0; 6]), Ends(FrameSizeError));
    case("WINDOW_UPDATE of 3 bytes", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), Ends(FrameSizeError));
    case("RST_STREAM of 3 bytes", frame(RST_STREAM, 0, 3, &[0; 3]), Ends(FrameSizeError));
    case("PRIORITY of 4 bytes", frame(PRIORITY, 0, 3, &[0; 4]), Resets(FrameSizeError));
    case("GOAWAY of 7 bytes", frame(GOAWAY, 0, 0, &[0; 7]), Ends(FrameSizeError));
    case("HEADERS without their priority", frame(HEADERS, WITH_PRIORITY, 7, &[0; 4]), Ends(FrameSizeError));
}

#[test]
fn frames_of_wrong_streams_end_the_connection() {
    for kind in [DATA, HEADERS, PRIORITY, RST_STREAM] {
        case(
            "a frame of a stream on stream 0",
            frame(kind, END_HEADERS, 0, &[0; 5][..5 - usize::from(kind == RST_STREAM)]),
            Ends(ProtocolError),
        );
    }
    for (kind, length) in [(SETTINGS, 0), (PING, 8), (GOAWAY, 8)] {
        case("a frame of the connection on a stream", frame(kind, 0, 3, &vec![0; length]), Ends(ProtocolError));
    }
    case("HEADERS on an even stream", frame(HEADERS, END_HEADERS, 8, &request("GET", "/6", &[])), Ends(ProtocolError));
    for (kind, payload) in [(DATA, &b"x"[..]), (RST_STREAM, &[0; 4]), (WINDOW_UPDATE, &[0, 0, 0, 1])] {
        case("a frame on an idle stream", frame(kind, 0, 7, payload), Ends(ProtocolError));
        case("a frame on a stream of the server", frame(kind, 0, 2, payload), Ends(ProtocolError));
    }
    case("PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 3, &[0; 8]), Ends(ProtocolError));
    case("HEADERS on a closed stream", get(1, "/6"), Ends(StreamClosed));
    case("DATA on a closed stream", frame(DATA, 0, 1, b"x"), Resets(StreamClosed));
    case("DATA after the end of the request", frame(DATA, 0, 5, b"x"), Resets(StreamClosed));
    case("HEADERS after the end of the request", get(5, "/6"), Resets(StreamClosed));
    case("WINDOW_UPDATE on a closed stream", window_frame(1, 1), Nothing);
    case("RST_STREAM on a closed stream", frame(RST_STREAM, 0, 1, &[0; 4]), Nothing);
    case("PRIORITY on an idle stream", frame(PRIORITY, 0, 77, &[0; 5]), Nothing);
    case("an unknown frame", frame(0xbe, 0xff, 3, b"anything"), Nothing);
}

#[test]
fn a_field_section_is_not_interrupted() {
    let section = request("GET", "/6", &[]);
    let begun = frame(HEADERS, END_STREAM, 7, &section[..5]);
    let rest = frame(CONTINUATION, END_HEADERS, 7, &section[5..]);
    let mut test = TestConnection::with(&[]);
    test.send(&begun);
    test.send(&rest);
    assert_eq!(test.response(7).0, 200);
    for (why, between) in [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("DATA", frame(DATA, 0, 3, b"x")),
        ("another section", get(9, "/6")),
        ("a continuation of another stream", frame(CONTINUATION, END_HEADERS, 9, b"")),
        ("an unknown frame", frame(0xbe, 0, 0, b"")),
    ] {
        case(why, [&begun[..], &between].concat(), Ends(ProtocolError));
    }
    case("a continuation of nothing", rest, Ends(ProtocolError));
}

#[test]
fn malformed_padding_priority_and_settings_are_errors() {
    case("padding as long as the frame", frame(DATA, PADDED, 3, &[4, 0, 0, 0]), Ends(ProtocolError));
    case("padding of an empty frame", frame(DATA, PADDED, 3, b""), Ends(FrameSizeError));
    let itself = [&[0, 0, 0, 7, 0][..], &request("GET", "/6", &[])].concat();
    let headers = frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 7, &itself);
    case("HEADERS that depend on themselves", headers, Resets(ProtocolError));
    case("PRIORITY that depends on itself", frame(PRIORITY, 0, 7, &[0, 0, 0, 7, 0]), Resets(ProtocolError));
    case("ENABLE_PUSH of 2", settings_frame(&[(ENABLE_PUSH, 2)]), Ends(ProtocolError));
    case("a window above 2^31-1", settings_frame(&[(INITIAL_WINDOW_SIZE, 1 << 31)]), Ends(FlowControlError));
    case("a frame size below 2^14", settings_frame(&[(MAX_FRAME_SIZE, (1 << 14) - 1)]), Ends(ProtocolError));
    case("a frame size of 2^24", settings_frame(&[(MAX_FRAME_SIZE, 1 << 24)]), Ends(ProtocolError));
    let mut test = TestConnection::with(&[(0x99, 7), (MAX_FRAME_SIZE, (1 << 24) - 1), (ENABLE_PUSH, 1)]);
    test.send(&get(1, "/6"));
    assert_eq!(test.response(1).0, 200, "unknown settings and extreme values are accepted");
}

#[test]
fn windows_do_not_overflow() {
    case("an increment of 0 for the connection", window_frame(0, 0), Ends(ProtocolError));
    case("an increment of 0 for a stream", window_frame(5, 0), Resets(ProtocolError));
    case("a window of the connection above 2^31-1", window_frame(0, i32::MAX as u32), Ends(FlowControlError));
    case("a window of a stream above 2^31-1", window_frame(5, i32::MAX as u32), Resets(FlowControlError));
    let grown = [window_frame(5, 1 << 30), settings_frame(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)])].concat();
    case("a window above 2^31-1 by a setting", grown, Ends(FlowControlError));
    // The relay takes nothing: 128 KiB of a stream are accepted, and no byte more.
    let fill = frame(DATA, 0, 3, &[b'x'; FRAME_BYTES_MAX]).repeat(8);
    case("a full window", fill.clone(), Nothing);
    case("a byte beyond the window of a stream", [fill, frame(DATA, 0, 3, b"x")].concat(), Resets(FlowControlError));
}

#[test]
fn malformed_field_sections_end_the_connection() {
    for bytes in [&[0x80][..], &[0xbe], &[0x00, 0x85, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x82, 0x20], &[0x3f, 0xe2, 0x1f]]
    {
        case("a request", frame(HEADERS, END_HEADERS | END_STREAM, 7, bytes), Ends(CompressionError));
        case("trailers", frame(HEADERS, END_HEADERS | END_STREAM, 3, bytes), Ends(CompressionError));
    }
}

/// RFC 9113, sections 8.1.1, 8.2 and 8.3.
#[test]
fn malformed_requests_reset_their_stream() {
    let method = (":method", "GET");
    let (scheme, authority, path) = ((":scheme", "http"), (":authority", "x"), (":path", "/6"));
    let with = |more: &[(&'static str, &'static str)]| [&[method, scheme, authority, path][..], more].concat();
    for (why, fields) in [
        ("no method", vec![scheme, authority, path]),
        ("no scheme", vec![method, authority, path]),
        ("no path", vec![method, scheme, authority]),
        ("an empty path", vec![method, scheme, authority, (":path", "")]),
        ("a path without slash", vec![method, scheme, authority, (":path", "6")]),
        ("two methods", with(&[method])),
        ("two paths", with(&[path])),
        ("an unknown pseudo-header field", with(&[(":x", "y")])),
        ("a pseudo-header field of responses", with(&[(":status", "200")])),
        ("a pseudo-header field after others", vec![method, scheme, ("a", "b"), authority, path]),
        ("CONNECT with a path", vec![(":method", "CONNECT"), authority, path]),
        ("an upper-case name", with(&[("Accept", "x")])),
        ("an empty name", with(&[("", "x")])),
        ("a name with a space", with(&[("a b", "x")])),
        ("a name with a colon", with(&[("a:b", "x")])),
        ("a line end in a value", with(&[("a", "x\r\nb: c")])),
        ("a NUL in a value", with(&[("a", "x\0")])),
        ("a space before a value", with(&[("a", " x")])),
        ("a tab after a value", with(&[("a", "x\t")])),
        ("Connection", with(&[("connection", "close")])),
        ("Transfer-Encoding", with(&[("transfer-encoding", "chunked")])),
        ("Upgrade", with(&[("upgrade", "h2c")])),
        ("Keep-Alive", with(&[("keep-alive", "1")])),
        ("TE", with(&[("te", "gzip")])),
        ("another Host", with(&[("host", "y")])),
        ("content of an empty request", with(&[("content-length", "1")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "1")])),
        ("a length with a sign", with(&[("content-length", "+0")])),
    ] {
        case(why, frame(HEADERS, END_HEADERS | END_STREAM, 7, &section(&fields)), Resets(ProtocolError));
    }
    for (why, fields, status) in [
        ("TE: trailers", with(&[("te", "trailers"), ("host", "X"), ("content-length", "0")]), 200),
        ("a host without authority", vec![method, scheme, path, ("host", "x")], 200),
        ("neither host nor authority", vec![method, scheme, path], 400),
        ("a host that is none", vec![method, scheme, (":authority", "a b"), path], 400),
        ("a user in the authority", vec![method, scheme, (":authority", "u@x"), path], 400),
        ("another scheme", vec![method, (":scheme", "ftp"), authority, path], 400),
        ("a space in the path", vec![method, scheme, authority, (":path", "/a b")], 400),
        ("a fragment", vec![method, scheme, authority, (":path", "/6#a")], 400),
        ("a path that leaves the root", vec![method, scheme, authority, (":path", "/../6")], 404),
        ("an unknown method", vec![(":method", "BREW"), scheme, authority, path], 501),
        ("a method for no file", vec![(":method", "DELETE"), scheme, authority, path], 405),
        ("OPTIONS *", vec![(":method", "OPTIONS"), scheme, authority, (":path", "*")], 204),
        ("CONNECT", vec![(":method", "CONNECT"), (":authority", "x:1")], 405),
    ] {
        let mut test = TestConnection::with(&[]);
        test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &section(&fields)));
        assert_eq!(test.response(1).0, status, "{why}");
    }
}

#[test]
fn content_must_be_as_long_as_announced() {
    for (length, sent, ended, code) in [
        ("3", &b"abcd"[..], true, ProtocolError),
        ("3", b"ab", true, ProtocolError),
        ("3", b"abcd", false, ProtocolError),
    ] {
        let mut test = TestConnection::with(&[]);
        test.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/app", &[("content-length", length)])));
        test.send(&frame(DATA, u8::from(ended), 1, sent));
        let last = test.frames().pop().unwrap();
        assert_eq!((last.kind, last.code()), (RST_STREAM, code as u32));
    }
    let mut test = TestConnection::with(&[]);
    test.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/app", &[])));
    test.send(&frame(HEADERS, END_HEADERS, 1, &section(&[("a", "b")])));
    assert_eq!(test.frames().pop().unwrap().code(), ProtocolError as u32, "trailers that do not end the stream");
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    let mut test = TestConnection::new();
    test.send(&[&PREFACE[..], &get(1, "/6")].concat());
    test.assert_over(ProtocolError, "a request before the settings");
    let mut test = TestConnection::new();
    test.send(&[&PREFACE[..], &frame(SETTINGS, ACK, 0, b"")].concat());
    test.assert_over(ProtocolError, "an acknowledgement of no settings");
    for end in 1..PREFACE.len() {
        let mut test = TestConnection::new();
        test.send(&PREFACE[..end]);
        assert!(test.received.is_empty() && test.connection.step() == Step::Receive);
        test.send(&PREFACE[end..]);
        test.send(&settings_frame(&[]));
        test.send(&get(1, "/6"));
        assert_eq!(test.frames().len(), 5, "the preface in two parts: {end}");
        let mut test = TestConnection::new();
        test.send(&PREFACE[..end]);
        test.send(b"x");
        test.connection.ended();
        assert!(!test.received.starts_with(&[0]), "another beginning is none of HTTP/2: {end}");
    }
    // After a request of HTTP/1.1 the preface is none.
    let mut test = TestConnection::new();
    test.send(b"GET /6 HTTP/1.1\r\nHost: x\r\n\r\n");
    test.received.clear();
    test.send(PREFACE);
    assert!(test.received.starts_with(b"HTTP/1.1 505 "));
}
