//! UDP sockets of QUIC: several datagrams in one call, with their ECN bits.
//!
//! ```text
//!   datagrams of one length, in sequence --sendmsg: UDP_SEGMENT--> kernel or device divides them
//!   datagrams of one length, in sequence <--recvmmsg: UDP_GRO----- kernel joined them, 8 such messages a call
//! ```
//!
//! A kernel or device that cannot divide or join gets and gives one datagram at a time; the result is the same.

use std::io;
use std::mem::{size_of, size_of_val};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::datagrams;
use crate::socket::{Address, local_address};

/// Buffer of a socket for datagrams that it has received: Chromium's kQuicSocketReceiveBufferSize
/// (net/quic/quic_context.h).
pub const RECEIVE_BUFFER: u32 = 1 << 20;

/// Most datagrams that one [`UdpSocket::send`] takes: UDP_MAX_SEGMENTS of Linux before 6.9 (include/linux/udp.h).
pub const SEGMENTS_MAX: usize = 64;

/// Most bytes of one [`UdpSocket::send`]: the longest packet of IPv4, less the headers.
pub const SEND_MAX: usize = 65_535 - 28;

/// A connected UDP socket, non-blocking, whose datagrams are never fragmented.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    is_v4: bool,
    /// Whether the kernel divides what is sent.
    segments: bool,
}

impl UdpSocket {
    /// Opens a socket in the calling thread's network namespace, bound to `source` if given, for datagrams from and to
    /// `server`. Its receive buffer has [`RECEIVE_BUFFER`] bytes as far as the system allows.
    ///
    /// # Errors
    /// The errors of socket(2), bind(2) and connect(2); EADDRINUSE and EAGAIN mean that the address has no port left.
    pub fn connect(source: Option<IpAddr>, server: SocketAddr) -> io::Result<Self> {
        let family = if server.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        check(fd)?;
        // SAFETY: `fd` was just returned by the kernel and is open.
        let socket = UdpSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) }, is_v4: server.is_ipv4(), segments: true };
        if socket.is_v4 {
            socket.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            socket.set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        } else {
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        }
        // Linux before 5.0 does not join datagrams.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        let size = libc::c_int::try_from(RECEIVE_BUFFER).unwrap_or(libc::c_int::MAX);
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size).is_err() {
            // Without privilege, as far as the system allows.
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, size)?;
        }
        if let Some(source) = source {
            let address = Address::from(SocketAddr::new(source, 0));
            // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
            check(unsafe { libc::bind(fd, address.pointer(), address.length()) })?;
        }
        let address = Address::from(server);
        // SAFETY: as for bind.
        check(unsafe { libc::connect(fd, address.pointer(), address.length()) })?;
        Ok(socket)
    }

    /// From now on the kernel neither divides what is sent (UDP_SEGMENT) nor joins what arrives (UDP_GRO).
    ///
    /// # Errors
    /// The errors of setsockopt(2).
    pub fn disable_offload(&mut self) -> io::Result<()> {
        self.segments = false;
        match self.set(libc::SOL_UDP, libc::UDP_GRO, 0) {
            // Before Linux 5.0 it did not exist.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            set => set,
        }
    }

    /// Sends datagrams of `segment` bytes each, the last possibly shorter, or one without `segment`; `ecn`: the two ECN
    /// bits of their IP headers. Returns the bytes accepted, whole datagrams; fewer than all if the socket's buffer is
    /// full. A datagram that is too long for the device, or for which the device has no space, counts as accepted and
    /// is lost, as on the way.
    ///
    /// At most [`SEGMENTS_MAX`] datagrams and [`SEND_MAX`] bytes.
    ///
    /// # Errors
    /// The errors of sendmsg(2), among them those that an earlier datagram caused: ECONNREFUSED, EHOSTUNREACH.
    pub fn send(&mut self, bytes: &[u8], segment: Option<usize>, ecn: u8) -> io::Result<usize> {
        let segment = segment.filter(|&segment| segment < bytes.len());
        if self.segments || segment.is_none() {
            match self.send_message(bytes, segment, ecn) {
                // EIO: the device cannot compute checksums; EINVAL: the kernel cannot divide.
                Err(error) if segment.is_some() && matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                    self.segments = false;
                }
                // The last, shorter one may still fit.
                Err(error) if segment.is_some() && error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                outcome => return outcome,
            }
        }
        let mut sent = 0;
        for datagram in bytes.chunks(segment.unwrap_or(bytes.len()).max(1)) {
            match self.send_message(datagram, None, ecn)? {
                0 => break,
                accepted => sent += accepted,
            }
        }
        Ok(sent)
    }

    /// The local port: identifies the connection together with the two addresses.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_port(&self) -> io::Result<u16> {
        local_address(self.fd.as_fd()).map(|address| address.port())
    }

    /// Datagrams that were dropped because the socket's receive buffer was full.
    ///
    /// # Errors
    /// The errors of getsockopt(2).
    pub fn overflowed(&self) -> io::Result<u64> {
        datagrams::overflowed(&self.fd)
    }

    fn send_message(&self, bytes: &[u8], segment: Option<usize>, ecn: u8) -> io::Result<usize> {
        let mut control = Control::default();
        let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all zeroes is a valid msghdr: no name, no control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        if ecn != 0 || segment.is_some() {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control.0) as _;
            // SAFETY: `control` outlives the call and is as long as stated.
            let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
            let mut length = 0;
            let ecn = libc::c_int::from(ecn);
            let (level, kind) =
                if self.is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
            // SAFETY: `control` has space for both messages, and `at` is within it or null.
            unsafe {
                at = put(&header, at, level, kind, ecn, &mut length);
                if let Some(segment) = segment {
                    let segment = u16::try_from(segment).unwrap_or(u16::MAX);
                    put(&header, at, libc::SOL_UDP, libc::UDP_SEGMENT, segment, &mut length);
                }
            }
            header.msg_controllen = length as _;
        }
        // SAFETY: the header points to one piece, and to control data of the stated length; both outlive the call.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(bytes.len());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            Some(libc::EMSGSIZE) if segment.is_none() => Ok(bytes.len()),
            Some(libc::ENOBUFS) => Ok(bytes.len()),
            _ => Err(error),
        }
    }

    fn set(&self, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` outlives the call and its size is the one stated.
        check(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Space for control messages, aligned for their headers.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// An int and a short to send; ECN bits, and the length of joined datagrams, to receive: 24 bytes each.
const CONTROL_BYTES: usize = 128;

impl Default for Control {
    fn default() -> Self {
        Control([0; CONTROL_BYTES])
    }
}

/// Writes a control message at `at`, and returns where the next goes.
///
/// # Safety
/// `at` is null or from CMSG_FIRSTHDR or CMSG_NXTHDR of `header`, with space for the message.
unsafe fn put<T: Copy>(
    header: &libc::msghdr,
    at: *mut libc::cmsghdr,
    level: i32,
    kind: i32,
    value: T,
    length: &mut usize,
) -> *mut libc::cmsghdr {
    if at.is_null() {
        return at;
    }
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: the caller's.
    unsafe {
        (*at).cmsg_level = level;
        (*at).cmsg_type = kind;
        (*at).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
        *length += libc::CMSG_SPACE(bytes) as usize;
        libc::CMSG_NXTHDR(header, at)
    }
}

/// Receives datagrams, several a call.
pub struct UdpReceiver {
    /// [`MESSAGES`] buffers in sequence.
    buffers: Box<[u8]>,
    controls: [Control; MESSAGES],
    received: [Received; MESSAGES],
}

/// Most messages of a call, each possibly several joined datagrams.
const MESSAGES: usize = 8;
/// Longest message.
const MESSAGE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Default)]
struct Received {
    length: usize,
    segment: usize,
    ecn: u8,
}

/// Datagrams that the kernel joined, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The bytes of all, in sequence.
    pub bytes: &'a [u8],
    /// Length of each but the last, at least 1.
    pub segment: usize,
    /// The ECN bits of their IP headers.
    pub ecn: u8,
}

impl<'a> Message<'a> {
    /// The datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment)
    }
}

impl Default for UdpReceiver {
    fn default() -> Self {
        UdpReceiver {
            buffers: vec![0; MESSAGES * MESSAGE_BYTES].into_boxed_slice(),
            controls: [Control::default(); MESSAGES],
            received: [Received::default(); MESSAGES],
        }
    }
}

impl UdpReceiver {
    /// Most messages of a call, each possibly several joined datagrams. Fewer: none is left.
    pub const MESSAGES: usize = MESSAGES;

    /// Receives the messages that wait at a socket, up to as many as fit, and returns their number: 0 if none waits.
    ///
    /// # Errors
    /// The errors of recvmmsg(2), among them those that a datagram sent earlier caused: ECONNREFUSED, EHOSTUNREACH.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut pieces: [libc::iovec; MESSAGES] =
            std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: MESSAGE_BYTES });
        // SAFETY: all zeroes is a valid mmsghdr: no name, no control data.
        let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { std::mem::zeroed() };
        for (((header, piece), buffer), control) in headers
            .iter_mut()
            .zip(&mut pieces)
            .zip(self.buffers.chunks_exact_mut(MESSAGE_BYTES))
            .zip(&mut self.controls)
        {
            piece.iov_base = buffer.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: every header points to one piece, every piece to a separate buffer of the stated length, and to
        // control data of the stated length; all of them outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                MESSAGES as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(0),
                _ => Err(error),
            };
        }
        for (received, header) in self.received.iter_mut().zip(&headers).take(count as usize) {
            *received = Received { length: header.msg_len as usize, segment: 0, ecn: 0 };
            read_control(&header.msg_hdr, received);
        }
        Ok(count as usize)
    }

    /// The message at `index`, below the number that [`Self::receive`] returned.
    pub fn message(&self, index: usize) -> Message<'_> {
        let Received { length, segment, ecn } = self.received[index];
        let bytes = &self.buffers[index * MESSAGE_BYTES..][..length.min(MESSAGE_BYTES)];
        Message { bytes, segment: if segment == 0 { length.max(1) } else { segment }, ecn }
    }
}

fn read_control(header: &libc::msghdr, received: &mut Received) {
    // SAFETY: the kernel wrote control messages of the length that the header states.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: `at` is a control message of `header`, whose data has at least the size of the kind's type.
        unsafe {
            let data = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => received.ecn = data.read() & ECN_MASK,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    received.ecn = (data.cast::<libc::c_int>().read_unaligned() as u8) & ECN_MASK;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = data.cast::<libc::c_int>().read_unaligned();
                    received.segment = usize::try_from(segment).unwrap_or(0);
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
}

/// The ECN bits of a traffic class (RFC 3168).
const ECN_MASK: u8 = 0b11;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as StdSocket;
    use std::time::Duration;

    use super::*;

    fn wait_readable(socket: &UdpSocket) {
        let mut fd = libc::pollfd { fd: socket.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which outlives the call.
        unsafe { libc::poll(&raw mut fd, 1, 5000) };
    }

    /// A socket, and another that is connected to it.
    fn pair(host: &str) -> (UdpSocket, UdpSocket) {
        let one = StdSocket::bind((host, 0)).unwrap();
        let other = UdpSocket::connect(Some(host.parse().unwrap()), one.local_addr().unwrap()).unwrap();
        let at = SocketAddr::new(host.parse().unwrap(), other.local_port().unwrap());
        one.connect(at).unwrap();
        one.set_nonblocking(true).unwrap();
        let fd = OwnedFd::from(one);
        let one = UdpSocket { fd, is_v4: at.is_ipv4(), segments: true };
        (one, other)
    }

    #[test]
    fn datagrams_keep_their_lengths_and_ecn_bits() {
        for host in ["127.0.0.1", "::1"] {
            for segments in [true, false] {
                let (mut one, other) = pair(host);
                one.segments = segments;
                let bytes: Vec<u8> = (0..5500u32).map(|index| index as u8).collect();
                assert_eq!(one.send(&bytes, Some(1200), 0b10).unwrap(), bytes.len());
                assert_eq!(one.send(&bytes[..7], None, 0).unwrap(), 7);
                let (mut receiver, mut received) = (UdpReceiver::default(), Vec::new());
                while received.len() < 6 {
                    wait_readable(&other);
                    for index in 0..receiver.receive(&other).unwrap() {
                        let message = receiver.message(index);
                        received.extend(message.datagrams().map(|datagram| (datagram.to_vec(), message.ecn)));
                    }
                }
                let mut expected: Vec<(Vec<u8>, u8)> = bytes.chunks(1200).map(|chunk| (chunk.to_vec(), 0b10)).collect();
                expected.push((bytes[..7].to_vec(), 0));
                assert_eq!(received, expected, "{host}, {segments}");
                assert_eq!(receiver.receive(&other).unwrap(), 0);
            }
        }
    }

    #[test]
    fn a_datagram_to_a_closed_port_is_refused() {
        let closed = StdSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut socket = UdpSocket::connect(None, closed).unwrap();
        assert_eq!(socket.send(b"x", None, 0).unwrap(), 1);
        wait_readable(&socket);
        let error = UdpReceiver::default().receive(&socket).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    }

    #[test]
    fn a_datagram_that_is_too_long_is_lost() {
        let (mut one, other) = pair("127.0.0.1");
        assert_eq!(one.send(&[0; SEND_MAX + 1], None, 0).unwrap(), SEND_MAX + 1);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(UdpReceiver::default().receive(&other).unwrap(), 0);
    }
}
