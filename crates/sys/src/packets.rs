//! Whole packets between two processes of this machine: a pair of SEQPACKET sockets whose capacity is known and bounded.
//!
//! ```text
//!   send_packet: at once, or no room --> [ what fits the sender's buffer ] --> PacketBatch::receive: up to 16 in one call
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use crate::error::{Error, Result};
use crate::tun::LARGEST_PACKET_BYTES;

/// Two ends of a channel of packets; what the first sends may wait in it until `send_buffer` bytes are used, as the kernel
/// counts them: its own bookkeeping included, so that a packet of 64 bytes takes 768 and one of 1500 takes 2,304. Beyond the
/// system's limit (`net.core.wmem_max`) only where this process may; else up to it.
///
/// Whole TUN packets of any size pass, whatever `net.unix.max_dgram_qlen` says.
///
/// # Errors
/// No descriptor is to be had.
pub fn packet_pair(send_buffer: u32) -> Result<(OwnedFd, OwnedFd)> {
    let (sending, receiving) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(Error::of("socketpair SOCK_SEQPACKET"))?;
    // The kernel doubles what is asked for.
    let half = (send_buffer / 2) as usize;
    setsockopt(&sending, sockopt::SndBufForce, &half)
        .or_else(|_| setsockopt(&sending, sockopt::SndBuf, &half))
        .map_err(Error::of("setsockopt SO_SNDBUF"))?;
    Ok((sending, receiving))
}

/// What the sending end's buffer holds, in bytes as the kernel counts them.
///
/// # Errors
/// Those of getsockopt(2).
pub fn capacity(sending: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(nix::sys::socket::getsockopt(&sending, sockopt::SndBuf)?)
}

/// Sends one packet; false if there is no room for it now. Never waits.
///
/// # Errors
/// The other end is closed: EPIPE, and the first time ECONNRESET if it had packets unread.
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

/// Room for the packets of one call.
pub struct PacketBatch {
    /// [`PacketBatch::PACKETS`] buffers of the largest packet, one behind the other.
    room: Vec<u8>,
    lengths: [usize; PacketBatch::PACKETS],
}

impl Default for PacketBatch {
    fn default() -> Self {
        PacketBatch { room: vec![0; Self::PACKETS * LARGEST_PACKET_BYTES], lengths: [0; Self::PACKETS] }
    }
}

impl PacketBatch {
    /// At most so many in one call.
    pub const PACKETS: usize = 16;

    /// Takes packets out of the receiving end, as many as wait there and there is room for. Never waits: an empty slice if
    /// there are none. `None` when the other end is closed and nothing is left.
    ///
    /// # Errors
    /// Those of recvmmsg(2).
    pub fn receive(&mut self, receiving: BorrowedFd<'_>) -> io::Result<Option<impl Iterator<Item = &[u8]>>> {
        let mut pieces: [libc::iovec; Self::PACKETS] =
            std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: LARGEST_PACKET_BYTES });
        for (piece, room) in pieces.iter_mut().zip(self.room.chunks_exact_mut(LARGEST_PACKET_BYTES)) {
            piece.iov_base = room.as_mut_ptr().cast();
        }
        // SAFETY: all zeroes is a valid mmsghdr: no name, no control data.
        let mut headers: [libc::mmsghdr; Self::PACKETS] = unsafe { std::mem::zeroed() };
        for (header, piece) in headers.iter_mut().zip(&mut pieces) {
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every header points to one piece and every piece to a buffer of its own of the length stated; all of them
        // outlive the call.
        let got = unsafe {
            libc::recvmmsg(
                receiving.as_raw_fd(),
                headers.as_mut_ptr(),
                Self::PACKETS as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let got = match Errno::result(got) {
            Ok(got) => got as usize,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            // Closed with packets of ours unread at the other end; nothing can come any more.
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        for (length, header) in self.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        // No packet is empty: a length of 0 is the end, told again and again.
        let whole = self.lengths[..got].iter().take_while(|&&length| length > 0).count();
        if got > 0 && whole == 0 {
            return Ok(None);
        }
        let rooms = self.room.chunks_exact(LARGEST_PACKET_BYTES);
        Ok(Some(rooms.zip(self.lengths).take(whole).map(|(room, length)| &room[..length])))
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
    fn packets_stay_whole_and_in_order_until_the_end() {
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
    fn the_largest_packet_passes() {
        let (sending, receiving) = packet_pair(400 << 10).unwrap();
        let largest = vec![7; LARGEST_PACKET_BYTES];
        assert!(send_packet(sending.as_fd(), &largest).unwrap());
        assert_eq!(all(&mut PacketBatch::default(), &receiving), Some(vec![largest]));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_waits() {
        let (sending, receiving) = packet_pair(64 << 10).unwrap();
        assert!(capacity(sending.as_fd()).unwrap() <= 64 << 10);
        let fitted = (0..1000).take_while(|_| send_packet(sending.as_fd(), &[1; 64]).unwrap()).count();
        assert!((20..900).contains(&fitted), "{fitted}");
        let mut batch = PacketBatch::default();
        assert_eq!(all(&mut batch, &receiving).unwrap().len(), 16);
        assert!(send_packet(sending.as_fd(), &[2; 64]).unwrap(), "there is room again");
        drop(receiving);
        // A process that another test forks at this very moment has the other end as well, until it starts its program.
        let refused = || {
            (0..1000).find_map(|_| {
                let outcome = send_packet(sending.as_fd(), &[3; 64]);
                outcome.inspect(|_| std::thread::sleep(std::time::Duration::from_millis(5))).err()?.raw_os_error()
            })
        };
        assert_eq!([refused(), refused()], [Some(libc::ECONNRESET), Some(libc::EPIPE)]);
    }
}
