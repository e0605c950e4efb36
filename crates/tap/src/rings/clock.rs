//! The hooks' clock, and its way to the run's.
//!
//! Where the cycle counter runs at one rate on all cores, hooks read it (some 10 ns less a call than the kernel's
//! clock). A counter says nothing about time by itself: [`Pairs`] of both clocks do, and what is read between them. The
//! error is that of a pair, below 100 ns here; a hook's own read is not ordered with the instructions around it, some 10
//! ns.

use std::time::Duration;

use sys::clock::{Clock, monotonic_ns};
use units::Timestamp;

use super::layout;
use super::pairs::{Pair, Pairs};

/// Read so often for one pair; the quickest is taken, since the others were interrupted.
const TRIES: usize = 8;
/// Between a core's clock and another's.
const CORE_SLACK: Duration = Duration::from_millis(1);

/// From ticks to the run's time.
#[derive(Debug)]
pub struct Ticks {
    run: Clock,
    /// None: ticks are nanoseconds of the monotonic clock.
    pairs: Option<Pairs>,
}

impl Ticks {
    /// Takes the cycle counter if it will do.
    pub fn start(run: Clock) -> Ticks {
        Ticks::resume(run, &Pairs::default())
    }

    /// The same, of a reader that goes on: what it reads may be of any time since the first of `before`.
    pub fn resume(run: Clock, before: &Pairs) -> Ticks {
        let pairs = counter_is_a_clock().then(|| {
            let first = pair();
            let may_follow = before.last().is_none_or(|last| last.monotonic_ns < first.monotonic_ns);
            let mut pairs = if may_follow { before.clone() } else { Pairs::default() };
            pairs.note(first);
            // The first rate must come from somewhere: two pairs a millisecond apart give it to 1 in 10,000.
            while pairs.len() < 2 {
                let (last, now) = (pairs.last().unwrap_or_default(), pair());
                if now.monotonic_ns >= last.monotonic_ns + 1_000_000 {
                    pairs.note(now);
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

    /// For the header: what the hooks are to read.
    pub fn kind(&self) -> u32 {
        if self.pairs.is_some() { layout::clock::TSC } else { layout::clock::NANOSECONDS }
    }

    /// So long, in ticks.
    pub fn of(&self, duration: Duration) -> u64 {
        let ns = units::time::saturating_nanos(duration);
        self.pairs.as_ref().map_or(ns, |pairs| pairs.ticks_of(ns))
    }

    /// Call it before reading records, so that they lie before the latest pair. A pair that stays is handed out, for a reader
    /// that comes after this one.
    pub fn refresh(&mut self) -> Option<Pair> {
        let pairs = self.pairs.as_mut()?;
        let now = pair();
        pairs.note(now).then_some(now)
    }

    /// All pairs.
    pub fn pairs(&self) -> Vec<Pair> {
        self.pairs.as_ref().map(|pairs| pairs.all().to_vec()).unwrap_or_default()
    }

    /// A moment that nothing which was written by now is later than. The cores' counters agree to far less than the
    /// slack.
    pub fn latest(&self) -> u64 {
        let now = if self.pairs.is_some() { counter() } else { monotonic_ns() };
        now.saturating_add(self.of(CORE_SLACK))
    }

    /// The run's time at `ticks`; of what is before the run's zero, zero. What a broken program writes may be any
    /// number: nothing overflows.
    pub fn at(&self, ticks: u64) -> Timestamp {
        self.run.from_monotonic_ns(self.pairs.as_ref().map_or(ticks, |pairs| pairs.at(ticks)))
    }

    /// So many ticks that ended at about `at`, as time; at most 292 years, so that a few broken ones can be added.
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

/// One rate, never stopping, and trusted by the kernel itself, which compares the cores' counters at start.
fn counter_is_a_clock() -> bool {
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
            // A pair's own error is the time between its two reads: two reads of the kernel's clock are wider.
            let slack = Duration::from_micros(500);
            assert!(ticks.at(at) + slack >= before && ticks.at(at) <= after + slack);
        }
        assert!(ticks.of(Duration::from_millis(100)) > 10_000_000);
    }
}
