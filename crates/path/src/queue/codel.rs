//! Controlled delay: drops at the head, with increasing frequency, while packets wait too long (RFC 8289).

use units::time::saturating_nanos;

use super::{MTU, Waiting};
use crate::spec;

/// The state of section 5.2 of the RFC, under its names. Times in nanoseconds.
#[derive(Debug)]
pub(super) struct CoDel {
    target: u64,
    interval: u64,
    /// When the sojourn time will have been above the target for an interval; `None` while it is below.
    first_above: Option<u64>,
    /// When the next packet is dropped, while dropping.
    drop_next: u64,
    /// Packets dropped since dropping began.
    count: u64,
    /// Value of `count` when dropping last began.
    last_count: u64,
    is_dropping: bool,
}

impl CoDel {
    pub(super) fn new(spec: &spec::CoDel) -> Self {
        CoDel {
            target: saturating_nanos(spec.target),
            interval: saturating_nanos(spec.interval),
            first_above: None,
            drop_next: 0,
            count: 0,
            last_count: 0,
            is_dropping: false,
        }
    }

    /// The packet to send at `now` (section 5.5). `take` returns the next waiting packet and the bytes behind it.
    pub(super) fn dequeue<P>(
        &mut self,
        now: u64,
        mut take: impl FnMut() -> Option<(Waiting<P>, u64)>,
        mut drop: impl FnMut(Waiting<P>),
    ) -> Option<Waiting<P>> {
        let (mut head, mut may_drop) = self.may_drop(now, take());
        if self.is_dropping {
            self.is_dropping = may_drop;
            // With a high drop rate the next drop may be due now as well.
            while self.is_dropping && now >= self.drop_next {
                head.into_iter().for_each(&mut drop);
                (head, may_drop) = self.may_drop(now, take());
                if may_drop {
                    self.count += 1;
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.is_dropping = false;
                }
            }
        } else if may_drop {
            head.into_iter().for_each(&mut drop);
            (head, _) = self.may_drop(now, take());
            self.is_dropping = true;
            // Soon after the last dropping phase, the drop rate that controlled the queue then is a good initial value.
            let delta = self.count - self.last_count;
            let is_soon = now.saturating_sub(self.drop_next) < self.interval.saturating_mul(16);
            self.count = if delta > 1 && is_soon { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        head
    }

    /// Whether the packet at the head may be dropped: packets have been above the target for an interval, and more than
    /// one full packet waits behind this one (section 5.4).
    fn may_drop<P>(&mut self, now: u64, taken: Option<(Waiting<P>, u64)>) -> (Option<Waiting<P>>, bool) {
        let Some((head, behind)) = taken else {
            self.first_above = None;
            return (None, false);
        };
        let sojourn = now.saturating_sub(head.since);
        if sojourn < self.target || behind <= MTU {
            self.first_above = None;
            return (Some(head), false);
        }
        let first_above = *self.first_above.get_or_insert(now.saturating_add(self.interval));
        (Some(head), now >= first_above)
    }

    fn control_law(&self, from: u64) -> u64 {
        from.saturating_add((self.interval as f64 / (self.count as f64).sqrt()) as u64)
    }
}
