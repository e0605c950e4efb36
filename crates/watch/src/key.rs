//! The four-tuple of a connection, the same from both of its ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::ip::Addresses;

/// Addresses and ports, the smaller end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// High and low half of the first address, then of the second. An IPv4 address is a low half.
    addresses: [u64; 4],
    /// First port in the upper half.
    ports: u32,
    v6: bool,
}

impl Key {
    /// The key of a packet, and whether its source is the second end.
    #[inline]
    pub(crate) fn new(addresses: Addresses, source_port: u16, destination_port: u16) -> (Key, bool) {
        let (source, destination, v6) = match addresses {
            Addresses::V4(source, destination) => {
                ([0, u64::from(u32::from_be_bytes(source))], [0, u64::from(u32::from_be_bytes(destination))], false)
            }
            Addresses::V6(source, destination) => (halves(source), halves(destination), true),
        };
        let reversed = (source, source_port) > (destination, destination_port);
        let (first, second) = if reversed { (destination, source) } else { (source, destination) };
        let (low, high) = if reversed { (destination_port, source_port) } else { (source_port, destination_port) };
        let ports = u32::from(low) << 16 | u32::from(high);
        (Key { addresses: [first[0], first[1], second[0], second[1]], ports, v6 }, reversed)
    }

    /// The first or the second end.
    pub(crate) fn end(&self, second: bool) -> SocketAddr {
        let at = if second { 2 } else { 0 };
        let port = if second { self.ports as u16 } else { (self.ports >> 16) as u16 };
        let address = if self.v6 {
            let [high, low] = [self.addresses[at], self.addresses[at + 1]];
            IpAddr::V6(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
        } else {
            IpAddr::V4(Ipv4Addr::from(self.addresses[at + 1] as u32))
        };
        SocketAddr::new(address, port)
    }

    /// A keyed hash: multiply and fold, as in wyhash; fast, and unpredictable without the seed.
    #[inline]
    pub(crate) fn hash(&self, seed: u64) -> u32 {
        let ports = u64::from(self.ports);
        let mut hash = fold(seed ^ self.addresses[1] << 32 ^ self.addresses[3], seed.rotate_left(32) ^ PRIME ^ ports);
        if self.v6 {
            hash = fold(hash ^ self.addresses[0], self.addresses[2] ^ SECOND_PRIME);
            hash = fold(hash ^ self.addresses[1], self.addresses[3] ^ PRIME);
        }
        (fold(hash, SECOND_PRIME) >> 16) as u32
    }
}

fn halves(octets: [u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(octets);
    [(number >> 64) as u64, number as u64]
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Odd constants without pattern (digits of the golden ratio and of pi).
const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND_PRIME: u64 = 0x2436_A888_5A30_8D31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_the_same_key_with_both_ends() {
        let (up, up_reversed) = Key::new(Addresses::V4([10, 0, 0, 9], [10, 0, 0, 1]), 40_000, 80);
        let (down, down_reversed) = Key::new(Addresses::V4([10, 0, 0, 1], [10, 0, 0, 9]), 80, 40_000);
        assert_eq!((up, up.hash(7)), (down, down.hash(7)));
        assert_eq!((up_reversed, down_reversed), (true, false));
        assert_eq!(up.end(true), "10.0.0.9:40000".parse().unwrap());
        assert_eq!(up.end(false), "10.0.0.1:80".parse().unwrap());
        let (v6, _) = Key::new(Addresses::V6([1; 16], [2; 16]), 1, 2);
        assert_eq!(v6.end(false).ip(), IpAddr::V6(Ipv6Addr::from([1; 16])));
        assert_ne!(v6.hash(7), v6.hash(8));
    }

    #[test]
    fn key_of_a_host_with_itself_orders_the_ports() {
        let same = Addresses::V4([127, 0, 0, 1], [127, 0, 0, 1]);
        assert_eq!(Key::new(same, 80, 5000).0, Key::new(same, 5000, 80).0);
        assert_ne!(Key::new(same, 80, 5000).0, Key::new(same, 80, 5001).0);
    }
}
