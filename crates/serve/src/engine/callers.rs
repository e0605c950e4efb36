//! How many connections each address has, over all workers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

/// Counts connections by address: touched when one is accepted or ends, never by a request. An IPv6 network of 64 bits
/// counts as one address, since one host may have all of it.
#[derive(Debug)]
pub(crate) struct Callers {
    each_max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Callers {
    /// At most `each_max` connections an address.
    pub fn new(each_max: usize) -> Self {
        Callers { each_max, counts: Mutex::new(HashMap::new()) }
    }

    /// Counts a connection of `address` in; false when it has enough.
    pub fn enter(&self, address: IpAddr) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(|poison| poison.into_inner());
        let count = counts.entry(network(address)).or_insert(0);
        if *count >= self.each_max {
            return false;
        }
        *count += 1;
        true
    }

    /// Counts one out again.
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
    fn each_address_has_its_share_and_gets_it_back() {
        let callers = Callers::new(2);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        assert!(callers.enter(a) && callers.enter(a) && !callers.enter(a));
        assert!(callers.enter(b));
        callers.leave(a);
        assert!(callers.enter(a) && !callers.enter(a));
        for address in [a, a, b] {
            callers.leave(address);
        }
        assert!(callers.counts.lock().unwrap().is_empty(), "nothing is kept of those that left");
    }

    #[test]
    fn a_host_cannot_multiply_itself() {
        let callers = Callers::new(1);
        let enter = |address: &str| callers.enter(address.parse().unwrap());
        assert!(enter("2001:db8::1") && !enter("2001:db8::2") && enter("2001:db8:0:1::1"));
        assert!(enter("192.0.2.1") && !enter("::ffff:192.0.2.1"));
    }
}
