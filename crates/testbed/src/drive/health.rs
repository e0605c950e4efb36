//! Measures the health of a loop: how long it worked and waited, and its longest stall.

use std::time::Duration;

use sys::accounting::Served;
use units::Timestamp;
use validity::evidence::LoopHealth;

/// The clocks of the loop's thread.
#[derive(Clone, Copy, Default)]
struct Reading {
    at: Timestamp,
    cpu: Duration,
    /// `None` if the kernel does not measure it.
    served: Option<Served>,
}

impl Reading {
    fn take(at: Timestamp) -> Self {
        let own = std::process::id() as i32;
        let served = sys::accounting::served(own, sys::accounting::this_thread());
        Reading { at, cpu: sys::clock::thread_cpu_time(), served }
    }
}

/// Measures [`LoopHealth`] over the measured phase.
#[derive(Default)]
pub(super) struct Health {
    longest_stall: Duration,
    idle: Duration,
    /// End of the last wait, which is the start of the current iteration.
    turn_began: Option<Timestamp>,
    /// End of the loop's last sleep.
    pub(super) slept_at: Timestamp,
    from: Option<Reading>,
    to: Option<Reading>,
    pub(super) stopped: bool,
}

impl Health {
    pub(super) fn measuring(&self) -> bool {
        self.from.is_some()
    }

    pub(super) fn ended(&self) -> bool {
        self.to.is_some()
    }

    pub(super) fn measure(&mut self, now: Timestamp) {
        if self.from.is_none() {
            self.from = Some(Reading::take(now));
        }
    }

    pub(super) fn end(&mut self, now: Timestamp) {
        self.to = Some(Reading::take(now));
    }

    pub(super) fn stalled_for(&mut self, time: Duration) {
        if self.measuring() && !self.ended() {
            self.longest_stall = self.longest_stall.max(time);
        }
    }

    /// Ends an iteration at `now`: work that became due during the iteration waited for its end.
    pub(super) fn turned(&mut self, now: Timestamp) {
        if let Some(began) = self.turn_began.replace(now) {
            self.stalled_for(now.since(began));
        }
    }

    pub(super) fn waited(&mut self, from: Timestamp, to: Timestamp) {
        self.turn_began = Some(to);
        if self.measuring() && !self.ended() {
            self.idle += to.since(from);
        }
    }

    /// The health so far.
    pub(super) fn so_far(&self, now: Timestamp) -> LoopHealth {
        let to = self.to.map_or(now, |to| to.at);
        let wall = self.from.map_or(Duration::ZERO, |from| to.since(from.at));
        LoopHealth { longest_stall: self.longest_stall, idle: self.idle, wall, ..LoopHealth::default() }
    }

    pub(super) fn finish(mut self, now: Timestamp) -> LoopHealth {
        if self.to.is_none() {
            self.end(now);
        }
        let to = self.to.unwrap_or_default();
        // A phase that never began, because the run was stopped in its warm-up, has no length.
        let from = self.from.unwrap_or(to);
        // A kernel that does not measure it may report zeros, also for a thread that has run.
        let served = to.served.filter(|to| !to.ran.is_zero()).zip(from.served);
        LoopHealth {
            longest_stall: self.longest_stall,
            idle: self.idle,
            wall: to.at.since(from.at),
            cpu: to.cpu.saturating_sub(from.cpu),
            run_queue_wait: served.map(|(to, from)| to.waited.saturating_sub(from.waited)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_measured_phase_that_never_began_has_no_length() {
        let mut health = Health::default();
        health.waited(at(0), at(900));
        let health = health.finish(at(1000));
        assert_eq!((health.wall, health.busy_share()), (Duration::ZERO, 0.0));
    }

    #[test]
    fn run_queue_wait_is_unknown_if_the_kernel_reports_zeros() {
        let reading = |ran_ms, waited_ms| {
            let served = Served { ran: Duration::from_millis(ran_ms), waited: Duration::from_millis(waited_ms) };
            Some(Reading { at: at(0), cpu: Duration::ZERO, served: Some(served) })
        };
        let wait = |from, to| Health { from, to, ..Health::default() }.finish(at(0)).run_queue_wait;
        assert_eq!(wait(reading(0, 0), reading(5, 2)), Some(Duration::from_millis(2)));
        assert_eq!(wait(reading(0, 0), reading(0, 0)), None);
    }

    #[test]
    fn a_long_iteration_and_a_late_wake_up_are_stalls() {
        let mut health = Health::default();
        health.measure(at(0));
        health.turned(at(1));
        health.waited(at(1), at(5));
        // After a long iteration nothing is overdue, although nothing was served for 300 ms.
        health.turned(at(305));
        assert_eq!(health.longest_stall, Duration::from_millis(300));
        health.waited(at(305), at(1000));
        assert_eq!(health.longest_stall, Duration::from_millis(300), "waiting is not a stall");
        health.stalled_for(Duration::from_millis(400));
        assert_eq!(health.finish(at(1000)).longest_stall, Duration::from_millis(400));
    }

    #[test]
    fn loop_health_excludes_time_outside_the_measured_phase() {
        let mut health = Health::default();
        health.turned(at(1));
        health.turned(at(90));
        health.measure(at(100));
        health.turned(at(101));
        health.end(at(110));
        health.turned(at(500));
        let health = health.finish(at(500));
        assert_eq!(health.longest_stall, Duration::from_millis(11));
        assert_eq!(health.wall, Duration::from_millis(10));
    }
}
