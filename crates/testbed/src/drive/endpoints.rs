//! Addresses of one target's connections: the addresses of its name, used in turn, or a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use sys::socket::TcpSocket;

/// Addresses of the connections for one URL: with several addresses of its name, each new connection uses the next, as
/// if the name were resolved for each connection with DNS round robin.
#[derive(Clone, Debug)]
pub struct Endpoints {
    addresses: Vec<SocketAddr>,
    next: usize,
    unix: Option<PathBuf>,
}

/// Address of one new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(&'a Path),
}

impl Endpoints {
    /// Uses `addresses` in turn, beginning with the first.
    ///
    /// # Panics
    /// Without any address.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        assert!(!addresses.is_empty(), "a server has at least one address");
        Endpoints { addresses, next: 0, unix: None }
    }

    /// A Unix socket.
    pub fn unix(path: PathBuf) -> Self {
        Endpoints { addresses: Vec::new(), next: 0, unix: Some(path) }
    }

    /// All addresses; none of a Unix socket.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of a new connection.
    pub fn next_endpoint(&mut self) -> Endpoint<'_> {
        if let Some(path) = &self.unix {
            return Endpoint::Unix(path);
        }
        let address = self.addresses[self.next];
        self.next = (self.next + 1) % self.addresses.len();
        Endpoint::Tcp(address)
    }
}

impl Endpoint<'_> {
    /// Starts connecting, over TCP from the source address that `source` returns for the server's address.
    ///
    /// # Errors
    /// The errors of [`TcpSocket::connect`] and [`TcpSocket::connect_unix`].
    pub fn connect(self, source: impl FnOnce(IpAddr) -> Option<IpAddr>) -> io::Result<TcpSocket> {
        match self {
            Endpoint::Tcp(server) => TcpSocket::connect(source(server.ip()), server),
            Endpoint::Unix(path) => TcpSocket::connect_unix(path),
        }
    }

    /// The server's address, if it has one.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Endpoint::Tcp(server) => Some(server.ip()),
            Endpoint::Unix(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_in_turn() {
        let both: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().unwrap(), "192.0.2.2:80".parse().unwrap()];
        let mut endpoints = Endpoints::new(both.clone());
        let taken: Vec<Option<IpAddr>> = (0..5).map(|_| endpoints.next_endpoint().ip()).collect();
        assert_eq!(taken, [0, 1, 0, 1, 0].map(|index: usize| Some(both[index].ip())));
    }

    #[test]
    fn a_unix_socket_is_the_same_for_every_connection() {
        let mut endpoints = Endpoints::unix("/run/s".into());
        assert_eq!(endpoints.next_endpoint(), Endpoint::Unix(Path::new("/run/s")));
        assert_eq!(endpoints.next_endpoint().ip(), None);
    }
}
