//! Heads, right and wrong.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 1024;

fn complete(input: &str) -> Request<'_> {
    match parse(input.as_bytes(), LIMIT) {
        Parsed::Complete(request) => request,
        other => panic!("{input:?}: {other:?}"),
    }
}

fn refused(input: &str) -> Status {
    match parse(input.as_bytes(), LIMIT) {
        Parsed::Refused(status) => status,
        other => panic!("{input:?}: {other:?}"),
    }
}

fn path_of(target: &str) -> String {
    let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    String::from_utf8(complete(&head).path.to_vec()).unwrap()
}

#[test]
fn a_plain_request() {
    let head = "GET /a.html?q=1 HTTP/1.1\r\nHost: server\r\n\r\n";
    let input = format!("{head}GET /next");
    let request = complete(&input);
    let wanted = Request {
        method: Method::Get,
        path: b"/a.html",
        keep_alive: true,
        old: false,
        body: Body::Bytes(0),
        length: head.len(),
    };
    assert_eq!(request, wanted);
    assert_eq!(complete("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").method, Method::Head);
}

#[test]
fn keeping_the_connection_is_the_clients_wish() {
    let keeps = |version, connection: &str| {
        let lines: String = connection
            .split('|')
            .filter(|c| !c.is_empty())
            .fold(String::new(), |lines, value| lines + "Connection: " + value + "\r\n");
        complete(&format!("GET / HTTP/{version}\r\nHost: x\r\n{lines}\r\n")).keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(!keeps("1.1", "close"));
    assert!(!keeps("1.1", "TE, Close"));
    assert!(!keeps("1.1", "keep-alive|close"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Keep-Alive"));
    assert!(!keeps("1.0", "keep-alive, close"));
}

#[test]
fn targets_in_every_form() {
    assert_eq!(path_of("/"), "/");
    assert_eq!(path_of("/a/b?c#d"), "/a/b");
    assert_eq!(path_of("http://server:80/a?b"), "/a");
    assert_eq!(path_of("HTTP://server?b"), "/");
    assert_eq!(path_of("http://server"), "/");
    for wrong in ["*", "a", "ftp://server/a", "http:///a", "http:/a", "http://"] {
        let head = format!("GET {wrong} HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(refused(&head), Status::BadRequest, "{wrong}");
    }
}

#[test]
fn methods_other_than_get_and_head() {
    assert_eq!(refused("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"), Status::MethodNotAllowed);
    assert_eq!(refused("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), Status::MethodNotAllowed);
    assert_eq!(refused("BREW / HTTP/1.1\r\nHost: x\r\n\r\n"), Status::NotImplemented);
    // Methods are case-sensitive (RFC 9110, section 9.1).
    assert_eq!(refused("get / HTTP/1.1\r\nHost: x\r\n\r\n"), Status::NotImplemented);
}

#[test]
fn a_body_is_measured() {
    let body = |fields: &str| complete(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")).body;
    assert_eq!(body("Content-Length: 5\r\n"), Body::Bytes(5));
    assert_eq!(body("Content-Length: 5\r\nContent-Length: 5\r\n"), Body::Bytes(5));
    assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Body::Unfollowed);
    assert_eq!(body("Content-Length: 5\r\nExpect: 100-continue\r\n"), Body::Unfollowed);
    assert_eq!(body("Expect: 100-continue\r\n"), Body::Bytes(0));
}

#[test]
fn framing_that_two_parsers_could_read_differently_is_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Host: y\r\n",
        " Folded: x\r\n",
        "No-Colon\r\n",
        "Space : x\r\n",
    ] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")), Status::BadRequest, "{fields:?}");
    }
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"), Status::NotImplemented);
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Status::BadRequest);
    assert!(!complete("GET / HTTP/1.0\r\n\r\n").keep_alive);
}

#[test]
fn versions() {
    assert_eq!(refused("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), Status::VersionNotSupported);
    assert_eq!(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Status::VersionNotSupported);
    assert_eq!(refused("\x16\x03\x01\x02\x00\x01"), Status::BadRequest);
}

#[test]
fn the_limit_is_a_boundary() {
    let head = |length: usize| {
        let around = "GET / HTTP/1.1\r\nHost: x\r\nA: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(length - around))
    };
    assert_eq!(complete(&head(LIMIT)).length, LIMIT);
    assert_eq!(refused(&head(LIMIT + 1)), Status::HeadTooLarge);
    let line = |length: usize| format!("GET /{}", "a".repeat(length - "GET /".len()));
    assert_eq!(parse(line(LIMIT - 1).as_bytes(), LIMIT), Parsed::Incomplete);
    assert_eq!(refused(&line(LIMIT)), Status::TargetTooLong);
    let headers = |count: usize| "A: b\r\n".repeat(count);
    assert!(complete(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", headers(HEADERS_MAX - 1))).keep_alive);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", headers(HEADERS_MAX))), Status::HeadTooLarge);
}

proptest! {
    /// No bytes make the parser panic, and it never claims more than it was given.
    #[test]
    fn any_bytes(input in proptest::collection::vec(any::<u8>(), 1..300)) {
        if let Parsed::Complete(request) = parse(&input, LIMIT) {
            prop_assert!(request.length <= input.len() && request.path.starts_with(b"/"));
        }
    }

    /// A request cut anywhere is incomplete, never refused and never complete.
    #[test]
    fn any_cut(cut in 1usize..60) {
        let head = "GET /a%20b HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n";
        prop_assume!(cut < head.len());
        prop_assert_eq!(parse(&head.as_bytes()[..cut], LIMIT), Parsed::Incomplete);
    }
}
