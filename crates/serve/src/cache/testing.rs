//! What the tests of the cache share: requests and answers written as text, and moments.

use std::time::Duration;

use bytes::Bytes;
use sys::clock::Clock;
use units::Timestamp;

use super::{Asked, Cache, CacheSpec, Head, Question, Reason, Received, Stored, terms};
use crate::request::{Parsed, Request, parse_within};

/// The wall clock when the tests' clock is zero: the example of RFC 9110, and some.
pub(crate) const UNIX_ZERO_S: u64 = 784_111_777;

/// So many milliseconds after zero.
pub(crate) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// The date as an origin writes it, so many seconds after zero (or before).
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

pub(crate) fn asked(head: &str) -> Asked<'_> {
    Asked::of(&parsed(head), false).unwrap()
}

pub(crate) fn question<'a>(head: &'a str, spec: &CacheSpec) -> Question<'a> {
    Question::of(parsed(head).fields, spec)
}

/// Asked for and answered at the same moment.
pub(crate) fn received(ms: u64) -> Received {
    Received { requested_at: at_ms(ms), at: at_ms(ms), unix_s: UNIX_ZERO_S + ms / 1000 }
}

/// The head of what is stored of this answer to a plain GET, received at zero.
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
    let (terms, vary) = terms(&question(request, spec), status, fields.as_bytes(), received, spec)?;
    Ok(Head::new(status, fields.as_bytes(), vary, terms, received))
}

pub(crate) fn cache(spec: &CacheSpec) -> Cache {
    Cache::new(spec, Clock::start())
}

pub(crate) fn stored(head: Head, body: &str) -> Stored {
    Stored { head: std::sync::Arc::new(head), body: Bytes::copy_from_slice(body.as_bytes()) }
}
