//! The files of one directory: small ones in memory, large ones open and ready to be sent.
//!
//! ```text
//!   path as sent ──one hash──▶ slot ──checked this second──▶ Page                      (no system call, no allocation)
//!                                └──otherwise──▶ openat2, fstat: same stamp? ──no──▶ files/page.rs reads it anew
//! ```
//!
//! A page is looked up by the path as the client wrote it, so that a hit costs one hash and no decoding. At most once
//! a second it is compared with the file's identity, size and times; when they differ, or are too young to tell, it is
//! read anew. So what is sent is at most one second old. What does not exist is not remembered. The directory itself is
//! compared with its path as often: a link to the served release may be moved.

mod page;

use std::collections::VecDeque;
use std::fs::Metadata;
use std::hash::BuildHasher as _;
use std::io;
use std::rc::Rc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use nix::libc::{
    EACCES, EAGAIN, EINVAL, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOMEM, ENOTDIR, ENXIO, EPERM, EXDEV,
};
use sys::file::Root;

pub(crate) use page::{Coding, Content, Page};

use crate::response::Status;
use crate::spec::FileRules;
use crate::target::{file_path, is_hidden};
use page::Stamp;

/// The directory and what of it is at hand.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    /// The second in which the root's path was last compared with the root.
    root_checked_at_s: Option<u64>,
    rules: FileRules,
    /// Places in `slots`, by the hash of their key. The hash has a random key: paths that all collide cannot be
    /// prepared without knowing it, and the table is bounded.
    table: HashTable<u32>,
    hasher: RandomState,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// The slots of pages that hold open files, and of all others: each a clock whose hand is the front.
    clocks: [VecDeque<u32>; 2],
    held_bytes: usize,
    open_files: usize,
    open_max: usize,
    boundaries: u64,
    /// Decoded path of the lookup under way.
    path: Vec<u8>,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file.
    Page(Rc<Page>),
    /// A directory written without its slash.
    Directory,
    /// Nothing to be had.
    Nothing(Status),
}

/// A page and when it was last compared with its file.
#[derive(Debug)]
struct Slot {
    key: Box<[u8]>,
    hash: u64,
    page: Rc<Page>,
    checked_at_s: u64,
    /// Times it was asked for since then.
    asked: u32,
    /// Asked for since the clock's hand last came by.
    used: bool,
}

impl Files {
    /// Nothing at hand yet.
    pub(crate) fn new(root: Root, rules: FileRules) -> Self {
        Files {
            root,
            root_checked_at_s: None,
            rules,
            table: HashTable::new(),
            hasher: RandomState::default(),
            slots: Vec::new(),
            free: Vec::new(),
            clocks: [VecDeque::new(), VecDeque::new()],
            held_bytes: 0,
            open_files: 0,
            open_max: OPEN_MAX,
            boundaries: 0,
            path: Vec::with_capacity(256),
        }
    }

    /// Holds at most so many files open, where fewer descriptors are to be had.
    pub(crate) fn holding_open(mut self, open_max: usize) -> Self {
        self.open_max = open_max.min(OPEN_MAX);
        self
    }

    /// Looks up the path of a request. `now_s` counts seconds of any one clock.
    pub(crate) fn find(&mut self, path: &[u8], now_s: u64) -> Found {
        let hash = self.hasher.hash_one(path);
        let at = self.position(hash, path);
        if let Some(at) = at
            && let Some(slot) = &mut self.slots[at as usize]
            && slot.checked_at_s == now_s
            // What is sent from the file itself would have to be broken off; in memory there is the version it was.
            && slot.page.is_intact()
        {
            slot.used = true;
            slot.asked = slot.asked.saturating_add(1);
            return Found::Page(Rc::clone(&slot.page));
        }
        self.check(path, hash, at, now_s)
    }

    /// Text that separates parts of an answer: new each time, and nothing that a file could have been made to hold.
    pub(crate) fn boundary(&mut self) -> String {
        self.boundaries += 1;
        let halves = [0u64, 1].map(|half| self.hasher.hash_one((half, self.boundaries)));
        format!("{:016x}{:016x}", halves[0], halves[1])
    }

    fn position(&self, hash: u64, path: &[u8]) -> Option<u32> {
        let is_it = |&at: &u32| self.slots[at as usize].as_ref().is_some_and(|slot| *slot.key == *path);
        self.table.find(hash, is_it).copied()
    }

    /// The slow way: asks the file system.
    fn check(&mut self, path: &[u8], hash: u64, at: Option<u32>, now_s: u64) -> Found {
        if let Err(status) = file_path(path, &mut self.path) {
            return Found::Nothing(status);
        }
        if !self.rules.hidden && is_hidden(&self.path) {
            return Found::Nothing(Status::NotFound);
        }
        if let Err(status) = self.follow_root(now_s) {
            return Found::Nothing(status);
        }
        if let Some(at) = at {
            if let Some(page) = self.unchanged(at) {
                let mut asked = 0;
                self.slots[at as usize].iter_mut().for_each(|slot| {
                    slot.checked_at_s = now_s;
                    slot.used = true;
                    asked = std::mem::take(&mut slot.asked);
                });
                if asked >= PROMOTED_AT
                    && let Some(held) = self.promoted(&page)
                {
                    self.forget(at);
                    self.remember(path, hash, Rc::clone(&held), now_s);
                    return Found::Page(held);
                }
                return Found::Page(page);
            }
            self.forget(at);
        }
        let asked = self.path.len();
        let is_open_end = self.path.is_empty() || self.path.ends_with(b"/");
        let names = if is_open_end { self.rules.index.len() } else { 1 };
        for name in 0..names {
            self.path.truncate(asked);
            if is_open_end {
                self.path.extend_from_slice(self.rules.index[name].as_bytes());
            }
            match Page::load(&self.root, &mut self.path, self.rules.precompressed) {
                Ok(Some(page)) => {
                    let page = Rc::new(page);
                    self.remember(path, hash, Rc::clone(&page), now_s);
                    return Found::Page(page);
                }
                Ok(None) if !is_open_end => return Found::Directory,
                Ok(None) | Err(Status::NotFound) => {}
                Err(status) => return Found::Nothing(status),
            }
        }
        Found::Nothing(Status::NotFound)
    }

    /// Turns to the directory that the root's path leads to in this second. Where nothing stands there, that is looked at
    /// again for each request: a directory that is made anew is served from its first moment.
    fn follow_root(&mut self, now_s: u64) -> Result<(), Status> {
        if self.root_checked_at_s == Some(now_s) {
            return Ok(());
        }
        match self.root.follow().map_err(|error| refusal(&error)) {
            // A shortage of descriptors says nothing about the directory.
            Ok(_) | Err(Status::Unavailable) => {
                self.root_checked_at_s = Some(now_s);
                Ok(())
            }
            Err(status) => Err(status),
        }
    }

    /// The page at `at` if it is still what `self.path` leads to.
    fn unchanged(&mut self, at: u32) -> Option<Rc<Page>> {
        let page = Rc::clone(&self.slots[at as usize].as_ref()?.page);
        let asked = self.path.len();
        let mut found = None;
        if self.path.is_empty() || self.path.ends_with(b"/") {
            for name in &self.rules.index {
                self.path.truncate(asked);
                self.path.extend_from_slice(name.as_bytes());
                // The first name that is there counts, also if it came later.
                found = stamp(self.root.metadata(&self.path), &page);
                if found.is_some() {
                    break;
                }
            }
        } else {
            found = stamp(self.root.metadata(&self.path), &page);
        }
        let same = found == Some(true) && page.variants_are_unchanged(&self.root, &mut self.path);
        self.path.truncate(asked);
        same.then_some(page)
    }

    /// A large page that is asked for much, in memory, while there is room that nobody else needs.
    fn promoted(&self, page: &Page) -> Option<Rc<Page>> {
        let room = (HELD_TOTAL_MAX / 2).saturating_sub(self.held_bytes);
        if page.content.length() > room as u64 {
            return None;
        }
        page.promoted().map(Rc::new)
    }

    fn remember(&mut self, path: &[u8], hash: u64, page: Rc<Page>, now_s: u64) {
        let clock = clock_of(&page);
        self.count(&page, path.len(), true);
        let slot = Slot { key: path.into(), hash, page, checked_at_s: now_s, asked: 0, used: false };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, at, |&at| slots[at as usize].as_ref().map_or(0, |slot| slot.hash));
        self.clocks[clock].push_back(at);
        while self.open_files > self.open_max && self.evict(OPEN) {}
        // What is in memory goes first; where open files alone fill the memory with their heads, they do.
        while self.held_bytes > HELD_TOTAL_MAX && (self.evict(HELD) || self.evict(OPEN)) {}
    }

    /// Second chance: the front of the clock goes, unless it was used since it last was the front. A page asked for
    /// only once so goes before those that are asked for again and again. False if there is nothing to go.
    fn evict(&mut self, clock: usize) -> bool {
        while let Some(at) = self.clocks[clock].pop_front() {
            match &mut self.slots[at as usize] {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.clocks[clock].push_back(at);
                }
                Some(_) => {
                    self.forget(at);
                    self.free.push(at);
                    return true;
                }
                // Forgotten earlier: only now may the place be used again.
                None => self.free.push(at),
            }
        }
        false
    }

    /// Empties a slot. Its place in the clock stays until the hand comes by, or too many such places are there.
    fn forget(&mut self, at: u32) {
        let Some(slot) = self.slots[at as usize].take() else { return };
        if let Ok(entry) = self.table.find_entry(slot.hash, |&other| other == at) {
            entry.remove();
        }
        self.count(&slot.page, slot.key.len(), false);
        let clock = clock_of(&slot.page);
        let (slots, free) = (&self.slots, &mut self.free);
        if self.clocks[clock].len() > 2 * self.table.len() + EMPTY_PLACES_MAX {
            self.clocks[clock].retain(|&other| {
                let stays = slots[other as usize].is_some();
                if !stays && other != at {
                    free.push(other);
                }
                stays || other == at
            });
        }
    }

    fn count(&mut self, page: &Page, key: usize, more: bool) {
        let (bytes, files) = page.weight();
        let bytes = bytes + key + SLOT_BYTES;
        if more {
            self.held_bytes += bytes;
            self.open_files += files;
        } else {
            self.held_bytes -= bytes;
            self.open_files -= files;
        }
    }
}

/// Whether `metadata` is of the version that `page` holds; `None` if nothing is there.
fn stamp(metadata: io::Result<Metadata>, page: &Page) -> Option<bool> {
    match metadata {
        Ok(now) => Some(page.is_of(&Stamp::of(&now))),
        // A shortage of descriptors says nothing about the file.
        Err(error) => match refusal(&error) {
            Status::NotFound => None,
            status => Some(status == Status::Unavailable && !page.is_young()),
        },
    }
}

fn clock_of(page: &Page) -> usize {
    if page.weight().1 > 0 { OPEN } else { HELD }
}

/// What a client is told when a file cannot be opened or read.
fn refusal(error: &io::Error) -> Status {
    match error.raw_os_error() {
        // ENXIO, ENODEV: a socket or a device, which are no files to serve.
        Some(ENOENT | ENOTDIR | EXDEV | ELOOP | ENAMETOOLONG | EINVAL | ENXIO | ENODEV) => Status::NotFound,
        Some(EACCES | EPERM) => Status::Forbidden,
        // EAGAIN: renames raced with the lookup again and again (openat2(2)).
        Some(EMFILE | ENFILE | ENOMEM | EAGAIN) => Status::Unavailable,
        _ => Status::Failed,
    }
}

/// Indexes of `clocks`.
const OPEN: usize = 0;
const HELD: usize = 1;
/// Files up to this size are kept in memory; larger ones are sent by sendfile(2). Over loopback sendfile carried, on a quiet
/// machine, 149,000 answers of 32 KiB in a second where memory carried 118,000; 88,000 and 73,000 of 100 KiB, 49,000 and
/// 42,000 of 256 KiB: pages shared with the file are warm in the cache of whoever reads them. (Where a file was written
/// in small pieces, its pages are small too, and memory is ahead: 13.7 and 10.9 us of CPU for 100 KiB.)
pub(crate) const HELD_MAX: u64 = 16 << 10;
/// Files of these sizes are held in memory while they are asked for at least so often in a second and half of the room is
/// free: 10,900 answers of 1 MiB in a second, 9,600 by sendfile, which goes in steps of 64 KiB. A file that was asked
/// for so often is in the page cache, so that reading it does not wait for a disk.
pub(crate) const PROMOTED_MIN: u64 = 768 << 10;
pub(crate) const PROMOTED_MAX: u64 = 4 << 20;
const PROMOTED_AT: u32 = 32;
/// All pages of one worker, with their heads and keys: several paths may lead to one file, so this also bounds what
/// odd spellings can cost.
const HELD_TOTAL_MAX: usize = 64 << 20;
/// Files held open by one worker, where that is no more than a quarter of its descriptors. Responses under way keep theirs a little longer.
pub(crate) const OPEN_MAX: usize = 512;
/// What a page costs besides its bytes: slot, table, clock, the allocator's own.
const SLOT_BYTES: usize = 256;
/// Empty places of a clock that are not worth cleaning up.
const EMPTY_PLACES_MAX: usize = 64;

#[cfg(test)]
mod tests;
