//! Entries of the dynamic tables of HPACK and QPACK.
//!
//! Of a field that no record uses only the lengths are stored. A table of which insertions were not captured keeps the
//! entries since then: they are the newest, so that their places are known, and a reference beyond them is unknown.

use field_compression::table::{self, ENTRY_OVERHEAD};

use super::Name;

/// The dynamic table of one direction.
pub(super) type Table = table::Table<Entry>;

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
}

impl table::Entry for Entry {
    fn size(&self) -> usize {
        self.name_length as usize + self.value_length as usize + ENTRY_OVERHEAD
    }

    fn memory(&self) -> usize {
        size_of::<Entry>() + self.value.len()
    }
}

/// The capacity to keep of one that the encoder sets. Of a larger table older entries are unknown.
pub(super) fn kept_capacity(capacity: u64) -> usize {
    usize::try_from(capacity).unwrap_or(usize::MAX).min(CAPACITY_MAX)
}

/// Largest table that is kept: browsers and proxies permit 4 to 64 KB.
pub(crate) const CAPACITY_MAX: usize = 64 * 1024;
