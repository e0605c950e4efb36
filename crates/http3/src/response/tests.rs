use proptest::prelude::*;

use super::*;
use crate::frame::{self, DATA, HEADERS, put_head};

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::begin(&mut section);
    for (name, value) in fields {
        qpack::encode(name.as_bytes(), value.as_bytes(), &mut section);
    }
    framed(HEADERS, &section)
}

fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_head(kind, payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Status, body and bytes of frames (all, and those of heads), or the fault.
type Read = Result<(u16, Vec<u8>, u64, u64), ResponseFault>;

fn read_in(pieces: usize, bytes: &[u8], is_head: bool) -> Read {
    let mut response = Response::new(is_head);
    let (mut status, mut body, mut received, mut of_head) = (0, Vec::new(), 0, 0);
    for piece in bytes.chunks(pieces.max(1)) {
        response.feed(&Bytes::copy_from_slice(piece), |part| match part {
            Part::Received { bytes, head } => {
                received += bytes;
                of_head += if head { bytes } else { 0 };
            }
            Part::Head { status: final_status, .. } => status = final_status,
            Part::Body(bytes) => body.extend_from_slice(&bytes),
        })?;
    }
    response.end()?;
    Ok((status, body, received, of_head))
}

fn read(bytes: &[u8]) -> Read {
    read_in(bytes.len(), bytes, false)
}

#[test]
fn a_response_is_the_same_however_its_bytes_arrive() {
    let head = headers(&[(":status", "200"), ("content-length", "5"), ("content-type", "text/html")]);
    let of_head = head.len() as u64;
    let bytes = [
        framed(0x21, b"grease"),
        headers(&[(":status", "103"), ("link", "</a>")]),
        head,
        framed(DATA, b"hel"),
        framed(0x40, &[0; 100]),
        framed(DATA, b""),
        framed(DATA, b"lo"),
        headers(&[("x-checksum", "1")]),
        framed(0x21, b""),
    ]
    .concat();
    let whole = read(&bytes).unwrap();
    assert_eq!((whole.0, &whole.1[..]), (200, &b"hello"[..]));
    assert!(whole.3 > of_head && whole.2 == whole.3 + 5 + 3 * 2);
    for pieces in 1..bytes.len() {
        assert_eq!(read_in(pieces, &bytes, false).as_ref(), Ok(&whole), "{pieces}");
    }
}

#[test]
fn faults_of_a_message_affect_only_its_stream() {
    let ok = || headers(&[(":status", "200")]);
    for (what, bytes) in [
        ("no head", vec![]),
        ("only an interim head", headers(&[(":status", "100")])),
        ("no status", headers(&[("server", "x")])),
        ("two statuses", headers(&[(":status", "200"), (":status", "200")])),
        ("status after a field", headers(&[("server", "x"), (":status", "200")])),
        ("status of two digits", headers(&[(":status", "20")])),
        ("status 99", headers(&[(":status", "099")])),
        ("switching protocols", headers(&[(":status", "101")])),
        ("a pseudo-header of requests", headers(&[(":status", "200"), (":path", "/")])),
        ("upper case", headers(&[(":status", "200"), ("Server", "x")])),
        ("connection", headers(&[(":status", "200"), ("connection", "close")])),
        ("transfer-encoding", headers(&[(":status", "200"), ("transfer-encoding", "chunked")])),
        ("line end in a value", headers(&[(":status", "200"), ("a", "b\r\nc: d")])),
        ("short body", [headers(&[(":status", "200"), ("content-length", "3")]), framed(DATA, b"ab")].concat()),
        ("long body", [headers(&[(":status", "200"), ("content-length", "1")]), framed(DATA, b"ab")].concat()),
        ("two lengths", headers(&[(":status", "200"), ("content-length", "0, 1")])),
        ("no length", headers(&[(":status", "200"), ("content-length", "+0")])),
        ("body of 204", [headers(&[(":status", "204")]), framed(DATA, b"ab")].concat()),
        ("pseudo-header in trailers", [ok(), headers(&[(":status", "200")])].concat()),
    ] {
        assert_eq!(read(&bytes), Err(ResponseFault::Message), "{what}");
    }
    assert!(read(&headers(&[(":status", "200"), ("content-length", "0, 0")])).is_ok());
    assert!(read_in(9, &headers(&[(":status", "200"), ("content-length", "10")]), true).is_ok());
}

#[test]
fn faults_of_frames_affect_the_connection() {
    let ok = || headers(&[(":status", "200")]);
    for (what, bytes, code) in [
        ("DATA first", framed(DATA, b"a"), Code::FRAME_UNEXPECTED),
        (
            "DATA after an interim head",
            [headers(&[(":status", "100")]), framed(DATA, b"")].concat(),
            Code::FRAME_UNEXPECTED,
        ),
        ("DATA after trailers", [ok(), headers(&[]), framed(DATA, b"")].concat(), Code::FRAME_UNEXPECTED),
        ("HEADERS after trailers", [ok(), headers(&[]), headers(&[])].concat(), Code::FRAME_UNEXPECTED),
        ("SETTINGS", framed(frame::SETTINGS, b""), Code::FRAME_UNEXPECTED),
        ("GOAWAY", framed(frame::GOAWAY, &[0]), Code::FRAME_UNEXPECTED),
        ("MAX_PUSH_ID", framed(frame::MAX_PUSH_ID, &[0]), Code::FRAME_UNEXPECTED),
        ("PUSH_PROMISE", framed(frame::PUSH_PROMISE, &[0]), Code::ID_ERROR),
        ("PING of HTTP/2", framed(0x06, &[0; 8]), Code::FRAME_UNEXPECTED),
        ("a frame cut off", [ok(), vec![0, 5, 1]].concat(), Code::FRAME_ERROR),
        ("a head cut off", [ok(), vec![0]].concat(), Code::FRAME_ERROR),
        ("a dynamic entry", framed(HEADERS, &[0, 0, 0x81]), Code::QPACK_DECOMPRESSION_FAILED),
        ("an empty section", framed(HEADERS, &[]), Code::QPACK_DECOMPRESSION_FAILED),
    ] {
        assert_eq!(read(&bytes), Err(ResponseFault::Connection(code)), "{what}");
    }
}

#[test]
fn heads_are_bounded_before_they_are_stored() {
    let mut response = Response::new(false);
    let mut bytes = Vec::new();
    put_head(HEADERS, (HEAD_MAX + 1) as u64, &mut bytes);
    assert_eq!(response.feed(&Bytes::from(bytes), |_| {}), Err(ResponseFault::HeadTooLarge));
    assert_eq!(response.section.capacity(), 0);
    // Many small fields, each of one byte of the section.
    let section = [vec![0, 0, 0xd9], vec![0xc2; 3000]].concat();
    assert_eq!(read(&framed(HEADERS, &section)), Err(ResponseFault::HeadTooLarge));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), pieces in 1..40usize, begins in any::<bool>(),
    ) {
        let head = headers(&[(":status", "200")]);
        let bytes = if begins { [head, bytes].concat() } else { bytes };
        let whole = read(&bytes);
        let pieced = read_in(pieces, &bytes, false);
        prop_assert_eq!(whole.is_ok(), pieced.is_ok());
    }
}
