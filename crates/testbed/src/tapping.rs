//! The tap of programs' sockets during a run, an independent vantage point.
//!
//! ```text
//!   Prepared::new   ──> environment of the program      (before it starts)
//!   Prepared::start ──> a thread that drains the rings every few ms; one that writes taps.parquet of the run
//!   Tapping::end    ──> Tapped: the document's part, and what checks need
//! ```
//!
//! The thread sleeps between rounds, and programs never wait for it. Records that it cannot read in time are dropped by
//! their rings, and counted.

mod gauges;
mod kernel;
mod own;
mod sums;
mod table;

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
use tap::rings::{Capacity, Policy, Rings};
use tap::self_tap::SelfTap;
use tap::{Collector, Live, Only};
use units::Timestamp;

pub use self::gauges::Sampling;
use self::gauges::TapSampler;
use self::kernel::Counters;
use self::own::OwnImages;
pub use self::sums::Responses;
use self::sums::Sums;
use self::table::TableWriter;
use crate::error::TestbedError;
use validity::evidence::{ClientTotals, KernelOpens, Outside, TapGauges};

/// Which connections are recorded, and how they are judged.
#[derive(Clone, Debug)]
pub struct TapPlan {
    /// Only connections to one of these; all if there is none.
    pub only: Vec<Only>,
    /// Length of a window of availability.
    pub window: Duration,
}

impl Default for TapPlan {
    fn default() -> Self {
        TapPlan { only: Vec::new(), window: Duration::from_nanos(tap::Indicators::WINDOW_NS) }
    }
}

/// The library and its rings, ready for a program.
#[derive(Debug)]
pub struct Prepared {
    folder: Folder,
    rings: Rings,
    clock: Clock,
    /// Counters of this process's namespace, before any program was started.
    kernel: Option<Counters>,
}

impl Prepared {
    /// Writes the library to a file that the program can load, and creates the rings. Times count from `clock`'s zero.
    ///
    /// # Errors
    /// No directory for it, or a machine that the library does not support.
    pub fn new(clock: Clock) -> Result<Prepared, TestbedError> {
        let (folder, rings) = Rings::create_somewhere(clock, RINGS_CAPACITY).map_err(TestbedError::environment)?;
        Ok(Prepared { folder, rings, clock, kernel: Counters::begin(None, false) })
    }

    /// Like [`Self::new`], for this program's own load, which was started with the library ([`own_start`]).
    ///
    /// # Errors
    /// The rings cannot be mapped.
    pub fn own(own: SelfTap, clock: Clock) -> Result<Prepared, TestbedError> {
        let (folder, rings) = own.into_rings(clock).map_err(TestbedError::environment)?;
        // The load itself reports the connections that it made.
        Ok(Prepared { folder, rings, clock, kernel: None })
    }

    /// The program's environment variables; `preload` is its own LD_PRELOAD.
    pub fn environment(&self, preload: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let variables = self.folder.environment(preload);
        variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    /// Starts the thread, when the program has started. Rows go to `folder`'s taps.parquet, if the run is stored.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start(self, plan: TapPlan, started: Started, folder: Option<&RunFolder>) -> Result<Tapping, TestbedError> {
        self.start_with(plan, started, folder, None)
    }

    /// Like [`Self::start`]; open connections are sampled, too.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start_with(
        self,
        plan: TapPlan,
        started: Started,
        folder: Option<&RunFolder>,
        sampling: Option<Sampling>,
    ) -> Result<Tapping, TestbedError> {
        let mut rings = self.rings;
        if !started.own_load {
            // Programs that change their user need rings, too. Without an address for the socket they are listed as
            // unseen.
            let _ = rings.serve_other_users(&self.folder, Policy::Descendants);
        }
        let kernel = if started.own_numbers { self.kernel } else { Counters::begin(Some(started.root), true) };
        // If only some connections are recorded, the kernel's count has no counterpart.
        let kernel = kernel.filter(|_| plan.only.is_empty());
        let (orders, received_orders) = channel();
        let (live, figures) = channel();
        let window_ns = units::time::saturating_nanos(plan.window);
        let mut collector = Collector::new(plan.only, window_ns);
        collector.programs().starting(started.pid, &started.command.to_string_lossy(), true);
        let tap_thread = TapThread {
            folder: self.folder,
            rings,
            clock: self.clock,
            collector,
            table: TableWriter::start(folder.map(RunFolder::taps))?,
            rows: Vec::new(),
            sums: Sums::new(sampling.map(TapSampler::new)),
            own: started.own_load.then(|| OwnImages::new(started.pid)),
            cores: started.cores,
            root: started.root,
            own_numbers: started.own_numbers,
            unreported: HashSet::new(),
            named: HashSet::new(),
            kernel,
        };
        let thread = std::thread::Builder::new()
            .name("tap".into())
            .spawn(move || tap_thread.run(&received_orders, &live))
            .map_err(TestbedError::system("start the tap"))?;
        Ok(Tapping { orders, figures, thread })
    }
}

/// The program under the tap.
#[derive(Clone, Debug)]
pub struct Started {
    /// First process of the tree, in this process's PID namespace.
    pub root: i32,
    /// The program's number in its own namespace; 0 for the command of a sandbox.
    pub pid: u32,
    /// Whether the programs are in this process's PID namespace.
    pub own_numbers: bool,
    /// The program as given: a path, or a name found in PATH.
    pub command: OsString,
    /// Whether the program is this process, whose load is recorded and nothing else.
    pub own_load: bool,
    /// Cores of the tap's thread; `None`: any.
    pub cores: Option<Cores>,
}

impl Started {
    /// This process itself, with its shards.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn own_load(cores: Option<Cores>) -> Result<Started, TestbedError> {
        let program = std::env::current_exe().map_err(TestbedError::system("find this program's file"))?;
        let pid = std::process::id();
        Ok(Started { root: pid.cast_signed(), pid, own_numbers: true, command: program.into(), own_load: true, cores })
    }
}

/// Restarts this program with the library loaded; returns in the restarted process. Call it before anything that must
/// not happen twice.
///
/// # Errors
/// See [`tap::self_tap::enter`].
pub fn own_start() -> Result<SelfTap, TestbedError> {
    tap::self_tap::enter(RINGS_CAPACITY).map_err(TestbedError::environment)
}

/// A running tap.
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

/// Figures at one time.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// Gauges.
    pub live: Live,
    /// Exchanges ended so far, at both ends.
    pub exchanges: u64,
    /// Attempts that failed so far.
    pub failed: u64,
    /// Median response time so far, of the client's side if there is one; absent without exchanges.
    pub response_p50_ns: Option<u64>,
}

/// Results of a tap.
#[derive(Debug)]
pub struct Tapped {
    /// The document's part.
    pub part: TapPart,
    /// Why rows are missing in taps.parquet, if they are.
    pub error: Option<String>,
    /// Whether a program truncated the rings' file: nothing was read after that.
    pub cut: bool,
    /// Counts of the kernel in the programs' network namespace, where they are meaningful.
    pub kernel: Option<KernelOpens>,
    /// Totals of traffic that left the machine, to compare with a capture.
    pub outside: Outside,
    /// All traffic of the programs as clients.
    pub client: ClientTotals,
    /// Both sides of Little's law, if requested.
    pub levels: Option<TapGauges>,
    /// Response times of the whole run.
    pub responses: Responses,
}

impl Tapping {
    /// Current figures; waits for them at most a quarter of a second.
    pub fn glance(&self) -> Option<Glance> {
        self.orders.send(Order::Glance).ok()?;
        self.figures.recv_timeout(Duration::from_millis(250)).ok()
    }

    /// Ends the tap: processes the records still in the rings. Call it when the programs have ended.
    pub fn end(self) -> Tapped {
        // Sending fails only if the thread panicked, which joining it reports.
        let _ = self.orders.send(Order::End);
        self.thread.join().expect("the tap does not panic")
    }
}

/// State of the thread.
struct TapThread {
    rings: Rings,
    clock: Clock,
    collector: Collector,
    table: TableWriter,
    /// Rows of this round.
    rows: Vec<TapExchange>,
    sums: Sums,
    own: Option<OwnImages>,
    cores: Option<Cores>,
    root: i32,
    own_numbers: bool,
    /// Processes of the last reading that have not reported to the tap.
    unreported: HashSet<(i32, u64)>,
    /// Processes that were already listed as unseen.
    named: HashSet<(i32, u64)>,
    kernel: Option<Counters>,
    /// Declared last, so that the rings are unmapped before their file.
    folder: Folder,
}

impl TapThread {
    fn run(mut self, orders: &Receiver<Order>, live: &Sender<Glance>) -> Tapped {
        // Ordinary priority, because records that the thread cannot read in time are lost.
        Urgency::Ordinary.apply_to_this_thread();
        if let Some(cores) = &self.cores {
            // An unpinned tap takes time from the server: that affects the figures, but is not an error.
            let _ = cores.pin_this_thread();
        }
        let mut listed_at = self.clock.now();
        let mut pause = ROUND_INTERVAL;
        loop {
            let order = orders.recv_timeout(pause);
            pause = if self.round() < FULL_ROUND_EVENTS { ROUND_INTERVAL } else { Duration::ZERO };
            let now = self.clock.now();
            if now.since(listed_at) >= LIST_INTERVAL || matches!(order, Ok(Order::Glance)) {
                if now.since(listed_at) >= LIST_INTERVAL {
                    listed_at = now;
                    self.list_processes();
                }
                if matches!(order, Ok(Order::Glance)) {
                    // Sending fails if the receiver has stopped waiting.
                    let _ = live.send(self.glance());
                }
            }
            if matches!(order, Ok(Order::End) | Err(RecvTimeoutError::Disconnected)) {
                return self.end();
            }
        }
    }

    /// Drains every ring, and processes records from before the round began.
    fn round(&mut self) -> usize {
        let began = self.clock.now();
        let (collector, own) = (&mut self.collector, &mut self.own);
        let events = self.rings.drain(&mut |event| {
            if own.as_mut().is_none_or(|own| own.has(&event)) {
                collector.push(event);
            }
        });
        self.process_until(began);
        self.store_rows();
        events
    }

    fn process_until(&mut self, until: Timestamp) {
        let Some(sampler) = &mut self.sums.sampler else { return self.collector.process_until(until, &mut self.rows) };
        sampler.read_measured_end();
        self.collector
            .process_until_with(until, &mut self.rows, &mut |at, connections| sampler.sample(at, connections));
    }

    /// Lists the processes: ended ones are closed, and those that never reported to the tap are listed as unseen.
    fn list_processes(&mut self) {
        let known = self.collector.processes();
        let running = coverage::living(self.root);
        let alive: HashSet<u32> = if self.own_numbers {
            // A process whose parent has ended is not in the tree, but still exists; one in its own PID namespace has
            // another number here.
            let inner: HashSet<u32> = running.iter().map(|process| process.inner_pid).collect();
            known.iter().copied().filter(|pid| inner.contains(pid) || coverage::is_alive(*pid)).collect()
        } else {
            running.iter().map(|process| process.inner_pid).collect()
        };
        let ended_pids: Vec<u32> = known.iter().copied().filter(|pid| !alive.contains(pid)).collect();
        // The last records of ended processes are in the rings now.
        self.round();
        self.round();
        let now = self.clock.now();
        let collector = &mut self.collector;
        let own = &mut self.own;
        self.rings.reclaim(
            &mut |origin| alive.contains(&origin.pid) || !ended_pids.contains(&origin.pid),
            &mut |event| {
                if own.as_mut().is_none_or(|own| own.has(&event)) {
                    collector.push(event);
                }
            },
        );
        self.process_until(now);
        self.collector.processes_ended(&ended_pids, now, &mut self.rows);
        if self.own.is_none() {
            self.unreported(&running);
        }
        let mut drained = self.clock.now();
        // The processes of a sandbox are numbered from 1.
        let is_ours = |pid: i32| self.own.is_none() || known.contains(&pid.unsigned_abs());
        let seen = running.iter().filter(|process| known.contains(&process.inner_pid) && is_ours(process.pid));
        for process in seen.collect::<Vec<_>>() {
            // Reading many processes takes long, and rings fill meanwhile.
            if self.clock.now().since(drained) >= ROUND_INTERVAL {
                self.round();
                drained = self.clock.now();
            }
            if let Some(partial) = coverage::partial(process) {
                self.collector.programs().partial(&process.program, &partial.to_string());
            }
        }
    }

    /// Lists processes as unseen that were found by two readings and have not reported to the tap: no program takes
    /// that long to load a library.
    fn unreported(&mut self, running: &[coverage::Process]) {
        let known = self.collector.processes();
        let mut now = HashSet::new();
        // The init of a sandbox is a copy of this program, not a program of the user.
        let is_ours = |process: &coverage::Process| !self.own_numbers && process.pid == self.root;
        let is_unknown = |process: &&coverage::Process| !known.contains(&process.inner_pid) && !is_ours(process);
        for process in running.iter().filter(is_unknown) {
            let id = (process.pid, process.started_ticks);
            if self.unreported.contains(&id) && !self.named.contains(&id) {
                if let Some(unseen) = coverage::reason(process) {
                    self.collector.programs().unseen(process.inner_pid, &process.program, &unseen.to_string());
                }
                self.named.insert(id);
            }
            now.insert(id);
        }
        self.unreported = now;
    }

    /// Passes the rows to the table.
    fn store_rows(&mut self) {
        self.rows.iter().for_each(|row| self.sums.add(row));
        self.table.put(&mut self.rows);
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
        // The kernel's counters are read before the rings, so that every counted connection is in a ring.
        let kernel = self.kernel.as_ref().and_then(Counters::end);
        self.list_processes();
        self.round();
        self.collector.unfollowed(self.rings.unfollowed().into());
        // In a sandbox no program outlives the run.
        let outlived = self.own_numbers && self.own.is_none() && !self.collector.processes().is_empty();
        // Programs that ended before they were listed.
        for (name, path) in self.collector.programs().paths() {
            let partial = coverage::partial_by_file(std::path::Path::new(&path));
            // Programs with hooked connections use the library for files, or TCP's own count shows what is missing.
            let uses_calls = self.collector.programs().connections(&name) > 0;
            let is_harmless = |partial: &Partial| *partial == Partial::UringLibrary && uses_calls;
            if let Some(partial) = partial.filter(|partial| !is_harmless(partial)) {
                self.collector.programs().partial(&name, &partial.to_string());
            }
        }
        let part = self
            .collector
            .end(&mut self.rows, |path| coverage::why_not(std::path::Path::new(path)).map(|unseen| unseen.to_string()));
        self.rows.iter().for_each(|row| self.sums.add(row));
        self.table.put(&mut self.rows);
        let cut = self.rings.is_truncated();
        drop(self.rings);
        // Programs that outlive the tap may start other programs, which load the library.
        if outlived {
            self.folder.abandon();
        }
        let Sums { outside, client, sampler, responses } = self.sums;
        let levels = sampler.map(|sampler| sampler.finish(self.clock.now()));
        Tapped { part, error: self.table.finish(), cut, kernel, outside, client, levels, responses }
    }
}

/// Pause between rounds. Rings have space for more than programs write in this time; a shorter pause would cost
/// programs more.
const ROUND_INTERVAL: Duration = Duration::from_millis(5);
/// After a round with this many events the next begins immediately: programs write faster than pauses allow.
const FULL_ROUND_EVENTS: usize = 8_192;
/// Capacity of the rings. 1 MB per large ring: a thread with small exchanges only, 175,000 per second, fills one in 45
/// ms, longer than a busy machine usually keeps a thread waiting. With more threads than large rings each has less time
/// to write: 64 KB suffices for the others. Each program maps the 256 MB of all rings, but only used memory is
/// allocated.
const RINGS_CAPACITY: Capacity = Capacity { records: 16_384, slots: 192, small_slots: 1_024, ready: 16 };
/// Interval of listing processes, and of closing a part of the table.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
