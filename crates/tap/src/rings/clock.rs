//! Conversion of the hooks' clock to the run's.
//!
//! If the cycle counter runs at one rate on all cores, hooks read it (some 10 ns less a call than the kernel's
//! clock). [`Pairs`] of both clocks give times for its values, with interpolation. The error is that of a pair, below
//! 100 ns here; a hook's own read is not ordered with the instructions around it, some 10 ns.

use std::time::Duration;

use sys::clock::{Clock, monotonic_ns};
use units::Timestamp;

use super::layout;
use super::pairs::{Pair, Pairs};

/// Reads per pair; the fastest is used, since others were interrupted.
const TRIES: usize = 8;
/// Maximum difference between the counters of two cores.
const CORE_SLACK: Duration = Duration::from_millis(1);

/// Converts ticks to the run's time.
#[derive(Debug)]
pub struct Ticks {
    run: Clock,
    /// Empty: ticks are nanoseconds of the monotonic clock.
    pairs: Option<Pairs>,
}

impl Ticks {
    /// Uses the cycle counter if it is suitable.
    pub fn start(run: Clock) -> Ticks {
        Ticks::resume(run, &Pairs::default())
    }

    /// Uses the cycle counter for a resumed reader, whose records may be as old as the first of `before`.
    pub fn resume(run: Clock, before: &Pairs) -> Ticks {
        let pairs = is_cycle_counter_reliable().then(|| {
            let first = pair();
            let may_follow = before.last().is_none_or(|last| last.monotonic_ns < first.monotonic_ns);
            let mut pairs = if may_follow { before.clone() } else { Pairs::default() };
            pairs.add(first);
            // Two pairs a millisecond apart give the first rate to 1 in 10,000.
            while pairs.len() < 2 {
                let (last, now) = (pairs.last().unwrap_or_default(), pair());
                if now.monotonic_ns >= last.monotonic_ns + 1_000_000 {
                    pairs.add(now);
                }
            }
            pairs
        });
        Ticks { run, pairs }
    }

    /// The run's time.
    pub fn now(&self) -> Timestamp {
        self.run.now()
    }

    /// The clock that hooks must read, for the header.
    pub fn kind(&self) -> u32 {
        if self.pairs.is_some() { layout::clock::TSC } else { layout::clock::NANOSECONDS }
    }

    /// A duration in ticks.
    pub fn of(&self, duration: Duration) -> u64 {
        let ns = units::time::saturating_nanos(duration);
        self.pairs.as_ref().map_or(ns, |pairs| pairs.ticks_of(ns))
    }

    /// Adds a clock pair. Call it before reading records, so that they lie before the latest pair. Returns a pair
    /// that must be stored for the next reader.
    pub fn refresh(&mut self) -> Option<Pair> {
        let pairs = self.pairs.as_mut()?;
        let now = pair();
        pairs.add(now).then_some(now)
    }

    /// All pairs.
    pub fn pairs(&self) -> Vec<Pair> {
        self.pairs.as_ref().map(|pairs| pairs.all().to_vec()).unwrap_or_default()
    }

    /// A time that is not before any record written so far. The cores' counters agree to far less than the slack.
    pub fn latest(&self) -> u64 {
        let now = if self.pairs.is_some() { counter() } else { monotonic_ns() };
        now.saturating_add(self.of(CORE_SLACK))
    }

    /// The run's time at `ticks`; zero for times before the run's zero. Any number is allowed, without overflow.
    pub fn at(&self, ticks: u64) -> Timestamp {
        self.run.from_monotonic_ns(self.pairs.as_ref().map_or(ticks, |pairs| pairs.at(ticks)))
    }

    /// Converts a duration in ticks that ended at about `at`; at most 292 years, so that several can be added.
    pub fn duration(&self, ticks: u64, at: u64) -> Duration {
        let ns = self.pairs.as_ref().map_or(ticks, |pairs| pairs.duration_ns(ticks, at));
        Duration::from_nanos(ns.min(u64::MAX / 2))
    }
}

fn pair() -> Pair {
    let mut best = (u64::MAX, Pair { ticks: 0, monotonic_ns: 0 });
    for _ in 0..TRIES {
        let (before, monotonic_ns, after) = (counter(), monotonic_ns(), counter());
        let width = after.wrapping_sub(before);
        if width < best.0 {
            best = (width, Pair { ticks: before.wrapping_add(width / 2), monotonic_ns });
        }
    }
    best.1
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it, and no filter forbids it to this process.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Whether the cycle counter has one rate, never stops, and is trusted by the kernel, which compares the cores'
/// counters at boot.
fn is_cycle_counter_reliable() -> bool {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |name| flags.split_whitespace().any(|flag| flag == name);
    cfg!(target_arch = "x86_64")
        && source.is_ok_and(|source| source.trim() == "tsc")
        && has("constant_tsc")
        && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_counter_and_monotonic_clock_agree() {
        let run = Clock::start();
        let mut ticks = Ticks::start(run);
        for _ in 0..50 {
            let before = run.now();
            let at = if ticks.kind() == layout::clock::TSC { counter() } else { monotonic_ns() };
            let after = run.now();
            ticks.refresh();
            // A pair's error is the time between its two reads; two reads of the kernel's clock take longer.
            let slack = Duration::from_micros(500);
            assert!(ticks.at(at) + slack >= before && ticks.at(at) <= after + slack);
        }
        assert!(ticks.of(Duration::from_millis(100)) > 10_000_000);
    }
}
