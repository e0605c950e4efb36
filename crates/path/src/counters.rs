//! Counters of the path, in one direction.

use schema::DropCause;

use crate::frame::OnWire;

/// Counts since the path was built. Packets are wire packets: a super-packet of n segments counts n, with the headers
/// of the segments, whether it is cut or passes uncut. Bytes are bytes of IP packets.
///
/// For packets and for bytes, at any time: accepted + duplicated = delivered + dropped + in transit. Packets in transit
/// include packets in queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets accepted by the path.
    pub accepted: u64,
    /// Bytes accepted by the path.
    pub accepted_bytes: u64,
    /// Packets written at the far end.
    pub delivered: u64,
    /// Bytes written at the far end.
    pub delivered_bytes: u64,
    /// Packets dropped, by [`DropCause::index`].
    pub drops: [u64; DropCause::ALL.len()],
    /// Bytes dropped, for any cause.
    pub dropped_bytes: u64,
    /// Packets that the path added: second copies, as configured.
    pub duplicated: u64,
    /// Bytes of the second copies.
    pub duplicated_bytes: u64,
    /// Packets whose bytes were changed, as configured.
    pub corrupted: u64,
    /// Packets delayed so that later packets overtake them, as configured; whether any did depends on the later
    /// packets.
    pub reordered: u64,
    /// Packets in transit, including packets in queues and the packet being written.
    pub in_transit: u64,
    /// Bytes in transit.
    pub in_transit_bytes: u64,
    /// Packets dropped because the memory of the path was used up. The drops count them as `queue_full`, although the
    /// queue of no link was full: a run in which this is not 0 did not measure the configured path.
    pub overflowed: u64,
}

impl Counters {
    /// Packets dropped for one cause.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause.index()]
    }

    /// Packets dropped for any cause.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    #[inline]
    pub(crate) fn accept(&mut self, wire: OnWire) {
        self.accepted += u64::from(wire.packets);
        self.accepted_bytes += u64::from(wire.bytes);
    }

    #[inline]
    pub(crate) fn drop(&mut self, cause: DropCause, wire: OnWire) {
        self.drops[cause.index()] += u64::from(wire.packets);
        self.dropped_bytes += u64::from(wire.bytes);
    }

    pub(crate) fn duplicate(&mut self, wire: OnWire) {
        self.duplicated += u64::from(wire.packets);
        self.duplicated_bytes += u64::from(wire.bytes);
    }

    /// The path had no memory for the packet.
    pub(crate) fn overflow(&mut self, wire: OnWire) {
        self.overflowed += u64::from(wire.packets);
        self.drop(DropCause::QueueFull, wire);
    }

    #[inline]
    pub(crate) fn enter_transit(&mut self, wire: OnWire) {
        self.in_transit += u64::from(wire.packets);
        self.in_transit_bytes += u64::from(wire.bytes);
    }

    #[inline]
    pub(crate) fn leave_transit(&mut self, wire: OnWire) {
        self.in_transit -= u64::from(wire.packets);
        self.in_transit_bytes -= u64::from(wire.bytes);
    }

    #[inline]
    pub(crate) fn deliver(&mut self, wire: OnWire) {
        self.delivered += u64::from(wire.packets);
        self.delivered_bytes += u64::from(wire.bytes);
    }
}
