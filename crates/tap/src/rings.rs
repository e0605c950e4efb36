//! The rings, read: [`Rings`] makes the shared file, and turns what programs wrote there into [`Event`]s.
//!
//! ```text
//!   thread --> slot 0   head ->|r r r r . . .|<- tail --.
//!   thread --> slot 1          |r r . . . . .| ---------+--> drain --> Event, Event ..
//!   (none)     slot 2   free                            |
//!   (none)     slot 3   absent: no memory yet           '-- slots of ended threads become free, more are made
//! ```
//!
//! The other end of it may crash at any point, or write anything: a record is 64 bytes read through atomics, numbers
//! are taken as they come, and a ring whose counters make no sense is emptied and counted as lost. What cannot be
//! helped is a program that makes the file shorter: it runs as this user and could as well send a signal.

mod clock;
mod decode;
mod layout;
mod shared;

use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use sys::clock::Clock;

use crate::error::{Error, Result};
use crate::event::{Event, Origin, What};
use crate::folder::Folder;
use clock::Ticks;
use decode::{Decoded, Record};
use layout::{RECORD_BYTES, RECORD_WORDS, header, slot, state};
use shared::Shared;

/// A run of one direction is told after this long, whether or not it has ended: what a SIGKILL can take with it.
pub const PIECE: Duration = Duration::from_millis(100);

/// How much room there is. A thread that finds its ring full, or no ring, drops what it has to tell and counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Records a ring. A power of two, at least 2; a busy thread writes some 100 in a millisecond.
    pub records: u32,
    /// Rings there can be at most: threads that live at once and use sockets. At least 1.
    pub slots: u32,
    /// Rings that stand ready. Memory is taken for these, 64 bytes a record; more follow as they are claimed.
    pub ready: u32,
}

impl Default for Capacity {
    /// 32 MB ready, 128 MB at most.
    fn default() -> Self {
        Capacity { records: 2048, slots: 1024, ready: 256 }
    }
}

/// The reader of all rings of a run. One thread uses it; it may be handed to another.
#[derive(Debug)]
pub struct Rings {
    file: File,
    memory: Shared,
    capacity: Capacity,
    ticks: Ticks,
    /// Slots from 0 that have memory.
    present: u32,
    /// By slot.
    readers: Vec<Reader>,
    unclaimed_told: u64,
    /// Records that were none of ours.
    nonsense: u64,
}

#[derive(Clone, Debug, Default)]
struct Reader {
    tail: u64,
    dropped_told: u64,
    /// Of a path in several records.
    path: Vec<u8>,
}

/// A writer does not come near the end of a ring before the collector is due, so room for this share is made ahead.
const SPARE: u32 = 4;

impl Rings {
    /// Makes the ring's file in `folder`. Times will be those of `clock`. Before the first program starts.
    ///
    /// # Errors
    /// The file cannot be made, or there is no memory for the rings that are to stand ready.
    ///
    /// # Panics
    /// `capacity` is outside of what its fields say.
    pub fn create(folder: &Folder, clock: Clock, capacity: Capacity) -> Result<Rings> {
        assert!(capacity.records.is_power_of_two() && capacity.records >= 2 && capacity.slots >= 1, "{capacity:?}");
        let path = folder.ring();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&path)
            .map_err(Error::file("create", &path))?;
        let bytes = layout::file_bytes(capacity.slots, capacity.records);
        file.set_len(bytes).map_err(Error::file("lengthen", &path))?;
        let memory = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory.into());
        let memory = memory.and_then(|bytes| Shared::map(&file, bytes)).map_err(Error::file("map", &path))?;
        // The first page, and those of the slots, before anything is written there.
        reserve(&file, 0, layout::records_at(capacity.slots)).map_err(Error::file("find memory for", &path))?;
        let ticks = Ticks::start(clock);
        memory.half(header::SLOTS).store(capacity.slots, Ordering::Relaxed);
        memory.half(header::RECORDS).store(capacity.records, Ordering::Relaxed);
        memory.half(header::CLOCK).store(ticks.kind(), Ordering::Relaxed);
        memory.word(header::PIECE_TICKS).store(ticks.of(PIECE).max(1), Ordering::Relaxed);
        memory.word(header::FILE_BYTES).store(bytes, Ordering::Relaxed);
        let readers = vec![Reader::default(); capacity.slots as usize];
        let mut rings = Rings { file, memory, capacity, ticks, present: 0, readers, unclaimed_told: 0, nonsense: 0 };
        for slot in 0..capacity.slots {
            rings.state(slot).store(u64::from(state::ABSENT), Ordering::Relaxed);
        }
        rings.add(capacity.ready.clamp(1, capacity.slots)).map_err(Error::file("find memory for", &path))?;
        rings.memory.word(header::MAGIC).store(layout::MAGIC, Ordering::Release);
        // Whatever the umask. Only now may others come.
        rings.file.set_permissions(Permissions::from_mode(0o666)).map_err(Error::file("change the mode of", &path))?;
        Ok(rings)
    }

    /// Hands out everything that was written until now, ring by ring, and says how many events that were. Every few
    /// milliseconds: a ring that is full drops.
    pub fn drain(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        self.ticks.refresh();
        let mut told = 0;
        let mut free = 0;
        for slot in 0..self.present {
            // First the state, then the head: a released slot's head is its last.
            let released = match self.state(slot).load(Ordering::Acquire) as u32 {
                state::FREE => {
                    free += 1;
                    false
                }
                now => now == state::RELEASED,
            };
            told += self.drain_slot(slot, on);
            if released {
                self.free(slot);
                free += 1;
            }
        }
        told += self.tell_unclaimed(on);
        // Others may claim a good many before the next time.
        if free < self.capacity.ready.div_ceil(SPARE) && self.present < self.capacity.slots {
            // Without memory it stays as it is, and what is dropped is counted.
            let _ = self.add(self.capacity.ready.min(self.capacity.slots - self.present));
        }
        told
    }

    /// Frees the rings of threads that are gone without having said so: killed, or ended by a call that no hook saw.
    /// `alive` is asked once for each ring in use; a ring is read to its end before it is freed. Once a second will do.
    pub fn reclaim(&mut self, alive: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> usize {
        let mut told = 0;
        for slot in 0..self.present {
            if self.state(slot).load(Ordering::Acquire) as u32 == state::OWNED && !alive(self.origin(slot)) {
                told += self.drain_slot(slot, on);
                self.free(slot);
            }
        }
        told
    }

    /// Rings in use, by their threads.
    pub fn owners(&self) -> Vec<Origin> {
        let owned = |slot: &u32| self.state(*slot).load(Ordering::Acquire) as u32 == state::OWNED;
        (0..self.present).filter(owned).map(|slot| self.origin(slot)).collect()
    }

    /// Process images that have said that they loaded the library, or were forked from one that had.
    pub fn images(&self) -> u32 {
        self.memory.half(header::IMAGES).load(Ordering::Relaxed)
    }

    /// Records that were not understood: zero, unless a program wrote over the ring.
    pub fn nonsense(&self) -> u64 {
        self.nonsense
    }

    fn drain_slot(&mut self, number: u32, on: &mut dyn FnMut(Event)) -> usize {
        let base = slot_at(number);
        let head = self.memory.word(base + slot::HEAD).load(Ordering::Acquire);
        let origin = self.origin(number);
        let mut told = 0;
        let tail = self.readers[number as usize].tail;
        let waiting = head.wrapping_sub(tail);
        let mut lost = 0;
        if waiting > u64::from(self.capacity.records) {
            // No writer of ours gets there.
            lost = u64::from(self.capacity.records);
            self.readers[number as usize].path.clear();
        } else {
            for at in 0..waiting {
                let record = self.record(number, tail.wrapping_add(at));
                if let Some(what) = self.understand(number, &record) {
                    on(Event { origin, what });
                    told += 1;
                }
            }
        }
        if waiting != 0 {
            self.readers[number as usize].tail = head;
            self.memory.word(base + slot::TAIL).store(head, Ordering::Release);
        }
        let dropped = self.memory.word(base + slot::DROPPED).load(Ordering::Relaxed);
        let reader = &mut self.readers[number as usize];
        lost += dropped.saturating_sub(reader.dropped_told);
        reader.dropped_told = dropped;
        if lost > 0 {
            on(Event { origin, what: What::Lost { records: lost } });
            told += 1;
        }
        told
    }

    fn tell_unclaimed(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        let unclaimed = self.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
        let records = unclaimed.saturating_sub(self.unclaimed_told);
        self.unclaimed_told = unclaimed;
        if records == 0 {
            return 0;
        }
        on(Event { origin: Origin { image: 0, pid: 0, tid: 0 }, what: What::Lost { records } });
        1
    }

    /// None for a part of a path that is not the last, and for nonsense.
    fn understand(&mut self, slot: u32, record: &Record) -> Option<What> {
        let part = match record.decode(&self.ticks) {
            Decoded::Whole(what) => return Some(what),
            Decoded::Path(part) => part,
            Decoded::Nonsense => {
                self.nonsense += 1;
                return None;
            }
        };
        let path = &mut self.readers[slot as usize].path;
        if part.number == 0 {
            path.clear();
        }
        // Six parts are the most that is written; a ring that says otherwise does not make this grow.
        if path.len() < PATH_BYTES_MAX {
            path.extend_from_slice(&part.text);
        }
        part.last.then(|| What::Executing {
            at: self.ticks.at(part.at),
            pid: part.pid,
            path: String::from_utf8_lossy(&std::mem::take(path)).into_owned(),
            preloaded: part.preloaded,
        })
    }

    fn record(&self, slot: u32, count: u64) -> Record {
        let at = count & u64::from(self.capacity.records - 1);
        let number = u64::from(slot) * u64::from(self.capacity.records) + at;
        let offset = (layout::records_at(self.capacity.slots) + number * RECORD_BYTES as u64) as usize;
        let mut words = [0; RECORD_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.memory.word(offset + index * 8).load(Ordering::Relaxed);
        }
        Record(words)
    }

    fn origin(&self, number: u32) -> Origin {
        let base = slot_at(number);
        Origin {
            image: self.memory.half(base + slot::IMAGE).load(Ordering::Relaxed),
            pid: (self.state(number).load(Ordering::Relaxed) >> 32) as u32,
            tid: self.memory.half(base + slot::TID).load(Ordering::Relaxed),
        }
    }

    fn state(&self, number: u32) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(slot_at(number) + slot::STATE)
    }

    fn free(&mut self, number: u32) {
        self.readers[number as usize].path.clear();
        self.state(number).store(u64::from(state::FREE), Ordering::Release);
    }

    /// Gives memory to `more` slots and frees them.
    fn add(&mut self, more: u32) -> std::io::Result<()> {
        let bytes = u64::from(self.capacity.records) * RECORD_BYTES as u64;
        let from = layout::records_at(self.capacity.slots) + u64::from(self.present) * bytes;
        reserve(&self.file, from, u64::from(more) * bytes)?;
        for slot in self.present..self.present + more {
            self.state(slot).store(u64::from(state::FREE), Ordering::Release);
        }
        self.present += more;
        Ok(())
    }
}

const PATH_BYTES_MAX: usize = 240;

fn slot_at(number: u32) -> usize {
    layout::HEADER_BYTES + number as usize * layout::SLOT_BYTES
}

/// Makes sure that there is memory (or disk) behind these bytes: writing to a page that cannot be had is SIGBUS.
fn reserve(file: &File, from: u64, bytes: u64) -> std::io::Result<()> {
    let number = |value: u64| libc::off_t::try_from(value).map_err(|_| std::io::Error::from_raw_os_error(libc::EFBIG));
    match fallocate(file.as_fd(), FallocateFlags::empty(), number(from)?, number(bytes)?) {
        // A file system without it. Nobody has written there yet, so zeros may.
        Err(Errno::EOPNOTSUPP) => {
            let zeros = [0; 4096];
            let mut at = from;
            while at < from + bytes {
                let length = (from + bytes - at).min(zeros.len() as u64);
                file.write_all_at(&zeros[..length as usize], at)?;
                at += length;
            }
            Ok(())
        }
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests;
