//! Pairs of the hooks' clock and the kernel's, and interpolation between them.
//!
//! A cycle counter alone gives no time, and its rate against CLOCK_MONOTONIC changes: the kernel slews that clock, by
//! 500 in a million at most. Between two pairs at distance D the interpolation is off by at most a quarter of D times
//! the change of rate in between.
//!
//! Records are mostly read some milliseconds after they were written, so the latest pairs matter most; older pairs
//! serve calls that began long ago, and rings that were not read for a while. So pairs are thinned out with age: a
//! pair is removed if its neighbours are nearer to each other than a 32nd of their age. A month has some 700 pairs.

use serde::{Deserialize, Serialize};

/// Simultaneous readings of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The hooks' clock.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
}

/// Pairs in the order of time, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs {
    pairs: Vec<Pair>,
    /// Minimum number of pairs before thinning.
    thin_at: usize,
}

/// Initial distance of stored pairs.
const PAIR_INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum distance of older pairs, as a share of their age.
const THINNING_SHARE: u64 = 32;
/// A larger change of rate between pairs, in thousandths, is not slewing: the machine was suspended, and one of the
/// clocks continued.
const JUMP_PER_MILLE: u128 = 10;
/// Minimum time to determine a rate.
const RATE_BASE_MIN_NS: u64 = 100_000;

impl Pairs {
    /// Adds a pair just read; returns whether it must be stored, and is not replaced by the next one.
    ///
    /// A counter that went back was reset (the machine was suspended): only the rate of earlier pairs is still valid.
    pub fn add(&mut self, now: Pair) -> bool {
        let Some(&last) = self.pairs.last() else {
            self.pairs.push(now);
            return true;
        };
        if now.monotonic_ns <= last.monotonic_ns {
            return false;
        }
        if now.ticks <= last.ticks {
            self.restart(now);
            return true;
        }
        let [.., before, last] = self.pairs.as_mut_slice() else {
            self.pairs.push(now);
            return true;
        };
        if last.monotonic_ns < before.monotonic_ns + PAIR_INTERVAL_NS && !is_jump(*before, *last, now) {
            *last = now;
            return false;
        }
        self.pairs.push(now);
        if self.pairs.len() >= self.thin_at {
            self.thin(now.monotonic_ns);
        }
        true
    }

    /// Number of pairs. Fewer than two give no rate.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// All pairs, in order.
    pub fn all(&self) -> &[Pair] {
        &self.pairs
    }

    /// The latest pair.
    pub fn last(&self) -> Option<Pair> {
        self.pairs.last().copied()
    }

    /// CLOCK_MONOTONIC at `ticks`; outside the pairs by the rate of the nearest two. With fewer than two pairs, ticks
    /// count as nanoseconds.
    pub fn at(&self, ticks: u64) -> u64 {
        let Some((a, b)) = self.surrounding(ticks) else { return ticks };
        let (run_ticks, run_ns) = (b.ticks - a.ticks, b.monotonic_ns - a.monotonic_ns);
        if ticks >= a.ticks {
            a.monotonic_ns.saturating_add(scaled(ticks - a.ticks, run_ns, run_ticks))
        } else {
            a.monotonic_ns.saturating_sub(scaled(a.ticks - ticks, run_ns, run_ticks))
        }
    }

    /// Converts a duration in ticks that ended at about `at` to nanoseconds.
    pub fn duration_ns(&self, ticks: u64, at: u64) -> u64 {
        self.surrounding(at).map_or(ticks, |(a, b)| scaled(ticks, b.monotonic_ns - a.monotonic_ns, b.ticks - a.ticks))
    }

    /// Converts nanoseconds to ticks at the current rate.
    pub fn ticks_of(&self, ns: u64) -> u64 {
        self.surrounding(u64::MAX).map_or(ns, |(a, b)| scaled(ns, b.ticks - a.ticks, b.monotonic_ns - a.monotonic_ns))
    }

    /// The two pairs to convert `ticks` with: the pairs around it; the first or last two pairs if `ticks` is outside.
    fn surrounding(&self, ticks: u64) -> Option<(Pair, Pair)> {
        let pairs = self.pairs.as_slice();
        if pairs.len() < 2 {
            return None;
        }
        let after = pairs.partition_point(|pair| pair.ticks <= ticks).clamp(1, pairs.len() - 1);
        let (mut before, after) = (after - 1, after);
        // The latest pair may be close to the previous one, and a short base has a large error.
        if before > 0
            && pairs[after].monotonic_ns - pairs[before].monotonic_ns < PAIR_INTERVAL_NS / 2
            && !is_jump(pairs[before - 1], pairs[before], pairs[after])
        {
            before -= 1;
        }
        Some((pairs[before], pairs[after]))
    }

    /// Restarts after a reset of the counter: the previous rate is used until a new one is known.
    fn restart(&mut self, now: Pair) {
        let ns = now.monotonic_ns.min(PAIR_INTERVAL_NS);
        let first = Pair { ticks: now.ticks.saturating_sub(self.ticks_of(ns)), monotonic_ns: now.monotonic_ns - ns };
        self.pairs = if first.ticks < now.ticks { vec![first, now] } else { vec![now] };
    }

    fn thin(&mut self, now_ns: u64) {
        let mut pairs: Vec<Pair> = Vec::with_capacity(self.pairs.len());
        for (at, pair) in self.pairs.iter().enumerate() {
            let is_redundant = match (pairs.last(), self.pairs.get(at + 1)) {
                (Some(before), Some(next)) => {
                    let age = now_ns.saturating_sub(next.monotonic_ns);
                    next.monotonic_ns - before.monotonic_ns < age / THINNING_SHARE
                }
                _ => false,
            };
            if !is_redundant {
                pairs.push(*pair);
            }
        }
        self.thin_at = pairs.len() + pairs.len() / 4 + 64;
        self.pairs = pairs;
    }
}

/// Whether the rate from `last` to `now` differs from the rate before by more than slewing and the error of a pair can
/// explain.
fn is_jump(before: Pair, last: Pair, now: Pair) -> bool {
    let (ticks, ns) = (last.ticks - before.ticks, last.monotonic_ns - before.monotonic_ns);
    let (new_ticks, new_ns) = (now.ticks - last.ticks, now.monotonic_ns - last.monotonic_ns);
    if ns < RATE_BASE_MIN_NS || new_ns < RATE_BASE_MIN_NS {
        return false;
    }
    let (old_rate, new_rate) = (u128::from(ticks) * u128::from(new_ns), u128::from(new_ticks) * u128::from(ns));
    // An error of 10 us in each pair is not a jump, even over a short time.
    let error = u128::from(ticks) * u128::from(ERROR_NS) + u128::from(new_ticks) * u128::from(ERROR_NS);
    old_rate.abs_diff(new_rate) > old_rate / 1000 * JUMP_PER_MILLE + error
}

/// Maximum distance of the two reads of a pair, on a machine that interrupts all attempts.
const ERROR_NS: u64 = 20_000;

/// `value * to / from`, rounded down, saturating.
fn scaled(value: u64, to: u64, from: u64) -> u64 {
    let exact = u128::from(value) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
