//! Counts the connections of each address, over all workers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

/// Connection counts by address: updated when a connection is accepted or closed, never by a request. An IPv6 /64
/// network counts as one address, since one host may own it.
#[derive(Debug)]
pub(crate) struct AddressCounts {
    each_max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl AddressCounts {
    /// At most `each_max` connections an address.
    pub fn new(each_max: usize) -> Self {
        AddressCounts { each_max, counts: Mutex::new(HashMap::new()) }
    }

    /// Counts a new connection of `address`; false if it is at its limit.
    pub fn enter(&self, address: IpAddr) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(|poison| poison.into_inner());
        let count = counts.entry(network(address)).or_insert(0);
        if *count >= self.each_max {
            return false;
        }
        *count += 1;
        true
    }

    /// Counts a closed connection.
    pub fn leave(&self, address: IpAddr) {
        let mut counts = self.counts.lock().unwrap_or_else(|poison| poison.into_inner());
        let address = network(address);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        },
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_limited_and_closed_connections_free_its_share() {
        let address_counts = AddressCounts::new(2);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        assert!(address_counts.enter(a) && address_counts.enter(a) && !address_counts.enter(a));
        assert!(address_counts.enter(b));
        address_counts.leave(a);
        assert!(address_counts.enter(a) && !address_counts.enter(a));
        for address in [a, a, b] {
            address_counts.leave(address);
        }
        assert!(address_counts.counts.lock().unwrap().is_empty(), "no entry remains for closed connections");
    }

    #[test]
    fn addresses_of_one_ipv6_64_network_share_one_limit() {
        let address_counts = AddressCounts::new(1);
        let enter = |address: &str| address_counts.enter(address.parse().unwrap());
        assert!(enter("2001:db8::1") && !enter("2001:db8::2") && enter("2001:db8:0:1::1"));
        assert!(enter("192.0.2.1") && !enter("::ffff:192.0.2.1"));
    }
}
