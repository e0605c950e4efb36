//! Non-blocking stream sockets of the client side.

use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A TCP socket, non-blocking, with TCP_NODELAY; or a Unix stream socket in its place.
#[derive(Debug)]
pub struct TcpSocket(OwnedFd);

/// Outcome of a read that cannot block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Number of bytes read.
    Bytes(usize),
    /// The peer sent FIN; no bytes follow.
    End,
    /// No bytes are available now.
    Later,
}

impl TcpSocket {
    /// Opens a socket in the calling thread's network namespace, bound to `source` if given, and starts to connect.
    ///
    /// The local port is chosen at connect for the whole four-tuple (IP_BIND_ADDRESS_NO_PORT), so a source address
    /// is not limited to one connection per port over all servers.
    ///
    /// # Errors
    /// The errors of socket(2), bind(2) and connect(2) other than EINPROGRESS; EADDRNOTAVAIL from connect means that no
    /// port is left for this pair of addresses.
    pub fn connect(source: Option<IpAddr>, server: SocketAddr) -> io::Result<Self> {
        let family = if server.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and is open.
        let socket = TcpSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set_option(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        if let Some(source) = source {
            socket.set_option(libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
            let address = Address::from(SocketAddr::new(source, 0));
            // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
            check(unsafe { libc::bind(fd, address.pointer(), address.length) })?;
        }
        let address = Address::from(server);
        // SAFETY: as for bind.
        match check(unsafe { libc::connect(fd, address.pointer(), address.length) }) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    }

    /// Opens a Unix stream socket and connects it to the one at `path`.
    ///
    /// # Errors
    /// The errors of socket(2) and connect(2); EAGAIN means that the server's queue of connections is full.
    /// InvalidInput: the path is too long for a socket (107 bytes), or holds a zero byte.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let address = Address::unix(path)?;
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd =
            unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and is open.
        let socket = TcpSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
        check(unsafe { libc::connect(fd, address.pointer(), address.length) })?;
        Ok(socket)
    }

    /// The descriptor, to be closed by a ring.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// The local port chosen by connect: identifies the connection together with the two addresses.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_port(&self) -> io::Result<u16> {
        // SAFETY: sockaddr_storage is plain C data, for which all zeroes is a valid value.
        let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: `address` and `length` outlive the call and match in size.
        check(unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
        // SAFETY: the kernel wrote an address of the family it names; both families have the port at the same offset.
        let port = unsafe { (*(&raw const address).cast::<libc::sockaddr_in>()).sin_port };
        Ok(u16::from_be(port))
    }

    /// The outcome of a connect that was in progress (SO_ERROR), or of the connection's last error.
    ///
    /// # Errors
    /// The connection's error.
    pub fn take_error(&self) -> io::Result<()> {
        let mut code: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `code` and `length` outlive the call and match in size.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &raw mut length,
            )
        })?;
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    /// Sends bytes: returns the number accepted by the kernel, `None` if its buffer is full. Never raises SIGPIPE.
    ///
    /// # Errors
    /// The errors of send(2).
    pub fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        // SAFETY: the slice is valid for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match sent {
            0.. => Ok(Some(sent as usize)),
            _ => would_block().map(|()| None),
        }
    }

    /// Reads the available bytes.
    ///
    /// # Errors
    /// The errors of recv(2), ECONNRESET among them.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Read> {
        // SAFETY: the slice is valid for its length.
        let received = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match received {
            1.. => Ok(Read::Bytes(received as usize)),
            0 => Ok(Read::End),
            _ => would_block().map(|()| Read::Later),
        }
    }

    /// Discards at most `limit` available bytes, without copying them out of the kernel (MSG_TRUNC on TCP; not for a
    /// Unix socket).
    ///
    /// # Errors
    /// As for [`TcpSocket::read`].
    pub fn discard(&self, limit: usize) -> io::Result<Read> {
        discard(self.as_fd(), limit)
    }

    /// Bytes accepted by the kernel and not acknowledged by the peer, including unsent ones (SIOCOUTQ). Valid after the
    /// peer's FIN; after a reset the peer may have received more than it acknowledged. Of a Unix socket, approximately
    /// the bytes that the peer has not read.
    ///
    /// # Errors
    /// The errors of ioctl(2).
    pub fn unacknowledged(&self) -> io::Result<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: `bytes` outlives the call, which writes one int.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn set_option(&self, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` outlives the call and its size is the one stated.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        })
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket address in the kernel's form.
pub(crate) struct Address {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Address {
    pub(crate) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn length(&self) -> libc::socklen_t {
        self.length
    }

    fn unix(path: &Path) -> io::Result<Self> {
        let path = path.as_os_str().as_bytes();
        // SAFETY: sockaddr_storage is plain bytes; all zero is valid.
        let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: sockaddr_storage is large and aligned enough for every sockaddr.
        let to = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_un>() };
        to.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // The last byte stays zero.
        if path.is_empty() || path.len() >= to.sun_path.len() || path.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a valid socket path: from 1 to 107 bytes, without NUL",
            ));
        }
        for (place, byte) in to.sun_path.iter_mut().zip(path) {
            *place = *byte as libc::c_char;
        }
        Ok(Address { storage, length: size_of::<libc::sockaddr_un>() as libc::socklen_t })
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: sockaddr_storage is plain bytes; all zero is valid.
        let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let length = match address {
            SocketAddr::V4(v4) => {
                // SAFETY: sockaddr_storage is large and aligned enough for every sockaddr.
                let to = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in>() };
                to.sin_family = libc::AF_INET as libc::sa_family_t;
                to.sin_port = v4.port().to_be();
                to.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                // SAFETY: as above.
                let to = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in6>() };
                to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                to.sin6_port = v6.port().to_be();
                to.sin6_addr.s6_addr = v6.ip().octets();
                to.sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        Address { storage, length: length as libc::socklen_t }
    }
}

/// Accepts a connection, non-blocking, and returns the peer's address.
///
/// # Errors
/// The errors of accept4(2); EAGAIN if no connection waits at a non-blocking listener. EAFNOSUPPORT: the peer has no IP
/// address; its connection is closed.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `storage` and `length` outlive the call and match in size.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), storage.as_mut_ptr().cast(), &raw mut length, flags) };
    check(fd)?;
    // SAFETY: `fd` was just returned by the kernel and is open.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeroes is a valid value, and the kernel wrote at most the whole.
    let peer = internet_address(&unsafe { storage.assume_init() })?;
    Ok((socket, peer))
}

/// The address at the other end of a connected socket.
///
/// # Errors
/// The errors of getpeername(2): ENOTCONN when the peer has already disconnected. EAFNOSUPPORT: the peer has no IP
/// address.
pub fn peer_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name_of(socket, libc::getpeername)
}

/// The local address of a socket.
///
/// # Errors
/// The errors of getsockname(2). EAFNOSUPPORT: the socket has no IP address.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name_of(socket, libc::getsockname)
}

type Name = unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn name_of(socket: BorrowedFd<'_>, name: Name) -> io::Result<SocketAddr> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: `storage` and `length` outlive the call and match in size.
    check(unsafe { name(socket.as_raw_fd(), storage.as_mut_ptr().cast(), &raw mut length) })?;
    // SAFETY: all zeroes is a valid value, and the kernel wrote at most the whole.
    internet_address(&unsafe { storage.assume_init() })
}

fn internet_address(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family determines which kind of address the storage contains; it is aligned for all.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::from((address, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let (address, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(SocketAddrV6::new(address, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

/// Discards at most `limit` bytes that a non-blocking TCP socket has received, without copying them out of the kernel.
///
/// # Errors
/// The errors of recv(2), ECONNRESET among them.
pub fn discard(socket: BorrowedFd<'_>, limit: usize) -> io::Result<Read> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, so none is needed.
    let received = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), limit, libc::MSG_TRUNC) };
    match received {
        1.. => Ok(Read::Bytes(received as usize)),
        0 => Ok(Read::End),
        _ => would_block().map(|()| Read::Later),
    }
}

/// Bytes written to a TCP socket, counting a FIN as one, that the peer's kernel has not acknowledged (SIOCOUTQ): 0
/// means that the peer's kernel has all bytes, not that its program has read them.
///
/// # Errors
/// The errors of ioctl(2).
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, fills one int, and `bytes` outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Requests a receive buffer of `bytes`: beyond the system's limit with the privilege, otherwise up to it.
///
/// # Errors
/// The errors of setsockopt(2) other than EPERM.
pub fn set_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let set = |name: libc::c_int| {
        // SAFETY: `value` outlives the call and its size is the one stated.
        check(unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        })
    };
    match set(libc::SO_RCVBUFFORCE) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => set(libc::SO_RCVBUF),
        other => other,
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Turns EAGAIN (and EINTR, after which the caller retries) into success.
fn would_block() -> io::Result<()> {
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    #[test]
    fn tcp_socket_connects_reads_and_sees_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source: IpAddr = "127.0.0.9".parse().unwrap();
        let socket = TcpSocket::connect(Some(source), listener.local_addr().unwrap()).unwrap();
        let (mut peer, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), source);
        socket.take_error().unwrap();
        let mut buffer = [0u8; 16];
        assert_eq!(socket.read(&mut buffer).unwrap(), Read::Later);
        assert_eq!(socket.discard(3).unwrap(), Read::Later);
        peer.write_all(b"abchello").unwrap();
        let discarded = (0..10_000).find_map(|_| match socket.discard(3).unwrap() {
            Read::Later => {
                std::thread::yield_now();
                None
            }
            other => Some(other),
        });
        assert_eq!(discarded, Some(Read::Bytes(3)), "only the requested bytes are discarded");
        drop(peer);
        let mut received = Vec::new();
        // Bounded: each turn either reads, or waits for delivery over loopback.
        for _ in 0..10_000 {
            match socket.read(&mut buffer).unwrap() {
                Read::Bytes(n) => received.extend_from_slice(&buffer[..n]),
                Read::End => break,
                Read::Later => std::thread::yield_now(),
            }
        }
        assert_eq!(received, b"hello");
    }

    #[test]
    fn unix_socket_connects_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert_eq!(TcpSocket::connect_unix(&path).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = TcpSocket::connect_unix(&path).unwrap();
        socket.take_error().unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"hi").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(socket.read(&mut buffer).unwrap(), Read::Bytes(2));
        assert_eq!(socket.send(b"x").unwrap(), Some(1));
        drop(peer);
        let long = TcpSocket::connect_unix(Path::new(&"x".repeat(108))).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn refused_connect_is_an_error() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let outcome = TcpSocket::connect(None, address).and_then(|socket| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            socket.take_error()
        });
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
