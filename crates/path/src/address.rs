//! Client addresses: which address belongs to which client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of the virtual clients: client `i` has `first_client + i`, and in IPv6
/// [`FIRST_CLIENT_V6`](Self::FIRST_CLIENT_V6)` + i`. Both addresses are the same client, with the same links. There is
/// no table: finding a packet's client is one subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPlan {
    /// IPv4 address of client 0.
    pub first_client: Ipv4Addr,
    /// Number of clients, 1 to [`AddressPlan::CLIENTS_MAX`].
    pub clients: u32,
}

impl AddressPlan {
    /// 198.19.0.1, in the upper half of the range reserved for benchmarks (RFC 2544); the server has 198.18.0.1.
    pub const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);

    /// 2001:2:0:2::1, in the range reserved for benchmarks (RFC 5180); the server has 2001:2:0:1::1.
    pub const FIRST_CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 1);

    /// Maximum number of clients: 198.19.0.1 to 198.19.255.254, the prefix without its first and last address.
    pub const CLIENTS_MAX: u32 = 65_534;

    /// The default plan for `clients` clients; `None` outside 1 to [`Self::CLIENTS_MAX`].
    pub fn new(clients: u32) -> Option<Self> {
        (1..=Self::CLIENTS_MAX).contains(&clients).then_some(AddressPlan { first_client: Self::FIRST_CLIENT, clients })
    }

    /// The IPv4 address of `client`, counted from 0. Beyond the last client addresses continue (and wrap).
    pub fn address(&self, client: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first_client).wrapping_add(client))
    }

    /// The IPv6 address of `client`, counted from 0. Beyond the last client addresses continue.
    pub fn address_v6(&self, client: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(Self::FIRST_CLIENT_V6.to_bits() + u128::from(client))
    }

    /// The client with `address`; `None` for an address outside of the plan. An IPv4-mapped IPv6 address
    /// (`::ffff:198.19.0.1`) is outside of the plan: no packet carries one.
    #[inline]
    pub fn index(&self, address: IpAddr) -> Option<u32> {
        let index = match address {
            IpAddr::V4(address) => u32::from(address).wrapping_sub(u32::from(self.first_client)),
            IpAddr::V6(address) => {
                let index = address.to_bits().wrapping_sub(Self::FIRST_CLIENT_V6.to_bits());
                u32::try_from(index).ok()?
            }
        };
        (index < self.clients).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_index_is_none_for_addresses_next_to_the_first_and_last_client() {
        let plan = AddressPlan::new(65_534).unwrap();
        let index = |address: &str| plan.index(address.parse().unwrap());
        assert_eq!(index("198.19.0.0"), None);
        assert_eq!(index("198.19.0.1"), Some(0));
        assert_eq!(index("198.19.255.254"), Some(65_533));
        assert_eq!(index("198.19.255.255"), None);
        assert_eq!(index("198.18.0.1"), None);
        assert_eq!(index("2001:2:0:2::"), None);
        assert_eq!(index("2001:2:0:2::1"), Some(0));
        assert_eq!(index("2001:2:0:2::fffe"), Some(65_533));
        assert_eq!(index("2001:2:0:2::ffff"), None);
        assert_eq!(index("2001:2:0:2:1::1"), None);
        assert_eq!(index("2001:2:0:1::1"), None);
        assert_eq!(index("::ffff:198.19.0.1"), None);
    }

    #[test]
    fn ipv4_and_ipv6_address_of_a_client_have_the_same_index() {
        let plan = AddressPlan::new(65_534).unwrap();
        assert_eq!(plan.address(256), Ipv4Addr::new(198, 19, 1, 1));
        for client in [0, 1, 254, 255, 256, 65_533] {
            assert_eq!(plan.index(plan.address(client).into()), Some(client));
            assert_eq!(plan.index(plan.address_v6(client).into()), Some(client));
        }
    }

    #[test]
    fn address_plan_rejects_zero_and_too_many_clients() {
        assert!(AddressPlan::new(0).is_none());
        assert!(AddressPlan::new(1).is_some());
        assert!(AddressPlan::new(65_535).is_none());
    }
}
