//! Timer wheel: packets in transit in order of due time.
//!
//! ```text
//!    ready                slots: one list each, unordered              beyond
//!   (heap)     current   +1    +2    +3            + 2^18 - 1          (heap)
//!   [a b c] <--- |      [   ] [d e] [   ]   ...      [f]         <--- [g h]
//!                        ^ bitmap: which slots hold anything
//! ```
//!
//! An entry that is due later than the current slot goes into the list of its slot: constant time, whatever the number
//! of entries. When the earliest entry is needed, its slot becomes the current one and its entries move to `ready`, a
//! small heap with exact (due, sequence) order within the slot. Entries due beyond the horizon wait in a second heap
//! and move into the slots as the wheel turns. Read [`Wheel::push`] and [`Wheel::pop`].

mod bitmap;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Timestamp;

use bitmap::Bitmap;

/// A calendar queue of values of type `T`, released in order of (due, order of arrival).
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The first entry of each slot's list; defined if the slot is occupied.
    slots: Box<[u32]>,
    occupied: Bitmap,
    entries: Vec<Entry<T>>,
    /// Head of the list of unused entries.
    free: u32,
    /// All entries due in the current slot or before it.
    ready: BinaryHeap<Reverse<Key>>,
    /// All entries due a horizon or more after the current slot.
    beyond: BinaryHeap<Reverse<Key>>,
    /// Number of the current slot, counted from time zero.
    current: u64,
    sequence: u64,
    len: usize,
    /// Due time of the earliest entry; undefined if the wheel is empty.
    next_due: Timestamp,
}

/// One entry, a cache line with its value, so that one fetch reads all of it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry<T> {
    due: Timestamp,
    sequence: u64,
    /// In the first entry of a slot's list: the earliest due time in the list. So the next due time is known without
    /// walking the list, and reading it fetches an entry that is about to be released.
    earliest: Timestamp,
    /// The next entry of the same slot, or of the unused ones.
    next: u32,
    value: T,
}

/// Order of the heaps: by due time, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    due: Timestamp,
    sequence: u64,
    entry: u32,
}

/// A slot is 2^12 ns = 4096 ns: at 200,000 packets/s it has about one packet, so `ready` stays tiny.
const SLOT_BITS: u32 = 12;
/// 2^18 slots: a horizon of 1.07 s, more than nearly every one-way delay; 1 MB.
const SLOTS: u64 = 1 << 18;
/// Marks the end of a list.
const NONE: u32 = u32::MAX;

impl<T: Copy> Wheel<T> {
    pub(crate) fn new() -> Self {
        Wheel {
            slots: vec![NONE; SLOTS as usize].into_boxed_slice(),
            occupied: Bitmap::new(),
            entries: Vec::new(),
            free: NONE,
            ready: BinaryHeap::new(),
            beyond: BinaryHeap::new(),
            current: 0,
            sequence: 0,
            len: 0,
            next_due: Timestamp::MAX,
        }
    }

    /// The exact due time of the earliest entry.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        (self.len > 0).then_some(self.next_due)
    }

    /// Adds `value`, to be released at `due`. An entry due before entries already released is released next.
    #[inline]
    pub(crate) fn push(&mut self, now: Timestamp, due: Timestamp, value: T) {
        if self.len == 0 {
            // An empty wheel turns to the present, so that a pause does not use up the horizon.
            self.current = self.current.max(slot_of(now.min(due)));
            self.next_due = due;
        }
        self.next_due = self.next_due.min(due);
        self.len += 1;
        let sequence = self.sequence;
        self.sequence += 1;
        let entry = self.allocate(Entry { due, sequence, earliest: due, next: NONE, value });
        self.place(Key { due, sequence, entry });
    }

    /// Removes the earliest entry if it is due at `now` or before.
    #[inline]
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        if self.len == 0 || self.next_due > now {
            return None;
        }
        if self.ready.is_empty() {
            self.turn_to(slot_of(self.next_due));
        }
        let Reverse(key) = self.ready.pop().expect("the slot of the earliest due holds an entry");
        self.len -= 1;
        let entry = &mut self.entries[key.entry as usize];
        let value = entry.value;
        entry.next = self.free;
        self.free = key.entry;
        self.next_due = self.earliest();
        Some((key.due, value))
    }

    /// Makes `slot` the current one: moves its entries to `ready`, and entries now within the horizon into the slots.
    /// No entry lies between the old current slot and the new one.
    fn turn_to(&mut self, slot: u64) {
        self.current = slot;
        let place = (slot % SLOTS) as usize;
        if self.occupied.clear(place) {
            let mut at = self.slots[place];
            while at != NONE {
                let entry = &self.entries[at as usize];
                self.ready.push(Reverse(Key { due: entry.due, sequence: entry.sequence, entry: at }));
                at = entry.next;
            }
        }
        while let Some(&Reverse(key)) = self.beyond.peek()
            && slot_of(key.due) < slot + SLOTS
        {
            self.beyond.pop();
            self.place(key);
        }
    }

    /// Puts an entry into `ready`, a slot or `beyond`, relative to the current slot.
    #[inline]
    fn place(&mut self, key: Key) {
        let slot = slot_of(key.due);
        if slot <= self.current {
            self.ready.push(Reverse(key));
        } else if slot - self.current < SLOTS {
            let place = (slot % SLOTS) as usize;
            if !self.occupied.set(place) {
                let first = self.slots[place];
                let earliest = self.entries[first as usize].earliest.min(key.due);
                let entry = &mut self.entries[key.entry as usize];
                (entry.next, entry.earliest) = (first, earliest);
            }
            self.slots[place] = key.entry;
        } else {
            self.beyond.push(Reverse(key));
        }
    }

    #[inline]
    fn earliest(&self) -> Timestamp {
        if let Some(Reverse(key)) = self.ready.peek() {
            return key.due;
        }
        let current = (self.current % SLOTS) as usize;
        if let Some(place) = self.occupied.next_after(current) {
            return self.entries[self.slots[place] as usize].earliest;
        }
        self.beyond.peek().map_or(Timestamp::MAX, |Reverse(key)| key.due)
    }

    #[inline]
    fn allocate(&mut self, entry: Entry<T>) -> u32 {
        let unused = self.free;
        if unused == NONE {
            self.entries.push(entry);
            return u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 packets are in transit");
        }
        let place = &mut self.entries[unused as usize];
        self.free = place.next;
        *place = entry;
        unused
    }
}

#[inline]
fn slot_of(at: Timestamp) -> u64 {
    at.as_nanos() >> SLOT_BITS
}

#[cfg(test)]
mod tests;
