//! What the path did, in one direction.

use schema::DropCause;

use crate::frame::OnWire;

/// Counts since the path was built. Packets are wire packets: a super-packet of n segments counts n, with the headers
/// the segments have, whether it is cut or passes whole. Bytes are bytes of IP packets.
///
/// Always, packets and bytes alike: accepted + duplicated = delivered + dropped + held. Held are those on the way,
/// those in queues included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed in.
    pub accepted: u64,
    /// Bytes handed in.
    pub accepted_bytes: u64,
    /// Packets written at the far end.
    pub delivered: u64,
    /// Bytes written at the far end.
    pub delivered_bytes: u64,
    /// Packets dropped, by [`DropCause::index`].
    pub drops: [u64; DropCause::ALL.len()],
    /// Bytes dropped, whatever the cause.
    pub dropped_bytes: u64,
    /// Packets that the path added: second copies, as asked for.
    pub duplicated: u64,
    /// Their bytes.
    pub duplicated_bytes: u64,
    /// Packets whose bytes were changed, as configured.
    pub corrupted: u64,
    /// Packets held back for others to overtake, as asked for; whether any did depends on what came behind.
    pub reordered: u64,
    /// Packets on the way, those that wait in queues and the one being written included.
    pub held: u64,
    /// Bytes on the way.
    pub held_bytes: u64,
    /// Packets dropped because the path's own memory was used up. They are among the drops as `queue_full`, though no
    /// link's queue was: a run in which this is not 0 did not measure what was asked.
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

    /// There was no memory for it.
    pub(crate) fn overflow(&mut self, wire: OnWire) {
        self.overflowed += u64::from(wire.packets);
        self.drop(DropCause::QueueFull, wire);
    }

    #[inline]
    pub(crate) fn hold(&mut self, wire: OnWire) {
        self.held += u64::from(wire.packets);
        self.held_bytes += u64::from(wire.bytes);
    }

    #[inline]
    pub(crate) fn let_go(&mut self, wire: OnWire) {
        self.held -= u64::from(wire.packets);
        self.held_bytes -= u64::from(wire.bytes);
    }

    #[inline]
    pub(crate) fn deliver(&mut self, wire: OnWire) {
        self.delivered += u64::from(wire.packets);
        self.delivered_bytes += u64::from(wire.bytes);
    }
}
