//! The hooks' clock, and its way to the run's.
//!
//! Where the cycle counter runs at one rate on all cores, hooks read it (some 10 ns less a call than the kernel's
//! clock). A counter says nothing about time by itself: this keeps pairs of both clocks, one a second and the latest,
//! and reads between them. The error is that of a pair, below 100 ns here; a hook's own read is not ordered with the
//! instructions around it, some 10 ns.

use std::time::Duration;

use sys::clock::{Clock, monotonic_ns};
use units::Timestamp;

use super::layout;

/// Pairs are kept this far apart.
const APART_NS: u64 = 1_000_000_000;
/// Read so often for one pair; the quickest is taken, since the others were interrupted.
const TRIES: usize = 8;
/// Between a core's clock and another's.
const SLACK: Duration = Duration::from_millis(1);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    monotonic_ns: u64,
}

/// From ticks to the run's time.
#[derive(Debug)]
pub struct Ticks {
    run: Clock,
    /// None: ticks are nanoseconds of the monotonic clock.
    pairs: Option<Vec<Pair>>,
}

impl Ticks {
    /// Takes the cycle counter if it will do.
    pub fn start(run: Clock) -> Ticks {
        let pairs = counter_is_a_clock().then(|| {
            let first = pair();
            // The first rate must come from somewhere: two pairs a millisecond apart give it to 1 in 10,000.
            let mut second = pair();
            while second.monotonic_ns < first.monotonic_ns + 1_000_000 {
                second = pair();
            }
            vec![first, second]
        });
        Ticks { run, pairs }
    }

    /// For the header: what the hooks are to read.
    pub fn kind(&self) -> u32 {
        if self.pairs.is_some() { layout::clock::TSC } else { layout::clock::NANOSECONDS }
    }

    /// So long, in ticks.
    pub fn of(&self, duration: Duration) -> u64 {
        let ns = units::time::saturating_nanos(duration);
        let Some([first, .., last]) = self.pairs.as_deref() else { return ns };
        scaled(ns, last.ticks - first.ticks, last.monotonic_ns - first.monotonic_ns)
    }

    /// Call it before reading records, so that they lie before the latest pair.
    pub fn refresh(&mut self) {
        let Some(pairs) = &mut self.pairs else { return };
        let now = pair();
        let [.., before, last] = pairs.as_mut_slice() else { return };
        if now.ticks <= last.ticks || now.monotonic_ns <= last.monotonic_ns {
            return;
        }
        if last.monotonic_ns < before.monotonic_ns + APART_NS {
            *last = now;
        } else {
            pairs.push(now);
        }
    }

    /// A moment that nothing which was written by now is later than. The cores' counters agree to far less than the
    /// slack.
    pub fn latest(&self) -> u64 {
        let now = if self.pairs.is_some() { counter() } else { monotonic_ns() };
        now.saturating_add(self.of(SLACK))
    }

    /// The run's time at `ticks`; of what is before the run's zero, zero. What a broken program writes may be any
    /// number: nothing overflows.
    pub fn at(&self, ticks: u64) -> Timestamp {
        let Some(pairs) = self.pairs.as_deref() else { return self.run.from_monotonic_ns(ticks) };
        self.run.from_monotonic_ns(between(pairs, ticks))
    }

    /// So many ticks that ended at about `at`, as time; at most 292 years, so that a few broken ones can be added.
    pub fn duration(&self, ticks: u64, at: u64) -> Duration {
        let ns = match self.pairs.as_deref() {
            None => ticks,
            Some(pairs) => {
                let (a, b) = around(pairs, at);
                scaled(ticks, b.monotonic_ns - a.monotonic_ns, b.ticks - a.ticks)
            }
        };
        Duration::from_nanos(ns.min(u64::MAX / 2))
    }
}

/// The two pairs to read `ticks` with: those around it; the first or last two when it lies outside.
fn around(pairs: &[Pair], ticks: u64) -> (Pair, Pair) {
    let after = pairs.partition_point(|pair| pair.ticks <= ticks).clamp(1, pairs.len() - 1);
    let (mut before, after) = (after - 1, after);
    // The latest pair may follow close upon the one before, and a short base has a large error.
    if before > 0 && pairs[after].monotonic_ns - pairs[before].monotonic_ns < APART_NS / 2 {
        before -= 1;
    }
    (pairs[before], pairs[after])
}

fn between(pairs: &[Pair], ticks: u64) -> u64 {
    let (a, b) = around(pairs, ticks);
    let (run_ticks, run_ns) = (b.ticks - a.ticks, b.monotonic_ns - a.monotonic_ns);
    if ticks >= a.ticks {
        a.monotonic_ns.saturating_add(scaled(ticks - a.ticks, run_ns, run_ticks))
    } else {
        a.monotonic_ns.saturating_sub(scaled(a.ticks - ticks, run_ns, run_ticks))
    }
}

/// `value * to / from`, rounded down, saturating.
fn scaled(value: u64, to: u64, from: u64) -> u64 {
    let exact = u128::from(value) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
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

    const PAIRS: &[Pair] = &[
        Pair { ticks: 1000, monotonic_ns: 5_000_000_000 },
        Pair { ticks: 3_000_001_000, monotonic_ns: 6_000_000_000 },
        Pair { ticks: 9_000_001_000, monotonic_ns: 8_000_000_000 },
    ];

    #[test]
    fn reads_between_pairs_and_beyond_them() {
        assert_eq!(between(PAIRS, 1000), 5_000_000_000);
        assert_eq!(between(PAIRS, 1_500_001_000), 5_500_000_000);
        assert_eq!(between(PAIRS, 3_000_001_000), 6_000_000_000);
        assert_eq!(between(PAIRS, 12_000_001_000), 9_000_000_000);
        assert_eq!(between(PAIRS, 0), 4_999_999_667);
        assert_eq!(between(PAIRS, u64::MAX) / 1_000_000_000, 6_148_914_696);
    }

    #[test]
    fn both_clocks_agree() {
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
