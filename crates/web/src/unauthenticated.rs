//! Pools of unauthenticated and of authenticated connections.
//!
//! ```text
//!   accepted ──▶ unauthenticated, by address ──valid token: greet(NAME)──▶ authenticated, by name
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
pub struct Strangers {
    /// Concurrent unauthenticated connections, at least 1. [`Bounds::connections`](crate::Bounds::connections) limits
    /// the authenticated ones.
    pub connections: usize,
    /// Time limit for presenting a valid token, including the TLS handshake and the request head.
    pub life: Duration,
}

impl Default for Strangers {
    fn default() -> Self {
        Strangers { connections: 512, life: Duration::from_secs(10) }
    }
}

/// The connection of a request: an extension of every request.
#[derive(Clone, Debug)]
pub struct Arrived {
    local: SocketAddr,
    peer: SocketAddr,
    membership: Option<Arc<Membership>>,
}

impl Arrived {
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr, membership: Option<Arc<Membership>>) -> Arrived {
        Arrived { local, peer, membership }
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
    pub fn greet(&self, name: &str) {
        if let Some(membership) = &self.membership {
            membership.greet(name);
        }
    }
}

/// Both connection pools of a server.
#[derive(Debug)]
pub(crate) struct Pools {
    strangers: Pool<IpAddr>,
    known: Pool<String>,
}

impl Pools {
    pub(crate) fn new(strangers: usize, known: usize) -> Arc<Pools> {
        Arc::new(Pools { strangers: Pool::new(strangers), known: Pool::new(known) })
    }

    /// Adds an unauthenticated connection of `peer`; another connection may be displaced.
    pub(crate) fn enter(self: &Arc<Self>, peer: SocketAddr) -> Arc<Membership> {
        let (out, address) = (Arc::new(Notify::new()), owner_of(peer.ip()));
        let number = self.strangers.enter(address, Arc::clone(&out));
        let slot = Mutex::new(Slot::Stranger(address, number));
        Arc::new(Membership { pools: Arc::clone(self), out, slot })
    }
}

/// The pool membership of a connection.
#[derive(Debug)]
pub(crate) struct Membership {
    pools: Arc<Pools>,
    out: Arc<Notify>,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Stranger(IpAddr, u64),
    Known(String, u64),
    Left,
}

impl Membership {
    fn greet(&self, name: &str) {
        let mut slot = self.lock();
        match &*slot {
            Slot::Known(known, _) if known == name => return,
            Slot::Known(known, number) => self.pools.known.leave(known, *number),
            Slot::Stranger(address, number) => self.pools.strangers.leave(address, *number),
            Slot::Left => return,
        }
        let number = self.pools.known.enter(name.to_owned(), Arc::clone(&self.out));
        *slot = Slot::Known(name.to_owned(), number);
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(*self.lock(), Slot::Known(..))
    }

    /// Returns when the connection has been displaced.
    pub(crate) async fn displaced(&self) {
        self.out.notified().await;
    }

    /// Removes a closed connection.
    pub(crate) fn leave(&self) {
        let mut slot = self.lock();
        match &*slot {
            Slot::Known(name, number) => self.pools.known.leave(name, *number),
            Slot::Stranger(address, number) => self.pools.strangers.leave(address, *number),
            Slot::Left => {}
        }
        *slot = Slot::Left;
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

    /// Adds a connection of `owner`, which ends once `out` is notified.
    fn enter(&self, owner: K, out: Arc<Notify>) -> u64 {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.count += 1;
        entries.reorder(owner, |slots| drop(slots.insert(number, out)));
        if entries.count > self.limit
            && let Some((_, Reverse(oldest), owner)) = entries.order.last().cloned()
        {
            entries.count -= 1;
            entries.reorder(owner, |slots| {
                if let Some(out) = slots.remove(&oldest) {
                    out.notify_one();
                }
            });
        }
        number
    }

    /// Removes a connection unless it was displaced before.
    fn leave(&self, owner: &K, number: u64) {
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
        came: Vec<(char, u64, Arc<Notify>)>,
    }

    impl TestPool {
        fn new(limit: usize) -> TestPool {
            TestPool { pool: Pool::new(limit), came: Vec::new() }
        }

        fn enter(&mut self, owners: &str) {
            for owner in owners.chars() {
                let out = Arc::new(Notify::new());
                let number = self.pool.enter(owner, Arc::clone(&out));
                self.came.push((owner, number, out));
            }
        }

        /// The owners of the remaining connections, in the order of arrival.
        fn there(&self) -> String {
            let entries = self.pool.lock();
            let kept = |(owner, number, _): &&(char, u64, Arc<Notify>)| {
                entries.owners.get(owner).is_some_and(|slots| slots.contains_key(number))
            };
            self.came.iter().filter(kept).map(|(owner, ..)| *owner).collect()
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
        pool.enter("abaa");
        assert_eq!(pool.there(), "abaa");
        pool.enter("aaaaaaaaaa");
        assert_eq!(pool.there(), "baaa", "b stays whatever a does");
        pool.enter("cd");
        assert_eq!(pool.there(), "bacd", "a has the most");
        pool.enter("e");
        assert_eq!(pool.there(), "acde", "all have one: the oldest goes");
        pool.check();
    }

    #[test]
    fn leaving_frees_exactly_one_slot() {
        let mut pool = TestPool::new(2);
        pool.enter("ab");
        let (owner, number, _) = pool.came[0].clone();
        pool.pool.leave(&owner, number);
        pool.pool.leave(&owner, number);
        pool.enter("c");
        assert_eq!(pool.there(), "bc");
        pool.enter("d");
        let (owner, number, _) = pool.came[1].clone();
        pool.pool.leave(&owner, number);
        assert_eq!(pool.there(), "cd", "b was put out; its leaving takes nobody's place");
        pool.check();
        let all = pool.came.clone();
        all.iter().for_each(|(owner, number, _)| pool.pool.leave(owner, *number));
        assert!(pool.pool.lock().owners.is_empty() && pool.pool.lock().order.is_empty());
        pool.check();
    }

    #[test]
    fn a_displaced_connection_is_notified() {
        let pools = Pools::new(1, 2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let from = |text: &str| pools.enter(text.parse().unwrap());
        let first = from("192.0.2.1:1000");
        let second = from("192.0.2.2:1000");
        runtime.block_on(first.displaced());
        second.greet("shop-7");
        assert!(second.is_known() && !first.is_known());
        let third = from("192.0.2.3:1000");
        third.greet("shop-8");
        // The unauthenticated slot is free again, and the authenticated pool has its own limit.
        let fourth = from("192.0.2.4:1000");
        fourth.greet("shop-8");
        runtime.block_on(third.displaced());
        assert!(second.is_known());
        [first, second, third, fourth].iter().for_each(|membership| membership.leave());
        assert!(pools.known.lock().owners.is_empty() && pools.strangers.lock().owners.is_empty());
    }

    #[test]
    fn a_network_of_64_bits_is_one_owner() {
        let of = |text: &str| owner_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
