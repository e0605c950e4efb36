//! The offset of two clocks by round trips: the formula of NTP (RFC 5905, section 8), with the smallest of many round
//! trips.
//!
//! A member notes its wall clock, the leader answers with its own, and the answer's arrival gives the round trip. The
//! leader read its clock somewhere within the round trip, so half of the round trip bounds the error, however unequal
//! the two directions are.

use std::time::Duration;

use schema::document::ClockOffset;

use crate::Now;

/// Measures the offset by a fixed number of round trips, one after another.
#[derive(Debug)]
pub(crate) struct Measurement {
    first_sequence: u64,
    sent: u32,
    pending: Option<(u64, Now)>,
    next_at: Duration,
    best: Option<(Duration, i64)>,
    completed: u32,
}

impl Measurement {
    /// Begins with this sequence number; numbers of two measurements must not overlap.
    pub fn new(first_sequence: u64, now: Duration) -> Self {
        Measurement { first_sequence, sent: 0, pending: None, next_at: now, best: None, completed: 0 }
    }

    /// The sequence number of a ping to send now, if it is time for one.
    pub fn ping(&mut self, now: Now) -> Option<u64> {
        if now.monotonic < self.next_at || self.is_done(now.monotonic) || self.sent == PINGS {
            return None;
        }
        let sequence = self.first_sequence + u64::from(self.sent);
        self.sent += 1;
        self.pending = Some((sequence, now));
        // An answer brings the next ping forward.
        self.next_at = now.monotonic + PONG_TIMEOUT;
        Some(sequence)
    }

    /// Takes an answer. One that is late, or comes twice, is ignored.
    pub fn pong(&mut self, now: Now, sequence: u64, leader_ns: u64) {
        let Some((_, sent)) = self.pending.filter(|(pending, _)| *pending == sequence) else { return };
        self.pending = None;
        self.next_at = now.monotonic + PING_INTERVAL;
        let round_trip = now.monotonic.saturating_sub(sent.monotonic);
        // The wall clock at the middle of the round trip. A clock that is set meanwhile is read once only.
        let middle = i128::from(sent.wall_ns) + round_trip.as_nanos() as i128 / 2;
        let offset = i64::try_from(middle - i128::from(leader_ns));
        let Ok(offset) = offset else { return };
        self.completed += 1;
        if self.best.is_none_or(|(best, _)| round_trip < best) {
            self.best = Some((round_trip, offset));
        }
    }

    /// Whether every ping was answered or is given up.
    pub fn is_done(&self, now: Duration) -> bool {
        self.sent == PINGS && (self.pending.is_none() || now >= self.next_at)
    }

    /// The estimate so far; `None` without a complete round trip.
    pub fn estimate(&self) -> Option<ClockOffset> {
        let (round_trip, offset_ns) = self.best?;
        // Rounded up: half of an odd number of nanoseconds.
        let bound_ns = u64::try_from(round_trip.as_nanos().div_ceil(2)).unwrap_or(u64::MAX);
        Some(ClockOffset { offset_ns, bound_ns, round_trips: self.completed })
    }
}

/// Round trips of one measurement: their smallest is hardly ever one that waited.
pub(crate) const PINGS: u32 = 16;
/// Time between an answer and the next ping.
const PING_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for an answer.
const PONG_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    fn at(monotonic_ns: u64, wall_ns: u64) -> Now {
        Now { monotonic: Duration::from_nanos(monotonic_ns), wall_ns }
    }

    #[test]
    fn the_true_offset_is_within_the_bound_whatever_the_directions() {
        for seed in 0..500 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let offset = (random.next_u64() % 200_000_000) as i64 - 100_000_000;
            let mut measurement = Measurement::new(7, Duration::ZERO);
            // Time of the leader's clock; the member's monotonic clock has the same zero.
            let (zero, mut time) = (1_000_000_000_000u64, 0u64);
            let member = |time: u64| at(time, (zero + time).checked_add_signed(offset).unwrap());
            while !measurement.is_done(Duration::from_nanos(time)) {
                if let Some(sequence) = measurement.ping(member(time)) {
                    let (there, back) = (random.next_u64() % 5_000_000, random.next_u64() % 30_000_000);
                    if random.next_u64() % 4 > 0 {
                        let arrival = time + there + back;
                        measurement.pong(member(arrival), sequence, zero + time + there);
                        measurement.pong(member(arrival + 5), sequence, 1);
                        time = arrival;
                    }
                }
                time += 1_000_000;
            }
            let estimate = measurement.estimate().unwrap();
            assert!(estimate.offset_ns.abs_diff(offset) <= estimate.bound_ns, "seed {seed}: {estimate:?} {offset}");
            assert!((1..=PINGS).contains(&estimate.round_trips));
        }
    }

    #[test]
    fn nothing_is_known_without_an_answer_and_wrong_numbers_are_ignored() {
        let mut measurement = Measurement::new(100, Duration::ZERO);
        let mut time = 0;
        while !measurement.is_done(Duration::from_nanos(time)) {
            if measurement.ping(at(time, time)).is_some() {
                measurement.pong(at(time, time), 99, 5);
            }
            time += 1_000_000;
        }
        assert_eq!(measurement.estimate(), None);
        assert!(Duration::from_nanos(time) <= PONG_TIMEOUT * PINGS + Duration::from_millis(PINGS.into()));
    }
}
