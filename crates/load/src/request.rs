//! Writes the bytes of an HTTP/1 request.

use schema::Method;

use crate::rendering::Rendering;
use crate::spec::{HttpVersion, LoadSpec, Reuse};

/// Appends head and body of a request to `into`.
pub(crate) fn write(spec: &LoadSpec, rendering: &Rendering<'_>, into: &mut Vec<u8>) {
    let (method, target) = (rendering.method(), rendering.target());
    into.extend_from_slice(method.as_str().as_bytes());
    into.push(b' ');
    if spec.absolute_form && !target.secure {
        into.extend_from_slice(b"http://");
        into.extend_from_slice(target.authority.as_bytes());
    }
    rendering.path(into);
    into.push(b' ');
    into.extend_from_slice(spec.version.as_str().as_bytes());
    into.extend_from_slice(b"\r\n");
    for (name, value) in [("Host", target.authority.as_str()), ("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !rendering.gives(name) {
            header(into, name, value.as_bytes());
        }
    }
    // By default connections are persistent in HTTP/1.1, and not in HTTP/1.0.
    let reuse =
        if rendering.workload_content.is_some_and(|content| content.is_last) { Reuse::Close } else { spec.reuse };
    match (reuse, spec.version) {
        _ if rendering.gives("Connection") => {}
        (Reuse::Close, HttpVersion::Http11) => header(into, "Connection", b"close"),
        (Reuse::KeepAlive, HttpVersion::Http10) => header(into, "Connection", b"keep-alive"),
        (Reuse::Close, HttpVersion::Http10)
        | (Reuse::KeepAlive, HttpVersion::Http11)
        | (_, HttpVersion::Http2 | HttpVersion::Http3) => {}
    }
    if let Some(content) = &rendering.workload_content {
        content.fields(into);
    }
    if let Some(credentials) = rendering.basic_auth()
        && !rendering.gives("Authorization")
    {
        header(into, "Authorization", credentials.as_bytes());
    }
    if let Some(cookie) = &rendering.cookie
        && !rendering.gives("Cookie")
    {
        header(into, "Cookie", cookie);
    }
    // The length of a body with placeholders is known only after rendering.
    let rendered_body = rendering.body_length().is_none().then(|| {
        let mut body = Vec::new();
        rendering.body(&mut body);
        body
    });
    let body_length = rendered_body.as_ref().map_or_else(|| rendering.body_length().unwrap_or(0), Vec::len);
    // RFC 9110, section 8.6: methods that anticipate content require Content-Length, even without content.
    let means_content = matches!(method, Method::Post | Method::Put | Method::Patch);
    if (means_content || body_length > 0) && !rendering.gives("Content-Length") {
        header(into, "Content-Length", body_length.to_string().as_bytes());
    }
    for (number, name) in rendering.headers() {
        into.extend_from_slice(name.as_bytes());
        into.extend_from_slice(b": ");
        rendering.header_value(number, into);
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
    match rendered_body {
        Some(body) => into.extend_from_slice(&body),
        None => rendering.body(into),
    }
}

fn header(into: &mut Vec<u8>, name: &str, value: &[u8]) {
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

pub(crate) const USER_AGENT: &str = concat!("yamabiko/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::plain;
    use crate::workload::Template;
    use crate::{Target, Workload};

    fn text(change: impl FnOnce(&mut LoadSpec)) -> String {
        let mut spec = plain(Workload::of([Target::parse("http://server:8080/a?b").unwrap()]));
        change(&mut spec);
        let mut bytes = Vec::new();
        write(&spec, &Rendering::literal(&spec.workload.requests[0]), &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_get_request_is_serialized() {
        let expected =
            format!("GET /a?b HTTP/1.1\r\nHost: server:8080\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\n\r\n");
        assert_eq!(text(|_| {}), expected);
    }

    #[test]
    fn the_connection_header_matches_keep_alive_and_version() {
        assert!(text(|spec| spec.reuse = Reuse::Close).contains("\r\nConnection: close\r\n"));
        assert!(text(|spec| spec.version = HttpVersion::Http10).contains("\r\nConnection: keep-alive\r\n"));
        let old_close = text(|spec| (spec.version, spec.reuse) = (HttpVersion::Http10, Reuse::Close));
        assert!(old_close.starts_with("GET /a?b HTTP/1.0\r\n") && !old_close.contains("Connection"));
    }

    #[test]
    fn user_headers_replace_the_built_in_ones() {
        let own = text(|spec| {
            spec.workload.requests[0].headers =
                vec![("host".into(), Template::literal("other")), ("X-A".into(), Template::literal("b"))];
        });
        assert!(own.contains("\r\nhost: other\r\n") && own.contains("\r\nX-A: b\r\n") && !own.contains("server:8080"));
    }

    #[test]
    fn proxy_requests_have_an_absolute_target() {
        let request = text(|spec| spec.absolute_form = true);
        assert!(request.starts_with("GET http://server:8080/a?b HTTP/1.1\r\nHost: server:8080\r\n"), "{request}");
    }

    #[test]
    fn a_post_request_has_content_length() {
        let post = text(|spec| {
            let request = &mut spec.workload.requests[0];
            (request.method, request.body) = (Method::Post, Template::literal("hello"));
        });
        assert!(post.contains("\r\nContent-Length: 5\r\n") && post.ends_with("\r\n\r\nhello"));
        assert!(text(|spec| spec.workload.requests[0].method = Method::Post).contains("\r\nContent-Length: 0\r\n"));
    }
}
