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
use sys::place::{Exit, Place};
use sys::relay::Relay;
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
use crate::recording_folder::RecordingFolder;
use crate::standing::Opening;
use crate::tapping::TapPlan;
use crate::watching::Taps;
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
    /// Packet capture at the server's end; absent means at the server's end.
    pub watch: WatchPlan,
    /// Waits and placement of the path.
    pub host: HostPlan,
    /// Tap of the program; `None`: without.
    pub tap: Option<TapPlan>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The run store; `None`: the run is not stored.
    pub book: Option<RunStore>,
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

/// The same; `shown` gets the run's directory, if it is stored, before the program starts.
///
/// # Errors
/// Those of [`net`].
pub fn net_shown(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    mut tell: impl FnMut(&str),
    mut shown: impl FnMut(&Path),
) -> Result<NetOutcome, TestbedError> {
    check(plan)?;
    let mut sandboxes = Sandboxes::make(plan, command)?;
    let clock = sandboxes.clock;
    // From here on, signals to this process are forwarded. Called before other threads exist, which would receive them.
    let mut relay = interrupts.is_none().then(Relay::install).transpose().map_err(TestbedError::system("sigaction"))?;
    if let Some(relay) = &mut relay {
        relay.hold().map_err(TestbedError::system("pthread_sigmask"))?;
    }
    let taps = Taps::open(&sandboxes.places, plan.watch.at.unwrap_or_default(), None, &plan.watch)?;
    let words = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut folder = RecordingFolder::begin(
        plan.book.as_ref(),
        &plan.name,
        |_| Ok(()),
        |folder| Opening::begin(folder, "net", &words, plan.seed),
    )?;
    folder.set_zero(&clock);
    if let Some(path) = folder.path() {
        shown(path);
    }
    for note in &sandboxes.places.notes {
        tell(note);
    }
    tell(&sandboxes.describe(&distances::name(&plan.path)));

    let before = sandboxes.places.device_statistics().ok();
    let started = clock.now();
    let progress = Arc::new(Progress::default());
    let mut instruments = Instruments::start(plan, &mut sandboxes, taps, &folder, &progress, started)?;
    sandboxes.program.go().map_err(TestbedError::plan)?;
    if let Some(relay) = &mut relay {
        sandboxes.program.relay(relay);
    }
    instruments.start_tap(plan, &mut sandboxes, command, &folder, &progress, started)?;
    let path_io = sandboxes.path_io.take();
    let path_loop = PathLoop::new(plan, &sandboxes, Arc::clone(&progress))?;
    let (exit, driven) = path_loop.run(path_io, || {
        let exit = wait_for(&mut sandboxes.program, interrupts, folder.is_kept(), || {
            instruments.write_snapshot(&folder);
        });
        if let Some(relay) = &mut relay {
            relay.stop();
        }
        progress.set_measured_end(clock.now());
        progress.ask(1, Timestamp::ZERO);
        exit
    })?;
    let after = sandboxes.places.device_statistics().ok();
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
        capture,
    };
    let document = ended.document()?;
    let status = match exit? {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => (128 + signal) as u8,
    };
    if let (Some(folder), Some(tapped)) = (folder.folder(), &ended.capture.sockets) {
        tapped.responses.keep(folder, clock.now()).map_err(TestbedError::environment)?;
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
        // Connections of a captured service remain; a server of the testbed ends otherwise.
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
            let right = self.keeps_time.then(RealTimeLock::take).flatten();
            // The real-time class keeps the path on time next to a busy program; while packets arrive faster than it
            // can forward them it alternates with others.
            let wanted = match right {
                Some(_) => Urgency::RealTime,
                None if self.keeps_time => Urgency::High,
                None => Urgency::Ordinary,
            };
            let thread = std::thread::Builder::new()
                .name("path".into())
                .spawn_scoped(scope, move || {
                    if let Some(core) = core {
                        // Without pinning the precision suffers, which the timing error shows.
                        let _ = core.pin_this_thread();
                    }
                    drive.urgency = wanted.apply_to_this_thread();
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
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval of progress snapshots, if the run is stored.
const STANDING_EVERY: Duration = Duration::from_secs(1);

fn wait_for(
    program: &mut Place,
    interrupts: Option<&Interrupts>,
    is_kept: bool,
    mut stand: impl FnMut(),
) -> Result<Exit, TestbedError> {
    let count = || interrupts.map_or(0, Interrupts::count);
    let mut seen = count();
    let mut stood = None;
    loop {
        let now = sys::clock::monotonic_ns();
        if is_kept && stood.is_none_or(|stood| now - stood >= STANDING_EVERY.as_nanos() as u64) {
            stood = Some(now);
            stand();
        }
        if let Some(exit) = program.try_exit().map_err(TestbedError::environment)? {
            return Ok(exit);
        }
        if count() > seen {
            let signal = if seen == 0 { Signal::SIGINT } else { Signal::SIGKILL };
            seen = count();
            // The program has just ended, which is as good.
            let _ = program.signal(signal);
        }
        let patience = match interrupts {
            Some(_) => LOOK_EVERY,
            None if is_kept => STANDING_EVERY,
            None => Duration::from_secs(3600),
        };
        sys::signal::wait_readable(program.status_fd(), patience);
    }
}
