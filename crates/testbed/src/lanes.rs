//! The lanes of a run's load: in threads of this process, or in processes of their own.
//!
//! ```text
//!   this process                                    another process (from `LanePlan::in_processes`)
//!   lane 0: loop: path and load --\                 lane 1: loop: load --> relay --frames--\
//!   lane 1: loop: load ------------> recorder       ..                                     |
//!   ..                          <-- reader <-----------------------------------------------'
//! ```
//!
//! Each lane has its own engine, poller, sockets and clients. They share the schedule, which each draws for itself
//! (docs/decisions/0015), and the moments: one clock, one start, one moment at which a run that is stopped ends. What they
//! record is one run's.

pub mod child;
pub mod frame;
pub mod process;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{Lane, Live, Load, MixLive};
use schema::document;
use serde::{Deserialize, Serialize};
use sys::signal::Wake;
use units::Timestamp;

use crate::drive::progress::{Phase, Progress};
use plan::Engine;
use validity::evidence::LoopHealth;

/// A stop that is asked for ends the measured phase so much later: every lane has heard of it by then.
pub const STOP_LEAD: Duration = Duration::from_millis(20);

/// How many lanes there are, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlan {
    /// Number of lanes, at least 1.
    pub of: u32,
    /// All but the first are in processes of their own, else in threads of this one.
    pub in_processes: bool,
}

impl LanePlan {
    /// Lanes for `threads` threads and `connections` connections, of which one process may have `connections_each`.
    pub fn new(threads: u32, connections: u32, connections_each: u32) -> Self {
        let processes = connections.div_ceil(connections_each.max(1)).max(1);
        let in_processes = processes > 1;
        let of = if in_processes { processes.max(threads) } else { threads };
        LanePlan { of: of.clamp(1, connections.max(1)), in_processes }
    }

    /// Lane `index`.
    pub const fn lane(self, index: u32) -> Lane {
        Lane { index, of: self.of }
    }

    /// Processes in all, this one included.
    pub const fn processes(self) -> u32 {
        if self.in_processes { self.of } else { 1 }
    }

    /// Threads of this process that have a lane.
    pub const fn threads(self) -> u32 {
        if self.in_processes { 1 } else { self.of }
    }
}

/// What is left of a lane when its loop has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneEnd {
    /// Its measured phase.
    pub measured: (Timestamp, Option<Timestamp>),
    /// Its counters.
    pub live: Live,
    /// Requests of the measured phase that had not ended.
    pub unfinished: u64,
    /// Its counters of a mix.
    pub mix: MixLive,
    /// The first request of the workload, as it was sent; of a mix the first that was.
    pub first_request: Vec<u8>,
    /// Head of its first whole response.
    pub first_head: Option<Vec<u8>>,
    /// Why responses of the measured phase could not be read, by reason.
    pub malformed_responses: Vec<document::MalformedResponses>,
    /// The loop's own health.
    pub health: LoopHealth,
    /// The engine used.
    pub engine: Engine,
    /// What its TLS handshakes settled.
    pub tls: Option<document::Tls>,
    /// How its loop was served, in words.
    pub scheduling: String,
    /// The core it was held to, where it was.
    pub core: Option<usize>,
}

impl LaneEnd {
    /// Of a load whose loop has ended.
    pub fn of(load: &Load, health: LoopHealth, engine: Engine, tls: Option<document::Tls>) -> Self {
        LaneEnd {
            measured: load.measured(),
            live: load.live(),
            mix: load.mix_live(),
            unfinished: load.unfinished_measured(),
            first_request: load.first_request().to_vec(),
            first_head: load.first_head().map(<[u8]>::to_vec),
            malformed_responses: load.malformed_responses(),
            health,
            engine,
            tls,
            scheduling: String::new(),
            core: None,
        }
    }

    /// All lanes as one load: counts add up, the phase ends with the last, the longest standstill is the run's.
    ///
    /// # Panics
    /// Without a lane.
    pub fn merged(lanes: &[LaneEnd]) -> LaneEnd {
        let mut all = lanes.first().expect("a run has a lane").clone();
        for lane in &lanes[1..] {
            all.measured.1 = all.measured.1.max(lane.measured.1);
            all.live = all.live.plus(lane.live);
            all.unfinished += lane.unfinished;
            if all.first_request.is_empty() {
                all.first_request.clone_from(&lane.first_request);
            }
            all.mix = all.mix.plus(lane.mix);
            all.first_head = all.first_head.or_else(|| lane.first_head.clone());
            all.tls = match (all.tls, &lane.tls) {
                (Some(tls), Some(other)) => Some(merged_tls(tls, other)),
                (one, other) => one.or_else(|| other.clone()),
            };
        }
        all.malformed_responses = load::merged_faults(lanes.iter().map(|lane| &lane.malformed_responses[..]));
        all.health = merged_health(lanes);
        all
    }
}

/// One loop's health for all: as busy as the busiest loop, or the busiest core where several loops share one. Such loops
/// wait for each other, which none of them sees as work of its own.
fn merged_health(lanes: &[LaneEnd]) -> LoopHealth {
    let mut by_core = BTreeMap::<usize, Duration>::new();
    for (lane, core) in lanes.iter().filter_map(|lane| Some((lane, lane.core?))) {
        *by_core.entry(core).or_default() += lane.health.cpu;
    }
    let wall = lanes.iter().map(|lane| lane.health.wall).max().unwrap_or_default();
    let of_wall = |cpu: Duration| if wall.is_zero() { 0.0 } else { cpu.as_secs_f64() / wall.as_secs_f64() };
    let loops = lanes.iter().map(|lane| lane.health.busy_share());
    let busy = loops.chain(by_core.into_values().map(of_wall)).fold(0.0, f64::max).min(1.0);
    LoopHealth {
        standstill: lanes.iter().map(|lane| lane.health.standstill).max().unwrap_or_default(),
        idle: wall.mul_f64(1.0 - busy),
        wall,
        cpu: lanes.iter().map(|lane| lane.health.cpu).sum(),
    }
}

/// The health of several loops while they go: of the busiest of them, with the longest standstill of any.
fn worst_health(loops: impl Iterator<Item = LoopHealth>) -> LoopHealth {
    loops.fold(LoopHealth::default(), |worst, health| {
        let busiest = if health.busy_share() > worst.busy_share() { health } else { worst };
        LoopHealth { standstill: worst.standstill.max(health.standstill), ..busiest }
    })
}

fn merged_tls(mut all: document::Tls, other: &document::Tls) -> document::Tls {
    let add = |into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>| {
        from.iter().for_each(|(name, count)| *into.entry(name.clone()).or_default() += count);
    };
    all.handshakes_full += other.handshakes_full;
    all.handshakes_resumed += other.handshakes_resumed;
    let handshakes = all.handshakes_full + all.handshakes_resumed;
    all.resumed_share = (handshakes > 0).then(|| all.handshakes_resumed as f64 / handshakes as f64);
    add(&mut all.version, &other.version);
    add(&mut all.cipher_suite, &other.cipher_suite);
    add(&mut all.alpn, &other.alpn);
    all.first_failure = all.first_failure.or_else(|| other.first_failure.clone());
    all
}

/// How a lane is told something.
pub enum Line<'a> {
    /// It is a thread of this process, which looks at its progress when woken.
    Thread(&'a Wake),
    /// It is another process.
    Process(&'a UnixStream),
}

/// The lanes as the main thread sees them while they run.
pub struct Running<'a> {
    /// The run as one: what the witnesses and the recorder look at.
    pub run: Arc<Progress>,
    /// Each lane's own, and the line to it. A lane alone has the run's own.
    pub lanes: Vec<(Arc<Progress>, Line<'a>)>,
    lost: AtomicBool,
}

impl<'a> Running<'a> {
    /// Lanes that run.
    pub fn new(run: Arc<Progress>, lanes: Vec<(Arc<Progress>, Line<'a>)>) -> Self {
        Running { run, lanes, lost: AtomicBool::new(false) }
    }

    /// Set when a lane was lost: the others end at once.
    pub fn lost(&self) -> &AtomicBool {
        &self.lost
    }

    /// Brings the run's progress up to the lanes': it is where the last of them is. Called before looking at it.
    pub fn look(&self) {
        if self.lost.load(Ordering::Acquire) && self.run.asked() < 2 {
            self.ask(2, Timestamp::ZERO);
        }
        let lanes = || self.lanes.iter().map(|(progress, _)| progress);
        if lanes().any(|progress| Arc::ptr_eq(progress, &self.run)) {
            return;
        }
        // All know it. A stop that was asked for later, while what was in flight was waited for, does not move it.
        let ends = lanes().map(|progress| progress.measured_end()).collect::<Option<Vec<_>>>();
        if let Some(end) = ends.and_then(|ends| ends.into_iter().max()) {
            self.run.set_measured_end(self.run.stop_at().map_or(end, |stop_at| end.min(stop_at)));
        }
        self.run.store(lanes().fold(Live::default(), |sum, progress| sum.plus(progress.live())));
        self.run.store_mix(lanes().fold(MixLive::default(), |sum, progress| sum.plus(progress.mix())));
        self.run.store_moment(lanes().map(|progress| progress.moment()).min().unwrap_or_default());
        self.run.store_health(worst_health(lanes().map(|progress| progress.health())));
        // The measured phase begins with the first lane, as it does for its requests, and ends with the last.
        let last = lanes().map(|progress| progress.phase()).min().unwrap_or(Phase::Done);
        let begun = last == Phase::Warmup && lanes().any(|progress| progress.phase() > Phase::Warmup);
        self.run.enter(if begun { Phase::Measured } else { last });
        // One that gives up does so for all.
        if let Some(stop_at) = lanes().filter(|progress| progress.gave_up()).find_map(|progress| progress.stop_at())
            && !self.run.gave_up()
        {
            self.run.give_up(true);
            self.ask(1, stop_at);
        }
    }

    /// Asks every lane to end, as [`Progress::ask`] does.
    pub fn ask(&self, times: u32, at: Timestamp) {
        self.run.ask(times, at);
        let at = self.run.stop_at().unwrap_or(at);
        if times == 1 {
            self.run.set_measured_end(self.run.measured_end().map_or(at, |end| end.min(at)));
        }
        for (progress, line) in &self.lanes {
            progress.ask(times, at);
            match line {
                Line::Thread(wake) => wake.wake(),
                // A lane that is gone is told of by its reader.
                Line::Process(link) => drop(frame::ask(&mut &**link, frame::Ask { times, at })),
            }
        }
    }
}

#[cfg(test)]
mod tests;
