//! What is in the spool, in memory: so that nobody has to look at twenty thousand files.

use std::collections::VecDeque;
use std::io;

use super::file::{self, Beginning, Meta, Sealed};
use crate::disk::{Disk, Lasting};
use tap_protocol::Batch;

/// Batches that wait, and what the newest file says.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By number, without a gap.
    items: VecDeque<Item>,
    last: Meta,
    /// The newest file, where the manager has it and nothing newer was sealed when that was found.
    pub kept: Option<u64>,
    rows: u64,
    bytes: u64,
}

/// A batch that waits.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub number: u64,
    /// Rows that it was sealed with.
    pub rows: u64,
    pub is_cut: bool,
    /// Where it can be cut: see [`Sealed`].
    pub meta_end: u64,
    pub head: u64,
    /// On disk.
    bytes: u64,
}

impl Item {
    pub fn new(meta: &Meta, sealed: &Sealed) -> Item {
        let length = sealed.bytes.len() as u64;
        Item::of(meta, sealed.meta_end, sealed.head, length)
    }

    fn of(meta: &Meta, meta_end: u64, head: u64, length: u64) -> Item {
        Item { number: meta.number, rows: meta.rows, is_cut: length <= head, meta_end, head, bytes: on_disk(length) }
    }

    /// Rows that are still there.
    fn rows_left(&self) -> u64 {
        if self.is_cut { 0 } else { self.rows }
    }
}

impl Index {
    /// Reads what is in the folder. A gap, which no kill leaves, is filled with the counts of what is missing.
    pub fn read(disk: &Disk, notes: &mut dyn FnMut(String)) -> io::Result<Index> {
        let mut index = Index::default();
        for name in disk.names("", file::SUFFIX)? {
            let Some(number) = file::number(&name) else { continue };
            let bytes = disk.get(&name, file::HEAD_MAX)?.unwrap_or_default();
            let length = disk.length(&name)?.unwrap_or_default();
            let beginning = Beginning::read(&bytes).filter(|beginning| beginning.meta.number == number);
            let Some(Beginning { meta, meta_end, head }) = beginning else {
                notes(format!("{name} in the spool was changed by somebody else, and is removed"));
                disk.remove(&name)?;
                continue;
            };
            let Some(head) = head else {
                // The manager has it, and all before it.
                for old in index.numbers().chain(index.kept) {
                    disk.remove(&file::name(old))?;
                }
                index = Index { last: meta, kept: Some(number), ..Index::default() };
                continue;
            };
            if index.last.number > 0 && number > index.last.number + 1 {
                index.fill(disk, &meta, notes)?;
            }
            index.put(Item::of(&meta, meta_end, head, length), meta);
        }
        Ok(index)
    }

    /// Files before that of `next` are missing: each gets one without rows, the first of them with the count.
    fn fill(&mut self, disk: &Disk, next: &Meta, notes: &mut dyn FnMut(String)) -> io::Result<()> {
        let known = self.last.rows_before + self.last.rows;
        let missing = next.rows_before.saturating_sub(known);
        let (first, end) = (self.last.number + 1, next.number);
        notes(format!("batches {first} to {} of the spool were taken away, with {missing} rows", end - 1));
        for number in first..end {
            let rows = if number == first { missing } else { 0 };
            let before = &self.last;
            let meta = Meta {
                number,
                rows,
                rows_before: before.rows_before + before.rows,
                through: before.through,
                partial: before.partial,
                boot: next.boot.clone(),
                moment: next.moment,
                // Of no stream: it is written again when it is sent.
                stream: String::new(),
                sequence: 0,
            };
            let sealed = Sealed::new(&meta, &blank(next), true);
            disk.put(&file::name(number), &sealed.bytes, Lasting::Yes)?;
            self.put(Item::new(&meta, &sealed), meta);
        }
        Ok(())
    }

    /// A file was written: the next, or the newest once more.
    pub fn put(&mut self, item: Item, meta: Meta) {
        if self.items.back().is_some_and(|newest| newest.number == item.number)
            && let Some(newest) = self.items.pop_back()
        {
            self.rows -= newest.rows_left();
            self.bytes -= newest.bytes;
        }
        self.rows += item.rows_left();
        self.bytes += item.bytes;
        self.items.push_back(item);
        self.last = meta;
    }

    /// The rows of a batch were let go; says how many these were.
    pub fn cut(&mut self, number: u64) -> u64 {
        let Some(at) = self.place(number) else { return 0 };
        let item = &mut self.items[at];
        let (rows, bytes) = (item.rows_left(), item.bytes);
        item.is_cut = true;
        item.bytes = on_disk(item.head);
        self.rows -= rows;
        self.bytes = self.bytes - bytes + item.bytes;
        rows
    }

    pub fn forget_oldest(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.rows -= item.rows_left();
            self.bytes -= item.bytes;
        }
    }

    pub fn oldest(&self) -> Option<&Item> {
        self.items.front()
    }

    pub fn get(&self, number: u64) -> Option<&Item> {
        self.place(number).map(|at| &self.items[at])
    }

    /// Of those that wait.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.items.iter().map(|item| item.number)
    }

    pub fn has_rows(&self, number: u64) -> bool {
        self.get(number).is_some_and(|item| item.rows_left() > 0)
    }

    pub fn oldest_with_rows(&self) -> Option<u64> {
        // Those that were cut are at the front, mostly: as many as there may be.
        self.items.iter().find(|item| item.rows_left() > 0).map(|item| item.number)
    }

    /// What the newest file says; all zero where there was never one.
    pub fn last(&self) -> &Meta {
        &self.last
    }

    pub fn waiting(&self) -> u64 {
        self.items.len() as u64
    }

    /// Rows that are still there.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn place(&self, number: u64) -> Option<usize> {
        let first = self.items.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        (at < self.items.len()).then_some(at)
    }
}

/// A batch that says nothing, of the moment of the one after it.
fn blank(next: &Meta) -> Batch {
    Batch {
        stream: String::new(),
        sequence: 0,
        boot: next.boot.clone(),
        zero_own_unix_ns: next.moment.zero_own_unix_ns,
        sealed_at_ns: next.moment.at_ns,
        settings: 0,
        share: 1.0,
        levels: tap_protocol::Levels::default(),
        lacks: tap_protocol::Lacks::default(),
        programs: Vec::new(),
        rows: Vec::new(),
    }
}

/// What a file takes there.
fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(BLOCK)
}

/// What a file takes at least.
pub(super) const BLOCK: u64 = 4096;
