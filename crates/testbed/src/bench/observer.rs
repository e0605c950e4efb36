//! Observers of a run in progress: a progress bar, or a search that ends a trial early.

use std::path::Path;
use std::time::Duration;

use sys::sched::Cores;

use crate::drive::progress::Snapshot;

/// Observes a run in progress. By default every method calls that of the wrapped observer, if there is one.
pub trait Observer {
    /// The observer that this one wraps.
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        None
    }
    /// The load starts now.
    fn started(&mut self, facts: &RunFacts) {
        if let Some(inner) = self.inner() {
            inner.started(facts);
        }
    }
    /// Called about five times a second. `elapsed` is since the run's zero.
    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        if let Some(inner) = self.inner() {
            inner.tick(elapsed, snapshot);
        }
    }
    /// No tick follows.
    fn ended(&mut self) {
        if let Some(inner) = self.inner() {
            inner.ended();
        }
    }
    /// The run is stored in this directory, which was just created and is still empty. Not called if the run is not
    /// stored.
    fn folder(&mut self, dir: &Path) {
        if let Some(inner) = self.inner() {
            inner.folder(dir);
        }
    }
    /// Called about a hundred times a second: true ends the measured phase, as Ctrl-C would.
    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.inner().is_some_and(|inner| inner.enough(snapshot))
    }
    /// Called as often as [`Observer::enough`]: true ends everything, also requests in flight, as a second Ctrl-C
    /// would.
    fn at_once(&mut self, snapshot: &Snapshot) -> bool {
        self.inner().is_some_and(|inner| inner.at_once(snapshot))
    }
}

/// Does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<O: Observer + ?Sized> Observer for Box<O> {
    fn started(&mut self, facts: &RunFacts) {
        (**self).started(facts);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        (**self).tick(elapsed, snapshot);
    }

    fn ended(&mut self) {
        (**self).ended();
    }

    fn folder(&mut self, dir: &Path) {
        (**self).folder(dir);
    }

    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        (**self).enough(snapshot)
    }

    fn at_once(&mut self, snapshot: &Snapshot) -> bool {
        (**self).at_once(snapshot)
    }
}

/// What an observer may need before the run.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Length of the measured phase, if it has one.
    pub duration: Option<Duration>,
    /// Length of the warm-up.
    pub warmup: Duration,
    /// Number of requests that ends the measured phase, if it has one.
    pub requests: Option<u64>,
    /// Warnings to show before the result.
    pub notes: Vec<String>,
    /// Cores of generator, path and recorder, if they are pinned: other work of this program belongs there, and not on
    /// the server's cores.
    pub cores: Option<Cores>,
}
