//! Valid and invalid request heads.

use super::*;
use crate::framing_table;
use proptest::prelude::*;

const LIMIT: usize = 1024;

fn limits() -> Limits {
    Limits { head_bytes: LIMIT, head_fields: 64, ..Limits::default() }
}

fn complete(input: &str) -> Request<'_> {
    match parse(input.as_bytes(), &limits()) {
        Parsed::Complete(request) => request,
        other => panic!("{input:?}: {other:?}"),
    }
}

fn refused(input: &str) -> Status {
    match parse(input.as_bytes(), &limits()) {
        Parsed::Refused(status) => status,
        other => panic!("{input:?}: {other:?}"),
    }
}

fn path_of(target: &str) -> String {
    let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    String::from_utf8(complete(&head).path.to_vec()).unwrap()
}

#[test]
fn a_plain_request_is_parsed() {
    let head = "GET /a.html?q=1 HTTP/1.1\r\nHost: server\r\nRange:\t bytes=0-1 \r\n\r\n";
    let input = format!("{head}GET /next");
    let request = complete(&input);
    assert_eq!((request.method, request.target), (Method::Get, &b"/a.html?q=1"[..]));
    assert_eq!((request.path, request.query), (&b"/a.html"[..], Some(&b"q=1"[..])));
    assert!(request.keep_alive && !request.old && !request.expects_continue && request.body == Body::None);
    assert_eq!((request.head, request.length), (head.as_bytes(), head.len()));
    assert_eq!((request.fields.host, request.fields.range), (Some(&b"server"[..]), Some(&b"bytes=0-1"[..])));
    assert!(request.fields.conditional && !request.fields.repeated);
    assert_eq!(request.method_name(), b"GET");
    let lines: Vec<_> = request.fields.lines().collect();
    assert_eq!(lines, [(&b"Host"[..], &b"server"[..]), (b"Range", b"bytes=0-1")]);
    assert_eq!(complete("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").method, Method::Head);
}

#[test]
fn empty_lines_before_a_request_are_skipped() {
    let request = complete("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nrest");
    assert!(request.head.starts_with(b"GET ") && request.head.ends_with(b"\r\n\r\n"));
    assert_eq!(request.length, request.head.len() + 4);
    assert_eq!(refused("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"), Status::BadRequest);
}

#[test]
fn keep_alive_follows_version_and_connection_field() {
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
fn request_targets_in_every_form_are_parsed() {
    assert_eq!(path_of("/"), "/");
    assert_eq!(path_of("/a/b?c?d"), "/a/b");
    assert_eq!(path_of("http://server:80/a?b"), "/a");
    assert_eq!(path_of("HTTP://server?b"), "/");
    assert_eq!(path_of("https://[::1]"), "/");
    let wrong =
        ["*", "a", "a:80", "ftp://h/a", "http:///a", "http:/a", "http://", "http://u@h/", "/a#b", "/a?b#c", "//#"];
    for wrong in wrong {
        let head = format!("GET {wrong} HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(refused(&head), Status::BadRequest, "{wrong}");
    }
    let absolute = "GET http://right/ HTTP/1.1\r\nHost: wrong\r\n\r\n";
    assert_eq!(complete(absolute).fields.host, Some(&b"right"[..]));
    assert_eq!(complete("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").path, b"*");
    assert_eq!(complete("CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n").path, b"a:1");
}

#[test]
fn every_method_is_parsed() {
    let method = |name: &str| complete(&format!("{name} / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")).method;
    assert_eq!(method("POST"), Method::Post);
    assert_eq!(method("TRACE"), Method::Trace);
    assert_eq!(method("BREW"), Method::Unknown);
    // Methods are case-sensitive (RFC 9110, section 9.1).
    assert_eq!(method("get"), Method::Unknown);
}

#[test]
fn content_length_and_chunked_bodies_are_recognised() {
    let request = |fields: &str| {
        let request = complete(Box::leak(format!("PUT / HTTP/1.1\r\nHost: x\r\n{fields}\r\n").into_boxed_str()));
        (request.body, request.expects_continue)
    };
    assert_eq!(request(""), (Body::None, false));
    assert_eq!(request("Content-Length: 0\r\n"), (Body::None, false));
    assert_eq!(request("Content-Length: 5\r\n"), (Body::Bytes(5), false));
    assert_eq!(request("Content-Length: 18446744073709551615\r\n"), (Body::Bytes(u64::MAX), false));
    assert_eq!(request("Transfer-Encoding: Chunked\r\n"), (Body::Chunked, false));
    assert_eq!(request("Transfer-Encoding: ,chunked ,\r\n"), (Body::Chunked, false));
    assert_eq!(request("Content-Length: 5\r\nExpect: 100-Continue\r\n"), (Body::Bytes(5), true));
    assert_eq!(request("Expect: 100-continue\r\n"), (Body::None, false));
    let old = complete("PUT / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!((old.body, old.expects_continue), (Body::Bytes(5), false));
}

#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5\u{b}\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\u{b}\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Host: y\r\n",
        "Host: x\r\n",
        " Folded: x\r\n",
        "A: b\r\n folded\r\n",
        "A: b\r\n\tfolded\r\n",
        "No-Colon\r\n",
        ": no name\r\n",
        "Space : x\r\n",
        "Bare: x\n",
        "Bare: x\rContent-Length: 5\r\n",
        "Nul: \0\r\n",
        "N\0: x\r\n",
        "Bell: \u{7}\r\n",
        "Delete: \u{7f}\r\n",
        "Na(me: x\r\n",
    ] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")), Status::BadRequest, "{fields:?}");
    }
    let coded = "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    assert_eq!(refused(coded), Status::NotImplemented);
    assert_eq!(refused("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Status::BadRequest);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: x\r\nExpect: the worst\r\n\r\n"), Status::ExpectationFailed);
    for host in ["", "Host: a b\r\n", "Host: a/b\r\n", "Host: u@h\r\n", "Host: a, b\r\n"] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{host}\r\n")), Status::BadRequest, "{host:?}");
    }
    assert!(complete("GET / HTTP/1.1\r\nHost:\r\n\r\n").keep_alive);
    assert!(!complete("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert_eq!(refused("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), Status::BadRequest);
}

#[test]
fn request_bodies_are_framed_as_in_the_framing_table() {
    for case in framing_table::requests() {
        let bytes = case.head();
        let outcome = match parse(&bytes, &limits()) {
            Parsed::Complete(Request { body: Body::None, .. }) if bytes.ends_with(b": 0\r\n\r\n") => {
                "length:0".to_owned()
            }
            Parsed::Complete(Request { body: Body::None, .. }) => "none".to_owned(),
            Parsed::Complete(Request { body: Body::Bytes(length), .. }) => format!("length:{length}"),
            Parsed::Complete(Request { body: Body::Chunked, .. }) => "chunked".to_owned(),
            Parsed::Refused(status) => status.code().to_string(),
            Parsed::Incomplete => panic!("{case:?}"),
        };
        // A client sees only the status of a refusal.
        let refused = case.server.split(':').next().filter(|status| status.parse::<u16>().is_ok());
        assert_eq!(outcome, refused.unwrap_or(&case.server), "{case:?}");
    }
    for case in framing_table::chunked() {
        let (mut chunks, mut data, mut at) = (Chunks::new(u64::MAX), 0, 0);
        let outcome = loop {
            match chunks.step(&case.bytes[at..]) {
                Ok(Step::More) => break "more".to_owned(),
                Ok(Step::Data(range)) => (at, data) = (at + range.end, data + range.len()),
                Ok(Step::End(_)) => break data.to_string(),
                Err(status) => break status.code().to_string(),
            }
        };
        assert_eq!(outcome, case.server.split(':').next().unwrap(), "{case:?}");
    }
}

#[test]
fn lines_without_cr_lf_are_refused() {
    for head in [
        "GET / HTTP/1.1\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\n",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\rHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\r\n",
        "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\nHost: x\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\r\n\r\n",
        "GET\r\n\r\n",
    ] {
        assert_eq!(refused(head), Status::BadRequest, "{head:?}");
    }
}

#[test]
fn http_versions_are_parsed_or_refused() {
    for other in ["HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/9.9"] {
        assert_eq!(refused(&format!("GET / {other}\r\nHost: x\r\n\r\n")), Status::VersionNotSupported, "{other}");
    }
    for none in ["HTTP/1.10", "HTTP/1.1.1", "http/1.1", "HTTX/1.1", "HTTP/a.1", "HTTP/1,1", "HTTP/ 1.1", "HTTP/+1.1"] {
        assert_eq!(refused(&format!("GET / {none}\r\nHost: x\r\n\r\n")), Status::BadRequest, "{none}");
    }
    assert_eq!(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Status::VersionNotSupported);
    assert_eq!(refused("\x16\x03\x01\x02\x00\x01"), Status::BadRequest);
}

/// RFC 9110, section 2.5.
#[test]
fn http_1_2_to_1_9_count_as_1_1() {
    for minor in ["2", "5", "9"] {
        let head = |minor: &str| format!("\r\nPOST /a?b HTTP/1.{minor}\r\nHost: x\r\nContent-Length: 3\r\n\r\n");
        let (known, later) = (head("1"), head(minor));
        let (known, read) = (complete(&known), complete(&later));
        assert!(!read.old && read.keep_alive);
        assert_eq!(
            (read.method, read.path, read.query, read.body),
            (known.method, known.path, known.query, known.body)
        );
        assert_eq!((read.fields.host, read.length), (known.fields.host, known.length));
        // Every prefix is incomplete.
        for cut in 1..later.len() {
            assert_eq!(parse(&later.as_bytes()[..cut], &limits()), Parsed::Incomplete, "{cut}");
        }
        // As strict as for HTTP/1.1.
        for wrong in [
            "GET  / HTTP/1.M",
            "G(T / HTTP/1.M",
            "GET /\x01 HTTP/1.M",
            "GET / x HTTP/1.M",
            "GET / HTTP/1.M ",
            " HTTP/1.M",
        ] {
            let line = wrong.replace('M', minor);
            assert_eq!(refused(&format!("{line}\r\nHost: x\r\n\r\n")), Status::BadRequest, "{line}");
        }
        for fields in ["Host : x\r\n", "Host: x\r\n folded\r\n", "Host: x\nA: b\r\n", "A: b\r\n"] {
            let head = format!("GET / HTTP/1.{minor}\r\n{fields}\r\n");
            assert_eq!(refused(&head), Status::BadRequest, "{fields:?}");
        }
        let many = "A: b\r\n".repeat(70);
        assert_eq!(refused(&format!("GET / HTTP/1.{minor}\r\nHost: x\r\n{many}\r\n")), Status::HeadTooLarge);
        let long = "a".repeat(LIMIT);
        assert_eq!(refused(&format!("GET / HTTP/1.{minor}\r\nHost: x\r\nA: {long}\r\n\r\n")), Status::HeadTooLarge);
    }
}

#[test]
fn a_head_at_the_limit_is_accepted_and_one_beyond_is_refused() {
    let head = |length: usize| {
        let around = "GET / HTTP/1.1\r\nHost: x\r\nA: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(length - around))
    };
    assert_eq!(complete(&head(LIMIT)).length, LIMIT);
    assert_eq!(refused(&head(LIMIT + 1)), Status::HeadTooLarge);
    let line = |length: usize| format!("GET /{}", "a".repeat(length - "GET /".len()));
    assert_eq!(parse(line(LIMIT - 1).as_bytes(), &limits()), Parsed::Incomplete);
    assert_eq!(refused(&line(LIMIT)), Status::TargetTooLong);
    let headers = |count: usize| "A: b\r\n".repeat(count);
    assert!(complete(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", headers(63))).keep_alive);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", headers(64))), Status::HeadTooLarge);
    let more = Limits { head_fields: usize::MAX, ..limits() };
    let most = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", headers(FIELDS_MAX - 1));
    assert!(matches!(parse(most.as_bytes(), &more), Parsed::Complete(_)));
}

#[test]
fn repeated_list_fields_are_combined() {
    let request = complete("GET / HTTP/1.1\r\nHost: x\r\nIf-Match: \"a\"\r\nX: y\r\nif-match: \"b\"\r\n\r\n");
    assert!(request.fields.repeated);
    let values: Vec<_> = request.fields.values(b"If-Match").collect();
    assert_eq!(values, [b"\"a\"", b"\"b\""]);
}

proptest! {
    /// No input makes the parser panic or claim more bytes than it got.
    #[test]
    fn any_bytes_are_parsed_without_panic(input in proptest::collection::vec(any::<u8>(), 1..300)) {
        if let Parsed::Complete(request) = parse(&input, &limits()) {
            prop_assert!(request.length <= input.len());
        }
    }

    /// Every prefix of a request is incomplete, never refused and never complete.
    #[test]
    fn every_prefix_of_a_request_is_incomplete(cut in 1usize..60) {
        let head = "GET /a%20b HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n";
        prop_assume!(cut < head.len());
        prop_assert_eq!(parse(&head.as_bytes()[..cut], &limits()), Parsed::Incomplete);
    }
}
