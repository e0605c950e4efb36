//! The results of all stages of a run of load that has ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use load::{Levels, LoadSpec, SampleLog};
use polymix::OriginFigures;
use schema::CacheFigures;
use sys::clock::Clock;
use units::Timestamp;

use super::instruments::Capture;
use super::main_thread::MainThread;
use super::network::{MachineCounters, Network};
use super::resolve::Resolved;
use super::resources::Resources;
use super::spec;
use crate::drive::path_io::PathIo;
use crate::http2_frames::FrameLog;
use crate::recording_folder::RecordingFolder;
use crate::shards::ShardEnd;
use validity::evidence::{StoredRows, Watched, WireFigures};

/// Results of a run that has ended.
pub(super) struct Ended<'a> {
    /// The command that repeats the run.
    pub command: &'a str,
    pub resolved: &'a Resolved,
    pub resources: &'a Resources,
    pub clock: Clock,
    /// Start of the load.
    pub start: Timestamp,
    /// Results of all loops as one.
    pub shard: ShardEnd,
    /// The path, with its counters.
    pub path: Option<PathIo>,
    /// Gauges of all loops together.
    pub levels: Levels,
    /// Their samples, if this is a part of a load.
    pub samples: Option<SampleLog>,
    /// Counted results of the packet capture.
    pub wire: Option<WireFigures>,
    /// Rows of the table of requests, if there is one.
    pub table: Option<StoredRows>,
    /// First error of writing the run's tables.
    pub store_error: Option<String>,
    /// Results of a cache benchmark's workload.
    pub mix: Option<Mix>,
    pub capture: Capture,
    /// Frames of HTTP/2, if they were kept.
    pub http2_frames: Option<Arc<FrameLog>>,
    pub network: Network,
    pub main_thread: MainThread,
    pub folder: RecordingFolder,
    /// Counters of the machine before and after the load.
    pub before: MachineCounters,
    pub after: MachineCounters,
    /// Counters of the testbed's origin, if it still responded.
    pub origin: Option<OriginFigures>,
}

impl Ended<'_> {
    /// Results of the packet capture.
    pub fn wire(&self) -> Option<(&Watched, &WireFigures)> {
        self.capture.packets.as_ref().zip(self.wire.as_ref())
    }
}

/// Results of a cache benchmark's workload.
pub(super) struct Mix {
    /// Name of the workload.
    pub name: String,
    pub figures: CacheFigures,
    /// Exchanges missing in their table, because memory was full or the disk failed.
    pub left_out: u64,
    /// Movement of the wall clock against the run's clock, since the run's zero.
    pub wall_drift: Duration,
}

/// Results of a cache benchmark's workload, if the load is one.
pub(super) fn mix(figures: Option<CacheFigures>, left_out: u64, load_spec: &LoadSpec, clock: &Clock) -> Option<Mix> {
    let (figures, world) = figures.zip(spec::world(load_spec))?;
    Some(Mix { name: world.spec.name.clone(), figures, left_out, wall_drift: wall_drift(clock) })
}

/// Magnitude of the wall clock's movement against the run's clock since the run's zero.
fn wall_drift(clock: &Clock) -> Duration {
    let by_run = clock.started() + Duration::from_nanos(clock.now().as_nanos());
    let wall = SystemTime::now();
    wall.duration_since(by_run).unwrap_or_else(|behind| behind.duration())
}
