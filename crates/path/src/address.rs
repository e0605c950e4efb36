//! Which address is which client.

use std::net::Ipv4Addr;

/// The addresses of the virtual clients: client `i` has `first_client + i`. No table, so finding a packet's client is
/// one subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPlan {
    /// Address of client 0.
    pub first_client: Ipv4Addr,
    /// Number of clients, 1 to [`AddressPlan::CLIENTS_MAX`].
    pub clients: u32,
}

impl AddressPlan {
    /// 198.19.0.1, in the upper half of the range set aside for benchmarking (RFC 2544); the server has 198.18.0.1.
    pub const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);

    /// Most clients: 198.19.0.1 to 198.19.255.254, the prefix without its first and last address.
    pub const CLIENTS_MAX: u32 = 65_534;

    /// The usual plan for `clients` clients; `None` outside 1 to [`Self::CLIENTS_MAX`].
    pub fn new(clients: u32) -> Option<Self> {
        (1..=Self::CLIENTS_MAX).contains(&clients).then_some(AddressPlan { first_client: Self::FIRST_CLIENT, clients })
    }

    /// The address of `client`, counted from 0. Past the last client the addresses simply go on (and wrap).
    pub fn address(&self, client: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first_client).wrapping_add(client))
    }

    /// The client with `address`, if it is one of the plan's.
    #[inline]
    pub fn index(&self, address: Ipv4Addr) -> Option<u32> {
        let index = u32::from(address).wrapping_sub(u32::from(self.first_client));
        (index < self.clients).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_client_are_inside_and_their_neighbours_are_not() {
        let plan = AddressPlan::new(65_534).unwrap();
        assert_eq!(plan.index(Ipv4Addr::new(198, 19, 0, 0)), None);
        assert_eq!(plan.index(Ipv4Addr::new(198, 19, 0, 1)), Some(0));
        assert_eq!(plan.index(Ipv4Addr::new(198, 19, 255, 254)), Some(65_533));
        assert_eq!(plan.index(Ipv4Addr::new(198, 19, 255, 255)), None);
        assert_eq!(plan.address(256), Ipv4Addr::new(198, 19, 1, 1));
        assert_eq!(plan.index(Ipv4Addr::new(198, 18, 0, 1)), None);
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        assert!(AddressPlan::new(0).is_none());
        assert!(AddressPlan::new(1).is_some());
        assert!(AddressPlan::new(65_535).is_none());
    }
}
