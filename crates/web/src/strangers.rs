//! Connections that have not shown yet that they may come, apart from those that have.
//!
//! ```text
//!   accepted ──▶ strangers, by address ──good token: greet(NAME)──▶ known, by name
//!                  │ short-lived                                      │
//!                  └ one too many: out goes the oldest of whoever has the most; never the accept loop
//! ```
//!
//! A flood from few addresses so puts out its own connections, and one who comes from another address finds a place and time to
//! show a token. A flood from more addresses than there are places puts out the oldest, whoever it is: the newcomer has as long
//! as it takes to fill all places anew. Those who have shown a token are in a pool of their own, which no stranger enters, and in
//! which a token's owner who opens connections without end puts out that owner's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// What strangers get, where they are told from those who are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strangers {
    /// Their connections at once, at least 1. Those of the known are bounded by [`Bounds::connections`](crate::Bounds::connections).
    pub connections: usize,
    /// How long one may take until a good token was shown, all told: the handshake of TLS, the head of a request.
    pub life: Duration,
}

impl Default for Strangers {
    fn default() -> Self {
        Strangers { connections: 512, life: Duration::from_secs(10) }
    }
}

/// The connection that a request came on: an extension of every request.
#[derive(Clone, Debug)]
pub struct Arrived {
    local: SocketAddr,
    peer: SocketAddr,
    standing: Option<Arc<Standing>>,
}

impl Arrived {
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr, standing: Option<Arc<Standing>>) -> Arrived {
        Arrived { local, peer, standing }
    }

    /// The address of this host that was connected to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Who connected.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whoever is at the other end has shown that they are `name`: the connection is no stranger's from now on. Nothing where the
    /// door does not tell strangers from others.
    pub fn greet(&self, name: &str) {
        if let Some(standing) = &self.standing {
            standing.greet(name);
        }
    }
}

/// Both pools of a door.
#[derive(Debug)]
pub(crate) struct Pools {
    strangers: Pool<IpAddr>,
    known: Pool<String>,
}

impl Pools {
    pub(crate) fn new(strangers: usize, known: usize) -> Arc<Pools> {
        Arc::new(Pools { strangers: Pool::new(strangers), known: Pool::new(known) })
    }

    /// A connection of a stranger at `peer`; somebody may be put out for it.
    pub(crate) fn enter(self: &Arc<Self>, peer: SocketAddr) -> Arc<Standing> {
        let (out, address) = (Arc::new(Notify::new()), whose(peer.ip()));
        let number = self.strangers.enter(address, Arc::clone(&out));
        let place = Mutex::new(Place::Stranger(address, number));
        Arc::new(Standing { pools: Arc::clone(self), out, place })
    }
}

/// Where a connection stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pools: Arc<Pools>,
    out: Arc<Notify>,
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    Stranger(IpAddr, u64),
    Known(String, u64),
    Left,
}

impl Standing {
    fn greet(&self, name: &str) {
        let mut place = self.lock();
        match &*place {
            Place::Known(known, _) if known == name => return,
            Place::Known(known, number) => self.pools.known.leave(known, *number),
            Place::Stranger(address, number) => self.pools.strangers.leave(address, *number),
            Place::Left => return,
        }
        let number = self.pools.known.enter(name.to_owned(), Arc::clone(&self.out));
        *place = Place::Known(name.to_owned(), number);
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(*self.lock(), Place::Known(..))
    }

    /// Returns once another has got this one's place.
    pub(crate) async fn put_out(&self) {
        self.out.notified().await;
    }

    /// The connection has ended.
    pub(crate) fn leave(&self) {
        let mut place = self.lock();
        match &*place {
            Place::Known(name, number) => self.pools.known.leave(name, *number),
            Place::Stranger(address, number) => self.pools.strangers.leave(address, *number),
            Place::Left => {}
        }
        *place = Place::Left;
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose an address is, as far as can be told: one of version 6 can be any of its network of 64 bits.
fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// Places by owner. Each step costs the logarithm of their number.
#[derive(Debug)]
struct Pool<K> {
    most: usize,
    held: Mutex<Held<K>>,
}

#[derive(Debug)]
struct Held<K> {
    /// Number of the next to come.
    next: u64,
    taken: usize,
    /// By owner, and by number: the oldest first.
    owners: HashMap<K, BTreeMap<u64, Arc<Notify>>>,
    /// Owners by how many they have, then by how old their oldest is: the last one is the next to lose one.
    order: BTreeSet<(usize, Reverse<u64>, K)>,
}

impl<K: Clone + Eq + Hash + Ord> Pool<K> {
    fn new(most: usize) -> Pool<K> {
        let held = Held { next: 0, taken: 0, owners: HashMap::new(), order: BTreeSet::new() };
        Pool { most: most.max(1), held: Mutex::new(held) }
    }

    /// Takes a place for `owner`, whose connection ends once `out` is notified.
    fn enter(&self, owner: K, out: Arc<Notify>) -> u64 {
        let mut held = self.lock();
        let number = held.next;
        held.next += 1;
        held.taken += 1;
        held.reorder(owner, |places| drop(places.insert(number, out)));
        if held.taken > self.most
            && let Some((_, Reverse(oldest), owner)) = held.order.last().cloned()
        {
            held.taken -= 1;
            held.reorder(owner, |places| {
                if let Some(out) = places.remove(&oldest) {
                    out.notify_one();
                }
            });
        }
        number
    }

    /// Gives the place back, if it was not taken away before.
    fn leave(&self, owner: &K, number: u64) {
        let mut held = self.lock();
        if held.owners.get(owner).is_some_and(|places| places.contains_key(&number)) {
            held.taken -= 1;
            held.reorder(owner.clone(), |places| drop(places.remove(&number)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Ord> Held<K> {
    /// Changes what an owner has, and the owner's place in the order with it.
    fn reorder(&mut self, owner: K, change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>)) {
        let places = self.owners.entry(owner.clone()).or_default();
        if let Some((oldest, _)) = places.first_key_value() {
            self.order.remove(&(places.len(), Reverse(*oldest), owner.clone()));
        }
        change(places);
        match places.first_key_value() {
            Some((oldest, _)) => drop(self.order.insert((places.len(), Reverse(*oldest), owner))),
            None => drop(self.owners.remove(&owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool in which each place is known by who has it and when it came.
    struct Seats {
        pool: Pool<char>,
        came: Vec<(char, u64, Arc<Notify>)>,
    }

    impl Seats {
        fn new(most: usize) -> Seats {
            Seats { pool: Pool::new(most), came: Vec::new() }
        }

        fn enter(&mut self, owners: &str) {
            for owner in owners.chars() {
                let out = Arc::new(Notify::new());
                let number = self.pool.enter(owner, Arc::clone(&out));
                self.came.push((owner, number, out));
            }
        }

        /// Who is still there, in the order of coming.
        fn there(&self) -> String {
            let held = self.pool.lock();
            let kept = |(owner, number, _): &&(char, u64, Arc<Notify>)| {
                held.owners.get(owner).is_some_and(|places| places.contains_key(number))
            };
            self.came.iter().filter(kept).map(|(owner, ..)| *owner).collect()
        }

        fn check(&self) {
            let held = self.pool.lock();
            assert_eq!(held.taken, held.owners.values().map(BTreeMap::len).sum::<usize>());
            assert_eq!(held.order.len(), held.owners.len());
            assert!(held.taken <= self.pool.most);
        }
    }

    #[test]
    fn a_flood_of_one_puts_out_its_own() {
        let mut seats = Seats::new(4);
        seats.enter("abaa");
        assert_eq!(seats.there(), "abaa");
        seats.enter("aaaaaaaaaa");
        assert_eq!(seats.there(), "baaa", "b stays whatever a does");
        seats.enter("cd");
        assert_eq!(seats.there(), "bacd", "a has the most");
        seats.enter("e");
        assert_eq!(seats.there(), "acde", "all have one: the oldest goes");
        seats.check();
    }

    #[test]
    fn who_leaves_makes_room_and_leaves_once() {
        let mut seats = Seats::new(2);
        seats.enter("ab");
        let (owner, number, _) = seats.came[0].clone();
        seats.pool.leave(&owner, number);
        seats.pool.leave(&owner, number);
        seats.enter("c");
        assert_eq!(seats.there(), "bc");
        seats.enter("d");
        let (owner, number, _) = seats.came[1].clone();
        seats.pool.leave(&owner, number);
        assert_eq!(seats.there(), "cd", "b was put out; its leaving takes nobody's place");
        seats.check();
        let all = seats.came.clone();
        all.iter().for_each(|(owner, number, _)| seats.pool.leave(owner, *number));
        assert!(seats.pool.lock().owners.is_empty() && seats.pool.lock().order.is_empty());
        seats.check();
    }

    #[test]
    fn whoever_is_put_out_hears_of_it() {
        let pools = Pools::new(1, 2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let from = |text: &str| pools.enter(text.parse().unwrap());
        let first = from("192.0.2.1:1000");
        let second = from("192.0.2.2:1000");
        runtime.block_on(first.put_out());
        second.greet("shop-7");
        assert!(second.is_known() && !first.is_known());
        let third = from("192.0.2.3:1000");
        third.greet("shop-8");
        // The place of a stranger is free again, and the pool of the known has its own bound.
        let fourth = from("192.0.2.4:1000");
        fourth.greet("shop-8");
        runtime.block_on(third.put_out());
        assert!(second.is_known());
        [first, second, third, fourth].iter().for_each(|standing| standing.leave());
        assert!(pools.known.lock().owners.is_empty() && pools.strangers.lock().owners.is_empty());
    }

    #[test]
    fn a_network_of_64_bits_is_one_owner() {
        let of = |text: &str| whose(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
