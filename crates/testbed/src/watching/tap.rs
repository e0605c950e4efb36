//! One ring of the capture, with counts of its packets.

use sys::capture::{Capture, Framing};
use units::Bytes;
use wire::link::LinkType;

/// A ring, and the number of packets read from it.
pub(super) struct Tap {
    pub(super) ring: Capture,
    /// Packets that the kernel added, by its last count.
    captured: u64,
    /// Packets that were read.
    pub(super) read: u64,
}

impl Tap {
    pub(super) fn new(ring: Capture) -> Tap {
        Tap { ring, captured: 0, read: 0 }
    }

    /// Reads the kernel's counts; returns the number of packets lost since the last call.
    pub(super) fn count(&mut self) -> sys::Result<u64> {
        let counted = self.ring.statistics()?;
        self.captured += counted.packets.saturating_sub(counted.drops);
        Ok(counted.drops)
    }

    /// Packets in the ring, by the last count.
    pub(super) fn waiting(&self) -> u64 {
        self.captured.saturating_sub(self.read)
    }

    /// Link type of the packets.
    pub(super) fn link(&self) -> LinkType {
        match self.ring.framing() {
            Framing::Ethernet => LinkType::Ethernet,
            Framing::Ip => LinkType::RawIp,
        }
    }
}

/// Size and number of the blocks of a ring: large ones, so that few reads empty it, unless memory is scarce.
pub(super) fn blocks(ring: Bytes) -> (u32, u32) {
    let block_bytes = if ring >= Bytes(8 << 20) { 256 << 10 } else { 64 << 10 };
    (block_bytes, (ring.0 / u64::from(block_bytes)).max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_the_configured_size_for_any_block_size() {
        assert_eq!(blocks(Bytes(32 << 20)), (256 << 10, 128));
        assert_eq!(blocks(Bytes(8 << 20)), (256 << 10, 32));
        assert_eq!(blocks(Bytes(1 << 20)), (64 << 10, 16));
        assert_eq!(blocks(Bytes(1)), (64 << 10, 1), "a ring has at least one block");
    }
}
