//! Timeouts of a connection: each obligation of a client has a deadline, which only sufficient progress resets.

use std::time::Duration;

use units::Timestamp;

use super::{Connection, Phase, WorkerContext};
use crate::figures::Refusal;
use crate::response::Status;

impl Connection {
    /// Ends this connection's turn: buffers unsent output and updates the deadline.
    pub(crate) fn settle(&mut self, context: &mut WorkerContext) {
        if !context.out.is_empty() {
            self.unsent.extend_from_slice(&context.out);
            context.out.clear();
        } else if self.unsent.is_empty() && self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        self.update_share(context);
        if self.phase == Phase::Lingering || self.phase == Phase::Over {
            return;
        }
        if self.has_to_send() {
            // Reset when output becomes pending and after each sufficient progress: a client that reads a byte now and
            // then is closed as early as one that reads nothing.
            if self.owing.is_none_or(|taken| taken >= PROGRESS_BYTES) {
                self.owing = Some(0);
                self.in_kernel = None;
                self.deadline = context.now + context.limits.stall_time;
            }
            return;
        }
        let owed = self.owing.take().is_some();
        if self.http2.is_some() {
            return self.settle_http2(context, owed);
        }
        if owed || !self.head_began {
            self.idle_since = context.now;
        }
        if self.is_awaiting() && !self.awaits_body() {
            self.body_taken = None;
            // The relay has its own timeouts; an origin's think time is a deadline here.
            self.deadline =
                self.origin_exchange().and_then(|origin_exchange| origin_exchange.ready_at).unwrap_or(Timestamp::MAX);
            return;
        }
        if !self.incoming.is_nothing() {
            // As for output: enough of a body must arrive within its time.
            if owed || self.body_taken.is_none_or(|taken| taken >= BODY_PROGRESS_BYTES) {
                self.body_taken = Some(0);
                self.deadline = context.now + context.limits.body_time;
            }
            return;
        }
        self.body_taken = None;
        if self.unread.is_empty() {
            if !self.head_began {
                self.deadline = context.now + context.limits.idle_time;
            }
        } else if !self.head_began || owed {
            // The head timeout starts with the first byte of a head; further bytes do not reset it.
            self.head_began = true;
            self.deadline = context.now + context.limits.head_time;
        }
    }

    /// Whether the timeout of pending output has just begun: the engine then reports the bytes in the kernel by
    /// [`Connection::stall_timeout_began`].
    pub(crate) fn begins_stall_timeout(&self) -> bool {
        self.owing.is_some() && self.in_kernel.is_none() && self.phase != Phase::Over
    }

    /// The client's kernel has not acknowledged `unacknowledged` bytes of the output so far.
    pub(crate) fn stall_timeout_began(&mut self, unacknowledged: usize) {
        let taken = usize::try_from(self.owing.unwrap_or(0)).unwrap_or(usize::MAX);
        // Bytes of this timeout that the kernel has accepted already are not part of its beginning.
        self.in_kernel = Some(u32::try_from(unacknowledged.saturating_sub(taken)).unwrap_or(u32::MAX));
    }

    /// Whether the timeout of pending output has expired.
    pub(crate) fn is_stalled(&self, now: Timestamp) -> bool {
        now >= self.deadline && self.owing.is_some() && !matches!(self.phase, Phase::Lingering | Phase::Over)
    }

    /// Begins the timeout of pending output again if the client's kernel has acknowledged enough bytes in it; now
    /// `unacknowledged` bytes are left.
    pub(crate) fn has_progressed(&mut self, context: &WorkerContext, unacknowledged: usize) -> bool {
        let (Some(before), Some(taken)) = (self.in_kernel, self.owing) else { return false };
        let acknowledged = (u64::from(before) + taken).saturating_sub(unacknowledged as u64);
        if acknowledged < PROGRESS_BYTES {
            return false;
        }
        self.owing = Some(0);
        self.stall_timeout_began(unacknowledged);
        self.deadline = context.now + context.limits.stall_time;
        true
    }

    /// When the current timeout expires.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline.min(self.streams_deadline())
    }

    /// The deadline or think time has expired, unless it was moved meanwhile: final output is in `context.out`.
    pub(crate) fn late(&mut self, context: &mut WorkerContext) {
        if context.now >= self.streams_deadline() && self.phase == Phase::Open {
            self.streams_late(context);
        }
        if context.now < self.deadline || self.was_think_deadline(context) {
            return;
        }
        if self.phase != Phase::Lingering {
            context.recorder.counters().connection_refused(Refusal::Late);
        }
        if self.phase == Phase::Open && self.is_awaiting() && !self.has_to_send() {
            self.refuse_body(context, Status::RequestTimeout);
        } else if self.phase != Phase::Open || self.has_pending_output() {
            self.aborted = self.has_to_send();
            // A pending relay response occupies its slot until it is cancelled.
            self.leave_relay(context);
            self.enter(context, false);
            self.broken();
        } else if self.http2.is_some() {
            self.end_idle_http2(context);
        } else if self.head_began && !self.unread.is_empty() {
            // RFC 9110, section 15.5.9. A client that sent nothing gets no response.
            let head = std::mem::take(&mut self.unread);
            self.refuse(context, Status::RequestTimeout, &head);
        } else {
            self.phase = Phase::Ending;
        }
    }

    /// Since when the connection can be displaced by another; `None` during a response.
    pub(crate) fn idle_since(&self) -> Option<Timestamp> {
        (!self.has_pending_output() && self.has_no_stream()).then_some(self.idle_since)
    }
}

/// Bytes that a client must read within the stall time: 273 bytes a second at the default of one minute.
const PROGRESS_BYTES: u64 = 16 << 10;
/// The same for the body of a request, which may be a small form over a slow link: 17 bytes a second.
const BODY_PROGRESS_BYTES: u64 = 1 << 10;
/// Time for a client to notice the end of the connection. Its input is discarded.
pub(super) const LINGER: Duration = Duration::from_secs(2);
