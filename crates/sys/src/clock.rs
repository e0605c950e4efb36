//! The single clock of a run: CLOCK_MONOTONIC, counted from the run's zero.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant, SystemTime};

use units::Timestamp;

use crate::error::{Error, Result};

/// A monotonic clock with its zero, and the wall clock's reading at that zero (for names and reports only: no duration
/// is taken from the wall clock).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero_ns: u64,
    started: SystemTime,
}

impl Clock {
    /// A clock whose zero is now.
    pub fn start() -> Self {
        Clock { zero_ns: monotonic_ns(), started: SystemTime::now() }
    }

    /// A clock whose zero is that of CLOCK_MONOTONIC itself, the boot: its times are comparable between all processes
    /// of this boot ([`boot_id`]), including later ones.
    pub fn of_boot() -> Self {
        let since = Duration::from_nanos(monotonic_ns());
        Clock { zero_ns: 0, started: SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH) }
    }

    /// A clock whose zero is where the wall clock, by its present setting, reads `zero_unix_ns` nanoseconds since 1970.
    /// Before such a zero [`Self::now`] is 0.
    pub fn at_unix_ns(zero_unix_ns: u64) -> Self {
        let offset = i128::from(Clock::of_boot().zero_unix_ns());
        let zero_ns = u64::try_from(i128::from(zero_unix_ns) - offset).unwrap_or(0);
        Clock { zero_ns, started: SystemTime::UNIX_EPOCH + Duration::from_nanos(zero_unix_ns) }
    }

    /// The wall clock's present reading less the time since the zero: its reading at the zero by its present setting,
    /// in nanoseconds since 1970. Two calls differ by the amount by which the wall clock was set or slewed in between;
    /// 0 if the zero lies before 1970 by that clock.
    pub fn zero_unix_ns(&self) -> u64 {
        // Between two reads of the monotonic clock, the narrowest of several tries: an interruption between them is the
        // error.
        let read = || {
            let (before, wall, after) = (monotonic_ns(), realtime_ns(), monotonic_ns());
            (after - before, wall.saturating_sub((before + (after - before) / 2).saturating_sub(self.zero_ns)))
        };
        let best = (0..ZERO_TRIES).map(|_| read()).min_by_key(|(width, _)| *width);
        best.map_or(0, |(_, zero)| zero)
    }

    /// Nanoseconds since the zero. Costs one vDSO call, about 40 ns on the reference platform.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(monotonic_ns().saturating_sub(self.zero_ns))
    }

    /// The time as an [`Instant`], which counts on the same clock, and as this clock's: for libraries that take an
    /// `Instant`. Less than a microsecond apart.
    pub fn paired(&self) -> (Instant, Timestamp) {
        (Instant::now(), self.now())
    }

    /// The wall clock at the zero.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// `at` as an absolute CLOCK_MONOTONIC reading, for [`crate::timer::Timer::arm`].
    pub fn absolute(&self, at: Timestamp) -> Duration {
        Duration::from_nanos(self.zero_ns.saturating_add(at.as_nanos()))
    }

    /// The run's time of an absolute CLOCK_MONOTONIC reading of another process; readings before the zero become zero.
    pub fn from_monotonic_ns(&self, monotonic_ns: u64) -> Timestamp {
        Timestamp::from_nanos(monotonic_ns.saturating_sub(self.zero_ns))
    }
}

/// This boot's identifier: 36 characters, different after each start of the machine. Times of [`Clock::of_boot`] are
/// comparable within one boot only.
///
/// # Errors
/// /proc is not mounted.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).map_err(Error::of(format!("read {path}")))?;
    Ok(text.trim().to_owned())
}

/// The largest error of the wall clock as the kernel knows it, from the program that synchronises it (adjtimex(2),
/// `maxerror`); `None` if no program does.
pub fn wall_clock_error() -> Option<Duration> {
    // SAFETY: an all-zero timex is valid, and with modes = 0 only read.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` outlives the call, which fills it.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    let is_synchronised = result >= 0 && result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    is_synchronised.then(|| Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(u64::MAX)))
}

/// Reads of the wall clock for one reading at the zero.
const ZERO_TRIES: usize = 5;

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

/// CLOCK_REALTIME in nanoseconds since 1970: the clock of capture timestamps.
pub fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The end of a wait, by CLOCK_MONOTONIC. A loop that sums the requested pauses would wait longer on a busy machine,
/// where each pause takes longer.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at_ns: u64,
}

impl Deadline {
    /// A deadline after `time` from now.
    pub fn after(time: Duration) -> Self {
        Deadline { at_ns: monotonic_ns().saturating_add(units::time::saturating_nanos(time)) }
    }

    /// The remaining time; zero after the deadline.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(monotonic_ns()))
    }

    /// Whether the deadline has passed.
    pub fn has_passed(&self) -> bool {
        monotonic_ns() >= self.at_ns
    }
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

/// CPU time of all threads of the calling process.
pub fn process_cpu_time() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: as in `monotonic_ns`; the calling process's CPU clock always exists.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, now.as_mut_ptr());
        now.assume_init()
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_counts_from_its_zero() {
        let clock = Clock::start();
        let (a, b) = (clock.now(), clock.now());
        assert!(a <= b && b.as_secs_f64() < 5.0);
        assert_eq!(clock.from_monotonic_ns(clock.absolute(b).as_nanos() as u64), b);
    }

    #[test]
    fn a_clock_with_its_zero_by_the_wall_clock_counts_from_there() {
        let before = realtime_ns();
        let clock = Clock::at_unix_ns(before - 5_000_000_000);
        let (now, after) = (clock.now().as_nanos(), realtime_ns());
        // A virtual machine's clocks may be slewed against each other meanwhile.
        let read = now + before - 5_000_000_000;
        assert!(read + 1_000_000 >= before && read <= after + 1_000_000, "{before} {read} {after}");
        let later = Clock::at_unix_ns(after + 3_600_000_000_000);
        assert_eq!(later.now(), Timestamp::ZERO);
        assert_eq!(later.started(), SystemTime::UNIX_EPOCH + Duration::from_nanos(after + 3_600_000_000_000));
        // The zero may not lie before the boot.
        assert!(Clock::at_unix_ns(0).now().as_nanos() <= monotonic_ns());
        if let Some(error) = wall_clock_error() {
            assert!(error < Duration::from_secs(16), "a synchronised clock: {error:?}");
        }
    }

    #[test]
    fn boot_clock_has_one_zero_for_all_processes() {
        let (first, second) = (Clock::of_boot(), Clock::of_boot());
        let a = first.now();
        let b = second.now();
        assert!(a <= b && b.as_nanos() <= monotonic_ns(), "one zero");
        assert_eq!(first.from_monotonic_ns(b.as_nanos()), b);
        // The wall clock is not changed while a busy machine runs between two reads.
        let (before, zero, now) = (realtime_ns(), first.zero_unix_ns(), monotonic_ns());
        assert!(zero + now >= before && zero + a.as_nanos() <= realtime_ns(), "{before} {zero} {now}");
        let started = Clock::start();
        assert!(started.zero_unix_ns() >= zero);
    }

    #[test]
    fn deadline_follows_the_clock_and_not_the_sum_of_pauses() {
        let begun = monotonic_ns();
        let (past, soon, never) = (
            Deadline::after(Duration::ZERO),
            Deadline::after(Duration::from_millis(30)),
            Deadline::after(Duration::MAX),
        );
        assert!(past.has_passed() && past.left().is_zero());
        assert!(!never.has_passed() && never.left() > Duration::from_secs(1 << 30));
        let mut pauses = 0;
        while !soon.has_passed() {
            // Ten times the nominal pause.
            std::thread::sleep(Duration::from_millis(10));
            pauses += 1;
        }
        assert!(pauses <= 3 && monotonic_ns() - begun >= 30_000_000, "{pauses}");
    }

    #[test]
    fn boot_id_has_36_characters() {
        let id = boot_id().unwrap();
        assert_eq!((id.len(), boot_id().unwrap()), (36, id));
    }
}
