//! What is known of one direction of a connection, for whoever decides about it.

use super::super::Segment;
use super::{ACKNOWLEDGEMENT_MAX, Half, SECOND, START};

impl Half {
    /// Sequence number of its SYN, seen or told by what came after it.
    pub(crate) fn syn_sequence(&self) -> Option<u32> {
        self.is_started.then_some(self.isn)
    }

    /// How often its SYN was seen.
    pub(crate) fn syns(&self) -> u32 {
        self.syns
    }

    /// Whether the other side has acknowledged its SYN.
    pub(crate) fn is_syn_acknowledged(&self) -> bool {
        self.syns > 0 && self.acknowledged > START
    }

    /// Whether it sent payload, seen or only acknowledged by the other side.
    pub(crate) fn has_payload(&self) -> bool {
        self.payload_bytes > 0 || self.trouble.as_ref().is_some_and(|trouble| trouble.missing_bytes > 0)
    }

    /// Whether an acknowledgement is of bytes that were not seen, by more than the one that a FIN takes.
    #[inline]
    pub(crate) fn is_behind(&self, acknowledgement: u32) -> bool {
        let high = self.isn.wrapping_add((self.high - START) as u32);
        let ahead = acknowledgement.wrapping_sub(high) as i32;
        ahead > 1 && ahead as u64 <= ACKNOWLEDGEMENT_MAX
    }

    /// Whether anything is known of its sequence numbers.
    #[inline]
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// Whether it has acknowledged selectively at this time or later.
    pub(crate) fn has_sacked_since(&self, at: u64) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.sacked_at > at)
    }

    /// Whether a segment that it sends after `silence_ns` without any packet of the capture belies that time: its own clock
    /// says so, or it goes on with what no sender leaves for so long. `None` where neither is known.
    pub(crate) fn belies(&self, segment: &Segment<'_>, silence_ns: u64) -> Option<bool> {
        let (stamp, _) = segment.options.timestamps.filter(|_| self.has_stamp)?;
        // The slowest clock allowed ticks once a second (RFC 7323, section 5.4).
        let ticks = stamp.wrapping_sub(self.last_stamp);
        Some(u64::from(ticks) < silence_ns / (2 * SECOND))
    }

    /// Whether an acknowledgement is of something that it sent and that was not acknowledged before.
    pub(crate) fn is_answered_by(&self, acknowledgement: u32) -> bool {
        self.is_started && self.acknowledged < self.high && self.position(acknowledgement) > self.acknowledged
    }

    /// Whether its FIN was reached, with nothing missing before it.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}
