//! Header fields to forward, in both directions. Pure.
//!
//! The request is rebuilt from its parsed parts; no raw client bytes reach the upstream. The server frames the body
//! itself, so two programs cannot disagree about its end.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sys::clock::Clock;

use super::upstream::Changes;
use crate::date::http_date;

/// A request head, parsed by the relay.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: http::Method,
    /// Origin form: begins with `/`, without fragment.
    pub(super) target: Vec<u8>,
    /// Every field, names in lower case.
    pub(super) fields: HeaderMap,
    /// HTTP/1.0.
    pub(super) old: bool,
}

impl RequestHead {
    /// `None` for a malformed head, which no worker sends.
    pub(super) fn parse(head: &[u8]) -> Option<RequestHead> {
        let lines = head.iter().filter(|&&byte| byte == b'\n').count();
        let mut headers = vec![httparse::EMPTY_HEADER; lines];
        let mut parsed = httparse::Request::new(&mut headers);
        if !parsed.parse(head).ok()?.is_complete() {
            return None;
        }
        let method = http::Method::from_bytes(parsed.method?.as_bytes()).ok()?;
        let mut fields = HeaderMap::with_capacity(lines + 8);
        for field in parsed.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            fields.append(name, HeaderValue::from_bytes(field.value).ok()?);
        }
        let (authority, target) = split_target(parsed.path?.as_bytes())?;
        if let Some(authority) = authority {
            // RFC 9112, section 3.2.2: the host of an absolute target replaces the Host field.
            fields.insert(header::HOST, HeaderValue::from_bytes(authority).ok()?);
        }
        Some(RequestHead { method, target, fields, old: parsed.version? == 0 })
    }

    /// The path without query, as sent.
    pub(super) fn path(&self) -> &[u8] {
        &self.target[..self.query_at()]
    }

    /// What follows the `?`; `None` without one.
    pub(super) fn query(&self) -> Option<&[u8]> {
        self.target.get(self.query_at() + 1..)
    }

    fn query_at(&self) -> usize {
        self.target.iter().position(|&byte| byte == b'?').unwrap_or(self.target.len())
    }

    /// RFC 9110, section 9.2.1: safe methods, which change nothing and may be repeated.
    pub(super) fn is_safe(&self) -> bool {
        self.method.is_safe()
    }
}

/// Authority, if the target has one, and the target in origin form.
fn split_target(target: &[u8]) -> Option<(Option<&[u8]>, Vec<u8>)> {
    let (authority, rest) = if target.first() == Some(&b'/') {
        (None, target)
    } else {
        let at = target.windows(3).position(|three| three == b"://")?;
        let rest = &target[at + 3..];
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        // Credentials before the host do not belong to Host (RFC 9110, section 4.2.4).
        let authority = rest[..end].rsplit(|&byte| byte == b'@').next()?;
        (Some(authority), &rest[end..])
    };
    let end = rest.iter().position(|&byte| byte == b'#').unwrap_or(rest.len());
    let mut origin = rest[..end].to_vec();
    if origin.first() != Some(&b'/') {
        origin.insert(0, b'/');
    }
    Some((authority, origin))
}

/// Client address and scheme, for X-Forwarded-* and CGI.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientInfo {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) secure: bool,
}

impl ClientInfo {
    pub(super) fn scheme(self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

/// The request fields for the upstream, without those that frame the body.
///
/// `Host` is the client's. The client's address is appended to `X-Forwarded-For`; `X-Forwarded-Proto` and `-Host` are
/// set; other forwarding fields are dropped, since a client could forge them.
pub(super) fn for_upstream(head: &RequestHead, client_info: ClientInfo, changes: &Changes) -> HeaderMap {
    let fields = &head.fields;
    let mut upstream_fields = HeaderMap::with_capacity(fields.len() + 4);
    let nominated = nominated(fields);
    for (name, value) in fields {
        let text = name.as_str();
        // Programs that equate `_` and `-` (CGI, WSGI) would accept a forged X_Forwarded_For.
        let dropped = concerns_one_hop(name)
            || nominated.iter().any(|named| named == text)
            || text.contains('_')
            || text.starts_with("x-forwarded-")
            || changes.without.contains(&text)
            || matches!(text, "content-length" | "expect" | "forwarded" | "x-real-ip");
        if !dropped {
            upstream_fields.append(name.clone(), value.clone());
        }
    }
    let forwarded = fields.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
    let peer = client_info.peer.ip().to_canonical().to_string();
    let chain: Vec<&[u8]> = forwarded.filter(|list| !list.is_empty()).chain([peer.as_bytes()]).collect();
    let mut set = |name: &'static str, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            upstream_fields.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-forwarded-for", &chain.join(&b", "[..]));
    set("x-forwarded-proto", client_info.scheme().as_bytes());
    if let Some(host) = fields.get(header::HOST) {
        set("x-forwarded-host", host.as_bytes());
    }
    let version = if head.old { "1.0" } else { "1.1" };
    if let Ok(via) = HeaderValue::from_str(&format!("{version} yamabiko")) {
        // RFC 9110, section 7.6.3: a gateway adds Via to the request.
        upstream_fields.append(header::VIA, via);
    }
    // RFC 9110, section 7.6.2. Requests with 0 are answered here (`connection/responding.rs`); other methods ignore the
    // field.
    if matches!(head.method, http::Method::OPTIONS | http::Method::TRACE)
        && let Some(hops) =
            upstream_fields.get(header::MAX_FORWARDS).and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
    {
        upstream_fields.insert(header::MAX_FORWARDS, hops.saturating_sub(1).into());
    }
    for (name, value) in &changes.with {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            upstream_fields.append(name, value);
        }
    }
    upstream_fields
}

/// The field lines of a response for the client, each with CRLF, with a `Date`.
pub(super) fn for_client(fields: &HeaderMap) -> Bytes {
    let mut lines = end_to_end(fields);
    if !fields.contains_key(header::DATE) {
        // RFC 9110, section 6.6.1: an intermediary adds a missing Date.
        lines.extend_from_slice(b"Date: ");
        lines.extend_from_slice(&http_date(Clock::start().started()));
        lines.extend_from_slice(b"\r\n");
    }
    lines.into()
}

/// The end-to-end field lines of a response, without framing fields.
pub(super) fn end_to_end(fields: &HeaderMap) -> Vec<u8> {
    let nominated = nominated(fields);
    let mut lines = Vec::with_capacity(64 * fields.len() + 64);
    for (name, value) in fields {
        if concerns_one_hop(name)
            || name == header::CONTENT_LENGTH
            || nominated.iter().any(|named| named == name.as_str())
        {
            continue;
        }
        title(name.as_str(), &mut lines);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

/// The announced length of the content, if there is one.
pub(super) fn declared_length(fields: &HeaderMap) -> Option<u64> {
    framing(fields).length()
}

/// The framing fields of a response, for the shared framing rules.
pub(super) fn framing(fields: &HeaderMap) -> http1::Fields<'_> {
    let mut framing = http1::Fields::default();
    fields.get_all(header::CONTENT_LENGTH).iter().for_each(|value| framing.content_length(value.as_bytes()));
    fields.get_all(header::TRANSFER_ENCODING).iter().for_each(|value| framing.transfer_encoding(value.as_bytes()));
    framing
}

/// RFC 9110, section 7.6.1: hop-by-hop fields. `Proxy-Connection` and `Keep-Alive` are such by custom; credentials for
/// a proxy are not forwarded either.
fn concerns_one_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "proxy"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
            | "proxy-connection"
    )
}

/// Names listed by Connection, in lower case.
fn nominated(fields: &HeaderMap) -> Vec<String> {
    let lists = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase());
    // Connection cannot remove fields that route or frame a message.
    names.filter(|name| !matches!(name.as_str(), "" | "host" | "content-length" | "content-type" | "date")).collect()
}

/// `content-type` as `Content-Type`: some scripts compare case-sensitively.
fn title(name: &str, out: &mut Vec<u8>) {
    if name == "etag" {
        return out.extend_from_slice(b"ETag");
    }
    let mut first = true;
    for byte in name.bytes() {
        out.push(if first { byte.to_ascii_uppercase() } else { byte });
        first = byte == b'-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> RequestHead {
        RequestHead::parse(format!("GET /app?x=1 HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes()).unwrap()
    }

    fn client_info() -> ClientInfo {
        ClientInfo { peer: "192.0.2.1:5".parse().unwrap(), local: "192.0.2.9:80".parse().unwrap(), secure: false }
    }

    fn forwarded_fields(fields: &str) -> Vec<String> {
        let forwarded = for_upstream(&head(fields), client_info(), &Changes::default());
        let ours = ["host", "x-forwarded-proto", "x-forwarded-host", "via"];
        let of_client = forwarded.iter().filter(|(name, _)| !ours.contains(&name.as_str()));
        of_client.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn hop_by_hop_fields_are_removed_and_others_forwarded() {
        let sent = "Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n\
            Proxy-Authorization: x\r\nProxy: evil\r\nExpect: 100-continue\r\nAccept: a\r\nAccept: b\r\nX_Y: 1\r\n\
            Content-Length: 5\r\nForwarded: for=1\r\nX-Real-IP: 1\r\nCookie: c\r\n";
        assert_eq!(forwarded_fields(sent), ["accept: a", "accept: b", "cookie: c", "x-forwarded-for: 192.0.2.1"]);
        // Framing and routing fields are not removable.
        let forwarded =
            for_upstream(&head("Connection: host, x-forwarded-for\r\n"), client_info(), &Changes::default());
        assert_eq!(forwarded["host"], "h");
        assert_eq!(forwarded["x-forwarded-for"], "192.0.2.1");
    }

    #[test]
    fn max_forwards_is_decremented() {
        let left = |method: &str| {
            let head = format!("{method} /app HTTP/1.1\r\nHost: h\r\nMax-Forwards: 7\r\n\r\n");
            let forwarded =
                for_upstream(&RequestHead::parse(head.as_bytes()).unwrap(), client_info(), &Changes::default());
            forwarded["max-forwards"].to_str().unwrap().to_owned()
        };
        assert_eq!(["OPTIONS", "TRACE", "GET"].map(left), ["6", "6", "7"]);
    }

    #[test]
    fn x_forwarded_for_is_appended_and_other_claims_are_replaced() {
        let sent = "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\nX-Forwarded-Proto: https\r\n\
            X-Forwarded-Host: evil\r\nX-Forwarded-Prefix: /x\r\n";
        let forwarded = for_upstream(&head(sent), client_info(), &Changes::default());
        assert_eq!(forwarded["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.1");
        assert_eq!(forwarded["x-forwarded-proto"], "http");
        assert_eq!(forwarded["x-forwarded-host"], "h");
        assert_eq!(forwarded["via"], "1.1 yamabiko");
        assert!(!forwarded.contains_key("x-forwarded-prefix"));
        let mapped = ClientInfo { peer: "[::ffff:192.0.2.7]:1".parse().unwrap(), secure: true, ..client_info() };
        let forwarded = for_upstream(&head(""), mapped, &Changes::default());
        assert_eq!(forwarded["x-forwarded-for"], "192.0.2.7");
        assert_eq!(forwarded["x-forwarded-proto"], "https");
    }

    #[test]
    fn changes_of_the_cache_remove_and_add_fields() {
        let changes = Changes {
            without: vec!["range", "if-none-match"],
            with: vec![("if-none-match", b"\"x\"".to_vec())],
            hints: None,
        };
        let forwarded = for_upstream(&head("Range: bytes=0-1\r\nIf-None-Match: \"y\"\r\n"), client_info(), &changes);
        assert!(!forwarded.contains_key("range"));
        assert_eq!(forwarded["if-none-match"], "\"x\"");
    }

    #[test]
    fn request_targets_of_every_form_are_parsed() {
        let parsed = |line: &str| RequestHead::parse(format!("{line}\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        let origin = parsed("GET /a/b?c?d#e HTTP/1.0");
        assert_eq!((origin.path(), origin.query(), origin.old), (&b"/a/b"[..], Some(&b"c?d"[..]), true));
        assert_eq!(parsed("GET /a? HTTP/1.1").query(), Some(&b""[..]));
        assert_eq!(parsed("GET /a HTTP/1.1").query(), None);
        let absolute = parsed("GET http://u:p@other:8080?q HTTP/1.1");
        assert_eq!(absolute.target, b"/?q");
        assert_eq!(absolute.fields["host"], "other:8080");
        assert!(RequestHead::parse(b"GET / HTTP/1.1\r\n").is_none());
        assert!(RequestHead::parse(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").is_none());
    }

    #[test]
    fn responses_lose_framing_fields_and_gain_a_date() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/plain"),
            ("etag", "\"1\""),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-mine, keep-alive"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let lines = String::from_utf8(for_client(&fields).to_vec()).unwrap();
        let (forwarded, date) = lines.split_once("Date: ").unwrap();
        assert_eq!(forwarded, "Content-Type: text/plain\r\nETag: \"1\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
        assert!(date.ends_with(" GMT\r\n"));
        assert_eq!(declared_length(&fields), Some(5));
        fields.insert("date", HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(String::from_utf8(for_client(&fields).to_vec()).unwrap().matches("Date: ").count(), 1);
        for wrong in ["", "+5", "5, 6", "99999999999999999999999"] {
            fields.insert("content-length", HeaderValue::from_static(wrong));
            assert_eq!(declared_length(&fields), None, "{wrong}");
        }
        fields.insert("content-length", HeaderValue::from_static("5, 5"));
        assert_eq!(declared_length(&fields), Some(5), "one number, several times");
        fields.append("content-length", HeaderValue::from_static("6"));
        assert_eq!(declared_length(&fields), None, "two numbers");
    }
}
