//! Verifies every exchange, in order, against the properties of objects and earlier exchanges.
//!
//! ```text
//!   CacheExchange --> identity: generated for which request?  --> hit
//!        |        --> world: object, version, lifetime  --> wrong
//!        |        --> earlier fetches: memory          --> false miss, while fetching
//!        '-----------------------------------------------------------> tally --> CacheFigures
//! ```
//!
//! **Measured hit**: the response was generated for another request (Web Polygraph's rule); cache headers are not
//! needed. A copy renewed by a 304 counts as a hit. A response to a request without id (not forwarded by the proxy) is
//! a hit if it was generated before this request, by more than [`CLOCK_SLACK_MS`].
//!
//! **Bias.** Only proven faults are reported. In doubt a response passes:
//! - HTTP dates have whole seconds, so that staleness has a tolerance of a second ([`DATE_SLACK_MS`]) plus the think
//!   time.
//! - An expired, unchanged copy counts as renewed. After a change the renewal may still be valid (RFC 9111, section
//!   4.3.4): from its time, if the copy has the identity of the 304. Otherwise the copy is in doubt
//!   ([`CacheFigures::possibly_stale`]) for as long as a renewal just before the change would last, unless its Age
//!   excludes a renewal.
//! - Without a stated lifetime no copy is stale (RFC 9111, section 4.2.2, allows heuristics).
//! - A reload may be served by a response generated after it, within [`CLOCK_SLACK_MS`].
//! - A body cut by a broken connection is a failure, not a truncated response, unless the origin aborted it for an
//!   earlier request: then the cache stored an incomplete response.
//!
//! Read [`Verifier::add`] first, then [`schema::Wrong`] for what each kind means.

mod description;
mod memory;
mod tally;

use std::sync::Arc;

use schema::{CacheContent, CacheExchange, CacheFigures, CacheForm, FailureCause, Method, Wrong};
use units::Timestamp;

use self::memory::{Copies, RequestedObjects, StoredCopy};
use self::tally::Tally;
use crate::{Content, Object, RequestId, World};

/// Tolerance of lifetimes: `Date` and `Expires` have whole seconds.
pub const DATE_SLACK_MS: u64 = 1000;
/// Tolerated difference between the clocks of load and origin; a validity check fails beyond it.
pub const CLOCK_SLACK_MS: u64 = 500;

/// Verifies exchanges. Receives every exchange once, in order of `done_at`, those of several shards merged.
///
/// Memory: about 35 bytes per cacheable object received and 4 per arrival.
#[derive(Clone, Debug)]
pub struct Verifier {
    world: Arc<World>,
    measured_from: Timestamp,
    measured_to: Option<Timestamp>,
    copies: Copies,
    requested_objects: RequestedObjects,
    tally: Tally,
}

impl Verifier {
    /// A verifier that counts exchanges scheduled from the first time and before the second, if given. Others are
    /// verified and remembered, but not counted.
    pub fn new(world: Arc<World>, measured: (Timestamp, Option<Timestamp>)) -> Verifier {
        Verifier {
            world,
            measured_from: measured.0,
            measured_to: measured.1,
            copies: Copies::default(),
            requested_objects: RequestedObjects::default(),
            tally: Tally::default(),
        }
    }

    /// Verifies one exchange, counts it, and sets its `hit` and `wrong`.
    pub fn add(&mut self, exchange: &mut CacheExchange) {
        exchange.hit = is_hit(exchange);
        let copy = self.copies.of(exchange).copied();
        let readiness = readiness(exchange, copy);
        exchange.wrong = self.incorrect(exchange).or_else(|| false_miss(exchange, readiness));
        // Keep the first copy until it expires: the time from which a copy existed matters.
        let is_first = copy.is_none_or(|copy| unix_ms(copy.expires_unix_s) <= exchange.requested_unix_ms);
        let is_right = exchange.wrong.is_none_or(|wrong| !wrong.is_incorrect());
        if is_first && is_right && exchange.could_fill() && is_whole(exchange) {
            let expires_unix_s = self.lifetime_end(exchange).unwrap_or(i64::MAX);
            self.copies.keep(exchange, StoredCopy { whole_at: exchange.done_at, expires_unix_s });
        }
        self.requested_objects.add(exchange);
        if self.counts(exchange.scheduled_at) {
            let why = || description::example(&self.world, exchange);
            let is_in_doubt =
                exchange.hit && exchange.wrong.is_none() && self.freshness(exchange) == Freshness::InDoubt;
            self.tally.add(exchange, readiness, is_in_doubt, why);
        }
    }

    /// Sets the end of the measured phase. Earlier counts stay.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.measured_to = Some(end);
    }

    /// Adds counts and memory of another verifier of the same world. Since each saw its own exchanges only,
    /// `offered_while_fetching` is too high and false misses are too few.
    pub fn merge(&mut self, other: Verifier) {
        self.copies.merge(other.copies);
        self.requested_objects.merge(other.requested_objects);
        self.tally.merge(other.tally);
    }

    /// The figures.
    pub fn finish(self) -> CacheFigures {
        self.tally.figures()
    }

    fn counts(&self, scheduled_at: Timestamp) -> bool {
        scheduled_at >= self.measured_from && self.measured_to.is_none_or(|end| scheduled_at < end)
    }

    /// The most severe fault, in the order of [`Wrong`].
    fn incorrect(&self, exchange: &CacheExchange) -> Option<Wrong> {
        // An error page is a failure with a cause of its own; without a head nothing is known.
        if exchange.status == 0 || exchange.status >= 400 {
            return None;
        }
        if exchange.status == NOT_MODIFIED {
            return self.is_falsely_not_modified(exchange).then_some(Wrong::FalseNotModified);
        }
        let Some(number) = exchange.response_object else { return is_framed(exchange).then_some(Wrong::Foreign) };
        if exchange.response_world != exchange.world {
            return Some(Wrong::Foreign);
        }
        if (exchange.response_kind, number) != (exchange.kind, exchange.object) {
            return Some(Wrong::WrongObject);
        }
        if exchange.body_gzip && !exchange.accepts_gzip {
            return Some(Wrong::WrongVariant);
        }
        match exchange.content {
            CacheContent::Differs | CacheContent::Long => return Some(Wrong::WrongBody),
            CacheContent::Short if self.is_truncated(exchange) => return Some(Wrong::Truncated),
            _ => {}
        }
        if !exchange.hit {
            return None;
        }
        if !exchange.cacheable {
            return Some(Wrong::HitOnUncacheable);
        }
        if exchange.form == CacheForm::Reload && is_older(exchange) {
            return Some(Wrong::HitOnReload);
        }
        if exchange.method == Method::Post || self.requested_objects.is_for_another_object(exchange) {
            return Some(Wrong::FalseHit);
        }
        (self.freshness(exchange) == Freshness::Stale).then_some(Wrong::Stale)
    }

    /// A 304 is false if the client had no copy, or sent a date before the last change. A fresh older copy may answer
    /// such a date with 304 by its own Last-Modified (RFC 9111, section 4.3.2).
    fn is_falsely_not_modified(&self, exchange: &CacheExchange) -> bool {
        match (exchange.method, exchange.form) {
            (Method::Get, CacheForm::Ims304) => false,
            (Method::Get, CacheForm::Ims200) => {
                let expected = self.world.version(object(exchange), unix_s(exchange.requested_unix_ms));
                let before = self.world.version(object(exchange), expected.modified_s - 1);
                before.number == expected.number
                    || before.expires_s.is_some_and(|end| exchange.requested_unix_ms > unix_ms(end) + DATE_SLACK_MS)
            }
            _ => true,
        }
    }

    /// Whether a short body was declared complete without a planned abort. A proxy may forward a response that the
    /// origin aborted, but must not serve it for another request, even if declared incomplete (RFC 9111, section 3.3).
    fn is_truncated(&self, exchange: &CacheExchange) -> bool {
        let cut_by_origin = generating_request(exchange)
            .is_some_and(|generating_request| self.world.origin_aborts(generating_request).is_some());
        match (cut_by_origin, is_older(exchange)) {
            _ if exchange.aborted => false,
            (true, true) => exchange.hit || is_framed(exchange),
            (true, false) => false,
            (false, _) => is_framed(exchange),
        }
    }

    /// Whether the version is older than the origin's a second before the request, and expired.
    fn freshness(&self, exchange: &CacheExchange) -> Freshness {
        if exchange.response_version >= exchange.expected_version {
            return Freshness::Usable;
        }
        let think_ms = generating_request(exchange)
            .map_or(0, |generating_request| self.world.think(generating_request).as_millis() as u64);
        let slack_ms = DATE_SLACK_MS + think_ms;
        let expected =
            self.world.version(object(exchange), unix_s(exchange.requested_unix_ms.saturating_sub(slack_ms)));
        let is_over = |end_s: i64| exchange.requested_unix_ms > unix_ms(end_s) + slack_ms;
        match self.lifetime_end(exchange) {
            Some(end_s) if exchange.response_version < expected.number && is_over(end_s) => {
                if self.renewed_end(exchange).is_none_or(is_over) { Freshness::Stale } else { Freshness::InDoubt }
            }
            _ => Freshness::Usable,
        }
    }

    /// Expiry after the latest possible renewal: just before the change, or as given by Age. `None` if there was no
    /// renewal, if a renewal does not change Expires, and if the identity has the last renewal.
    fn renewed_end(&self, exchange: &CacheExchange) -> Option<i64> {
        if exchange.renewed || !exchange.renewable {
            return None;
        }
        let generated_s = unix_s(exchange.generated_unix_ms);
        let version = self.world.version(object(exchange), generated_s);
        let max_age_s = version.max_age_s?;
        let change_s =
            if version.number > exchange.response_version { version.modified_s } else { version.next_change_s };
        // Age has whole seconds and refers to some time before the end of the response.
        let sent_at = exchange.sent_at.unwrap_or(exchange.scheduled_at);
        let took_ms = exchange.done_at.as_nanos().saturating_sub(sent_at.as_nanos()) / 1_000_000;
        let received_s = unix_s(exchange.requested_unix_ms.saturating_add(took_ms));
        let renewed_by_age_s = exchange.age_s.map_or(i64::MAX, |age_s| received_s.saturating_sub(i64::from(age_s)) + 1);
        let renewed_s = renewed_by_age_s.min(change_s - 1);
        // Within the tolerance of its generation there was no renewal.
        (renewed_s > generated_s + 1).then(|| renewed_s.saturating_add_unsigned(max_age_s))
    }

    /// Expiry of the response in s since 1970; `None` if the origin stated none.
    fn lifetime_end(&self, exchange: &CacheExchange) -> Option<i64> {
        let generated_s = unix_s(exchange.generated_unix_ms);
        let version = self.world.version(object(exchange), generated_s);
        if let Some(max_age_s) = version.max_age_s {
            return Some(generated_s.saturating_add_unsigned(max_age_s));
        }
        // Version chosen before the change, identity written after it: Expires was the change.
        if version.number > exchange.response_version { Some(version.modified_s) } else { version.expires_s }
    }
}

/// Whether a response was served from a cache. Unknown for a 304, since the proxy may have validated.
pub fn is_hit(exchange: &CacheExchange) -> bool {
    let is_of_world = exchange.response_object.is_some() && exchange.response_world == exchange.world;
    let is_of_cache = || match generating_request(exchange) {
        Some(generating_request) => generating_request != RequestId { run: exchange.run, sequence: exchange.sequence },
        // A renewed copy existed before; a response without request id is classified by its time.
        None => exchange.renewed || is_older(exchange),
    };
    exchange.status == OK && is_of_world && is_of_cache()
}

/// Whether the response was certainly generated before the request.
fn is_older(exchange: &CacheExchange) -> bool {
    exchange.generated_unix_ms.saturating_add(CLOCK_SLACK_MS) < exchange.requested_unix_ms
}

/// Freshness of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    /// Current version, or within its lifetime.
    Usable,
    /// Expired, unless the origin renewed it.
    InDoubt,
    /// Expired.
    Stale,
}

/// Whether a copy was available at the time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// No complete copy yet.
    Fetching,
    /// An expired copy.
    Expired,
    /// A usable copy.
    Ready,
}

fn readiness(exchange: &CacheExchange, copy: Option<StoredCopy>) -> Readiness {
    let requested_at = exchange.sent_at.unwrap_or(exchange.scheduled_at);
    match copy {
        Some(copy) if copy.whole_at <= requested_at => {
            // Caches may expire a copy a second early or late.
            let end_ms = unix_ms(copy.expires_unix_s).saturating_sub(DATE_SLACK_MS);
            if exchange.requested_unix_ms < end_ms { Readiness::Ready } else { Readiness::Expired }
        }
        _ => Readiness::Fetching,
    }
}

fn false_miss(exchange: &CacheExchange, readiness: Readiness) -> Option<Wrong> {
    let missed = exchange.offered
        && exchange.is_basic()
        && !exchange.hit
        && exchange.status == OK
        && exchange.failure.is_none()
        // Without request id the response may be from the cache.
        && (exchange.from_sequence.is_some() || exchange.generated_unix_ms >= exchange.requested_unix_ms)
        && readiness == Readiness::Ready;
    missed.then_some(Wrong::FalseMiss)
}

/// Whether the requested object was received completely.
fn is_whole(exchange: &CacheExchange) -> bool {
    exchange.status == OK
        && exchange.failure.is_none()
        && exchange.response_object.is_some()
        && exchange.content != CacheContent::Short
}

/// Whether the response was complete by its framing.
fn is_framed(exchange: &CacheExchange) -> bool {
    matches!(
        exchange.failure,
        None | Some(FailureCause::UnexpectedStatus | FailureCause::UnexpectedLength | FailureCause::UnexpectedBody)
    )
}

/// The request for which the response was generated.
fn generating_request(exchange: &CacheExchange) -> Option<RequestId> {
    Some(RequestId { run: exchange.from_run?, sequence: exchange.from_sequence? })
}

fn object(exchange: &CacheExchange) -> Object {
    Object { kind: exchange.kind, number: exchange.object }
}

fn unix_s(ms: u64) -> i64 {
    i64::try_from(ms / 1000).unwrap_or(i64::MAX)
}

/// Clamped to 1970 and to [`NEVER_MS`].
fn unix_ms(s: i64) -> u64 {
    u64::try_from(s).unwrap_or(0).saturating_mul(1000).min(NEVER_MS)
}

/// Far in the future, with room for tolerances.
const NEVER_MS: u64 = u64::MAX / 2;
const OK: u16 = 200;
const NOT_MODIFIED: u16 = 304;

impl From<Content> for CacheContent {
    fn from(content: Content) -> Self {
        match content {
            Content::Right => CacheContent::Right,
            Content::NotCompared => CacheContent::NotLooked,
            Content::Differs { .. } => CacheContent::Differs,
            Content::Short => CacheContent::Short,
            Content::Long => CacheContent::Long,
            Content::Recoded => CacheContent::Recoded,
        }
    }
}

#[cfg(test)]
mod tests;
