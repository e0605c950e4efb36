//! The result cache: answers of dynamic servers kept in memory and given again, by RFC 9111, as a shared cache.
//!
//! ```text
//!   worker (fast path)          Cache ── Mutex ── Store: key -> variants, least recently used at the end
//!     fresh(..) ───hit────────▶   ▲ ▲
//!        │ anything else          │ │ put, freshen, invalidate
//!        ▼                        │ │
//!   relay: dynamic/cached.rs ─────┘ └── answers of the upstream that `policy` lets in
//! ```
//!
//! What may be kept, for how long, and for which request is decided by pure functions of parsed fields and of moments
//! handed in: `directives.rs` reads Cache-Control, `policy.rs` decides, `vary.rs` selects, `validation.rs` compares
//! validators. `store.rs` only remembers and forgets. All moments are readings of the one clock of the server
//! ([`sys::clock::Clock`]); the wall clock enters where the RFC wants it, as seconds since 1970 beside a moment.
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
use self::unsent::Living;
pub(crate) use self::unsent::Unsent;
pub(crate) use self::validation::{Freshened, conditions, freshened};
use crate::phrase::status_line;
use crate::request::{Body, Fields, Lines, Method, Request};

/// A GET or HEAD as the cache sees it, borrowed from its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// HEAD: the answer ends with its head. Otherwise GET.
    pub(crate) head_only: bool,
    /// Asked for over TLS.
    pub(crate) secure: bool,
    /// As sent: still percent-encoded.
    pub(crate) path: &'a [u8],
    /// As sent, without its `?`.
    pub(crate) query: Option<&'a [u8]>,
    /// All fields.
    pub(crate) fields: Fields<'a>,
}

impl<'a> Asked<'a> {
    /// What `request` asks of the cache; else the reason why it is not for the cache at all.
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
        Ok(Asked { head_only, secure, path: request.path, query: request.query, fields })
    }

    /// What it is stored under.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.secure, self.fields.host.unwrap_or_default(), self.path, self.query)
    }
}

/// What a request says about answers out of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) demands: Demands,
    /// It has an Authorization field.
    pub(crate) has_credentials: bool,
}

impl<'a> Question<'a> {
    fn of(fields: Fields<'a>, spec: &CacheSpec) -> Self {
        let mut demands = Demands::of(fields.lines());
        if spec.ignores_clients {
            demands = Demands { only_if_cached: demands.only_if_cached, ..Demands::default() };
        }
        Question { fields, demands, has_credentials: fields.values(b"authorization").next().is_some() }
    }

    /// All fields of the request.
    pub(crate) fn lines(&self) -> Lines<'a> {
        self.fields.lines()
    }
}

/// A fresh answer from the cache.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Its status.
    pub(crate) status: u16,
    /// Its body; empty where there is none (HEAD, 304).
    pub(crate) body: Bytes,
    /// For log and figures.
    pub(crate) finding: Finding,
}

/// What is stored for a request.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing under its key.
    Nothing,
    /// Something, but selected by other fields.
    OtherVariants,
    /// This.
    Answer(Stored),
}

/// The result cache, shared by all workers and the relay.
#[derive(Debug)]
pub(crate) struct Cache {
    spec: CacheSpec,
    clock: Clock,
    shelf: Mutex<Shelf>,
    /// Bytes of bodies that live: stored, or forgotten and still on their way to clients, or coming.
    living: Living,
}

#[derive(Debug)]
struct Shelf {
    store: Store,
    /// The key of the look-up under way.
    key: Vec<u8>,
}

impl Cache {
    /// An empty one. `clock` is the server's.
    pub(crate) fn new(spec: &CacheSpec, clock: Clock) -> Self {
        let shelf = Shelf { store: Store::new(spec.memory_bytes), key: Vec::with_capacity(256) };
        Cache { spec: spec.clone(), clock, shelf: Mutex::new(shelf), living: Living::default() }
    }

    /// The worker's fast path: appends the head of a fresh stored answer to `out`, all but Connection and the empty
    /// line, and returns its body. `None`, and nothing appended: the relay has to be asked. One short critical
    /// section; nothing is allocated but what a Vary field needs to be compared. It does not wait for a thread that the kernel
    /// has put aside with the shelf in its hands, as it does with the relay, which is less urgent: files would wait too.
    pub(crate) fn fresh(&self, asked: &Asked<'_>, now: Timestamp, out: &mut Vec<u8>) -> Option<Fresh> {
        let question = self.question(asked.fields);
        let Found::Answer(stored) = self.shelf_soon()?.find(asked) else { return None };
        if usable(&stored.head, &question, now) != Usable::Fresh {
            return None;
        }
        let finding = Finding::new(Outcome::Hit, Reason::Fresh);
        let rendered = Rendered::of(&stored.head, asked, Some(stored.body.len() as u64));
        status_line(out, rendered.status);
        if let Some(length) = rendered.length {
            // Writing to a Vec does not fail.
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        rendered.append(&stored.head, &CacheStatus::hit(finding), now, out);
        let body = stored.body.slice(rendered.body.start as usize..rendered.body.end as usize);
        Some(Fresh { status: rendered.status, body, finding })
    }

    /// What a request demands and is, as far as this cache listens.
    pub(crate) fn question<'a>(&self, fields: Fields<'a>) -> Question<'a> {
        Question::of(fields, &self.spec)
    }

    /// What is stored for a request, and makes it the answer used latest.
    pub(crate) fn find(&self, asked: &Asked<'_>) -> Found {
        self.shelf().find(asked)
    }

    /// Stores an answer in place of all that the same request selects; false where it does not fit.
    pub(crate) fn put(&self, key: Key, fields: Fields<'_>, stored: Stored) -> bool {
        let lines = fields.lines();
        self.shelf().store.put(key, stored, |old| old.head.vary.selects(&lines))
    }

    /// Forgets what this request selects: the origin's latest answer may not be stored, and overrules it.
    pub(crate) fn forget(&self, key: &Key, fields: Fields<'_>) {
        let lines = fields.lines();
        self.shelf().store.forget(key.bytes(), |old| old.head.vary.selects(&lines));
    }

    /// Forgets all that is stored under `key` (RFC 9111, section 4.4); the number of answers.
    pub(crate) fn invalidate(&self, key: &Key) -> usize {
        self.shelf().store.forget(key.bytes(), |_| true)
    }

    /// A body that is counted until nobody holds it any more.
    pub(crate) fn counted(&self, body: Box<[u8]>) -> Bytes {
        self.living.counted(body)
    }

    /// A count of bytes that are held beside the store.
    pub(crate) fn unsent(&self) -> Unsent {
        Unsent::new(&self.living)
    }

    /// Whether so many bytes more would be beyond twice the memory of the store, all counted that live.
    pub(crate) fn is_full_of_unsent(&self, more: u64) -> bool {
        self.living.bytes().saturating_add(more as usize) > self.spec.memory_bytes.saturating_mul(2)
    }

    /// How much is stored.
    pub(crate) fn usage(&self) -> Usage {
        Usage { living_bytes: self.living.bytes() as u64, ..self.shelf().store.usage() }
    }

    /// As asked for.
    pub(crate) fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An answer's head has just come to a request that was sent at `requested_at`.
    pub(crate) fn received(&self, requested_at: Timestamp) -> Received {
        Received { requested_at, at: self.clock.now(), unix_s: sys::clock::realtime_ns() / 1_000_000_000 }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shelf, if who has it gives it back within the time of a few look-ups.
    fn shelf_soon(&self) -> Option<MutexGuard<'_, Shelf>> {
        for _ in 0..SPINS {
            match self.shelf.try_lock() {
                Ok(shelf) => return Some(shelf),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

impl Shelf {
    /// What is stored for a request, and makes it the answer used latest.
    fn find(&mut self, asked: &Asked<'_>) -> Found {
        Key::write(&mut self.key, asked.secure, asked.fields.host.unwrap_or_default(), asked.path, asked.query);
        let lines = asked.fields.lines();
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

/// Some microseconds of trying.
const SPINS: usize = 200;
