//! Who is right: every exchange in its order against the facts and what went before.
//!
//! ```text
//!   CacheExchange --> identity: whose answer is it?  --> hit
//!        |        --> facts of the world: object, version, lifetime  --> wrong
//!        |        --> what was fetched before: memory                --> false miss, while fetching
//!        '-----------------------------------------------------------> tally --> CacheFigures
//! ```
//!
//! **Measured hit**: the answer's ask is not the one that got it (Web Polygraph's rule), so that no word of the cache is
//! needed. A copy that the origin renewed by a 304 counts as a hit. An answer that was made for a request without an ask (the
//! proxy does not pass it on) is one if it was made before this one was asked, to within [`CLOCK_SLACK_MS`].
//!
//! **Bias.** The judge accuses only of what it can prove. What a rule may leave open passes:
//! - Dates in HTTP are whole seconds and the lifetime of a copy is counted from a Date of such steps, so a copy is stale
//!   one second late ([`DATE_SLACK_MS`]), and as much later as the origin thought about it.
//! - A copy whose lifetime is over and that has not changed is taken as renewed. After the change it may still live from that
//!   renewal (RFC 9111, section 4.3.4): from its moment where the copy tells it by the 304's identity. Else it is in doubt
//!   ([`CacheFigures::possibly_stale`]) for as long as a renewal just before the change would reach, unless its own Age
//!   says that there was none.
//! - Where the origin says nothing of a lifetime, no copy is stale (RFC 9111, section 4.2.2, lets a cache guess).
//! - A reload may be answered by what the origin made since it was asked, to within [`CLOCK_SLACK_MS`].
//! - A body that ends early by a broken connection is a failure with its cause, not a truncated answer: the client knew.
//!   Unless it is the stump of an answer that the origin had cut for another request long before: it was kept.
//!
//! Read [`Judge::add`] first, then [`schema::Wrong`] for what each kind means.

mod description;
mod memory;
mod tally;

use std::sync::Arc;

use schema::{CacheContent, CacheExchange, CacheFigures, CacheForm, FailureCause, Method, Wrong};
use units::Timestamp;

use self::memory::{Copies, Kept, Makers};
use self::tally::Tally;
use crate::{AskId, Content, Object, World};

/// A copy may be used for so long after its lifetime: `Date` and `Expires` are in whole seconds.
pub const DATE_SLACK_MS: u64 = 1000;
/// The clocks of robots and origin may differ by so much; the gate doubts a run in which they moved by more.
pub const CLOCK_SLACK_MS: u64 = 500;

/// Sees every exchange once, in the order of `done_at`: of several lanes, all exchanges merged into that order.
///
/// It remembers what was fetched: some 35 bytes for each cacheable object that came and 4 for each arrival.
#[derive(Clone, Debug)]
pub struct Judge {
    world: Arc<World>,
    measured_from: Timestamp,
    measured_to: Option<Timestamp>,
    copies: Copies,
    makers: Makers,
    tally: Tally,
}

impl Judge {
    /// Counts what was intended from the first moment on and before the second, where there is one. What is outside is judged
    /// and remembered, too, and counts nowhere.
    pub fn new(world: Arc<World>, measured: (Timestamp, Option<Timestamp>)) -> Judge {
        Judge {
            world,
            measured_from: measured.0,
            measured_to: measured.1,
            copies: Copies::default(),
            makers: Makers::default(),
            tally: Tally::default(),
        }
    }

    /// Judges one exchange and fills in its `hit` and `wrong`.
    pub fn add(&mut self, exchange: &mut CacheExchange) {
        exchange.hit = is_hit(exchange);
        let copy = self.copies.of(exchange).copied();
        let readiness = readiness(exchange, copy);
        exchange.wrong = self.incorrect(exchange).or_else(|| false_miss(exchange, readiness));
        // The first copy stays until its lifetime is over: what counts is since when there has been one.
        let is_first = copy.is_none_or(|copy| unix_ms(copy.expires_unix_s) <= exchange.requested_unix_ms);
        let is_right = exchange.wrong.is_none_or(|wrong| !wrong.is_incorrect());
        if is_first && is_right && exchange.could_fill() && is_whole(exchange) {
            let expires_unix_s = self.lifetime_end(exchange).unwrap_or(i64::MAX);
            self.copies.keep(exchange, Kept { whole_at: exchange.done_at, expires_unix_s });
        }
        self.makers.add(exchange);
        if self.counts(exchange.scheduled_at) {
            let why = || description::example(&self.world, exchange);
            let is_in_doubt =
                exchange.hit && exchange.wrong.is_none() && self.freshness(exchange) == Freshness::InDoubt;
            self.tally.add(exchange, readiness, is_in_doubt, why);
        }
    }

    /// The end of the measured phase, once it is known. What was counted before stays counted.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.measured_to = Some(end);
    }

    /// Adds the counts and the memory of another judge of the same world. Each has judged by what it saw itself: of
    /// exchanges in both, `offered_while_fetching` is too high and false misses are too few.
    pub fn merge(&mut self, other: Judge) {
        self.copies.merge(other.copies);
        self.makers.merge(other.makers);
        self.tally.merge(other.tally);
    }

    /// All counts.
    pub fn finish(self) -> CacheFigures {
        self.tally.figures()
    }

    fn counts(&self, scheduled_at: Timestamp) -> bool {
        scheduled_at >= self.measured_from && self.measured_to.is_none_or(|end| scheduled_at < end)
    }

    /// What a client must not get. The gravest first, as [`Wrong`] orders them.
    fn incorrect(&self, exchange: &CacheExchange) -> Option<Wrong> {
        // An error page is a failure with its own cause, whoever wrote it; a head that did not come says nothing.
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
        if exchange.method == Method::Post || self.makers.asked_for_another(exchange) {
            return Some(Wrong::FalseHit);
        }
        (self.freshness(exchange) == Freshness::Stale).then_some(Wrong::Stale)
    }

    /// A 304 says "you have it": wrong if the client had nothing, or asked by a date before the last change. An older copy
    /// that may still be used answers such a date with 304, by its own Last-Modified (RFC 9111, section 4.3.2).
    fn is_falsely_not_modified(&self, exchange: &CacheExchange) -> bool {
        match (exchange.method, exchange.form) {
            (Method::Get, CacheForm::Ims304) => false,
            (Method::Get, CacheForm::Ims200) => {
                let due = self.world.version(object(exchange), unix_s(exchange.requested_unix_ms));
                let before = self.world.version(object(exchange), due.modified_s - 1);
                before.number == due.number
                    || before.expires_s.is_some_and(|end| exchange.requested_unix_ms > unix_ms(end) + DATE_SLACK_MS)
            }
            _ => true,
        }
    }

    /// Ended early though its framing says whole, and not as planned: an end that the origin cut may be passed on by a proxy
    /// that cannot say so, but not kept and handed out later. That it may not even where its framing says that it ended early:
    /// a cache uses no incomplete answer for another request (RFC 9111, section 3.3).
    fn is_truncated(&self, exchange: &CacheExchange) -> bool {
        let cut_by_origin = maker(exchange).is_some_and(|maker| self.world.origin_aborts(maker).is_some());
        match (cut_by_origin, is_older(exchange)) {
            _ if exchange.aborted => false,
            (true, true) => exchange.hit || is_framed(exchange),
            (true, false) => false,
            (false, _) => is_framed(exchange),
        }
    }

    /// Whether it is older than what the origin had a second before it was asked, and beyond its lifetime.
    fn freshness(&self, exchange: &CacheExchange) -> Freshness {
        if exchange.response_version >= exchange.expected_version {
            return Freshness::Usable;
        }
        let thought_ms = maker(exchange).map_or(0, |maker| self.world.think(maker).as_millis() as u64);
        let slack_ms = DATE_SLACK_MS + thought_ms;
        let due = self.world.version(object(exchange), unix_s(exchange.requested_unix_ms.saturating_sub(slack_ms)));
        let is_over = |end_s: i64| exchange.requested_unix_ms > unix_ms(end_s) + slack_ms;
        match self.lifetime_end(exchange) {
            Some(end_s) if exchange.response_version < due.number && is_over(end_s) => {
                if self.renewed_end(exchange).is_none_or(is_over) { Freshness::Stale } else { Freshness::InDoubt }
            }
            _ => Freshness::Usable,
        }
    }

    /// Until when it may be used if the origin renewed it as late as it can have: just before the object changed, or when its
    /// own Age says. `None` where it cannot have been renewed, where that makes no difference (Expires stays what it was),
    /// and where its identity tells of the last renewal.
    fn renewed_end(&self, exchange: &CacheExchange) -> Option<i64> {
        if exchange.renewed || !exchange.renewable {
            return None;
        }
        let made_s = unix_s(exchange.generated_unix_ms);
        let made = self.world.version(object(exchange), made_s);
        let max_age_s = made.max_age_s?;
        let change_s = if made.number > exchange.response_version { made.modified_s } else { made.next_change_s };
        // It was as old as it says at some time until it had come, and Age counts whole seconds.
        let sent_at = exchange.sent_at.unwrap_or(exchange.scheduled_at);
        let took_ms = exchange.done_at.as_nanos().saturating_sub(sent_at.as_nanos()) / 1_000_000;
        let came_s = unix_s(exchange.requested_unix_ms.saturating_add(took_ms));
        let said_s = exchange.age_s.map_or(i64::MAX, |age_s| came_s.saturating_sub(i64::from(age_s)) + 1);
        let renewed_s = said_s.min(change_s - 1);
        // Within the slack of its making: that was it.
        (renewed_s > made_s + 1).then(|| renewed_s.saturating_add_unsigned(max_age_s))
    }

    /// Until when the answer that came may be used, in s since 1970; `None` where the origin did not say.
    fn lifetime_end(&self, exchange: &CacheExchange) -> Option<i64> {
        let made_s = unix_s(exchange.generated_unix_ms);
        let made = self.world.version(object(exchange), made_s);
        if let Some(max_age_s) = made.max_age_s {
            return Some(made_s.saturating_add_unsigned(max_age_s));
        }
        // Chosen before the change and stamped after it: its Expires was the change.
        if made.number > exchange.response_version { Some(made.modified_s) } else { made.expires_s }
    }
}

/// Whether an answer came out of a cache. A 304 says nothing of it: the proxy may have asked.
pub fn is_hit(exchange: &CacheExchange) -> bool {
    let is_of_world = exchange.response_object.is_some() && exchange.response_world == exchange.world;
    let is_of_cache = || match maker(exchange) {
        Some(maker) => maker != AskId { run: exchange.run, sequence: exchange.sequence },
        // What a 304 renewed was there before; what was made for nobody is as old as it is.
        None => exchange.renewed || is_older(exchange),
    };
    exchange.status == OK && is_of_world && is_of_cache()
}

/// Whether the answer was surely made before it was asked for.
fn is_older(exchange: &CacheExchange) -> bool {
    exchange.generated_unix_ms.saturating_add(CLOCK_SLACK_MS) < exchange.requested_unix_ms
}

/// What is known of the age of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    /// Of the version that is due, or within its lifetime.
    Usable,
    /// Beyond its lifetime, unless the origin renewed it.
    InDoubt,
    /// Beyond its lifetime.
    Stale,
}

/// Whether a copy was there for one that asks when this one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// None had come whole yet.
    Fetching,
    /// One had, and its lifetime was over.
    Expired,
    /// One had, and could be used.
    Ready,
}

fn readiness(exchange: &CacheExchange, copy: Option<Kept>) -> Readiness {
    let asked_at = exchange.sent_at.unwrap_or(exchange.scheduled_at);
    match copy {
        Some(copy) if copy.whole_at <= asked_at => {
            // A cache may call it over a second early, as it may call it over a second late.
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
        // Made for nobody, it may have been there a moment before.
        && (exchange.from_sequence.is_some() || exchange.generated_unix_ms >= exchange.requested_unix_ms)
        && readiness == Readiness::Ready;
    missed.then_some(Wrong::FalseMiss)
}

/// Whether the object asked for came to its end.
fn is_whole(exchange: &CacheExchange) -> bool {
    exchange.status == OK
        && exchange.failure.is_none()
        && exchange.response_object.is_some()
        && exchange.content != CacheContent::Short
}

/// Whether the answer was whole by its own framing, whatever was in it.
fn is_framed(exchange: &CacheExchange) -> bool {
    matches!(
        exchange.failure,
        None | Some(FailureCause::UnexpectedStatus | FailureCause::UnexpectedLength | FailureCause::UnexpectedBody)
    )
}

/// The ask that made the answer.
fn maker(exchange: &CacheExchange) -> Option<AskId> {
    Some(AskId { run: exchange.from_run?, sequence: exchange.from_sequence? })
}

fn object(exchange: &CacheExchange) -> Object {
    Object { kind: exchange.kind, number: exchange.object }
}

fn unix_s(ms: u64) -> i64 {
    i64::try_from(ms / 1000).unwrap_or(i64::MAX)
}

/// Before 1970 as 1970, beyond what fits as never.
fn unix_ms(s: i64) -> u64 {
    u64::try_from(s).unwrap_or(0).saturating_mul(1000).min(NEVER_MS)
}

/// Far enough in the future that slack can be added.
const NEVER_MS: u64 = u64::MAX / 2;
const OK: u16 = 200;
const NOT_MODIFIED: u16 = 304;

impl From<Content> for CacheContent {
    fn from(content: Content) -> Self {
        match content {
            Content::Right => CacheContent::Right,
            Content::NotLooked => CacheContent::NotLooked,
            Content::Differs { .. } => CacheContent::Differs,
            Content::Short => CacheContent::Short,
            Content::Long => CacheContent::Long,
            Content::Recoded => CacheContent::Recoded,
        }
    }
}

#[cfg(test)]
mod tests;
