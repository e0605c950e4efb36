//! Delivery opportunities at the times of a trace.

use std::sync::Arc;

use super::{BYTE, Rates};
use crate::spec::DeliveryTrace;
use crate::timeline::Start;

/// The sender of a trace: up to [`DeliveryTrace::OPPORTUNITY`] bytes at each of its times, by mahimahi's rules. A
/// packet that arrives exactly at an opportunity has missed it.
///
/// The trace begins at time zero, and restarts at the start of the measured phase.
#[derive(Debug)]
pub(super) struct Opportunities {
    trace: Arc<DeliveryTrace>,
    /// When the trace began.
    base: u64,
    /// The next opportunity, counted from `base` over all repetitions.
    next: u64,
    /// Remainder of the packet being sent, including its overhead, in millionths of a byte: an opportunity whose size a
    /// factor changes is not a whole number of bytes.
    remaining: u64,
}

const MILLIONTHS: u64 = 1_000_000;
const NANOS_PER_MS: u64 = 1_000_000;

impl Opportunities {
    pub(super) fn new(trace: Arc<DeliveryTrace>) -> Self {
        Opportunities { trace, base: 0, next: 0, remaining: 0 }
    }

    /// A packet arrives at `at` at an idle link: the first opportunity after that is the next.
    pub(super) fn wake(&mut self, at: u64, start: Start) -> u64 {
        if start.position(at).is_some() {
            self.base = start.0.map_or(0, |start| start.as_nanos());
        }
        let (since, length) = (at.saturating_sub(self.base), self.length());
        let (round, within) = (since / length, since % length);
        let times = self.trace.times_ms();
        let passed = times.partition_point(|&time| time.saturating_mul(NANOS_PER_MS) <= within) as u64;
        self.next = round * times.len() as u64 + passed;
        self.next(start)
    }

    /// The time of the next opportunity.
    pub(super) fn next(&mut self, start: Start) -> u64 {
        let time = self.time_of(self.next);
        match start.0.map(|start| start.as_nanos()) {
            // The trace restarts before this opportunity.
            Some(restart) if self.base < restart && time >= restart => {
                (self.base, self.next) = (restart, 0);
                self.time_of(0)
            }
            _ => time,
        }
    }

    /// Takes the next opportunity, at `at`: its size in millionths of a byte.
    pub(super) fn take(&mut self, rates: &Rates, at: u64, start: Start) -> u64 {
        self.next += 1;
        opportunity(rates, at, start)
    }

    /// A packet of `bytes` is to be sent.
    pub(super) fn load(&mut self, bytes: u32) {
        self.remaining = (u64::from(bytes) + DeliveryTrace::OVERHEAD.0) * MILLIONTHS;
    }

    /// Sends as much of the packet as `budget` allows; true when the packet is complete.
    pub(super) fn send(&mut self, budget: &mut u64) -> bool {
        let sent = self.remaining.min(*budget);
        self.remaining -= sent;
        *budget -= sent;
        self.remaining == 0
    }

    /// When the first byte is sent of a packet behind `packets` waiting packets, of `bytes` together, and the packet
    /// being sent; with opportunities of the size at `at`.
    pub(super) fn after(&self, bytes: u64, packets: u64, rates: &Rates, at: u64, start: Start) -> u64 {
        let before = self.remaining + (bytes + packets * DeliveryTrace::OVERHEAD.0) * MILLIONTHS;
        self.time_of(self.next + before / opportunity(rates, at, start))
    }

    /// Remainder of the packet of `bytes` being sent, in bits times 10^9.
    pub(super) fn remaining(&self, bytes: u32) -> u128 {
        u128::from(self.remaining.min(u64::from(bytes) * MILLIONTHS)) * (BYTE / u128::from(MILLIONTHS))
    }

    fn time_of(&self, opportunity: u64) -> u64 {
        let times = self.trace.times_ms();
        let (round, within) = (opportunity / times.len() as u64, opportunity % times.len() as u64);
        let since =
            round.saturating_mul(self.length()).saturating_add(times[within as usize].saturating_mul(NANOS_PER_MS));
        self.base.saturating_add(since)
    }

    fn length(&self) -> u64 {
        units::time::saturating_nanos(self.trace.length())
    }
}

fn opportunity(rates: &Rates, at: u64, start: Start) -> u64 {
    let whole = (DeliveryTrace::OPPORTUNITY.0 * MILLIONTHS) as f64;
    ((whole * rates.factor(start, at)).round() as u64).max(1)
}
