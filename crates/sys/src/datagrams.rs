//! Many UDP datagrams in one system call, and the settings of sockets that measure.
//!
//! ```text
//!   pieces --sendmmsg, 32 at once--> [ socket ]      [ socket ] --recvmmsg, 32 at once--> pieces
//!                                                    what had no room in its queue is counted: [`overflowed`]
//! ```

use std::io;
use std::mem::size_of_val;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::socket::Address;

/// Datagrams of one call, at most.
pub const AT_ONCE: usize = 32;

/// Sends on connected sockets.
pub struct Sender {
    pieces: [libc::iovec; AT_ONCE],
}

// SAFETY: the pointers are written anew by each call and used in it only.
unsafe impl Send for Sender {}

impl Default for Sender {
    fn default() -> Self {
        Sender { pieces: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; AT_ONCE] }
    }
}

impl Sender {
    /// Hands datagrams to the kernel, the first [`AT_ONCE`] of `datagrams`: how many it took, in their order. Never waits.
    ///
    /// # Errors
    /// The first could not be sent; those of sendmmsg(2): EAGAIN and ENOBUFS where there is no room now, EMSGSIZE, and what
    /// the network answered to earlier ones (ECONNREFUSED, EHOSTUNREACH ..), each of them once.
    pub fn send(&mut self, socket: BorrowedFd<'_>, datagrams: &[&[u8]]) -> io::Result<usize> {
        let count = datagrams.len().min(AT_ONCE);
        // SAFETY: all zeroes is a valid mmsghdr: no name, no control data.
        let mut headers: [libc::mmsghdr; AT_ONCE] = unsafe { std::mem::zeroed() };
        for ((header, piece), datagram) in headers.iter_mut().zip(&mut self.pieces).zip(datagrams) {
            // The kernel only reads it.
            *piece = libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() };
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` headers point to one piece each, and each piece to a datagram of the length stated; all of
        // them outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match sent {
            0.. => Ok(sent as usize),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Receives from sockets.
pub struct Receiver {
    /// [`AT_ONCE`] rooms, one behind the other.
    rooms: Vec<u8>,
    room: usize,
    lengths: [usize; AT_ONCE],
}

impl Receiver {
    /// For datagrams of up to `longest` bytes (at least 1); what is longer is cut.
    pub fn new(longest: usize) -> Self {
        let room = longest.max(1);
        Receiver { rooms: vec![0; room * AT_ONCE], room, lengths: [0; AT_ONCE] }
    }

    /// Waits for a datagram, as long as the socket's timeout says, and takes with it those that are there already.
    ///
    /// # Errors
    /// Those of recvmmsg(2): EAGAIN after the timeout; what the network answered to datagrams sent.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<impl Iterator<Item = &[u8]>> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: self.room }; AT_ONCE];
        // SAFETY: as in `send`.
        let mut headers: [libc::mmsghdr; AT_ONCE] = unsafe { std::mem::zeroed() };
        for ((header, piece), room) in headers.iter_mut().zip(&mut pieces).zip(self.rooms.chunks_exact_mut(self.room)) {
            piece.iov_base = room.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every header points to one piece and every piece to a room of its own of the length stated; all of them
        // outlive the call.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                AT_ONCE as libc::c_uint,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        let got = if got < 0 { return Err(io::Error::last_os_error()) } else { got as usize };
        for (length, header) in self.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        Ok(self.rooms.chunks_exact(self.room).zip(self.lengths).take(got).map(|(room, length)| &room[..length]))
    }
}

/// A UDP socket at an address that other sockets of the same user may have too, provided that all were made by this
/// function: what is connected hears its peer, the one that is not hears the rest.
///
/// # Errors
/// Those of socket(2) and bind(2).
pub fn bind_shared(at: SocketAddr) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; the returned descriptor is owned by nobody else.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned to us and is open.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let address = Address::from(at);
    // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
    if unsafe { libc::bind(fd, address.pointer(), address.length()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(UdpSocket::from(socket))
}

/// From now on no datagram of this socket is cut into fragments, by this host or by any router: what is too long for the
/// device is EMSGSIZE, what is too long for a link on the way is lost there.
///
/// # Errors
/// Those of setsockopt(2).
pub fn never_fragment(socket: &UdpSocket) -> io::Result<()> {
    if socket.local_addr()?.is_ipv4() {
        return set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    }
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    // A socket of IPv6 that speaks IPv4 has that setting too; one that does not may refuse it.
    let _ = set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    Ok(())
}

/// Datagrams that arrived and found no room in the socket's queue, since it was made.
///
/// # Errors
/// Those of getsockopt(2).
pub fn overflowed(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut figures = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
    get(socket, libc::SO_MEMINFO, &mut figures)?;
    Ok(u64::from(figures[libc::SK_MEMINFO_DROPS as usize]))
}

/// Sets both buffers of a socket; the kernel doubles the figure, keeps within the system's limits, and tunes them no more.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_buffers(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// Send and receive buffer of a socket as the kernel has them.
///
/// # Errors
/// Those of getsockopt(2).
pub fn buffers(socket: &impl AsRawFd) -> io::Result<[u32; 2]> {
    let mut bytes = [0; 2];
    for (place, name) in bytes.iter_mut().zip([libc::SO_SNDBUF, libc::SO_RCVBUF]) {
        get(socket, name, std::slice::from_mut(place))?;
    }
    Ok(bytes)
}

/// From now on a TCP socket takes no more bytes while so many wait that were never sent (TCP_NOTSENT_LOWAT), and counts as
/// writable again below half of that. What is on its way is not counted, so that long paths are filled as before. A listener
/// hands it on to the connections that it takes.
///
/// # Errors
/// Those of setsockopt(2).
pub fn bound_unsent(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set_value(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// From now on closing this TCP socket throws away what it has not sent yet, and tells the peer by a reset.
///
/// # Errors
/// Those of setsockopt(2).
pub fn abort_on_close(socket: &impl AsRawFd) -> io::Result<()> {
    set_value(socket, libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 })
}

fn set(socket: &impl AsRawFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    set_value(socket, level, name, &value)
}

fn set_value<T: Copy>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` outlives the call and its size is the one stated.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Fills `figures` from SOL_SOCKET; what an older kernel does not know stays as it was.
fn get(socket: &impl AsRawFd, name: i32, figures: &mut [u32]) -> io::Result<()> {
    let mut length = size_of_val(figures) as libc::socklen_t;
    // SAFETY: `figures` and `length` outlive the call, which writes at most `length` bytes of numbers.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, figures.as_mut_ptr().cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [one, other] = [(); 2].map(|()| bind_shared((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        other.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        (one, other)
    }

    #[test]
    fn datagrams_stay_apart_and_in_order() {
        let (one, other) = pair();
        let texts: Vec<Vec<u8>> = (1..=50u8).map(|number| vec![number; usize::from(number)]).collect();
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let mut sender = Sender::default();
        assert_eq!(sender.send(one.as_fd(), &texts).unwrap(), AT_ONCE);
        assert_eq!(sender.send(one.as_fd(), &texts[AT_ONCE..]).unwrap(), 50 - AT_ONCE);
        let (mut receiver, mut got) = (Receiver::new(40), Vec::new());
        while got.len() < 50 {
            got.extend(receiver.receive(other.as_fd()).unwrap().map(<[u8]>::to_vec));
        }
        for (got, sent) in got.iter().zip(&texts) {
            assert_eq!(got, &sent[..sent.len().min(40)], "what is too long is cut");
        }
        other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert!(receiver.receive(other.as_fd()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let (one, other) = pair();
        set_buffers(&other, 4096).unwrap();
        let [_, receive] = buffers(&other).unwrap();
        assert!((4096..=16_384).contains(&receive), "{receive}");
        assert_eq!(overflowed(&other).unwrap(), 0);
        let text = [7u8; 1000];
        let mut sender = Sender::default();
        let mut sent = 0;
        while sent < 200 {
            sent += sender.send(one.as_fd(), &[&text[..]; AT_ONCE]).unwrap();
        }
        let (mut receiver, mut got) = (Receiver::new(1000), 0);
        other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        while let Ok(datagrams) = receiver.receive(other.as_fd()) {
            got += datagrams.count();
        }
        assert!(got < sent);
        assert_eq!(overflowed(&other).unwrap(), (sent - got) as u64);
    }

    #[test]
    fn a_connected_socket_hears_its_peer_and_the_other_the_rest() {
        let door = bind_shared((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let at = door.local_addr().unwrap();
        let [guest, stranger] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let own = bind_shared(at).unwrap();
        own.connect(guest.local_addr().unwrap()).unwrap();
        for socket in [&own, &door] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        for _ in 0..8 {
            stranger.send_to(b"stranger", at).unwrap();
            guest.send_to(b"guest", at).unwrap();
        }
        let mut buffer = [0; 16];
        for (socket, word) in [(&own, &b"guest"[..]), (&door, b"stranger")] {
            for _ in 0..8 {
                let (length, _) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], word);
            }
        }
        // Somebody who did not ask to share has it not.
        assert!(UdpSocket::bind(at).is_err());
    }

    #[test]
    fn what_is_too_long_for_the_device_is_refused() {
        let (one, _other) = pair();
        never_fragment(&one).unwrap();
        let mtu: usize = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        // Loopback's MTU is the longest packet there is, whose headers leave so much of a datagram.
        let long = vec![0; mtu.min(65_535) - 28 + 1];
        let error = Sender::default().send(one.as_fd(), &[&long]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn an_abort_is_a_reset() {
        use std::io::Read;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        abort_on_close(&server).unwrap();
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
