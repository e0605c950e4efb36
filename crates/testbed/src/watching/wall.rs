//! Conversion of packet timestamps to the run's clock.
//!
//! The kernel stamps captured packets with CLOCK_REALTIME; a run uses CLOCK_MONOTONIC. NTP slews both alike, so their
//! difference is constant unless the time of day is *set* (settimeofday, a leap second, a step by NTP). The difference
//! is read at the start of the capture, every second, and at its end: all packets are converted by the first reading,
//! and the largest deviation of a later one is evidence for the validity checks.

use sys::clock::{Clock, monotonic_ns, realtime_ns};
use units::Timestamp;

/// Number of readings, of which the closest pair is used: one of them may be interrupted between its two clocks.
const READINGS: usize = 16;

/// CLOCK_REALTIME less CLOCK_MONOTONIC at the start, and its later deviation.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    clock: Clock,
    offset_ns: i128,
    deviation_ns: u64,
}

impl Wall {
    /// Takes the first reading.
    pub fn new(clock: Clock) -> Self {
        Wall { clock, offset_ns: read_offset(monotonic_ns, realtime_ns), deviation_ns: 0 }
    }

    /// The run's time of a packet's timestamp. Zero before the run's zero.
    pub fn run_time(&self, stamp: Timestamp) -> Timestamp {
        let monotonic = i128::from(stamp.as_nanos()) - self.offset_ns;
        self.clock.from_monotonic_ns(u64::try_from(monotonic).unwrap_or(0))
    }

    /// Takes another reading.
    pub fn check(&mut self) {
        let now = read_offset(monotonic_ns, realtime_ns);
        let deviation = u64::try_from(now.abs_diff(self.offset_ns)).unwrap_or(u64::MAX);
        self.deviation_ns = self.deviation_ns.max(deviation);
    }

    /// Largest difference of a later reading from the first, in ns. Two readings on a quiet machine differ by a few
    /// hundred; a step of the time of day is fully visible.
    pub fn deviation_ns(&self) -> u64 {
        self.deviation_ns
    }
}

/// The wall clock is read between two readings of the monotonic clock, so the error is at most half of their
/// difference.
fn read_offset(mut monotonic: impl FnMut() -> u64, mut wall: impl FnMut() -> u64) -> i128 {
    (0..READINGS)
        .map(|_| {
            let (before, stamp, after) = (monotonic(), wall(), monotonic());
            let middle = i128::from(before) + i128::from(after.saturating_sub(before) / 2);
            (after.saturating_sub(before), i128::from(stamp) - middle)
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_pair_of_clock_readings_is_used() {
        // The third attempt is the only one that was not interrupted.
        let mut reading = 0u64;
        let monotonic = || {
            reading += 1;
            let attempt = (reading - 1) / 2;
            let gap = if attempt == 2 { 100 } else { 1_000_000 };
            attempt * 10_000_000 + (reading - 1) % 2 * gap
        };
        let mut attempt = 0u64;
        let wall = || {
            attempt += 1;
            5_000_000_000 + (attempt - 1) * 10_000_000 + if attempt == 3 { 50 } else { 900_000 }
        };
        assert_eq!(read_offset(monotonic, wall), 5_000_000_000);
    }

    #[test]
    fn packet_timestamps_are_converted_to_the_runs_clock() {
        let clock = Clock::start();
        let mut wall = Wall::new(clock);
        let (before, stamp, after) = (clock.now(), realtime_ns(), clock.now());
        let at = wall.run_time(Timestamp::from_nanos(stamp));
        // The offset is accurate to well below a millisecond on any machine that schedules this test.
        assert!(at.as_nanos() + 1_000_000 >= before.as_nanos() && at.as_nanos() <= after.as_nanos() + 1_000_000);
        assert_eq!(wall.run_time(Timestamp::ZERO), Timestamp::ZERO);
        wall.check();
        assert!(wall.deviation_ns() < 1_000_000_000, "the clock was not set");
    }
}
