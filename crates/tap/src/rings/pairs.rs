//! Pairs of the hooks' clock and the kernel's, and the time between them.
//!
//! A counter of cycles says nothing about time by itself, and its rate against CLOCK_MONOTONIC changes: the kernel
//! slews that clock, by 500 in a million at most. Between two pairs that are D apart the line is off by at most a quarter of
//! D times the change of rate within.
//!
//! Records are mostly read some milliseconds after they were written, so the latest pairs matter most; older ones are
//! for calls that began long ago, and for rings that nobody read for a while. So pairs thin out with age: one goes when those
//! beside it are nearer to each other than a 32nd of their age. A month of them is some 700.

use serde::{Deserialize, Serialize};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The hooks' clock.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
}

/// Pairs in the order of time, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs {
    kept: Vec<Pair>,
    /// Not thinned before there are so many.
    thin_at: usize,
}

/// Pairs are kept this far apart at first.
const PAIR_INTERVAL_NS: u64 = 1_000_000_000;
/// Later, this share of their age at most.
const THINNING_SHARE: u64 = 32;
/// A rate that differs by more from one pair to the next, in a thousand, is no slewing: the machine slept, and one of the clocks went on.
const JUMP_PER_MILLE: u128 = 10;
/// Over less time than this no rate can be told.
const RATE_BASE_MIN_NS: u64 = 100_000;

impl Pairs {
    /// Takes a pair as it was just read; true if it is one to keep (and to write down), not one that the next replaces.
    ///
    /// A counter that went back was reset (the machine slept): what was before says nothing any more but the rate.
    pub fn note(&mut self, now: Pair) -> bool {
        let Some(&last) = self.kept.last() else {
            self.kept.push(now);
            return true;
        };
        if now.monotonic_ns <= last.monotonic_ns {
            return false;
        }
        if now.ticks <= last.ticks {
            self.start_again(now);
            return true;
        }
        let [.., before, last] = self.kept.as_mut_slice() else {
            self.kept.push(now);
            return true;
        };
        if last.monotonic_ns < before.monotonic_ns + PAIR_INTERVAL_NS && !is_jump(*before, *last, now) {
            *last = now;
            return false;
        }
        self.kept.push(now);
        if self.kept.len() >= self.thin_at {
            self.thin(now.monotonic_ns);
        }
        true
    }

    /// Fewer than two say nothing about a rate.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// All, in order.
    pub fn all(&self) -> &[Pair] {
        &self.kept
    }

    /// The latest.
    pub fn last(&self) -> Option<Pair> {
        self.kept.last().copied()
    }

    /// CLOCK_MONOTONIC at `ticks`; beyond the pairs by the rate of the nearest two. Of fewer than two pairs: as if
    /// ticks were nanoseconds.
    pub fn at(&self, ticks: u64) -> u64 {
        let Some((a, b)) = self.around(ticks) else { return ticks };
        let (run_ticks, run_ns) = (b.ticks - a.ticks, b.monotonic_ns - a.monotonic_ns);
        if ticks >= a.ticks {
            a.monotonic_ns.saturating_add(scaled(ticks - a.ticks, run_ns, run_ticks))
        } else {
            a.monotonic_ns.saturating_sub(scaled(a.ticks - ticks, run_ns, run_ticks))
        }
    }

    /// So many ticks that ended at about `at`, in nanoseconds.
    pub fn duration_ns(&self, ticks: u64, at: u64) -> u64 {
        self.around(at).map_or(ticks, |(a, b)| scaled(ticks, b.monotonic_ns - a.monotonic_ns, b.ticks - a.ticks))
    }

    /// So many nanoseconds in ticks, at the rate of now.
    pub fn ticks_of(&self, ns: u64) -> u64 {
        self.around(u64::MAX).map_or(ns, |(a, b)| scaled(ns, b.ticks - a.ticks, b.monotonic_ns - a.monotonic_ns))
    }

    /// The two pairs to read `ticks` with: those around it; the first or last two when it lies outside.
    fn around(&self, ticks: u64) -> Option<(Pair, Pair)> {
        let pairs = self.kept.as_slice();
        if pairs.len() < 2 {
            return None;
        }
        let after = pairs.partition_point(|pair| pair.ticks <= ticks).clamp(1, pairs.len() - 1);
        let (mut before, after) = (after - 1, after);
        // The latest pair may follow close upon the one before, and a short base has a large error.
        if before > 0
            && pairs[after].monotonic_ns - pairs[before].monotonic_ns < PAIR_INTERVAL_NS / 2
            && !is_jump(pairs[before - 1], pairs[before], pairs[after])
        {
            before -= 1;
        }
        Some((pairs[before], pairs[after]))
    }

    /// The counter begins anew: the rate so far stands for what is not known yet.
    fn start_again(&mut self, now: Pair) {
        let ns = now.monotonic_ns.min(PAIR_INTERVAL_NS);
        let first = Pair { ticks: now.ticks.saturating_sub(self.ticks_of(ns)), monotonic_ns: now.monotonic_ns - ns };
        self.kept = if first.ticks < now.ticks { vec![first, now] } else { vec![now] };
    }

    fn thin(&mut self, now_ns: u64) {
        let mut kept: Vec<Pair> = Vec::with_capacity(self.kept.len());
        for (at, pair) in self.kept.iter().enumerate() {
            let may_go = match (kept.last(), self.kept.get(at + 1)) {
                (Some(before), Some(next)) => {
                    let age = now_ns.saturating_sub(next.monotonic_ns);
                    next.monotonic_ns - before.monotonic_ns < age / THINNING_SHARE
                }
                _ => false,
            };
            if !may_go {
                kept.push(*pair);
            }
        }
        self.thin_at = kept.len() + kept.len() / 4 + 64;
        self.kept = kept;
    }
}

/// Whether the rate from `last` to `now` is another one than from `before` to `last`, beyond what slewing and the error of a pair
/// can make of it.
fn is_jump(before: Pair, last: Pair, now: Pair) -> bool {
    let (ticks, ns) = (last.ticks - before.ticks, last.monotonic_ns - before.monotonic_ns);
    let (new_ticks, new_ns) = (now.ticks - last.ticks, now.monotonic_ns - last.monotonic_ns);
    if ns < RATE_BASE_MIN_NS || new_ns < RATE_BASE_MIN_NS {
        return false;
    }
    let (old, new) = (u128::from(ticks) * u128::from(new_ns), u128::from(new_ticks) * u128::from(ns));
    // An error of 10 us in each pair is no jump, whatever it does to a rate over a short time.
    let error = u128::from(ticks) * u128::from(ERROR_NS) + u128::from(new_ticks) * u128::from(ERROR_NS);
    old.abs_diff(new) > old / 1000 * JUMP_PER_MILLE + error
}

/// What two reads of a pair are apart at worst, on a machine that interrupts all tries.
const ERROR_NS: u64 = 20_000;

/// `value * to / from`, rounded down, saturating.
fn scaled(value: u64, to: u64, from: u64) -> u64 {
    let exact = u128::from(value) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
