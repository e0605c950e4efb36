//! Checks the parser of responses against the table of framing rules, which all HTTP/1 readers of this program share.

#[path = "../../../http1/tests/framing/table.rs"]
mod table;

use load::http1::{AtClose, Progress, Response};
use schema::Method;

/// The framing of a response with this head, in the notation of the table.
fn outcome(response: &mut Response, method: Method, head: &[u8]) -> String {
    response.reset(method);
    let once = |response: &Response| if response.keep_alive() { "" } else { ";once" };
    match response.feed(head) {
        Err(_) => response.fault().expect("a fault has its reason").reason.name().to_owned(),
        Ok(Progress::Whole { consumed }) => {
            assert_eq!((consumed, response.body_length()), (head.len(), 0));
            let text = String::from_utf8_lossy(head).to_ascii_lowercase();
            let is_length = text.contains("length: 0");
            (if is_length { "length:0" } else { "none" }).to_owned() + once(response)
        }
        // An interim response has no body, and the final response follows.
        Ok(Progress::More) if response.status() == 0 => "none".to_owned(),
        Ok(Progress::More) if response.discardable() > 0 => {
            format!("length:{}{}", response.discardable(), once(response))
        }
        Ok(Progress::More) if response.close() == AtClose::Whole => "close".to_owned(),
        Ok(Progress::More) => {
            assert_eq!(response.feed(b"1\r\nx\r\n0\r\n\r\n"), Ok(Progress::Whole { consumed: 11 }));
            assert_eq!(response.body_length(), 1);
            "chunked".to_owned() + once(response)
        }
    }
}

#[test]
fn responses_end_as_listed_in_the_framing_table() {
    let mut response = Response::new(Method::Get);
    // The load engine never sends CONNECT: the driver opens tunnels through proxies.
    for case in table::responses().filter(|case| case.method != "CONNECT") {
        let method = if case.method == "HEAD" { Method::Head } else { Method::Get };
        assert_eq!(outcome(&mut response, method, &case.head()), case.client, "{case:?}");
    }
}

#[test]
fn chunked_bodies_end_as_listed_in_the_framing_table() {
    let mut response = Response::new(Method::Get);
    for case in table::chunked() {
        for piece in [case.bytes.len(), 1, 3] {
            response.reset(Method::Get);
            response.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            let mut pieces = case.bytes.chunks(piece).map(|part| response.feed(part));
            let outcome = match pieces.find(|end| *end != Ok(Progress::More)) {
                None => "more".to_owned(),
                Some(Ok(_)) => response.body_length().to_string(),
                Some(Err(_)) => response.fault().expect("a fault has its reason").reason.name().to_owned(),
            };
            assert_eq!(outcome, case.client, "{case:?}");
        }
    }
}

#[test]
fn stray_empty_lines_between_responses_are_skipped_and_counted() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let whole = Ok(Progress::Whole { consumed: OK.len() });
    // An empty line in the packet of the body.
    let mut response = Response::new(Method::Get);
    assert_eq!(response.feed(&[OK, b"\r\n"].concat()), whole);
    assert_eq!((response.skip_stray_lines(b"\r\n"), response.take_stray_lines()), (2, 1));
    // An empty line in two later packets, the second after the next request was sent.
    assert_eq!(response.skip_stray_lines(b"\r"), 1);
    response.reset(Method::Get);
    assert_eq!(response.skip_stray_lines(b"\nHTTP"), 1);
    assert_eq!((response.take_stray_lines(), response.feed(OK)), (1, whole));
    // An empty line at the beginning of the next response.
    response.reset(Method::Get);
    assert_eq!(response.feed(&[b"\r\n", OK].concat()), Ok(Progress::Whole { consumed: OK.len() + 2 }));
    assert_eq!((response.take_stray_lines(), response.head_bytes()), (1, 38));
    // Any other byte is unsolicited.
    assert_eq!((response.skip_stray_lines(b"JUNK"), response.skip_stray_lines(b"\r\nJUNK")), (0, 2));
    // Empty lines within a body belong to it.
    response.reset(Method::Get);
    assert_eq!(response.feed(&OK[..OK.len() - 5]), Ok(Progress::More));
    assert_eq!(response.skip_stray_lines(b"\r\n"), 0);
    // A lone CR before a response is an error, except on a new connection.
    for (is_new_connection, is_valid) in [(false, false), (true, true)] {
        let mut response = Response::new(Method::Get);
        assert_eq!((response.feed(OK), response.skip_stray_lines(b"\r")), (whole, 1));
        response.reset(Method::Get);
        if is_new_connection {
            response.forget_connection();
        }
        assert_eq!(response.feed(OK).is_ok(), is_valid);
    }
}

#[test]
fn folded_header_lines_are_joined() {
    let mut response = Response::new(Method::Get);
    response.store_head();
    let head = b"HTTP/1.1 302 Found\r\nLocation:\r\n /x\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(response.feed(head), Ok(Progress::Whole { consumed: head.len() }));
    assert_eq!(response.head(), b"HTTP/1.1 302 Found\r\nLocation:   /x\r\nContent-Length: 0\r\n\r\n");
}
