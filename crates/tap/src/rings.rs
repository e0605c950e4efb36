//! The rings, read: [`Rings`] makes the shared file, and turns what programs wrote there into [`Event`]s.
//!
//! ```text
//!   thread --> slot 0   head ->|r r r r . . .|<- tail --.
//!   thread --> slot 1          |r r . . . . .| ---------+--> drain --> Event, Event ..
//!   (none)     slot 2   free                            '-- slots of ended threads become free
//! ```
//!
//! The first slots have large rings, the others small ones; each has a little memory from the start, and more when its
//! thread has come so far.
//!
//! The other end of it may crash at any point, or write anything: a record is 64 bytes read through atomics, numbers
//! are taken as they come, and a ring whose counters make no sense is emptied and counted as lost; so is a record that
//! makes none, or is dated later than it was read. A program that makes the file shorter ends the tap
//! ([`Rings::is_cut`]), and not this process.

mod clock;
mod decode;
mod guard;
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
use layout::{RECORD_BYTES, RECORD_WORDS, Shape, header, slot, state};
use shared::Shared;

/// A run of one direction is told after this long, whether or not it has ended: what a SIGKILL can take with it.
pub const PIECE: Duration = Duration::from_millis(100);

/// How much room there is. A thread that finds its ring full, or no ring, drops what it has to tell and counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Records a large ring. A power of two, at least 2; a busy thread writes some 100 in a millisecond.
    pub records: u32,
    /// Large rings, had by those who come first. At least 1.
    pub slots: u32,
    /// Rings of [`Capacity::SMALL_RECORDS`], or `records` if that is less, for those who come when all large ones are
    /// taken. Both together are the threads that can live at once and use sockets.
    pub small_slots: u32,
    /// Large rings that have all their memory from the start, 64 bytes a record. The others have 16 KB, and more as they
    /// are used: then their threads wait some microseconds for it.
    pub ready: u32,
}

impl Capacity {
    /// 64 KB: what a thread writes in some milliseconds at most, and one of a thousand in a second.
    pub const SMALL_RECORDS: u32 = 1024;

    fn shape(self) -> Shape {
        Shape {
            slots: self.slots + self.small_slots,
            large: self.slots,
            records: self.records,
            small_records: self.records.min(Capacity::SMALL_RECORDS),
        }
    }
}

impl Default for Capacity {
    /// 24 MB ready, 96 MB at most.
    fn default() -> Self {
        Capacity { records: 2048, slots: 256, small_slots: 1024, ready: 32 }
    }
}

/// The reader of all rings of a run. One thread uses it; it may be handed to another.
#[derive(Debug)]
pub struct Rings {
    file: File,
    memory: Shared,
    shape: Shape,
    ticks: Ticks,
    /// By slot.
    readers: Vec<Reader>,
    unclaimed_told: u64,
    /// Records that were none of ours.
    nonsense: u64,
    cut: bool,
}

#[derive(Clone, Debug, Default)]
struct Reader {
    tail: u64,
    dropped_told: u64,
    /// Records from the ring's begin that this has made sure of memory for.
    reserved: u32,
    /// Of a path in several records.
    path: Vec<u8>,
}

/// 16 KB: what every ring has from the start. Most processes of a shell script write a handful.
const FIRST_RECORDS: u32 = 256;

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
        let shape = capacity.shape();
        let path = folder.ring();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&path)
            .map_err(Error::file("create", &path))?;
        let bytes = shape.file_bytes();
        file.set_len(bytes).map_err(Error::file("lengthen", &path))?;
        let memory = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory.into());
        let memory = memory.and_then(|bytes| Shared::map(&file, bytes)).map_err(Error::file("map", &path))?;
        // The first page, and those of the slots, before anything is written there.
        reserve(&file, 0, shape.records_at()).map_err(Error::file("find memory for", &path))?;
        let ticks = Ticks::start(clock);
        memory.half(header::SLOTS).store(shape.slots, Ordering::Relaxed);
        memory.half(header::LARGE).store(shape.large, Ordering::Relaxed);
        memory.half(header::RECORDS).store(shape.records, Ordering::Relaxed);
        memory.half(header::SMALL_RECORDS).store(shape.small_records, Ordering::Relaxed);
        memory.half(header::FILTERS).store(own_filters(), Ordering::Relaxed);
        memory.half(header::CLOCK).store(ticks.kind(), Ordering::Relaxed);
        memory.word(header::PIECE_TICKS).store(ticks.of(PIECE).max(1), Ordering::Relaxed);
        memory.word(header::FILE_BYTES).store(bytes, Ordering::Relaxed);
        let readers = vec![Reader::default(); shape.slots as usize];
        let mut rings = Rings { file, memory, shape, ticks, readers, unclaimed_told: 0, nonsense: 0, cut: false };
        for slot in 0..shape.slots {
            let first = if slot < capacity.ready { shape.records(slot) } else { FIRST_RECORDS };
            rings.make_room(slot, first).map_err(Error::file("find memory for", &path))?;
        }
        rings.memory.word(header::MAGIC).store(layout::MAGIC, Ordering::Release);
        // Whatever the umask. Only now may others come.
        rings.file.set_permissions(Permissions::from_mode(0o666)).map_err(Error::file("change the mode of", &path))?;
        Ok(rings)
    }

    /// Makes a folder and the rings in it, in the first place that has room for both: a /dev/shm of 64 MB, as containers have
    /// it, has none for a second tap.
    ///
    /// # Errors
    /// No place will do.
    ///
    /// # Panics
    /// As [`Rings::create`].
    pub fn create_somewhere(clock: Clock, capacity: Capacity) -> Result<(Folder, Rings)> {
        Folder::create_with(|folder| {
            let rings = Rings::create(&folder, clock, capacity)?;
            Ok((folder, rings))
        })
    }

    /// Takes over the file that an image of this process before this one made ([`crate::own`]), and has not read. Times will
    /// be those of `clock`.
    ///
    /// # Errors
    /// There is no such file, or it is none of [`Rings::create`].
    pub fn open(folder: &Folder, clock: Clock) -> Result<Rings> {
        let path = folder.ring();
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::file("open", &path))?;
        let bytes = file.metadata().map_err(Error::file("look at", &path))?.len();
        let nonsense = || Error::file("read", &path)(std::io::ErrorKind::InvalidData.into());
        if bytes < layout::HEADER_BYTES as u64 {
            return Err(nonsense());
        }
        let memory = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory.into());
        let memory = memory.and_then(|bytes| Shared::map(&file, bytes)).map_err(Error::file("map", &path))?;
        let half = |at| memory.half(at).load(Ordering::Acquire);
        let shape = Shape {
            slots: half(header::SLOTS),
            large: half(header::LARGE),
            records: half(header::RECORDS),
            small_records: half(header::SMALL_RECORDS),
        };
        let ticks = Ticks::start(clock);
        let magic = memory.word(header::MAGIC).load(Ordering::Acquire);
        if magic != layout::MAGIC || shape.file_bytes() != bytes || half(header::CLOCK) != ticks.kind() {
            return Err(nonsense());
        }
        let word = |slot, at| memory.word(slot_at(slot) + at).load(Ordering::Acquire);
        let reader = |slot| Reader {
            tail: word(slot, slot::TAIL),
            reserved: u32::try_from(word(slot, slot::ROOM)).unwrap_or(u32::MAX),
            ..Reader::default()
        };
        let readers = (0..shape.slots).map(reader).collect();
        Ok(Rings { file, memory, shape, ticks, readers, unclaimed_told: 0, nonsense: 0, cut: false })
    }

    /// [`Rings::images`] of a file that nobody reads yet.
    pub(crate) fn images_of(folder: &Folder) -> Result<u32> {
        let path = folder.ring();
        let mut images = [0; 4];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut images, header::IMAGES as u64))
            .map_err(Error::file("read", &path))?;
        Ok(u32::from_le_bytes(images))
    }

    /// Hands out everything that was written until now, ring by ring, and says how many events that were. Every few
    /// milliseconds: a ring that is full drops.
    pub fn drain(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        self.ticks.refresh();
        if self.look_for_a_cut() {
            return 0;
        }
        let mut told = 0;
        for slot in 0..self.used() {
            // First the state, then the head: a released slot's head is its last.
            let state = self.state(slot).load(Ordering::Acquire) as u32;
            told += self.drain_slot(slot, on);
            match state {
                state::RELEASED => self.free(slot),
                state::OWNED => self.keep_ahead(slot),
                _ => {}
            }
        }
        told + self.tell_unclaimed(on)
    }

    /// Whether a program has made the file shorter. From then on nothing is read: what it would have said is missing, and
    /// nobody knows how much that is.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn look_for_a_cut(&mut self) -> bool {
        let is_shorter = || self.file.metadata().is_ok_and(|file| file.len() < self.shape.file_bytes());
        self.cut = self.cut || self.memory.is_cut() || is_shorter();
        self.cut
    }

    /// Slots that were ever claimed are below this.
    fn used(&self) -> u32 {
        self.memory.half(header::SLOTS_USED).load(Ordering::Acquire).min(self.shape.slots)
    }

    /// Frees the rings of threads that are gone without having said so: killed, or ended by a call that no hook saw.
    /// `alive` is asked once for each ring in use; a ring is read to its end before it is freed. Once a second will do.
    pub fn reclaim(&mut self, alive: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> usize {
        let mut told = 0;
        for slot in 0..if self.cut { 0 } else { self.used() } {
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
        (0..self.used()).filter(owned).map(|slot| self.origin(slot)).collect()
    }

    /// Process images that have said that they loaded the library, or were forked from one that had.
    pub fn images(&self) -> u32 {
        self.memory.half(header::IMAGES).load(Ordering::Relaxed)
    }

    /// Connections that found no room in the tables of their programs, or whose descriptor is above them, so far: nothing
    /// is told of them.
    pub fn unfollowed(&self) -> u32 {
        self.memory.half(header::UNFOLLOWED).load(Ordering::Relaxed)
    }

    /// Records that were not understood, or dated later than they were read; told as lost. Zero, unless a program wrote over
    /// the ring.
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
        if waiting > u64::from(self.shape.records(number)) {
            // No writer of ours gets there.
            lost = u64::from(self.shape.records(number));
            self.readers[number as usize].path.clear();
        } else if waiting > 0 {
            let nonsense = self.nonsense;
            // What is there was written before the head was read.
            let latest = self.ticks.latest();
            for at in 0..waiting {
                let record = self.record(number, tail.wrapping_add(at));
                if let Some(what) = self.understand(number, &record, latest) {
                    on(Event { origin, what });
                    told += 1;
                }
            }
            lost += self.nonsense - nonsense;
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
    fn understand(&mut self, slot: u32, record: &Record, latest: u64) -> Option<What> {
        let decoded = if record.ends() <= latest { record.decode(&self.ticks) } else { Decoded::Nonsense };
        let part = match decoded {
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
        let at = count & u64::from(self.shape.records(slot) - 1);
        let offset = (self.shape.at(slot) + at * RECORD_BYTES as u64) as usize;
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

    /// More memory for a ring whose thread will soon be at the end of what it has: it may not be able to ask itself.
    fn keep_ahead(&mut self, slot: u32) {
        let room = self.memory.word(slot_at(slot) + slot::ROOM).load(Ordering::Relaxed);
        let all = self.shape.records(slot);
        if room >= u64::from(all) || self.readers[slot as usize].tail < room / 2 {
            return;
        }
        let more = u32::try_from(room.saturating_mul(2)).unwrap_or(all);
        // Without memory it stays as it is, and what is dropped is counted.
        let _ = self.make_room(slot, more);
    }

    /// Makes sure that there is memory for `records` of a slot, or all it has.
    fn make_room(&mut self, slot: u32, records: u32) -> std::io::Result<()> {
        let records = records.min(self.shape.records(slot));
        let reserved = self.readers[slot as usize].reserved;
        if records > reserved {
            let bytes = |records: u32| u64::from(records) * RECORD_BYTES as u64;
            reserve(&self.file, self.shape.at(slot) + bytes(reserved), bytes(records - reserved))?;
            self.readers[slot as usize].reserved = records;
        }
        self.memory.word(slot_at(slot) + slot::ROOM).fetch_max(u64::from(records), Ordering::AcqRel);
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
    match fallocate(file.as_fd(), FallocateFlags::FALLOC_FL_KEEP_SIZE, number(from)?, number(bytes)?) {
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

/// Filters on the system calls of this process. Every program it starts has them too, and they let through what a tap
/// needs: a container's mostly.
fn own_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    // Before Linux 5.9 they are not counted.
    number("Seccomp_filters:").or_else(|| number("Seccomp:").map(|mode: u32| mode.min(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
