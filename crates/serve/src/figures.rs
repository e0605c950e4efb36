//! The server's metrics.
//!
//! ```text
//!   worker 0 ── Counters ─┐
//!   worker 1 ── Counters ─┼── Figures ── collected on request ──▶ status.rs (JSON, Prometheus), the command's summary
//!   relay    ── Counters ─┘
//! ```
//!
//! One thread writes to one [`Counters`]; others only read. So an increment is a plain load and store on a cache line
//! that no other core writes: no lock, no read-modify-write. A reader sees slightly old values, and two counters may be
//! of slightly different times.

mod request_rate;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use units::Timestamp;

use self::request_rate::RequestRate;
use crate::cache::{Finding, Outcome, Reason};

/// The kind of response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A file, or a response in its place (404, 304 ..).
    Static,
    /// A response of a dynamic program or the result cache, or a refusal in its place (502, 503, 504).
    Dynamic,
    /// The status page.
    Status,
    /// Malformed or over a limit: 400, 408, 413, 414, 431 ..; the connection closes.
    Refused,
    /// An object of an origin workload, or a response in its place.
    Origin,
}

impl Kind {
    /// All kinds, in the order of [`Kind::index`].
    pub const ALL: [Kind; 5] = [Kind::Static, Kind::Dynamic, Kind::Status, Kind::Refused, Kind::Origin];

    /// Position in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics.
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

/// Why a connection was refused or displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The total connection limit is reached, and none can be displaced: further ones stay in the kernel's queue.
    /// Counted once per pause of accepting.
    Total,
    /// The address is at its connection limit.
    PerAddress,
    /// No descriptor or memory was available; the connection stays in the kernel's queue. Counted once per pause of
    /// accepting.
    Descriptors,
    /// Closed as the longest idle connection, to make space for another.
    Displaced,
    /// Closed after a timeout: head, body, idle or stall.
    Late,
    /// TLS: no handshake, or a protocol violation.
    Tls,
    /// Reset because it sent requests without reading responses while the backlog was full.
    Backlog,
}

impl Refusal {
    /// All causes, in the order of [`Refusal::index`].
    pub const ALL: [Refusal; 7] = [
        Refusal::Total,
        Refusal::PerAddress,
        Refusal::Descriptors,
        Refusal::Displaced,
        Refusal::Late,
        Refusal::Tls,
        Refusal::Backlog,
    ];

    /// Position in [`Refusal::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics.
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

/// The counters of one thread, which is their only writer.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// By kind, then by class: index 0 for 1xx and invalid classes, 2xx to 5xx in 2..=5.
    answers: [[Count; CLASSES]; Kind::ALL.len()],
    body_bytes: [Count; Kind::ALL.len()],
    began: Count,
    truncated: Count,
    received_bytes: Count,
    sent_bytes: Count,
    opened: Count,
    closed: Count,
    refused: [Count; Refusal::ALL.len()],
    /// By outcome, then by reason.
    findings: [[Count; Reason::ALL.len()]; Outcome::ALL.len()],
    /// Thread id, for /proc; 0 before the thread runs.
    thread: AtomicI32,
    /// Requests already added to `request_rate`.
    reported: Count,
    request_rate: Arc<RequestRate>,
}

/// A counter with one writer.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    /// Called only by the thread that owns the counters.
    fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    fn new(request_rate: &Arc<RequestRate>) -> Self {
        Counters {
            answers: Default::default(),
            body_bytes: Default::default(),
            began: Count::default(),
            truncated: Count::default(),
            received_bytes: Count::default(),
            sent_bytes: Count::default(),
            opened: Count::default(),
            closed: Count::default(),
            refused: Default::default(),
            findings: Default::default(),
            thread: AtomicI32::new(0),
            reported: Count::default(),
            request_rate: Arc::clone(request_rate),
        }
    }

    /// Once a second, and before an unlimited wait: reports the requests since the last tick.
    pub(crate) fn tick(&self, now: Timestamp) {
        let answered = self.requests();
        let fresh = answered - self.reported.value();
        if fresh > 0 {
            self.reported.add(fresh);
            self.request_rate.add(now, fresh);
        }
    }

    fn requests(&self) -> u64 {
        self.answers.iter().flatten().map(Count::value).sum()
    }

    /// User and system time of the thread that counts here.
    fn cpu(&self) -> (Duration, Duration) {
        sys::accounting::thread_times(self.thread.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Stores the thread id; called once by the owning thread.
    pub(crate) fn runs_here(&self) {
        self.thread.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    }

    /// A request is complete.
    pub(crate) fn began(&self) {
        self.began.add(1);
    }

    /// Its response ended, or was given up when its connection broke (`whole` is false): exactly once for each `began`.
    pub(crate) fn answered(&self, kind: Kind, status: u16, content_bytes: u64, finding: Finding, whole: bool) {
        let class = usize::from(status / 100);
        self.answers[kind.index()][if class < CLASSES { class } else { 0 }].add(1);
        self.body_bytes[kind.index()].add(content_bytes);
        if finding.outcome != Outcome::None {
            self.findings[finding.outcome.index()][finding.reason.index()].add(1);
        }
        if !whole {
            self.truncated.add(1);
        }
    }

    /// A connection was accepted.
    pub(crate) fn connection_opened(&self) {
        self.opened.add(1);
    }

    /// A connection was closed.
    pub(crate) fn connection_closed(&self) {
        self.closed.add(1);
    }

    /// A connection was refused, or closed because of a limit.
    pub(crate) fn connection_refused(&self, refusal: Refusal) {
        self.refused[refusal.index()].add(1);
    }

    /// Bytes received from the kernel (ciphertext with TLS).
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Bytes accepted by the kernel (ciphertext with TLS).
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
        // Ends are read before starts, so that the difference is never negative.
        total.truncated += self.truncated.value();
        total.closed += self.closed.value();
        total.opened += self.opened.value();
        total.began += self.began.value();
        total.received_bytes += self.received_bytes.value();
        total.sent_bytes += self.sent_bytes.value();
    }
}

/// The metrics of a server: a cloneable handle, made before [`crate::serve`] and readable at any time.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    workers: Vec<Arc<Counters>>,
    relay: Option<Arc<Counters>>,
    request_rate: Arc<RequestRate>,
}

impl Figures {
    /// No counts yet.
    pub fn new() -> Self {
        Figures::default()
    }

    /// Counters of another worker.
    pub(crate) fn worker(&self) -> Arc<Counters> {
        let mut shared = self.shared();
        let counters = Arc::new(Counters::new(&shared.request_rate));
        shared.workers.push(Arc::clone(&counters));
        counters
    }

    /// Counters of the relay, used for its CPU time only.
    pub(crate) fn relay(&self) -> Arc<Counters> {
        let mut shared = self.shared();
        let counters = Arc::new(Counters::new(&shared.request_rate));
        shared.relay = Some(Arc::clone(&counters));
        counters
    }

    /// The current sums over all threads.
    pub fn total(&self) -> Total {
        let mut total = Total::default();
        for counters in &self.shared().workers {
            counters.add_to(&mut total);
        }
        total
    }

    /// Requests within the minute before `now`, up to the last tick of each worker.
    pub(crate) fn last_minute(&self, now: Timestamp) -> u64 {
        self.shared().request_rate.last_minute(now)
    }

    /// CPU time, user and system: of all worker threads, and of the relay thread if there is one.
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
    /// Whether both are the same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Figures {}

/// Sums over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Responses by [`Kind::index`], then by the first digit of the status; 0 for other digits than 1 to 5.
    pub answers: [[u64; CLASSES]; Kind::ALL.len()],
    /// Bytes of bodies by [`Kind::index`], without heads and framing.
    pub body_bytes: [u64; Kind::ALL.len()],
    /// Requests with a complete head.
    pub began: u64,
    /// Incomplete responses: the client disconnected, or the upstream broke off.
    pub truncated: u64,
    /// Bytes received over all connections (with TLS: its records).
    pub received_bytes: u64,
    /// Bytes sent over all connections (with TLS: its records).
    pub sent_bytes: u64,
    /// Connections accepted.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// By [`Refusal::index`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Dynamic responses by [`Outcome::index`], then [`Reason::index`].
    pub findings: [[u64; Reason::ALL.len()]; Outcome::ALL.len()],
}

impl Total {
    /// Requests with a response, of every kind and status.
    pub fn requests(&self) -> u64 {
        self.answers.iter().flatten().sum()
    }

    /// Responses of class 5xx, and requests that were malformed or over a limit.
    pub fn errors(&self) -> u64 {
        let failed: u64 = self.answers.iter().map(|classes| classes[5]).sum();
        let refused = &self.answers[Kind::Refused.index()];
        failed + refused.iter().sum::<u64>() - refused[5]
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.began.saturating_sub(self.requests())
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// Status classes: 0 for invalid ones, 1 to 5.
const CLASSES: usize = 6;
