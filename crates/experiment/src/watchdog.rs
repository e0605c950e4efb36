//! Observers that end a run early when its outcome is certain: a point of a cache sweep with too many errors
//! ([`Watchdog`]), or a trial of a capacity search that has missed its objective ([`ObjectiveGuard`]).

use std::collections::VecDeque;
use std::time::Duration;

use testbed::drive::progress::{Phase, Snapshot};
use testbed::{Observer, RunFacts};
use units::Probability;

/// The share of failures is that of the requests that ended within this time, or within a longer time if they are fewer
/// than [`ENDED_REQUESTS_MIN`].
const WINDOW: Duration = Duration::from_secs(1);
/// Smallest number of ended requests that is judged.
const ENDED_REQUESTS_MIN: u64 = 20;

/// Forwards all calls to another observer, and ends the measured phase when the share of failures among recently ended
/// requests reaches a limit.
pub struct Watchdog {
    inner: Box<dyn Observer>,
    limit: Option<f64>,
    readings: VecDeque<Reading>,
    reached: Option<ErrorLimitReached>,
}

/// When the limit was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorLimitReached {
    /// Time since the run's zero.
    pub at: Duration,
    /// The share of failures.
    pub ratio: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Duration,
    completed: u64,
    failed: u64,
}

impl Watchdog {
    /// Wraps `inner`. Without a limit the watchdog only forwards calls.
    pub fn new(inner: Box<dyn Observer>, limit: Option<Probability>) -> Self {
        Watchdog { inner, limit: limit.map(Probability::value), readings: VecDeque::new(), reached: None }
    }

    /// When the limit was reached, if it was.
    pub fn reached(&self) -> Option<ErrorLimitReached> {
        self.reached
    }

    fn read(&mut self, now: Reading) {
        let Some(limit) = self.limit.filter(|_| self.reached.is_none()) else { return };
        let endings = |since: &Reading| (now.completed - since.completed) + (now.failed - since.failed);
        // The latest reading that is old enough by time and by number of ended requests.
        let is_far =
            |since: &Reading| now.at.saturating_sub(since.at) >= WINDOW && endings(since) >= ENDED_REQUESTS_MIN;
        let Some(at) = self.readings.iter().rposition(is_far) else {
            self.readings.push_back(now);
            return;
        };
        let since = self.readings[at];
        self.readings.drain(..at);
        self.readings.push_back(now);
        let ratio = (now.failed - since.failed) as f64 / endings(&since) as f64;
        if ratio >= limit {
            self.reached = Some(ErrorLimitReached { at: now.at, ratio });
        }
    }
}

impl Observer for Watchdog {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.inner)
    }

    fn started(&mut self, facts: &RunFacts) {
        if facts.warmup.is_zero() {
            self.readings.push_back(Reading { at: Duration::ZERO, completed: 0, failed: 0 });
        }
        self.inner.started(facts);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        // Not during the warm-up, because a run that ends there has no figures.
        if snapshot.phase == Phase::Measured {
            self.read(Reading { at: elapsed, completed: snapshot.completed, failed: snapshot.failed });
        }
        self.inner.tick(elapsed, snapshot);
    }

    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.reached.is_some() || self.inner.enough(snapshot)
    }
}

/// Conditions of a trial, as far as they can be judged before its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveLimits {
    /// Offered rate per second.
    pub rate: f64,
    /// Length of the measured phase.
    pub lasts: Duration,
    /// Highest allowed share of errors.
    pub errors: f64,
    /// For each term of the objective on times: the share of the requests that may take longer (a mean: 1), and the
    /// limit.
    pub tails: Vec<(f64, Duration)>,
    /// Longest wait for requests in flight at the end; absent: until their timeouts.
    pub drain_timeout: Option<Duration>,
}

/// Forwards all calls to another observer, and ends a trial whose objective is certainly missed: its measured phase
/// and, a little later, requests in flight end early.
pub struct ObjectiveGuard {
    inner: Box<dyn Observer>,
    limits: ObjectiveLimits,
    lost: Option<ObjectiveLost>,
    /// Start of the observed measured phase, and the number of failures before it.
    from: Option<(Duration, u64)>,
    last: Duration,
    /// For each tail, the time for which more requests were in flight than can be answered in time; for a mean, the
    /// integral over time.
    above_s: Vec<f64>,
    /// Time since which no more requests are offered.
    drain: Option<Duration>,
    now: Duration,
    waiting: u64,
}

/// How a trial missed its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveLost {
    /// Time since the measured phase began.
    pub after: Duration,
    by: LostBy,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum LostBy {
    /// More requests failed than the objective allows of all offered ones.
    Errors { failed: u64 },
    /// More requests were in flight, for longer, than the objective allows.
    PilesUp { in_flight: u64 },
}

impl ObjectiveLost {
    /// The reason as text.
    pub fn words(&self) -> String {
        let after = units::format_duration(Duration::from_millis(self.after.as_millis() as u64 / 100 * 100));
        match self.by {
            LostBy::Errors { failed } => format!("lost after {after}: {failed} requests had failed"),
            LostBy::PilesUp { in_flight } => {
                format!("lost after {after}: {in_flight} requests were in flight or waiting")
            }
        }
    }

    /// Requests in flight and waiting when the trial was lost; 0 if it was lost by errors.
    pub fn in_flight(&self) -> f64 {
        match self.by {
            LostBy::Errors { .. } => 0.0,
            LostBy::PilesUp { in_flight } => in_flight as f64,
        }
    }
}

/// A queue is certainly too long with this many times the requests that, by Little's law, are in flight at the limit:
/// twice as many requests wait twice as long, in any order.
const QUEUE_FACTOR: f64 = 2.0;
/// Smallest number of requests in flight that counts as a queue, at any rate.
const QUEUED_REQUESTS_MIN: f64 = 8.0;

impl ObjectiveGuard {
    /// Observes a trial.
    pub fn new(inner: Box<dyn Observer>, limits: ObjectiveLimits) -> Self {
        let above_s = vec![0.0; limits.tails.len()];
        let zero = Duration::ZERO;
        ObjectiveGuard {
            inner,
            limits,
            lost: None,
            from: None,
            last: zero,
            above_s,
            drain: None,
            now: zero,
            waiting: 0,
        }
    }

    /// How the trial was lost, if it was.
    pub fn lost(&self) -> Option<&ObjectiveLost> {
        self.lost.as_ref()
    }

    fn read(&mut self, now: Duration, snapshot: &Snapshot) {
        let (began, failed_before) = *self.from.get_or_insert((now, snapshot.failed));
        let since_s = now.saturating_sub(self.last.max(began)).as_secs_f64();
        if self.lost.is_some() {
            return;
        }
        let after = now.saturating_sub(began);
        let offered = self.limits.rate * self.limits.lasts.as_secs_f64();
        let failed = snapshot.failed - failed_before;
        // One more request is allowed, for the boundary of the phase.
        if failed as f64 > self.limits.errors * offered + 1.0 {
            self.lost = Some(ObjectiveLost { after, by: LostBy::Errors { failed } });
            return;
        }
        let level = (snapshot.in_flight + snapshot.backlog) as f64;
        for (above_s, &(share, limit)) in self.above_s.iter_mut().zip(&self.limits.tails) {
            let level_max = (QUEUE_FACTOR * self.limits.rate * limit.as_secs_f64()).max(QUEUED_REQUESTS_MIN);
            // A mean may exceed its limit for a time; its integral over time may not.
            let (more, most) = match share >= 1.0 {
                true => (level / level_max * since_s, self.limits.lasts.as_secs_f64()),
                false if level > level_max => {
                    (since_s, QUEUE_FACTOR * share * self.limits.lasts.as_secs_f64() + limit.as_secs_f64())
                }
                false => (0.0, f64::INFINITY),
            };
            *above_s += more;
            if *above_s > most {
                self.lost = Some(ObjectiveLost { after, by: LostBy::PilesUp { in_flight: level as u64 } });
            }
        }
    }
}

impl Observer for ObjectiveGuard {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.inner)
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        match snapshot.phase {
            Phase::Measured => self.read(elapsed, snapshot),
            Phase::Drain | Phase::Done => {
                self.drain.get_or_insert(elapsed);
            }
            Phase::Warmup => {}
        }
        (self.last, self.now) = (elapsed, elapsed);
        self.waiting = snapshot.in_flight + snapshot.backlog;
        self.inner.tick(elapsed, snapshot);
    }

    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.lost.is_some() || self.inner.enough(snapshot)
    }

    /// Ends requests in flight that are certainly too late: more than the objective allows, for longer.
    fn at_once(&mut self, snapshot: &Snapshot) -> bool {
        let Some(drain) = self.drain else { return self.inner.at_once(snapshot) };
        let waited = self.now.saturating_sub(drain);
        let offered = self.limits.rate * self.limits.lasts.as_secs_f64();
        let is_too_late = |&(share, limit): &(f64, Duration)| {
            let many = self.lost.is_some() || share < 1.0 && self.waiting as f64 > share * offered + 1.0;
            many && waited > limit
        };
        let is_over = self.limits.drain_timeout.is_some_and(|drain_timeout| waited > drain_timeout);
        is_over || self.limits.tails.iter().any(is_too_late) || self.inner.at_once(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use testbed::NoObserver;

    use super::*;

    /// The time at which a watchdog ends the run, for ended requests (completed, failed) per tick of 200 ms.
    fn ends(limit: f64, endings: impl IntoIterator<Item = (u64, u64)>) -> Option<Duration> {
        let mut watchdog = Watchdog::new(Box::new(NoObserver), Probability::new(limit));
        watchdog.started(&RunFacts {
            duration: None,
            warmup: Duration::ZERO,
            requests: None,
            notes: Vec::new(),
            cores: None,
        });
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
            watchdog.tick(Duration::from_millis(200) * tick, &snapshot);
            if watchdog.enough(&snapshot) {
                let reached = watchdog.reached().unwrap();
                assert!(reached.ratio >= limit);
                return Some(reached.at);
            }
        }
        assert_eq!(watchdog.reached(), None);
        None
    }

    #[test]
    fn watchdog_ends_a_run_at_half_failures_and_not_below() {
        assert_eq!(ends(0.5, [(5, 5); 100]), Some(Duration::from_secs(1)));
        assert_eq!(ends(0.5, [(51, 49); 100]), None);
        assert_eq!(ends(1.0, [(1, 99); 100]), None);
        assert_eq!(ends(1.0, [(0, 100); 100]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn watchdog_needs_twenty_ended_requests() {
        // With one failure per second there are twenty after twenty seconds.
        let slow = (1..=500).map(|tick| (0, u64::from(tick % 5 == 0)));
        assert_eq!(ends(0.5, slow), Some(Duration::from_secs(20)));
        assert_eq!(ends(0.5, [(0, 19), (0, 0), (0, 0)]), None);
    }

    #[test]
    fn watchdog_ignores_old_successes() {
        let good = std::iter::repeat_n((1000, 0), 100);
        let failing = std::iter::repeat_n((40, 60), 100);
        let at = ends(0.5, good.chain(failing)).unwrap();
        assert!(at > Duration::from_secs(20) && at <= Duration::from_secs(22), "{at:?}");
    }

    #[test]
    fn watchdog_without_a_limit_never_ends_a_run() {
        let mut watchdog = Watchdog::new(Box::new(NoObserver), None);
        watchdog.read(Reading { at: Duration::from_secs(9), completed: 0, failed: 1000 });
        assert_eq!(watchdog.reached(), None);
        assert!(watchdog.readings.is_empty());
    }

    fn guarded(tails: Vec<(f64, Duration)>) -> ObjectiveGuard {
        let limits =
            ObjectiveLimits { rate: 100.0, lasts: Duration::from_secs(10), errors: 0.01, tails, drain_timeout: None };
        ObjectiveGuard::new(Box::new(NoObserver), limits)
    }

    fn snapshot(phase: Phase, failed: u64, in_flight: u64) -> Snapshot {
        Snapshot {
            phase,
            offered: 0,
            completed: 0,
            failed,
            in_flight,
            connections: 0,
            backlog: 0,
            mix: Default::default(),
        }
    }

    const TICK: Duration = Duration::from_millis(200);

    /// Number of ticks of the measured phase after which the guard ends the trial.
    fn lost(guard: &mut ObjectiveGuard, readings: impl IntoIterator<Item = (u64, u64)>) -> Option<u32> {
        guard.tick(TICK, &snapshot(Phase::Warmup, 5, 1));
        (2..).zip(readings).find_map(|(tick, (failed, in_flight))| {
            let seen = snapshot(Phase::Measured, 5 + failed, in_flight);
            guard.tick(TICK * tick, &seen);
            guard.enough(&seen).then_some(tick)
        })
    }

    #[test]
    fn a_trial_is_lost_by_one_error_too_many() {
        let tails = || vec![(0.01, Duration::from_millis(100))];
        // 1 % of a thousand requests, and one for the boundary. The first tick counts earlier failures.
        assert_eq!(lost(&mut guarded(tails()), [(0, 0), (11, 0), (11, 0)]), None);
        let mut guard = guarded(tails());
        assert_eq!(lost(&mut guard, [(0, 0), (12, 0)]), Some(3));
        assert!(guard.lost().unwrap().words().contains("12 requests had failed"));
    }

    #[test]
    fn a_trial_is_lost_by_a_long_queue_and_not_by_a_stall() {
        // 100/s and 100 ms: 20 in flight wait for 200 ms. 1 % of 10 s, twice, and the limit: 300 ms.
        let tails = || vec![(0.01, Duration::from_millis(100))];
        assert_eq!(lost(&mut guarded(tails()), std::iter::repeat_n((0, 20), 40)), None);
        assert_eq!(lost(&mut guarded(tails()), [(0, 3), (0, 200), (0, 3), (0, 3)]), None);
        let mut guard = guarded(tails());
        assert_eq!(lost(&mut guard, [(0, 3), (0, 21), (0, 21), (0, 21)]), Some(4));
        assert!(guard.lost().unwrap().words().contains("21 requests were in flight"), "{:?}", guard.lost());
        // Requests in flight are awaited for as long as the limit.
        let drain = |tick: u32, guard: &mut ObjectiveGuard| {
            let seen = snapshot(Phase::Drain, 5, 21);
            guard.tick(TICK * tick, &seen);
            guard.at_once(&seen)
        };
        assert!(!drain(10, &mut guard) && drain(11, &mut guard));
    }

    #[test]
    fn a_mean_is_lost_by_its_integral_over_time() {
        let tails = || vec![(1.0, Duration::from_millis(100))];
        assert_eq!(lost(&mut guarded(tails()), std::iter::repeat_n((0, 19), 49)), None);
        // Ten times the limit for a tenth of the time has the same integral.
        assert!(lost(&mut guarded(tails()), std::iter::repeat_n((0, 210), 49)).is_some());
    }

    #[test]
    fn a_trial_that_keeps_its_objective_is_not_ended() {
        let mut guard = guarded(vec![(0.01, Duration::from_millis(100))]);
        assert_eq!(lost(&mut guard, std::iter::repeat_n((0, 3), 49)), None);
        for tick in 51..80 {
            let seen = snapshot(Phase::Drain, 5, 3);
            guard.tick(TICK * tick, &seen);
            assert!(!guard.at_once(&seen));
        }
    }
}
