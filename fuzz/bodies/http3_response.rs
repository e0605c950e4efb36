//! Any bytes as a response of HTTP/3. The first byte selects whether the request is HEAD.

use bytes::Bytes;
use http3::response::{HEAD_MAX, Part, Response, ResponseFault};

/// What a response contained, and how it ended.
#[derive(Debug, Default, PartialEq)]
struct Read {
    heads: Vec<u16>,
    body: Vec<u8>,
    received: u64,
    fault: Option<ResponseFault>,
}

/// Head, body and fault do not depend on the pieces, and nothing is stored beyond the bounds.
pub fn run(bytes: &[u8]) {
    let [first, bytes @ ..] = bytes else { return };
    let is_head = first & 1 == 1;
    let whole = read(bytes.len().max(1), bytes, is_head);
    assert!(whole.received <= bytes.len() as u64 && whole.body.len() <= bytes.len());
    for pieces in [1, 3, 61] {
        let pieced = read(pieces, bytes, is_head);
        assert_eq!((pieced.heads, pieced.fault), (whole.heads.clone(), whole.fault), "in pieces of {pieces}");
        if whole.fault.is_none() {
            assert_eq!((pieced.body, pieced.received), (whole.body.clone(), whole.received), "in pieces of {pieces}");
        }
    }
}

fn read(pieces: usize, bytes: &[u8], is_head: bool) -> Read {
    let (mut response, mut read) = (Response::new(is_head), Read::default());
    for piece in bytes.chunks(pieces) {
        let fed = response.feed(&Bytes::copy_from_slice(piece), |part| match part {
            Part::Received { bytes, .. } => read.received += bytes,
            Part::Head { status, fields } => {
                assert!((200..1000).contains(&status));
                let size: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
                assert!(size <= HEAD_MAX);
                read.heads.push(status);
            }
            Part::Body(bytes) => read.body.extend_from_slice(&bytes),
        });
        if let Err(fault) = fed {
            read.fault = Some(fault);
            return read;
        }
    }
    read.fault = response.end().err();
    read
}
