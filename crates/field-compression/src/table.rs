//! The dynamic table of HPACK and QPACK (RFC 7541, section 4; RFC 9204, section 3.2): the newest entries, up to a
//! size. What an entry stores is the user's choice; its size is that of the specification.

use std::collections::VecDeque;

/// What a table holds.
pub trait Entry {
    /// Size by the specification (RFC 7541, section 4.1): bytes of name and value, and [`ENTRY_OVERHEAD`].
    fn size(&self) -> usize;

    /// Bytes of memory that the entry uses.
    fn memory(&self) -> usize;
}

/// Size of an entry beyond its name and value (RFC 7541, section 4.1).
pub const ENTRY_OVERHEAD: usize = 32;

/// The dynamic table of one direction. The capacity bounds the number of entries, since each counts at least
/// [`ENTRY_OVERHEAD`].
#[derive(Clone, Debug)]
pub struct Table<E> {
    /// The newest entry is the last.
    entries: VecDeque<E>,
    size: usize,
    capacity: usize,
    inserted: u64,
    memory: usize,
}

impl<E: Entry> Table<E> {
    /// An empty table of this capacity.
    pub fn new(capacity: usize) -> Self {
        Table { entries: VecDeque::new(), size: 0, capacity, inserted: 0, memory: 0 }
    }

    /// Sum of the entries' sizes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Sum of the entries' bytes of memory.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Number of insertions so far, entries that were evicted included.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The `place`-th newest entry, from 0.
    pub fn newest(&self, place: u64) -> Option<&E> {
        let place = usize::try_from(place).ok()?.checked_add(1)?;
        self.entries.len().checked_sub(place).and_then(|at| self.entries.get(at))
    }

    /// The entry of the insertion with this number, from 0.
    pub fn numbered(&self, number: u64) -> Option<&E> {
        self.newest(self.inserted.checked_sub(number.checked_add(1)?)?)
    }

    /// Sets the capacity, and evicts the oldest entries that no longer fit.
    pub fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.evict(0);
    }

    /// Inserts an entry after evicting the oldest ones until it fits. One larger than the table empties it, and is not
    /// kept (RFC 7541, section 4.4).
    pub fn insert(&mut self, entry: E) {
        self.inserted += 1;
        let size = entry.size();
        self.evict(size);
        if size <= self.capacity {
            self.size += size;
            self.memory += entry.memory();
            self.entries.push_back(entry);
        }
    }

    /// Removes all entries, and sets the capacity; insertions keep their numbers.
    pub fn clear(&mut self, capacity: usize) {
        *self = Table { inserted: self.inserted, ..Table::new(capacity) };
    }

    /// Evicts the oldest entries until `size` more bytes fit.
    fn evict(&mut self, size: usize) {
        while self.size.saturating_add(size) > self.capacity {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= oldest.size();
            self.memory -= oldest.memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An entry whose name and value have this many bytes.
    #[derive(Debug, PartialEq)]
    struct Bytes(usize);

    impl Entry for Bytes {
        fn size(&self) -> usize {
            self.0 + ENTRY_OVERHEAD
        }

        fn memory(&self) -> usize {
            self.0 + 1
        }
    }

    #[test]
    fn entries_that_just_fit_stay() {
        let mut table = Table::new(100);
        table.insert(Bytes(18));
        table.insert(Bytes(18));
        assert_eq!((table.size(), table.newest(1).is_some()), (100, true));
        table.insert(Bytes(19));
        assert_eq!((table.size(), table.newest(0), table.newest(1)), (51, Some(&Bytes(19)), None));
        assert_eq!((table.numbered(2), table.numbered(1), table.numbered(3)), (Some(&Bytes(19)), None, None));
        assert_eq!((table.newest(u64::MAX), table.numbered(u64::MAX)), (None, None));
        table.insert(Bytes(69));
        assert_eq!((table.size(), table.memory(), table.inserted()), (0, 0, 4), "larger than the table");
    }

    proptest! {
        #[test]
        fn table_holds_the_newest_entries_within_its_capacity(
            steps in prop::collection::vec((0usize..200, prop::option::weighted(0.1, 0usize..1000)), 1..100),
        ) {
            let (mut table, mut capacity, mut inserted) = (Table::new(500), 500, Vec::new());
            for (bytes, resize) in steps {
                if let Some(new) = resize {
                    capacity = new;
                    table.resize(new);
                }
                table.insert(Bytes(bytes));
                inserted.push(bytes);
                prop_assert_eq!(table.newest(0).is_some(), bytes + ENTRY_OVERHEAD <= capacity);
                let kept: Vec<usize> = (0..).map_while(|place| table.newest(place).map(|entry| entry.0)).collect();
                prop_assert!(kept.iter().eq(inserted.iter().rev().take(kept.len())));
                let size: usize = kept.iter().map(|bytes| bytes + ENTRY_OVERHEAD).sum();
                prop_assert!(size == table.size() && size <= capacity);
                prop_assert_eq!(table.memory(), kept.iter().map(|bytes| bytes + 1).sum::<usize>());
            }
        }
    }
}
