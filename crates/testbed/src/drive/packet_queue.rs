//! Packets handed to another process, which writes them to a device in its own time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use sys::packets;

use crate::error::LabError;

/// What may wait in a queue, in bytes as the kernel counts them: some 1,366 packets of 64 bytes, 456 of 1500, 16 segments of
/// 64 KB. A card of today has 256 to 4,096 places.
pub const QUEUE_BYTES: u32 = 1 << 20;
/// The sending end of a bounded queue of packets.
#[derive(Debug)]
pub struct PacketQueue {
    sending: OwnedFd,
    overflowed: u64,
}

impl PacketQueue {
    /// A queue, and its receiving end.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn new() -> Result<(PacketQueue, OwnedFd), LabError> {
        let (sending, receiving) = packets::packet_pair(QUEUE_BYTES).map_err(LabError::environment)?;
        Ok((PacketQueue { sending, overflowed: 0 }, receiving))
    }

    /// Puts a packet into it (virtio header first). A packet for which there is no room is lost to the
    /// receiver: it is counted, and is no error.
    ///
    /// # Errors
    /// The receiving process is gone.
    pub fn put(&mut self, packet: &[u8]) -> io::Result<()> {
        self.overflowed += u64::from(!packets::send_packet(self.sending.as_fd(), packet)?);
        Ok(())
    }

    /// Packets for which there was no room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Packets for which there was no room since this was last called, or since the queue was made.
    pub fn take_overflowed(&mut self) -> u64 {
        std::mem::take(&mut self.overflowed)
    }

    /// What fits into it, in bytes as the kernel counts them: less than [`QUEUE_BYTES`] where this user may not have more.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn capacity(&self) -> io::Result<usize> {
        packets::capacity(self.sending.as_fd())
    }
}
