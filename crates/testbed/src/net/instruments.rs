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
use crate::snapshot::{self, PathFacts};
use crate::tapping::{Sampling, Started, Tapped, Tapping};
use crate::watching::protocols::Protocols;
use crate::watching::queue::queue;
use crate::watching::{Taps, WatchSetup, Watching};
use validity::evidence::{Watched, WireFigures};

/// The instruments, running.
pub(super) struct Instruments {
    clock: Clock,
    path: PathFacts,
    capture: Option<(Watching, RecorderThread)>,
    capture_progress: Arc<Mutex<Option<WatchProgress>>>,
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
type RecorderThread = std::thread::JoinHandle<(WireFigures, Option<String>)>;

impl Instruments {
    /// Starts the packet capture, before the program starts.
    ///
    /// # Errors
    /// A thread cannot be created.
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
            if folder.is_stored() {
                path_io.publish_each_batch(Arc::clone(&live));
            }
            path_io.set_start(started);
        }
        let clients = &sandboxes.spec.clients[..];
        let rtts_ns: Vec<u64> = clients.iter().map(ClientPath::rtt_ns).collect();
        let path = PathFacts {
            profile: distances::name(&plan.path),
            configured_rtt_ns: stats::quantiles_of(&rtts_ns),
            live,
            // These facts do not change the verdict during the run.
            rtt_varies: false,
            beyond: !sandboxes.far.is_empty(),
            only_delays: sandboxes.spec.only_delays(),
        };
        let capture_progress = Arc::new(Mutex::new(None));
        let setting = Setting {
            plan,
            rtts_ns,
            clients,
            clock: sandboxes.clock,
            progress,
            started,
            folder,
            capture_progress: &capture_progress,
        };
        let capture = taps.map(|taps| capture(taps, setting)).transpose();
        let capture = capture.map_err(TestbedError::system("start the packet capture"))?;
        Ok(Instruments { clock: sandboxes.clock, path, capture, capture_progress, tap: None })
    }

    /// Starts the program's tap, if it has one; the program has its process number.
    ///
    /// # Errors
    /// The thread or its files cannot be created.
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
        let Some(writer) = folder.progress() else { return };
        writer.write(&RunProgress {
            path: Some(snapshot::path(&self.path)),
            watch: self.capture_progress.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tap: self.tap.as_ref().and_then(Tapping::glance).map(|glance| snapshot::tap(&glance)),
            ..writer.at(self.clock.now(), RunPhase::Measured)
        });
    }

    /// Ends the instruments.
    pub fn end(self) -> Capture {
        let sockets = self.tap.map(Tapping::end);
        let packets = self.capture.map(|(watching, recorder)| {
            let (watched, _) = watching.end();
            let (figures, error) = recorder.join().expect("the recorder does not panic");
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
    /// Live figures of the capture, updated about every 1.5 s.
    capture_progress: &'a Arc<Mutex<Option<WatchProgress>>>,
}

/// Starts the capture on open rings, and a thread that stores its records.
fn capture(taps: Taps, setting: Setting<'_>) -> std::io::Result<(Watching, RecorderThread)> {
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
            kept: None,
            protocols: Protocols::default(),
        },
        sender,
    )?;
    let capture_progress = Arc::clone(setting.capture_progress);
    let tables = CaptureTables::new(setting.folder.folder(), Arc::clone(progress), started, setting.rtts_ns, None);
    let side = WireSide { tables, records };
    let recorder = std::thread::Builder::new().name("recorder".into()).spawn(move || {
        Urgency::Low.apply_to_this_thread();
        side.into_figures_with_progress(|tables| {
            *capture_progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(tables.snapshot(&device));
        })
    })?;
    Ok((watching, recorder))
}
