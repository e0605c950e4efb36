//! The listening socket.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::sockopt::{ReuseAddr, ReusePort, TcpNoDelay};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind as bind_socket, listen, setsockopt, socket,
};

use crate::spec::{ServeError, system};

/// Unsent bytes of a response that the kernel may buffer. On loopback a send buffer starts with megabytes in large
/// segments: some hundred clients that did not read used up the kernel's memory for TCP, and other connections had to
/// wait.
const UNSENT_BYTES: u32 = 256 << 10;

/// A non-blocking listener at `address`. `shared`: other listeners of this process may use the address, and the kernel
/// distributes connections.
pub(crate) fn bind(address: SocketAddr, shared: bool) -> Result<TcpListener, ServeError> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let refused = |errno: nix::errno::Errno| ServeError::Listen { address, source: errno.into() };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let listener: OwnedFd = socket(family, SockType::Stream, flags, None).map_err(refused)?;
    // A restarted server must not wait for old connections in TIME_WAIT.
    setsockopt(&listener, ReuseAddr, &true).map_err(refused)?;
    if shared {
        setsockopt(&listener, ReusePort, &true).map_err(refused)?;
    }
    // Accepted sockets inherit this option: one system call less per connection.
    setsockopt(&listener, TcpNoDelay, &true).map_err(system("setsockopt TCP_NODELAY"))?;
    sys::datagrams::bound_unsent(&listener, UNSENT_BYTES).map_err(system("setsockopt TCP_NOTSENT_LOWAT"))?;
    bind_socket(listener.as_raw_fd(), &SockaddrStorage::from(address)).map_err(refused)?;
    // A burst of clients that start together needs the longest permitted backlog (net.core.somaxconn).
    listen(&listener, Backlog::MAXALLOWABLE).map_err(refused)?;
    Ok(TcpListener::from(listener))
}

/// A non-blocking UDP socket at `address`, for HTTP/3. `shared`: other sockets of this process have the address too, and
/// the kernel distributes clients.
pub(crate) fn bind_udp(address: SocketAddr, shared: bool) -> Result<UdpSocket, ServeError> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let refused = |errno: nix::errno::Errno| ServeError::Listen { address, source: errno.into() };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Datagram, flags, None).map_err(refused)?;
    if shared {
        setsockopt(&socket, ReusePort, &true).map_err(refused)?;
    }
    // Datagrams of many clients arrive in bursts. The system's limits apply.
    sys::datagrams::set_buffers(&socket, UDP_BUFFER_BYTES).map_err(system("setsockopt SO_RCVBUF"))?;
    bind_socket(socket.as_raw_fd(), &SockaddrStorage::from(address)).map_err(refused)?;
    Ok(UdpSocket::from(socket))
}

/// Datagrams that the kernel may buffer in each direction.
const UDP_BUFFER_BYTES: u32 = 4 << 20;
