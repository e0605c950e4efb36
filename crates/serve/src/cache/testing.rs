//! Helpers of the cache's tests: requests and responses as text, and timestamps.

use std::time::Duration;

use bytes::Bytes;
use sys::clock::Clock;
use units::Timestamp;

use super::{Cache, CacheRequest, CacheSpec, Head, Reason, Received, RequestDirectives, Stored, terms};
use crate::request::{Parsed, Request, parse_within};

/// The wall clock at the tests' time zero: near the example of RFC 9110.
pub(crate) const UNIX_ZERO_S: u64 = 784_111_777;

/// `ms` milliseconds after zero.
pub(crate) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// The date an origin writes `offset_s` seconds after (or before) zero.
pub(crate) fn date(offset_s: i64) -> String {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(UNIX_ZERO_S.saturating_add_signed(offset_s));
    String::from_utf8(crate::date::http_date(at).to_vec()).unwrap()
}

/// A GET with these fields (each `Name: value\r\n`).
pub(crate) fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

pub(crate) fn parsed(head: &str) -> Request<'_> {
    match parse_within(head.as_bytes(), usize::MAX, 128) {
        Parsed::Complete(request) => request,
        other => panic!("{head:?}: {other:?}"),
    }
}

pub(crate) fn cache_request(head: &str) -> CacheRequest<'_> {
    CacheRequest::of(&parsed(head), false).unwrap()
}

pub(crate) fn directives<'a>(head: &'a str, spec: &CacheSpec) -> RequestDirectives<'a> {
    RequestDirectives::of(parsed(head).fields, spec)
}

/// Requested and received at the same time.
pub(crate) fn received(ms: u64) -> Received {
    Received { requested_at: at_ms(ms), at: at_ms(ms), unix_s: UNIX_ZERO_S + ms / 1000 }
}

/// The stored head of this response to a plain GET, received at time zero.
pub(crate) fn head(status: u16, fields: &str) -> Result<Head, Reason> {
    head_for(&get("/", ""), status, fields, received(0), &CacheSpec::default())
}

pub(crate) fn head_for(
    request: &str,
    status: u16,
    fields: &str,
    received: Received,
    spec: &CacheSpec,
) -> Result<Head, Reason> {
    let (terms, vary) = terms(&directives(request, spec), status, fields.as_bytes(), received, spec)?;
    Ok(Head::new(status, fields.as_bytes(), vary, terms, received))
}

pub(crate) fn cache(spec: &CacheSpec) -> Cache {
    Cache::new(spec, Clock::start())
}

pub(crate) fn stored(head: Head, body: &str) -> Stored {
    Stored { head: std::sync::Arc::new(head), body: Bytes::copy_from_slice(body.as_bytes()) }
}
