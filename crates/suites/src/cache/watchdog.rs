//! The end of a point whose errors have become too many.

use std::collections::VecDeque;
use std::time::Duration;

use lab::drive::progress::{Phase, Snapshot};
use lab::{Observer, RunFacts};
use units::Probability;

/// The ratio is of what ended within this time, or longer where that were fewer than [`ENDINGS_MIN`] requests.
const WINDOW: Duration = Duration::from_secs(1);
/// Fewer endings say nothing.
const ENDINGS_MIN: u64 = 20;

/// Passes everything on to another observer, and ends the measured phase when the share of failures among the requests
/// that ended of late reaches a limit.
pub struct Watchdog {
    inner: Box<dyn Observer>,
    limit: Option<f64>,
    readings: VecDeque<Reading>,
    reached: Option<Reached>,
}

/// When the limit was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Since the run's zero.
    pub at: Duration,
    /// The share.
    pub ratio: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Duration,
    completed: u64,
    failed: u64,
}

impl Watchdog {
    /// Without a limit it only passes on.
    pub fn new(inner: Box<dyn Observer>, limit: Option<Probability>) -> Self {
        Watchdog { inner, limit: limit.map(Probability::value), readings: VecDeque::new(), reached: None }
    }

    /// When the limit was reached, if it was.
    pub fn reached(&self) -> Option<Reached> {
        self.reached
    }

    fn read(&mut self, now: Reading) {
        let Some(limit) = self.limit.filter(|_| self.reached.is_none()) else { return };
        let endings = |since: &Reading| (now.completed - since.completed) + (now.failed - since.failed);
        // The latest reading that is far enough back in both.
        let is_far = |since: &Reading| now.at.saturating_sub(since.at) >= WINDOW && endings(since) >= ENDINGS_MIN;
        let Some(at) = self.readings.iter().rposition(is_far) else {
            self.readings.push_back(now);
            return;
        };
        let since = self.readings[at];
        self.readings.drain(..at);
        self.readings.push_back(now);
        let ratio = (now.failed - since.failed) as f64 / endings(&since) as f64;
        if ratio >= limit {
            self.reached = Some(Reached { at: now.at, ratio });
        }
    }
}

impl Observer for Watchdog {
    fn started(&mut self, facts: &RunFacts) {
        if facts.warmup.is_zero() {
            self.readings.push_back(Reading { at: Duration::ZERO, completed: 0, failed: 0 });
        }
        self.inner.started(facts);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        // One that ended in its warm-up would have no figures.
        if snapshot.phase == Phase::Measured {
            self.read(Reading { at: elapsed, completed: snapshot.completed, failed: snapshot.failed });
        }
        self.inner.tick(elapsed, snapshot);
    }

    fn ended(&mut self) {
        self.inner.ended();
    }

    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.reached.is_some() || self.inner.enough(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn started(&mut self, _: &RunFacts) {}
        fn tick(&mut self, _: Duration, _: &Snapshot) {}
        fn ended(&mut self) {}
    }

    /// When it says enough, of endings (completed, failed) a tick of 200 ms.
    fn ends(limit: f64, endings: impl IntoIterator<Item = (u64, u64)>) -> Option<Duration> {
        let mut dog = Watchdog::new(Box::new(Nobody), Probability::new(limit));
        dog.started(&RunFacts { duration: None, warmup: Duration::ZERO, requests: None, notes: Vec::new() });
        let mut snapshot = Snapshot {
            phase: Phase::Measured,
            offered: 0,
            completed: 0,
            failed: 0,
            in_flight: 0,
            connections: 0,
            backlog: 0,
            mix: Default::default(),
        };
        for (tick, (completed, failed)) in (1..).zip(endings) {
            snapshot.completed += completed;
            snapshot.failed += failed;
            dog.tick(Duration::from_millis(200) * tick, &snapshot);
            if dog.enough(&snapshot) {
                let reached = dog.reached().unwrap();
                assert!(reached.ratio >= limit);
                return Some(reached.at);
            }
        }
        assert_eq!(dog.reached(), None);
        None
    }

    #[test]
    fn half_ends_it_and_a_little_less_does_not() {
        assert_eq!(ends(0.5, [(5, 5); 100]), Some(Duration::from_secs(1)));
        assert_eq!(ends(0.5, [(51, 49); 100]), None);
        assert_eq!(ends(1.0, [(1, 99); 100]), None);
        assert_eq!(ends(1.0, [(0, 100); 100]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn it_takes_twenty_endings() {
        // One failure a second: twenty of them are at hand after twenty seconds.
        let slow = (1..=500).map(|tick| (0, u64::from(tick % 5 == 0)));
        assert_eq!(ends(0.5, slow), Some(Duration::from_secs(20)));
        assert_eq!(ends(0.5, [(0, 19), (0, 0), (0, 0)]), None);
    }

    #[test]
    fn what_was_long_ago_does_not_save_it() {
        let good = std::iter::repeat_n((1000, 0), 100);
        let bad = std::iter::repeat_n((40, 60), 100);
        let at = ends(0.5, good.chain(bad)).unwrap();
        assert!(at > Duration::from_secs(20) && at <= Duration::from_secs(22), "{at:?}");
    }

    #[test]
    fn without_a_limit_nothing_ends() {
        let mut dog = Watchdog::new(Box::new(Nobody), None);
        dog.read(Reading { at: Duration::from_secs(9), completed: 0, failed: 1000 });
        assert_eq!(dog.reached(), None);
        assert!(dog.readings.is_empty());
    }
}
