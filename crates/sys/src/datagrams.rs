//! UDP datagrams in batches, one system call per batch, and options of measurement sockets.
//!
//! ```text
//!   pieces --sendmmsg, 32 a call--> [ socket ]      [ socket ] --recvmmsg, 32 a call--> pieces
//!                                                    drops at a full buffer: [`overflowed`]
//! ```

use std::io;
use std::mem::size_of_val;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::socket::Address;

/// Maximum number of datagrams per call.
pub const DATAGRAMS_PER_CALL: usize = 32;

/// Sends on connected sockets.
pub struct Sender {
    pieces: [libc::iovec; DATAGRAMS_PER_CALL],
}

// SAFETY: the pointers are written by each call and used in it only.
unsafe impl Send for Sender {}

impl Default for Sender {
    fn default() -> Self {
        Sender { pieces: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; DATAGRAMS_PER_CALL] }
    }
}

impl Sender {
    /// Passes datagrams to the kernel, the first [`DATAGRAMS_PER_CALL`] of `datagrams`: returns the number accepted, in
    /// order. Never waits.
    ///
    /// # Errors
    /// The first could not be sent; those of sendmmsg(2): EAGAIN and ENOBUFS if the buffer is full, EMSGSIZE, and
    /// network errors of earlier datagrams (ECONNREFUSED, EHOSTUNREACH ..), each once.
    pub fn send(&mut self, socket: BorrowedFd<'_>, datagrams: &[&[u8]]) -> io::Result<usize> {
        let count = datagrams.len().min(DATAGRAMS_PER_CALL);
        // SAFETY: all zeroes is a valid mmsghdr: no name, no control data.
        let mut headers: [libc::mmsghdr; DATAGRAMS_PER_CALL] = unsafe { std::mem::zeroed() };
        for ((header, piece), datagram) in headers.iter_mut().zip(&mut self.pieces).zip(datagrams) {
            // The kernel only reads it.
            *piece = libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() };
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` headers point to one piece each, and each piece to a datagram of the length stated;
        // all of them outlive the call.
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
    /// [`DATAGRAMS_PER_CALL`] buffers in sequence.
    buffers: Vec<u8>,
    buffer_bytes: usize,
    lengths: [usize; DATAGRAMS_PER_CALL],
}

impl Receiver {
    /// For datagrams of up to `longest` bytes (at least 1); longer ones are truncated.
    pub fn new(longest: usize) -> Self {
        let buffer_bytes = longest.max(1);
        Receiver { buffers: vec![0; buffer_bytes * DATAGRAMS_PER_CALL], buffer_bytes, lengths: [0; DATAGRAMS_PER_CALL] }
    }

    /// Waits for a datagram, up to the socket's timeout, and returns it with those that are already queued.
    ///
    /// # Errors
    /// The errors of recvmmsg(2): EAGAIN after the timeout; network errors of datagrams sent.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<impl Iterator<Item = &[u8]>> {
        let mut pieces =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: self.buffer_bytes }; DATAGRAMS_PER_CALL];
        // SAFETY: as in `send`.
        let mut headers: [libc::mmsghdr; DATAGRAMS_PER_CALL] = unsafe { std::mem::zeroed() };
        for ((header, piece), buffer) in
            headers.iter_mut().zip(&mut pieces).zip(self.buffers.chunks_exact_mut(self.buffer_bytes))
        {
            piece.iov_base = buffer.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every header points to one piece and every piece to a separate buffer of the stated length; all of
        // them outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                DATAGRAMS_PER_CALL as libc::c_uint,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        let received = if received < 0 { return Err(io::Error::last_os_error()) } else { received as usize };
        for (length, header) in self.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        Ok(self
            .buffers
            .chunks_exact(self.buffer_bytes)
            .zip(self.lengths)
            .take(received)
            .map(|(buffer, length)| &buffer[..length]))
    }
}

/// A UDP socket at an address that other sockets of the same user may share, if all were created by this function: a
/// connected socket receives the datagrams of its peer, the unconnected one all others.
///
/// # Errors
/// The errors of socket(2) and bind(2).
pub fn bind_shared(at: SocketAddr) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; the returned descriptor has no other owner.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by the kernel and is open.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let address = Address::from(at);
    // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
    if unsafe { libc::bind(fd, address.pointer(), address.length()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(UdpSocket::from(socket))
}

/// Disables fragmentation of this socket's datagrams, by this host and by routers: a datagram too long for the device
/// fails with EMSGSIZE, one too long for a link on the way is lost there.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn never_fragment(socket: &UdpSocket) -> io::Result<()> {
    if socket.local_addr()?.is_ipv4() {
        return set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    }
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    // An IPv6 socket that sends IPv4 has that option, too; an IPv6-only socket may reject it.
    let _ = set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    Ok(())
}

/// Datagrams dropped because the socket's receive buffer was full, since the socket's creation.
///
/// # Errors
/// The errors of getsockopt(2).
pub fn overflowed(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut figures = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
    get(socket, libc::SO_MEMINFO, &mut figures)?;
    Ok(u64::from(figures[libc::SK_MEMINFO_DROPS as usize]))
}

/// Sets both buffers of a socket; the kernel doubles the value, keeps within the system's limits, and stops tuning
/// them.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn set_buffers(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// Send and receive buffer sizes of a socket in the kernel.
///
/// # Errors
/// The errors of getsockopt(2).
pub fn buffers(socket: &impl AsRawFd) -> io::Result<[u32; 2]> {
    let mut bytes = [0; 2];
    for (place, name) in bytes.iter_mut().zip([libc::SO_SNDBUF, libc::SO_RCVBUF]) {
        get(socket, name, std::slice::from_mut(place))?;
    }
    Ok(bytes)
}

/// Limits the unsent bytes of a TCP socket (TCP_NOTSENT_LOWAT): it becomes writable again below half of that. Bytes in
/// transit do not count, so long paths are filled as before. A listener's setting is inherited by its connections.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn bound_unsent(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set_value(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Makes closing this TCP socket discard unsent bytes and send a reset to the peer.
///
/// # Errors
/// The errors of setsockopt(2).
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

/// Fills `figures` from SOL_SOCKET; options unknown to an older kernel stay unchanged.
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
    fn datagrams_stay_separate_and_in_order() {
        let (one, other) = pair();
        let texts: Vec<Vec<u8>> = (1..=50u8).map(|number| vec![number; usize::from(number)]).collect();
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let mut sender = Sender::default();
        assert_eq!(sender.send(one.as_fd(), &texts).unwrap(), DATAGRAMS_PER_CALL);
        assert_eq!(sender.send(one.as_fd(), &texts[DATAGRAMS_PER_CALL..]).unwrap(), 50 - DATAGRAMS_PER_CALL);
        let (mut receiver, mut received) = (Receiver::new(40), Vec::new());
        while received.len() < 50 {
            received.extend(receiver.receive(other.as_fd()).unwrap().map(<[u8]>::to_vec));
        }
        for (received, sent) in received.iter().zip(&texts) {
            assert_eq!(received, &sent[..sent.len().min(40)], "a datagram that is too long is truncated");
        }
        other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert!(receiver.receive(other.as_fd()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    }

    #[test]
    fn datagrams_beyond_the_receive_buffer_are_counted() {
        let (one, other) = pair();
        set_buffers(&other, 4096).unwrap();
        let [_, receive] = buffers(&other).unwrap();
        assert!((4096..=16_384).contains(&receive), "{receive}");
        assert_eq!(overflowed(&other).unwrap(), 0);
        let text = [7u8; 1000];
        let mut sender = Sender::default();
        let mut sent = 0;
        while sent < 200 {
            sent += sender.send(one.as_fd(), &[&text[..]; DATAGRAMS_PER_CALL]).unwrap();
        }
        let (mut receiver, mut received) = (Receiver::new(1000), 0);
        other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        while let Ok(datagrams) = receiver.receive(other.as_fd()) {
            received += datagrams.count();
        }
        assert!(received < sent);
        assert_eq!(overflowed(&other).unwrap(), (sent - received) as u64);
    }

    #[test]
    fn connected_socket_receives_its_peer_and_the_shared_one_the_rest() {
        let shared = bind_shared((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let at = shared.local_addr().unwrap();
        let [peer, unknown] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let own = bind_shared(at).unwrap();
        own.connect(peer.local_addr().unwrap()).unwrap();
        for socket in [&own, &shared] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        for _ in 0..8 {
            unknown.send_to(b"unknown", at).unwrap();
            peer.send_to(b"peer", at).unwrap();
        }
        let mut buffer = [0; 16];
        for (socket, word) in [(&own, &b"peer"[..]), (&shared, b"unknown")] {
            for _ in 0..8 {
                let (length, _) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], word);
            }
        }
        // A socket created without sharing cannot have the address.
        assert!(UdpSocket::bind(at).is_err());
    }

    #[test]
    fn datagram_longer_than_the_mtu_fails() {
        let (one, _other) = pair();
        never_fragment(&one).unwrap();
        let mtu: usize = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        // Loopback's MTU is the maximum packet length, of which the headers take 28 bytes.
        let long = vec![0; mtu.min(65_535) - 28 + 1];
        let error = Sender::default().send(one.as_fd(), &[&long]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn abort_on_close_sends_a_reset() {
        use std::io::Read;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        abort_on_close(&server).unwrap();
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
