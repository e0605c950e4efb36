//! A model of a cache with optional faults: generates the exchanges that would be recorded with a correct or a faulty
//! proxy. Requests are drawn from a workload. Every response is complete before the next request is sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polymix::{Object, RequestId, Stream, Variant, World};
use schema::{CacheContent, CacheExchange, CacheForm, FailureCause, Method};
use units::Timestamp;

/// Requests per second.
pub const RATE_PER_S: u64 = 100;
/// Start of the run, Unix time in milliseconds.
const ZERO_UNIX_MS: u64 = 1_795_000_000_000;
const RUN: u32 = 0xbeef;
/// A fault that could affect every response affects one in this number.
const FAULT_INTERVAL: u64 = 50;

/// A fault of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    OtherObject,
    OtherWorld,
    NoIdentity,
    IgnoresVary,
    StoresUncacheable,
    NeverExpires,
    Truncates,
    FlipsBytes,
    HitsOnReload,
    NotModifiedToAll,
    SwapsIdentities,
    Evicts,
}

/// The requests of the virtual users, each with the response of the origin. Embedded objects follow their page.
pub fn exchanges(world: &Arc<World>) -> impl Iterator<Item = CacheExchange> {
    let mut stream = Stream::new(world);
    let arrivals = (0u64..).flat_map(move |arrival| {
        let drawn = stream.next(Duration::from_nanos(arrival * 1_000_000_000 / RATE_PER_S));
        let embedded = stream.embedded(&drawn);
        let drawn_requests = std::iter::once(drawn).chain(embedded);
        drawn_requests.zip(0u64..).map(move |(drawn, nth)| (arrival + (nth << 40), drawn)).collect::<Vec<_>>()
    });
    let world = Arc::clone(world);
    arrivals.zip(0u64..).map(move |((sequence, drawn), at)| {
        let (object, id) = (drawn.object, RequestId { run: RUN, sequence });
        let at = Duration::from_nanos(at * 1_000_000_000 / RATE_PER_S);
        let requested_unix_ms = ZERO_UNIX_MS + at.as_millis() as u64;
        let version = world.version(object, (requested_unix_ms / 1000) as i64);
        let variant = world.variant(object, drawn.gzip);
        let bytes = world.body(object, version, variant).length();
        let sent_at = Timestamp::ZERO + at;
        let not_modified = drawn.form == CacheForm::Ims304;
        let has_body = drawn.method == Method::Get && !not_modified;
        CacheExchange {
            sequence,
            run: RUN,
            world: world.id,
            kind: object.kind,
            object: object.number,
            object_bytes: bytes,
            accepts_gzip: drawn.gzip,
            variant_gzip: variant == Variant::Gzip,
            form: drawn.form,
            method: drawn.method,
            repeat: drawn.repeat,
            offered: drawn.offered,
            cacheable: world.cacheable(object),
            secure: drawn.secure,
            aborted: has_body && (drawn.abort_after.is_some() || world.origin_aborts(id).is_some()),
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
            response_version: version.number,
            generated_unix_ms: requested_unix_ms,
            expected_version: version.number,
            expires_unix_s: version.expires_s.unwrap_or(i64::MAX),
            renewable: world.has_last_modified(object) || world.has_etag(object),
            body_gzip: variant == Variant::Gzip,
            content: if has_body { CacheContent::Right } else { CacheContent::NotLooked },
            body_bytes: if has_body { bytes } else { 0 },
            ..CacheExchange::default()
        }
    })
}

/// A cache without size limit that follows RFC 9111, apart from its fault.
pub struct ModelCache {
    world: Arc<World>,
    fault: Option<Fault>,
    copies: HashMap<(Object, bool), CacheExchange>,
    responses: u64,
}

impl ModelCache {
    pub fn new(world: Arc<World>, fault: Option<Fault>) -> Self {
        ModelCache { world, fault, copies: HashMap::new(), responses: 0 }
    }

    /// The response to `request`, which has the response of the origin: that one, or a stored one.
    pub fn respond(&mut self, request: CacheExchange) -> CacheExchange {
        self.responses += 1;
        let fault = |one: Fault| self.fault == Some(one);
        let is_faulty_turn = self.responses.is_multiple_of(FAULT_INTERVAL);
        let bypasses_cache = request.secure || request.method != Method::Get;
        let key = self.key(&request);
        let mut response = request;
        let may_hit = !bypasses_cache && (request.form != CacheForm::Reload || fault(Fault::HitsOnReload));
        let copy = self.copies.get(&key).copied().filter(|_| may_hit);
        let copy = copy.filter(|copy| self.is_fresh(copy, &request) || fault(Fault::NeverExpires));
        let copy = copy.filter(|_| !(fault(Fault::Evicts) && is_faulty_turn));
        if let Some(copy) = copy
            && request.form != CacheForm::Ims304
        {
            (response.from_sequence, response.from_run) = (copy.from_sequence, copy.from_run);
            (response.response_version, response.generated_unix_ms) = (copy.response_version, copy.generated_unix_ms);
            (response.body_gzip, response.body_bytes) = (copy.body_gzip, copy.body_bytes);
            // A successful validation renews the lifetime (RFC 9111, section 4.3.4).
            let is_expired = unix_ms(copy.expires_unix_s) <= request.requested_unix_ms;
            if let Some(stored) =
                self.copies.get_mut(&key).filter(|_| is_expired && copy.response_version == request.expected_version)
            {
                stored.expires_unix_s = request.expires_unix_s;
            }
        }
        let stores = request.could_fill()
            || (fault(Fault::StoresUncacheable) && request.form == CacheForm::Basic && !bypasses_cache);
        if copy.is_none() && stores && !request.aborted {
            self.copies.insert(key, request);
        }
        if is_faulty_turn && response.status == 200 && !bypasses_cache && !response.aborted {
            self.corrupt(&mut response);
        }
        response
    }

    fn key(&self, request: &CacheExchange) -> (Object, bool) {
        let object = Object { kind: request.kind, number: request.object };
        (object, request.variant_gzip && self.fault != Some(Fault::IgnoresVary))
    }

    /// Whether the copy is fresh, exact to the millisecond, or the origin renews it.
    fn is_fresh(&self, copy: &CacheExchange, request: &CacheExchange) -> bool {
        request.requested_unix_ms < unix_ms(copy.expires_unix_s)
            || (request.renewable && copy.response_version == request.expected_version)
    }

    fn corrupt(&self, response: &mut CacheExchange) {
        match self.fault {
            Some(Fault::OtherObject) => response.response_object = Some(response.object + 1),
            Some(Fault::OtherWorld) => response.response_world = self.world.id + 1,
            Some(Fault::NoIdentity) => {
                (response.response_object, response.from_sequence, response.from_run) = (None, None, None);
                (response.content, response.failure) = (CacheContent::NotLooked, Some(FailureCause::UnexpectedBody));
            }
            Some(Fault::Truncates) => {
                (response.content, response.failure) = (CacheContent::Short, Some(FailureCause::UnexpectedLength));
            }
            Some(Fault::FlipsBytes) => {
                (response.content, response.failure) = (CacheContent::Differs, Some(FailureCause::UnexpectedBody));
            }
            Some(Fault::NotModifiedToAll) => {
                (response.status, response.response_object, response.content) = (304, None, CacheContent::NotLooked);
            }
            // The identity of the first response, for this object.
            Some(Fault::SwapsIdentities)
                if response.sequence > 0 && response.cacheable && response.form == CacheForm::Basic =>
            {
                response.from_sequence = Some(0);
            }
            _ => {}
        }
    }
}

fn unix_ms(s: i64) -> u64 {
    u64::try_from(s).unwrap_or(0).saturating_mul(1000)
}
