//! Instruments of a program's run: the packet capture with a thread that stores its records, and the program's tap.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use path::ClientPath;
use schema::{RunPhase, RunProgress, WatchProgress};
use sys::clock::Clock;
use sys::sched::Urgency;
use units::Timestamp;

use super::NetPlan;
use super::sandboxes::Sandboxes;
use crate::capture_tables::CaptureTables;
use crate::distances;
use crate::drive::path_live::PathLive;
use crate::drive::progress::Progress;
use crate::error::TestbedError;
use crate::recorder::WireSide;
use crate::recording_folder::RecordingFolder;
use crate::standing::{self, PathFacts};
use crate::tapping::{Sampling, Started, Tapped, Tapping};
use crate::watching::queue::queue;
use crate::watching::{Taps, WatchSetup, Watching};
use validity::evidence::{Watched, WireFigures};

/// The instruments, running.
pub(super) struct Instruments {
    clock: Clock,
    path: PathFacts,
    capture: Option<(Watching, Keeper)>,
    seen: Arc<Mutex<Option<WatchProgress>>>,
    tap: Option<Tapping>,
}

/// Results of the instruments.
pub(super) struct Capture {
    /// The packet capture, with the first error of writing its tables.
    pub packets: Option<(Watched, WireFigures, Option<String>)>,
    /// The tap of the program's sockets.
    pub sockets: Option<Tapped>,
}

/// The thread that receives records of the packet capture.
type Keeper = std::thread::JoinHandle<(WireFigures, Option<String>)>;

impl Instruments {
    /// Starts the packet capture, before the program starts.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub fn start(
        plan: &NetPlan,
        sandboxes: &mut Sandboxes,
        taps: Option<Taps>,
        folder: &RecordingFolder,
        progress: &Arc<Progress>,
        started: Timestamp,
    ) -> Result<Self, TestbedError> {
        let live = Arc::new(PathLive::default());
        if let Some(path_io) = &mut sandboxes.path_io {
            if folder.is_kept() {
                path_io.show(Arc::clone(&live));
            }
            path_io.set_start(started);
        }
        let clients = &sandboxes.spec.clients[..];
        let rtts_ns: Vec<u64> = clients.iter().map(ClientPath::rtt_ns).collect();
        let path = PathFacts {
            profile: distances::name(&plan.path),
            configured_rtt_ns: stats::quantiles_of(&rtts_ns),
            live,
            // These do not change the verdict during the run.
            rtt_varies: false,
            beyond: !sandboxes.far.is_empty(),
            only_delays: sandboxes.spec.only_delays(),
        };
        let seen = Arc::new(Mutex::new(None));
        let setting =
            Setting { plan, rtts_ns, clients, clock: sandboxes.clock, progress, started, folder, seen: &seen };
        let capture = taps.map(|taps| capture(taps, setting)).transpose();
        let capture = capture.map_err(TestbedError::system("start the packet capture"))?;
        Ok(Instruments { clock: sandboxes.clock, path, capture, seen, tap: None })
    }

    /// Starts the program's tap, if it has one; the program has its process number.
    ///
    /// # Errors
    /// The thread or its files cannot be made.
    pub fn start_tap(
        &mut self,
        plan: &NetPlan,
        sandboxes: &mut Sandboxes,
        command: &[OsString],
        folder: &RecordingFolder,
        progress: &Arc<Progress>,
        started: Timestamp,
    ) -> Result<(), TestbedError> {
        let (Some(prepared), Some(tap)) = (sandboxes.prepared.take(), &plan.tap) else { return Ok(()) };
        let command = command.first().cloned().unwrap_or_default();
        let root = sandboxes.program.init_pid();
        let what = Started { root, pid: 0, own_numbers: false, command, own_load: false, cores: None };
        let progress = Arc::clone(progress);
        let sampling = Sampling { seed: plan.seed, start: started, measured_from: started, progress };
        self.tap = Some(prepared.start_with(tap.clone(), what, folder.folder(), Some(sampling))?);
        Ok(())
    }

    /// Writes a progress snapshot, if the run is stored.
    pub fn write_snapshot(&self, folder: &RecordingFolder) {
        let Some(opening) = folder.progress() else { return };
        opening.write(&RunProgress {
            path: Some(standing::path(&self.path)),
            watch: self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tap: self.tap.as_ref().and_then(Tapping::glance).map(|glance| standing::tap(&glance)),
            ..opening.at(self.clock.now(), RunPhase::Measured)
        });
    }

    /// Ends the instruments.
    pub fn end(self) -> Capture {
        let sockets = self.tap.map(Tapping::end);
        let packets = self.capture.map(|(watching, keeper)| {
            let watched = watching.end();
            let (figures, error) = keeper.join().expect("the keeper of the wire's records does not panic");
            (watched, figures, error)
        });
        Capture { packets, sockets }
    }
}

/// Input of the packet capture.
struct Setting<'a> {
    plan: &'a NetPlan,
    /// Configured RTT of each client.
    rtts_ns: Vec<u64>,
    clients: &'a [ClientPath],
    clock: Clock,
    progress: &'a Arc<Progress>,
    started: Timestamp,
    folder: &'a RecordingFolder,
    /// Live figures of the capture, stored from time to time.
    seen: &'a Arc<Mutex<Option<WatchProgress>>>,
}

/// Starts the capture on open rings, and a thread that stores its records.
fn capture(taps: Taps, setting: Setting<'_>) -> std::io::Result<(Watching, Keeper)> {
    let (sender, records) = queue();
    let Setting { progress, started, .. } = setting;
    let device = taps.device().to_owned();
    let watching = taps.watch(
        WatchSetup {
            clock: setting.clock,
            progress: Arc::clone(progress),
            start: started,
            measured_from: started,
            measured_to: None,
            clients: setting.clients,
            port: None,
            seed: setting.plan.seed,
            cores: None,
        },
        sender,
    )?;
    let seen = Arc::clone(setting.seen);
    let book = CaptureTables::new(setting.folder.folder(), Arc::clone(progress), started, setting.rtts_ns, None);
    let side = WireSide { book, records };
    let keeper = std::thread::Builder::new().name("recorder".into()).spawn(move || {
        Urgency::Low.apply_to_this_thread();
        side.into_figures_told(|book| {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(book.standing(&device));
        })
    })?;
    Ok((watching, keeper))
}
