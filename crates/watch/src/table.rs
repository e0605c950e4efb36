//! The table of connections: found by key in constant time, aged by a timer wheel, bounded in number.
//!
//! Flows are stored in a slab of chunks, so that growing never moves them; a flat hash table has their hashes and
//! indices. Each flow is on exactly one list: that of the wheel's second in which it is checked next, or that of the
//! closed ones. A packet changes no list; a flow whose second has come is rescheduled according to its last packet.

use hashbrown::HashTable;

use crate::key::Key;

/// Index of a flow in the slab.
pub(crate) type Index = u32;

/// Flows by key. `F` is the state of each.
pub(crate) struct Table<F> {
    slots: HashTable<Slot>,
    chunks: Vec<Vec<Entry<F>>>,
    free: Vec<Index>,
    /// Number of leading chunks whose memory was freed.
    shrunk: usize,
    /// First flow on each list: the wheel's seconds, then the two ends of the list of closed ones.
    heads: Vec<Index>,
    closed_tail: Index,
    /// The wheel's current second.
    second: u64,
    seed: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    index: Index,
}

struct Entry<F> {
    key: Key,
    hash: u32,
    previous: Index,
    next: Index,
    list: u32,
    flow: F,
}

impl<F> Table<F> {
    pub(crate) fn new(seed: u64) -> Table<F> {
        Table {
            slots: HashTable::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            shrunk: 0,
            heads: vec![NONE; LISTS],
            closed_tail: NONE,
            second: 0,
            seed,
        }
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u32 {
        key.hash(self.seed)
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key, hash: u32) -> Option<Index> {
        let same = |slot: &Slot| slot.hash == hash && self.entry(slot.index).key == *key;
        self.slots.find(spread(hash), same).map(|slot| slot.index)
    }

    /// Adds a flow that is checked in `second`. The key must not exist already.
    pub(crate) fn insert(&mut self, key: Key, hash: u32, second: u64, flow: F) -> Index {
        let entry = Entry { key, hash, previous: NONE, next: NONE, list: 0, flow };
        let index = match self.free.pop() {
            Some(index) => {
                *self.entry_mut(index) = entry;
                index
            }
            None => {
                if self.chunks.len() == self.shrunk || self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
                    self.chunks.push(Vec::with_capacity(CHUNK));
                }
                let chunks = self.chunks.len();
                let chunk = self.chunks.last_mut().expect("one was pushed if there was none");
                chunk.push(entry);
                ((chunks - 1) * CHUNK + chunk.len() - 1) as Index
            }
        };
        self.slots.insert_unique(spread(hash), Slot { hash, index }, |slot| spread(slot.hash));
        self.link(index, self.list_of(second));
        index
    }

    /// Removes a flow. Its memory stays, to be read or emptied, until another is inserted.
    pub(crate) fn remove(&mut self, index: Index) -> Key {
        self.unlink(index);
        let (key, hash) = (self.entry(index).key, self.entry(index).hash);
        if let Ok(slot) = self.slots.find_entry(spread(hash), |slot| slot.index == index) {
            slot.remove();
        }
        self.free.push(index);
        key
    }

    #[inline]
    pub(crate) fn flow(&mut self, index: Index) -> &mut F {
        &mut self.entry_mut(index).flow
    }

    pub(crate) fn key(&self, index: Index) -> Key {
        self.entry(index).key
    }

    /// Moves a flow to the end of the closed ones.
    pub(crate) fn close(&mut self, index: Index) {
        self.unlink(index);
        let tail = std::mem::replace(&mut self.closed_tail, index);
        let entry = self.entry_mut(index);
        (entry.previous, entry.next, entry.list) = (tail, NONE, CLOSED as u32);
        if tail == NONE {
            self.heads[CLOSED] = index;
        } else {
            self.entry_mut(tail).next = index;
        }
    }

    /// Schedules the check of a flow in `second`.
    pub(crate) fn schedule(&mut self, index: Index, second: u64) {
        self.unlink(index);
        self.link(index, self.list_of(second));
    }

    /// The flow that was closed first.
    pub(crate) fn first_closed(&self) -> Option<Index> {
        Some(self.heads[CLOSED]).filter(|&index| index != NONE)
    }

    /// Turns the wheel to `second` and returns the flows to be checked in `due`. Each must be rescheduled, closed or
    /// removed.
    pub(crate) fn turn(&mut self, second: u64, due: &mut Vec<Index>) {
        // One full turn visits every list, however far the clock has jumped.
        let steps = second.saturating_sub(self.second).min(WHEEL as u64);
        for step in 0..steps {
            let mut at = self.heads[((second - step) % WHEEL as u64) as usize];
            while at != NONE {
                due.push(at);
                at = self.entry(at).next;
            }
        }
        self.second = self.second.max(second);
    }

    /// Up to `count` flows with the earliest checks: the longest silent are among them.
    pub(crate) fn soonest(&self, count: usize, into: &mut Vec<Index>) {
        for step in 1..=WHEEL as u64 {
            let mut at = self.heads[((self.second + step) % WHEEL as u64) as usize];
            while at != NONE && into.len() < count {
                into.push(at);
                at = self.entry(at).next;
            }
            if into.len() >= count {
                return;
            }
        }
    }

    /// All flows, in the order of the slab.
    pub(crate) fn indices(&self) -> Vec<Index> {
        let mut indices: Vec<Index> = self.slots.iter().map(|slot| slot.index).collect();
        indices.sort_unstable();
        indices
    }

    /// Frees the memory of all chunks before the one that contains `first`, or of all, if no flow is left there.
    pub(crate) fn shrink(&mut self, first: Option<Index>) {
        let keep = first.map_or(self.chunks.len(), |first| first as usize / CHUNK);
        for chunk in &mut self.chunks[self.shrunk.min(keep)..keep] {
            *chunk = Vec::new();
        }
        self.shrunk = self.shrunk.max(keep);
        self.free.clear();
    }

    /// The list of flows to be checked in `second`: at least the next, at most one turn ahead.
    fn list_of(&self, second: u64) -> usize {
        let second = second.clamp(self.second + 1, self.second + WHEEL as u64 - 1);
        (second % WHEEL as u64) as usize
    }

    fn link(&mut self, index: Index, list: usize) {
        let head = std::mem::replace(&mut self.heads[list], index);
        let entry = self.entry_mut(index);
        (entry.previous, entry.next, entry.list) = (NONE, head, list as u32);
        if head != NONE {
            self.entry_mut(head).previous = index;
        }
    }

    fn unlink(&mut self, index: Index) {
        let (previous, next, list) = {
            let entry = self.entry(index);
            (entry.previous, entry.next, entry.list as usize)
        };
        match previous {
            NONE => self.heads[list] = next,
            previous => self.entry_mut(previous).next = next,
        }
        match next {
            NONE if list == CLOSED => self.closed_tail = previous,
            NONE => {}
            next => self.entry_mut(next).previous = previous,
        }
    }

    #[inline]
    fn entry(&self, index: Index) -> &Entry<F> {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    fn entry_mut(&mut self, index: Index) -> &mut Entry<F> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

/// The table uses the top and the bottom bits; spreads 32 bits over both.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const NONE: Index = Index::MAX;
/// Seconds in a turn of the wheel. Longer timeouts are checked once per turn.
const WHEEL: usize = 1024;
/// The list of closed flows, after those of the wheel.
const CLOSED: usize = WHEEL;
const LISTS: usize = WHEEL + 1;
/// Flows in a chunk of the slab.
const CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ip::Addresses;

    fn key(number: u32) -> Key {
        Key::new(Addresses::V4(number.to_be_bytes(), [0; 4]), 1, 80).0
    }

    fn add(table: &mut Table<u32>, number: u32, second: u64) -> Index {
        let hash = table.hash(&key(number));
        table.insert(key(number), hash, second, number)
    }

    #[test]
    fn inserted_flow_is_found_until_its_removal() {
        let mut table = Table::new(1);
        let indices: Vec<Index> = (1..5000).map(|number| add(&mut table, number, 5)).collect();
        for (&index, number) in indices.iter().zip(1u32..) {
            assert_eq!(table.find(&key(number), table.hash(&key(number))), Some(index));
        }
        assert_eq!((table.remove(indices[7]), *table.flow(indices[7])), (key(8), 8));
        assert_eq!(table.find(&key(8), table.hash(&key(8))), None);
        assert_eq!(add(&mut table, 9000, 5), indices[7], "the slot is reused");
        assert_eq!(table.len(), 4999);
    }

    #[test]
    fn wheel_returns_each_flow_in_its_second_after_any_jump() {
        let mut table = Table::new(1);
        let (near, far) = (add(&mut table, 1, 3), add(&mut table, 2, 900));
        let mut due = Vec::new();
        table.turn(2, &mut due);
        assert!(due.is_empty());
        table.turn(3, &mut due);
        assert_eq!(due, [near]);
        table.schedule(near, 5);
        due.clear();
        table.turn(1_000_000_000, &mut due);
        due.sort_unstable();
        assert_eq!(due, [near, far]);
    }

    #[test]
    fn closed_flows_are_removed_in_the_order_of_closing() {
        let mut table = Table::new(1);
        let [a, b, c] = [1, 2, 3].map(|number| add(&mut table, number, 9));
        table.close(b);
        table.close(a);
        table.close(c);
        assert_eq!(table.first_closed(), Some(b));
        table.remove(a);
        table.remove(b);
        assert_eq!(table.first_closed(), Some(c));
        table.remove(c);
        assert_eq!(table.first_closed(), None);
        let mut due = Vec::new();
        table.turn(100, &mut due);
        assert!(due.is_empty());
    }
}
