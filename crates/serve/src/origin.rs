//! The origin of a mix: every object of its worlds, made when it is asked for.
//!
//! ```text
//!   request ──Asked::of──▶ Asked ──think time──▶ Origin::answer ──▶ head, and a polymix::Body of slices
//!                                   │                                 (nothing is stored: all facts of an object follow
//!                 connection/visiting.rs: waits for it                 from mix, seed, and its URL)
//! ```
//!
//! An origin takes the place of the files and of every dynamic route: a server is one or the other. It believes nothing that
//! a proxy tells it but the URL, the conditions and the codings: the Host field and the host of an absolute target may
//! be anything.
//!
//! Each worker has an [`Origin`] of its own. Read `origin/responding.rs` for what an answer says.

mod counting;
mod requested;
mod responding;

use std::sync::Arc;
use std::time::Duration;

use polymix::{AskId, OriginFigures, WorkloadDigest, World};
use sys::clock::Clock;
use units::Timestamp;

use crate::date::http_date_s;
pub use counting::OriginCounts;
use counting::Tally;
pub(crate) use requested::{NoObject, ObjectRequest};
pub(crate) use responding::Truncation;

/// An origin to serve.
#[derive(Clone, Debug)]
pub struct OriginSpec {
    /// Mix and seed of its objects. The number of the world is taken from each URL.
    pub world: Arc<World>,
    /// Whether the worlds of all URLs are its own. Otherwise requests for another than `world` are answered all the same,
    /// and counted as foreign: a cache, or a robot of an earlier run, asks for what nobody asked it for.
    pub accept_any_world: bool,
    /// Where it counts; keep a clone to read them.
    pub counts: OriginCounts,
    /// When it was made, Unix time in milliseconds.
    pub(crate) started_unix_ms: u64,
    /// Marks of the mix and the seed.
    pub(crate) digest: Arc<WorkloadDigest>,
}

impl OriginSpec {
    /// The objects of all worlds of one mix and seed.
    pub fn new(world: Arc<World>) -> Self {
        OriginSpec {
            digest: Arc::new(world.spec.digest(world.seed)),
            world,
            accept_any_world: true,
            counts: OriginCounts::default(),
            started_unix_ms: sys::clock::realtime_ns() / 1_000_000,
        }
    }

    /// Whether it takes its time to answer.
    pub fn thinks(&self) -> bool {
        self.world.spec.think.as_ref().is_some_and(|think| think.mean() > 0.0)
    }

    /// What all workers counted so far.
    pub fn figures(&self) -> OriginFigures {
        let World { spec, seed, matter, .. } = &*self.world;
        self.counts.read(OriginFigures {
            body_content: format!("{:08x}", matter.digest()),
            workload: spec.name.clone(),
            seed: *seed,
            digest: WorkloadDigest::clone(&self.digest),
            started_unix_ms: self.started_unix_ms,
            ..OriginFigures::default()
        })
    }
}

impl PartialEq for OriginSpec {
    /// The same world in memory and the same counts.
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
    /// Worlds that were asked for, the last one first.
    worlds: Vec<World>,
    /// Numbers of its connections: those of all workers differ.
    next_connection: u64,
    connection_step: u64,
    /// Requests that came without an ask, which need a number all the same.
    nameless: u64,
    tally: Tally,
    /// A path that is compared with another.
    path: Vec<u8>,
    /// The Date line of this second of the wall clock.
    date: [u8; 37],
    date_s: i64,
}

impl Origin {
    /// That of worker number `worker` of `workers`.
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

    /// A connection's first request: how many it may bring, at least 1.
    pub fn connected(&mut self) -> u32 {
        let number = self.next_connection;
        self.next_connection = number.wrapping_add(self.connection_step);
        self.tally.with(|counts| counts.figures.connections += 1);
        self.spec.world.uses(number).max(1)
    }

    /// Counts a request in, and says until when its answer is thought about: `None` if not at all.
    pub fn begin(&mut self, asked: &ObjectRequest) -> Option<Timestamp> {
        let foreign = !self.spec.accept_any_world && asked.world != self.spec.world.id;
        let id = asked.ask.unwrap_or_else(|| {
            self.nameless = self.nameless.wrapping_add(self.connection_step);
            AskId { run: UNNAMED_RUN, sequence: self.nameless }
        });
        let think = self.world(asked.world).think(id);
        let thinks = think > Duration::ZERO;
        self.tally.with(|counts| counts.begin(asked, foreign, thinks));
        thinks.then(|| self.clock.now() + think)
    }

    /// Whether a moment has come, by the clock and not by the turn's beginning.
    pub fn is_past(&self, moment: Timestamp) -> bool {
        moment <= self.clock.now()
    }

    /// Thinking is over; where it was that which the answer waited for, notes how late that was noticed.
    pub fn thought(&self, awaited: Option<Timestamp>) {
        let late = awaited.map(|ready_at| self.clock.now().since(ready_at));
        self.tally.with(|counts| {
            counts.figures.thinking -= 1;
            if let Some(late) = late {
                counts.think_error.record(units::time::saturating_nanos(late));
            }
        });
    }

    /// Whoever asked has gone before there was an answer.
    pub fn abandoned(&self, thinking: bool) {
        self.tally.with(|counts| {
            counts.figures.thinking -= u64::from(thinking);
            counts.figures.abandoned += 1;
        });
    }

    /// A request was for no object.
    pub fn refused(&self) {
        self.tally.with(|counts| counts.figures.refused += 1);
    }

    /// So much of an answer's body was announced and not sent after all.
    pub fn unsent(&self, world: u32, bytes: u64) {
        self.tally.with(|counts| counts.take_back(world, bytes));
    }

    /// Whether the mix has such an object, and at this path: one object with two URLs would be two to a cache.
    pub fn has(&mut self, asked: &ObjectRequest, path: &[u8]) -> bool {
        let mut own = std::mem::take(&mut self.path);
        own.clear();
        self.world(asked.world).write_path(asked.object, &mut own);
        let is_there = self.spec.world.has(asked.object) && own == path;
        self.path = own;
        is_there
    }

    /// The figures of all workers as a document.
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

/// Worlds that are held ready. A sweep asks for one after the other.
const WORLDS: usize = 4;
/// No run has this number, so what is drawn for requests without an ask is drawn for nobody's.
const UNNAMED_RUN: u32 = u32::MAX;
