//! Pools of unauthenticated and of authenticated connections.
//!
//! ```text
//!   accepted ──▶ unauthenticated, by address ──valid token: authenticate(NAME)──▶ authenticated, by name
//!                  │ time limit                                              │
//!                  └ beyond the limit the owner with the most connections loses its oldest
//! ```
//!
//! A flood from few addresses therefore displaces its own connections, and a client with another address has time to
//! present a token. A flood from more addresses than slots displaces the oldest connection: a new client has the time
//! that the flood needs to fill all slots again. Authenticated connections have a pool of their own, in which a client
//! that opens endless connections displaces only its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Limits of unauthenticated connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnauthenticatedLimits {
    /// Concurrent unauthenticated connections, at least 1. [`Bounds::connections`](crate::Bounds::connections) limits
    /// the authenticated ones.
    pub connections: usize,
    /// Time limit for presenting a valid token, including the TLS handshake and the request head.
    pub timeout: Duration,
}

impl Default for UnauthenticatedLimits {
    fn default() -> Self {
        UnauthenticatedLimits { connections: 512, timeout: Duration::from_secs(10) }
    }
}

/// The connection of a request: an extension of every request.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    local: SocketAddr,
    peer: SocketAddr,
    membership: Option<Arc<Membership>>,
}

impl ConnectionHandle {
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr, membership: Option<Arc<Membership>>) -> ConnectionHandle {
        ConnectionHandle { local, peer, membership }
    }

    /// The local address of the connection.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Marks the connection as authenticated as `name`. Without effect if the server has no pool of unauthenticated
    /// connections.
    pub fn authenticate(&self, name: &str) {
        if let Some(membership) = &self.membership {
            membership.authenticate(name);
        }
    }
}

/// Both connection pools of a server.
#[derive(Debug)]
pub(crate) struct Pools {
    unauthenticated: Pool<IpAddr>,
    authenticated: Pool<String>,
}

impl Pools {
    pub(crate) fn new(unauthenticated: usize, authenticated: usize) -> Arc<Pools> {
        Arc::new(Pools { unauthenticated: Pool::new(unauthenticated), authenticated: Pool::new(authenticated) })
    }

    /// Adds an unauthenticated connection of `peer`; another connection may be displaced.
    pub(crate) fn add(self: &Arc<Self>, peer: SocketAddr) -> Arc<Membership> {
        let (displacement, address) = (Arc::new(Notify::new()), owner_of(peer.ip()));
        let number = self.unauthenticated.add(address, Arc::clone(&displacement));
        let slot = Mutex::new(Slot::Unauthenticated(address, number));
        Arc::new(Membership { pools: Arc::clone(self), displacement, slot })
    }
}

/// The pool membership of a connection.
#[derive(Debug)]
pub(crate) struct Membership {
    pools: Arc<Pools>,
    displacement: Arc<Notify>,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Unauthenticated(IpAddr, u64),
    Authenticated(String, u64),
    Closed,
}

impl Membership {
    fn authenticate(&self, name: &str) {
        let mut slot = self.lock();
        match &*slot {
            Slot::Authenticated(authenticated, _) if authenticated == name => return,
            Slot::Authenticated(authenticated, number) => self.pools.authenticated.remove(authenticated, *number),
            Slot::Unauthenticated(address, number) => self.pools.unauthenticated.remove(address, *number),
            Slot::Closed => return,
        }
        let number = self.pools.authenticated.add(name.to_owned(), Arc::clone(&self.displacement));
        *slot = Slot::Authenticated(name.to_owned(), number);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        matches!(*self.lock(), Slot::Authenticated(..))
    }

    /// Returns when the connection has been displaced.
    pub(crate) async fn displaced(&self) {
        self.displacement.notified().await;
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&self) {
        let mut slot = self.lock();
        match &*slot {
            Slot::Authenticated(name, number) => self.pools.authenticated.remove(name, *number),
            Slot::Unauthenticated(address, number) => self.pools.unauthenticated.remove(address, *number),
            Slot::Closed => {}
        }
        *slot = Slot::Closed;
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner of an address: the address itself for IPv4, its /64 network for IPv6.
fn owner_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// Connection slots by owner. Each operation costs the logarithm of their number.
#[derive(Debug)]
struct Pool<K> {
    limit: usize,
    entries: Mutex<Entries<K>>,
}

#[derive(Debug)]
struct Entries<K> {
    /// Number of the next connection.
    next: u64,
    count: usize,
    /// Connections by owner and number: the oldest first.
    owners: HashMap<K, BTreeMap<u64, Arc<Notify>>>,
    /// Owners by number of connections, then by age of their oldest: the last owner loses the next connection.
    order: BTreeSet<(usize, Reverse<u64>, K)>,
}

impl<K: Clone + Eq + Hash + Ord> Pool<K> {
    fn new(limit: usize) -> Pool<K> {
        let entries = Entries { next: 0, count: 0, owners: HashMap::new(), order: BTreeSet::new() };
        Pool { limit: limit.max(1), entries: Mutex::new(entries) }
    }

    /// Adds a connection of `owner`, which ends once `displacement` is notified.
    fn add(&self, owner: K, displacement: Arc<Notify>) -> u64 {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.count += 1;
        entries.reorder(owner, |slots| drop(slots.insert(number, displacement)));
        if entries.count > self.limit
            && let Some((_, Reverse(oldest), owner)) = entries.order.last().cloned()
        {
            entries.count -= 1;
            entries.reorder(owner, |slots| {
                if let Some(displacement) = slots.remove(&oldest) {
                    displacement.notify_one();
                }
            });
        }
        number
    }

    /// Removes a connection unless it was displaced before.
    fn remove(&self, owner: &K, number: u64) {
        let mut entries = self.lock();
        if entries.owners.get(owner).is_some_and(|slots| slots.contains_key(&number)) {
            entries.count -= 1;
            entries.reorder(owner.clone(), |slots| drop(slots.remove(&number)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Ord> Entries<K> {
    /// Changes the connections of an owner and its position in the order.
    fn reorder(&mut self, owner: K, change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>)) {
        let slots = self.owners.entry(owner.clone()).or_default();
        if let Some((oldest, _)) = slots.first_key_value() {
            self.order.remove(&(slots.len(), Reverse(*oldest), owner.clone()));
        }
        change(slots);
        match slots.first_key_value() {
            Some((oldest, _)) => drop(self.order.insert((slots.len(), Reverse(*oldest), owner))),
            None => drop(self.owners.remove(&owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool whose connections are identified by owner and order of arrival.
    struct TestPool {
        pool: Pool<char>,
        entered: Vec<(char, u64, Arc<Notify>)>,
    }

    impl TestPool {
        fn new(limit: usize) -> TestPool {
            TestPool { pool: Pool::new(limit), entered: Vec::new() }
        }

        fn add(&mut self, owners: &str) {
            for owner in owners.chars() {
                let displacement = Arc::new(Notify::new());
                let number = self.pool.add(owner, Arc::clone(&displacement));
                self.entered.push((owner, number, displacement));
            }
        }

        /// The owners of the remaining connections, in the order of arrival.
        fn remaining_owners(&self) -> String {
            let entries = self.pool.lock();
            let is_remaining = |(owner, number, _): &&(char, u64, Arc<Notify>)| {
                entries.owners.get(owner).is_some_and(|slots| slots.contains_key(number))
            };
            self.entered.iter().filter(is_remaining).map(|(owner, ..)| *owner).collect()
        }

        fn check(&self) {
            let entries = self.pool.lock();
            assert_eq!(entries.count, entries.owners.values().map(BTreeMap::len).sum::<usize>());
            assert_eq!(entries.order.len(), entries.owners.len());
            assert!(entries.count <= self.pool.limit);
        }
    }

    #[test]
    fn a_flood_from_one_owner_displaces_that_owners_connections() {
        let mut pool = TestPool::new(4);
        pool.add("abaa");
        assert_eq!(pool.remaining_owners(), "abaa");
        pool.add("aaaaaaaaaa");
        assert_eq!(pool.remaining_owners(), "baaa", "owner b keeps its connection during a's flood");
        pool.add("cd");
        assert_eq!(pool.remaining_owners(), "bacd", "owner a has the most connections, and loses them");
        pool.add("e");
        assert_eq!(pool.remaining_owners(), "acde", "each owner has one connection: the oldest is displaced");
        pool.check();
    }

    #[test]
    fn removing_a_connection_frees_exactly_one_slot() {
        let mut pool = TestPool::new(2);
        pool.add("ab");
        let (owner, number, _) = pool.entered[0].clone();
        pool.pool.remove(&owner, number);
        pool.pool.remove(&owner, number);
        pool.add("c");
        assert_eq!(pool.remaining_owners(), "bc");
        pool.add("d");
        let (owner, number, _) = pool.entered[1].clone();
        pool.pool.remove(&owner, number);
        assert_eq!(pool.remaining_owners(), "cd", "removing b's displaced connection frees no second slot");
        pool.check();
        let all = pool.entered.clone();
        all.iter().for_each(|(owner, number, _)| pool.pool.remove(owner, *number));
        assert!(pool.pool.lock().owners.is_empty() && pool.pool.lock().order.is_empty());
        pool.check();
    }

    #[test]
    fn a_displaced_connection_is_notified() {
        let pools = Pools::new(1, 2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let from = |text: &str| pools.add(text.parse().unwrap());
        let first = from("192.0.2.1:1000");
        let second = from("192.0.2.2:1000");
        runtime.block_on(first.displaced());
        second.authenticate("shop-7");
        assert!(second.is_authenticated() && !first.is_authenticated());
        let third = from("192.0.2.3:1000");
        third.authenticate("shop-8");
        // The unauthenticated slot is free again, and the authenticated pool has its own limit.
        let fourth = from("192.0.2.4:1000");
        fourth.authenticate("shop-8");
        runtime.block_on(third.displaced());
        assert!(second.is_authenticated());
        [first, second, third, fourth].iter().for_each(|membership| membership.remove());
        assert!(pools.authenticated.lock().owners.is_empty() && pools.unauthenticated.lock().owners.is_empty());
    }

    #[test]
    fn all_addresses_of_an_ipv6_64_network_are_one_owner() {
        let of = |text: &str| owner_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
