//! The third witness beside a run: what the programs' own sockets saw.
//!
//! ```text
//!   Prepared::new   ──> environment of the program      (before it starts)
//!   Prepared::start ──> a thread that drains the rings every few ms; one that keeps the book's taps.parquet
//!   Tapping::end    ──> Tapped: the document's part, and what checks need
//! ```
//!
//! The thread sleeps between rounds and is asked for nothing by the programs: they never wait for it. What it cannot
//! take in time is dropped by their rings, and counted.

mod book;
mod kernel;
mod levels;
mod own;
mod sums;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use schema::tap_part::TapPart;
use schema::{TapExchange, TapSide};
use store::RunFolder;
use sys::clock::Clock;
use sys::sched::{Cores, Urgency};
use tap::coverage::{self, Partial};
use tap::folder::Folder;
use tap::own::Own;
use tap::rings::{Capacity, Policy, Rings};
use tap::{Collector, Live, Only};
use units::Timestamp;

use self::book::TapBook;
use self::kernel::Counters;
pub use self::levels::Sampling;
use self::levels::TapSampler;
use self::own::OwnImages;
pub use self::sums::Responses;
use self::sums::Sums;
use crate::error::LabError;
use validity::evidence::{ClientTotals, KernelOpens, Outside, TapLevels};

/// What is followed, and how it is judged.
#[derive(Clone, Debug)]
pub struct TapPlan {
    /// Connections that one of these means; all where there is none.
    pub only: Vec<Only>,
    /// Length of a window of availability.
    pub window: Duration,
}

impl Default for TapPlan {
    fn default() -> Self {
        TapPlan { only: Vec::new(), window: Duration::from_nanos(tap::Indicators::WINDOW_NS) }
    }
}

/// The library and its rings, ready for a program that is to be started.
#[derive(Debug)]
pub struct Prepared {
    folder: Folder,
    rings: Rings,
    clock: Clock,
    /// Of this process's namespace, before any program was started.
    kernel: Option<Counters>,
}

impl Prepared {
    /// Lays the library out where the program finds it, and makes the rings. Moments count from `clock`'s zero.
    ///
    /// # Errors
    /// No place to put it; a machine that the library is not for.
    pub fn new(clock: Clock) -> Result<Prepared, LabError> {
        let (folder, rings) = Rings::create_somewhere(clock, CAPACITY).map_err(LabError::environment)?;
        Ok(Prepared { folder, rings, clock, kernel: Counters::begin(None, false) })
    }

    /// The same for this program's own load, which was started with the library ([`own_start`]).
    ///
    /// # Errors
    /// The rings cannot be mapped.
    pub fn own(own: Own, clock: Clock) -> Result<Prepared, LabError> {
        let (folder, rings) = own.into_rings(clock).map_err(LabError::environment)?;
        // The load says itself what it made.
        Ok(Prepared { folder, rings, clock, kernel: None })
    }

    /// What the program's environment must have; `preload` is the LD_PRELOAD that it would have had.
    pub fn environment(&self, preload: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let variables = self.folder.environment(preload);
        variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    /// Starts the thread, when the program has started. Rows go to `folder`'s taps.parquet, if the run is kept.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(self, plan: TapPlan, started: Started, folder: Option<&RunFolder>) -> Result<Tapping, LabError> {
        self.start_with(plan, started, folder, None)
    }

    /// The same; connections in process are sampled, too.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start_with(
        self,
        plan: TapPlan,
        started: Started,
        folder: Option<&RunFolder>,
        sampling: Option<Sampling>,
    ) -> Result<Tapping, LabError> {
        let mut rings = self.rings;
        if !started.own_load {
            // Programs that change their user have rings, too. Where the socket finds no place they are listed as unseen.
            let _ = rings.let_others_ask(&self.folder, Policy::Descendants);
        }
        let kernel = if started.own_numbers { self.kernel } else { Counters::begin(Some(started.root), true) };
        // Of others nothing is followed, so that there is nothing to be held against the kernel's count.
        let kernel = kernel.filter(|_| plan.only.is_empty());
        let (orders, inbox) = channel();
        let (live, figures) = channel();
        let window_ns = units::time::saturating_nanos(plan.window);
        let mut collector = Collector::new(plan.only, window_ns);
        collector.roll().starting(started.pid, &started.command.to_string_lossy(), true);
        let keeper = Keeper {
            folder: self.folder,
            rings,
            clock: self.clock,
            collector,
            book: TapBook::start(folder.map(RunFolder::taps))?,
            rows: Vec::new(),
            sums: Sums::new(sampling.map(TapSampler::new)),
            own: started.own_load.then(|| OwnImages::new(started.pid)),
            cores: started.cores,
            root: started.root,
            own_numbers: started.own_numbers,
            strangers: HashSet::new(),
            named: HashSet::new(),
            kernel,
        };
        let thread = std::thread::Builder::new()
            .name("tap".into())
            .spawn(move || keeper.run(&inbox, &live))
            .map_err(LabError::system("start the tap"))?;
        Ok(Tapping { orders, figures, thread })
    }
}

/// What was started under the tap.
#[derive(Clone, Debug)]
pub struct Started {
    /// First process of the tree, as this process counts.
    pub root: i32,
    /// The program's number, as it sees itself; 0 where it is the command of a place.
    pub pid: u32,
    /// Whether the programs count processes as this one does.
    pub own_numbers: bool,
    /// The program as given: a path, or a name that was looked up.
    pub command: OsString,
    /// It is this process, of which the load is followed and nothing else.
    pub own_load: bool,
    /// Where the tap's thread runs; `None`: anywhere.
    pub cores: Option<Cores>,
}

impl Started {
    /// This process itself, with its lanes.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn own_load(cores: Option<Cores>) -> Result<Started, LabError> {
        let program = std::env::current_exe().map_err(LabError::system("find this program's file"))?;
        let pid = std::process::id();
        Ok(Started { root: pid.cast_signed(), pid, own_numbers: true, command: program.into(), own_load: true, cores })
    }
}

/// Starts this program again with the library in it; returns in the image that has it. Call it while nothing was done that
/// would then be done twice.
///
/// # Errors
/// See [`tap::own::enter`].
pub fn own_start() -> Result<Own, LabError> {
    tap::own::enter(CAPACITY).map_err(LabError::environment)
}

/// A tap at work.
#[derive(Debug)]
pub struct Tapping {
    orders: Sender<Order>,
    figures: Receiver<Glance>,
    thread: JoinHandle<Tapped>,
}

enum Order {
    Glance,
    End,
}

/// Figures of a moment.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// Levels.
    pub live: Live,
    /// Exchanges that ended so far, both ends.
    pub exchanges: u64,
    /// Attempts that failed so far.
    pub failed: u64,
    /// Median of response times so far, of the client's side if there is one; absent where there was none.
    pub response_p50_ns: Option<u64>,
}

/// What came of it.
#[derive(Debug)]
pub struct Tapped {
    /// The document's part.
    pub part: TapPart,
    /// Why rows are missing from taps.parquet, if they are.
    pub error: Option<String>,
    /// A program made the rings' file shorter: from then on nothing was heard.
    pub cut: bool,
    /// What the kernel counted in the programs' network namespace, where that means something.
    pub kernel: Option<KernelOpens>,
    /// What left the machine, for who saw the same from outside.
    pub outside: Outside,
    /// All that the programs did as clients.
    pub client: ClientTotals,
    /// Both sides of Little's law, where that was asked for.
    pub levels: Option<TapLevels>,
    /// Response times of the whole run.
    pub responses: Responses,
}

impl Tapping {
    /// Figures of this moment; waits for them at most a quarter of a second.
    pub fn glance(&self) -> Option<Glance> {
        self.orders.send(Order::Glance).ok()?;
        self.figures.recv_timeout(Duration::from_millis(250)).ok()
    }

    /// Ends: what the rings still hold is worked off. Call it when the programs have ended.
    pub fn end(self) -> Tapped {
        // It may only be gone by a panic, which the join hands on.
        let _ = self.orders.send(Order::End);
        self.thread.join().expect("the tap does not panic")
    }
}

/// The thread's own.
struct Keeper {
    rings: Rings,
    clock: Clock,
    collector: Collector,
    book: TapBook,
    /// Rows of this round.
    rows: Vec<TapExchange>,
    sums: Sums,
    own: Option<OwnImages>,
    cores: Option<Cores>,
    root: i32,
    own_numbers: bool,
    /// Processes that were there at the last look and had not said that they are seen.
    strangers: HashSet<(i32, u64)>,
    /// Those that were put on the roll for it.
    named: HashSet<(i32, u64)>,
    kernel: Option<Counters>,
    /// Last, so that the rings are let go before their file is.
    folder: Folder,
}

impl Keeper {
    fn run(mut self, inbox: &Receiver<Order>, live: &Sender<Glance>) -> Tapped {
        // Not low: what it cannot take in time is lost.
        Urgency::Ordinary.apply_to_this_thread();
        if let Some(cores) = &self.cores {
            // Elsewhere it takes time from the server, which is worse for the figures and no error.
            let _ = cores.pin_this_thread();
        }
        let mut looked = self.clock.now();
        let mut pause = ROUND;
        loop {
            let order = inbox.recv_timeout(pause);
            pause = if self.round() < MANY { ROUND } else { Duration::ZERO };
            let now = self.clock.now();
            if now.since(looked) >= LOOK || matches!(order, Ok(Order::Glance)) {
                if now.since(looked) >= LOOK {
                    looked = now;
                    self.look();
                }
                if matches!(order, Ok(Order::Glance)) {
                    // Nobody may be waiting for it any more.
                    let _ = live.send(self.glance());
                }
            }
            if matches!(order, Ok(Order::End) | Err(RecvTimeoutError::Disconnected)) {
                return self.end();
            }
        }
    }

    /// Drains every ring, and works off what happened before the round began.
    fn round(&mut self) -> usize {
        let began = self.clock.now();
        let (collector, own) = (&mut self.collector, &mut self.own);
        let events = self.rings.drain(&mut |event| {
            if own.as_mut().is_none_or(|own| own.has(&event)) {
                collector.take(event);
            }
        });
        self.settle(began);
        self.keep();
        events
    }

    fn settle(&mut self, until: Timestamp) {
        let Some(sampler) = &mut self.sums.sampler else { return self.collector.settle(until, &mut self.rows) };
        sampler.look();
        self.collector.settle_watched(until, &mut self.rows, &mut |at, connections| sampler.sample(at, connections));
    }

    /// Looks which processes there are: those that are gone end, those that never said that they are seen go on the
    /// roll.
    fn look(&mut self) {
        let known = self.collector.processes();
        let living = coverage::living(self.root);
        let alive: HashSet<u32> = if self.own_numbers {
            // One whose parent ended is no longer in the tree, and still there; one in a PID namespace of its own
            // has another number here.
            let inner: HashSet<u32> = living.iter().map(|process| process.inner_pid).collect();
            known.iter().copied().filter(|pid| inner.contains(pid) || coverage::is_alive(*pid)).collect()
        } else {
            living.iter().map(|process| process.inner_pid).collect()
        };
        let gone: Vec<u32> = known.iter().copied().filter(|pid| !alive.contains(pid)).collect();
        // What they told last is in the rings now.
        self.round();
        self.round();
        let now = self.clock.now();
        let collector = &mut self.collector;
        let own = &mut self.own;
        self.rings.reclaim(&mut |origin| alive.contains(&origin.pid) || !gone.contains(&origin.pid), &mut |event| {
            if own.as_mut().is_none_or(|own| own.has(&event)) {
                collector.take(event);
            }
        });
        self.settle(now);
        self.collector.gone(&gone, now, &mut self.rows);
        if self.own.is_none() {
            self.strangers(&living);
        }
        let mut drained = self.clock.now();
        // A place's processes count from 1 again.
        let is_ours = |pid: i32| self.own.is_none() || known.contains(&pid.unsigned_abs());
        let seen = living.iter().filter(|process| known.contains(&process.inner_pid) && is_ours(process.pid));
        for process in seen.collect::<Vec<_>>() {
            // Looking at many takes long, and rings fill meanwhile.
            if self.clock.now().since(drained) >= ROUND {
                self.round();
                drained = self.clock.now();
            }
            if let Some(partial) = coverage::partial(process) {
                self.collector.roll().partial(&process.program, &partial.to_string());
            }
        }
    }

    /// Twice at a look and still not on the roll: no program takes that long to load a library.
    fn strangers(&mut self, living: &[coverage::Process]) {
        let known = self.collector.processes();
        let mut now = HashSet::new();
        // The init of a place is a copy of this program, and no one's.
        let is_ours = |process: &coverage::Process| !self.own_numbers && process.pid == self.root;
        let is_stranger = |process: &&coverage::Process| !known.contains(&process.inner_pid) && !is_ours(process);
        for process in living.iter().filter(is_stranger) {
            let id = (process.pid, process.started_ticks);
            if self.strangers.contains(&id) && !self.named.contains(&id) {
                if let Some(unseen) = coverage::reason(process) {
                    self.collector.roll().unseen(process.inner_pid, &process.program, &unseen.to_string());
                }
                self.named.insert(id);
            }
            now.insert(id);
        }
        self.strangers = now;
    }

    /// Hands the rows to the book.
    fn keep(&mut self) {
        self.rows.iter().for_each(|row| self.sums.add(row));
        self.book.keep(&mut self.rows);
    }

    fn glance(&self) -> Glance {
        let sides = self.collector.sides();
        let views: Vec<_> = TapSide::ALL.into_iter().filter_map(|side| sides.side(side)).collect();
        let (exchanges, failed) = views.iter().fold((0, 0), |(all, bad), side| {
            let (exchanges, failed) = side.counts();
            (all + exchanges, bad + failed)
        });
        let response = views.first().map(|side| &side.response).filter(|times| !times.is_empty());
        Glance { live: self.collector.live(), exchanges, failed, response_p50_ns: response.map(|t| t.value_at(0.5)) }
    }

    fn end(mut self) -> Tapped {
        // Before the rings are read: what the kernel counts later is in no ring.
        let kernel = self.kernel.as_ref().and_then(Counters::end);
        self.look();
        self.round();
        self.collector.unfollowed(self.rings.unfollowed().into());
        // In a place nothing does.
        let lives_on = self.own_numbers && self.own.is_none() && !self.collector.processes().is_empty();
        // Too short a life for a look at it.
        for (name, path) in self.collector.roll().paths() {
            let partial = coverage::partial_by_file(std::path::Path::new(&path));
            // Whose connections passed the hooks uses the library for files, or TCP's own count says what is missing.
            let uses_calls = self.collector.roll().connections(&name) > 0;
            let is_harmless = |partial: &Partial| *partial == Partial::UringLibrary && uses_calls;
            if let Some(partial) = partial.filter(|partial| !is_harmless(partial)) {
                self.collector.roll().partial(&name, &partial.to_string());
            }
        }
        let part = self
            .collector
            .end(&mut self.rows, |path| coverage::why_not(std::path::Path::new(path)).map(|unseen| unseen.to_string()));
        self.rows.iter().for_each(|row| self.sums.add(row));
        self.book.keep(&mut self.rows);
        let cut = self.rings.is_cut();
        drop(self.rings);
        // Whoever lives on starts programs that look for the library.
        if lives_on {
            self.folder.leave();
        }
        let Sums { outside, client, sampler, responses } = self.sums;
        let levels = sampler.map(|sampler| sampler.finish(self.clock.now()));
        Tapped { part, error: self.book.finish(), cut, kernel, outside, client, levels, responses }
    }
}

/// Pause between rounds: rings hold more than programs write in it, and a shorter one would cost them more.
const ROUND: Duration = Duration::from_millis(5);
/// After a round of so many events the next begins at once: somebody writes faster than pauses allow.
const MANY: usize = 8_192;
/// 1 MB a large ring: a thread that does nothing but small exchanges, 175,000 a second, fills one in 45 ms, longer than a
/// busy machine mostly keeps a thread waiting for its turn. With more threads than large rings each has the less time to
/// write: 64 KB will do for the others. Each program maps the 256 MB of all, and there is memory only for what is used.
const CAPACITY: Capacity = Capacity { records: 16_384, slots: 192, small_slots: 1_024, ready: 16 };
/// How often processes are looked for, and a part of the table is closed.
const LOOK: Duration = Duration::from_secs(1);
