//! A cache in thirty lines and its faults, between a drawn stream and the facts of its world: what a right proxy, and a wrong
//! one, would have had recorded. Every answer comes at once, and is whole before the next request is sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polymix::{Object, RequestId, Stream, Variant, World};
use schema::{CacheContent, CacheExchange, CacheForm, FailureCause, Method};
use units::Timestamp;

/// Asks a second.
pub const RATE_PER_S: u64 = 100;
/// Wall clock at the run's zero, in ms.
const ZERO_UNIX_MS: u64 = 1_795_000_000_000;
const RUN: u32 = 0xbeef;
/// A fault shows in one of so many answers where it could show in all.
const ONE_IN: u64 = 50;

/// What a cache does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    OtherObject,
    OtherWorld,
    NoIdentity,
    IgnoresVary,
    KeepsUncacheable,
    NeverExpires,
    Truncates,
    FlipsBytes,
    HitsOnReload,
    NotModifiedToAll,
    SwapsIdentities,
    Forgets,
}

/// What the virtual users would request, each as if the origin had answered it: embedded objects right after their page.
pub fn exchanges(world: &Arc<World>) -> impl Iterator<Item = CacheExchange> {
    let mut stream = Stream::new(world);
    let arrivals = (0u64..).flat_map(move |arrival| {
        let ask = stream.next(Duration::from_nanos(arrival * 1_000_000_000 / RATE_PER_S));
        let embedded = stream.embedded(&ask);
        let asks = std::iter::once(ask).chain(embedded);
        asks.zip(0u64..).map(move |(ask, nth)| (arrival + (nth << 40), ask)).collect::<Vec<_>>()
    });
    let world = Arc::clone(world);
    arrivals.zip(0u64..).map(move |((sequence, ask), at)| {
        let (object, id) = (ask.object, RequestId { run: RUN, sequence });
        let at = Duration::from_nanos(at * 1_000_000_000 / RATE_PER_S);
        let requested_unix_ms = ZERO_UNIX_MS + at.as_millis() as u64;
        let due = world.version(object, (requested_unix_ms / 1000) as i64);
        let variant = world.variant(object, ask.gzip);
        let bytes = world.body(object, due, variant).length();
        let sent_at = Timestamp::ZERO + at;
        let not_modified = ask.form == CacheForm::Ims304;
        let has_body = ask.method == Method::Get && !not_modified;
        CacheExchange {
            sequence,
            run: RUN,
            world: world.id,
            kind: object.kind,
            object: object.number,
            object_bytes: bytes,
            accepts_gzip: ask.gzip,
            variant_gzip: variant == Variant::Gzip,
            form: ask.form,
            method: ask.method,
            repeat: ask.repeat,
            offered: ask.offered,
            cacheable: world.cacheable(object),
            secure: ask.secure,
            aborted: has_body && (ask.abort_after.is_some() || world.origin_aborts(id).is_some()),
            scheduled_at: sent_at,
            sent_at: Some(sent_at),
            done_at: sent_at + Duration::from_millis(1),
            requested_unix_ms,
            status: if not_modified { 304 } else { 200 },
            from_sequence: (!not_modified).then_some(sequence),
            from_run: (!not_modified).then_some(RUN),
            response_world: world.id,
            response_object: Some(object.number),
            response_kind: object.kind,
            response_version: due.number,
            generated_unix_ms: requested_unix_ms,
            expected_version: due.number,
            expires_unix_s: due.expires_s.unwrap_or(i64::MAX),
            renewable: world.has_last_modified(object) || world.has_etag(object),
            body_gzip: variant == Variant::Gzip,
            content: if has_body { CacheContent::Right } else { CacheContent::NotLooked },
            body_bytes: if has_body { bytes } else { 0 },
            ..CacheExchange::default()
        }
    })
}

/// A cache without limit that keeps to RFC 9111, but for its fault.
pub struct ModelCache {
    world: Arc<World>,
    fault: Option<Fault>,
    copies: HashMap<(Object, bool), CacheExchange>,
    answers: u64,
}

impl ModelCache {
    pub fn new(world: Arc<World>, fault: Option<Fault>) -> Self {
        ModelCache { world, fault, copies: HashMap::new(), answers: 0 }
    }

    /// What comes back: `asked` as the origin would answer it, or with the answer that was made for another.
    pub fn answer(&mut self, asked: CacheExchange) -> CacheExchange {
        self.answers += 1;
        let fault = |one: Fault| self.fault == Some(one);
        let now_and_then = self.answers.is_multiple_of(ONE_IN);
        let passes = asked.secure || asked.method != Method::Get;
        let key = self.key(&asked);
        let mut came = asked;
        let may_hit = !passes && (asked.form != CacheForm::Reload || fault(Fault::HitsOnReload));
        let copy = self.copies.get(&key).copied().filter(|_| may_hit);
        let copy = copy.filter(|copy| self.is_fresh(copy, &asked) || fault(Fault::NeverExpires));
        let copy = copy.filter(|_| !(fault(Fault::Forgets) && now_and_then));
        if let Some(copy) = copy
            && asked.form != CacheForm::Ims304
        {
            (came.from_sequence, came.from_run) = (copy.from_sequence, copy.from_run);
            (came.response_version, came.generated_unix_ms) = (copy.response_version, copy.generated_unix_ms);
            (came.body_gzip, came.body_bytes) = (copy.body_gzip, copy.body_bytes);
            // Asked about, and still good: its lifetime begins anew (RFC 9111, section 4.3.4).
            let is_over = unix_ms(copy.expires_unix_s) <= asked.requested_unix_ms;
            if let Some(kept) =
                self.copies.get_mut(&key).filter(|_| is_over && copy.response_version == asked.expected_version)
            {
                kept.expires_unix_s = asked.expires_unix_s;
            }
        }
        let keeps = asked.could_fill() || (fault(Fault::KeepsUncacheable) && asked.form == CacheForm::Basic && !passes);
        if copy.is_none() && keeps && !asked.aborted {
            self.copies.insert(key, asked);
        }
        if now_and_then && came.status == 200 && !passes && !came.aborted {
            self.spoil(&mut came);
        }
        came
    }

    fn key(&self, asked: &CacheExchange) -> (Object, bool) {
        let object = Object { kind: asked.kind, number: asked.object };
        (object, asked.variant_gzip && self.fault != Some(Fault::IgnoresVary))
    }

    /// To the millisecond, or renewed by the origin, which this cache asks at once and which knows whether it changed.
    fn is_fresh(&self, copy: &CacheExchange, asked: &CacheExchange) -> bool {
        asked.requested_unix_ms < unix_ms(copy.expires_unix_s)
            || (asked.renewable && copy.response_version == asked.expected_version)
    }

    fn spoil(&self, came: &mut CacheExchange) {
        match self.fault {
            Some(Fault::OtherObject) => came.response_object = Some(came.object + 1),
            Some(Fault::OtherWorld) => came.response_world = self.world.id + 1,
            Some(Fault::NoIdentity) => {
                (came.response_object, came.from_sequence, came.from_run) = (None, None, None);
                (came.content, came.failure) = (CacheContent::NotLooked, Some(FailureCause::UnexpectedBody));
            }
            Some(Fault::Truncates) => {
                (came.content, came.failure) = (CacheContent::Short, Some(FailureCause::UnexpectedLength));
            }
            Some(Fault::FlipsBytes) => {
                (came.content, came.failure) = (CacheContent::Differs, Some(FailureCause::UnexpectedBody));
            }
            Some(Fault::NotModifiedToAll) => {
                (came.status, came.response_object, came.content) = (304, None, CacheContent::NotLooked);
            }
            // The head of the first answer of all, under the name of this object.
            Some(Fault::SwapsIdentities) if came.sequence > 0 && came.cacheable && came.form == CacheForm::Basic => {
                came.from_sequence = Some(0);
            }
            _ => {}
        }
    }
}

fn unix_ms(s: i64) -> u64 {
    u64::try_from(s).unwrap_or(0).saturating_mul(1000)
}
