//! Requests and responses: files, the relay, ends and timeouts.

use bytes::Bytes;

use super::*;
use crate::cache::Finding;
use crate::dynamic::RelayCall;

fn headers(stream: u32, method: &str, path: &str, more: &[(&str, &str)], ended: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | u8::from(ended), stream, &request(method, path, more))
}

#[test]
fn files_are_served_as_over_http_1() {
    let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    test.send(&window_frame(0, 1 << 20));
    for (stream, size) in [(1, 0), (3, 6), (5, 20_000), (7, 300_000)] {
        test.send(&get(stream, &format!("/{size}")));
        let (status, fields, body) = test.response(stream);
        assert_eq!((status, body), (200, content(size)), "{size}");
        assert!(fields.contains("server: yamabiko\n") && fields.contains(&format!("content-length: {size}\n")));
        assert!(fields.contains("date: ") && !fields.contains("connection"), "{fields}");
    }
    let (_, etag) = {
        test.send(&headers(9, "HEAD", "/6", &[], true));
        let (status, fields, body) = test.response(9);
        assert_eq!((status, body.len()), (200, 0));
        (status, fields.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned())
    };
    for (stream, more, expected, bytes) in [
        (11, ("if-none-match", &etag[..]), 304, 0),
        (13, ("range", "bytes=2-3"), 206, 2),
        (15, ("range", "bytes=0-1,4-5"), 206, 252),
        (17, ("range", "bytes=9-"), 416, 26),
        (19, ("if-match", "\"other\""), 412, 24),
        (21, ("expect", "other"), 417, 23),
    ] {
        test.send(&headers(stream, "GET", "/6", &[more], true));
        let (status, fields, body) = test.response(stream);
        assert_eq!(status, expected, "{more:?}");
        assert!(stream == 15 || body.len() == bytes, "{more:?}: {fields} {body:?}");
        assert!(stream != 15 || fields.contains("multipart/byteranges"));
    }
    let total = test.context.status_sources.figures.total();
    assert_eq!(total.requests(), 11);
}

#[test]
fn several_requests_share_the_connection_fairly() {
    let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    test.send(&window_frame(0, 1 << 20));
    test.send(&[get(1, "/300000"), get(3, "/300000"), get(5, "/6")].concat());
    let frames = test.frames();
    let data: Vec<u32> = frames.iter().filter(|frame| frame.kind == DATA).map(|frame| frame.stream).collect();
    assert!(data[..3].contains(&5), "a short response waits for one frame of each: {data:?}");
    let last = data.iter().rposition(|&stream| stream == 1).unwrap();
    assert_eq!(data.len() - last, 2, "both files end together: {data:?}");
}

#[test]
fn dynamic_requests_are_relayed_with_their_content() {
    let mut test = TestConnection::with(&[]);
    let more = [("cookie", "a=b"), ("x", "y"), ("cookie", "c=d")];
    test.send(&headers(1, "POST", "/app/x?q", &more, false));
    test.send(&headers(3, "GET", "/app", &[], true));
    let Some(RelayCall::RelayRequest(head)) = test.relay.next() else { panic!("no request") };
    assert_eq!(
        String::from_utf8_lossy(&head),
        "POST /app/x?q HTTP/1.1\r\nhost: x\r\nx: y\r\ncookie: a=b; c=d\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    assert!(matches!(test.relay.next(), Some(RelayCall::RelayRequest(_))));
    test.send(&frame(DATA, 0, 1, b"hello"));
    assert_eq!(test.relay.next(), None, "the relay has not requested the content");
    test.relay_event(1, Event::Room(700));
    assert_eq!(test.relay.next(), Some(RelayCall::Body(Bytes::from_static(b"hello"))));
    test.send(&frame(DATA, PADDED | END_STREAM, 1, b"\x02, you\0\0"));
    assert_eq!(test.relay.next(), Some(RelayCall::Body(Bytes::from_static(b", you"))));
    assert_eq!(test.relay.next(), Some(RelayCall::BodyEnded));
    // The second request is answered first.
    for (stream, length) in [(3, Some(3)), (1, None)] {
        let fields = Bytes::from_static(b"Date: now\r\nX: y\r\n");
        let interim = Event::Interim { status: 103, fields: Bytes::from_static(b"Link: x\r\n") };
        let head = Event::Head { status: 201, fields, length, finding: Finding::NONE };
        for event in [interim, head, Event::Body("got".into()), Event::End] {
            test.relay_event(stream, event);
        }
        let frames = test.frames();
        assert_eq!(test.fields(&frames[0]), (103, "link: x\n".to_owned()));
        let (status, fields) = test.fields(&frames[1]);
        assert!(status == 201 && fields.starts_with("date: now\nx: y\n"), "{fields}");
        assert!(!fields.contains("transfer-encoding"));
        let body: Vec<u8> = frames[2..].iter().flat_map(|frame| frame.payload.clone()).collect();
        assert!(body == b"got" && frames.last().unwrap().ends(), "{frames:?}");
        assert_eq!(test.relay.next(), Some(RelayCall::Taken(3)));
    }
    assert_eq!(test.relay.next(), None);
}

#[test]
fn a_client_that_expects_100_continue_gets_it_when_the_relay_reads() {
    let mut test = TestConnection::with(&[]);
    test.send(&headers(1, "POST", "/app", &[("expect", "100-continue"), ("content-length", "3")], false));
    assert_eq!(test.frames(), []);
    test.relay_event(1, Event::Room(700));
    let frames = test.frames();
    assert_eq!((test.fields(&frames[0]).0, frames[0].ends()), (100, false));
}

#[test]
fn trailers_end_a_request() {
    let mut test = TestConnection::with(&[]);
    test.send(&headers(1, "POST", "/app", &[], false));
    test.relay_event(1, Event::Room(700));
    test.send(&frame(DATA, 0, 1, b"x"));
    test.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &section(&[("a", "b")])));
    test.relay.next();
    assert_eq!(test.relay.next(), Some(RelayCall::Body(Bytes::from_static(b"x"))));
    assert_eq!(test.relay.next(), Some(RelayCall::BodyEnded));
}

/// RFC 9113, section 8.1: a response may precede the end of its request.
#[test]
fn a_response_before_the_end_of_the_request_stops_it() {
    let mut test = TestConnection::with(&[]);
    test.send(&headers(1, "POST", "/6", &[("content-length", "100000")], false));
    let frames = test.frames();
    assert_eq!(test.fields(&frames[0]).0, 405);
    assert_eq!((frames.len(), frames[1].kind, frames[1].ends()), (2, DATA, true));
    // The window of the stream is used up after 131,072 bytes.
    for _ in 0..11 {
        test.send(&frame(DATA, 0, 1, &[b'x'; 10_000]));
    }
    assert_eq!(test.frames(), []);
    test.send(&frame(DATA, 0, 1, &[b'x'; 10_000]));
    let reset = test.frames().remove(0);
    assert_eq!((reset.kind, reset.stream, reset.code()), (RST_STREAM, 1, ErrorCode::NoError as u32));
    // What was in transit is ignored, and the window of the connection grows by it.
    for _ in 0..28 {
        test.send(&frame(DATA, 0, 1, &[b'x'; 10_000]));
    }
    let granted: usize = test
        .frames()
        .iter()
        .map(|frame| {
            assert_eq!((frame.kind, frame.stream), (WINDOW_UPDATE, 0));
            u32::from_be_bytes(frame.payload[..].try_into().unwrap()) as usize
        })
        .sum();
    assert!((270_000..=400_000).contains(&granted), "{granted}");
    // A short rest ends without a reset.
    test.send(&headers(5, "POST", "/6", &[("content-length", "3")], false));
    assert_eq!(test.response(5).0, 405);
    test.send(&frame(DATA, END_STREAM, 5, b"abc"));
    assert_eq!(test.frames(), []);
    test.send(&headers(7, "POST", "/app", &[("content-length", "100000000")], false));
    assert_eq!(test.response(7).0, 413);
}

#[test]
fn a_response_that_breaks_off_resets_its_stream() {
    for (length, event) in [(Some(10), Event::End), (Some(3), Event::Body("four".into())), (None, Event::Broken)] {
        let mut test = TestConnection::with(&[]);
        test.send(&get(1, "/app"));
        let fields = Bytes::from_static(b"Date: now\r\n");
        test.relay_event(1, Event::Head { status: 200, fields, length, finding: Finding::NONE });
        test.relay_event(1, Event::Body("x".into()));
        test.relay_event(1, event);
        let frames = test.frames();
        assert!(frames.iter().all(|frame| !frame.ends()), "{frames:?}");
        let last = frames.last().unwrap();
        assert_eq!((last.kind, last.code()), (RST_STREAM, ErrorCode::InternalError as u32), "{length:?}");
        test.send(&get(3, "/6"));
        assert_eq!(test.response(3).0, 200);
    }
}

#[test]
fn a_truncated_file_resets_its_stream() {
    let mut test = TestConnection::with(&[]);
    test.send(&get(1, "/300000"));
    assert_eq!(test.frames().iter().map(|frame| frame.payload.len()).sum::<usize>() / 65_535, 1);
    std::fs::write(test._directory.path().join("300000"), b"short").unwrap();
    test.send(&[window_frame(0, 1 << 20), window_frame(1, 1 << 20)].concat());
    let frames = test.frames();
    let last = frames.last().unwrap();
    assert_eq!((last.kind, last.code()), (RST_STREAM, ErrorCode::InternalError as u32));
    assert!(frames.iter().all(|frame| !frame.ends()));
}

#[test]
fn a_stopping_server_announces_its_end_and_finishes_its_responses() {
    let mut test = TestConnection::with(&[]);
    test.send(&get(1, "/app"));
    test.context.stopping = true;
    test.connection.stop();
    test.turn(usize::MAX);
    let frames = test.frames();
    assert_eq!((frames[0].kind, frames[0].code(), &frames[0].payload[..4]), (GOAWAY, 0, &[0, 0, 0, 1][..]));
    test.send(&get(3, "/6"));
    assert_eq!(test.frames(), [], "a request after the announced end");
    let fields = Bytes::from_static(b"Date: now\r\n");
    for event in
        [Event::Head { status: 200, fields, length: Some(3), finding: Finding::NONE }, Event::Body("got".into())]
    {
        test.relay_event(1, event);
    }
    assert_eq!(test.connection.step(), Step::Receive);
    test.relay_event(1, Event::End);
    assert_eq!(test.response(1).2, b"got");
    assert_eq!(test.connection.step(), Step::SendFin);
    // Without a request it ends immediately.
    let mut test = TestConnection::with(&[]);
    test.connection.stop();
    test.turn(usize::MAX);
    test.assert_over(ErrorCode::NoError, "an idle connection");
}

#[test]
fn a_disconnected_client_cancels_its_dynamic_requests() {
    let mut test = TestConnection::with(&[]);
    test.send(&[get(1, "/app"), get(3, "/app")].concat());
    test.connection.ended();
    test.connection.settle(&mut test.context);
    assert_eq!(test.connection.step(), Step::Close);
    test.connection.leave(&mut test.context);
    let calls: Vec<RelayCall> = std::iter::from_fn(|| test.relay.next()).collect();
    assert_eq!(calls.iter().filter(|call| **call == RelayCall::Cancel).count(), 2);
    assert_eq!(test.context.backlog.bytes(), 0);
}

#[test]
fn idle_partial_and_stalled_connections_time_out() {
    let limits = Limits::default();
    let mut test = TestConnection::with(&[]);
    let start = test.context.now;
    assert_eq!(test.connection.deadline(), start + limits.idle_time);
    test.context.now = start + limits.idle_time / 2;
    test.send(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(test.connection.deadline(), start + limits.idle_time, "a PING does not count as a request");
    test.send(&get(1, "/6"));
    assert_eq!(test.connection.deadline(), test.context.now + limits.idle_time);
    test.frames();
    // A part of a frame.
    test.send(&get(3, "/6")[..8]);
    assert_eq!(test.connection.deadline(), test.context.now + limits.head_time);
    test.context.now += limits.head_time;
    test.connection.late(&mut test.context);
    test.turn(usize::MAX);
    test.assert_over(ErrorCode::NoError, "half a frame");
    // A response without a window.
    let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, 0)]);
    test.send(&get(1, "/6"));
    assert_eq!(test.connection.deadline(), start + limits.stall_time);
    test.context.now = start + limits.stall_time;
    test.connection.late(&mut test.context);
    test.turn(usize::MAX);
    let last = test.frames().pop().unwrap();
    assert_eq!((last.kind, last.code()), (RST_STREAM, ErrorCode::InternalError as u32));
    // The content of a request that does not arrive.
    let mut test = TestConnection::with(&[]);
    test.send(&headers(1, "POST", "/app", &[], false));
    test.relay_event(1, Event::Room(700));
    assert_eq!(test.connection.deadline(), start + limits.body_time);
    test.context.now = start + limits.body_time;
    test.connection.late(&mut test.context);
    test.turn(usize::MAX);
    assert_eq!(test.response(1).0, 408);
}

#[test]
fn a_request_to_http_2_is_logged_with_its_version() {
    let mut head = std::mem::take(&mut TestConnection::new().context.request_head);
    head.begin("HTTP/2.0", &Limits::default());
    let section = request("GET", "/6?a", &[("referer", "r")]);
    Decoder::default().decode(&section, 4096, |name, value| head.field(name, value)).unwrap();
    let crate::multiplexed::Completed::Request(request) = head.complete(true) else { panic!("a request") };
    assert_eq!(String::from_utf8_lossy(request.head), "GET /6?a HTTP/2.0\r\nhost: x\r\nreferer: r\r\n\r\n");
    assert_eq!((request.path, request.query, request.fields.host), (&b"/6"[..], Some(&b"a"[..]), Some(&b"x"[..])));
}
