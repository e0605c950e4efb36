//! The dynamic table of HPACK and QPACK: the newest fields, up to a size that the encoder sets.
//!
//! Of a field that no record uses only the lengths are stored. A table of which insertions were not captured keeps the
//! entries since then: they are the newest, so that their places are known, and a reference beyond them is unknown.

use std::collections::VecDeque;

use super::Name;

/// The dynamic table of one direction.
#[derive(Debug)]
pub(crate) struct Table {
    /// The newest entry is the last.
    entries: VecDeque<Entry>,
    /// Sum of the entries' sizes by the standard.
    size: usize,
    /// Largest size, as the encoder has set it.
    capacity: usize,
    /// Number of insertions, entries that were evicted included.
    inserted: u64,
    /// Memory used by values.
    memory: usize,
}

/// A field of the table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) name_length: u32,
    /// Empty if no record uses the field.
    pub(super) value: Box<[u8]>,
    pub(super) value_length: u32,
}

impl Entry {
    /// An entry of which nothing is known.
    pub(super) fn unknown() -> Entry {
        Entry { name: Name::Unknown, name_length: 0, value: Box::default(), value_length: 0 }
    }

    /// RFC 7541, section 4.1.
    fn size(&self) -> usize {
        self.name_length as usize + self.value_length as usize + 32
    }

    fn memory(&self) -> usize {
        size_of::<Entry>() + self.value.len()
    }
}

impl Table {
    /// An empty table of this capacity.
    pub(super) fn new(capacity: usize) -> Table {
        Table { entries: VecDeque::new(), size: 0, capacity: capacity.min(CAPACITY_MAX), inserted: 0, memory: 0 }
    }

    /// Memory in use.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Size by the standard.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Number of insertions so far.
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The `place`-th newest entry, from 0.
    pub(super) fn newest(&self, place: u64) -> Option<&Entry> {
        let place = usize::try_from(place).ok()?;
        self.entries.len().checked_sub(place + 1).and_then(|at| self.entries.get(at))
    }

    /// The entry of the insertion with this number, from 0.
    pub(super) fn numbered(&self, number: u64) -> Option<&Entry> {
        self.newest(self.inserted.checked_sub(number.checked_add(1)?)?)
    }

    /// Sets the capacity. More than [`CAPACITY_MAX`] is not kept: older entries are unknown then.
    pub(super) fn resize(&mut self, capacity: u64) {
        self.capacity = usize::try_from(capacity).unwrap_or(usize::MAX).min(CAPACITY_MAX);
        self.evict(0);
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.inserted += 1;
        let size = entry.size();
        self.evict(size);
        // RFC 7541, section 4.4: an entry larger than the table empties it.
        if size <= self.capacity {
            self.size += size;
            self.memory += entry.memory();
            self.entries.push_back(entry);
        }
    }

    /// Forgets all entries: insertions were not captured.
    pub(super) fn forget(&mut self) {
        *self = Table { inserted: self.inserted, ..Table::new(CAPACITY_MAX) };
    }

    /// Evicts the oldest entries until `size` more bytes fit.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.capacity {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= oldest.size();
            self.memory -= oldest.memory();
        }
    }
}

/// Largest table that is kept: browsers and proxies permit 4 to 64 KB.
pub(crate) const CAPACITY_MAX: usize = 64 * 1024;
