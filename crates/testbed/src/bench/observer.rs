//! Who watches a run while it goes: a progress bar, a search that stops a trial early.

use std::path::Path;
use std::time::Duration;

use sys::sched::Cores;

use crate::drive::progress::Snapshot;

/// Watches a run go by.
pub trait Observer {
    /// The load starts now.
    fn started(&mut self, facts: &RunFacts);
    /// Some five times a second. `elapsed` is since the run's zero.
    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot);
    /// No more ticks.
    fn ended(&mut self);
    /// The run is kept in this folder, which was just made: nothing of it has begun. Not called where it is not kept.
    fn folder(&mut self, _dir: &Path) {}
    /// Asked some hundred times a second: true ends the measured phase, as Ctrl-C would.
    fn enough(&mut self, _snapshot: &Snapshot) -> bool {
        false
    }
    /// Asked as often: true ends everything, as a second Ctrl-C would, whatever is still in flight.
    fn at_once(&mut self, _snapshot: &Snapshot) -> bool {
        false
    }
}

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
