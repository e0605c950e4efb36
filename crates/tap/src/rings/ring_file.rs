//! One user's ring file: its owner, its header, and the readers of its slots.
//!
//! The file has mode 0600 and belongs to its user, so the kernel guarantees whose programs wrote it. They may write
//! anything: the constants of the header are stored here, and restored if they differ.
//!
//! The files of a tap have an index, 0 for the tap's user. It is the upper byte of all image numbers in the file, so
//! images of different users have different numbers, and slots are numbered through all files.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::layout::{self, RECORD_BYTES, Shape, header, slot};
use super::positions::{ReaderState, SlotCursor};
use super::shared::Shared;
use super::{FIRST_RECORDS, FIRST_SLOTS, map, reserve, shape_of, slot_at};
use crate::error::{Error, Result};

/// Index of the tap user's file.
pub(super) const FIRST: u32 = 0;
/// Position of the file index in an image's number.
pub(crate) const INDEX_SHIFT: u32 = 24;
/// All file indexes are below this number.
pub(super) const INDEX_END: u32 = 1 << (32 - INDEX_SHIFT);

/// Common properties of all files of a tap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    pub shape: Shape,
    /// A random number, generated with the first file.
    pub ring: u64,
    /// The boot, for a tap daemon.
    pub boot: [u64; 2],
    /// The clock of the hooks.
    pub kind: u32,
    pub piece_ticks: u64,
    pub is_daemon: bool,
    /// System call filters that allow what a tap needs.
    pub filters: u32,
}

/// A mapped file of a user.
#[derive(Debug)]
pub(super) struct RingFile {
    pub index: u32,
    /// The user who owns the file.
    pub user: u32,
    pub inode: u64,
    file: File,
    pub memory: Shared,
    shape: Shape,
    pub readers: Vec<Reader>,
    /// Upper limit of the slots ever claimed.
    pub used: u32,
    /// Upper limit of the slots with initial memory.
    ready: u32,
    pub unclaimed_reported: u64,
    /// Offsets and values of the header's constants, by 4 bytes.
    constants: Vec<(usize, u32)>,
}

/// Reader state of a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    pub at: SlotCursor,
    /// Records at the start of the ring for which memory is reserved.
    reserved: u32,
}

impl RingFile {
    /// Initializes a new file as a ring of `user`. Large rings below `ready` get all their memory immediately.
    pub fn fill(file: File, path: &Path, set: &Set, index: u32, user: u32, ready: u32) -> Result<RingFile> {
        let shape = set.shape;
        file.set_len(shape.file_bytes()).map_err(Error::file("extend", path))?;
        let memory = map(&file, shape.file_bytes()).map_err(Error::file("map", path))?;
        // The header and slot pages, before anything is written there.
        reserve(&file, 0, shape.records_at()).map_err(Error::file("allocate memory for", path))?;
        let mut ring_file = RingFile::of(file, path, memory, set, index, user)?;
        memory_filtered(&ring_file.memory, set);
        ring_file.restore_header();
        for slot in 0..shape.slots.min(ready.max(FIRST_SLOTS)) {
            let first = if slot < ready { shape.records(slot) } else { FIRST_RECORDS };
            ring_file.reserve_records(slot, first).map_err(Error::file("allocate memory for", path))?;
        }
        ring_file.ready = shape.slots.min(FIRST_SLOTS.max(ready));
        // The mode is set independently of the umask. Only now may other processes open the file.
        ring_file
            .file
            .set_permissions(Permissions::from_mode(0o600))
            .map_err(Error::file("change the mode of", path))?;
        Ok(ring_file)
    }

    /// Adopts an existing file: its header is used if it is valid.
    pub fn adopt(file: File, path: &Path, index: u32, user: u32, kind: u32) -> Result<(RingFile, Set)> {
        let bytes = file.metadata().map_err(Error::file("look at", path))?.len();
        let invalid = || Error::file("read", path)(std::io::ErrorKind::InvalidData.into());
        if bytes < layout::HEADER_BYTES as u64 {
            return Err(invalid());
        }
        let memory = map(&file, bytes).map_err(Error::file("map", path))?;
        let shape = shape_of(&memory);
        let word = |at| memory.word(at).load(Ordering::Acquire);
        let half = |at| memory.half(at).load(Ordering::Acquire);
        let is_ring = word(header::MAGIC) == layout::MAGIC && half(header::CLOCK) == kind;
        if !is_ring || !shape.is_valid() || shape.file_bytes() != bytes {
            return Err(invalid());
        }
        let set = Set {
            shape,
            ring: word(header::RING),
            boot: [word(header::BOOT), word(header::BOOT + 8)],
            kind,
            piece_ticks: word(header::PIECE_TICKS),
            is_daemon: half(header::FILTERED) != 0,
            filters: half(header::FILTERS),
        };
        Ok((RingFile::of(file, path, memory, &set, index, user)?, set))
    }

    /// Adopts another user's file of `set`: its header is not trusted.
    pub fn of_set(file: File, path: &Path, set: &Set, index: u32, user: u32) -> Result<RingFile> {
        let bytes = file.metadata().map_err(Error::file("look at", path))?.len();
        if bytes != set.shape.file_bytes() {
            return Err(Error::file("read", path)(std::io::ErrorKind::InvalidData.into()));
        }
        let memory = map(&file, bytes).map_err(Error::file("map", path))?;
        let mut ring_file = RingFile::of(file, path, memory, set, index, user)?;
        ring_file.restore_header();
        Ok(ring_file)
    }

    fn of(file: File, path: &Path, memory: Shared, set: &Set, index: u32, user: u32) -> Result<RingFile> {
        let inode = file.metadata().map_err(Error::file("look at", path))?.ino();
        let shape = set.shape;
        let reserved_records = |number| memory.word(slot_at(number) + slot::RESERVED).load(Ordering::Acquire);
        let reserved = |number| u32::try_from(reserved_records(number)).unwrap_or(u32::MAX).min(shape.records(number));
        let reader = |number| Reader { at: SlotCursor::default(), reserved: reserved(number) };
        let readers: Vec<Reader> = (0..shape.slots).map(reader).collect();
        let ready = readers.iter().position(|reader| reader.reserved == 0).unwrap_or(readers.len()) as u32;
        let used = memory.half(header::SLOTS_USED).load(Ordering::Acquire).min(shape.slots);
        let constants = constants(set, index);
        let unclaimed_reported = 0;
        Ok(RingFile { index, user, inode, file, memory, shape, readers, used, ready, unclaimed_reported, constants })
    }

    /// Restores the header's constants and monotonic fields; returns 1 if something was wrong. Reserves memory for
    /// the slots that will be used next.
    pub fn restore_header(&mut self) -> u64 {
        let mut is_damaged = false;
        for (at, value) in &self.constants {
            let word = self.memory.half(*at);
            if word.load(Ordering::Relaxed) != *value {
                // A new file is still empty.
                is_damaged |= self.ready > 0;
                word.store(*value, Ordering::Release);
            }
        }
        let used = self.memory.half(header::SLOTS_USED);
        let now = used.load(Ordering::Acquire);
        if now < self.used || now > self.shape.slots {
            is_damaged = true;
            used.fetch_max(self.used, Ordering::AcqRel);
            if now > self.shape.slots {
                used.store(self.shape.slots, Ordering::Release);
            }
        }
        self.used = self.used.max(now.min(self.shape.slots));
        let target = (self.used + FIRST_SLOTS).min(self.shape.slots);
        if self.ready > 0 && self.ready < target {
            // If there is no memory, the threads reserve it themselves, and count dropped records.
            let failed = (self.ready..target).find(|slot| self.reserve_records(*slot, FIRST_RECORDS).is_err());
            self.ready = failed.unwrap_or(target);
        }
        u64::from(is_damaged)
    }

    /// Whether its user has truncated the file.
    pub fn is_truncated(&self) -> bool {
        let is_shorter = || self.file.metadata().is_ok_and(|file| file.len() < self.shape.file_bytes());
        self.memory.is_truncated() || is_shorter()
    }

    /// The boot in which it was created.
    pub fn boot(&self) -> [u64; 2] {
        let half = |at: usize| self.constants.iter().find(|(other, _)| *other == at).map_or(0, |(_, value)| *value);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        [word(header::BOOT), word(header::BOOT + 8)]
    }

    /// Sets the readers to the position of the previous reader (`is_known`: from `before`, otherwise from the file),
    /// and gives writers the memory reserved so far.
    pub fn resume(&mut self, before: &ReaderState, is_known: bool) {
        for number in 0..self.shape.slots {
            let word = |at| self.memory.word(slot_at(number) + at).load(Ordering::Acquire);
            let file =
                SlotCursor { tail: word(slot::TAIL), dropped_reported: word(slot::DROPPED_REPORTED), path: Vec::new() };
            let at = if is_known {
                let written = before.cursor(self.index * self.shape.slots + number);
                further_position(written, file, word(slot::HEAD), word(slot::DROPPED))
            } else {
                file
            };
            self.memory.word(slot_at(number) + slot::TAIL).store(at.tail, Ordering::Release);
            self.readers[number as usize].at = at;
        }
        let unclaimed = self.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
        self.unclaimed_reported = self.memory.word(header::UNCLAIMED_REPORTED).load(Ordering::Relaxed).min(unclaimed);
    }

    /// Reserves memory for a ring whose thread will soon need it.
    pub fn reserve_ahead(&mut self, slot: u32) {
        let reserved_records = self.memory.word(slot_at(slot) + slot::RESERVED).load(Ordering::Relaxed);
        let all = self.shape.records(slot);
        if reserved_records >= u64::from(all) || self.readers[slot as usize].at.tail < reserved_records / 2 {
            return;
        }
        let more = u32::try_from(reserved_records.saturating_mul(2)).unwrap_or(all).max(FIRST_RECORDS);
        // If there is no memory the ring stays as it is, and drops are counted.
        let _ = self.reserve_records(slot, more);
    }

    /// Reserves memory for `records` of a slot, or all it has.
    fn reserve_records(&mut self, slot: u32, records: u32) -> std::io::Result<()> {
        let records = records.min(self.shape.records(slot));
        let reserved = self.readers[slot as usize].reserved;
        if records > reserved {
            let bytes = |records: u32| u64::from(records) * RECORD_BYTES as u64;
            reserve(&self.file, self.shape.at(slot) + bytes(reserved), bytes(records - reserved))?;
            self.readers[slot as usize].reserved = records;
        }
        self.memory.word(slot_at(slot) + slot::RESERVED).fetch_max(u64::from(records), Ordering::AcqRel);
        Ok(())
    }
}

/// Programs of a tap daemon were not started by its collector: each checks its own system call filters.
fn memory_filtered(memory: &Shared, set: &Set) {
    memory.half(header::FILTERED).store(u32::from(set.is_daemon), Ordering::Relaxed);
}

/// The constants of the header, the magic number last.
fn constants(set: &Set, index: u32) -> Vec<(usize, u32)> {
    let halves = [
        (header::SLOTS, set.shape.slots),
        (header::LARGE, set.shape.large),
        (header::RECORDS, set.shape.records),
        (header::SMALL_RECORDS, set.shape.small_records),
        (header::CLOCK, set.kind),
        (header::FILTERS, set.filters),
        (header::IMAGE_BASE, index << INDEX_SHIFT),
    ];
    let words = [
        (header::PIECE_TICKS, set.piece_ticks),
        (header::FILE_BYTES, set.shape.file_bytes()),
        (header::RING, set.ring),
        (header::BOOT, set.boot[0]),
        (header::BOOT + 8, set.boot[1]),
        (header::MAGIC, layout::MAGIC),
    ];
    let split = |(at, word): (usize, u64)| [(at, word as u32), (at + 4, (word >> 32) as u32)];
    halves.into_iter().chain(words.into_iter().flat_map(split)).collect()
}

/// The further of the stored position and the file's, if both are valid.
fn further_position(written: SlotCursor, file: SlotCursor, head: u64, dropped: u64) -> SlotCursor {
    let ahead = file.tail.wrapping_sub(written.tail);
    let is_ahead = ahead > 0 && ahead <= head.wrapping_sub(written.tail);
    let dropped_reported = written.dropped_reported.max(file.dropped_reported).min(dropped);
    let from = if is_ahead { file } else { written };
    SlotCursor { dropped_reported, ..from }
}
