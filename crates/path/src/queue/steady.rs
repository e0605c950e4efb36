//! A bit rate that may change at known times: packets in sequence, to the nanosecond and its remainder.

use units::BitRate;

use super::{BYTE, Rates};
use crate::timeline::Start;

/// A time finer than a nanosecond: whole nanoseconds, and a remainder in units of 1/rate ns at the current rate. Rates
/// change at whole nanoseconds only, so a remainder never outlives its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ExactTime {
    nanos: u64,
    remainder: u64,
}

/// The sender at a constant rate.
#[derive(Debug)]
pub(super) struct Steady {
    rate: BitRate,
    /// When the packet being sent began.
    began: ExactTime,
    /// When the packet being sent ends.
    ends: ExactTime,
}

impl Steady {
    pub(super) fn new(rate: BitRate) -> Self {
        Steady { rate, began: ExactTime::default(), ends: ExactTime::default() }
    }

    /// A packet arrives at an idle link: it begins at `at`.
    pub(super) fn begin(&mut self, at: u64) {
        self.ends = ExactTime { nanos: at, remainder: 0 };
    }

    /// The next packet begins when the last one ended.
    pub(super) fn proceed(&mut self) {
        self.began = self.ends;
    }

    /// Computes (or recomputes, after a change) when the packet of `bytes` that is being sent leaves: within the
    /// nanosecond before.
    pub(super) fn send(&mut self, bytes: u32, rates: Rates, start: Start) -> u64 {
        self.ends = self.sent(self.began, u128::from(bytes), &rates, start);
        self.ends.nanos.saturating_add(u64::from(self.ends.remainder > 0))
    }

    /// When the packet being sent ends, rounded down to the nanosecond.
    pub(super) fn free_at(&self) -> u64 {
        self.ends.nanos
    }

    /// When `bytes` more will have been sent after the packet being sent, rounded down to the nanosecond.
    pub(super) fn after(&self, bytes: u64, rates: &Rates, start: Start) -> u64 {
        self.sent(self.ends, u128::from(bytes), rates, start).nanos
    }

    /// Remainder of the packet being sent at `at`, in bits times 10^9.
    pub(super) fn remaining_work(&self, at: u64, rates: &Rates, start: Start) -> u128 {
        let (mut remaining_work, mut begin) = (0, at);
        loop {
            let rate = u128::from(self.in_force(rates, start, begin));
            match rates.next_after(start, begin).filter(|&next| next < self.ends.nanos) {
                Some(next) => {
                    remaining_work += rate * u128::from(next - begin);
                    begin = next;
                }
                None => {
                    return remaining_work
                        + rate * u128::from(self.ends.nanos.saturating_sub(begin))
                        + u128::from(self.ends.remainder);
                }
            }
        }
    }

    /// The time at which `bytes` have been sent whose sending begins at `begin`.
    fn sent(&self, begin: ExactTime, bytes: u128, rates: &Rates, start: Start) -> ExactTime {
        let ExactTime { mut nanos, remainder } = begin;
        let mut remaining = bytes * BYTE + u128::from(remainder);
        loop {
            let rate = u128::from(self.in_force(rates, start, nanos));
            match rates.next_after(start, nanos) {
                Some(next) if remaining > rate * u128::from(next - nanos) => {
                    remaining -= rate * u128::from(next - nanos);
                    nanos = next;
                }
                _ => {
                    let whole = u64::try_from(remaining / rate).unwrap_or(u64::MAX);
                    return ExactTime { nanos: nanos.saturating_add(whole), remainder: (remaining % rate) as u64 };
                }
            }
        }
    }

    /// Bits per second at `at`, at least 1.
    fn in_force(&self, rates: &Rates, start: Start, at: u64) -> u64 {
        match rates.factor(start, at) {
            1.0 => self.rate.bits_per_second(),
            factor => (self.rate.bits_per_second() as f64 * factor).round().max(1.0) as u64,
        }
    }
}
