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
    places: Vec<Place>,
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
struct Place {
    /// `None`: the entry is in the list of free entries.
    tenant: Option<(Key, Stored)>,
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
            places: Vec::new(),
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
        let places = self.index.get(key).map(Vec::as_slice).unwrap_or_default();
        places.iter().rev().filter_map(|&at| Some((at, &self.places[at as usize].tenant.as_ref()?.1)))
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
        self.content_bytes += stored.bytes() + tenant_bytes(&key);
        self.body_bytes += stored.body.len();
        let tenant = Some((key.clone(), stored));
        let at = match self.free.pop() {
            Some(at) => {
                self.places[at as usize].tenant = tenant;
                at
            }
            None => {
                self.places.push(Place { tenant, newer: NONE, older: NONE });
                self.places.len() as u32 - 1
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
        let places: Vec<u32> = self.variants(key).filter(|(_, one)| doomed(one)).map(|(at, _)| at).collect();
        for at in &places {
            self.remove(*at);
        }
        places.len()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            responses: (self.places.len() - self.free.len()) as u64,
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
            + self.places.capacity() * size_of::<Place>()
            + self.free.capacity() * size_of::<u32>()
    }

    fn remove(&mut self, at: u32) {
        let Some((key, stored)) = self.places[at as usize].tenant.take() else { return };
        self.content_bytes -= stored.bytes() + tenant_bytes(&key);
        self.body_bytes -= stored.body.len();
        self.unlink(at);
        self.free.push(at);
        if let Some(places) = self.index.get_mut(&key) {
            places.retain(|&other| other != at);
            if places.is_empty() {
                self.index.remove(&key);
            }
        }
        if self.places.len() == self.free.len() {
            // The store is empty: release tables that grew for many small responses.
            (self.places, self.free) = (Vec::new(), Vec::new());
            self.index.shrink_to_fit();
        }
    }

    fn link(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        (place.newer, place.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = at,
            before => self.places[before as usize].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Place { newer, older, .. } = self.places[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
    }
}

/// Bytes of a key outside of the tables. Variants share the key, but each counts it: the limit is reached rather too
/// early. A list of variants grows by doubling, from four.
fn tenant_bytes(key: &Key) -> usize {
    key.bytes().len() + 2 * size_of::<usize>() + 4 * size_of::<u32>()
}

/// No entry.
const NONE: u32 = u32::MAX;
/// Variants of one key. Each lookup compares them one by one.
const VARIANTS_MAX: usize = 32;

#[cfg(test)]
mod tests;
