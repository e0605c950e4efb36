//! Waits of the event loop for the next due time or an event: sleeping, and spinning for the last microseconds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sys::timer::Timer;
use units::Timestamp;

use super::load_io::LoadIo;
use super::poller::Poller;
use super::stalls::next_beat_after;
use super::{Drive, Health, RECORDER_SLEEP_MIN, TOKEN_TIMER};
use plan::{Engine, Wait};

/// A closed loop polls for responses this long before it sleeps: a server that must wake its client pays for it, and
/// would make a client as fast as itself slower.
const CLOSED_LOOP_SPIN: Duration = Duration::from_micros(50);

/// An open loop that leaves its core to the recorder in sleeps of their own ([`Drive::sleep_for_recorder`]) polls
/// through waits up to this length. Falling asleep, waking up and setting the timer would take a large part of such a
/// wait, and the server would pay for waking the loop at each response.
const OPEN_LOOP_SPIN: Duration = Duration::from_micros(50);

/// The timer that ends a wait, and its margin.
pub struct Alarm {
    timer: Timer,
    margin: Margin,
}

impl Alarm {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// No timer is available.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm { timer: Timer::new()?, margin: Margin::default() })
    }

    /// Handles that the timer fired.
    pub fn fired(&mut self) {
        self.timer.fired();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// With [`Wait::Hybrid`] the loop wakes this long before the due time and spins the rest: the 90th percentile of this
/// machine's wake-up latency, which is 5 us on one machine and 50 us on another. It adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin(Duration);

impl Margin {
    const MIN: Duration = Duration::from_micros(5);
    /// Largest margin. A machine with later wake-ups is busy, and spinning would only keep it busier.
    const MAX: Duration = Duration::from_micros(100);
    const STEP: Duration = Duration::from_nanos(900);

    /// Time before a due time, `wait` away, at which to wake: at most a quarter of a short wait is spun, so that a busy
    /// loop, possibly in the real-time class, still leaves its core to others.
    pub fn of(self, wait: Duration) -> Duration {
        self.0.min(wait / 4).max(Self::MIN)
    }

    /// Adapts the margin to a wake-up that was this late.
    pub fn adapt(&mut self, late: Duration) {
        // Nine steps up for a wake-up that was too late, one down for any other: they balance if one of ten is too
        // late.
        self.0 = if late > self.0 { self.0 + Self::STEP } else { self.0 - Self::STEP / 9 };
        self.0 = self.0.clamp(Self::MIN, Self::MAX);
    }
}

impl Default for Margin {
    fn default() -> Self {
        Margin(Self::MIN)
    }
}

impl Drive<'_> {
    /// Waits for `next` or an event, whichever comes first; while a response may arrive, for at most a beat.
    pub(super) fn wait_until(
        &mut self,
        next: Timestamp,
        poller: &mut Poller,
        alarm: &mut Alarm,
        health: &mut Health,
    ) -> io::Result<usize> {
        let before = self.clock.now();
        health.turned(before);
        if next <= before {
            health.stalled_for(before.since(next));
            return poller.poll(false);
        }
        let until = if self.awaits() { next.min(next_beat_after(before)) } else { next };
        let ready = if self.polls_through(next.since(before)) {
            self.spin_until(until, poller)?
        } else {
            self.wait_between(before, until, until < next, poller, alarm)?
        };
        let after = self.clock.now();
        health.waited(before, after);
        if let Some(load) = &mut self.load {
            load.waited(before, until, next, after, ready > 0);
        }
        let spin = if self.wait == Wait::Sleep { Duration::ZERO } else { alarm.margin.0 };
        if after.since(before) >= RECORDER_SLEEP_MIN + spin {
            // The wait was long enough to count as a sleep for the recorder.
            health.slept_at = after;
            if let Some(load) = &mut self.load {
                load.left_core_for(after.since(before).saturating_sub(spin));
            }
        }
        if after > until {
            health.stalled_for(after.since(until));
            // A wait with io_uring that returns completions has also done their work.
            if ready == 0 || poller.engine() == Engine::Epoll {
                self.note_late_wakeup(before, after);
            }
        }
        Ok(ready)
    }

    /// Notes in the path if a packet was due in a wait from `before` to `after`.
    fn note_late_wakeup(&mut self, before: Timestamp, after: Timestamp) {
        if let Some(path) = &mut self.path
            && let Some(due) = path.next_due().filter(|&due| due < after)
        {
            path.note_late_wakeup(due.max(before), after);
        }
    }

    /// Waits from `before` until `until` or an event; `is_beat`: nothing is due at `until`, so it may be slightly late.
    fn wait_between(
        &self,
        before: Timestamp,
        until: Timestamp,
        is_beat: bool,
        poller: &mut Poller,
        alarm: &mut Alarm,
    ) -> io::Result<usize> {
        let spin = match self.wait {
            Wait::Spin => Duration::MAX,
            Wait::Hybrid if !is_beat => alarm.margin.of(until.since(before)),
            Wait::Hybrid | Wait::Sleep => Duration::ZERO,
        };
        if self.own_core && self.wait == Wait::Hybrid && self.is_closed() {
            let ready = self.spin_until(until.min(before + CLOSED_LOOP_SPIN), poller)?;
            if ready > 0 {
                return Ok(ready);
            }
        }
        if until == Timestamp::MAX && self.wait != Wait::Spin {
            return poller.poll(true);
        }
        if until.since(before) <= spin {
            return self.spin_until(until, poller);
        }
        alarm.timer.arm(self.clock.absolute(until - spin))?;
        let ready = poller.poll(true)?;
        if !poller.is_only(TOKEN_TIMER) {
            return Ok(ready);
        }
        alarm.fired();
        if is_beat {
            return Ok(0);
        }
        alarm.margin.adapt(self.clock.now().since(until - spin));
        self.spin_until(until, poller)
    }

    /// Whether the loop polls through a wait of this length.
    fn polls_through(&self, wait: Duration) -> bool {
        self.wait == Wait::Hybrid
            && self.own_core
            && self.shares_core
            && self.path.is_none()
            && self.load.is_some()
            && wait <= OPEN_LOOP_SPIN
    }

    /// Whether a response may arrive at any time, of this shard or through this loop's path.
    fn awaits(&self) -> bool {
        self.load.as_ref().is_some_and(LoadIo::awaits) || !self.others.is_empty()
    }

    fn spin_until(&self, next: Timestamp, poller: &mut Poller) -> io::Result<usize> {
        // In the gaps of a closed loop the recorder, on the same core, has its time.
        let yields = self.shares_core && self.is_closed();
        loop {
            let ready = if yields { poller.poll_and_yield()? } else { poller.poll(false)? };
            if ready > 0 || self.clock.now() >= next {
                return Ok(ready);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Rng;

    #[test]
    fn the_margin_is_the_90th_percentile_of_wake_up_latency() {
        let mut rng = Rng::new(1, 1);
        for (least_us, expected_us) in [(0.0, 9.0), (20.0, 29.0), (200.0, 100.0)] {
            let mut margin = Margin::default();
            for _ in 0..2000 {
                margin.adapt(Duration::from_nanos(((least_us + 10.0 * rng.uniform()) * 1e3) as u64));
            }
            let margin_us = margin.0.as_secs_f64() * 1e6;
            assert!((margin_us - expected_us).abs() < 2.0, "{least_us} us and up to 10 more: {margin_us} us");
        }
    }

    #[test]
    fn the_margin_shrinks_again_when_wake_ups_are_fast() {
        let mut margin = Margin(Duration::from_micros(100));
        let of = |margin: Margin, us| margin.of(Duration::from_micros(us)).as_micros();
        assert_eq!([1000, 100, 10].map(|us| of(margin, us)), [100, 25, 5]);
        (0..2000).for_each(|_| margin.adapt(Duration::from_micros(2)));
        assert_eq!(of(margin, 1000), 5);
    }
}
