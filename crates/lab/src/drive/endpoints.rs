//! The addresses behind one name, taken in turn.

use std::net::SocketAddr;

/// Where the connections for one URL go: with several addresses behind its name, each new connection takes the next, as
/// when names are resolved for each connection by a server that turns its answers (DNS round robin).
#[derive(Clone, Debug)]
pub struct Endpoints {
    addresses: Vec<SocketAddr>,
    next: usize,
}

impl Endpoints {
    /// Takes `addresses` in turn, beginning with the first.
    ///
    /// # Panics
    /// Without any address.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        assert!(!addresses.is_empty(), "a server has at least one address");
        Endpoints { addresses, next: 0 }
    }

    /// The address for a new connection.
    pub fn take(&mut self) -> SocketAddr {
        let address = self.addresses[self.next];
        self.next = (self.next + 1) % self.addresses.len();
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_in_turn() {
        let both: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().unwrap(), "192.0.2.2:80".parse().unwrap()];
        let mut endpoints = Endpoints::new(both.clone());
        let taken: Vec<SocketAddr> = (0..5).map(|_| endpoints.take()).collect();
        assert_eq!(taken, [both[0], both[1], both[0], both[1], both[0]]);
    }
}
