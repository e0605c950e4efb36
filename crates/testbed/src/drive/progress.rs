//! Shared progress of an event loop: read by the main thread, which also requests the loop to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use validity::evidence::LoopHealth;

use load::{CacheCounters, Live};
use units::Timestamp;

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Load is offered but not counted.
    Warmup,
    /// The measured phase.
    Measured,
    /// No more load is offered; requests in flight may finish.
    Drain,
    /// The loop has ended.
    Done,
}

/// Shared between an event loop and the main thread. The loop stores ten times a second; results do not use it.
#[derive(Debug)]
pub struct Progress {
    phase: AtomicU32,
    measured_end: AtomicU64,
    stops_requested: AtomicU32,
    stop_at: AtomicU64,
    gave_up: AtomicBool,
    /// When the counters were last stored.
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
    /// Loop health in the measured phase so far, in ns.
    longest_stall: AtomicU64,
    idle: AtomicU64,
    wall: AtomicU64,
}

/// A reading of [`Progress`]. Counts are since the run's zero, warm-up included.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Phase of the run.
    pub phase: Phase,
    /// Requests scheduled.
    pub offered: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests scheduled and not started.
    pub backlog: u64,
    /// Of a cache workload: plain GETs that succeeded, and hits among them.
    pub mix: CacheCounters,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            phase: AtomicU32::new(0),
            measured_end: AtomicU64::new(u64::MAX),
            stops_requested: AtomicU32::new(0),
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
            longest_stall: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            wall: AtomicU64::new(0),
        }
    }
}

impl Progress {
    /// Sets the end of the measured phase, in the future or the past, as soon as it is known.
    pub fn set_measured_end(&self, end: Timestamp) {
        self.measured_end.store(end.as_nanos(), Ordering::Release);
    }

    /// The end of the measured phase, once it is known.
    pub fn measured_end(&self) -> Option<Timestamp> {
        let end = self.measured_end.load(Ordering::Acquire);
        (end != u64::MAX).then_some(Timestamp::from_nanos(end))
    }

    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// Phase of the run.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Warmup,
            1 => Phase::Measured,
            2 => Phase::Drain,
            _ => Phase::Done,
        }
    }

    /// Requests the loop to end: 1 ends the measured phase at `at`, 2 and more everything immediately. Only the first
    /// time counts: it is the same for every shard of a run. Make the loop's stop descriptor readable afterwards.
    pub fn request_stop(&self, times: u32, at: Timestamp) {
        let at = at.as_nanos().min(u64::MAX - 1);
        // An earlier request has already set the time.
        let _ = self.stop_at.compare_exchange(u64::MAX, at, Ordering::AcqRel, Ordering::Acquire);
        self.stops_requested.fetch_max(times, Ordering::Release);
    }

    /// Requested end of the measured phase, if a stop was requested.
    pub fn stop_at(&self) -> Option<Timestamp> {
        let at = self.stop_at.load(Ordering::Acquire);
        (at != u64::MAX).then_some(Timestamp::from_nanos(at))
    }

    /// The highest `times` of all stop requests: 0, 1 (end the measured phase), or 2 and more (end everything).
    pub fn stops_requested(&self) -> u32 {
        self.stops_requested.load(Ordering::Acquire)
    }

    /// Records whether the loop ended the measured phase itself, because the backlog was too long.
    pub fn give_up(&self, gave_up: bool) {
        self.gave_up.fetch_or(gave_up, Ordering::AcqRel);
    }

    /// Whether the loop ended the measured phase itself.
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }

    /// Stores the loop's counters.
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

    /// Stores the time of the loop's counters.
    pub fn store_time(&self, at: Timestamp) {
        self.at.store(at.as_nanos(), Ordering::Release);
    }

    /// Latest time of the counters; zero before the first.
    pub fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.at.load(Ordering::Acquire))
    }

    /// Stores the loop's health in the measured phase so far, without its CPU time, which takes a system call.
    pub fn store_health(&self, health: LoopHealth) {
        let nanos = units::time::saturating_nanos;
        self.longest_stall.store(nanos(health.longest_stall), Ordering::Relaxed);
        self.idle.store(nanos(health.idle), Ordering::Relaxed);
        self.wall.store(nanos(health.wall), Ordering::Relaxed);
    }

    /// The stored loop health.
    pub fn health(&self) -> LoopHealth {
        let read = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        LoopHealth {
            longest_stall: read(&self.longest_stall),
            idle: read(&self.idle),
            wall: read(&self.wall),
            cpu: Duration::ZERO,
            run_queue_wait: None,
        }
    }

    /// Stores the loop's counters of a cache workload.
    pub fn store_mix(&self, mix: CacheCounters) {
        let CacheCounters { basic_gets, hits, crowded } = mix;
        self.basic_gets.store(basic_gets, Ordering::Relaxed);
        self.hits.store(hits, Ordering::Relaxed);
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// The stored counters of a cache workload.
    pub fn mix(&self) -> CacheCounters {
        CacheCounters {
            basic_gets: self.basic_gets.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            crowded: self.crowded.load(Ordering::Relaxed),
        }
    }

    /// The stored counters of the loop.
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

    /// All values.
    pub fn snapshot(&self) -> Snapshot {
        let Live { offered, completed, failed, in_flight, connections, backlog, .. } = self.live();
        let mix = self.mix();
        Snapshot { phase: self.phase(), offered, completed, failed, in_flight, connections, backlog, mix }
    }
}
