//! The request target in its four forms (RFC 9112, section 3.2), and the host of a request.

use super::Method;
use crate::response::Status;

/// A parsed target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedTarget<'a> {
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
    /// Of a target in absolute or authority form.
    pub(super) authority: Option<&'a [u8]>,
}

/// Parses a target.
///
/// # Errors
/// 400 for a form that does not match the method, a fragment, user information, or an invalid host.
pub(super) fn read(method: Method, target: &[u8]) -> Result<ParsedTarget<'_>, Status> {
    match target.first() {
        Some(_) if method == Method::Connect => connect(target),
        Some(b'/') => origin(target, None),
        Some(b'*') if target == b"*" && method == Method::Options => {
            Ok(ParsedTarget { path: target, query: None, authority: None })
        }
        _ => absolute(target),
    }
}

/// `/path?query`.
fn origin<'a>(target: &'a [u8], authority: Option<&'a [u8]>) -> Result<ParsedTarget<'a>, Status> {
    let (path, query) = match memchr::memchr2(b'?', b'#', target) {
        None => (target, None),
        Some(at) => {
            // A fragment is never sent (RFC 9110, section 7.1): removed here and left in elsewhere, it would give two
            // paths.
            if memchr::memchr(b'#', &target[at..]).is_some() {
                return Err(Status::BadRequest);
            }
            (&target[..at], Some(&target[at + 1..]))
        }
    };
    Ok(ParsedTarget { path: if path.is_empty() { b"/" } else { path }, query, authority })
}

/// `http://host/path?query`, which clients send to a proxy and every server must accept. An empty path means `/`.
fn absolute(target: &[u8]) -> Result<ParsedTarget<'_>, Status> {
    let colon = target.iter().position(|&byte| byte == b':').ok_or(Status::BadRequest)?;
    let (scheme, rest) = target.split_at(colon);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(Status::BadRequest);
    }
    let rest = rest.strip_prefix(b"://").ok_or(Status::BadRequest)?;
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if authority.is_empty() || !is_host(authority) {
        return Err(Status::BadRequest);
    }
    origin(rest, Some(authority))
}

/// `host:port`.
fn connect(target: &[u8]) -> Result<ParsedTarget<'_>, Status> {
    let has_port = target.last().is_some_and(u8::is_ascii_digit) && target.contains(&b':');
    if has_port && is_host(target) {
        Ok(ParsedTarget { path: target, query: None, authority: Some(target) })
    } else {
        Err(Status::BadRequest)
    }
}

/// Whether `value` is a host with or without a port, as in a Host field (RFC 9110, section 7.2; RFC 3986, section
/// 3.2.2). It may be empty, for a URI without authority.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (host_is_right, rest) = match value {
        [b'[', rest @ ..] => match rest.iter().position(|&byte| byte == b']') {
            // An IPv6 address, or one of a future version.
            Some(end) => (end > 1 && rest[..end].iter().all(|&byte| is_literal(byte)), &rest[end + 1..]),
            None => return false,
        },
        _ => {
            let end = value.iter().position(|&byte| !is_name(byte)).unwrap_or(value.len());
            (true, &value[end..])
        }
    };
    let port_is_right = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit) && value.len() > rest.len(),
        _ => false,
    };
    host_is_right && port_is_right
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'v' | b'V')
}

/// unreserved, sub-delims and the percent sign of RFC 3986.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&'..=b',' | b';' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_fields_are_validated() {
        for right in ["", "a", "server:80", "a.b-c_d~:", "198.18.0.1:8080", "[::1]", "[2001:db8::1]:443", "%E3%81%93"] {
            assert!(is_host(right.as_bytes()), "{right}");
        }
        for wrong in [
            "a b", "a/b", "a:8x", "a:1:2", "user@a", ":80", "[", "[]", "[::1", "[::1]x", "[zz]", "a,\t", "a\"",
            "\u{e9}",
        ] {
            assert!(!is_host(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn target_forms_match_their_methods() {
        let place = |method, target: &'static str| read(method, target.as_bytes()).ok();
        let authority = place(Method::Connect, "a:443").unwrap().authority;
        assert_eq!(authority, Some(&b"a:443"[..]));
        for (method, wrong) in [
            (Method::Connect, "/a"),
            (Method::Connect, "a"),
            (Method::Get, "a:443"),
            (Method::Get, "*"),
            (Method::Options, "**"),
            (Method::Get, ""),
        ] {
            assert_eq!(place(method, wrong), None, "{wrong}");
        }
        let absolute = place(Method::Options, "http://a?b?c").unwrap();
        assert_eq!((absolute.path, absolute.query), (&b"/"[..], Some(&b"b?c"[..])));
    }
}
