//! Properties of the parser for responses of every framing in any segmentation, and for invalid input.

use load::http1::Response;
use proptest::prelude::*;
use schema::Method;

use crate::outcome::{Outcome, Read, digest, read};

/// A valid response.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    status: u16,
    keep_alive: bool,
    framed: bool,
    /// The body without the framing of chunks.
    body: Vec<u8>,
}

fn head(status: u16, interim: u8, padding: &str, framing: &str, close: bool) -> Vec<u8> {
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(interim.into());
    let close = if close { "Connection: close\r\n" } else { "" };
    format!("{interim}HTTP/1.1 {status} Reason\r\nX-Padding: {padding}\r\n{framing}{close}\r\n").into_bytes()
}

prop_compose! {
    fn written()(
        status in prop::sample::select(vec![200u16, 206, 301, 404, 500, 503]),
        interim in 0u8..3,
        padding in "[ -~]{0,40}",
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..5),
        extension in prop::option::of("[a-z]{1,8}=[a-z]{1,8}"),
        trailers in prop::collection::vec("[A-Z][a-z]{0,8}: [a-z]{0,20}", 0..3),
        framing in 0u8..3,
        close: bool,
    ) -> Written {
        let body = chunks.concat();
        let (framing_line, payload) = match framing {
            0 => (format!("Content-Length: {}\r\n", body.len()), body.clone()),
            1 => {
                let mut payload = Vec::new();
                for chunk in &chunks {
                    let extension = extension.as_deref().map(|text| format!(";{text}")).unwrap_or_default();
                    payload.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
                    payload.extend_from_slice(chunk);
                    payload.extend_from_slice(b"\r\n");
                }
                payload.extend_from_slice(b"0\r\n");
                trailers.iter().for_each(|line| payload.extend_from_slice(format!("{line}\r\n").as_bytes()));
                payload.extend_from_slice(b"\r\n");
                ("Transfer-Encoding: chunked\r\n".to_owned(), payload)
            }
            _ => (String::new(), body.clone()),
        };
        let mut bytes = head(status, interim, &padding, &framing_line, close);
        bytes.extend_from_slice(&payload);
        Written { bytes, status, keep_alive: framing < 2 && !close, framed: framing < 2, body }
    }
}

/// Cuts the bytes at the given positions.
fn cut<'a>(bytes: &'a [u8], positions: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        positions.iter().map(|position| position.index(bytes.len() + 1)).chain([bytes.len()]).collect();
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter().map(|end| &bytes[std::mem::replace(&mut begin, end)..end]).collect()
}

fn positions() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn response_parsing_does_not_depend_on_segmentation(written in written(), positions in positions()) {
        let mut response = Response::new(Method::Get);
        let outcome = if written.framed { Outcome::Whole(written.bytes.len()) } else { Outcome::WholeAtClose };
        let body = (written.body.len() as u64, Some((written.body.len(), digest(&written.body))));
        let expected = Read { outcome, status: written.status, keep_alive: written.keep_alive, body };
        prop_assert_eq!(read(&mut response, Method::Get, cut(&written.bytes, &positions)), expected);
        // Reuse the parser, byte by byte.
        prop_assert_eq!(read(&mut response, Method::Get, written.bytes.chunks(1)), expected);
    }

    #[test]
    fn head_bytes_and_final_head_do_not_depend_on_segmentation(
        interim in 0u8..3,
        padding in "[ -~]{0,40}",
        body in 0usize..100,
        positions in positions(),
    ) {
        let framing = format!("Content-Length: {body}\r\n");
        let (heads, last) = (head(200, interim, &padding, &framing, false), head(200, 0, &padding, &framing, false));
        let bytes = [&heads[..], &vec![b'x'; body]].concat();
        let mut response = Response::new(Method::Get);
        for pieces in [cut(&bytes, &positions), bytes.chunks(1).collect()] {
            response.reset(Method::Get);
            response.store_head();
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                prop_assert!(response.feed(piece).is_ok());
            }
            prop_assert_eq!(response.head_bytes() as usize, heads.len());
            prop_assert_eq!(response.head(), &last[..]);
            prop_assert_eq!((response.body_length(), response.body()), (body as u64, None));
        }
    }

    #[test]
    fn a_truncated_response_is_never_complete(
        written in written(),
        at in any::<prop::sample::Index>(),
        positions in positions(),
    ) {
        prop_assume!(written.framed);
        let part = &written.bytes[..at.index(written.bytes.len())];
        let mut response = Response::new(Method::Get);
        let outcome = read(&mut response, Method::Get, cut(part, &positions)).outcome;
        prop_assert!(matches!(outcome, Outcome::Short | Outcome::Nothing), "{:?}", outcome);
    }

    #[test]
    fn bytes_after_a_response_are_not_consumed(
        written in written(),
        rest in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        prop_assume!(written.framed);
        let mut bytes = written.bytes.clone();
        bytes.extend_from_slice(&rest);
        let mut response = Response::new(Method::Get);
        prop_assert_eq!(read(&mut response, Method::Get, [&bytes[..]]).outcome, Outcome::Whole(written.bytes.len()));
    }

    /// A valid response with some bytes changed causes no panic and has the same outcome for every segmentation.
    #[test]
    fn corrupt_responses_have_the_same_outcome_for_every_segmentation(
        written in written(),
        changes in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b':'), Just(b'0')],
            ),
            1..6,
        ),
        positions in positions(),
        head: bool,
    ) {
        let mut bytes = written.bytes;
        for (position, byte) in changes {
            let position = position.index(bytes.len());
            bytes[position] = byte;
        }
        let method = if head { Method::Head } else { Method::Get };
        let mut response = Response::new(method);
        let whole = read(&mut response, method, [&bytes[..]]);
        prop_assert_eq!(read(&mut response, method, cut(&bytes, &positions)), whole);
        prop_assert_eq!(read(&mut response, method, bytes.chunks(1)), whole);
    }

    #[test]
    fn response_parsing_never_panics_on_random_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        positions in positions(),
        prefix: bool,
    ) {
        let bytes = if prefix { [&b"HTTP/1.1 200 OK\r\n"[..], &bytes].concat() } else { bytes };
        let mut response = Response::new(Method::Get);
        let whole = read(&mut response, Method::Get, [&bytes[..]]);
        prop_assert_eq!(read(&mut response, Method::Get, cut(&bytes, &positions)), whole);
    }
}
