//! The result cache: responses of dynamic servers, stored in memory and reused as a shared cache (RFC 9111).
//!
//! ```text
//!   worker (fast path)          Cache ── Mutex ── Store: key -> variants, least recently used at the end
//!     fresh(..) ───hit────────▶   ▲ ▲
//!        │ anything else          │ │ put, freshen, invalidate
//!        ▼                        │ │
//!   relay: dynamic/cached.rs ─────┘ └── responses of the upstream that `policy` admits
//! ```
//!
//! Pure functions of parsed fields and timestamps decide what is stored, for how long, and for which request:
//! `directives.rs` reads Cache-Control, `policy.rs` decides, `vary.rs` selects, `validation.rs` compares validators.
//! `store.rs` only stores and evicts. All timestamps come from the server's one clock ([`sys::clock::Clock`]); where
//! the RFC needs wall-clock time, seconds since 1970 accompany the timestamp.
//!
//! Read `policy.rs` first.

mod directives;
mod fields;
mod finding;
mod key;
mod policy;
mod serving;
mod spec;
mod store;
mod stored;
mod targeted;
mod unsent;
mod validation;
mod vary;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod testing;

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;
use sys::clock::Clock;
use units::Timestamp;

pub(crate) use self::directives::Demands;
pub(crate) use self::finding::Finding;
pub use self::finding::{Outcome, Reason};
pub(crate) use self::key::Key;
pub(crate) use self::policy::{Usable, is_error, terms, usable, usable_on_error};
pub(crate) use self::serving::{CacheStatus, Rendered};
pub use self::spec::CacheSpec;
use self::store::Store;
pub(crate) use self::store::Usage;
pub(crate) use self::stored::{Head, Received, Stored};
use self::unsent::CurrentBytes;
pub(crate) use self::unsent::Unsent;
pub(crate) use self::validation::{Freshened, conditions, freshened};
use crate::phrase::status_line;
use crate::request::{Body, Fields, Lines, Method, Request};

/// The properties of a GET or HEAD request that the cache uses, borrowed from its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheRequest<'a> {
    /// HEAD: the response ends with its head. Otherwise GET.
    pub(crate) head_only: bool,
    /// Received over TLS.
    pub(crate) secure: bool,
    /// As sent: still percent-encoded.
    pub(crate) path: &'a [u8],
    /// As sent, without its `?`.
    pub(crate) query: Option<&'a [u8]>,
    /// All fields.
    pub(crate) fields: Fields<'a>,
}

impl<'a> CacheRequest<'a> {
    /// The cache request of `request`; or the reason why it bypasses the cache.
    pub(crate) fn of(request: &Request<'a>, secure: bool) -> Result<Self, Reason> {
        let head_only = match request.method {
            Method::Get => false,
            Method::Head => true,
            _ => return Err(Reason::Method),
        };
        if request.body != Body::None {
            return Err(Reason::Body);
        }
        let fields = request.fields;
        if fields.if_match.is_some() || fields.if_unmodified_since.is_some() {
            return Err(Reason::Precondition);
        }
        Ok(CacheRequest { head_only, secure, path: request.path, query: request.query, fields })
    }

    /// The key of the response.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.secure, self.fields.host.unwrap_or_default(), self.path, self.query)
    }
}

/// Cache directives of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestDirectives<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) demands: Demands,
    /// Whether the request has an Authorization field.
    pub(crate) has_credentials: bool,
}

impl<'a> RequestDirectives<'a> {
    fn of(fields: Fields<'a>, spec: &CacheSpec) -> Self {
        let mut demands = Demands::of(fields.lines());
        if spec.ignores_clients {
            demands = Demands { only_if_cached: demands.only_if_cached, ..Demands::default() };
        }
        RequestDirectives { fields, demands, has_credentials: fields.values(b"authorization").next().is_some() }
    }

    /// All fields of the request.
    pub(crate) fn lines(&self) -> Lines<'a> {
        self.fields.lines()
    }
}

/// A fresh response from the cache.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Its status.
    pub(crate) status: u16,
    /// Its body; empty where there is none (HEAD, 304).
    pub(crate) body: Bytes,
    /// For the log and the metrics.
    pub(crate) finding: Finding,
}

/// The stored response of a request.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing is stored under the key.
    Nothing,
    /// Stored responses exist, but for other selecting fields.
    OtherVariants,
    /// This response.
    Answer(Stored),
}

/// The result cache, shared by all workers and the relay.
#[derive(Debug)]
pub(crate) struct Cache {
    spec: CacheSpec,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Bytes of all bodies in memory: stored, arriving, or evicted and still being sent.
    current: CurrentBytes,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    /// The key of the current lookup.
    key: Vec<u8>,
}

impl Cache {
    /// An empty cache. `clock` is the server's clock.
    pub(crate) fn new(spec: &CacheSpec, clock: Clock) -> Self {
        let inner = Inner { store: Store::new(spec.memory_bytes), key: Vec::with_capacity(256) };
        Cache { spec: spec.clone(), clock, inner: Mutex::new(inner), current: CurrentBytes::default() }
    }

    /// The fast path of a worker: appends the head of a fresh stored response to `out`, except Connection and the empty
    /// line, and returns its body. `None`, with nothing appended, sends the request to the relay. One short critical
    /// section; only the comparison of a Vary field allocates. The worker does not wait for a thread that was preempted
    /// while it holds the lock, such as the relay at its lower priority: files would wait too.
    pub(crate) fn fresh(&self, request: &CacheRequest<'_>, now: Timestamp, out: &mut Vec<u8>) -> Option<Fresh> {
        let directives = self.directives(request.fields);
        let Found::Answer(stored) = self.try_lock_inner()?.find(request) else { return None };
        if usable(&stored.head, &directives, now) != Usable::Fresh {
            return None;
        }
        let finding = Finding::new(Outcome::Hit, Reason::Fresh);
        let rendered = Rendered::of(&stored.head, request, Some(stored.body.len() as u64));
        status_line(out, rendered.status);
        if let Some(length) = rendered.length {
            // Writing to a Vec does not fail.
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        rendered.append(&stored.head, &CacheStatus::hit(finding), now, out);
        let body = stored.body.slice(rendered.body.start as usize..rendered.body.end as usize);
        Some(Fresh { status: rendered.status, body, finding })
    }

    /// The cache directives of a request, as far as the configuration honours them.
    pub(crate) fn directives<'a>(&self, fields: Fields<'a>) -> RequestDirectives<'a> {
        RequestDirectives::of(fields, &self.spec)
    }

    /// The stored response of a request, marked as most recently used.
    pub(crate) fn find(&self, request: &CacheRequest<'_>) -> Found {
        self.inner().find(request)
    }

    /// Stores a response in place of all that the same request selects; false if it does not fit.
    pub(crate) fn put(&self, key: Key, fields: Fields<'_>, stored: Stored) -> bool {
        let lines = fields.lines();
        self.inner().store.put(key, stored, |old| old.head.vary.selects(&lines))
    }

    /// Removes the stored response that this request selects, since the origin's latest response replaces it and may
    /// not be stored.
    pub(crate) fn forget(&self, key: &Key, fields: Fields<'_>) {
        let lines = fields.lines();
        self.inner().store.forget(key.bytes(), |old| old.head.vary.selects(&lines));
    }

    /// Removes all responses under `key` (RFC 9111, section 4.4); returns their number.
    pub(crate) fn invalidate(&self, key: &Key) -> usize {
        self.inner().store.forget(key.bytes(), |_| true)
    }

    /// A body that counts as current until it is dropped.
    pub(crate) fn counted(&self, body: Box<[u8]>) -> Bytes {
        self.current.counted(body)
    }

    /// A counter of bytes outside the store.
    pub(crate) fn unsent(&self) -> Unsent {
        Unsent::new(&self.current)
    }

    /// Whether `more` bytes would exceed twice the store's memory, counting all current bytes.
    pub(crate) fn is_full_of_unsent(&self, more: u64) -> bool {
        self.current.bytes().saturating_add(more as usize) > self.spec.memory_bytes.saturating_mul(2)
    }

    /// Memory and number of the stored responses.
    pub(crate) fn usage(&self) -> Usage {
        Usage { current_bytes: self.current.bytes() as u64, ..self.inner().store.usage() }
    }

    /// The configuration.
    pub(crate) fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The times of a response whose head has just arrived; its request was sent at `requested_at`.
    pub(crate) fn received(&self, requested_at: Timestamp) -> Received {
        Received { requested_at, at: self.clock.now(), unix_s: sys::clock::realtime_ns() / 1_000_000_000 }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, if its lock becomes free within the time of a few lookups.
    fn try_lock_inner(&self) -> Option<MutexGuard<'_, Inner>> {
        for _ in 0..LOCK_ATTEMPTS {
            match self.inner.try_lock() {
                Ok(inner) => return Some(inner),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

impl Inner {
    /// The stored response of a request, marked as most recently used.
    fn find(&mut self, request: &CacheRequest<'_>) -> Found {
        Key::write(&mut self.key, request.secure, request.fields.host.unwrap_or_default(), request.path, request.query);
        let lines = request.fields.lines();
        let mut others = false;
        let mut found = None;
        for (at, stored) in self.store.variants(&self.key) {
            if stored.head.vary.selects(&lines) {
                found = Some((at, stored.clone()));
                break;
            }
            others = true;
        }
        match found {
            Some((at, stored)) => {
                self.store.touch(at);
                Found::Answer(stored)
            }
            None if others => Found::OtherVariants,
            None => Found::Nothing,
        }
    }
}

/// Attempts to lock the store: some microseconds.
const LOCK_ATTEMPTS: usize = 200;
