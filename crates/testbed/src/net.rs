//! Any program at the clients' end of a path, in stages: sandboxes, folder, instruments, the path's loop, document.

mod document;
mod instruments;
mod sandboxes;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use schema::WatchSecond;
use schema::document::Document;
use store::RunStore;
use sys::relay::Relay;
use sys::sandbox::{Exit, Sandbox};
use sys::sched::{RealTimeLock, Urgency};
use sys::signal::{Interrupts, Signal, Wake};
use units::Timestamp;

use self::document::Ended;
use self::instruments::Instruments;
use self::sandboxes::Sandboxes;
use crate::distances;
use crate::drive::path_io::PathIo;
use crate::drive::progress::Progress;
use crate::drive::{Drive, Driven};
use crate::error::TestbedError;
use crate::host;
use crate::recording_folder::RecordingFolder;
use crate::snapshot::SnapshotWriter;
use crate::tapping::TapPlan;
use crate::watching::{CLIENT_SNAPLEN, Taps};
use plan::{HostPlan, PathPlan, ServerPlan, TargetPlan, To, WatchAt, WatchPlan};

/// A network for a program.
#[derive(Clone, Debug)]
pub struct NetPlan {
    /// The path.
    pub path: PathPlan,
    /// The server, if one is started.
    pub server: Option<ServerPlan>,
    /// Addresses of names, and TCP of the server's end if the testbed starts no server.
    pub target: TargetPlan,
    /// Services at the server's end that the testbed does not start.
    pub to: Vec<To>,
    /// Number of client addresses.
    pub clients: u32,
    /// Packet capture; if its vantage point is absent, at the server's end.
    pub watch: WatchPlan,
    /// Waits and placement of the path.
    pub host: HostPlan,
    /// Tap of the program; `None`: without.
    pub tap: Option<TapPlan>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The run store; `None`: the run is not stored.
    pub run_store: Option<RunStore>,
    /// Name of the run.
    pub name: String,
}

/// Results of the program's run.
#[derive(Debug)]
pub struct NetOutcome {
    /// The program's exit status; 128 plus the signal's number if a signal ended it, as in a shell.
    pub status: u8,
    /// Figures of path and packet capture, from the program's start to its end.
    pub document: Document,
    /// All captured seconds, from the run's zero; empty without a capture.
    pub watch_series: Vec<WatchSecond>,
    /// The run's directory, if it is stored: summary.json, connections.parquet, wire_requests.parquet,
    /// watch_series.parquet, taps.parquet.
    pub folder: Option<PathBuf>,
    /// The wall clock at the run's zero, from which all times count: for comparison with logs of programs.
    pub started: SystemTime,
}

/// Runs `command` at the clients' end. `tell` gets a line about the network before the start, and one for each warning.
///
/// With `interrupts`, an interrupt of this process is forwarded to the program, a second one ends it. Without, the
/// program has the terminal and gets Ctrl-C directly, as in a shell; signals from another process to this one (TERM,
/// HUP, INT, QUIT, USR1, USR2) are forwarded to the program, whose end is awaited.
///
/// # Errors
/// A plan that cannot be carried out, a machine that lacks a feature, or a program that cannot be started.
pub fn net(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    tell: impl FnMut(&str),
) -> Result<NetOutcome, TestbedError> {
    net_shown(plan, command, interrupts, tell, |_| {})
}

/// Like [`net`]; `shown` gets the run's directory, if it is stored, before the program starts.
///
/// # Errors
/// The errors of [`net`].
pub fn net_shown(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    mut tell: impl FnMut(&str),
    mut shown: impl FnMut(&Path),
) -> Result<NetOutcome, TestbedError> {
    check(plan)?;
    let mut sandboxes = Sandboxes::create(plan, command)?;
    let clock = sandboxes.clock;
    // From here on, signals to this process are forwarded. Called before other threads exist, which would receive them.
    let mut relay = interrupts.is_none().then(Relay::install).transpose().map_err(TestbedError::system("sigaction"))?;
    if let Some(relay) = &mut relay {
        relay.block_signals().map_err(TestbedError::system("pthread_sigmask"))?;
    }
    let sizes = ([plan.watch.snaplen.unwrap_or(plan::SNAPLEN_OF_HEADS), CLIENT_SNAPLEN], plan.watch.ring);
    let taps = Taps::open(&sandboxes.topology, plan.watch.at.unwrap_or_default(), None, sizes)?;
    let words = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut folder = RecordingFolder::begin(
        plan.run_store.as_ref(),
        &plan.name,
        |_| Ok(()),
        |folder| SnapshotWriter::begin(folder, "net", &words, plan.seed),
    )?;
    folder.set_zero(&clock);
    if let Some(path) = folder.path() {
        shown(path);
    }
    for note in &sandboxes.topology.notes {
        tell(note);
    }
    tell(&sandboxes.describe(&distances::name(&plan.path)));

    let before = sandboxes.topology.device_statistics().ok();
    let cpu_before = sys::accounting::cpu_times().ok();
    let started = clock.now();
    let progress = Arc::new(Progress::default());
    let mut instruments = Instruments::start(plan, &mut sandboxes, taps, &folder, &progress, started)?;
    sandboxes.program.exec().map_err(TestbedError::plan)?;
    if let Some(relay) = &mut relay {
        sandboxes.program.relay(relay);
    }
    instruments.start_tap(plan, &mut sandboxes, command, &folder, &progress, started)?;
    let path_io = sandboxes.path_io.take();
    let path_loop = PathLoop::new(plan, &sandboxes, Arc::clone(&progress))?;
    let (exit, driven) = path_loop.run(path_io, || {
        let exit = wait_for(&mut sandboxes.program, interrupts, folder.is_stored(), || {
            instruments.write_snapshot(&folder);
        });
        if let Some(relay) = &mut relay {
            relay.stop();
        }
        progress.set_measured_end(clock.now());
        progress.request_stop(1, Timestamp::ZERO);
        exit
    })?;
    let cpu_after = sys::accounting::cpu_times().ok();
    let after = sandboxes.topology.device_statistics().ok();
    let phase = progress.measured_end().map_or(Duration::ZERO, |end| end.since(started));
    let capture = instruments.end();
    let (driven, urgency) = driven;
    let ended = Ended {
        plan,
        words,
        sandboxes: &sandboxes,
        folder: &folder,
        path: driven.path.expect("the loop gives the path back"),
        health: driven.loop_health,
        urgency,
        phase,
        devices: [before, after],
        steal_share: host::steal_share(cpu_before.as_deref(), cpu_after.as_deref()),
        capture,
    };
    let document = ended.document()?;
    let status = match exit? {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => (128 + signal) as u8,
    };
    if let (Some(folder), Some(tapped)) = (folder.folder(), &ended.capture.sockets) {
        tapped.responses.store(folder, clock.now()).map_err(TestbedError::environment)?;
    }
    folder.finish(clock.now(), &document).map_err(TestbedError::environment)?;
    Ok(NetOutcome {
        status,
        document,
        watch_series: ended.capture.packets.map(|(_, figures, _)| figures.seconds).unwrap_or_default(),
        folder: folder.path_buf(),
        started: clock.started(),
    })
}

fn check(plan: &NetPlan) -> Result<(), TestbedError> {
    if plan.clients == 0 || plan.clients > path::AddressPlan::CLIENTS_MAX {
        return Err(TestbedError::Plan(format!(
            "--clients {}: expected 1 to {}",
            plan.clients,
            path::AddressPlan::CLIENTS_MAX
        )));
    }
    plan.path.check().map_err(TestbedError::Plan)?;
    plan.watch.check().map_err(TestbedError::Plan)?;
    plan.server.as_ref().map_or(Ok(()), ServerPlan::check).map_err(TestbedError::Plan)
}

/// The path's loop, in its own thread while the program runs.
struct PathLoop<'a> {
    plan: &'a NetPlan,
    clock: sys::clock::Clock,
    core: Option<sys::sched::Cores>,
    keeps_time: bool,
    grace: Duration,
    progress: Arc<Progress>,
    stop: Wake,
}

impl<'a> PathLoop<'a> {
    fn new(plan: &'a NetPlan, sandboxes: &Sandboxes, progress: Arc<Progress>) -> Result<Self, TestbedError> {
        // Without a capture, and with a server of the testbed, connections need not be closed at the end: the server
        // ends.
        let ends = plan.watch.at.unwrap_or_default() == WatchAt::None && sandboxes.far.is_empty();
        Ok(PathLoop {
            plan,
            clock: sandboxes.clock,
            core: sandboxes.cores.loop_core(),
            keeps_time: distances::keeps_time(&sandboxes.spec),
            grace: if ends { Duration::ZERO } else { distances::grace(&sandboxes.spec) },
            progress,
            stop: Wake::new().map_err(TestbedError::system("eventfd"))?,
        })
    }

    /// Runs the loop until `program`, on this thread, has returned; reports its scheduling class.
    fn run<T>(
        &self,
        path_io: Option<PathIo>,
        program: impl FnOnce() -> T,
    ) -> Result<(T, (Driven, Urgency)), TestbedError> {
        std::thread::scope(|scope| {
            let mut drive = self.drive(path_io);
            let core = self.core.clone();
            let right = self.keeps_time.then(RealTimeLock::acquire).flatten();
            // The real-time class keeps the path on time next to a busy program; while packets arrive faster than it
            // can forward them it alternates with others.
            let urgency = match right {
                Some(_) => Urgency::RealTime,
                None if self.keeps_time => Urgency::High,
                None => Urgency::Ordinary,
            };
            let thread = std::thread::Builder::new()
                .name("path".into())
                .spawn_scoped(scope, move || {
                    if let Some(core) = core {
                        // Without pinning the path is less precise, which the timing error shows.
                        let _ = core.pin_this_thread();
                    }
                    drive.urgency = urgency.apply_to_this_thread();
                    let urgency = drive.urgency;
                    (drive.run(), urgency)
                })
                .map_err(TestbedError::system("start the path"))?;
            let exit = program();
            self.stop.wake();
            let (driven, urgency) = thread.join().expect("the path does not panic");
            drop(right);
            Ok((exit, (driven.map_err(TestbedError::system("the path"))?, urgency)))
        })
    }

    fn drive(&self, path: Option<PathIo>) -> Drive<'_> {
        Drive {
            clock: self.clock,
            wait: self.plan.host.wait,
            engine: self.plan.host.engine,
            path,
            load: None,
            progress: Arc::clone(&self.progress),
            stop: self.stop.as_fd(),
            drain: Duration::ZERO,
            others: Vec::new(),
            own_core: false,
            shares_core: false,
            urgency: Urgency::Ordinary,
            grace: self.grace,
        }
    }
}

/// Interval of checks for interrupts.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of progress snapshots, if the run is stored.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

fn wait_for(
    program: &mut Sandbox,
    interrupts: Option<&Interrupts>,
    is_stored: bool,
    mut write_snapshot: impl FnMut(),
) -> Result<Exit, TestbedError> {
    let count = || interrupts.map_or(0, Interrupts::count);
    let mut seen = count();
    let mut snapshot_at = None;
    loop {
        let now = sys::clock::monotonic_ns();
        if is_stored && snapshot_at.is_none_or(|at| now - at >= SNAPSHOT_INTERVAL.as_nanos() as u64) {
            snapshot_at = Some(now);
            write_snapshot();
        }
        if let Some(exit) = program.try_exit().map_err(TestbedError::environment)? {
            return Ok(exit);
        }
        if count() > seen {
            let signal = if seen == 0 { Signal::SIGINT } else { Signal::SIGKILL };
            seen = count();
            // The signal fails only if the program has just ended.
            let _ = program.signal(signal);
        }
        let timeout = match interrupts {
            Some(_) => INTERRUPT_POLL_INTERVAL,
            None if is_stored => SNAPSHOT_INTERVAL,
            None => Duration::from_secs(3600),
        };
        sys::signal::wait_readable(program.status_fd(), timeout);
    }
}
