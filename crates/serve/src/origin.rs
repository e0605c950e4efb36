//! The origin of a workload: every object of its worlds, generated on request.
//!
//! ```text
//!   request ──ObjectRequest::of──▶ think time ──▶ Origin::answer ──▶ head, and a polymix::Body of slices
//!                                    │               (nothing is stored: all properties of an object follow
//!              connection/origin_exchange.rs waits    from workload, seed and URL)
//! ```
//!
//! An origin replaces files and dynamic routes: a server is one or the other. Of a proxy's request it uses only the
//! URL, the conditions and the codings: the Host field and the host of an absolute target may be anything.
//!
//! Each worker has its own [`Origin`]. Read `origin/responding.rs` for the fields of a response.

mod counting;
mod requested;
mod responding;

use std::sync::Arc;
use std::time::Duration;

use polymix::{OriginFigures, RequestId, WorkloadDigest, World};
use sys::clock::Clock;
use units::Timestamp;

use crate::date::http_date_s;
pub use counting::OriginCounts;
use counting::Tally;
pub(crate) use requested::{NoObject, ObjectRequest};
pub(crate) use responding::Truncation;

/// Configuration of an origin.
#[derive(Clone, Debug)]
pub struct OriginSpec {
    /// Workload and seed of its objects. The world number is taken from each URL.
    pub world: Arc<World>,
    /// Whether requests for all worlds are expected. Otherwise requests for another world than `world` are served and
    /// counted as foreign: they come from a cache or from a virtual user of an earlier run.
    pub accept_any_world: bool,
    /// The counters; a clone can read them.
    pub counts: OriginCounts,
    /// Start time, Unix time in milliseconds.
    pub(crate) started_unix_ms: u64,
    /// Digests of workload and seed.
    pub(crate) digest: Arc<WorkloadDigest>,
}

impl OriginSpec {
    /// The objects of all worlds of one workload and seed.
    pub fn new(world: Arc<World>) -> Self {
        OriginSpec {
            digest: Arc::new(world.spec.digest(world.seed)),
            world,
            accept_any_world: true,
            counts: OriginCounts::default(),
            started_unix_ms: sys::clock::realtime_ns() / 1_000_000,
        }
    }

    /// Whether responses have a think time.
    pub fn thinks(&self) -> bool {
        self.world.spec.think.as_ref().is_some_and(|think| think.mean() > 0.0)
    }

    /// Counters of all workers.
    pub fn figures(&self) -> OriginFigures {
        let World { spec, seed, body_content, .. } = &*self.world;
        self.counts.read(OriginFigures {
            body_content: format!("{:08x}", body_content.digest()),
            workload: spec.name.clone(),
            seed: *seed,
            digest: WorkloadDigest::clone(&self.digest),
            started_unix_ms: self.started_unix_ms,
            ..OriginFigures::default()
        })
    }
}

impl PartialEq for OriginSpec {
    /// The same world in memory and the same counters.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
            && self.accept_any_world == other.accept_any_world
            && self.counts == other.counts
    }
}

/// The origin of one worker.
#[derive(Debug)]
pub(crate) struct Origin {
    spec: OriginSpec,
    clock: Clock,
    /// Requested worlds, the most recent first.
    worlds: Vec<World>,
    /// Connection numbers, unique over all workers.
    next_connection: u64,
    connection_step: u64,
    /// Number of requests without a request id.
    nameless: u64,
    tally: Tally,
    /// The canonical path that is compared with the requested one.
    path: Vec<u8>,
    /// The Date line of this second of the wall clock.
    date: [u8; 37],
    date_s: i64,
}

impl Origin {
    /// For worker number `worker` of `workers`.
    pub fn new(spec: &OriginSpec, worker: usize, workers: usize, clock: Clock) -> Self {
        Origin {
            spec: spec.clone(),
            clock,
            worlds: Vec::with_capacity(WORLDS),
            next_connection: worker as u64,
            connection_step: workers as u64,
            nameless: worker as u64,
            tally: spec.counts.worker(),
            path: Vec::new(),
            date: *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            date_s: 0,
        }
    }

    /// A connection's first request: the number of requests it may send, at least 1.
    pub fn connected(&mut self) -> u32 {
        let number = self.next_connection;
        self.next_connection = number.wrapping_add(self.connection_step);
        self.tally.with(|counts| counts.figures.connections += 1);
        self.spec.world.uses(number).max(1)
    }

    /// Counts a request and returns the end of its think time; `None` without think time.
    pub fn begin(&mut self, request: &ObjectRequest) -> Option<Timestamp> {
        let foreign = !self.spec.accept_any_world && request.world != self.spec.world.id;
        let id = request.request_id.unwrap_or_else(|| {
            self.nameless = self.nameless.wrapping_add(self.connection_step);
            RequestId { run: UNNAMED_RUN, sequence: self.nameless }
        });
        let think = self.world(request.world).think(id);
        let thinks = think > Duration::ZERO;
        self.tally.with(|counts| counts.begin(request, foreign, thinks));
        thinks.then(|| self.clock.now() + think)
    }

    /// Whether a time has passed, by the clock instead of the beginning of the turn.
    pub fn is_past(&self, time: Timestamp) -> bool {
        time <= self.clock.now()
    }

    /// The think time is over; records its timing error if the response waited for it.
    pub fn record_think_time(&self, awaited: Option<Timestamp>) {
        let late = awaited.map(|ready_at| self.clock.now().since(ready_at));
        self.tally.with(|counts| {
            counts.figures.thinking -= 1;
            if let Some(late) = late {
                counts.think_error.record(units::time::saturating_nanos(late));
            }
        });
    }

    /// The client disconnected before the response.
    pub fn abandoned(&self, thinking: bool) {
        self.tally.with(|counts| {
            counts.figures.thinking -= u64::from(thinking);
            counts.figures.abandoned += 1;
        });
    }

    /// A request for no object.
    pub fn refused(&self) {
        self.tally.with(|counts| counts.figures.refused += 1);
    }

    /// Announced bytes of a response body that were not sent.
    pub fn unsent(&self, world: u32, bytes: u64) {
        self.tally.with(|counts| counts.take_back(world, bytes));
    }

    /// Whether the workload has this object at this path: one object with two URLs would be two objects to a cache.
    pub fn has(&mut self, request: &ObjectRequest, path: &[u8]) -> bool {
        let mut expected_path = std::mem::take(&mut self.path);
        expected_path.clear();
        self.world(request.world).write_path(request.object, &mut expected_path);
        let exists = self.spec.world.has(request.object) && expected_path == path;
        self.path = expected_path;
        exists
    }

    /// The counters of all workers as a document.
    pub fn document(&self) -> String {
        // Numbers and strings only, so it can be written.
        let mut text = serde_json::to_string_pretty(&self.spec.figures()).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The world of this number.
    fn world(&mut self, id: u32) -> &World {
        match self.worlds.iter().position(|world| world.id == id) {
            Some(0) => {}
            Some(at) => self.worlds.swap(0, at),
            None => {
                self.worlds.truncate(WORLDS - 1);
                self.worlds.insert(0, self.spec.world.with_id(id));
            }
        }
        &self.worlds[0]
    }

    /// The wall clock, and the Date line of its second.
    fn now(&mut self) -> u64 {
        let now_ms = sys::clock::realtime_ns() / 1_000_000;
        let now_s = (now_ms / 1000) as i64;
        if now_s != self.date_s {
            self.date_s = now_s;
            self.date[6..35].copy_from_slice(&http_date_s(now_s));
        }
        now_ms
    }
}

/// Worlds in memory. A sweep requests one after the other.
const WORLDS: usize = 4;
/// No run has this number: used for the random numbers of requests without a request id.
const UNNAMED_RUN: u32 = u32::MAX;
