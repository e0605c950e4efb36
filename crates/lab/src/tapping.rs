//! The third witness beside a run: what the programs' own sockets saw.
//!
//! ```text
//!   Tapping::prepare ──> environment of the program      (before it starts)
//!   Tapping::start   ──> a thread that drains the rings every few ms and keeps the book's taps.parquet
//!   Tapping::end     ──> Tapped: the document's part, the rows that checks need
//! ```
//!
//! The thread sleeps between rounds and is asked for nothing by the programs: they never wait for it. What it cannot
//! take in time is dropped by their rings, and counted.

mod around;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ledger::TapExchange;
use ledger::tap_part::TapPart;
use store::{RunFolder, TapsWriter};
use sys::clock::Clock;
use sys::sched::Urgency;
use tap::folder::Folder;
use tap::rings::{Capacity, Rings};
use tap::{Collector, Live, Only};

use self::around as coverage;
use crate::error::LabError;

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
}

impl Prepared {
    /// Lays the library out where the program finds it, and makes the rings. Moments count from `clock`'s zero.
    ///
    /// # Errors
    /// No place to put it; a machine that the library is not for.
    pub fn new(clock: Clock) -> Result<Prepared, LabError> {
        let folder = Folder::create(None).map_err(LabError::environment)?;
        let rings = Rings::create(&folder, clock, Capacity::default()).map_err(LabError::environment)?;
        Ok(Prepared { folder, rings, clock })
    }

    /// What the program's environment must have; `preload` is the LD_PRELOAD that it would have had.
    pub fn environment(&self, preload: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let variables = self.folder.environment(preload);
        variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    /// Starts the thread, when the program has started: `root` is the first process of its tree as this one counts, `own_numbers`
    /// whether the programs count as this one does (no PID namespace between), `command` what was started as process
    /// `pid` of theirs.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(self, plan: TapPlan, started: Started, folder: Option<&RunFolder>) -> Result<Tapping, LabError> {
        let (orders, inbox) = channel();
        let (live, figures) = channel();
        let window_ns = units::time::saturating_nanos(plan.window);
        let mut collector = Collector::new(plan.only, window_ns);
        collector.roll().starting(started.pid, &started.command.to_string_lossy(), true);
        let taps = folder.map(RunFolder::taps);
        let keeper = Keeper {
            folder: self.folder,
            rings: self.rings,
            clock: self.clock,
            collector,
            book: Book { taps, pending: Vec::new(), error: None },
            root: started.root,
            own_numbers: started.own_numbers,
            strangers: HashSet::new(),
            named: HashSet::new(),
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
    /// The program's number, as it sees itself.
    pub pid: u32,
    /// Whether the programs count processes as this one does.
    pub own_numbers: bool,
    /// The program as given: a path, or a name that was looked up.
    pub command: OsString,
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
    book: Book,
    root: i32,
    own_numbers: bool,
    /// Processes that were there at the last look and had not said that they are seen.
    strangers: HashSet<(i32, u64)>,
    /// Those that were put on the roll for it.
    named: HashSet<(i32, u64)>,
    /// Last, so that the rings are let go before their file is.
    folder: Folder,
}

struct Book {
    taps: Option<TapsWriter>,
    pending: Vec<TapExchange>,
    error: Option<String>,
}

impl Keeper {
    fn run(mut self, inbox: &Receiver<Order>, live: &Sender<Glance>) -> Tapped {
        Urgency::Low.apply_to_this_thread();
        let mut looked = self.clock.now();
        loop {
            let order = inbox.recv_timeout(ROUND);
            self.round();
            let now = self.clock.now();
            if now.since(looked) >= LOOK || matches!(order, Ok(Order::Glance)) {
                if now.since(looked) >= LOOK {
                    looked = now;
                    self.look();
                    self.book.close_part();
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
    fn round(&mut self) {
        let began = self.clock.now();
        let collector = &mut self.collector;
        self.rings.drain(&mut |event| collector.take(event));
        self.collector.settle(began, &mut self.book.pending);
        self.book.keep();
    }

    /// Looks which processes there are: those that are gone end, those that never said that they are seen go on the
    /// roll.
    fn look(&mut self) {
        let known = self.collector.processes();
        let living = coverage::living(self.root);
        let alive: HashSet<u32> = if self.own_numbers {
            // One whose parent ended is no longer in the tree, and still there.
            known.iter().copied().filter(|pid| coverage::is_alive(*pid)).collect()
        } else {
            living.iter().map(|process| process.inner_pid).collect()
        };
        let gone: Vec<u32> = known.iter().copied().filter(|pid| !alive.contains(pid)).collect();
        // What they told last is in the rings now.
        self.round();
        self.round();
        let now = self.clock.now();
        let collector = &mut self.collector;
        self.rings.reclaim(&mut |origin| alive.contains(&origin.pid) || !gone.contains(&origin.pid), &mut |event| {
            collector.take(event);
        });
        self.collector.settle(now, &mut self.book.pending);
        self.collector.gone(&gone, now, &mut self.book.pending);
        self.strangers(&living);
    }

    /// Twice at a look and still not on the roll: no program takes that long to load a library.
    fn strangers(&mut self, living: &[coverage::Process]) {
        let known = self.collector.processes();
        let mut now = HashSet::new();
        for process in living.iter().filter(|process| !known.contains(&process.inner_pid)) {
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

    fn glance(&self) -> Glance {
        use ledger::TapSide::{Client, Server};
        let sides = self.collector.sides();
        let views: Vec<_> = [Client, Server].into_iter().filter_map(|side| sides.side(side)).collect();
        let (exchanges, failed) = views.iter().fold((0, 0), |(all, bad), side| {
            let (exchanges, failed) = side.counts();
            (all + exchanges, bad + failed)
        });
        let response = views.first().map(|side| &side.response).filter(|times| !times.is_empty());
        Glance { live: self.collector.live(), exchanges, failed, response_p50_ns: response.map(|t| t.value_at(0.5)) }
    }

    fn end(mut self) -> Tapped {
        self.look();
        self.round();
        let mut rows = Vec::new();
        let part = self
            .collector
            .end(&mut rows, |path| coverage::why_not(std::path::Path::new(path)).map(|unseen| unseen.to_string()));
        self.book.pending.append(&mut rows);
        let error = self.book.finish();
        drop((self.rings, self.folder));
        Tapped { part, error }
    }
}

impl Book {
    /// Hands rows to the table. After a failure they are let go: figures go on.
    fn keep(&mut self) {
        let kept = self.taps.as_mut().map_or(Ok(()), |taps| taps.append(&mut self.pending));
        self.note(kept);
        self.pending.clear();
    }

    fn close_part(&mut self) {
        let closed = self.taps.as_mut().map_or(Ok(()), TapsWriter::close_part);
        self.note(closed);
    }

    fn finish(mut self) -> Option<String> {
        self.keep();
        let finished = self.taps.take().map_or(Ok(()), |taps| taps.finish().map(drop));
        self.note(finished);
        self.error
    }

    fn note(&mut self, outcome: store::Result<()>) {
        if let Err(error) = outcome {
            self.error.get_or_insert(error.to_string());
        }
    }
}

/// Pause between rounds: rings hold more than programs write in it, and a shorter one would cost them more.
const ROUND: Duration = Duration::from_millis(5);
/// How often processes are looked for, and a part of the table is closed.
const LOOK: Duration = Duration::from_secs(1);
