//! Index of the spool in memory, which avoids reading twenty thousand files.

use std::collections::VecDeque;
use std::io;

use super::file::{self, Beginning, Meta, Sealed};
use crate::disk::{Disk, Durability};
use tap_protocol::Batch;

/// Waiting batches, and index data of the newest file.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Waiting batches by number, without a gap.
    items: VecDeque<Item>,
    last: Meta,
    /// The newest file, if the manager has stored it and no newer batch was sealed.
    pub confirmed_newest: Option<u64>,
    rows: u64,
    bytes: u64,
}

/// A waiting batch.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub number: u64,
    /// Number of rows when the batch was sealed.
    pub rows: u64,
    pub is_truncated: bool,
    /// Positions where the file can be truncated: see [`Sealed`].
    pub meta_end: u64,
    pub head: u64,
    /// Bytes on disk.
    bytes: u64,
}

impl Item {
    pub fn new(meta: &Meta, sealed: &Sealed) -> Item {
        let length = sealed.bytes.len() as u64;
        Item::of(meta, sealed.meta_end, sealed.head, length)
    }

    fn of(meta: &Meta, meta_end: u64, head: u64, length: u64) -> Item {
        Item {
            number: meta.number,
            rows: meta.rows,
            is_truncated: length <= head,
            meta_end,
            head,
            bytes: on_disk(length),
        }
    }

    /// Rows not dropped.
    fn remaining_rows(&self) -> u64 {
        if self.is_truncated { 0 } else { self.rows }
    }
}

impl Index {
    /// Reads the folder. A gap, which a kill cannot cause, is filled with the counts of the missing batches.
    pub fn read(disk: &Disk, notes: &mut dyn FnMut(String)) -> io::Result<Index> {
        let mut index = Index::default();
        for name in disk.names("", file::SUFFIX)? {
            let Some(number) = file::number(&name) else { continue };
            let bytes = disk.get(&name, file::HEAD_MAX)?.unwrap_or_default();
            let length = disk.length(&name)?.unwrap_or_default();
            let beginning = Beginning::read(&bytes).filter(|beginning| beginning.meta.number == number);
            let Some(Beginning { meta, meta_end, head }) = beginning else {
                notes(format!("{name} in the spool was changed by another program, and is removed"));
                disk.remove(&name)?;
                continue;
            };
            let Some(head) = head else {
                // The manager has stored this batch and all earlier ones.
                for old in index.numbers().chain(index.confirmed_newest) {
                    disk.remove(&file::name(old))?;
                }
                index = Index { last: meta, confirmed_newest: Some(number), ..Index::default() };
                continue;
            };
            if index.last.number > 0 && number > index.last.number + 1 {
                index.fill(disk, &meta, notes)?;
            }
            index.put(Item::of(&meta, meta_end, head, length), meta);
        }
        Ok(index)
    }

    /// Files before `next` are missing: each gets a file without rows, the first with the count.
    fn fill(&mut self, disk: &Disk, next: &Meta, notes: &mut dyn FnMut(String)) -> io::Result<()> {
        let known = self.last.rows_before + self.last.rows;
        let missing = next.rows_before.saturating_sub(known);
        let (first, end) = (self.last.number + 1, next.number);
        notes(format!("batches {first} to {} of the spool were removed, with {missing} rows", end - 1));
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
                clock: next.clock,
                // The batch belongs to no stream: the sender sets its stream and number.
                stream: String::new(),
                sequence: 0,
            };
            let sealed = Sealed::new(&meta, &empty_batch(next), true);
            disk.put(&file::name(number), &sealed.bytes, Durability::Yes)?;
            self.put(Item::new(&meta, &sealed), meta);
        }
        Ok(())
    }

    /// Adds a file that was written: the next one, or the newest one again.
    pub fn put(&mut self, item: Item, meta: Meta) {
        if self.items.back().is_some_and(|newest| newest.number == item.number)
            && let Some(newest) = self.items.pop_back()
        {
            self.rows -= newest.remaining_rows();
            self.bytes -= newest.bytes;
        }
        self.rows += item.remaining_rows();
        self.bytes += item.bytes;
        self.items.push_back(item);
        self.last = meta;
    }

    /// Notes that the rows of a batch were dropped; returns their number.
    pub fn truncate(&mut self, number: u64) -> u64 {
        let Some(at) = self.position(number) else { return 0 };
        let item = &mut self.items[at];
        let (rows, bytes) = (item.remaining_rows(), item.bytes);
        item.is_truncated = true;
        item.bytes = on_disk(item.head);
        self.rows -= rows;
        self.bytes = self.bytes - bytes + item.bytes;
        rows
    }

    pub fn remove_oldest(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.rows -= item.remaining_rows();
            self.bytes -= item.bytes;
        }
    }

    pub fn oldest(&self) -> Option<&Item> {
        self.items.front()
    }

    pub fn get(&self, number: u64) -> Option<&Item> {
        self.position(number).map(|at| &self.items[at])
    }

    /// Numbers of the waiting batches.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.items.iter().map(|item| item.number)
    }

    pub fn has_rows(&self, number: u64) -> bool {
        self.get(number).is_some_and(|item| item.remaining_rows() > 0)
    }

    pub fn oldest_with_rows(&self) -> Option<u64> {
        // Truncated batches are mostly at the front.
        self.items.iter().find(|item| item.remaining_rows() > 0).map(|item| item.number)
    }

    /// Index data of the newest file; all zero if there was none.
    pub fn last(&self) -> &Meta {
        &self.last
    }

    pub fn waiting(&self) -> u64 {
        self.items.len() as u64
    }

    /// Rows not dropped.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn position(&self, number: u64) -> Option<usize> {
        let first = self.items.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        (at < self.items.len()).then_some(at)
    }
}

/// An empty batch with the time of the next one.
fn empty_batch(next: &Meta) -> Batch {
    Batch {
        stream: String::new(),
        sequence: 0,
        boot: next.boot.clone(),
        zero_own_unix_ns: next.clock.zero_own_unix_ns,
        sealed_at_ns: next.clock.at_ns,
        settings: 0,
        share: 1.0,
        gauges: tap_protocol::Gauges::default(),
        losses: tap_protocol::Losses::default(),
        programs: Vec::new(),
        rows: Vec::new(),
    }
}

/// Bytes that a file takes on disk.
fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(BLOCK)
}

/// Minimum bytes of a file on disk.
pub(super) const BLOCK: u64 = 4096;
