//! Queue of packets to another process, which writes them to a device in its own time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use sys::packets;

use crate::error::TestbedError;

/// Capacity of a queue, in bytes as the kernel counts them: about 1,366 packets of 64 bytes, 456 of 1500, 16 segments
/// of 64 KB. A current network card has 256 to 4,096 entries.
pub const QUEUE_BYTES: u32 = 1 << 20;
/// The sending end of a bounded queue of packets.
#[derive(Debug)]
pub struct PacketQueue {
    sending: OwnedFd,
    overflowed: u64,
}

impl PacketQueue {
    /// Creates a queue, and its receiving end.
    ///
    /// # Errors
    /// No descriptor is available.
    pub fn new() -> Result<(PacketQueue, OwnedFd), TestbedError> {
        let (sending, receiving) = packets::packet_pair(QUEUE_BYTES).map_err(TestbedError::environment)?;
        Ok((PacketQueue { sending, overflowed: 0 }, receiving))
    }

    /// Adds a packet (virtio header first). A packet that does not fit is lost to the receiver: it is counted, and is
    /// not an error.
    ///
    /// # Errors
    /// The receiving process has ended.
    pub fn put(&mut self, packet: &[u8]) -> io::Result<()> {
        self.overflowed += u64::from(!packets::send_packet(self.sending.as_fd(), packet)?);
        Ok(())
    }

    /// Packets that did not fit.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Packets that did not fit since the last call, or since the queue was created.
    pub fn take_overflowed(&mut self) -> u64 {
        std::mem::take(&mut self.overflowed)
    }

    /// Capacity, in bytes as the kernel counts them: less than [`QUEUE_BYTES`] if this user may not have more.
    ///
    /// # Errors
    /// The errors of getsockopt(2).
    pub fn capacity(&self) -> io::Result<usize> {
        packets::capacity(self.sending.as_fd())
    }
}
