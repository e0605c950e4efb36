//! The bytes of an HTTP/1 request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ledger::Method;

use crate::spec::{HttpVersion, LoadSpec, Reuse};
use crate::workload::{RequestSpec, Template, Values};

/// Head and body of a request, with `values` in its places and `cookie` as the value of its Cookie header, at the end
/// of `into`.
pub(crate) fn write(
    spec: &LoadSpec,
    request: &RequestSpec,
    values: &Values<'_>,
    cookie: Option<&str>,
    into: &mut Vec<u8>,
) {
    let given = |name: &str| request.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    into.extend_from_slice(request.method.as_str().as_bytes());
    into.push(b' ');
    if spec.absolute_form {
        into.extend_from_slice(b"http://");
        into.extend_from_slice(request.target.authority.as_bytes());
    }
    request.path.render(values, into);
    into.push(b' ');
    into.extend_from_slice(spec.version.as_str().as_bytes());
    into.extend_from_slice(b"\r\n");
    for (name, value) in [("Host", request.target.authority.as_str()), ("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !given(name) {
            header(into, name, value.as_bytes());
        }
    }
    // HTTP/1.1 keeps connections unless told otherwise, HTTP/1.0 closes them unless told otherwise.
    match (spec.reuse, spec.version) {
        _ if given("Connection") => {}
        (Reuse::Close, HttpVersion::Http11) => header(into, "Connection", b"close"),
        (Reuse::KeepAlive, HttpVersion::Http10) => header(into, "Connection", b"keep-alive"),
        (Reuse::Close, HttpVersion::Http10) | (Reuse::KeepAlive, HttpVersion::Http11) | (_, HttpVersion::Http2) => {}
    }
    let rendered = |template: &Template| {
        let mut text = Vec::new();
        template.render(values, &mut text);
        text
    };
    if let Some(user) = &request.basic_auth
        && !given("Authorization")
    {
        header(into, "Authorization", format!("Basic {}", STANDARD.encode(rendered(user))).as_bytes());
    }
    if let Some(cookie) = cookie
        && !given("Cookie")
    {
        header(into, "Cookie", cookie.as_bytes());
    }
    let body = rendered(&request.body);
    // RFC 9110, section 8.6: to be sent with a method that means content, even where there is none.
    let means_content = matches!(request.method, Method::Post | Method::Put | Method::Patch);
    if (means_content || !body.is_empty()) && !given("Content-Length") {
        header(into, "Content-Length", body.len().to_string().as_bytes());
    }
    for (name, value) in &request.headers {
        header(into, name, &rendered(value));
    }
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(&body);
}

/// A request without places, once and for all.
pub(crate) fn prepare(spec: &LoadSpec, request: &RequestSpec) -> Box<[u8]> {
    let mut bytes = Vec::new();
    write(spec, request, &Values { client: 0, sequence: 0, session: None, variables: &[], seed: 0 }, None, &mut bytes);
    bytes.into_boxed_slice()
}

fn header(into: &mut Vec<u8>, name: &str, value: &[u8]) {
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

const USER_AGENT: &str = concat!("yamabiko/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Arrivals, Lane, Target, Workload};

    fn text(change: impl FnOnce(&mut LoadSpec)) -> String {
        let mut spec = LoadSpec {
            workload: Workload::of([Target::parse("http://server:8080/a?b").unwrap()]),
            absolute_form: false,
            version: HttpVersion::Http11,
            streams_max: 1,
            reuse: Reuse::KeepAlive,
            arrivals: Arrivals::Closed,
            connections_max: 1,
            requests_max: None,
            clients: 1,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            lane: Lane::WHOLE,
            seed: 0,
            warmup: Duration::ZERO,
            duration: None,
        };
        change(&mut spec);
        String::from_utf8(prepare(&spec, &spec.workload.requests[0]).into_vec()).unwrap()
    }

    #[test]
    fn a_plain_get() {
        let expected =
            format!("GET /a?b HTTP/1.1\r\nHost: server:8080\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\n\r\n");
        assert_eq!(text(|_| {}), expected);
    }

    #[test]
    fn what_is_said_about_the_connection() {
        assert!(text(|spec| spec.reuse = Reuse::Close).contains("\r\nConnection: close\r\n"));
        assert!(text(|spec| spec.version = HttpVersion::Http10).contains("\r\nConnection: keep-alive\r\n"));
        let old_close = text(|spec| (spec.version, spec.reuse) = (HttpVersion::Http10, Reuse::Close));
        assert!(old_close.starts_with("GET /a?b HTTP/1.0\r\n") && !old_close.contains("Connection"));
    }

    #[test]
    fn own_headers_replace_the_built_in_ones() {
        let own = text(|spec| {
            spec.workload.requests[0].headers =
                vec![("host".into(), Template::literal("other")), ("X-A".into(), Template::literal("b"))];
        });
        assert!(own.contains("\r\nhost: other\r\n") && own.contains("\r\nX-A: b\r\n") && !own.contains("server:8080"));
    }

    #[test]
    fn a_proxy_is_given_the_whole_url() {
        let asked = text(|spec| spec.absolute_form = true);
        assert!(asked.starts_with("GET http://server:8080/a?b HTTP/1.1\r\nHost: server:8080\r\n"), "{asked}");
    }

    #[test]
    fn a_post_says_how_long_its_body_is() {
        let post = text(|spec| {
            let request = &mut spec.workload.requests[0];
            (request.method, request.body) = (Method::Post, Template::literal("hello"));
        });
        assert!(post.contains("\r\nContent-Length: 5\r\n") && post.ends_with("\r\n\r\nhello"));
        assert!(text(|spec| spec.workload.requests[0].method = Method::Post).contains("\r\nContent-Length: 0\r\n"));
    }
}
