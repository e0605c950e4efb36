//! One case for each violation of HTTP/3, as h3spec tests them: the code, and what it ends.

use http3::Code;
use http3::frame::{CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PUSH_PROMISE, SETTINGS};
use proptest::prelude::*;
use quinn_proto::{Dir, VarInt};

use super::world::{Setup, World};
use super::{control, data, framed, get, headers, request};

/// RFC 9114, sections 4.1.2, 4.2 and 4.3: a malformed request ends its stream, with H3_MESSAGE_ERROR.
#[test]
fn malformed_requests_reset_their_stream() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let of = |fields: &[(&str, &str)]| headers(fields);
    let (method, scheme, authority, path) =
        ((":method", "GET"), (":scheme", "https"), (":authority", "server"), (":path", "/6"));
    for (why, bytes) in [
        ("no method", of(&[scheme, authority, path])),
        ("no scheme", of(&[method, authority, path])),
        ("no path", of(&[method, scheme, authority])),
        ("an empty path", of(&[method, scheme, authority, (":path", "")])),
        ("a relative path", of(&[method, scheme, authority, (":path", "a")])),
        ("two methods", of(&[method, method, scheme, authority, path])),
        ("two paths", of(&[method, scheme, authority, path, path])),
        ("a pseudo-header field of responses", of(&[method, scheme, authority, path, (":status", "200")])),
        ("an unknown pseudo-header field", of(&[method, scheme, authority, path, (":new", "1")])),
        ("a pseudo-header field after others", of(&[method, scheme, authority, ("a", "b"), path])),
        ("CONNECT with a path", of(&[(":method", "CONNECT"), authority, path])),
        ("an upper-case name", request("GET", "/6", &[("A", "b")])),
        ("an empty name", request("GET", "/6", &[("", "b")])),
        ("a name with a space", request("GET", "/6", &[("a b", "c")])),
        ("a value with a line end", request("GET", "/6", &[("a", "b\r\nc: d")])),
        ("a value with NUL", request("GET", "/6", &[("a", "b\0")])),
        ("Connection", request("GET", "/6", &[("connection", "close")])),
        ("Keep-Alive", request("GET", "/6", &[("keep-alive", "1")])),
        ("Proxy-Connection", request("GET", "/6", &[("proxy-connection", "close")])),
        ("Transfer-Encoding", request("GET", "/6", &[("transfer-encoding", "chunked")])),
        ("Upgrade", request("GET", "/6", &[("upgrade", "websocket")])),
        ("TE other than trailers", request("GET", "/6", &[("te", "gzip")])),
        ("Host and :authority that differ", request("GET", "/6", &[("host", "other")])),
        ("no number as length", request("GET", "/6", &[("content-length", "x")])),
        ("two lengths", request("GET", "/6", &[("content-length", "1"), ("content-length", "2")])),
        ("no content where some is announced", request("POST", "/app", &[("content-length", "3")])),
        ("less content than announced", [request("POST", "/app", &[("content-length", "3")]), data(b"ab")].concat()),
        ("more content than announced", [request("POST", "/app", &[("content-length", "1")]), data(b"ab")].concat()),
        ("a pseudo-header field in trailers", [request("POST", "/app", &[]), data(b"a"), headers(&[path])].concat()),
        ("upper case in trailers", [request("POST", "/app", &[]), data(b"a"), headers(&[("A", "b")])].concat()),
    ] {
        let stream = world.open(client, Dir::Bi, &bytes, true);
        world.assert_reset(client, stream, Code::MESSAGE_ERROR, why);
        while world.relay.next().is_some() {}
    }
    // The connection goes on.
    let stream = world.get(client, "/6");
    assert_eq!(world.response(client, stream).0, 200);
}

#[test]
fn incomplete_requests_reset_their_stream() {
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    let stream = world.open(client, Dir::Bi, b"", true);
    world.assert_reset(client, stream, Code::REQUEST_INCOMPLETE, "an empty stream");
    let stream = world.open(client, Dir::Bi, &framed(0x21, b"grease"), true);
    world.assert_reset(client, stream, Code::REQUEST_INCOMPLETE, "only an unknown frame");
    let stream = world.open(client, Dir::Bi, &[1, 0x80, 1, 0, 0], false);
    world.assert_reset(client, stream, Code::EXCESSIVE_LOAD, "a field section of 64 KiB");
}

/// RFC 9114, sections 4.1, 7.1 and 7.2; RFC 9204, section 2.2.3.
#[test]
fn wrong_frames_of_requests_end_the_connection() {
    let six = || get("/6");
    for (why, bytes, code) in [
        ("DATA before HEADERS", data(b"x"), Code::FRAME_UNEXPECTED),
        ("HEADERS after trailers", [six(), headers(&[]), headers(&[])].concat(), Code::FRAME_UNEXPECTED),
        ("DATA after trailers", [six(), headers(&[]), data(b"x")].concat(), Code::FRAME_UNEXPECTED),
        ("CANCEL_PUSH", framed(CANCEL_PUSH, &[0]), Code::FRAME_UNEXPECTED),
        ("SETTINGS", framed(SETTINGS, b""), Code::FRAME_UNEXPECTED),
        ("PUSH_PROMISE", framed(PUSH_PROMISE, &[0, 0, 0]), Code::FRAME_UNEXPECTED),
        ("GOAWAY", framed(GOAWAY, &[0]), Code::FRAME_UNEXPECTED),
        ("MAX_PUSH_ID", framed(MAX_PUSH_ID, &[0]), Code::FRAME_UNEXPECTED),
        ("PRIORITY of HTTP/2", framed(0x02, &[0; 5]), Code::FRAME_UNEXPECTED),
        ("PING of HTTP/2", framed(0x06, &[0; 8]), Code::FRAME_UNEXPECTED),
        ("WINDOW_UPDATE of HTTP/2", framed(0x08, &[0; 4]), Code::FRAME_UNEXPECTED),
        ("CONTINUATION of HTTP/2", framed(0x09, &[0; 4]), Code::FRAME_UNEXPECTED),
        ("a frame that is cut off", vec![1, 9, 0, 0], Code::FRAME_ERROR),
        ("a frame head that is cut off", vec![1], Code::FRAME_ERROR),
        ("a frame after the request that is cut off", [six(), vec![0x21, 3, 1]].concat(), Code::FRAME_ERROR),
        ("a required insertion", framed(HEADERS, &[2, 0, 0x80]), Code::QPACK_DECOMPRESSION_FAILED),
        ("an entry of the dynamic table", framed(HEADERS, &[0, 0, 0x80]), Code::QPACK_DECOMPRESSION_FAILED),
        ("an index beyond the static table", framed(HEADERS, &[0, 0, 0xff, 0x40]), Code::QPACK_DECOMPRESSION_FAILED),
        ("an empty section", framed(HEADERS, &[]), Code::QPACK_DECOMPRESSION_FAILED),
        ("an invalid Huffman code", framed(HEADERS, &[0, 0, 0x50, 0x81, 0xff]), Code::QPACK_DECOMPRESSION_FAILED),
        (
            "invalid trailers",
            [request("POST", "/app", &[]), framed(HEADERS, &[0, 0, 0x80])].concat(),
            Code::QPACK_DECOMPRESSION_FAILED,
        ),
    ] {
        let mut world = World::new(Setup::default());
        let client = world.connect_with_control();
        world.open(client, Dir::Bi, &bytes, true);
        world.assert_over(client, code, why);
    }
}

/// RFC 9114, sections 6.2, 7.2 and 8.1; RFC 9204, sections 4.2 to 4.4.
#[test]
fn wrong_unidirectional_streams_end_the_connection() {
    let settings = |payload: &[u8]| [vec![0], framed(SETTINGS, payload)].concat();
    for (why, streams, code) in [
        ("no SETTINGS", vec![[vec![0], framed(GOAWAY, &[0])].concat()], Code::MISSING_SETTINGS),
        ("an unknown frame before SETTINGS", vec![[vec![0], framed(0x21, b"")].concat()], Code::MISSING_SETTINGS),
        ("SETTINGS twice", vec![control(&[framed(SETTINGS, b"")])], Code::FRAME_UNEXPECTED),
        ("ENABLE_PUSH of HTTP/2", vec![settings(&[2, 0])], Code::SETTINGS_ERROR),
        ("MAX_CONCURRENT_STREAMS of HTTP/2", vec![settings(&[3, 1])], Code::SETTINGS_ERROR),
        ("INITIAL_WINDOW_SIZE of HTTP/2", vec![settings(&[4, 1])], Code::SETTINGS_ERROR),
        ("MAX_FRAME_SIZE of HTTP/2", vec![settings(&[5, 1])], Code::SETTINGS_ERROR),
        ("a setting twice", vec![settings(&[6, 1, 6, 1])], Code::SETTINGS_ERROR),
        ("half a setting", vec![settings(&[6])], Code::FRAME_ERROR),
        ("DATA on the control stream", vec![control(&[framed(DATA, b"")])], Code::FRAME_UNEXPECTED),
        ("HEADERS on the control stream", vec![control(&[get("/6")])], Code::FRAME_UNEXPECTED),
        ("PUSH_PROMISE on the control stream", vec![control(&[framed(PUSH_PROMISE, &[0])])], Code::FRAME_UNEXPECTED),
        ("PING of HTTP/2 on the control stream", vec![control(&[framed(6, &[0; 8])])], Code::FRAME_UNEXPECTED),
        ("CANCEL_PUSH of no push", vec![control(&[framed(CANCEL_PUSH, &[0])])], Code::ID_ERROR),
        (
            "MAX_PUSH_ID that falls",
            vec![control(&[framed(MAX_PUSH_ID, &[9]), framed(MAX_PUSH_ID, &[8])])],
            Code::ID_ERROR,
        ),
        ("MAX_PUSH_ID with more", vec![control(&[framed(MAX_PUSH_ID, &[1, 1])])], Code::FRAME_ERROR),
        ("GOAWAY that rises", vec![control(&[framed(GOAWAY, &[0]), framed(GOAWAY, &[4])])], Code::ID_ERROR),
        ("GOAWAY without identifier", vec![control(&[framed(GOAWAY, &[])])], Code::FRAME_ERROR),
        ("two control streams", vec![control(&[]), control(&[])], Code::STREAM_CREATION_ERROR),
        ("two encoder streams", vec![vec![2], vec![2]], Code::STREAM_CREATION_ERROR),
        ("two decoder streams", vec![vec![3], vec![3]], Code::STREAM_CREATION_ERROR),
        ("a push stream", vec![vec![1]], Code::STREAM_CREATION_ERROR),
        ("a dynamic table that was not allowed", vec![vec![2, 0x3f, 0x01]], Code::QPACK_ENCODER_STREAM_ERROR),
        ("an insertion", vec![vec![2, 0xc0, 0]], Code::QPACK_ENCODER_STREAM_ERROR),
        ("an acknowledgement of no section", vec![vec![3, 0x80]], Code::QPACK_DECODER_STREAM_ERROR),
        ("an insert count of 0", vec![vec![3, 0]], Code::QPACK_DECODER_STREAM_ERROR),
    ] {
        let mut world = World::new(Setup::default());
        let client = world.connect();
        for bytes in streams {
            world.open(client, Dir::Uni, &bytes, false);
        }
        world.assert_over(client, code, why);
    }
}

/// RFC 9114, section 6.2.1; RFC 9204, section 4.2.
#[test]
fn closed_critical_streams_end_the_connection() {
    for (why, bytes) in [("control", control(&[])), ("encoder", vec![2]), ("decoder", vec![3])] {
        let mut world = World::new(Setup::default());
        let client = world.connect();
        world.open(client, Dir::Uni, &bytes, true);
        world.assert_over(client, Code::CLOSED_CRITICAL_STREAM, why);
        let mut world = World::new(Setup::default());
        let client = world.connect();
        let stream = world.open(client, Dir::Uni, &bytes, false);
        world.run(std::time::Duration::from_millis(100));
        world.clients[client].quic.send_stream(stream).reset(VarInt::from_u32(0)).unwrap();
        world.assert_over(client, Code::CLOSED_CRITICAL_STREAM, &format!("{why}, reset"));
    }
    // The host's control stream.
    let mut world = World::new(Setup::default());
    let client = world.connect_with_control();
    world.until("the host's control stream", |world| !world.clients[client].received.is_empty());
    let stream = *world.clients[client].received.keys().next().unwrap();
    world.clients[client].quic.recv_stream(stream).stop(VarInt::from_u32(0)).unwrap();
    world.assert_over(client, Code::CLOSED_CRITICAL_STREAM, "the host's control stream");
}

#[test]
fn what_is_unknown_is_ignored() {
    let mut world = World::new(Setup::default());
    let client = world.connect();
    // Settings, frames, streams of unknown kinds; the dynamic table with capacity 0; a cancelled stream.
    let settings = [vec![0], framed(SETTINGS, &[0x21, 5, 0x33, 1]), framed(0x21, b"grease")].concat();
    world.open(client, Dir::Uni, &settings, false);
    for bytes in [&[0x21, 1, 2, 3][..], &[2, 0x20], &[3, 0x44], &[0x40, 0x54, 0]] {
        world.open(client, Dir::Uni, bytes, false);
    }
    let bytes = [framed(0x21, b"grease"), get("/6"), framed(0x40, b"")].concat();
    let stream = world.open(client, Dir::Bi, &bytes, true);
    assert_eq!(world.response(client, stream).2, super::content(6));
    // More streams of unknown kinds than may be open at a time: each is stopped, which frees its place.
    for _ in 0..20 {
        world.open(client, Dir::Uni, &[0x21, 1, 2, 3], true);
    }
    let stream = world.get(client, "/6");
    assert_eq!(world.response(client, stream).0, 200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any bytes on a request's stream and on a unidirectional one: nothing panics, and others are served.
    #[test]
    fn any_bytes_end_in_a_response_an_error_or_silence(
        on_request in prop::collection::vec(any::<u8>(), 0..200),
        on_control in prop::collection::vec(any::<u8>(), 0..200),
        begins_well in any::<bool>(),
        ends in any::<bool>(),
    ) {
        let mut world = World::new(Setup::default());
        let client = world.connect();
        let begin = |good: Vec<u8>| if begins_well { good } else { Vec::new() };
        // At the same time, before the host can have ended the connection.
        world.open(client, Dir::Bi, &[begin(get("/6")), on_request].concat(), ends);
        world.open(client, Dir::Uni, &[begin(control(&[])), on_control].concat(), ends);
        world.run(std::time::Duration::from_secs(100));
        let other = world.connect_with_control();
        let stream = world.get(other, "/6");
        prop_assert_eq!(world.response(other, stream).0, 200);
    }
}
