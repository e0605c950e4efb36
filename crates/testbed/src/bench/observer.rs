//! Who watches a run while it goes: a progress bar, a search that stops a trial early.

use std::path::Path;
use std::time::Duration;

use sys::sched::Cores;

use crate::drive::progress::Snapshot;

/// Watches a run while it goes. Every method may be left out: it then does what that of the wrapped observer does, and
/// without one nothing.
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
    /// Called some five times a second. `elapsed` is since the run's zero.
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
    /// The run is kept in this folder, which was just made and is still empty. Not called where the run is not kept.
    fn folder(&mut self, dir: &Path) {
        if let Some(inner) = self.inner() {
            inner.folder(dir);
        }
    }
    /// Called some hundred times a second: true ends the measured phase, as Ctrl-C would.
    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.inner().is_some_and(|inner| inner.enough(snapshot))
    }
    /// Called as often: true ends everything, as a second Ctrl-C would, whatever is still in flight.
    fn at_once(&mut self, snapshot: &Snapshot) -> bool {
        self.inner().is_some_and(|inner| inner.at_once(snapshot))
    }
}

/// Watches nothing.
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

/// What an observer may want to know beforehand.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Length of the measured phase, where it has one.
    pub duration: Option<Duration>,
    /// Warm-up before it.
    pub warmup: Duration,
    /// Requests that end it, where it has a count.
    pub requests: Option<u64>,
    /// What the user should know before the result.
    pub notes: Vec<String>,
    /// Where generator, path and recorder run, if they are held to cores: what serves those who look on belongs there, and
    /// not on the server's.
    pub cores: Option<Cores>,
}
