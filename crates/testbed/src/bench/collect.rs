//! A run of load that has ended, in parts: what every stage made or counted.

use std::time::{Duration, SystemTime};

use load::{Levels, LoadSpec};
use polymix::OriginFigures;
use schema::CacheFigures;
use sys::clock::Clock;

use super::instruments::Capture;
use super::main_thread::MainThread;
use super::network::{MachineCounters, Network};
use super::resolve::Resolved;
use super::resources::Resources;
use super::spec;
use crate::drive::path_io::PathIo;
use crate::lanes::LaneEnd;
use crate::recording_folder::RecordingFolder;
use validity::evidence::{Kept, Watched, WireFigures};

/// A run that has ended.
pub(super) struct Ended<'a> {
    /// The command that repeats it.
    pub command: &'a str,
    pub resolved: &'a Resolved,
    pub resources: &'a Resources,
    pub clock: Clock,
    /// All loops as one.
    pub lane: LaneEnd,
    /// The path, with its counters.
    pub path: Option<PathIo>,
    /// Gauges of all loops together.
    pub levels: Levels,
    /// What packets at the server's end showed, counted.
    pub wire: Option<WireFigures>,
    /// What is in the table of requests, where there is one.
    pub table: Option<Kept>,
    /// First error of writing the run's tables.
    pub store_error: Option<String>,
    /// What a cache bench's workload found.
    pub mix: Option<Mix>,
    pub capture: Capture,
    pub network: Network,
    pub main_thread: MainThread,
    pub folder: RecordingFolder,
    /// The machine's counters before the load and after it.
    pub before: MachineCounters,
    pub after: MachineCounters,
    /// What the origin counted that the testbed started, if it still answered.
    pub origin: Option<OriginFigures>,
}

impl Ended<'_> {
    /// What packets at the server's end showed.
    pub fn wire(&self) -> Option<(&Watched, &WireFigures)> {
        self.capture.packets.as_ref().zip(self.wire.as_ref())
    }
}

/// What a cache bench's workload found about caches.
pub(super) struct Mix {
    /// Name of the workload.
    pub name: String,
    pub figures: CacheFigures,
    /// Exchanges that are not in their table, for want of room or of a disk that takes them.
    pub left_out: u64,
    /// How far the wall clock has run apart from the run's, since the run's zero.
    pub wall_drift: Duration,
}

/// What a cache bench's workload found, where the load is one.
pub(super) fn mix(figures: Option<CacheFigures>, left_out: u64, load_spec: &LoadSpec, clock: &Clock) -> Option<Mix> {
    let (figures, world) = figures.zip(spec::world(load_spec))?;
    Some(Mix { name: world.spec.name.clone(), figures, left_out, wall_drift: wall_drift(clock) })
}

/// How far the wall clock has run apart from the run's own since the run's zero, either way.
fn wall_drift(clock: &Clock) -> Duration {
    let by_run = clock.started() + Duration::from_nanos(clock.now().as_nanos());
    let wall = SystemTime::now();
    wall.duration_since(by_run).unwrap_or_else(|behind| behind.duration())
}
