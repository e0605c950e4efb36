//! How the loop waits for the next due moment or for something to happen: asleep, and awake for the last microseconds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sys::timer::Timer;
use units::Timestamp;

use super::load_io::LoadIo;
use super::poller::Poller;
use super::stalls::beat_after;
use super::{Drive, Health, REST, TOKEN_TIMER};
use plan::Wait;

/// A closed loop looks for answers so long before it sleeps: a server that must wake its client pays for that, and a client
/// as fast as the server would make it slower than it is.
const SPIN_CLOSED: Duration = Duration::from_micros(50);

/// The timer that ends a wait, and how much too early it is set.
pub struct Alarm {
    timer: Timer,
    margin: Margin,
}

impl Alarm {
    /// Not armed.
    ///
    /// # Errors
    /// No timer can be had.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm { timer: Timer::new()?, margin: Margin::default() })
    }

    /// It fired.
    pub fn fired(&mut self) {
        self.timer.fired();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// With [`Wait::Hybrid`] the loop wakes so long before the due moment and spins the rest: as late as nine of ten wake-ups are on this machine,
/// which takes 5 us on one and 50 us on another. It follows what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin(Duration);

impl Margin {
    const LEAST: Duration = Duration::from_micros(5);
    /// A machine whose wake-ups are later is busy, and would only be kept busier.
    const MOST: Duration = Duration::from_micros(100);
    const STEP: Duration = Duration::from_nanos(900);

    /// How long before a due moment to wake, when it is `wait` away: of a short wait no more than a quarter is spun, so that a loop with
    /// much to do, which may be in the real-time class, still leaves its core to others.
    pub fn of(self, wait: Duration) -> Duration {
        self.0.min(wait / 4).max(Self::LEAST)
    }

    /// A wake-up came so late.
    pub fn learn(&mut self, late: Duration) {
        // Nine steps up for each that was too late, one down for each that was not: they balance where one of ten is.
        self.0 = if late > self.0 { self.0 + Self::STEP } else { self.0 - Self::STEP / 9 };
        self.0 = self.0.clamp(Self::LEAST, Self::MOST);
    }
}

impl Default for Margin {
    fn default() -> Self {
        Margin(Self::LEAST)
    }
}

impl Drive<'_> {
    /// Waits for `next` or for a descriptor, whichever comes first; while an answer may come, for at most a beat.
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
            health.stood_still(before.since(next));
            return poller.poll(false);
        }
        let until = if self.awaits() { next.min(beat_after(before)) } else { next };
        let ready = self.wait_between(before, until, until < next, poller, alarm)?;
        let after = self.clock.now();
        health.waited(before, after);
        if let Some(load) = &mut self.load {
            load.waited(before, until, next, after, ready > 0);
        }
        let spin = if self.wait == Wait::Sleep { Duration::ZERO } else { alarm.margin.0 };
        if after.since(before) >= REST + spin {
            // Most of it asleep.
            health.rested = after;
        }
        if after > until {
            health.stood_still(after.since(until));
        }
        Ok(ready)
    }

    /// Waits from `before` until `until` or for a descriptor; `is_beat`: nothing is due at `until`, so that it may be late by a little.
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
            let ready = self.spin_until(until.min(before + SPIN_CLOSED), poller)?;
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
        alarm.margin.learn(self.clock.now().since(until - spin));
        self.spin_until(until, poller)
    }

    /// Whether an answer may come at any time, of this lane's or through this loop's path.
    fn awaits(&self) -> bool {
        self.load.as_ref().is_some_and(LoadIo::awaits) || !self.others.is_empty()
    }

    fn spin_until(&self, next: Timestamp, poller: &mut Poller) -> io::Result<usize> {
        loop {
            let ready = poller.poll(false)?;
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
    fn the_margin_is_what_nine_of_ten_wake_ups_take() {
        let mut rng = Rng::new(1, 1);
        for (least_us, expected_us) in [(0.0, 9.0), (20.0, 29.0), (200.0, 100.0)] {
            let mut margin = Margin::default();
            for _ in 0..2000 {
                margin.learn(Duration::from_nanos(((least_us + 10.0 * rng.uniform()) * 1e3) as u64));
            }
            let got_us = margin.0.as_secs_f64() * 1e6;
            assert!((got_us - expected_us).abs() < 2.0, "{least_us} us and up to 10 more: {got_us} us");
        }
    }

    #[test]
    fn it_falls_again_when_the_machine_is_prompt() {
        let mut margin = Margin(Duration::from_micros(100));
        let of = |margin: Margin, us| margin.of(Duration::from_micros(us)).as_micros();
        assert_eq!([1000, 100, 10].map(|us| of(margin, us)), [100, 25, 5]);
        (0..2000).for_each(|_| margin.learn(Duration::from_micros(2)));
        assert_eq!(of(margin, 1000), 5);
    }
}
