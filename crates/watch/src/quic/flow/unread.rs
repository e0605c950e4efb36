//! Encrypted packets of a QUIC connection that wait for what is needed to read them.

use schema::Direction;

use crate::out::Out;
use crate::quic::secure::{Packet, PacketKind};

/// The packets, in the order of capture.
#[derive(Debug, Default)]
pub(super) struct Unread {
    packets: Vec<Held>,
    bytes: usize,
    /// Whether a packet was not stored.
    pub(super) has_overflowed: bool,
}

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    /// Its time, in nanoseconds.
    pub(super) at: u64,
    pub(super) direction: Direction,
    kind: PacketKind,
    number_at: usize,
    bytes: Vec<u8>,
}

impl Held {
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.bytes, number_at: self.number_at, kind: self.kind }
    }
}

impl Unread {
    /// Adds a packet, if there is memory for it; without it the packet is not read.
    pub(super) fn push(&mut self, direction: Direction, packet: Packet<'_>, out: &mut Out<'_>) {
        let Packet { bytes, number_at, kind } = packet;
        let cost = size_of::<Held>() + bytes.len();
        if self.bytes + cost <= out.limits.held_per_direction && out.hold(cost) {
            self.bytes += cost;
            self.packets.push(Held { at: out.at, direction, kind, number_at, bytes: bytes.to_vec() });
        } else {
            self.has_overflowed = true;
        }
    }

    /// Takes all packets, and releases their memory.
    pub(super) fn take(&mut self, out: &mut Out<'_>) -> Vec<Held> {
        out.release(std::mem::take(&mut self.bytes));
        std::mem::take(&mut self.packets)
    }
}
