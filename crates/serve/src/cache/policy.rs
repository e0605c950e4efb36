//! What may be stored and when it may be served: RFC 9111, sections 3 and 4, for a shared cache.
//!
//! ```text
//!   upstream response ──terms()──▶ Terms (stored)   or a Reason why not
//!   stored response + request ──usable()──▶ Fresh | Stale | Validate
//! ```
//!
//! Pure: the caller passes every timestamp.

use std::time::Duration;

use units::Timestamp;

use super::directives::{ResponseDirectives, delta_seconds};
use super::fields::{first, http_seconds, is_named, lines};
use super::stored::{Head, Received};
use super::vary::Vary;
use super::{CacheSpec, Reason, RequestDirectives};

/// Reuse conditions of a stored response, from the origin's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Section 4.2.3: corrected_initial_age.
    pub(crate) initial_age: Duration,
    /// Section 4.2.1: freshness_lifetime.
    pub(crate) lifetime: Duration,
    /// Validate before every use (no-cache).
    pub(crate) validate_always: bool,
    /// Never serve stale (must-revalidate, proxy-revalidate, s-maxage).
    pub(crate) never_stale: bool,
    /// RFC 5861, section 3.
    pub(crate) stale_while_revalidate: Duration,
    /// RFC 5861, section 4.
    pub(crate) stale_if_error: Duration,
    /// Reusable for requests with credentials (section 3.5).
    pub(crate) for_credentials: bool,
    /// As sent.
    pub(crate) etag: Option<Box<[u8]>>,
    /// As sent, and understood as a date.
    pub(crate) last_modified: Option<Box<[u8]>>,
    /// Last-Modified in seconds since 1970.
    pub(crate) last_modified_s: Option<u64>,
    /// The origin's Date, in seconds since 1970.
    pub(crate) date_s: u64,
}

impl Terms {
    /// Whether the response has a validator.
    pub(crate) fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let length = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        length(&self.etag) + length(&self.last_modified)
    }
}

/// The reuse conditions of a response to GET, or the reason why it may not be stored. The length is not checked here.
pub(crate) fn terms(
    directives: &RequestDirectives<'_>,
    status: u16,
    fields: &[u8],
    received: Received,
    spec: &CacheSpec,
) -> Result<(Terms, Vary), Reason> {
    let allowed = ResponseDirectives::of(lines(fields));
    // Section 3: a final status; not 206, since this cache does not combine ranges, and not 304, which only updates.
    if !(200..600).contains(&status) || matches!(status, 206 | 304) {
        return Err(Reason::Status);
    }
    let understood = HEURISTIC.contains(&status);
    if allowed.must_understand && !understood {
        return Err(Reason::Status);
    }
    if directives.demands.no_store {
        return Err(Reason::ClientForbids);
    }
    // Section 5.2.2.3: no-store together with must-understand addresses caches that do not understand the status.
    if allowed.no_store && !allowed.must_understand {
        return Err(Reason::OriginForbids);
    }
    if allowed.private {
        return Err(Reason::Private);
    }
    // Section 3.5.
    let for_credentials = allowed.public || allowed.s_maxage_s.is_some() || allowed.must_revalidate;
    if directives.has_credentials && !for_credentials {
        return Err(Reason::Credentials);
    }
    // A choice of this server: a cookie is for one client unless the origin marks the response as public.
    let cookie_stripped = allowed.no_cache_fields.iter().any(|name| name == b"set-cookie");
    if !allowed.public && !cookie_stripped && first(fields, b"set-cookie").is_some() {
        return Err(Reason::SetsCookie);
    }
    let vary = Vary::of(lines(fields), &directives.lines()).ok_or(Reason::VaryAny)?;

    let date_s = first(fields, b"date").and_then(http_seconds).unwrap_or(received.unix_s);
    let last_modified = first(fields, b"last-modified").and_then(|text| Some((text, http_seconds(text)?)));
    let lifetime = lifetime(&allowed, status, fields, date_s, last_modified.map(|(_, at_s)| at_s), spec);
    let explicit = allowed.public || allowed.no_cache || allowed.must_revalidate;
    let lifetime = match lifetime {
        Some(lifetime) => lifetime,
        None if explicit => Duration::ZERO,
        None => return Err(Reason::NoLifetime),
    };
    let never_stale = allowed.must_revalidate || allowed.proxy_revalidate || allowed.s_maxage_s.is_some();
    let grace = |seconds: Option<u64>| Duration::from_secs(if never_stale { 0 } else { seconds.unwrap_or(0) });
    let terms = Terms {
        initial_age: initial_age(fields, date_s, received),
        lifetime,
        validate_always: allowed.no_cache,
        never_stale,
        stale_while_revalidate: grace(allowed.stale_while_revalidate_s),
        stale_if_error: grace(allowed.stale_if_error_s),
        for_credentials,
        etag: first(fields, b"etag").filter(|tag| is_entity_tag(tag)).map(Box::from),
        last_modified: last_modified.map(|(text, _)| Box::from(text)),
        last_modified_s: last_modified.map(|(_, at_s)| at_s),
        date_s,
    };
    // A response without any usable time would never be reused without a complete request.
    let usable_for = terms.lifetime + terms.stale_while_revalidate.max(terms.stale_if_error);
    let of_use = (!terms.validate_always && usable_for > terms.initial_age) || terms.has_validator();
    if of_use { Ok((terms, vary)) } else { Err(Reason::NoLifetime) }
}

/// Section 4.2.1; `None` if the origin gives no lifetime and no heuristic applies.
fn lifetime(
    allowed: &ResponseDirectives,
    status: u16,
    fields: &[u8],
    date_s: u64,
    last_modified_s: Option<u64>,
    spec: &CacheSpec,
) -> Option<Duration> {
    if let Some(seconds) = allowed.s_maxage_s.or(allowed.max_age_s) {
        return Some(Duration::from_secs(seconds));
    }
    // RFC 9213, section 2.2: CDN-Cache-Control overrides Expires.
    let mut expires = lines(fields)
        .filter(|(name, _)| !allowed.targeted && is_named(name, b"expires"))
        .map(|(_, value)| http_seconds(value));
    if let Some(first) = expires.next() {
        // Section 5.3: an invalid date such as 0 is in the past. The earliest of several dates counts.
        let earliest = expires.fold(first, Option::min).unwrap_or(0);
        return Some(Duration::from_secs(earliest.saturating_sub(date_s)));
    }
    // Section 4.2.2: a tenth of the time since the last change, up to the configured maximum.
    let longest = spec.heuristic_max?;
    if !HEURISTIC.contains(&status) && !allowed.public {
        return None;
    }
    let unchanged = Duration::from_secs(date_s.saturating_sub(last_modified_s?));
    Some((unchanged / 10).min(longest))
}

/// Section 4.2.3. Compares the wall clock with the origin's Date; a Date in the future counts as now.
fn initial_age(fields: &[u8], date_s: u64, received: Received) -> Duration {
    let apparent = Duration::from_secs(received.unix_s.saturating_sub(date_s));
    // Section 5.1: the first member of the list counts, over one or several lines; a non-number invalidates the field.
    // Empty members are skipped (RFC 9110, section 5.6.1).
    let ages = lines(fields).filter(|(name, _)| is_named(name, b"age"));
    let mut members = ages.flat_map(|(_, value)| value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let age_s = members.find(|member| !member.is_empty()).and_then(delta_seconds);
    let response_delay = received.at.since(received.requested_at);
    apparent.max(Duration::from_secs(age_s.unwrap_or(0)) + response_delay)
}

/// How a stored response may be used for a request that selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Serve it.
    Fresh,
    /// Serve it although it is stale, for this reason. [`Reason::WhileRevalidating`]: validate it meanwhile.
    Stale(Reason),
    /// Validate it first, for this reason.
    Validate(Reason),
    /// Do not use it for this request.
    No(Reason),
}

/// Section 4.
pub(crate) fn usable(stored: &Head, directives: &RequestDirectives<'_>, now: Timestamp) -> Usable {
    let terms = &stored.terms;
    let demands = &directives.demands;
    if directives.has_credentials && !terms.for_credentials {
        return Usable::No(Reason::Credentials);
    }
    if terms.validate_always {
        return Usable::Validate(Reason::OriginDemands);
    }
    if demands.no_cache || demands.max_age_s.is_some_and(|most| stored.age(now) > Duration::from_secs(most)) {
        return Usable::Validate(Reason::ClientDemands);
    }
    match stored.left(now) {
        Ok(left) if demands.min_fresh_s.is_some_and(|least| left < Duration::from_secs(least)) => {
            Usable::Validate(Reason::ClientDemands)
        }
        Ok(_) => Usable::Fresh,
        // Section 4.2.4.
        Err(_) if terms.never_stale => Usable::Validate(Reason::Expired),
        Err(_) if demands.min_fresh_s.is_some() => Usable::Validate(Reason::Expired),
        Err(over) if over <= terms.stale_while_revalidate && !terms.stale_while_revalidate.is_zero() => {
            Usable::Stale(Reason::WhileRevalidating)
        }
        Err(over) if demands.max_stale_s.is_some_and(|most| over <= Duration::from_secs(most)) => {
            Usable::Stale(Reason::ClientAllows)
        }
        Err(_) => Usable::Validate(Reason::Expired),
    }
}

/// Whether a stored response may be served because the upstream failed (RFC 5861, section 4).
pub(crate) fn usable_on_error(stored: &Head, directives: &RequestDirectives<'_>, now: Timestamp) -> bool {
    let terms = &stored.terms;
    if terms.never_stale || terms.validate_always || (directives.has_credentials && !terms.for_credentials) {
        return false;
    }
    if directives.demands.no_cache || directives.demands.min_fresh_s.is_some() {
        return false;
    }
    if directives.demands.max_age_s.is_some_and(|most| stored.age(now) > Duration::from_secs(most)) {
        return false;
    }
    let requested = directives.demands.stale_if_error_s.map_or(Duration::ZERO, Duration::from_secs);
    match stored.left(now) {
        Ok(_) => true,
        Err(over) => {
            over <= terms.stale_if_error.max(requested) && terms.stale_if_error.max(requested) > Duration::ZERO
        }
    }
}

/// RFC 5861, section 4: statuses that count as errors.
pub(crate) fn is_error(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// RFC 9110, section 8.8.3.
fn is_entity_tag(tag: &[u8]) -> bool {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    opaque.len() >= 2
        && opaque.starts_with(b"\"")
        && opaque.ends_with(b"\"")
        && !opaque[1..opaque.len() - 1].contains(&b'"')
}

/// Statuses that are cacheable by default (RFC 9110, section 15.1), except 206. They are the statuses that this cache
/// understands.
const HEURISTIC: &[u16] = &[200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

#[cfg(test)]
mod tests;
