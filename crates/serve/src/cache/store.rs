//! What is remembered, and what is forgotten when there is too much: the answer used least recently.
//!
//! ```text
//!   index: key ──▶ places of its variants            places: [ answer, key, newer, older ] ..   a doubly linked list
//!                                                     newest ◀──▶ .. ◀──▶ oldest                through a vector
//! ```
//!
//! Keys are compared whole: the hash, keyed by random numbers, only finds where to look.

use hashbrown::HashMap;
use std::hash::RandomState;

use super::key::Key;
use super::stored::Stored;

/// Stored answers within a bound of memory.
#[derive(Debug)]
pub(super) struct Store {
    index: HashMap<Key, Vec<u32>, RandomState>,
    places: Vec<Place>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Of answers, keys and lists of variants; the tables are added when asked.
    content_bytes: usize,
    body_bytes: usize,
    memory_bytes: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Place {
    /// `None`: in the list of free places.
    tenant: Option<(Key, Stored)>,
    newer: u32,
    older: u32,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Answers.
    pub(crate) answers: u64,
    /// Bytes of their bodies.
    pub(crate) body_bytes: u64,
    /// Bytes of all: bodies, fields, keys, tables.
    pub(crate) memory_bytes: u64,
    /// The bound of these.
    pub(crate) memory_bytes_max: u64,
    /// Answers forgotten for want of memory.
    pub(crate) evictions: u64,
    /// Bytes of all bodies that live: stored, or forgotten and still on their way to clients, or coming.
    pub(crate) living_bytes: u64,
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

    /// The answers stored under `key`, latest first.
    pub(super) fn variants(&self, key: &[u8]) -> impl Iterator<Item = (u32, &Stored)> {
        let places = self.index.get(key).map(Vec::as_slice).unwrap_or_default();
        places.iter().rev().filter_map(|&at| Some((at, &self.places[at as usize].tenant.as_ref()?.1)))
    }

    /// Makes the answer at this place, as [`Store::variants`] told it, the one used latest.
    pub(super) fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    /// Stores an answer in place of those under its key that `replaced` says. Others are forgotten until all fit; an
    /// answer that does not fit by itself is not stored. True if it is stored.
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

    /// Forgets the answers under `key` that `doomed` says; their number.
    pub(super) fn forget(&mut self, key: &[u8], doomed: impl Fn(&Stored) -> bool) -> usize {
        let places: Vec<u32> = self.variants(key).filter(|(_, one)| doomed(one)).map(|(at, _)| at).collect();
        for at in &places {
            self.remove(*at);
        }
        places.len()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            answers: (self.places.len() - self.free.len()) as u64,
            body_bytes: self.body_bytes as u64,
            memory_bytes: self.bytes() as u64,
            memory_bytes_max: self.memory_bytes as u64,
            evictions: self.evictions,
            living_bytes: 0,
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
            // Nothing is left: tables that grew for many small answers are given back.
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

/// The bytes that a key takes beside the tables. It is shared by the variants, and counted for each of them: the bound
/// is kept rather too early than too late. A list of variants grows by doubling, from four.
fn tenant_bytes(key: &Key) -> usize {
    key.bytes().len() + 2 * size_of::<usize>() + 4 * size_of::<u32>()
}

/// No place.
const NONE: u32 = u32::MAX;
/// Variants of one key. Each look-up compares them one by one.
const VARIANTS_MAX: usize = 32;

#[cfg(test)]
mod tests;
