//! A stored response as it is sent: the head with Age and Cache-Status.

use std::io::Write as _;
use std::ops::Range;

use units::Timestamp;

use super::fields::{is_named, lines, push};
use super::stored::Head;
use super::validation::{Portion, portion};
use super::{CacheRequest, Finding, Outcome, Reason};

/// Which part of a stored response is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    /// 200, 206, 304, 416, or the stored status.
    pub(crate) status: u16,
    /// For Content-Length; absent if the status has none or the length is unknown yet.
    pub(crate) length: Option<u64>,
    /// The range of the body to send; empty if there is none. Open-ended while the length is unknown.
    pub(crate) body: Range<u64>,
    portion: Portion,
    /// Bytes of the complete body.
    body_bytes: Option<u64>,
}

impl Rendered {
    /// The response to `request` from a stored response with this head. `body_bytes`: of the complete body; `None`
    /// while it arrives.
    pub(crate) fn of(head: &Head, request: &CacheRequest<'_>, body_bytes: Option<u64>) -> Self {
        let portion = portion(request, head, body_bytes);
        let (status, length, body) = match &portion {
            Portion::NotModified => (304, None, 0..0),
            Portion::Unsatisfiable => (416, Some(0), 0..0),
            Portion::Part(part) => (206, Some(part.end - part.start), part.clone()),
            Portion::Whole if head.status == 204 => (204, None, 0..0),
            Portion::Whole => (head.status, body_bytes, 0..body_bytes.unwrap_or(u64::MAX)),
        };
        Rendered { status, length, body: if request.head_only { 0..0 } else { body }, portion, body_bytes }
    }

    /// Appends the response's field lines, except those of the connection.
    pub(crate) fn append(&self, head: &Head, status: &CacheStatus, now: Timestamp, out: &mut Vec<u8>) {
        match &self.portion {
            Portion::Whole => out.extend_from_slice(&head.fields),
            Portion::Part(part) => {
                out.extend_from_slice(&head.fields);
                let whole = self.body_bytes.unwrap_or(part.end);
                field(out, format_args!("Content-Range: bytes {}-{}/{whole}\r\n", part.start, part.end - 1));
            }
            Portion::NotModified | Portion::Unsatisfiable => {
                // RFC 9110, section 15.4.5: no fields that describe a body that is not sent.
                for (name, value) in lines(&head.fields).filter(|(name, _)| !describes_body(name)) {
                    push(out, name, value);
                }
                if self.portion == Portion::Unsatisfiable {
                    field(out, format_args!("Content-Range: bytes */{}\r\n", self.body_bytes.unwrap_or(0)));
                }
            }
        }
        // Section 5.1: whole seconds, rounded down.
        field(out, format_args!("Age: {}\r\n", head.age(now).as_secs()));
        status.append(out, Some(head.ttl_s(now)));
    }
}

fn describes_body(name: &[u8]) -> bool {
    [&b"content-type"[..], b"content-encoding", b"content-language", b"content-range"]
        .iter()
        .any(|one| is_named(name, one))
}

/// Content of a Cache-Status field (RFC 9211).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheStatus {
    pub(crate) finding: Finding,
    /// Why the request was forwarded, if it was.
    pub(crate) forwarded: Option<Reason>,
    /// The upstream's status, if it differs from that of the response.
    pub(crate) forwarded_status: Option<u16>,
    /// The response is being stored.
    pub(crate) stored: bool,
}

impl CacheStatus {
    /// For a response from the store.
    pub(crate) fn hit(finding: Finding) -> Self {
        CacheStatus { finding, forwarded: None, forwarded_status: None, stored: false }
    }

    /// For a response of the upstream, requested because of `why`.
    pub(crate) fn forwarded(finding: Finding, why: Reason) -> Self {
        CacheStatus { finding, forwarded: Some(why), forwarded_status: None, stored: false }
    }

    /// Appends the field's line. `ttl_s`: remaining freshness of the response.
    pub(crate) fn append(&self, out: &mut Vec<u8>, ttl_s: Option<i64>) {
        out.extend_from_slice(b"Cache-Status: yamabiko");
        match self.forwarded {
            None => out.extend_from_slice(b"; hit"),
            Some(why) => field(out, format_args!("; fwd={}", forward_reason(why))),
        }
        if let Some(status) = self.forwarded_status {
            field(out, format_args!("; fwd-status={status}"));
        }
        if let Some(ttl_s) = ttl_s.filter(|_| self.forwarded.is_none() || self.stored) {
            field(out, format_args!("; ttl={ttl_s}"));
        }
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        if self.finding.outcome == Outcome::Collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        field(out, format_args!("; detail={}\r\n", self.finding.reason.name()));
    }
}

/// RFC 9211, section 2.2.
fn forward_reason(why: Reason) -> &'static str {
    match why {
        Reason::OtherVariant => "vary-miss",
        Reason::Expired | Reason::OriginDemands => "stale",
        Reason::ClientDemands | Reason::ClientForbids | Reason::Credentials | Reason::Precondition => "request",
        Reason::Method => "method",
        Reason::Body => "bypass",
        _ => "uri-miss",
    }
}

fn field(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(text);
}
