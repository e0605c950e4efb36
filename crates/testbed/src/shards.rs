//! The shards of a run's load: in threads of this process, or in their own processes.
//!
//! ```text
//!   this process                                    another process (from `ShardPlan::in_processes`)
//!   shard 0: loop: path and load --\                 shard 1: loop: load --> relay --frames--\
//!   shard 1: loop: load ------------> recorder       ..                                     |
//!   ..                          <-- reader <-----------------------------------------------'
//! ```
//!
//! Each shard has its own engine, poller, sockets and clients. Shards share the schedule, which each computes itself
//! (docs/decisions/0015), and all times: one clock, one start, one end of a stopped run. Their records are those of one
//! run.

pub mod child;
pub mod frame;
pub mod process;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{CacheCounters, Live, Load, Shard};
use schema::document;
use serde::{Deserialize, Serialize};
use sys::signal::Wake;
use units::Timestamp;

use crate::drive::progress::{Phase, Progress};
use plan::Engine;
use validity::evidence::LoopHealth;

/// Time between a stop request and the end of the measured phase: every shard has received it by then.
pub const STOP_LEAD: Duration = Duration::from_millis(20);

/// Number of shards, and where they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPlan {
    /// Number of shards, at least 1.
    pub of: u32,
    /// All but the first are in their own processes, otherwise in threads of this one.
    pub in_processes: bool,
    /// The part of this machine among several; all of the load on a single one.
    pub machine: Shard,
}

impl ShardPlan {
    /// Shards for `threads` threads and `connections` connections, of which one process may have `connections_each`.
    pub fn new(threads: u32, connections: u32, connections_each: u32) -> Self {
        let processes = connections.div_ceil(connections_each.max(1)).max(1);
        let in_processes = processes > 1;
        let of = if in_processes { processes.max(threads) } else { threads };
        ShardPlan { of: of.clamp(1, connections.max(1)), in_processes, machine: Shard::WHOLE }
    }

    /// The shards of this machine's part of a load.
    #[must_use]
    pub const fn of_machine(self, machine: Shard) -> Self {
        ShardPlan { machine, ..self }
    }

    /// Shard `index` of this machine.
    pub const fn shard(self, index: u32) -> Shard {
        Shard::nested(self.machine, Shard::new(index, self.of))
    }

    /// Share of shard `index` of `n` items of this machine.
    pub const fn share(self, index: u32, n: u64) -> u64 {
        Shard::new(index, self.of).share(n)
    }

    /// Number of processes, including this one.
    pub const fn processes(self) -> u32 {
        if self.in_processes { self.of } else { 1 }
    }

    /// Threads of this process with a shard.
    pub const fn threads(self) -> u32 {
        if self.in_processes { 1 } else { self.of }
    }
}

/// Results of a shard when its loop has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardEnd {
    /// The shard's measured phase.
    pub measured: (Timestamp, Option<Timestamp>),
    /// The load's counters.
    pub live: Live,
    /// Requests of the measured phase in flight at the end.
    pub unfinished: u64,
    /// Arrivals of the whole schedule in the measured phase ([`Load::arrivals_measured`]), if each is one request.
    pub arrivals_of_all: Option<u64>,
    /// The shard's counters of a cache workload.
    pub mix: CacheCounters,
    /// The first request of the workload, as sent; of a cache workload the first that was sent.
    pub first_request: Vec<u8>,
    /// Head of its first complete response.
    pub first_head: Option<Vec<u8>>,
    /// Malformed responses of the measured phase, by reason.
    pub malformed_responses: Vec<document::MalformedResponses>,
    /// The loop's own health.
    pub health: LoopHealth,
    /// The engine used.
    pub engine: Engine,
    /// Negotiated parameters of its TLS handshakes.
    pub tls: Option<document::Tls>,
    /// Its QUIC connections.
    pub quic: Option<document::Quic>,
    /// Scheduling class of its loop, as text.
    pub scheduling: String,
    /// The core it was pinned to, if any.
    pub core: Option<usize>,
}

impl ShardEnd {
    /// The end of a load whose loop has ended.
    pub fn of(load: &Load, health: LoopHealth, engine: Engine, tls: Option<document::Tls>) -> Self {
        ShardEnd {
            measured: load.measured(),
            live: load.live(),
            mix: load.cache_counters(),
            unfinished: load.unfinished_measured(),
            arrivals_of_all: load.arrivals_measured().filter(|_| !load.follows_up()),
            first_request: load.first_request().to_vec(),
            first_head: load.first_head().map(<[u8]>::to_vec),
            malformed_responses: load.malformed_responses(),
            health,
            engine,
            tls,
            quic: None,
            scheduling: String::new(),
            core: None,
        }
    }

    /// All shards as one load: counts add up, the phase ends with the last, the longest stall is the run's.
    ///
    /// # Panics
    /// Without a shard.
    pub fn merged(shards: &[ShardEnd]) -> ShardEnd {
        let mut all = shards.first().expect("a run has a shard").clone();
        for shard in &shards[1..] {
            all.measured.1 = all.measured.1.max(shard.measured.1);
            all.live = all.live.plus(shard.live);
            all.unfinished += shard.unfinished;
            all.arrivals_of_all = all.arrivals_of_all.max(shard.arrivals_of_all);
            if all.first_request.is_empty() {
                all.first_request.clone_from(&shard.first_request);
            }
            all.mix = all.mix.plus(shard.mix);
            all.first_head = all.first_head.or_else(|| shard.first_head.clone());
            all.tls = match (all.tls, &shard.tls) {
                (Some(tls), Some(other)) => Some(merged_tls(tls, other)),
                (one, other) => one.or_else(|| other.clone()),
            };
            all.quic = match (all.quic, &shard.quic) {
                (Some(quic), Some(other)) => Some(merged_quic(quic, other)),
                (one, other) => one.or_else(|| other.clone()),
            };
        }
        all.malformed_responses = load::merged_faults(shards.iter().map(|shard| &shard.malformed_responses[..]));
        all.health = merged_health(shards);
        all
    }
}

/// The health of one loop for all: that of the busiest loop, or of the busiest core if several loops share one. A loop
/// that waits for the core does not count that time as idle, and one that polls while it waits uses CPU time. So the work
/// of each is the smaller of the two: its CPU time, and its time that was not idle.
fn merged_health(shards: &[ShardEnd]) -> LoopHealth {
    let mut by_core = BTreeMap::<usize, Duration>::new();
    for (shard, core) in shards.iter().filter_map(|shard| Some((shard, shard.core?))) {
        *by_core.entry(core).or_default() += shard.health.work();
    }
    let wall = shards.iter().map(|shard| shard.health.wall).max().unwrap_or_default();
    let of_wall = |cpu: Duration| if wall.is_zero() { 0.0 } else { cpu.as_secs_f64() / wall.as_secs_f64() };
    let loops = shards.iter().map(|shard| shard.health.busy_share());
    let busy = loops.chain(by_core.into_values().map(of_wall)).fold(0.0, f64::max).min(1.0);
    LoopHealth {
        longest_stall: shards.iter().map(|shard| shard.health.longest_stall).max().unwrap_or_default(),
        idle: wall.mul_f64(1.0 - busy),
        wall,
        cpu: shards.iter().map(|shard| shard.health.cpu).sum(),
        run_queue_wait: shards.iter().map(|shard| shard.health.run_queue_wait).sum(),
    }
}

/// The health of several running loops: that of the busiest, with the longest stall of any.
fn worst_health(loops: impl Iterator<Item = LoopHealth>) -> LoopHealth {
    loops.fold(LoopHealth::default(), |worst, health| {
        let busiest = if health.busy_share() > worst.busy_share() { health } else { worst };
        LoopHealth { longest_stall: worst.longest_stall.max(health.longest_stall), ..busiest }
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

fn merged_quic(mut all: document::Quic, other: &document::Quic) -> document::Quic {
    all.handshakes += other.handshakes;
    all.retries += other.retries;
    all.early_data_offered += other.early_data_offered;
    all.early_data_accepted += other.early_data_accepted;
    all.datagrams_sent += other.datagrams_sent;
    all.datagrams_received += other.datagrams_received;
    all.bytes_sent += other.bytes_sent;
    all.bytes_received += other.bytes_received;
    all.lost_packets += other.lost_packets;
    all.receive_drops += other.receive_drops;
    all.migrations = added(all.migrations, other.migrations);
    all.migrations_refused = added(all.migrations_refused, other.migrations_refused);
    all.first_failure = all.first_failure.or_else(|| other.first_failure.clone());
    all
}

/// The sum of counts that may be absent.
fn added(count: Option<u64>, other: Option<u64>) -> Option<u64> {
    count.zip(other).map(|(count, other)| count + other).or(count).or(other)
}

/// How a shard receives stop requests.
pub enum Line<'a> {
    /// A thread of this process, which reads its progress when woken.
    Thread(&'a Wake),
    /// Another process.
    Process(&'a UnixStream),
}

/// The running shards, for the main thread.
pub struct Running<'a> {
    /// Progress of the run, for packet capture and recorder.
    pub run: Arc<Progress>,
    /// Progress of each shard, and the link to it. A single shard has the run's own.
    pub shards: Vec<(Arc<Progress>, Line<'a>)>,
    lost: AtomicBool,
}

impl<'a> Running<'a> {
    /// The shards of a run that has started.
    pub fn new(run: Arc<Progress>, shards: Vec<(Arc<Progress>, Line<'a>)>) -> Self {
        Running { run, shards, lost: AtomicBool::new(false) }
    }

    /// Set when a shard was lost: the others end immediately.
    pub fn lost(&self) -> &AtomicBool {
        &self.lost
    }

    /// Updates the run's progress from the shards': its phase is that of the last of them. Call it before reading the
    /// progress.
    pub fn update(&self) {
        if self.lost.load(Ordering::Acquire) && self.run.stops_requested() < 2 {
            self.request_stop(2, Timestamp::ZERO);
        }
        let shards = || self.shards.iter().map(|(progress, _)| progress);
        if shards().any(|progress| Arc::ptr_eq(progress, &self.run)) {
            return;
        }
        // The end of the measured phase is known once every shard knows its own. A stop during the drain does not
        // change it.
        let ends = shards().map(|progress| progress.measured_end()).collect::<Option<Vec<_>>>();
        if let Some(end) = ends.and_then(|ends| ends.into_iter().max()) {
            self.run.set_measured_end(self.run.stop_at().map_or(end, |stop_at| end.min(stop_at)));
        }
        self.run.store(shards().fold(Live::default(), |sum, progress| sum.plus(progress.live())));
        self.run.store_mix(shards().fold(CacheCounters::default(), |sum, progress| sum.plus(progress.mix())));
        self.run.store_time(shards().map(|progress| progress.time()).min().unwrap_or_default());
        self.run.store_health(worst_health(shards().map(|progress| progress.health())));
        // The measured phase begins with the first shard, as for its requests, and ends with the last.
        let last = shards().map(|progress| progress.phase()).min().unwrap_or(Phase::Done);
        let begun = last == Phase::Warmup && shards().any(|progress| progress.phase() > Phase::Warmup);
        self.run.enter(if begun { Phase::Measured } else { last });
        // If one shard ends the run early, all shards end.
        if let Some(stop_at) = shards().filter(|progress| progress.gave_up()).find_map(|progress| progress.stop_at())
            && !self.run.gave_up()
        {
            self.run.give_up(true);
            self.request_stop(1, stop_at);
        }
    }

    /// Requests every shard to end, like [`Progress::request_stop`].
    pub fn request_stop(&self, times: u32, at: Timestamp) {
        self.run.request_stop(times, at);
        let at = self.run.stop_at().unwrap_or(at);
        if times == 1 {
            self.run.set_measured_end(self.run.measured_end().map_or(at, |end| end.min(at)));
        }
        for (progress, line) in &self.shards {
            progress.request_stop(times, at);
            match line {
                Line::Thread(wake) => wake.wake(),
                // A shard that has ended cannot receive the request; its reader reports the end.
                Line::Process(link) => drop(frame::write_stop_request(&mut &**link, frame::StopRequest { times, at })),
            }
        }
    }
}

#[cfg(test)]
mod tests;
