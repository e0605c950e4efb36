//! The listening socket.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::sockopt::{ReuseAddr, ReusePort, TcpNoDelay};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind as bind_socket, listen, setsockopt, socket,
};

use crate::spec::{ServeError, system};

/// What the kernel may hold of an answer that its client does not take. A send buffer starts with megabytes on loopback, whose
/// segments are large: some hundred clients that read nothing took all the memory the kernel has for TCP, and then other
/// connections waited, too.
const UNSENT_BYTES: u32 = 256 << 10;

/// A non-blocking listener at `address`. `shared`: others of this process may listen there too, and the kernel spreads
/// connections over them.
pub(crate) fn bind(address: SocketAddr, shared: bool) -> Result<TcpListener, ServeError> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let refused = |errno: nix::errno::Errno| ServeError::Listen { address, source: errno.into() };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let listener: OwnedFd = socket(family, SockType::Stream, flags, None).map_err(refused)?;
    // A server that is started again must not wait for the last one's connections to be forgotten.
    setsockopt(&listener, ReuseAddr, &true).map_err(refused)?;
    if shared {
        setsockopt(&listener, ReusePort, &true).map_err(refused)?;
    }
    // Accepted sockets inherit this: one system call less for each connection.
    setsockopt(&listener, TcpNoDelay, &true).map_err(system("setsockopt TCP_NODELAY"))?;
    sys::datagrams::bound_unsent(&listener, UNSENT_BYTES).map_err(system("setsockopt TCP_NOTSENT_LOWAT"))?;
    bind_socket(listener.as_raw_fd(), &SockaddrStorage::from(address)).map_err(refused)?;
    // A volley of clients that start together needs what the kernel allows (net.core.somaxconn).
    listen(&listener, Backlog::MAXALLOWABLE).map_err(refused)?;
    Ok(TcpListener::from(listener))
}
