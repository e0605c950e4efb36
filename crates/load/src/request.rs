//! The bytes of a request, prepared once a target and shared by every connection.

use ledger::Method;

use crate::spec::{HttpVersion, LoadSpec, Reuse};
use crate::target::Target;

/// Head and body of the request to `target`.
pub(crate) fn prepare(spec: &LoadSpec, target: &Target) -> Box<[u8]> {
    let given = |name: &str| spec.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    let wanted = if spec.absolute_form {
        format!("http://{}{}", target.authority, target.path_and_query)
    } else {
        target.path_and_query.clone()
    };
    let mut head = format!("{} {wanted} {}\r\n", spec.method.as_str(), spec.version.as_str());
    let mut header = |name: &str, value: &str| {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    };
    for (name, value) in [("Host", target.authority.as_str()), ("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !given(name) {
            header(name, value);
        }
    }
    // HTTP/1.1 keeps connections unless told otherwise, HTTP/1.0 closes them unless told otherwise.
    match (spec.reuse, spec.version) {
        _ if given("Connection") => {}
        (Reuse::Close, HttpVersion::Http11) => header("Connection", "close"),
        (Reuse::KeepAlive, HttpVersion::Http10) => header("Connection", "keep-alive"),
        (Reuse::Close, HttpVersion::Http10) | (Reuse::KeepAlive, HttpVersion::Http11) => {}
    }
    // RFC 9110, section 8.6: to be sent with a method that means content, even where there is none.
    let means_content = matches!(spec.method, Method::Post | Method::Put | Method::Patch);
    if (means_content || !spec.body.is_empty()) && !given("Content-Length") {
        header("Content-Length", &spec.body.len().to_string());
    }
    for (name, value) in &spec.headers {
        header(name, value);
    }
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&spec.body);
    bytes.into_boxed_slice()
}

const USER_AGENT: &str = concat!("yamabiko/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Arrivals;

    fn text(change: impl FnOnce(&mut LoadSpec)) -> String {
        let mut spec = LoadSpec {
            targets: vec![Target::parse("http://server:8080/a?b").unwrap()],
            method: Method::Get,
            body: Vec::new(),
            headers: Vec::new(),
            absolute_form: false,
            version: HttpVersion::Http11,
            reuse: Reuse::KeepAlive,
            arrivals: Arrivals::Closed,
            connections_max: 1,
            requests_max: None,
            clients: 1,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            seed: 0,
            warmup: Duration::ZERO,
            duration: None,
        };
        change(&mut spec);
        String::from_utf8(prepare(&spec, &spec.targets[0]).into_vec()).unwrap()
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
        let own = text(|spec| spec.headers = vec![("host".into(), "other".into()), ("X-A".into(), "b".into())]);
        assert!(own.contains("\r\nhost: other\r\n") && own.contains("\r\nX-A: b\r\n") && !own.contains("server:8080"));
    }

    #[test]
    fn a_proxy_is_given_the_whole_url() {
        let asked = text(|spec| spec.absolute_form = true);
        assert!(asked.starts_with("GET http://server:8080/a?b HTTP/1.1\r\nHost: server:8080\r\n"), "{asked}");
    }

    #[test]
    fn a_post_says_how_long_its_body_is() {
        let post = text(|spec| (spec.method, spec.body) = (Method::Post, b"hello".to_vec()));
        assert!(post.contains("\r\nContent-Length: 5\r\n") && post.ends_with("\r\n\r\nhello"));
        assert!(text(|spec| spec.method = Method::Post).contains("\r\nContent-Length: 0\r\n"));
    }
}
