//! Progress snapshots of a run: made once a second, outside of the loops.
//!
//! ```text
//!   loops       --Progress, PathLive: counters, 10 a second--\
//!   main thread --MainThreadReadings: devices, CPU, server ---+--> SnapshotBuilder, on the recorder's thread
//!   recorder    --counts and packet capture so far------------/      '--> WriteQueue --> writer: progress.json
//! ```
//!
//! The loops only store about forty numbers ten times a second. At the start and the end of the run, when there is no
//! recorder, the main thread writes the snapshot ([`SnapshotWriter`]); for runs without a load it writes all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use load::{Levels, LittleTerms, SoFar};
use schema::document::{self, Document, Run, SCHEMA, Validity};
use schema::progress::PROGRESS_SCHEMA;
use schema::{
    DropCause, LoadProgress, PathProgress, Quantiles, RunPhase, RunProgress, TapProgress, WatchDocument, WatchPart,
    WatchProgress, WatchSecond,
};
use store::{ProgressFile, RunFolder};
use sys::clock::Clock;
use units::Timestamp;

use crate::capture_tables::CaptureTables;
use crate::drive::path_live::PathLive;
use crate::drive::progress::{Phase, Progress};
use crate::recorder::{Counting, ProgressNow};
use crate::tapping::Glance;
use plan::Plan;
use validity::evidence::{Evidence, StoredRows, UnintendedDrops, Watched, WireEvidence};

/// Constant part of a run's progress snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    file: ProgressFile,
    base: RunProgress,
    clock: Clock,
}

impl SnapshotWriter {
    /// The first snapshot of a run that is starting: sandboxes are created next, and a server may take long.
    pub fn begin(folder: &RunFolder, verb: &str, command: &str, seed: u64) -> Self {
        let clock = Clock::start();
        let base = RunProgress {
            schema: PROGRESS_SCHEMA.into(),
            run: folder.id().to_owned(),
            command: command.to_owned(),
            seed,
            started_at: store::rfc3339(clock.started()),
            verb: verb.to_owned(),
            ..RunProgress::default()
        };
        let writer = SnapshotWriter { file: folder.progress_file(), base, clock };
        writer.write(&writer.base);
        writer
    }

    /// The first snapshot of a run of load.
    pub fn of_load(folder: &RunFolder, plan: &Plan, command: &str) -> Self {
        let mut writer = SnapshotWriter::begin(folder, "bench", command, plan.seed);
        let load = &plan.load;
        writer.base.warmup_s = load.warmup.as_secs_f64();
        writer.base.duration_s = load.duration.map(|duration| duration.as_secs_f64());
        writer.base.requests = load.requests;
        writer
    }

    /// Sets the run's zero, once it is known.
    pub fn set_zero(&mut self, clock: &Clock) {
        self.clock = *clock;
        self.base.started_at = store::rfc3339(clock.started());
    }

    /// Time since the run's zero or, before that is known, since its start.
    pub fn elapsed(&self) -> Timestamp {
        self.clock.now()
    }

    /// A snapshot of this run, without figures.
    pub fn at(&self, now: Timestamp, phase: RunPhase) -> RunProgress {
        RunProgress { phase, at_s: now.since(Timestamp::ZERO).as_secs_f64(), ..self.base.clone() }
    }

    /// Writes a snapshot. A failure only makes it invisible: the run's own files report what could not be stored.
    pub fn write(&self, snapshot: &RunProgress) {
        let _ = self.file.write(snapshot);
    }

    /// The last snapshot, from the run's document.
    pub fn done(&self, now: Timestamp, document: &Document) {
        self.write(&done(self.at(now, RunPhase::Done), document));
    }

    /// The last snapshot of a watch.
    pub fn watch_done(&self, now: Timestamp, document: &WatchDocument) {
        let watch = Some(watch(&document.watch, &WatchSecond::default()));
        let validity = Some(document.validity.clone());
        let started_at = document.run.started_at.clone();
        self.write(&RunProgress { watch, validity, started_at, ..self.at(now, RunPhase::Done) });
    }
}

/// The last snapshot of a run: its figures are those of the document.
fn done(base: RunProgress, document: &Document) -> RunProgress {
    let load = document.load.as_ref().map(|load| LoadProgress {
        loop_kind: load.loop_kind.clone(),
        offered: load.offered_requests,
        completed: load.completed,
        failed: load.failed.clone(),
        status: load.status.clone(),
        in_flight: load.in_flight_at_end,
        connections: 0,
        backlog: 0,
        response_time_ns: load.response_time_ns,
        send_lag_ns: load.send_lag_ns,
        by_distance: load.by_distance.clone(),
    });
    let path = document.path.as_ref().map(|path| PathProgress {
        profile: path.profile.clone(),
        clients: path.clients,
        configured_rtt_ns: path.configured_rtt_ns,
        measured_rtt_ns: path.measured_rtt_ns,
        timing_error_ns: Some(path.timing_error_ns).filter(|errors| errors.count > 0),
        packets: path.packets,
        bytes: path.bytes,
        drops: path.drops.clone(),
    });
    let watch = document.watch.as_ref().map(|part| watch(part, &WatchSecond::default()));
    let tap = document.tap.as_ref().map(|tap| {
        let views = || tap.client.iter().chain(&tap.server);
        TapProgress {
            connections: 0,
            exchanges: views().map(|view| view.exchanges).sum(),
            failed: views().map(|view| view.failed.values().sum::<u64>()).sum(),
            response_p50_ns: views().next().map(|view| view.response_ns).filter(|q| q.count > 0).map(|q| q.p50),
        }
    });
    let validity = Some(document.validity.clone());
    let started_at = document.run.started_at.clone();
    RunProgress { load, path, watch, tap, validity, started_at, ..base }
}

/// Figures of a capture; `last`: its last complete second.
pub fn watch(totals: &WatchPart, last: &WatchSecond) -> WatchProgress {
    WatchProgress {
        source: totals.source.clone(),
        packets: totals.packets,
        capture_drops: totals.capture_drops,
        connections: last.connections,
        in_flight: last.in_flight,
        requests: totals.requests,
        responses: totals.responses,
        handshake_rtt_ns: Some(totals.handshake_rtt_ns).filter(|rtt| rtt.count > 0),
    }
}

/// Figures of a tap at one time.
pub fn tap(glance: &Glance) -> TapProgress {
    TapProgress {
        connections: glance.live.open,
        exchanges: glance.exchanges,
        failed: glance.failed,
        response_p50_ns: glance.response_p50_ns,
    }
}

/// The main thread's part of snapshots of a running load.
#[derive(Debug, Default)]
pub struct MainThreadReadings(Mutex<Readings>);

/// Readings of the main thread.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// How the testbed's server ended, if it did.
    pub server_ended: Option<String>,
    /// Share of the time that the hypervisor took since the run began.
    pub steal_share: Option<f64>,
    /// Packets that yamabiko itself lost.
    pub mistaken: Option<UnintendedDrops>,
}

impl MainThreadReadings {
    /// Locks the current readings.
    pub fn lock(&self) -> MutexGuard<'_, Readings> {
        // The readings are consistent even after a panic of another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path's part of snapshots.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// The name in the document.
    pub profile: String,
    /// Configured RTT of every client.
    pub configured_rtt_ns: Quantiles,
    /// Live counters of the path.
    pub live: Arc<PathLive>,
    /// Whether any link has a rate or jitter.
    pub rtt_varies: bool,
    /// Whether the server is on another host.
    pub beyond: bool,
    /// Whether links have delay only.
    pub only_delays: bool,
}

/// Makes snapshots from the other threads' data, on the recorder's thread.
pub struct SnapshotBuilder {
    /// Writes the snapshots, and has their constant part.
    pub writer: SnapshotWriter,
    /// The run's clock.
    pub clock: Clock,
    /// The plan, for the validity checks.
    pub plan: Plan,
    /// The loops' counters.
    pub progress: Arc<Progress>,
    /// The path, if there is one.
    pub path: Option<PathFacts>,
    /// The device, if packets are captured.
    pub device: Option<String>,
    /// The main thread's readings.
    pub readings: Arc<MainThreadReadings>,
}

impl SnapshotBuilder {
    /// The builder as a function for the recorder's thread.
    pub fn for_recorder(self) -> ProgressNow {
        Box::new(move |counting, wire, table| self.snapshot(counting, wire, table))
    }

    /// The current snapshot. Takes a few milliseconds, mostly for quantiles.
    pub fn snapshot(&self, counting: &Counting, wire: Option<&CaptureTables>, table: StoredRows) -> RunProgress {
        let now = self.clock.now();
        let so_far = counting.tally.so_far();
        let watch = wire.zip(self.device.as_ref()).map(|(wire, device)| wire.snapshot(device));
        let (document, validity) = self.judged(now, &so_far, counting, wire, watch.as_ref(), table);
        let live = self.progress.live();
        // The loops' counters may be a tenth of a second older than the recorder's counts.
        let ended = so_far.completed + so_far.failed.values().sum::<u64>();
        let path = document.path.map(|path| PathProgress {
            profile: path.profile,
            clients: path.clients,
            configured_rtt_ns: path.configured_rtt_ns,
            measured_rtt_ns: path.measured_rtt_ns,
            timing_error_ns: Some(path.timing_error_ns).filter(|errors| errors.count > 0),
            packets: path.packets,
            bytes: path.bytes,
            drops: path.drops,
        });
        RunProgress {
            load: Some(LoadProgress {
                loop_kind: if self.plan.load.is_open() { "open" } else { "closed" }.to_owned(),
                offered: live.offered_measured.max(ended),
                completed: so_far.completed,
                failed: so_far.failed,
                status: so_far.status,
                in_flight: live.in_flight,
                connections: live.connections,
                backlog: live.backlog,
                response_time_ns: so_far.response_time_ns,
                send_lag_ns: so_far.send_lag_ns,
                by_distance: so_far.by_distance,
            }),
            path,
            watch,
            validity: Some(validity),
            ..self.writer.at(now, phase(self.progress.phase()))
        }
    }

    /// The document as far as the checks can judge it, and their results.
    fn judged(
        &self,
        now: Timestamp,
        so_far: &SoFar,
        counting: &Counting,
        wire: Option<&CaptureTables>,
        watch: Option<&WatchProgress>,
        table: StoredRows,
    ) -> (Document, Validity) {
        let readings = self.readings.lock().clone();
        let ended = so_far.completed + so_far.failed.values().sum::<u64>();
        let delays = counting.delays.bounds(counting.tally.response_times());
        let load = document::Load {
            generator_delay: Some(validity::generator_delay(&delays)),
            offered_requests: ended,
            completed: so_far.completed,
            failed: so_far.failed.clone(),
            status: so_far.status.clone(),
            response_time_ns: so_far.response_time_ns,
            send_lag_ns: so_far.send_lag_ns,
            unsolicited: self.progress.live().unsolicited(),
            ..document::Load::default()
        };
        let figures = wire.map(CaptureTables::figures);
        let host = document::Host { steal_share: readings.steal_share, ..document::Host::default() };
        let document = Document {
            schema: SCHEMA.into(),
            run: Run { host, ..Run::default() },
            validity: Validity::from_checks(Vec::new()),
            load: Some(load),
            path: self.path.as_ref().map(|path| path_part(path, counting, wire)),
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: None,
        };
        // Only packets captured so far are judged; checks that need the capture thread's own state follow at the end.
        let watched = watch.map(|watch| Watched { drops: watch.capture_drops, ..Watched::default() });
        let wire = watched.as_ref().zip(figures).map(|(watched, figures)| WireEvidence {
            watched,
            figures,
            phase_ns: now.since(wire.map_or(now, CaptureTables::measured_from)).as_nanos() as f64,
        });
        let evidence = Evidence {
            plan: &self.plan,
            loop_health: &self.progress.health(),
            delays: &delays,
            little: &LittleTerms::default(),
            levels: &Levels::default(),
            in_flight_by_second: &[],
            unintended_drops: readings.mistaken,
            cap_hits: self.progress.live().cap_hits,
            wall_drift: None,
            table: Some(table),
            store_error: None,
            server_ended: readings.server_ended.as_deref(),
            gave_up: self.progress.gave_up(),
            all_refused: None,
            target: "",
            handshake_error: counting.handshakes.as_ref().map(|handshakes| handshakes.measured_error().quantiles()),
            rtt_varies: self.path.as_ref().is_some_and(|path| path.rtt_varies),
            beyond: self.path.as_ref().is_some_and(|path| path.beyond),
            only_delays: self.path.as_ref().is_some_and(|path| path.only_delays),
            wire,
        };
        let validity = Validity::from_checks(validity::midway(&document, &evidence));
        (document, validity)
    }
}

/// The path's part of the document so far: handshakes from the capture, if there is one, as at the end.
fn path_part(path: &PathFacts, counting: &Counting, wire: Option<&CaptureTables>) -> document::Path {
    let by_wire = wire.map(CaptureTables::figures).filter(|figures| !figures.handshake_rtt.is_empty());
    let by_load = counting.handshakes.as_ref().filter(|handshakes| !handshakes.rtts().is_empty());
    let (measured, error) = match (by_wire, by_load) {
        (Some(figures), _) => (Some(&figures.handshake_rtt), Some(&figures.handshake_error)),
        (None, Some(handshakes)) => (Some(handshakes.rtts()), Some(handshakes.error())),
        (None, None) => (None, None),
    };
    let part = self::path(path);
    document::Path {
        profile: part.profile,
        clients: part.clients,
        configured_rtt_ns: part.configured_rtt_ns,
        measured_rtt_ns: measured.map(|measured| measured.quantiles()),
        rtt_error_ns: error.filter(|error| !error.is_empty()).map(|error| error.quantiles()),
        timing_error_ns: part.timing_error_ns.unwrap_or_default(),
        packets: part.packets,
        bytes: part.bytes,
        drops: part.drops,
        ..document::Path::default()
    }
}

/// The path's own counters so far.
pub fn path(path: &PathFacts) -> PathProgress {
    let each = schema::Direction::BOTH.map(|direction| path.live.carried(direction));
    let sum = |of: fn(&crate::drive::path_live::Carried) -> u64| each.iter().map(of).sum::<u64>();
    let (lost, full) = (sum(|carried| carried.lost), sum(|carried| carried.queue_full));
    let drops = [
        (DropCause::Loss.name(), lost),
        (DropCause::QueueFull.name(), full),
        ("other", sum(|carried| carried.dropped).saturating_sub(lost + full)),
    ];
    PathProgress {
        profile: path.profile.clone(),
        clients: path.configured_rtt_ns.count,
        configured_rtt_ns: path.configured_rtt_ns,
        measured_rtt_ns: None,
        timing_error_ns: path.live.timing_errors().map(|errors| errors.quantiles()),
        packets: sum(|carried| carried.packets),
        bytes: sum(|carried| carried.bytes),
        drops: drops
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
    }
}

/// A loop's phase in a snapshot.
pub fn phase(phase: Phase) -> RunPhase {
    match phase {
        Phase::Warmup => RunPhase::Warmup,
        Phase::Measured => RunPhase::Measured,
        // The run's files are incomplete until then.
        Phase::Drain | Phase::Done => RunPhase::Drain,
    }
}
