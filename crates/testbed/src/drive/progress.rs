//! What the main thread may see of a running loop, and how it asks the loop to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use validity::evidence::LoopHealth;

use load::{Live, MixLive};
use units::Timestamp;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Load is offered but not counted.
    Warmup,
    /// The measured phase.
    Measured,
    /// No more load is offered; what is in flight may finish.
    Drain,
    /// The loop has ended.
    Done,
}

/// Shared between the loop and the main thread. The loop stores ten times a second; nothing here is in the results.
#[derive(Debug)]
pub struct Progress {
    phase: AtomicU32,
    measured_end: AtomicU64,
    asked: AtomicU32,
    stop_at: AtomicU64,
    gave_up: AtomicBool,
    /// When the counters were stored last.
    at: AtomicU64,
    offered: AtomicU64,
    offered_measured: AtomicU64,
    started: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    in_flight: AtomicU64,
    connections: AtomicU64,
    connections_opened: AtomicU64,
    backlog: AtomicU64,
    cap_hits: AtomicU64,
    basic_gets: AtomicU64,
    hits: AtomicU64,
    crowded: AtomicU64,
    /// Of the loop, in the measured phase so far, in ns.
    standstill: AtomicU64,
    idle: AtomicU64,
    wall: AtomicU64,
}

/// A reading of [`Progress`]. Counts are since the run's zero, warm-up included.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Where the run stands.
    pub phase: Phase,
    /// Requests intended.
    pub offered: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests started and not done.
    pub in_flight: u64,
    /// Connections in process.
    pub connections: u64,
    /// Requests intended and not started.
    pub backlog: u64,
    /// Of a mix: plain GETs that ended well, and hits among them.
    pub mix: MixLive,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            phase: AtomicU32::new(0),
            measured_end: AtomicU64::new(u64::MAX),
            asked: AtomicU32::new(0),
            stop_at: AtomicU64::new(u64::MAX),
            gave_up: AtomicBool::new(false),
            at: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            offered_measured: AtomicU64::new(0),
            started: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_opened: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            cap_hits: AtomicU64::new(0),
            basic_gets: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
            standstill: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            wall: AtomicU64::new(0),
        }
    }
}

impl Progress {
    /// The measured phase ends, or has ended, at `end`: said as soon as it is known.
    pub fn set_measured_end(&self, end: Timestamp) {
        self.measured_end.store(end.as_nanos(), Ordering::Release);
    }

    /// The end of the measured phase, once it is known.
    pub fn measured_end(&self) -> Option<Timestamp> {
        let end = self.measured_end.load(Ordering::Acquire);
        (end != u64::MAX).then_some(Timestamp::from_nanos(end))
    }

    /// The loop enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// Where the run stands.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Warmup,
            1 => Phase::Measured,
            2 => Phase::Drain,
            _ => Phase::Done,
        }
    }

    /// Asks the loop to end: 1 ends the measured phase at `at`, 2 and more everything at once. Only the first moment
    /// counts: it is the same for every lane of a run. Make the loop's stop descriptor readable afterwards.
    pub fn ask(&self, times: u32, at: Timestamp) {
        let at = at.as_nanos().min(u64::MAX - 1);
        // Whoever asked before named the moment.
        let _ = self.stop_at.compare_exchange(u64::MAX, at, Ordering::AcqRel, Ordering::Acquire);
        self.asked.fetch_max(times, Ordering::Release);
    }

    /// When the measured phase was asked to end, if it was.
    pub fn stop_at(&self) -> Option<Timestamp> {
        let at = self.stop_at.load(Ordering::Acquire);
        (at != u64::MAX).then_some(Timestamp::from_nanos(at))
    }

    /// What was asked.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::Acquire)
    }

    /// Notes whether the loop ended the measured phase by itself because the backlog had grown beyond hope.
    pub fn give_up(&self, hopeless: bool) {
        self.gave_up.fetch_or(hopeless, Ordering::AcqRel);
    }

    /// Whether it did.
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }

    /// The loop's counters.
    pub fn store(&self, live: Live) {
        self.offered.store(live.offered, Ordering::Relaxed);
        self.offered_measured.store(live.offered_measured, Ordering::Relaxed);
        self.started.store(live.started, Ordering::Relaxed);
        self.connections_opened.store(live.connections_opened, Ordering::Relaxed);
        self.cap_hits.store(live.cap_hits, Ordering::Relaxed);
        self.completed.store(live.completed, Ordering::Relaxed);
        self.failed.store(live.failed, Ordering::Relaxed);
        self.refused.store(live.refused, Ordering::Relaxed);
        self.in_flight.store(live.in_flight, Ordering::Relaxed);
        self.connections.store(live.connections, Ordering::Relaxed);
        self.backlog.store(live.backlog, Ordering::Relaxed);
    }

    /// The moment of which the loop's counters are.
    pub fn store_moment(&self, at: Timestamp) {
        self.at.store(at.as_nanos(), Ordering::Release);
    }

    /// The moment of which the counters are, at the latest; zero before the first.
    pub fn moment(&self) -> Timestamp {
        Timestamp::from_nanos(self.at.load(Ordering::Acquire))
    }

    /// How the loop has fared in the measured phase so far. Its CPU time is not told: to ask for it is a system call.
    pub fn store_health(&self, health: LoopHealth) {
        let nanos = units::time::saturating_nanos;
        self.standstill.store(nanos(health.standstill), Ordering::Relaxed);
        self.idle.store(nanos(health.idle), Ordering::Relaxed);
        self.wall.store(nanos(health.wall), Ordering::Relaxed);
    }

    /// How the loop has fared so far, as far as it is stored.
    pub fn health(&self) -> LoopHealth {
        let read = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        LoopHealth {
            standstill: read(&self.standstill),
            idle: read(&self.idle),
            wall: read(&self.wall),
            cpu: Duration::ZERO,
        }
    }

    /// The loop's counters of a mix.
    pub fn store_mix(&self, mix: MixLive) {
        let MixLive { basic_gets, hits, crowded } = mix;
        self.basic_gets.store(basic_gets, Ordering::Relaxed);
        self.hits.store(hits, Ordering::Relaxed);
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// The loop's counters of a mix, as far as they are stored.
    pub fn mix(&self) -> MixLive {
        MixLive {
            basic_gets: self.basic_gets.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            crowded: self.crowded.load(Ordering::Relaxed),
        }
    }

    /// The loop's counters, as far as they are stored.
    pub fn live(&self) -> Live {
        Live {
            offered: self.offered.load(Ordering::Relaxed),
            offered_measured: self.offered_measured.load(Ordering::Relaxed),
            started: self.started.load(Ordering::Relaxed),
            connections_opened: self.connections_opened.load(Ordering::Relaxed),
            cap_hits: self.cap_hits.load(Ordering::Relaxed),
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            backlog: self.backlog.load(Ordering::Relaxed),
            ..Live::default()
        }
    }

    /// All of it.
    pub fn snapshot(&self) -> Snapshot {
        let Live { offered, completed, failed, in_flight, connections, backlog, .. } = self.live();
        let mix = self.mix();
        Snapshot { phase: self.phase(), offered, completed, failed, in_flight, connections, backlog, mix }
    }
}
