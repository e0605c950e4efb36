//! Validators: conditional requests of clients, revalidation at the origin, and updates by a 304 (RFC 9111, section
//! 4.3).

use std::ops::Range;

use super::fields::{http_seconds, is_named, lines, push};
use super::policy::terms;
use super::stored::{Head, Received};
use super::{CacheRequest, CacheSpec, RequestDirectives};

/// Which part of a stored response a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    /// The complete response.
    Whole,
    /// 304: the client has the current response.
    NotModified,
    /// 206: this range of the body.
    Part(Range<u64>),
    /// 416: the range is outside of the body.
    Unsatisfiable,
}

/// Evaluates preconditions, then Range, in the order of RFC 9110, section 13.2.2, for a response with this head and
/// `length` bytes of body. If-Match and If-Unmodified-Since are not for caches; such requests never reach it.
pub(crate) fn portion(request: &CacheRequest<'_>, head: &Head, body_bytes: Option<u64>) -> Portion {
    if head.status != 200 {
        return Portion::Whole;
    }
    if request.fields.if_none_match.is_some() {
        let any_matches =
            request.fields.values(b"if-none-match").any(|list| matches_any(list, head.terms.etag.as_deref()));
        if any_matches {
            return Portion::NotModified;
        }
    } else if let Some(since) = request.fields.if_modified_since.and_then(http_seconds)
        && head.terms.last_modified_s.is_some_and(|changed| changed <= since)
    {
        return Portion::NotModified;
    }
    match (request.fields.range, body_bytes) {
        // RFC 9110, section 14.2: Range applies to GET only.
        (Some(range), Some(length))
            if !request.head_only && request.fields.if_range.is_none_or(|one| is_same(one, head)) =>
        {
            one_range(range, length)
        }
        _ => Portion::Whole,
    }
}

/// RFC 9110, section 13.1.2: weak comparison with a list of tags, or `*`.
fn matches_any(list: &[u8], etag: Option<&[u8]>) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(stored_tag) = etag.map(opaque) else { return false };
    // Tags may contain commas, so the list is parsed tag by tag.
    let mut rest = list;
    loop {
        let idle = rest.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t')).unwrap_or(rest.len());
        rest = &rest[idle..];
        let from = if rest.starts_with(b"W/") { 2 } else { 0 };
        if rest.get(from) != Some(&b'"') {
            return false;
        }
        let Some(end) = rest[from + 1..].iter().position(|&byte| byte == b'"') else { return false };
        let end = from + end + 2;
        if opaque(&rest[..end]) == stored_tag {
            return true;
        }
        rest = &rest[end..];
    }
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// RFC 9110, section 13.1.5: strong comparison. A date is strong if it is at least a second before the response's Date.
fn is_same(if_range: &[u8], head: &Head) -> bool {
    match &head.terms.etag {
        _ if if_range.starts_with(b"W/") => false,
        Some(stored_tag) if if_range.starts_with(b"\"") => **stored_tag == *if_range,
        _ => match (http_seconds(if_range), head.terms.last_modified_s) {
            (Some(date), Some(changed)) => date == changed && head.terms.date_s > changed,
            _ => false,
        },
    }
}

/// A single byte range. Several ranges, another unit or a malformed field select the complete response, as is
/// permitted.
fn one_range(range: &[u8], length: u64) -> Portion {
    let Some((unit, set)) = range.iter().position(|&byte| byte == b'=').map(|at| (&range[..at], &range[at + 1..]))
    else {
        return Portion::Whole;
    };
    let set = set.trim_ascii();
    let Some(dash) = set.iter().position(|&byte| byte == b'-').filter(|_| unit.eq_ignore_ascii_case(b"bytes")) else {
        return Portion::Whole;
    };
    let number = |text: &[u8]| {
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        digits.then(|| {
            text.iter().fold(0u64, |sum, &digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
        })
    };
    let (from, to) = (&set[..dash], &set[dash + 1..]);
    let (from, to) = match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => (from, to.saturating_add(1).min(length)),
        (Some(from), None) if to.is_empty() => (from, length),
        (None, Some(0)) if from.is_empty() => return Portion::Unsatisfiable,
        (None, Some(last)) if from.is_empty() => (length.saturating_sub(last), length),
        _ => return Portion::Whole,
    };
    if from < to { Portion::Part(from..to) } else { Portion::Unsatisfiable }
}

/// The header fields that revalidate a stored response at the origin.
pub(crate) fn conditions(head: &Head) -> Vec<(&'static str, Vec<u8>)> {
    let mut fields = Vec::new();
    if let Some(etag) = &head.terms.etag {
        fields.push(("If-None-Match", etag.to_vec()));
    }
    if let Some(date) = &head.terms.last_modified {
        fields.push(("If-Modified-Since", date.to_vec()));
    }
    fields
}

/// What a 304 means for the validated response.
#[derive(Debug)]
pub(crate) enum Freshened {
    /// The response is current and has this head now.
    StillValid(Head),
    /// The response is current for this request, but may no longer be stored.
    Once(Head),
    /// The 304 describes another response: this one is unusable.
    Other,
}

/// Sections 4.3.4 and 3.2: the fields of the 304 replace the stored ones, except those that describe the body.
pub(crate) fn freshened(
    old: &Head,
    directives: &RequestDirectives<'_>,
    fields_304: &[u8],
    received: Received,
    spec: &CacheSpec,
) -> Freshened {
    if !is_of(old, fields_304) {
        return Freshened::Other;
    }
    let mut fields = Vec::with_capacity(old.fields.len() + fields_304.len());
    for (name, value) in lines(&old.fields) {
        let replaced = |this: &[u8]| this.eq_ignore_ascii_case(name) && !describes_body(this);
        if !lines(fields_304).any(|(this, _)| replaced(this)) {
            push(&mut fields, name, value);
        }
    }
    for (name, value) in lines(fields_304).filter(|(name, _)| !describes_body(name)) {
        push(&mut fields, name, value);
    }
    match terms(directives, old.status, &fields, received, spec) {
        Ok((terms, vary)) => Freshened::StillValid(Head::new(old.status, &fields, vary, terms, received)),
        Err(_) => {
            let once = Head::new(old.status, &fields, old.vary.clone(), old.terms.clone(), received);
            Freshened::Once(once)
        }
    }
}

/// Section 4.3.4: whether the validators of a 304 are those of the stored response. A tag counts if there is one; else
/// the date, which origins set back when an older file replaces a newer one.
fn is_of(old: &Head, fields_304: &[u8]) -> bool {
    let field_304 = |name| super::fields::first(fields_304, name);
    match (field_304(b"etag"), &old.terms.etag) {
        (Some(field_304), Some(stored_tag)) => opaque(field_304) == opaque(stored_tag),
        (Some(field_304), None) if !field_304.starts_with(b"W/") => false,
        _ => match (field_304(b"last-modified").and_then(http_seconds), old.terms.last_modified_s) {
            (Some(field_304), Some(stored_tag)) => field_304 == stored_tag,
            _ => true,
        },
    }
}

/// RFC 9111, section 3.2: fields that a 304 must not change, since the stored body depends on them.
fn describes_body(name: &[u8]) -> bool {
    [&b"content-encoding"[..], b"content-type", b"content-range", b"content-length"]
        .iter()
        .any(|one| is_named(name, one))
}

#[cfg(test)]
mod tests;
