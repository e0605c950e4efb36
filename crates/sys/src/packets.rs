//! Packets between two processes of this machine: a pair of SEQPACKET sockets with a known and bounded capacity.
//!
//! ```text
//!   send_packet: never waits --> [ sender's buffer ] --> PacketBatch::receive: up to 16 in one call
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use crate::error::{Error, Result};
use crate::tun::LARGEST_PACKET_BYTES;

/// A channel of packets; packets of the first end wait in it until `send_buffer` bytes are used, as counted by the
/// kernel, including its own overhead: a packet of 64 bytes takes 768 and one of 1500 takes 2,304. Beyond the system's
/// limit (`net.core.wmem_max`) only with the privilege; otherwise up to it.
///
/// TUN packets of any size pass, whatever the value of `net.unix.max_dgram_qlen`.
///
/// # Errors
/// No descriptor is left.
pub fn packet_pair(send_buffer: u32) -> Result<(OwnedFd, OwnedFd)> {
    let (sending, receiving) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(Error::of("socketpair SOCK_SEQPACKET"))?;
    // The kernel doubles the requested size.
    let half = (send_buffer / 2) as usize;
    setsockopt(&sending, sockopt::SndBufForce, &half)
        .or_else(|_| setsockopt(&sending, sockopt::SndBuf, &half))
        .map_err(Error::of("setsockopt SO_SNDBUF"))?;
    Ok((sending, receiving))
}

/// Capacity of the sending end's buffer, in bytes as counted by the kernel.
///
/// # Errors
/// The errors of getsockopt(2).
pub fn capacity(sending: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(nix::sys::socket::getsockopt(&sending, sockopt::SndBuf)?)
}

/// Sends one packet; false if the buffer is full. Never waits.
///
/// # Errors
/// The other end is closed: EPIPE, and the first time ECONNRESET if it had unread packets.
pub fn send_packet(sending: BorrowedFd<'_>, packet: &[u8]) -> io::Result<bool> {
    // SAFETY: the packet outlives the call, which reads as many bytes as are stated.
    let sent = unsafe {
        libc::send(sending.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    match Errno::result(sent) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Buffers for the packets of one call.
pub struct PacketBatch {
    /// [`PacketBatch::PACKETS`] buffers of the largest packet, in sequence.
    buffers: Vec<u8>,
    lengths: [usize; PacketBatch::PACKETS],
}

impl Default for PacketBatch {
    fn default() -> Self {
        PacketBatch { buffers: vec![0; Self::PACKETS * LARGEST_PACKET_BYTES], lengths: [0; Self::PACKETS] }
    }
}

impl PacketBatch {
    /// Maximum number of packets per call.
    pub const PACKETS: usize = 16;

    /// Receives waiting packets, up to the capacity of the batch. Never waits: returns an empty iterator if there are
    /// none. `None` when the other end is closed and no packet is left.
    ///
    /// # Errors
    /// The errors of recvmmsg(2).
    pub fn receive(&mut self, receiving: BorrowedFd<'_>) -> io::Result<Option<impl Iterator<Item = &[u8]>>> {
        let mut pieces: [libc::iovec; Self::PACKETS] =
            std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: LARGEST_PACKET_BYTES });
        for (piece, buffer) in pieces.iter_mut().zip(self.buffers.chunks_exact_mut(LARGEST_PACKET_BYTES)) {
            piece.iov_base = buffer.as_mut_ptr().cast();
        }
        // SAFETY: all zeroes is a valid mmsghdr: no name, no control data.
        let mut headers: [libc::mmsghdr; Self::PACKETS] = unsafe { std::mem::zeroed() };
        for (header, piece) in headers.iter_mut().zip(&mut pieces) {
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every header points to one piece and every piece to a buffer of its own of the length stated; all of
        // them outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                receiving.as_raw_fd(),
                headers.as_mut_ptr(),
                Self::PACKETS as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = match Errno::result(received) {
            Ok(received) => received as usize,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            // The other end is closed with unread packets of this end; no packet can follow.
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        for (length, header) in self.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        // No packet is empty: a length of 0 is the end, which is repeated.
        let complete = self.lengths[..received].iter().take_while(|&&length| length > 0).count();
        if received > 0 && complete == 0 {
            return Ok(None);
        }
        let buffers = self.buffers.chunks_exact(LARGEST_PACKET_BYTES);
        Ok(Some(buffers.zip(self.lengths).take(complete).map(|(buffer, length)| &buffer[..length])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn all(batch: &mut PacketBatch, end: &OwnedFd) -> Option<Vec<Vec<u8>>> {
        batch.receive(end.as_fd()).unwrap().map(|packets| packets.map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn packets_stay_complete_and_in_order_until_the_end() {
        let (sending, receiving) = packet_pair(256 << 10).unwrap();
        let mut batch = PacketBatch::default();
        assert_eq!(all(&mut batch, &receiving), Some(vec![]));
        let packets: Vec<Vec<u8>> = (1..=20u8).map(|number| vec![number; 100 * usize::from(number)]).collect();
        for packet in &packets {
            assert!(send_packet(sending.as_fd(), packet).unwrap());
        }
        drop(sending);
        assert_eq!(all(&mut batch, &receiving).unwrap(), packets[..16]);
        assert_eq!(all(&mut batch, &receiving).unwrap(), packets[16..]);
        assert_eq!(all(&mut batch, &receiving), None);
    }

    #[test]
    fn largest_packet_passes_the_channel() {
        let (sending, receiving) = packet_pair(400 << 10).unwrap();
        let largest = vec![7; LARGEST_PACKET_BYTES];
        assert!(send_packet(sending.as_fd(), &largest).unwrap());
        assert_eq!(all(&mut PacketBatch::default(), &receiving), Some(vec![largest]));
    }

    #[test]
    fn packet_beyond_the_capacity_is_rejected_without_waiting() {
        let (sending, receiving) = packet_pair(64 << 10).unwrap();
        assert!(capacity(sending.as_fd()).unwrap() <= 64 << 10);
        let fitted = (0..1000).take_while(|_| send_packet(sending.as_fd(), &[1; 64]).unwrap()).count();
        assert!((20..900).contains(&fitted), "{fitted}");
        let mut batch = PacketBatch::default();
        assert_eq!(all(&mut batch, &receiving).unwrap().len(), 16);
        assert!(send_packet(sending.as_fd(), &[2; 64]).unwrap(), "the channel has space again");
        drop(receiving);
        // A process that another test forks at the same time also has the other end, until it executes its program.
        let refused = || {
            (0..1000).find_map(|_| {
                let outcome = send_packet(sending.as_fd(), &[3; 64]);
                outcome.inspect(|_| std::thread::sleep(std::time::Duration::from_millis(5))).err()?.raw_os_error()
            })
        };
        assert_eq!([refused(), refused()], [Some(libc::ECONNRESET), Some(libc::EPIPE)]);
    }
}
