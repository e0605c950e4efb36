//! A timer wheel: deadlines of many connections, each in constant time.
//!
//! Most deadlines are postponed long before they expire: every response resets a connection's deadline. A later
//! deadline therefore costs one comparison: the entry stays, and when its time comes the owner reports the new
//! deadline. Only an earlier deadline is entered again; the old entry is recognised as stale.

use std::time::Duration;

use units::Timestamp;

/// A ring of buckets, one per tick, with the tokens to check then.
#[derive(Debug)]
pub(super) struct Wheel {
    buckets: Vec<Vec<u64>>,
    tick_ns: u64,
    /// The first unchecked tick.
    next: u64,
    /// Tokens in all buckets, including stale ones.
    length: usize,
    /// One bit per bucket: whether it has tokens.
    filled: [u64; BUCKETS / 64],
}

impl Wheel {
    /// Checks every `tick`; deadlines beyond the wheel's range are checked after one round.
    pub fn new(tick: Duration, now: Timestamp) -> Self {
        let tick_ns = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1);
        Wheel {
            buckets: vec![Vec::new(); BUCKETS],
            tick_ns,
            next: now.as_nanos() / tick_ns + 1,
            length: 0,
            filled: [0; BUCKETS / 64],
        }
    }

    /// The tick at which `deadline` is checked: never before, at most one tick after. For deadlines beyond the range it
    /// is the last tick in range.
    pub fn tick_of(&self, deadline: Timestamp) -> u64 {
        (deadline.as_nanos() / self.tick_ns + 1).clamp(self.next, self.next + BUCKETS as u64 - 1)
    }

    /// Enters a token. The owner stores `tick`: an entry at another tick is stale.
    pub fn enter(&mut self, tick: u64, token: u64) {
        debug_assert!(tick >= self.next && tick < self.next + BUCKETS as u64, "within reach");
        let at = (tick % BUCKETS as u64) as usize;
        self.buckets[at].push(token);
        self.filled[at / 64] |= 1 << (at % 64);
        self.length += 1;
    }

    /// Whether nothing is entered.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// When to check next: the first tick with tokens, or the first of all without tokens.
    pub fn next_at(&self) -> Timestamp {
        let from = (self.next % BUCKETS as u64) as usize;
        let (word, bit) = (from / 64, from % 64);
        // The ring's first word is examined again at the end, for the bits before its start.
        let mut words = (0..=self.filled.len()).map(|step| {
            let at = (word + step) % self.filled.len();
            let bits = if step == 0 { self.filled[at] >> bit << bit } else { self.filled[at] };
            (at * 64, bits)
        });
        let first = words.find(|(_, bits)| *bits != 0).map(|(at, bits)| at + bits.trailing_zeros() as usize);
        let ahead = first.map_or(0, |at| (at + BUCKETS - from) % BUCKETS) as u64;
        Timestamp::from_nanos((self.next + ahead).saturating_mul(self.tick_ns))
    }

    /// Moves the entries of an expired tick into `due` and returns it; `None` if none has expired.
    pub fn turn(&mut self, now: Timestamp, due: &mut Vec<u64>) -> Option<u64> {
        let reached = now.as_nanos() / self.tick_ns;
        if self.length == 0 {
            self.next = self.next.max(reached + 1);
            return None;
        }
        if self.next > reached {
            return None;
        }
        let tick = self.next;
        self.next += 1;
        let at = (tick % BUCKETS as u64) as usize;
        let bucket = &mut self.buckets[at];
        self.filled[at / 64] &= !(1 << (at % 64));
        self.length -= bucket.len();
        due.append(bucket);
        if bucket.capacity() > BUCKET_CAPACITY_MAX {
            *bucket = Vec::new();
        }
        Some(tick)
    }
}

/// More than eight minutes at a tick of one second.
const BUCKETS: usize = 512;
/// A bucket that was larger than this releases its memory.
const BUCKET_CAPACITY_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn an_empty_timer_wheel_follows_the_clock() {
        let mut wheel = Wheel::new(Duration::from_millis(10), at(0));
        assert_eq!(wheel.turn(at(1_000_000), &mut Vec::new()), None);
        let tick = wheel.tick_of(at(1_000_005));
        wheel.enter(tick, 7);
        assert!(wheel.next_at() <= at(1_000_020));
        let mut due = Vec::new();
        assert_eq!(wheel.turn(at(1_000_020), &mut due), Some(tick));
        assert_eq!(due, [7]);
        assert!(wheel.is_empty());
    }

    proptest! {
        /// No timer fires early, and none in range later than one tick, whenever the wheel is checked.
        #[test]
        fn timers_fire_never_early_and_at_most_one_tick_late(deadlines in proptest::collection::vec(0u64..4000, 1..50), step in 1u64..30) {
            let mut wheel = Wheel::new(Duration::from_millis(10), at(0));
            let mut due = Vec::new();
            for (token, &deadline) in deadlines.iter().enumerate() {
                wheel.enter(wheel.tick_of(at(deadline)), token as u64);
            }
            let (mut now, mut seen, mut seen_at) = (0, 0, Vec::new());
            while seen < deadlines.len() {
                // Checking at the reported times misses no timer.
                let first = deadlines.iter().filter(|deadline| !seen_at.contains(deadline)).min().copied().unwrap_or(0);
                prop_assert_eq!(wheel.next_at(), at((first / 10 + 1) * 10));
                now += step;
                while wheel.turn(at(now), &mut due).is_some() {
                    for token in due.drain(..) {
                        let deadline = deadlines[token as usize];
                        seen_at.push(&deadlines[token as usize]);
                        prop_assert!(deadline < now && now <= deadline + 10 + step, "{} at {}", deadline, now);
                        seen += 1;
                    }
                }
            }
        }
    }
}
