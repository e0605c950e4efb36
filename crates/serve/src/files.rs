//! The files of one directory: small ones in memory, large ones open and ready to send.
//!
//! ```text
//!   path as sent ──one hash──▶ slot ──checked this second──▶ Page                      (no system call, no allocation)
//!                                └──otherwise──▶ openat2, fstat: same stamp? ──no──▶ files/page.rs reads it again
//! ```
//!
//! A page is found by the path as sent, so that a hit costs one hash and no decoding. At most once a second it is
//! compared with the file's identity, size and times; if they differ, or are too recent, the file is read again. So
//! content is at most one second old. Missing files are not cached. The directory's path is checked as often: a
//! symbolic link to the served release may move.

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

/// The directory and its cached pages.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    /// The second in which the root's path was last checked.
    root_checked_at_s: Option<u64>,
    rules: FileRules,
    /// Indices into `slots` by the hash of their key. The hash key is random, so colliding paths cannot be constructed,
    /// and the table is limited.
    table: HashTable<u32>,
    hasher: RandomState,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// The slots of open files and of all others: each list is a clock whose hand is the front.
    clocks: [VecDeque<u32>; 2],
    held_bytes: usize,
    open_files: usize,
    open_max: usize,
    boundaries: u64,
    /// Decoded path of the current lookup.
    path: Vec<u8>,
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file.
    Page(Rc<Page>),
    /// A directory without its trailing slash.
    Directory,
    /// No file: an error status.
    Nothing(Status),
}

/// A page and the second of its last check.
#[derive(Debug)]
struct Slot {
    key: Box<[u8]>,
    hash: u64,
    page: Rc<Page>,
    checked_at_s: u64,
    /// Requested since the clock's hand last passed.
    used: bool,
}

impl Files {
    /// An empty cache.
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

    /// Limits the number of open files, where descriptors are scarce.
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
            // A changed file would have to be reset in mid-transfer; a page in memory stays consistent.
            && slot.page.is_intact()
        {
            slot.used = true;
            return Found::Page(Rc::clone(&slot.page));
        }
        self.check(path, hash, at, now_s)
    }

    /// A multipart boundary: random, so that no file can contain it on purpose.
    pub(crate) fn boundary(&mut self) -> String {
        self.boundaries += 1;
        let halves = [0u64, 1].map(|half| self.hasher.hash_one((half, self.boundaries)));
        format!("{:016x}{:016x}", halves[0], halves[1])
    }

    fn position(&self, hash: u64, path: &[u8]) -> Option<u32> {
        let is_it = |&at: &u32| self.slots[at as usize].as_ref().is_some_and(|slot| *slot.key == *path);
        self.table.find(hash, is_it).copied()
    }

    /// The slow path: queries the file system.
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
                self.slots[at as usize].iter_mut().for_each(|slot| {
                    slot.checked_at_s = now_s;
                    slot.used = true;
                });
                return Found::Page(page);
            }
            self.forget(at);
        }
        let path_length = self.path.len();
        let is_open_end = self.path.is_empty() || self.path.ends_with(b"/");
        let names = if is_open_end { self.rules.index.len() } else { 1 };
        for name in 0..names {
            self.path.truncate(path_length);
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

    /// Resolves the root's path again, once a second. If it does not exist, it is checked for each request: a recreated
    /// directory is served immediately.
    fn follow_root(&mut self, now_s: u64) -> Result<(), Status> {
        if self.root_checked_at_s == Some(now_s) {
            return Ok(());
        }
        match self.root.follow().map_err(|error| refusal(&error)) {
            // A lack of file descriptors does not mean that the directory is missing.
            Ok(_) | Err(Status::Unavailable) => {
                self.root_checked_at_s = Some(now_s);
                Ok(())
            }
            Err(status) => Err(status),
        }
    }

    /// The page at `at`, if `self.path` still leads to its version.
    fn unchanged(&mut self, at: u32) -> Option<Rc<Page>> {
        let page = Rc::clone(&self.slots[at as usize].as_ref()?.page);
        let path_length = self.path.len();
        let mut found = None;
        if self.path.is_empty() || self.path.ends_with(b"/") {
            for name in &self.rules.index {
                self.path.truncate(path_length);
                self.path.extend_from_slice(name.as_bytes());
                // The first existing name counts, even if it was created later.
                found = has_same_version(self.root.metadata(&self.path), &page);
                if found.is_some() {
                    break;
                }
            }
        } else {
            found = has_same_version(self.root.metadata(&self.path), &page);
        }
        let same = found == Some(true) && page.variants_are_unchanged(&self.root, &mut self.path);
        self.path.truncate(path_length);
        same.then_some(page)
    }

    fn remember(&mut self, path: &[u8], hash: u64, page: Rc<Page>, now_s: u64) {
        let clock = clock_of(&page);
        self.count(&page, path.len(), true);
        let slot = Slot { key: path.into(), hash, page, checked_at_s: now_s, used: false };
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
        while self.open_files > self.open_max && self.evict(OPEN_FILE) {}
        // Pages in memory are evicted first; if open files alone fill the memory with their heads, they are.
        while self.held_bytes > IN_MEMORY_TOTAL_MAX && (self.evict(IN_MEMORY) || self.evict(OPEN_FILE)) {}
    }

    /// Second chance (clock algorithm): the front is evicted unless it was used since it was last at the front. A page
    /// requested once therefore leaves before repeatedly requested ones. False if there is nothing to evict.
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
                // Removed earlier: only now may the index be reused.
                None => self.free.push(at),
            }
        }
        false
    }

    /// Empties a slot. Its place in the clock stays until the hand passes, or until too many such places exist.
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

/// Whether `metadata` belongs to the version of `page`; `None` if the file is missing.
fn has_same_version(metadata: io::Result<Metadata>, page: &Page) -> Option<bool> {
    match metadata {
        Ok(now) => Some(page.is_of(&Stamp::of(&now))),
        // A lack of file descriptors does not mean that the file is missing.
        Err(error) => match refusal(&error) {
            Status::NotFound => None,
            status => Some(status == Status::Unavailable && !page.changed_recently()),
        },
    }
}

fn clock_of(page: &Page) -> usize {
    if page.weight().1 > 0 { OPEN_FILE } else { IN_MEMORY }
}

/// The status for a file that cannot be opened or read.
fn refusal(error: &io::Error) -> Status {
    match error.raw_os_error() {
        // ENXIO, ENODEV: a socket or a device, which is not served.
        Some(ENOENT | ENOTDIR | EXDEV | ELOOP | ENAMETOOLONG | EINVAL | ENXIO | ENODEV) => Status::NotFound,
        Some(EACCES | EPERM) => Status::Forbidden,
        // EAGAIN: renames raced with the lookup repeatedly (openat2(2)).
        Some(EMFILE | ENFILE | ENOMEM | EAGAIN) => Status::Unavailable,
        _ => Status::Failed,
    }
}

/// Indexes of `clocks`.
const OPEN_FILE: usize = 0;
const IN_MEMORY: usize = 1;
/// Files up to this size are stored in memory; larger ones are sent by sendfile(2), whose pages are shared with the file
/// and not copied (docs/notes/serve-speed.md).
pub(crate) const IN_MEMORY_BYTES_MAX: u64 = 16 << 10;
/// Limit of all pages of one worker, with heads and keys: several paths may lead to one file, so this also limits the
/// cost of unusual spellings.
const IN_MEMORY_TOTAL_MAX: usize = 64 << 20;
/// Limit of open files of one worker, at most a quarter of its descriptors. Responses in progress hold theirs a little
/// longer.
pub(crate) const OPEN_MAX: usize = 512;
/// Memory of a page besides its bytes: slot, table, clock, allocator.
const SLOT_BYTES: usize = 256;
/// Empty places of a clock that are not worth cleaning up.
const EMPTY_PLACES_MAX: usize = 64;

#[cfg(test)]
mod tests;
