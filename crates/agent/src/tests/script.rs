//! The scripted ring and the scripted manager.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use stats::Rng;
use tap::event::{Caveats, Closed, Event, Opened, Origin, Role, Run, What};
use tap::standing::{Entry, Standing};
use units::Timestamp;

use crate::clock::{Moment, Time, Zero};
use crate::disk::crash_point::CrashPoint;
use crate::link::{Link, RequestError};
use crate::recorder::Source;
use tap_protocol::{Batch, Hello, Losses, ROWS_MAX, Refusal, Settings, Stored, Welcome, Why};

/// Everything that survives an agent.
#[derive(Clone)]
pub struct World {
    atoms: Arc<Vec<Entry>>,
    /// Events that exist by now, in atoms.
    pub limit: Arc<AtomicU64>,
    /// The rings' tails.
    tail: Arc<AtomicU64>,
    pub time: Arc<AtomicU64>,
    pub manager: Arc<Mutex<Manager>>,
    pub data: PathBuf,
    pub boot: String,
    pub spool_bytes: u64,
    /// How often the disk is full, in tenths.
    pub full_share: u64,
    /// Whether an agent that ends leaves waiting rows to the next.
    pub leaves_the_rest: bool,
    /// Removed with the last user.
    folder: Arc<tempfile::TempDir>,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(atoms: Vec<Entry>) -> World {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let limit = atoms.len() as u64;
        World {
            atoms: Arc::new(atoms),
            limit: Arc::new(AtomicU64::new(limit)),
            tail: Arc::default(),
            time: Arc::default(),
            manager: Arc::default(),
            data: folder.path().join("data"),
            boot: "first".into(),
            spool_bytes: 256 << 20,
            full_share: 0,
            leaves_the_rest: false,
            folder,
        }
    }

    /// The same events in another world in which nothing has happened.
    pub fn again(&self) -> World {
        World::new(self.atoms.to_vec())
    }

    /// The rings are lost; new rings have the events up to this atom.
    pub fn has_new_rings(&self, limit: u64) {
        self.tail.store(self.limit.swap(limit, Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Another agent has read these rings up to this atom.
    pub fn has_rings_of(&self, tail: u64) {
        self.tail.store(tail, Ordering::SeqCst);
    }

    /// Whether the disk is full for the next step.
    pub fn is_full(&self, random: &mut Rng) -> bool {
        let _ = &self.folder;
        self.full_share > 0 && random.below(10) < self.full_share
    }
}

/// The rings of a world, as one agent reads them. A round returns one atom.
pub struct Ring {
    pub world: World,
    pub crash_point: CrashPoint,
}

impl Ring {
    /// Whether everything was read, and some time has passed since.
    pub fn is_over(&self, standing: &Standing) -> bool {
        self.position(standing) >= self.world.limit.load(Ordering::SeqCst)
    }

    /// As in a ring reader: the journal's position counts if it is further than the tails.
    fn position(&self, standing: &Standing) -> u64 {
        let told =
            standing.images().find(|(image, ..)| *image == BEACON).map_or(0, |(_, _, at)| at.as_nanos() / ATOM_NS);
        told.max(self.world.tail.load(Ordering::SeqCst))
    }
}

impl Source for Ring {
    fn round(&mut self, standing: &Standing) -> Option<Entry> {
        let position = self.position(standing);
        if position >= self.world.limit.load(Ordering::SeqCst) {
            return None;
        }
        self.world.time.fetch_max((position + 1) * ATOM_NS + 1, Ordering::SeqCst);
        Some(self.world.atoms[usize::try_from(position).unwrap()].clone())
    }

    fn commit(&mut self, entry: &Entry) {
        if self.crash_point.step().is_ok() {
            let at = entry.settle_until.unwrap().as_nanos() / ATOM_NS;
            assert!(self.world.tail.fetch_max(at, Ordering::SeqCst) < at, "nothing is read twice by one that lives");
        }
    }
}

/// Time advances with each read atom, and a little with each call.
#[derive(Clone)]
pub struct TestTime(pub Arc<AtomicU64>);

impl Time for TestTime {
    fn now(&self) -> Moment {
        Moment {
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
    /// As JSON.
    pub rows: Vec<String>,
    pub losses: Losses,
    /// Processes seen, unseen, and connections, by program name.
    pub programs: BTreeMap<String, (u64, u64, u64)>,
    pub boots: BTreeSet<String>,
    /// Settings versions that batches were selected under.
    pub gone_by: HashSet<u64>,
    /// From this number of batches on.
    pub new_settings: Vec<(u64, Settings)>,
    /// Batch numbers that are rejected unless they are empty.
    pub poison: Vec<u64>,
    /// Batch numbers that are also rejected if they have programs.
    pub takes_bare_ones_only: Vec<u64>,
    pub away: bool,
    pub lost_answers: u64,
    batches: u64,
    failing: Option<Rng>,
    /// The first body sent under each number.
    sent: HashMap<(String, u64), Batch>,
}

impl Manager {
    /// Makes one request in four fail from now on.
    pub fn fails(&mut self, seed: u64) {
        self.failing = Some(Rng::new(seed, 2));
    }

    /// The rows in a fixed order.
    pub fn sorted(&self) -> Vec<&String> {
        let mut rows: Vec<&String> = self.rows.iter().collect();
        rows.sort();
        rows
    }

    pub fn is_without_doubles(&self) -> bool {
        self.rows.iter().collect::<HashSet<_>>().len() == self.rows.len()
    }

    /// Restores an older state, without the last half of its rows; returns their number.
    pub fn goes_back(&mut self) -> usize {
        let lost = self.rows.len() / 2;
        self.rows.truncate(self.rows.len() - lost);
        self.streams.values_mut().for_each(|through| *through /= 2);
        lost
    }

    /// Forgets the contents of its streams.
    pub fn forgets_rows(&mut self) {
        self.rows.clear();
    }

    fn settings(&self) -> Settings {
        let pending_settings = self.new_settings.iter().rev().find(|(from, _)| self.batches >= *from);
        pending_settings.map_or_else(Settings::default, |(_, settings)| settings.clone())
    }

    fn is_failing(&mut self, of: u64) -> bool {
        self.failing.as_mut().is_some_and(|random| random.below(of) == 0)
    }

    fn take(&mut self, batch: Batch) -> Result<Stored, RequestError> {
        let through = self.streams.get(&batch.stream).copied().unwrap_or(0);
        let refused = |error, stored_through| {
            let message = String::new();
            Err(RequestError::Refused(Refusal { error, message, stored_through }, None))
        };
        if batch.sequence <= through {
            let is_same =
                self.sent.get(&(batch.stream.clone(), batch.sequence)).is_some_and(|first| first.rows == batch.rows);
            return refused(if is_same { Why::AlreadyStored } else { Why::Conflict }, Some(through));
        }
        if batch.sequence > through + 1 {
            return refused(Why::SequenceGap, Some(through));
        }
        check(&batch);
        if self.poison.contains(&batch.sequence) && !batch.rows.is_empty()
            || self.takes_bare_ones_only.contains(&batch.sequence)
                && (!batch.programs.is_empty() || batch.gauges.processes > 0)
        {
            return refused(Why::InvalidValue, None);
        }
        self.streams.insert(batch.stream.clone(), batch.sequence);
        self.batches += 1;
        self.boots.insert(batch.boot.clone());
        self.gone_by.insert(batch.settings);
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
    assert!(batch.rows.iter().all(|row| row.ended_at_ns() <= batch.sealed_at_ns), "a row ends before it is sealed");
}

/// An agent's connection to the manager.
pub struct ScriptLink {
    pub manager: Arc<Mutex<Manager>>,
    pub crash_point: CrashPoint,
}

impl ScriptLink {
    fn ask<T>(&mut self, answer: impl FnOnce(&mut Manager) -> Result<T, RequestError>) -> Result<T, RequestError> {
        let away = || Err(RequestError::Away("gone".into(), None));
        let mut manager = self.manager.lock().unwrap();
        if self.crash_point.step().is_err() || manager.away || manager.is_failing(8) {
            return away();
        }
        let answer = answer(&mut manager);
        // Killed, or disconnected, between the manager's processing and the response.
        if self.crash_point.step().is_err() || manager.is_failing(8) {
            manager.lost_answers += 1;
            return away();
        }
        answer
    }
}

impl Link for ScriptLink {
    fn hello(&mut self, hello: &Hello) -> Result<Welcome, RequestError> {
        self.ask(|manager| {
            Ok(Welcome {
                stored_through: manager.streams.get(&hello.stream).copied().unwrap_or(0),
                settings: manager.settings(),
                received_unix_ns: 1,
                answered_unix_ns: 1,
            })
        })
    }

    fn batch(&mut self, body: &[u8], _: Option<Zero>) -> Result<Stored, RequestError> {
        let mut json = Vec::new();
        GzDecoder::new(body).read_to_end(&mut json).unwrap();
        let batch: Batch = serde_json::from_slice(&json).unwrap();
        self.ask(|manager| {
            // A sealed batch never changes: its rows are all unchanged, or were dropped and counted.
            let first = manager.sent.entry((batch.stream.clone(), batch.sequence)).or_insert_with(|| batch.clone());
            let lost = first.rows.len().saturating_sub(batch.rows.len()) as u64;
            assert_eq!(batch.losses.rows_dropped, first.losses.rows_dropped + lost);
            assert!(batch.rows.is_empty() || batch.rows == first.rows);
            manager.take(batch)
        })
    }
}

/// Random events of some programs, in this number of atoms.
pub fn atoms(seed: u64, count: u64) -> Vec<Entry> {
    let mut script = Script {
        random: Rng::new(seed, 3),
        next_image: BEACON + 1,
        next_connection: 1,
        images: Vec::new(),
        open: Vec::new(),
        at_ns: 0,
        events: Vec::new(),
    };
    (0..count).map(|number| script.atom(number)).collect()
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
    fn atom(&mut self, number: u64) -> Entry {
        self.at_ns = number * ATOM_NS + 1;
        let mut gone = Vec::new();
        // Sometimes more than a batch can hold.
        let steps = if self.random.below(40) == 0 { 400 } else { self.random.below(30) };
        for _ in 0..steps {
            match self.random.below(100) {
                0..3 => self.load(),
                3..30 => self.connect(),
                30..80 => self.exchange(),
                80..97 => self.close(),
                97 if number.is_multiple_of(7) => gone.extend(self.leave()),
                _ => self.tell(0, What::Lost { records: 3 }),
            }
        }
        self.at_ns = (number + 1) * ATOM_NS;
        let at = Timestamp::from_nanos(self.at_ns);
        self.tell(BEACON, What::Polled { at, blocked: Duration::ZERO, calls: 1 });
        Entry { events: std::mem::take(&mut self.events), settle_until: Some(at), gone, ..Entry::default() }
    }

    fn load(&mut self) {
        let image = self.next_image;
        self.next_image += 1;
        self.images.push(image);
        let program = ["one", "two", "three"][image as usize % 3].to_owned();
        let at = self.now();
        self.tell(image, What::Loaded { at, parent_pid: 1, program });
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
        self.tell(image, What::Opened(opened));
    }

    fn exchange(&mut self) {
        let Some((image, connection)) = self.any_open() else { return };
        let sent = self.run(connection);
        self.tell(image, What::Sent(sent));
        // Some requests have no response for a long time.
        if self.random.below(5) > 0 {
            let received = self.run(connection);
            self.tell(image, What::Received(received));
        }
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.open.len() as u64)).unwrap();
        let (image, connection) = self.open.swap_remove(at);
        let begin = self.now();
        self.tell(
            image,
            What::Closed(Closed { connection, begin, tcp_counts: None, caveats: Caveats::default(), forks: [0; 2] }),
        );
    }

    fn leave(&mut self) -> Option<u32> {
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

    /// Each event has another time.
    fn now(&mut self) -> Timestamp {
        self.at_ns += 1_000;
        Timestamp::from_nanos(self.at_ns)
    }

    fn tell(&mut self, image: u32, what: What) {
        self.events.push(Event { origin: Origin { image, pid: image + 100, tid: image + 100, space: 1 }, what });
    }
}

/// An image that reports something in each atom: it shows a restarted reader its position in the journal.
const BEACON: u32 = 1;
/// Time between two atoms.
const ATOM_NS: u64 = 300_000_000;
