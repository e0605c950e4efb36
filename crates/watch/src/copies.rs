//! Packets captured twice: on two interfaces, or by a mirror port that copies both directions.
//!
//! A copy has the connection, sequence and acknowledgement numbers, flags, window, length, first bytes and timestamp of
//! a packet seen at most [`WINDOW_NS`] before, and its IP identification. Fields that routers change (TTL, link
//! addresses, tags) do not matter. A retransmission has another identification, or comes later: the shortest timeouts
//! of TCP are longer.
//!
//! IPv6 has no identification, and some senders write 0 in packets that may not be fragmented. Then a repetition within
//! the window is a retransmission if the receiver has requested it (selective acknowledgement) since the packet was
//! first seen, and a copy otherwise. Resets without an identification are never copies: a kernel responds to each
//! packet for a closed socket with the same reset.

use crate::tcp::Segment;

/// The fingerprints of the packets of the last milliseconds, in a table of fixed size.
pub(crate) struct Copies {
    /// Two entries per fingerprint slot.
    slots: Vec<[Slot; 2]>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    fingerprint: u64,
    at: u64,
}

impl Copies {
    pub(crate) fn new() -> Copies {
        Copies { slots: vec![[Slot::default(); 2]; SLOTS] }
    }

    /// Records a packet; returns the time of one with the same fingerprint within the window, if any.
    #[inline]
    pub(crate) fn note(&mut self, fingerprint: u64, at: u64) -> Option<u64> {
        let slots = &mut self.slots[fingerprint as usize % SLOTS];
        for slot in slots.iter() {
            if slot.fingerprint == fingerprint && slot.at.abs_diff(at) <= WINDOW_NS {
                return Some(slot.at);
            }
        }
        let older = usize::from(slots[1].at < slots[0].at);
        slots[older] = Slot { fingerprint, at };
        None
    }
}

/// The fingerprint that a packet shares with its copies. `hash` is that of its connection, `is_second` its direction.
#[inline]
pub(crate) fn fingerprint(hash: u32, is_second: bool, segment: &Segment<'_>) -> u64 {
    let (stamp, echo) = segment.options.timestamps.unwrap_or_default();
    let first = segment.payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut fingerprint = u64::from(hash) << 1 | u64::from(is_second);
    for word in [
        u64::from(segment.sequence) << 32 | u64::from(segment.acknowledgement),
        segment.length << 40 | u64::from(segment.flags) << 32 | u64::from(segment.window) << 16,
        u64::from(stamp) << 32 | u64::from(echo),
        first,
        u64::from(segment.identification),
    ] {
        fingerprint = (fingerprint ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
    for &(left, right) in segment.options.sack() {
        fingerprint = (fingerprint ^ (u64::from(left) << 32 | u64::from(right)))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31);
    }
    fingerprint ^ fingerprint >> 29
}

/// Maximum delay of a copy. Copies of one machine arrive within microseconds, those of a mirror port within a
/// millisecond; a retransmission takes at least a round trip, and a timeout 200 ms.
pub(crate) const WINDOW_NS: u64 = 5_000_000;
/// 128 KB in total: enough for 1.6 million packets per second within the window.
const SLOTS: usize = 4096;
