//! What the result cache reads of a request's head.

use crate::cache::Key;
use crate::request::{Method, Request};

/// The request's key in the cache.
pub(super) fn key_of(request: &Request<'_>, secure: bool) -> Key {
    Key::new(secure, request.fields.host.unwrap_or_default(), request.path, request.query)
}

/// Whether the method is not known to be safe (RFC 9110, section 9.2.1).
pub(super) fn is_unsafe(request: &Request<'_>) -> bool {
    !matches!(request.method, Method::Get | Method::Head | Method::Options | Method::Trace)
}

/// Names and values of header lines, without the white space around a value.
pub(super) fn header_lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}
