//! The one clock of a run: CLOCK_MONOTONIC, counted from the run's zero.

use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime};

use units::Timestamp;

/// A monotonic clock with its zero, and the wall clock's reading at that zero (for names and reports only: no
/// duration is ever taken from the wall clock).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero_ns: u64,
    started: SystemTime,
}

impl Clock {
    /// A clock whose zero is this moment.
    pub fn start() -> Self {
        Clock { zero_ns: monotonic_ns(), started: SystemTime::now() }
    }

    /// Nanoseconds since the zero. Costs one vDSO call, some 40 ns on the reference platform.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(monotonic_ns().saturating_sub(self.zero_ns))
    }

    /// The wall clock at the zero.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// `at` as an absolute CLOCK_MONOTONIC reading, for [`crate::timer::Timer::arm`].
    pub fn absolute(&self, at: Timestamp) -> Duration {
        Duration::from_nanos(self.zero_ns.saturating_add(at.as_nanos()))
    }

    /// The run's time of an absolute CLOCK_MONOTONIC reading taken by another process; readings before the zero
    /// become zero.
    pub fn from_monotonic_ns(&self, monotonic_ns: u64) -> Timestamp {
        Timestamp::from_nanos(monotonic_ns.saturating_sub(self.zero_ns))
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is valid for a timespec; CLOCK_MONOTONIC always exists, so the call fills it.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_REALTIME in nanoseconds since 1970: the clock that stamps captured packets.
pub fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: as in `monotonic_ns`; the calling thread's CPU clock always exists.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, now.as_mut_ptr());
        now.assume_init()
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_from_its_zero() {
        let clock = Clock::start();
        let (a, b) = (clock.now(), clock.now());
        assert!(a <= b && b.as_secs_f64() < 5.0);
        assert_eq!(clock.from_monotonic_ns(clock.absolute(b).as_nanos() as u64), b);
    }
}
