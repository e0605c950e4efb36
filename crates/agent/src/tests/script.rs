//! The scripted ring and the scripted manager.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use stats::Rng;
use tap::daemon_state::{DaemonState, Entry};
use tap::event::{Caveats, Closed, Event, EventKind, Opened, Origin, Role, Run};
use units::Timestamp;

use super::log::LogState;
use crate::clock::{ClockReading, ClockZero, Time};
use crate::disk::crash_point::CrashPoint;
use crate::link::{Accepted, Greeting, Link, RequestError};
use crate::recorder::Source;
use crate::spool::PendingBatch;
use tap_protocol::{Batch, Hello, Losses, ROWS_MAX, Refusal, RefusalReason, Settings, Stored, Welcome};

/// The state that survives an agent: rings, clock, manager and data folder.
#[derive(Clone)]
pub struct World {
    entries: Arc<Vec<Entry>>,
    /// Events that exist by now, in entries.
    pub limit: Arc<AtomicU64>,
    /// The rings' tails.
    tail: Arc<AtomicU64>,
    pub time: Arc<AtomicU64>,
    pub manager: Arc<Mutex<Manager>>,
    /// Instead of the manager, if it is there.
    pub log: Option<Arc<Mutex<LogState>>>,
    pub data: PathBuf,
    pub boot: String,
    pub spool_bytes: u64,
    /// Share of steps at which the disk is full, in tenths.
    pub full_share: u64,
    /// Whether an agent that ends leaves its waiting rows to the next agent.
    pub leaves_waiting_rows: bool,
    /// Removed with the last user.
    folder: Arc<tempfile::TempDir>,
}

impl World {
    /// The initial state, in which no event was read.
    pub fn new(entries: Vec<Entry>) -> World {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let limit = entries.len() as u64;
        World {
            entries: Arc::new(entries),
            limit: Arc::new(AtomicU64::new(limit)),
            tail: Arc::default(),
            time: Arc::default(),
            manager: Arc::default(),
            log: None,
            data: folder.path().join("data"),
            boot: "first".into(),
            spool_bytes: 256 << 20,
            full_share: 0,
            leaves_waiting_rows: false,
            folder,
        }
    }

    /// A new initial state with the same events.
    pub fn fresh_copy(&self) -> World {
        World::new(self.entries.to_vec())
    }

    /// The rings are lost; new rings have the events up to this entry.
    pub fn replace_rings(&self, limit: u64) {
        self.tail.store(self.limit.swap(limit, Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Another agent has read these rings up to this entry.
    pub fn set_tail(&self, tail: u64) {
        self.tail.store(tail, Ordering::SeqCst);
    }

    /// Whether the disk is full for the next step.
    pub fn is_full(&self, random: &mut Rng) -> bool {
        let _ = &self.folder;
        self.full_share > 0 && random.below(10) < self.full_share
    }
}

/// The rings of a world, as one agent reads them. A round returns one entry.
pub struct Ring {
    pub world: World,
    pub crash_point: CrashPoint,
}

impl Ring {
    /// Whether everything was read, and some time has passed since.
    pub fn is_over(&self, tap_state: &DaemonState) -> bool {
        self.position(tap_state) >= self.world.limit.load(Ordering::SeqCst)
    }

    /// The journal's position, or the rings' tails if they are further, as in a ring reader.
    fn position(&self, tap_state: &DaemonState) -> u64 {
        let journaled =
            tap_state.images().find(|(image, ..)| *image == BEACON).map_or(0, |(_, _, at)| at.as_nanos() / ENTRY_NS);
        journaled.max(self.world.tail.load(Ordering::SeqCst))
    }
}

impl Source for Ring {
    fn round(&mut self, tap_state: &DaemonState) -> Option<Entry> {
        let position = self.position(tap_state);
        if position >= self.world.limit.load(Ordering::SeqCst) {
            return None;
        }
        self.world.time.fetch_max((position + 1) * ENTRY_NS + 1, Ordering::SeqCst);
        Some(self.world.entries[usize::try_from(position).unwrap()].clone())
    }

    fn commit(&mut self, entry: &Entry) {
        if self.crash_point.step().is_ok() {
            let at = entry.settle_until.unwrap().as_nanos() / ENTRY_NS;
            assert!(self.world.tail.fetch_max(at, Ordering::SeqCst) < at, "a running agent reads no entry twice");
        }
    }
}

/// Time advances with each read entry, and a little with each call.
#[derive(Clone)]
pub struct TestTime(pub Arc<AtomicU64>);

impl Time for TestTime {
    fn now(&self) -> ClockReading {
        ClockReading {
            at_ns: self.0.fetch_add(1_000, Ordering::SeqCst),
            zero_own_unix_ns: 1_700_000_000_000_000_000,
            suspended_ns: 0,
        }
    }
}

/// A manager that follows the protocol, with injected failures.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    pub streams: HashMap<String, u64>,
    /// Rows as JSON.
    pub rows: Vec<String>,
    pub losses: Losses,
    /// Processes seen, unseen, and connections, by program name.
    pub programs: BTreeMap<String, (u64, u64, u64)>,
    pub boots: BTreeSet<String>,
    /// Settings versions that batches were selected under.
    pub settings_used: HashSet<u64>,
    /// New settings, each from this number of batches on.
    pub new_settings: Vec<(u64, Settings)>,
    /// Batch numbers that are rejected unless they are empty.
    pub rejected: Vec<u64>,
    /// Batch numbers that are also rejected if they have programs.
    pub rejected_with_programs: Vec<u64>,
    pub is_unreachable: bool,
    pub lost_responses: u64,
    batches: u64,
    failing: Option<Rng>,
    /// The first body sent under each number.
    sent: HashMap<(String, u64), Batch>,
}

impl Manager {
    /// Makes one request in four fail from now on.
    pub fn fail_randomly(&mut self, seed: u64) {
        self.failing = Some(Rng::new(seed, 2));
    }

    /// The rows in a fixed order.
    pub fn sorted(&self) -> Vec<&String> {
        let mut rows: Vec<&String> = self.rows.iter().collect();
        rows.sort();
        rows
    }

    pub fn has_no_duplicates(&self) -> bool {
        self.rows.iter().collect::<HashSet<_>>().len() == self.rows.len()
    }

    /// Restores an older state, without the last half of its rows; returns their number.
    pub fn restore_older_state(&mut self) -> usize {
        let lost = self.rows.len() / 2;
        self.rows.truncate(self.rows.len() - lost);
        self.streams.values_mut().for_each(|through| *through /= 2);
        lost
    }

    /// Forgets the rows, but not the positions of the streams.
    pub fn forget_rows(&mut self) {
        self.rows.clear();
    }

    fn settings(&self) -> Settings {
        let pending_settings = self.new_settings.iter().rev().find(|(from, _)| self.batches >= *from);
        pending_settings.map_or_else(Settings::default, |(_, settings)| settings.clone())
    }

    fn is_failing(&mut self, of: u64) -> bool {
        self.failing.as_mut().is_some_and(|random| random.below(of) == 0)
    }

    pub fn accept(&mut self, batch: Batch) -> Result<Stored, RequestError> {
        let through = self.streams.get(&batch.stream).copied().unwrap_or(0);
        let refused = |error, stored_through| {
            let message = String::new();
            Err(RequestError::Refused(Refusal { error, message, stored_through }, None))
        };
        if batch.sequence <= through {
            let is_same =
                self.sent.get(&(batch.stream.clone(), batch.sequence)).is_some_and(|first| first.rows == batch.rows);
            return refused(
                if is_same { RefusalReason::AlreadyStored } else { RefusalReason::Conflict },
                Some(through),
            );
        }
        if batch.sequence > through + 1 {
            return refused(RefusalReason::SequenceGap, Some(through));
        }
        check(&batch);
        if self.rejected.contains(&batch.sequence) && !batch.rows.is_empty()
            || self.rejected_with_programs.contains(&batch.sequence)
                && (!batch.programs.is_empty() || batch.gauges.processes > 0)
        {
            return refused(RefusalReason::InvalidValue, None);
        }
        self.streams.insert(batch.stream.clone(), batch.sequence);
        self.batches += 1;
        self.boots.insert(batch.boot.clone());
        self.settings_used.insert(batch.settings);
        self.rows.extend(batch.rows.iter().map(|row| serde_json::to_string(row).unwrap()));
        self.losses.records += batch.losses.records;
        self.losses.rows_dropped += batch.losses.rows_dropped;
        self.losses.rows_filtered += batch.losses.rows_filtered;
        self.losses.rows_not_drawn += batch.losses.rows_not_drawn;
        for program in &batch.programs {
            let sum = self.programs.entry(program.name.clone()).or_default();
            *sum = (sum.0 + program.seen, sum.1 + program.unseen, sum.2 + program.connections);
        }
        let settings = self.settings();
        Ok(Stored {
            stored_through: batch.sequence,
            settings: (settings.version != batch.settings).then_some(settings),
            received_unix_ns: 1,
            answered_unix_ns: 1,
        })
    }
}

/// Checks the invariants of each batch.
fn check(batch: &Batch) {
    assert!(batch.rows.len() <= ROWS_MAX && batch.stream.len() == 32 && !batch.boot.is_empty());
    assert!(
        batch.rows.iter().all(|row| row.ended_at_ns() <= batch.sealed_at_ns),
        "each row ends before its batch is sealed"
    );
}

/// An agent's connection to the manager.
pub struct ScriptLink {
    pub manager: Arc<Mutex<Manager>>,
    pub crash_point: CrashPoint,
}

impl ScriptLink {
    fn request<T>(
        &mut self,
        response: impl FnOnce(&mut Manager) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let unreachable = || Err(RequestError::Unreachable("gone".into(), None));
        let mut manager = self.manager.lock().unwrap();
        if self.crash_point.step().is_err() || manager.is_unreachable || manager.is_failing(8) {
            return unreachable();
        }
        let response = response(&mut manager);
        // Killed, or disconnected, between the manager's processing and the response.
        if self.crash_point.step().is_err() || manager.is_failing(8) {
            manager.lost_responses += 1;
            return unreachable();
        }
        response
    }
}

impl Link for ScriptLink {
    fn hello(&mut self, hello: &Hello) -> Result<Greeting, RequestError> {
        self.request(|manager| {
            Ok(Welcome {
                stored_through: manager.streams.get(&hello.stream).copied().unwrap_or(0),
                settings: manager.settings(),
                received_unix_ns: 1,
                answered_unix_ns: 1,
            }
            .into())
        })
    }

    fn batch(&mut self, batch: &PendingBatch, _: Option<ClockZero>) -> Result<Accepted, RequestError> {
        let mut json = Vec::new();
        GzDecoder::new(&*batch.body).read_to_end(&mut json).unwrap();
        let batch: Batch = serde_json::from_slice(&json).unwrap();
        self.request(|manager| {
            // A sealed batch never changes: its rows are all unchanged, or were dropped and counted.
            let first = manager.sent.entry((batch.stream.clone(), batch.sequence)).or_insert_with(|| batch.clone());
            let lost = first.rows.len().saturating_sub(batch.rows.len()) as u64;
            assert_eq!(batch.losses.rows_dropped, first.losses.rows_dropped + lost);
            assert!(batch.rows.is_empty() || batch.rows == first.rows);
            manager.accept(batch).map(Accepted::from)
        })
    }
}

/// Random events of some programs, in this number of entries.
pub fn entries(seed: u64, count: u64) -> Vec<Entry> {
    let mut script = Script {
        random: Rng::new(seed, 3),
        next_image: BEACON + 1,
        next_connection: 1,
        images: Vec::new(),
        open: Vec::new(),
        at_ns: 0,
        events: Vec::new(),
    };
    (0..count).map(|number| script.entry(number)).collect()
}

struct Script {
    random: Rng,
    next_image: u32,
    next_connection: u64,
    images: Vec<u32>,
    open: Vec<(u32, u64)>,
    at_ns: u64,
    events: Vec<Event>,
}

impl Script {
    fn entry(&mut self, number: u64) -> Entry {
        self.at_ns = number * ENTRY_NS + 1;
        let mut ended_images = Vec::new();
        // Sometimes more than a batch can hold.
        let steps = if self.random.below(40) == 0 { 400 } else { self.random.below(30) };
        for _ in 0..steps {
            match self.random.below(100) {
                0..3 => self.load(),
                3..30 => self.connect(),
                30..80 => self.exchange(),
                80..97 => self.close(),
                97 if number.is_multiple_of(7) => ended_images.extend(self.end_image()),
                _ => self.push(0, EventKind::Lost { records: 3 }),
            }
        }
        self.at_ns = (number + 1) * ENTRY_NS;
        let at = Timestamp::from_nanos(self.at_ns);
        self.push(BEACON, EventKind::Polled { at, blocked: Duration::ZERO, calls: 1 });
        Entry { events: std::mem::take(&mut self.events), settle_until: Some(at), ended_images, ..Entry::default() }
    }

    fn load(&mut self) {
        let image = self.next_image;
        self.next_image += 1;
        self.images.push(image);
        let program = ["one", "two", "three"][image as usize % 3].to_owned();
        let at = self.now();
        self.push(image, EventKind::Loaded { at, parent_pid: 1, program });
    }

    fn connect(&mut self) {
        let Some(image) = self.any_image() else { return };
        let connection = self.next_connection;
        self.next_connection += 1;
        self.open.push((image, connection));
        let at = self.now();
        let local = "192.0.2.1:50000".parse().unwrap();
        let peer = if connection.is_multiple_of(2) { "192.0.2.7:443" } else { "[2001:db8::7]:80" }.parse().unwrap();
        let opened =
            Opened { connection, at, role: Role::Connected, local, peer, nonblocking: false, inherited: false };
        self.push(image, EventKind::Opened(opened));
    }

    fn exchange(&mut self) {
        let Some((image, connection)) = self.any_open() else { return };
        let sent = self.run(connection);
        self.push(image, EventKind::Sent(sent));
        // Some requests have no response for a long time.
        if self.random.below(5) > 0 {
            let received = self.run(connection);
            self.push(image, EventKind::Received(received));
        }
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.open.len() as u64)).unwrap();
        let (image, connection) = self.open.swap_remove(at);
        let begin = self.now();
        self.push(
            image,
            EventKind::Closed(Closed {
                connection,
                begin,
                tcp_counts: None,
                caveats: Caveats::default(),
                forks: [0; 2],
            }),
        );
    }

    fn end_image(&mut self) -> Option<u32> {
        let image = self.any_image()?;
        self.images.retain(|other| *other != image);
        self.open.retain(|(other, _)| *other != image);
        Some(image)
    }

    fn run(&mut self, connection: u64) -> Run {
        let (begin, end) = (self.now(), self.now());
        Run {
            connection,
            begin,
            first: begin,
            end,
            bytes: 1 + self.random.below(5_000),
            calls: 1,
            blocked: Duration::from_nanos(5),
            waited: Duration::ZERO,
            ended: false,
            error: 0,
        }
    }

    fn any_image(&mut self) -> Option<u32> {
        if self.images.is_empty() {
            self.load();
        }
        let at = self.random.below(self.images.len() as u64);
        self.images.get(usize::try_from(at).unwrap()).copied()
    }

    fn any_open(&mut self) -> Option<(u32, u64)> {
        let at = self.random.below(self.open.len() as u64);
        self.open.get(usize::try_from(at).unwrap()).copied()
    }

    /// The next time: each event has a different one.
    fn now(&mut self) -> Timestamp {
        self.at_ns += 1_000;
        Timestamp::from_nanos(self.at_ns)
    }

    fn push(&mut self, image: u32, what: EventKind) {
        self.events.push(Event { origin: Origin { image, pid: image + 100, tid: image + 100, space: 1 }, what });
    }
}

/// An image with an event in each entry: its latest event gives a restarted reader the position in the journal.
const BEACON: u32 = 1;
/// Time between two entries.
const ENTRY_NS: u64 = 300_000_000;
