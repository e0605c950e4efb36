//! The stored responses; the least recently used is evicted when the memory limit is reached.
//!
//! ```text
//!   index: key ──▶ entries of its variants           entries: [ response, key, newer, older ] ..   a doubly linked list
//!                                                     newest ◀──▶ .. ◀──▶ oldest                through a vector
//! ```
//!
//! Keys are compared completely: the hash, with a random key, only locates candidates.

use hashbrown::HashMap;
use std::hash::RandomState;

use super::key::Key;
use super::stored::Stored;

/// Stored responses within a memory limit.
#[derive(Debug)]
pub(super) struct Store {
    index: HashMap<Key, Vec<u32>, RandomState>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Bytes of responses, keys and variant lists; the tables are added on request.
    content_bytes: usize,
    body_bytes: usize,
    memory_bytes: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: the entry is in the list of free entries.
    content: Option<(Key, Stored)>,
    newer: u32,
    older: u32,
}

/// Memory and number of the stored responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Stored responses.
    pub(crate) responses: u64,
    /// Bytes of their bodies.
    pub(crate) body_bytes: u64,
    /// Bytes in all: bodies, fields, keys, tables.
    pub(crate) memory_bytes: u64,
    /// Limit of `memory_bytes`.
    pub(crate) memory_bytes_max: u64,
    /// Responses evicted to free memory.
    pub(crate) evictions: u64,
    /// Bytes of all bodies in memory: stored, arriving, or evicted and still being sent.
    pub(crate) current_bytes: u64,
}

impl Store {
    pub(super) fn new(memory_bytes: usize) -> Self {
        Store {
            index: HashMap::with_hasher(RandomState::new()),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            content_bytes: 0,
            body_bytes: 0,
            memory_bytes,
            evictions: 0,
        }
    }

    /// The responses stored under `key`, the latest first.
    pub(super) fn variants(&self, key: &[u8]) -> impl Iterator<Item = (u32, &Stored)> {
        let entries = self.index.get(key).map(Vec::as_slice).unwrap_or_default();
        entries.iter().rev().filter_map(|&at| Some((at, &self.entries[at as usize].content.as_ref()?.1)))
    }

    /// Marks the response at this position of [`Store::variants`] as most recently used.
    pub(super) fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    /// Stores a response in place of those under its key that `replaced` selects. Evicts others until all fit; a
    /// response larger than the limit is not stored. True if it is stored.
    pub(super) fn put(&mut self, key: Key, stored: Stored, replaced: impl Fn(&Stored) -> bool) -> bool {
        let old: Vec<u32> = self.variants(key.bytes()).filter(|(_, one)| replaced(one)).map(|(at, _)| at).collect();
        for at in old {
            self.remove(at);
        }
        let too_many: Vec<u32> = self.variants(key.bytes()).map(|(at, _)| at).skip(VARIANTS_MAX - 1).collect();
        for at in too_many {
            self.remove(at);
            self.evictions += 1;
        }
        self.content_bytes += stored.bytes() + key_bytes(&key);
        self.body_bytes += stored.body.len();
        let content = Some((key.clone(), stored));
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize].content = content;
                at
            }
            None => {
                self.entries.push(Entry { content, newer: NONE, older: NONE });
                self.entries.len() as u32 - 1
            }
        };
        self.link(at);
        self.index.entry(key).or_default().push(at);
        while self.bytes() > self.memory_bytes && self.oldest != NONE {
            let oldest = self.oldest;
            self.remove(oldest);
            self.evictions += 1;
            if oldest == at {
                return false;
            }
        }
        true
    }

    /// Removes the responses under `key` that `doomed` selects; returns their number.
    pub(super) fn forget(&mut self, key: &[u8], doomed: impl Fn(&Stored) -> bool) -> usize {
        let entries: Vec<u32> = self.variants(key).filter(|(_, one)| doomed(one)).map(|(at, _)| at).collect();
        for at in &entries {
            self.remove(*at);
        }
        entries.len()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            responses: (self.entries.len() - self.free.len()) as u64,
            body_bytes: self.body_bytes as u64,
            memory_bytes: self.bytes() as u64,
            memory_bytes_max: self.memory_bytes as u64,
            evictions: self.evictions,
            current_bytes: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.content_bytes
            + self.index.allocation_size()
            + self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
    }

    fn remove(&mut self, at: u32) {
        let Some((key, stored)) = self.entries[at as usize].content.take() else { return };
        self.content_bytes -= stored.bytes() + key_bytes(&key);
        self.body_bytes -= stored.body.len();
        self.unlink(at);
        self.free.push(at);
        if let Some(entries) = self.index.get_mut(&key) {
            entries.retain(|&other| other != at);
            if entries.is_empty() {
                self.index.remove(&key);
            }
        }
        if self.entries.len() == self.free.len() {
            // The store is empty: release tables that grew for many small responses.
            (self.entries, self.free) = (Vec::new(), Vec::new());
            self.index.shrink_to_fit();
        }
    }

    fn link(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = at,
            before => self.entries[before as usize].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

/// Bytes of a key outside of the tables. Variants share the key, but each counts it: the limit is reached rather too
/// early. A list of variants grows by doubling, from four.
fn key_bytes(key: &Key) -> usize {
    key.bytes().len() + 2 * size_of::<usize>() + 4 * size_of::<u32>()
}

/// No entry.
const NONE: u32 = u32::MAX;
/// Variants of one key. Each lookup compares them one by one.
const VARIANTS_MAX: usize = 32;

#[cfg(test)]
mod tests;
