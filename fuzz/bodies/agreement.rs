//! Compares parsers of HTTP/1: the packet analysis must parse responses as the load generator does, and requests as the
//! server does. The first byte selects responses or requests, and whether the request is HEAD.

use load::http1::{AtClose, Progress, Response};
use schema::{Framing, Method, WireRequest};
use units::Timestamp;
use watch::{Limits, Watch, WatchSpec};
use wire::link::LinkType;

use super::packets::{ACK, FIN, SYN, segment};

/// Every parser that accepts the bytes finds the same message.
pub fn run(bytes: &[u8]) {
    let [first, bytes @ ..] = bytes else { return };
    let bytes = &bytes[..bytes.len().min(4096)];
    if first & 2 == 2 {
        requests(bytes);
    } else {
        response(bytes, if first & 1 == 1 { Method::Head } else { Method::Get });
    }
}

/// How a response ends, by the load generator's parser.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Complete, with this length.
    Whole(usize),
    /// The connection closed before the end of the response.
    Cut,
    /// The framing does not determine the end.
    Unknown,
    /// Lines violate the grammar, which the packet analysis tolerates.
    BadGrammar,
}

fn response(bytes: &[u8], method: Method) {
    let client = by_load(bytes, method);
    let request = if method == Method::Head { "HEAD" } else { "GET" };
    let request = format!("{request} / HTTP/1.1\r\nHost: x\r\n\r\n");
    let seen = by_watch(&[(0, request.as_bytes()), (1, bytes)]);
    let seen = seen.iter().find(|seen| seen.request_bytes > 0).expect("the request was sent");
    let is_exact = seen.framing == Framing::Exact;
    match client {
        End::Whole(length) => {
            let observed = (is_exact, seen.complete, seen.response_bytes);
            assert_eq!(observed, (true, true, length as u64), "{:?}", String::from_utf8_lossy(bytes));
        }
        End::Cut => assert!(!seen.complete || !is_exact, "{seen:?} {:?}", String::from_utf8_lossy(bytes)),
        End::Unknown => assert!(!is_exact, "{seen:?} {:?}", String::from_utf8_lossy(bytes)),
        End::BadGrammar => {}
    }
}

fn by_load(bytes: &[u8], method: Method) -> End {
    let mut response = Response::new(method);
    let fed = response.feed(bytes);
    // Empty lines before the response do not belong to it.
    let stray = 2 * response.take_stray_lines() as usize;
    match fed {
        Ok(Progress::Whole { consumed }) => End::Whole(consumed - stray),
        Ok(Progress::More) => match response.close() {
            AtClose::Whole => End::Whole(bytes.len() - stray),
            AtClose::Nothing | AtClose::Short => End::Cut,
            AtClose::Malformed => End::BadGrammar,
        },
        Err(_) => {
            let name = response.fault().expect("a fault has its reason").reason.name();
            let is_shared = name.starts_with("content_length")
                || name.starts_with("transfer_")
                || matches!(name, "chunked_parameters" | "chunk_size" | "chunk_size_overflow");
            if is_shared { End::Unknown } else { End::BadGrammar }
        }
    }
}

fn requests(bytes: &[u8]) {
    // The first bytes of a connection decide whether it is HTTP, before any message is parsed.
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let bytes = &bytes[blank..];
    let taken = serve::fuzzing::taken(bytes);
    let seen = by_watch(&[(0, bytes)]);
    // The packet analysis follows a limited number of requests without a response.
    for (number, request) in taken.iter().enumerate().take(Limits::default().pipelined - 1) {
        // The packet analysis takes methods with other characters for another protocol.
        let is_seen = request.method.iter().all(u8::is_ascii_uppercase) && request.method.len() <= 16;
        if !is_seen || request.method == b"PRI" {
            return;
        }
        let seen = seen.get(number).unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(bytes)));
        let observed = (seen.framing, seen.method.as_deref(), seen.request_bytes);
        let expected = (Framing::Exact, Some(&request.method[..]), request.length as u64);
        assert_eq!(observed, expected, "{:?}", String::from_utf8_lossy(bytes));
    }
}

/// The requests that the packet analysis finds in these turns on one connection, which is opened before and closed
/// after them.
fn by_watch(turns: &[(usize, &[u8])]) -> Vec<WireRequest> {
    let mut watch = Watch::new(WatchSpec::default());
    let (mut next, mut at) = ([1000u32, 5000], 0u64);
    let mut send = |way: usize, flags: u8, payload: &[u8]| {
        at += 1_000_000;
        let packet = segment(way, next, flags, payload);
        watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &packet, packet.len() as u32);
        next[way] += payload.len() as u32 + u32::from(flags & 3 != 0);
    };
    for (way, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
        send(way, flags, b"");
    }
    for (way, bytes) in turns {
        send(*way, ACK, bytes);
    }
    for way in [1, 0] {
        send(way, FIN | ACK, b"");
    }
    watch.finish(Timestamp::from_nanos(at));
    let mut requests = Vec::new();
    watch.take_requests(&mut requests);
    requests.sort_by_key(|request| request.index);
    requests
}
