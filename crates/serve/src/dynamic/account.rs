//! What the dynamic part did and used: counted by the relay, read by anyone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sys::cgroup::{Cgroup, CgroupUsage, Weight};

/// The dynamic part of a server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// One for each route, in the order given.
    pub routes: Vec<RouteAccount>,
    /// The program that the server started, if it was to start one.
    pub program: Option<ProgramAccount>,
}

/// One route. The counts begin with the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAccount {
    /// As typed: prefix and upstream.
    pub route: String,
    /// Exchanges that have a place at the upstream now. Routes with one upstream share its places.
    pub in_flight: u64,
    /// Requests that wait for a place now.
    pub waiting: u64,
    /// Answers that came from the upstream, whatever their status, and were read to their end.
    pub answered: u64,
    /// Refused at once since the queue was full: 503.
    pub refused_full: u64,
    /// Refused after the longest time in the queue: 503.
    pub refused_late: u64,
    /// Refused since the program was starting or down: 503.
    pub refused_down: u64,
    /// The upstream could not be reached, or answered nothing that can be understood: 502.
    pub failed: u64,
    /// The upstream took too long to connect or for its first byte: 504.
    pub timed_out: u64,
    /// Answers that broke off after their head.
    pub broken: u64,
    /// Exchanges that the client left.
    pub cancelled: u64,
    /// Connections made to the upstream.
    pub connects: u64,
    /// Exchanges on a connection that was kept.
    pub reused: u64,
}

/// The program that the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramAccount {
    /// It runs and accepts connections.
    pub up: bool,
    /// How often it was started.
    pub starts: u64,
    /// How it ended the last time: `code 1`, `signal 9`.
    pub last_end: Option<String>,
    /// What its control group used since the start of the server; absent without one.
    pub usage: Option<CgroupUsage>,
}

/// The figures of one route as they change.
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
    pub(super) fn read(&self, route: String) -> RouteAccount {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RouteAccount {
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

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Keeps a level up by one for as long as it lives.
#[derive(Debug)]
pub(super) struct Level(Arc<Counts>, fn(&Counts) -> &AtomicU64);

impl Level {
    pub(super) fn raise(counts: &Arc<Counts>, level: fn(&Counts) -> &AtomicU64) -> Self {
        count(level(counts));
        Level(Arc::clone(counts), level)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of the program, shared by who supervises it and who asks.
#[derive(Debug, Default)]
pub(super) struct ProgramState {
    up: AtomicBool,
    /// It has answered since it was started, and stands against others as it was asked to.
    settled: AtomicBool,
    /// As asked.
    weight: Weight,
    inner: Mutex<ProgramAccount>,
    /// Until the program has ended for good.
    group: Mutex<Option<Cgroup>>,
}

impl ProgramState {
    /// The group has the usual weight by now; it gets `weight` once the program has answered.
    pub(super) fn new(group: Option<Cgroup>, weight: Weight) -> Self {
        ProgramState { group: Mutex::new(group), weight, ..ProgramState::default() }
    }

    /// It runs and accepts connections, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
        if !up && self.settled.swap(false, Ordering::Relaxed) {
            self.set_weight(Weight::Usual);
        }
    }

    /// An answer of it came, so it is done with starting. Before that it has the usual weight: with the least one a program
    /// on a busy machine would never get as far. Accepting is not enough, which many do before they load what answers.
    pub(super) fn has_answered(&self) {
        if !self.settled.load(Ordering::Relaxed) && !self.settled.swap(true, Ordering::Relaxed) {
            self.set_weight(self.weight);
        }
    }

    fn set_weight(&self, weight: Weight) {
        if let Some(group) = &*locked(&self.group)
            && let Err(error) = group.set_weight(weight)
        {
            super::say(format_args!("the program's weight: {error}"));
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ProgramAccount)) {
        change(&mut locked(&self.inner));
    }

    pub(super) fn read(&self) -> ProgramAccount {
        let usage = locked(&self.group).as_ref().and_then(|group| group.usage().ok());
        ProgramAccount { up: self.is_up(), usage, ..locked(&self.inner).clone() }
    }

    /// It is to end, and gets the processor time for that.
    pub(super) fn lift_bound(&self) {
        if let Some(group) = &*locked(&self.group) {
            group.lift();
        }
    }

    /// Removes the control group, once all that was in it is gone. What it used is known no longer.
    pub(super) fn remove_group(&self) {
        drop(locked(&self.group).take());
    }
}

/// A panic elsewhere leaves figures as good as they were.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
