//! The rings, read: [`Rings`] makes the shared file, and turns what programs wrote there into
//! [`Event`](crate::event::Event)s.
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
//!
//! `reading.rs` is the reading: [`Rings::drain`] at once, [`Rings::collect`] and [`Rings::commit`] in two steps, for who
//! writes down in between what it has read. `standing.rs` takes over a ring that outlived its reader.

mod clock;
mod decode;
mod guard;
mod layout;
mod pairs;
mod positions;
mod reading;
mod shared;
mod standing;

use std::fs::{File, OpenOptions, Permissions};
use std::hash::BuildHasher as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use sys::clock::Clock;

use crate::error::{Error, Result};
use crate::event::Origin;
use crate::folder::Folder;
use clock::Ticks;
use layout::{RECORD_BYTES, Shape, header, slot, state};
use pairs::Pair;
use positions::Place;
use shared::Shared;

pub use positions::{Positions, ReaderState};
pub use standing::Found;

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

    /// For a ring that waits while its agent is away: 512 KB for each of 128 threads, as much as some 2,000 exchanges, and 64 KB for 1,024 more.
    /// 20 MB at once, 128 MB at most; an agent that comes back to rings that are all full reads 2 million records in one round.
    pub const fn standing() -> Self {
        Capacity { records: 8192, slots: 128, small_slots: 1024, ready: 4 }
    }

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
    /// The file's number.
    ring: u64,
    /// By slot.
    readers: Vec<Reader>,
    unclaimed_told: u64,
    /// Pairs of the clocks that were not collected yet.
    new_pairs: Vec<Pair>,
    /// Records that were none of ours.
    nonsense: u64,
    cut: bool,
}

#[derive(Clone, Debug, Default)]
struct Reader {
    at: Place,
    /// Records from the ring's begin that this has made sure of memory for.
    reserved: u32,
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
        let path = folder.ring();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&path)
            .map_err(Error::file("create", &path))?;
        Rings::fill(file, &path, clock, capacity, None)
    }

    /// Makes a new file a ring. `boot`: it outlives its reader, until the machine is started anew.
    fn fill(file: File, path: &Path, clock: Clock, capacity: Capacity, boot: Option<[u64; 2]>) -> Result<Rings> {
        assert!(capacity.records.is_power_of_two() && capacity.records >= 2 && capacity.slots >= 1, "{capacity:?}");
        let shape = capacity.shape();
        let bytes = shape.file_bytes();
        file.set_len(bytes).map_err(Error::file("lengthen", path))?;
        let memory = map(&file, bytes).map_err(Error::file("map", path))?;
        // The first page, and those of the slots, before anything is written there.
        reserve(&file, 0, shape.records_at()).map_err(Error::file("find memory for", path))?;
        let ticks = Ticks::start(clock);
        let ring = std::hash::RandomState::new().hash_one(std::process::id()).max(1);
        memory.half(header::SLOTS).store(shape.slots, Ordering::Relaxed);
        memory.half(header::LARGE).store(shape.large, Ordering::Relaxed);
        memory.half(header::RECORDS).store(shape.records, Ordering::Relaxed);
        memory.half(header::SMALL_RECORDS).store(shape.small_records, Ordering::Relaxed);
        // Who comes to a standing ring was not started by this process: each looks which filters it is under.
        memory.half(header::FILTERED).store(u32::from(boot.is_some()), Ordering::Relaxed);
        memory.half(header::FILTERS).store(own_filters(boot.is_some()), Ordering::Relaxed);
        memory.half(header::CLOCK).store(ticks.kind(), Ordering::Relaxed);
        memory.word(header::PIECE_TICKS).store(ticks.of(PIECE).max(1), Ordering::Relaxed);
        memory.word(header::FILE_BYTES).store(bytes, Ordering::Relaxed);
        memory.word(header::RING).store(ring, Ordering::Relaxed);
        for (number, part) in boot.unwrap_or_default().into_iter().enumerate() {
            memory.word(header::BOOT + number * 8).store(part, Ordering::Relaxed);
        }
        let readers = vec![Reader::default(); shape.slots as usize];
        let mut rings = Rings::of(file, memory, shape, ticks, readers);
        for slot in 0..shape.slots {
            let first = if slot < capacity.ready { shape.records(slot) } else { FIRST_RECORDS };
            rings.make_room(slot, first).map_err(Error::file("find memory for", path))?;
        }
        rings.memory.word(header::MAGIC).store(layout::MAGIC, Ordering::Release);
        // Whatever the umask. Only now may others come.
        rings.file.set_permissions(Permissions::from_mode(0o666)).map_err(Error::file("change the mode of", path))?;
        Ok(rings)
    }

    fn of(file: File, memory: Shared, shape: Shape, ticks: Ticks, readers: Vec<Reader>) -> Rings {
        let ring = memory.word(header::RING).load(Ordering::Relaxed);
        let new_pairs = ticks.pairs();
        Rings { file, memory, shape, ticks, ring, readers, unclaimed_told: 0, new_pairs, nonsense: 0, cut: false }
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
        let mut rings = Rings::taken_over(file, &path, Ticks::start(clock))?;
        for number in 0..rings.shape.slots {
            let tail = rings.memory.word(slot_at(number) + slot::TAIL).load(Ordering::Acquire);
            rings.readers[number as usize].at = Place { tail, ..Place::default() };
        }
        Ok(rings)
    }

    /// The file, mapped, with readers that have read nothing.
    fn taken_over(file: File, path: &Path, ticks: Ticks) -> Result<Rings> {
        let bytes = file.metadata().map_err(Error::file("look at", path))?.len();
        let nonsense = || Error::file("read", path)(std::io::ErrorKind::InvalidData.into());
        if bytes < layout::HEADER_BYTES as u64 {
            return Err(nonsense());
        }
        let memory = map(&file, bytes).map_err(Error::file("map", path))?;
        let shape = shape_of(&memory);
        let magic = memory.word(header::MAGIC).load(Ordering::Acquire);
        let kind = memory.half(header::CLOCK).load(Ordering::Acquire);
        if magic != layout::MAGIC || !shape.is_sane() || shape.file_bytes() != bytes || kind != ticks.kind() {
            return Err(nonsense());
        }
        let room = |number| memory.word(slot_at(number) + slot::ROOM).load(Ordering::Acquire);
        let reserved = |number| u32::try_from(room(number)).unwrap_or(u32::MAX).min(shape.records(number));
        let reader = |number| Reader { at: Place::default(), reserved: reserved(number) };
        let readers = (0..shape.slots).map(reader).collect();
        Ok(Rings::of(file, memory, shape, ticks, readers))
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

    fn origin(&self, number: u32) -> Origin {
        let base = slot_at(number);
        Origin {
            // First: who has said it has said the rest.
            image: self.memory.half(base + slot::IMAGE).load(Ordering::Acquire),
            pid: (self.state(number).load(Ordering::Relaxed) >> 32) as u32,
            tid: self.memory.half(base + slot::TID).load(Ordering::Relaxed),
            space: self.memory.half(base + slot::SPACE).load(Ordering::Relaxed),
        }
    }

    fn state(&self, number: u32) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(slot_at(number) + slot::STATE)
    }

    fn free(&mut self, number: u32) {
        self.readers[number as usize].at.path.clear();
        self.forget_owner(number);
        self.state(number).store(u64::from(state::FREE), Ordering::Release);
    }

    /// Before a slot is free: who claims it says so a moment before it says which image it is, and is not to be taken for the one before.
    fn forget_owner(&self, number: u32) {
        self.memory.half(slot_at(number) + slot::IMAGE).store(0, Ordering::Relaxed);
    }

    /// More memory for a ring whose thread will soon be at the end of what it has: it may not be able to ask itself.
    fn keep_ahead(&mut self, slot: u32) {
        let room = self.memory.word(slot_at(slot) + slot::ROOM).load(Ordering::Relaxed);
        let all = self.shape.records(slot);
        if room >= u64::from(all) || self.readers[slot as usize].at.tail < room / 2 {
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

fn map(file: &File, bytes: u64) -> std::io::Result<Shared> {
    let bytes = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    Shared::map(file, bytes)
}

fn shape_of(memory: &Shared) -> Shape {
    let half = |at| memory.half(at).load(Ordering::Acquire);
    Shape {
        slots: half(header::SLOTS),
        large: half(header::LARGE),
        records: half(header::RECORDS),
        small_records: half(header::SMALL_RECORDS),
    }
}

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
/// needs: a container's mostly. For programs that others start: those of the first process as well, which all have.
fn own_filters(of_all: bool) -> u32 {
    let filters = |status: &str| {
        let number = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        // Before Linux 5.9 they are not counted.
        number("Seccomp_filters:").or_else(|| number("Seccomp:").map(|mode: u32| mode.min(1)))
    };
    let of = |path| std::fs::read_to_string(path).ok().and_then(|status| filters(&status));
    let own = of("/proc/self/status").unwrap_or(0);
    if of_all { of("/proc/1/status").map_or(own, |first| first.min(own)) } else { own }
}

/// A page of a file, mapped as a ring is.
#[cfg(test)]
pub(crate) fn map_for_test(file: &File) -> impl Sized {
    map(file, 4096).unwrap()
}

/// Positions of a ring in which nothing was read.
#[cfg(test)]
pub(crate) fn positions_for_test(ring: u64) -> Positions {
    Positions { ring, ..Positions::default() }
}

#[cfg(test)]
mod tests;
