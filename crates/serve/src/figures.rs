//! What the server counts of itself.
//!
//! ```text
//!   worker 0 ── Counters ─┐
//!   worker 1 ── Counters ─┼── Figures ── gathered when asked ──▶ status.rs (JSON, Prometheus), the verb's last words
//!   relay    ── Counters ─┘
//! ```
//!
//! One thread writes to one [`Counters`]; others only read. So a count is a plain load and a plain store on a cache line
//! that no other core writes: no lock, no read-modify-write. A reader sees every counter as it was a moment ago, and
//! two counters not necessarily of the same moment.

mod pace;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use units::Timestamp;

use self::pace::Pace;
use crate::cache::{Finding, Outcome, Reason};

/// What kind of answer a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A file, or what is said instead of one (404, 304 ..).
    Static,
    /// A dynamic program's, also out of the result cache, and refusals in its place (502, 503, 504).
    Dynamic,
    /// The server's own figures.
    Status,
    /// Not understood or over a limit: 400, 408, 413, 414, 431 ..; the connection ends.
    Refused,
    /// An object of a mix, or what is said instead of one.
    Origin,
}

impl Kind {
    /// All of them, in the order of [`Kind::index`].
    pub const ALL: [Kind; 5] = [Kind::Static, Kind::Dynamic, Kind::Status, Kind::Refused, Kind::Origin];

    /// Its place in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One word, as figures have it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Static => "static",
            Kind::Dynamic => "dynamic",
            Kind::Status => "status",
            Kind::Refused => "refused",
            Kind::Origin => "origin",
        }
    }
}

/// Why a connection was not taken, or was ended to take another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// Connections in all are at their limit, and none can make room: further ones stay in the kernel's queue. Counted once
    /// each time accepting stops.
    Total,
    /// Connections of this address are at their limit.
    PerAddress,
    /// No descriptor or memory was left to accept it; it stays in the kernel's queue. Counted once each time accepting stops.
    Descriptors,
    /// It was taken, and closed as the one idle longest when another needed its place.
    Displaced,
    /// It was taken, and closed because its time was over: header, body, idle or stall.
    Late,
    /// TLS: no handshake, or one that broke the protocol.
    Tls,
    /// It was taken, and cut off because it asked on without taking its answers while much was kept for others like it.
    Backlog,
}

impl Refusal {
    /// All of them, in the order of [`Refusal::index`].
    pub const ALL: [Refusal; 7] = [
        Refusal::Total,
        Refusal::PerAddress,
        Refusal::Descriptors,
        Refusal::Displaced,
        Refusal::Late,
        Refusal::Tls,
        Refusal::Backlog,
    ];

    /// Its place in [`Refusal::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One word, as figures have it.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Total => "total",
            Refusal::PerAddress => "per_address",
            Refusal::Descriptors => "descriptors",
            Refusal::Displaced => "displaced",
            Refusal::Late => "late",
            Refusal::Tls => "tls",
            Refusal::Backlog => "backlog",
        }
    }
}

/// The counters of one thread, which alone writes to them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// By kind, then by class: index 0 for 1xx and what is no class, then 2xx to 5xx in 2..=5.
    answers: [[Count; CLASSES]; Kind::ALL.len()],
    body_bytes: [Count; Kind::ALL.len()],
    began: Count,
    cut: Count,
    received_bytes: Count,
    sent_bytes: Count,
    opened: Count,
    closed: Count,
    refused: [Count; Refusal::ALL.len()],
    /// By outcome, then by reason.
    findings: [[Count; Reason::ALL.len()]; Outcome::ALL.len()],
    /// The thread's number, for its account in /proc; 0 before it runs.
    thread: AtomicI32,
    /// Requests already told to `pace`.
    paced: Count,
    pace: Arc<Pace>,
}

/// A counter with one writer.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    /// Only the thread that owns the counters calls this.
    fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    fn new(pace: &Arc<Pace>) -> Self {
        Counters {
            answers: Default::default(),
            body_bytes: Default::default(),
            began: Count::default(),
            cut: Count::default(),
            received_bytes: Count::default(),
            sent_bytes: Count::default(),
            opened: Count::default(),
            closed: Count::default(),
            refused: Default::default(),
            findings: Default::default(),
            thread: AtomicI32::new(0),
            paced: Count::default(),
            pace: Arc::clone(pace),
        }
    }

    /// Once a second, and before a wait that may last for ever: tells how many requests were answered since.
    pub(crate) fn tick(&self, now: Timestamp) {
        let answered = self.requests();
        let fresh = answered - self.paced.value();
        if fresh > 0 {
            self.paced.add(fresh);
            self.pace.add(now, fresh);
        }
    }

    fn requests(&self) -> u64 {
        self.answers.iter().flatten().map(Count::value).sum()
    }

    /// User and system time of the thread that counts here.
    fn cpu(&self) -> (Duration, Duration) {
        sys::accounting::thread_times(self.thread.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Notes which thread writes here; called by that thread, once.
    pub(crate) fn runs_here(&self) {
        self.thread.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    }

    /// A request is complete and will be answered.
    pub(crate) fn began(&self) {
        self.began.add(1);
    }

    /// It was answered, or given up when its connection broke (`whole` is false): exactly once for each `began`.
    pub(crate) fn answered(&self, kind: Kind, status: u16, content_bytes: u64, finding: Finding, whole: bool) {
        let class = usize::from(status / 100);
        self.answers[kind.index()][if class < CLASSES { class } else { 0 }].add(1);
        self.body_bytes[kind.index()].add(content_bytes);
        if finding.outcome != Outcome::None {
            self.findings[finding.outcome.index()][finding.reason.index()].add(1);
        }
        if !whole {
            self.cut.add(1);
        }
    }

    /// A connection was accepted and has a place.
    pub(crate) fn connection_opened(&self) {
        self.opened.add(1);
    }

    /// It is gone.
    pub(crate) fn connection_closed(&self) {
        self.closed.add(1);
    }

    /// One was not taken, or ended for the sake of a limit.
    pub(crate) fn connection_refused(&self, refusal: Refusal) {
        self.refused[refusal.index()].add(1);
    }

    /// Bytes came, as the kernel gave them (ciphertext with TLS).
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Bytes went, as the kernel took them (ciphertext with TLS).
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    fn add_to(&self, total: &mut Total) {
        for (sums, counts) in total.answers.iter_mut().zip(&self.answers) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.value();
            }
        }
        for (sum, count) in total.body_bytes.iter_mut().zip(&self.body_bytes) {
            *sum += count.value();
        }
        for (sum, count) in total.refused.iter_mut().zip(&self.refused) {
            *sum += count.value();
        }
        for (sums, counts) in total.findings.iter_mut().zip(&self.findings) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.value();
            }
        }
        // What ended is read after what began, or fewer could be in flight than none.
        total.cut += self.cut.value();
        total.closed += self.closed.value();
        total.opened += self.opened.value();
        total.began += self.began.value();
        total.received_bytes += self.received_bytes.value();
        total.sent_bytes += self.sent_bytes.value();
    }
}

/// The figures of a server: a handle that may be cloned, made before [`crate::serve`] and read at any time.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    workers: Vec<Arc<Counters>>,
    relay: Option<Arc<Counters>>,
    pace: Arc<Pace>,
}

impl Figures {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Figures::default()
    }

    /// Counters of one more worker.
    pub(crate) fn worker(&self) -> Arc<Counters> {
        let mut shared = self.shared();
        let counters = Arc::new(Counters::new(&shared.pace));
        shared.workers.push(Arc::clone(&counters));
        counters
    }

    /// Counters of the relay, of which only the thread matters.
    pub(crate) fn relay(&self) -> Arc<Counters> {
        let mut shared = self.shared();
        let counters = Arc::new(Counters::new(&shared.pace));
        shared.relay = Some(Arc::clone(&counters));
        counters
    }

    /// The sums over all threads as of now.
    pub fn total(&self) -> Total {
        let mut total = Total::default();
        for counters in &self.shared().workers {
            counters.add_to(&mut total);
        }
        total
    }

    /// Requests answered within the minute before `now`, in whole seconds, up to the last tick of each worker.
    pub(crate) fn last_minute(&self, now: Timestamp) -> u64 {
        self.shared().pace.last_minute(now)
    }

    /// Processor time, user and system: of the workers' threads together, and of the relay's where there is one.
    pub(crate) fn cpu(&self) -> ((Duration, Duration), Option<(Duration, Duration)>) {
        let shared = self.shared();
        let sum = |sum: (Duration, Duration), one: (Duration, Duration)| (sum.0 + one.0, sum.1 + one.1);
        let workers = shared.workers.iter().map(|counters| counters.cpu()).fold(Default::default(), sum);
        (workers, shared.relay.as_ref().map(|counters| counters.cpu()))
    }

    /// Threads that serve.
    pub(crate) fn workers(&self) -> usize {
        self.shared().workers.len()
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Figures {
    /// The same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Figures {}

/// Sums over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Answers by [`Kind::index`], then by the first digit of the status; 0 where that is none of 1 to 5.
    pub answers: [[u64; CLASSES]; Kind::ALL.len()],
    /// Bytes of bodies by [`Kind::index`], without heads and framing.
    pub body_bytes: [u64; Kind::ALL.len()],
    /// Requests whose head was complete.
    pub began: u64,
    /// Answers that were cut short: the client went away, or the upstream broke off.
    pub cut: u64,
    /// Bytes that came over all connections (with TLS: its records).
    pub received_bytes: u64,
    /// Bytes that went over all connections (with TLS: its records).
    pub sent_bytes: u64,
    /// Connections accepted.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// By [`Refusal::index`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Dynamic answers by [`Outcome::index`], then [`Reason::index`].
    pub findings: [[u64; Reason::ALL.len()]; Outcome::ALL.len()],
}

impl Total {
    /// Requests answered, of every kind and status.
    pub fn requests(&self) -> u64 {
        self.answers.iter().flatten().sum()
    }

    /// Answers of class 5xx, and requests that were refused as not understood or over a limit.
    pub fn errors(&self) -> u64 {
        let failed: u64 = self.answers.iter().map(|classes| classes[5]).sum();
        let refused = &self.answers[Kind::Refused.index()];
        failed + refused.iter().sum::<u64>() - refused[5]
    }

    /// Requests that are being answered.
    pub fn in_flight(&self) -> u64 {
        self.began.saturating_sub(self.requests())
    }

    /// Connections that are open.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// Classes of status: 0 for what is none, 1 to 5.
const CLASSES: usize = 6;
