//! How long a connection is waited for: each thing that a client owes has its clock, wound up only by enough of it.

use std::time::Duration;

use units::Timestamp;

use super::{Connection, Desk, Phase};
use crate::figures::Refusal;
use crate::response::Status;

impl Connection {
    /// Ends this connection's turn: keeps what is still to be sent, and winds the clock up.
    pub(crate) fn settle(&mut self, desk: &mut Desk) {
        if !desk.out.is_empty() {
            self.unsent.extend_from_slice(&desk.out);
            desk.out.clear();
        } else if self.unsent.is_empty() && self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        self.weigh(desk);
        if self.phase == Phase::Lingering || self.phase == Phase::Over {
            return;
        }
        if self.has_to_send() {
            // Wound up when something begins to be owed, and each time that enough of it was taken: a client that takes
            // a byte now and then keeps its place no longer than one that takes none.
            if self.owing.is_none_or(|taken| taken >= PROGRESS_BYTES) {
                self.owing = Some(0);
                self.deadline = desk.now + desk.limits.stall_time;
            }
            return;
        }
        let owed = self.owing.take().is_some();
        if owed || !self.head_began {
            self.spare_since = desk.now;
        }
        if self.is_awaiting() && !self.awaits_body() {
            self.body_taken = None;
            // The relay has its own clocks; an origin's think time is one of ours.
            self.deadline = self.visit().and_then(|visit| visit.ready_at).unwrap_or(Timestamp::MAX);
            return;
        }
        if !self.incoming.is_nothing() {
            // As for what is owed: enough of a body must come within its time.
            if owed || self.body_taken.is_none_or(|taken| taken >= BODY_PROGRESS_BYTES) {
                self.body_taken = Some(0);
                self.deadline = desk.now + desk.limits.body_time;
            }
            return;
        }
        self.body_taken = None;
        if self.unread.is_empty() {
            if !self.head_began {
                self.deadline = desk.now + desk.limits.idle_time;
            }
        } else if !self.head_began || owed {
            // The clock of a head starts with its first byte; further bytes do not wind it up again.
            self.head_began = true;
            self.deadline = desk.now + desk.limits.head_time;
        }
    }

    /// When patience ends.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Patience has ended, or thinking has, unless the deadline has moved meanwhile: what is left to say is in `desk.out`.
    pub(crate) fn late(&mut self, desk: &mut Desk) {
        if desk.now < self.deadline || self.was_thinking(desk) {
            return;
        }
        if self.phase != Phase::Lingering {
            desk.books.counters().connection_refused(Refusal::Late);
        }
        if self.phase == Phase::Open && self.is_awaiting() && !self.has_to_send() {
            self.refuse_body(desk, Status::RequestTimeout);
        } else if self.phase != Phase::Open || self.owes() {
            self.aborted = self.has_to_send();
            // An answer of the relay has its place there until nobody wants it any more.
            self.leave_relay(desk);
            self.enter(desk, false);
            self.broken();
        } else if self.head_began && !self.unread.is_empty() {
            // RFC 9110, section 15.5.9. A client that never began has nothing to be told.
            let head = std::mem::take(&mut self.unread);
            self.refuse(desk, Status::RequestTimeout, &head);
        } else {
            self.phase = Phase::Ending;
        }
    }

    /// Since when it could be dropped to make room for another: no answer is under way.
    pub(crate) fn spare_since(&self) -> Option<Timestamp> {
        (!self.owes()).then_some(self.spare_since)
    }
}

/// A client must take so much within the stall time: 273 bytes a second with the default of a minute.
const PROGRESS_BYTES: u64 = 16 << 10;
/// The same for the body of a request, which may be a form of a few bytes on a bad line: 17 bytes a second.
const BODY_PROGRESS_BYTES: u64 = 1 << 10;
/// How long a client may take to notice that the connection has ended. Its own data is not wanted.
pub(super) const LINGER: Duration = Duration::from_secs(2);
