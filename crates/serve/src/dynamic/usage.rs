//! Counters and resource usage of the dynamic part: written by the relay, readable by any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sys::cgroup::{Cgroup, CgroupUsage, Weight};

/// Snapshot of the dynamic part of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamicUsage {
    /// The routes, in the order given.
    pub routes: Vec<RouteCounters>,
    /// The program that the server started, if there is one.
    pub program: Option<ProgramUsage>,
}

/// Counters of one route since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCounters {
    /// Prefix and upstream, as configured.
    pub route: String,
    /// Exchanges in flight at the upstream. Routes to one upstream share its limit.
    pub in_flight: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Responses of the upstream, of any status, that were read to their end.
    pub answered: u64,
    /// Refused immediately because the queue was full: 503.
    pub refused_full: u64,
    /// Refused after the maximum time in the queue: 503.
    pub refused_late: u64,
    /// Refused because the program was starting or down: 503.
    pub refused_down: u64,
    /// The upstream was unreachable or sent no valid response: 502.
    pub failed: u64,
    /// The upstream exceeded the time to connect or to the first byte: 504.
    pub timed_out: u64,
    /// Responses that broke off after their head.
    pub broken: u64,
    /// Exchanges whose client disconnected.
    pub cancelled: u64,
    /// Connections established to the upstream.
    pub connects: u64,
    /// Exchanges on a reused connection.
    pub reused: u64,
}

/// The program that the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramUsage {
    /// The program runs and accepts connections.
    pub up: bool,
    /// Number of starts.
    pub starts: u64,
    /// Last end of the program: `code 1`, `signal 9`.
    pub last_end: Option<String>,
    /// Usage of its control group since the start of the server; absent without one.
    pub usage: Option<CgroupUsage>,
}

/// Live counters of one route.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) in_flight: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) refused_full: AtomicU64,
    pub(super) refused_late: AtomicU64,
    pub(super) refused_down: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) reused: AtomicU64,
}

impl Counts {
    pub(super) fn read(&self, route: String) -> RouteCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RouteCounters {
            route,
            in_flight: of(&self.in_flight),
            waiting: of(&self.waiting),
            answered: of(&self.answered),
            refused_full: of(&self.refused_full),
            refused_late: of(&self.refused_late),
            refused_down: of(&self.refused_down),
            failed: of(&self.failed),
            timed_out: of(&self.timed_out),
            broken: of(&self.broken),
            cancelled: of(&self.cancelled),
            connects: of(&self.connects),
            reused: of(&self.reused),
        }
    }
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A gauge that is incremented for the lifetime of this guard.
#[derive(Debug)]
pub(super) struct GaugeGuard(Arc<Counts>, fn(&Counts) -> &AtomicU64);

impl GaugeGuard {
    pub(super) fn raise(counts: &Arc<Counts>, level: fn(&Counts) -> &AtomicU64) -> Self {
        count(level(counts));
        GaugeGuard(Arc::clone(counts), level)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of the program, shared by its supervisor and readers.
#[derive(Debug, Default)]
pub(super) struct ProgramState {
    up: AtomicBool,
    /// The program has responded since its start and has its configured weight.
    settled: AtomicBool,
    /// The configured weight.
    weight: Weight,
    inner: Mutex<ProgramUsage>,
    /// `None` once the program has ended permanently.
    group: Mutex<Option<Cgroup>>,
}

impl ProgramState {
    /// The group has the usual weight now; it gets `weight` after the first response of the program.
    pub(super) fn new(group: Option<Cgroup>, weight: Weight) -> Self {
        ProgramState { group: Mutex::new(group), weight, ..ProgramState::default() }
    }

    /// Whether the program runs and accepts connections, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
        if !up && self.settled.swap(false, Ordering::Relaxed) {
            self.set_weight(Weight::Usual);
        }
    }

    /// The program has sent a response, so its start is over. Before, it has the usual weight: with the lowest weight a
    /// program on a busy machine might never start. An accepted connection is no sign: many programs accept before they
    /// load the application.
    pub(super) fn has_answered(&self) {
        if !self.settled.load(Ordering::Relaxed) && !self.settled.swap(true, Ordering::Relaxed) {
            self.set_weight(self.weight);
        }
    }

    fn set_weight(&self, weight: Weight) {
        if let Some(group) = &*locked(&self.group)
            && let Err(error) = group.set_weight(weight)
        {
            super::print_line(format_args!("set the weight of the program's control group: {error}"));
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ProgramUsage)) {
        change(&mut locked(&self.inner));
    }

    pub(super) fn read(&self) -> ProgramUsage {
        let usage = locked(&self.group).as_ref().and_then(|group| group.usage().ok());
        ProgramUsage { up: self.is_up(), usage, ..locked(&self.inner).clone() }
    }

    /// Removes the CPU limit, so that the program can end quickly.
    pub(super) fn lift_bound(&self) {
        if let Some(group) = &*locked(&self.group) {
            group.remove_cpu_limit();
        }
    }

    /// Removes the control group after its last process has ended. Its usage is no longer known.
    pub(super) fn remove_group(&self) {
        drop(locked(&self.group).take());
    }
}

/// A panic of another thread leaves the counters valid.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
