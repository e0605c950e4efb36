//! A bottleneck: packets leave one after the other at a bit rate; a packet that does not fit in the queue is dropped.
//!
//! No memory is used per waiting packet. As packets arrive in order of time, the whole queue is one number, the time at
//! which the link has sent everything it has accepted:
//!
//! ```text
//!   packet at `at`:    start = max(at, free_at)         waits start - at
//!                      free_at = start + size / rate    leaves when its last bit has left
//! ```
//!
//! The fraction of a nanosecond that a division leaves is carried into the next packet, or the rate would drift.

use schema::DropCause;
use units::{BitRate, Bytes, Timestamp};

use super::kind::{ClosedForm, Fate, State};
use crate::spec::QueueLimit;

/// A bit rate with a queue in front of it. Its state is the time at which everything accepted has been sent, rounded
/// down to the nanosecond, and the remainder of that nanosecond in units of 1/rate ns: 0 to rate - 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    rate: BitRate,
    limit: Backlog,
}

/// [`QueueLimit`] in whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Backlog {
    Bytes(u64),
    Nanos(u64),
}

impl Rate {
    pub(crate) fn new(rate: BitRate, queue: QueueLimit) -> Self {
        let limit = match queue {
            QueueLimit::Bytes(bytes) => Backlog::Bytes(bytes.0),
            QueueLimit::Packets(_) => unreachable!("counted packets need the stored queue"),
            QueueLimit::Time(time) => Backlog::Nanos(units::time::saturating_nanos(time)),
        };
        Rate { rate, limit }
    }

    /// Whether the queue is full for a packet of `size` that would wait for `wait` ns and the remainder.
    #[inline]
    fn is_full(&self, wait: u64, remainder: u64, size: Bytes) -> bool {
        if wait == 0 {
            return false;
        }
        match self.limit {
            Backlog::Nanos(limit) => wait > limit,
            // In bits times 10^9, where backlog and limit are whole numbers: no division, no rounding.
            Backlog::Bytes(limit) => {
                let backlog = u128::from(wait) * u128::from(self.rate.bits_per_second()) + u128::from(remainder);
                backlog + u128::from(size.0) * BYTE > u128::from(limit) * BYTE
            }
        }
    }
}

impl ClosedForm for Rate {
    #[inline]
    fn handle(&self, [free_at, remainder]: &mut State, at: Timestamp, size: Bytes) -> Fate {
        let at = at.as_nanos();
        let wait = free_at.saturating_sub(at);
        if wait == 0 && *free_at < at {
            (*free_at, *remainder) = (at, 0);
        }
        if self.is_full(wait, *remainder, size) {
            return Fate::Dropped(DropCause::QueueFull);
        }
        let (nanos, rest) = self.rate.nanos_for(size, *remainder);
        *free_at = free_at.saturating_add(nanos);
        *remainder = rest;
        // The last bit leaves within this nanosecond: rounded up, so that the packet is not early.
        Fate::Leaves(Timestamp::from_nanos(free_at.saturating_add(u64::from(rest > 0))))
    }
}

/// A byte, in bits times 10^9 (nanoseconds times bits per second).
const BYTE: u128 = 8_000_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// A rate and its state.
    struct Link(Rate, State);

    impl Link {
        fn handle(&mut self, at: Timestamp, size: Bytes) -> Fate {
            self.0.handle(&mut self.1, at, size)
        }
    }

    fn rate(bits: u64, queue: QueueLimit) -> Link {
        Link(Rate::new(BitRate::from_bits_per_second(bits).unwrap(), queue), [0; 2])
    }

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn bottleneck_delays_a_packet_by_its_own_and_earlier_sending_times() {
        // 1250 bytes at 10 Mbit/s are 1 ms.
        let mut link = rate(10_000_000, QueueLimit::DEFAULT);
        assert_eq!(link.handle(at(500), Bytes(1250)), Fate::Leaves(at(1_000_500)));
        assert_eq!(link.handle(at(500), Bytes(1250)), Fate::Leaves(at(2_000_500)));
        assert_eq!(link.handle(at(9_000_000), Bytes(1250)), Fate::Leaves(at(10_000_000)));
    }

    #[test]
    fn queue_limit_in_bytes_counts_unsent_bytes_and_the_new_packet() {
        let full = QueueLimit::Bytes(Bytes(2500));
        let mut link = rate(10_000_000, full);
        assert!(matches!(link.handle(at(0), Bytes(1250)), Fate::Leaves(_)));
        assert!(matches!(link.handle(at(0), Bytes(1250)), Fate::Leaves(_)));
        // 2500 bytes wait: the queue is full. 8 us later 10 bytes have been sent: 10 fit, 11 do not.
        assert_eq!(link.handle(at(0), Bytes(1)), Fate::Dropped(DropCause::QueueFull));
        assert_eq!(link.handle(at(8_000), Bytes(11)), Fate::Dropped(DropCause::QueueFull));
        assert!(matches!(link.handle(at(8_000), Bytes(10)), Fate::Leaves(_)));
    }

    #[test]
    fn queue_limit_in_time_counts_the_wait_of_the_new_packet() {
        let mut link = rate(10_000_000, QueueLimit::Time(Duration::from_millis(1)));
        assert!(matches!(link.handle(at(0), Bytes(1251)), Fate::Leaves(_)));
        assert_eq!(link.handle(at(799), Bytes(1)), Fate::Dropped(DropCause::QueueFull));
        assert!(matches!(link.handle(at(800), Bytes(1)), Fate::Leaves(_)));
    }

    #[test]
    fn idle_bottleneck_accepts_a_packet_larger_than_the_queue_limit() {
        let mut link = rate(10_000_000, QueueLimit::Bytes(Bytes(0)));
        assert!(matches!(link.handle(at(0), Bytes(1250)), Fate::Leaves(_)));
        assert!(matches!(link.handle(at(999_999), Bytes(1)), Fate::Dropped(_)));
        assert!(matches!(link.handle(at(1_000_000), Bytes(1250)), Fate::Leaves(_)));
    }

    proptest! {
        /// Over every window of departures, no more bytes leave than the rate allows; and a link that is never idle
        /// sends at exactly its rate, to the nanosecond, however long.
        #[test]
        fn bottleneck_rate_is_exact_over_every_window(
            bits in 1_000u64..10_000_000_000,
            packets in prop::collection::vec((0u64..2_000_000, 40u64..1500), 1..120),
        ) {
            let mut link = rate(bits, QueueLimit::Time(Duration::from_secs(3600)));
            let mut busy = rate(bits, QueueLimit::Time(Duration::from_secs(3600)));
            let (mut now, mut total) = (0, 0);
            let mut departures = Vec::new();
            for &(gap, size) in &packets {
                now += gap;
                total += size;
                let Fate::Leaves(leaves) = link.handle(at(now), Bytes(size)) else { panic!("dropped") };
                prop_assert!(leaves > at(now));
                departures.push((leaves.as_nanos(), size));
                let Fate::Leaves(leaves) = busy.handle(at(0), Bytes(size)) else { panic!("dropped") };
                prop_assert_eq!(u128::from(leaves.as_nanos()), (u128::from(total) * BYTE).div_ceil(u128::from(bits)));
            }
            for first in 0..departures.len() {
                let mut bytes = 0;
                for &(leaves, size) in &departures[first + 1..] {
                    bytes += size;
                    // Both ends are rounded up to a nanosecond, so a window may look up to one nanosecond shorter than
                    // it is.
                    let window = u128::from(leaves - departures[first].0 + 1);
                    prop_assert!(u128::from(bytes) * BYTE <= window * u128::from(bits));
                }
            }
        }

        /// A queue in bytes never exceeds its limit, and drops only packets that would exceed it.
        #[test]
        fn queue_in_bytes_fills_to_its_limit_and_never_beyond(
            limit in 1500u64..100_000,
            packets in prop::collection::vec((0u64..3_000_000, 40u64..1500), 1..200),
        ) {
            let bits = 8_000_000; // one byte a microsecond
            let mut link = rate(bits, QueueLimit::Bytes(Bytes(limit)));
            let (mut now, mut free_at) = (0u64, 0u64);
            for &(gap, size) in &packets {
                now += gap;
                free_at = free_at.max(now);
                let over = (free_at - now) + size * 1000 > limit * 1000;
                let idle = free_at == now;
                match link.handle(at(now), Bytes(size)) {
                    Fate::Leaves(leaves) => {
                        prop_assert!(idle || !over);
                        free_at += size * 1000;
                        prop_assert_eq!(leaves.as_nanos(), free_at);
                    }
                    Fate::Dropped(cause) => prop_assert!(over && !idle && cause == DropCause::QueueFull),
                }
            }
        }
    }
}
