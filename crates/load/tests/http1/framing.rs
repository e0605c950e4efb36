//! The reader of responses held to the table of framing rules, which every reader of this program shares.

#[path = "../../../http1/tests/framing/table.rs"]
mod table;

use load::http1::{AtClose, Progress, Response};
use schema::Method;

/// How a response with this head goes on, in the words of the table.
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
        // An interim response: it has no body, and the final one follows.
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
    // The load asks for no tunnels: those through proxies are made below it.
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
    // In the packet of the body.
    let mut response = Response::new(Method::Get);
    assert_eq!(response.feed(&[OK, b"\r\n"].concat()), whole);
    assert_eq!((response.skip_stray_lines(b"\r\n"), response.take_stray_lines()), (2, 1));
    // In a later one, in two halves, the second after the next request was sent.
    assert_eq!(response.skip_stray_lines(b"\r"), 1);
    response.reset(Method::Get);
    assert_eq!(response.skip_stray_lines(b"\nHTTP"), 1);
    assert_eq!((response.take_stray_lines(), response.feed(OK)), (1, whole));
    // At the beginning of the next one.
    response.reset(Method::Get);
    assert_eq!(response.feed(&[b"\r\n", OK].concat()), Ok(Progress::Whole { consumed: OK.len() + 2 }));
    assert_eq!((response.take_stray_lines(), response.head_bytes()), (1, 38));
    // Anything else is surplus.
    assert_eq!((response.skip_stray_lines(b"JUNK"), response.skip_stray_lines(b"\r\nJUNK")), (0, 2));
    // Within a body nothing is stray.
    response.reset(Method::Get);
    assert_eq!(response.feed(&OK[..OK.len() - 5]), Ok(Progress::More));
    assert_eq!(response.skip_stray_lines(b"\r\n"), 0);
    // A CR alone before a response is not forgotten, but for another connection.
    for (forgets, good) in [(false, false), (true, true)] {
        let mut response = Response::new(Method::Get);
        assert_eq!((response.feed(OK), response.skip_stray_lines(b"\r")), (whole, 1));
        response.reset(Method::Get);
        if forgets {
            response.forget_connection();
        }
        assert_eq!(response.feed(OK).is_ok(), good);
    }
}

#[test]
fn folded_header_lines_are_joined() {
    let mut response = Response::new(Method::Get);
    response.keep_head();
    let head = b"HTTP/1.1 302 Found\r\nLocation:\r\n /x\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(response.feed(head), Ok(Progress::Whole { consumed: head.len() }));
    assert_eq!(response.head(), b"HTTP/1.1 302 Found\r\nLocation:   /x\r\nContent-Length: 0\r\n\r\n");
}
