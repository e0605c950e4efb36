//! Properties of one direction of a connection.

use super::super::Segment;
use super::{ACKNOWLEDGEMENT_MAX, Half, SECOND, START};

impl Half {
    /// Sequence number of its SYN, seen or inferred from later segments.
    pub(crate) fn syn_sequence(&self) -> Option<u32> {
        self.is_started.then_some(self.isn)
    }

    /// Number of its SYNs.
    pub(crate) fn syns(&self) -> u32 {
        self.syns
    }

    /// Whether the other side has acknowledged its SYN.
    pub(crate) fn is_syn_acknowledged(&self) -> bool {
        self.syns > 0 && self.acknowledged > START
    }

    /// Whether it sent payload, seen or only acknowledged by the other side.
    pub(crate) fn has_payload(&self) -> bool {
        self.payload_bytes > 0 || self.irregular.as_ref().is_some_and(|irregular| irregular.missing_bytes > 0)
    }

    /// Whether an acknowledgement covers bytes that were not seen, other than the one of a FIN.
    #[inline]
    pub(crate) fn is_behind(&self, acknowledgement: u32) -> bool {
        let high = self.isn.wrapping_add((self.high - START) as u32);
        let ahead = acknowledgement.wrapping_sub(high) as i32;
        ahead > 1 && ahead as u64 <= ACKNOWLEDGEMENT_MAX
    }

    /// Whether its sequence numbers are known.
    #[inline]
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// Whether it has acknowledged selectively at this time or later.
    pub(crate) fn has_sacked_since(&self, at: u64) -> bool {
        self.irregular.as_ref().is_some_and(|irregular| irregular.sacked_at > at)
    }

    /// Whether a segment that it sends after `silence_ns` without any captured packet contradicts that silence: by its
    /// own clock, or because it continues an exchange that no sender interrupts for so long. `None` if neither is
    /// known.
    pub(crate) fn contradicts(&self, segment: &Segment<'_>, silence_ns: u64) -> Option<bool> {
        let (stamp, _) = segment.options.timestamps.filter(|_| self.has_stamp)?;
        // The slowest permitted clock ticks once per second (RFC 7323, section 5.4).
        let ticks = stamp.wrapping_sub(self.last_stamp);
        Some(u64::from(ticks) < silence_ns / (2 * SECOND))
    }

    /// Whether an acknowledgement covers bytes that it sent and that were not acknowledged before.
    pub(crate) fn is_answered_by(&self, acknowledgement: u32) -> bool {
        self.is_started && self.acknowledged < self.high && self.position(acknowledgement) > self.acknowledged
    }

    /// Whether its FIN was reached, with no byte missing before it.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}
