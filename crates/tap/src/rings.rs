//! Reads the rings: [`Rings`] creates the shared files, one per user, and turns the programs' records into
//! [`Event`](crate::event::Event)s.
//!
//! ```text
//!   thread --> slot 0   head ->|r r r r . . .|<- tail --.
//!   thread --> slot 1          |r r . . . . .| ---------+--> drain --> Event, Event ..
//!   (none)     slot 2   free                            '-- slots of ended threads become free
//! ```
//!
//! The first slots have large rings, the others small ones; each has some memory from the start, and more as its
//! thread writes on.
//!
//! A file belongs to its user, and no other user except root can open it: its contents are trusted for that user only
//! ([`ring_file`]). A user without a ring gets one on request ([`ring_server`]).
//!
//! The writing process may crash at any point, or write anything: a record is 64 bytes read through atomics, and
//! numbers are validated. A ring with invalid counters is emptied and counted as lost; so is a record that is invalid
//! or dated later than it was read. Overwritten constants of a header are restored. A user who truncates that user's
//! file ends that user's tap ([`Rings::is_truncated`]), and not this process.
//!
//! `reading.rs` reads: [`Rings::drain`] in one step, [`Rings::collect`] and [`Rings::commit`] in two steps, for a
//! reader with a journal. `adopt.rs` adopts a ring that outlived its reader.

mod adopt;
mod clock;
mod decode;
mod guard;
mod layout;
mod pairs;
mod positions;
mod reading;
mod ring_file;
mod ring_server;
mod shared;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::geteuid;
use sys::clock::Clock;

use crate::error::{Error, Result};
use crate::event::Origin;
use crate::folder::Folder;
use clock::Ticks;
use layout::{Shape, header, slot, state};
use pairs::Pair;
use reading::CatchUp;
use ring_file::{FIRST, Reader, RingFile, Set};
use ring_server::{RingServer, Users, path_of};
use shared::Shared;
use units::Timestamp;

pub use adopt::Adoption;
pub use positions::{Positions, ReaderState};
pub(crate) use ring_file::INDEX_SHIFT;
pub use ring_server::Policy;

/// A run of one direction is reported after this time even if it has not ended: a SIGKILL can lose this much.
pub const PIECE: Duration = Duration::from_millis(100);

/// Capacity of the rings. A thread whose ring is full, or that has no ring, drops its records and counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Records of a large ring. A power of two, at least 2; a busy thread writes some 100 in a millisecond.
    pub records: u32,
    /// Number of large rings, for the first threads. At least 1.
    pub slots: u32,
    /// Number of rings of [`Capacity::SMALL_RECORDS`], or `records` if that is less, for later threads. Both numbers
    /// together are the threads that can use sockets at the same time.
    pub small_slots: u32,
    /// Number of large rings with all their memory from the start, 64 bytes a record. The others have 16 KB, and get
    /// more as they are used: then their threads wait some microseconds for it.
    pub ready: u32,
}

impl Capacity {
    /// 64 KB: what a thread writes in some milliseconds at most, and one of a thousand threads in a second.
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
    /// 24 MB immediately, 96 MB at most.
    fn default() -> Self {
        Capacity { records: 2048, slots: 256, small_slots: 1024, ready: 32 }
    }
}

/// The reader of all rings of a run, of all its users. It may be moved between threads.
#[derive(Debug)]
pub struct Rings {
    /// The ring file of each user, by index.
    ring_files: BTreeMap<u32, RingFile>,
    shape: Shape,
    ticks: Ticks,
    /// The common number of all files.
    ring: u64,
    /// Clock pairs that were not collected yet.
    new_pairs: Vec<Pair>,
    catch_up: Option<CatchUp>,
    read_until: Timestamp,
    /// Records that a round of collecting reads per user.
    budget: u64,
    /// Invalid records.
    invalid_records: u64,
    /// Restored headers.
    headers_restored: u64,
    /// Whether a user's file was truncated, and is not read any more.
    cut: bool,
    /// Users whose file was truncated, since the last query.
    cut_users: Vec<u32>,
    /// Where truncated files are recreated.
    folder: Option<PathBuf>,
    /// Whether connections of different users are separate, whatever their numbers: the users do not trust each
    /// other.
    separate_users: bool,
    /// Creates rings for users on request.
    ring_server: Option<RingServer>,
}

/// 2 MB of records of one user: some 5 MB as events. An agent that returns to full rings reads them in several
/// rounds.
const ROUND_RECORDS_MAX: u64 = 1 << 15;
/// 16 KB: the initial size of a ring. Most processes of a shell script write a handful of records.
const FIRST_RECORDS: u32 = 256;
/// Rings of a user that get their first memory before any is used, and rings kept ready ahead of those in use.
const FIRST_SLOTS: u32 = 64;

impl Rings {
    /// Creates the ring file in `folder`, for this user, before the first program starts. Times are on `clock`.
    ///
    /// # Errors
    /// The file cannot be created, or there is no memory for the initial rings.
    ///
    /// # Panics
    /// `capacity` is outside the limits of its fields.
    pub fn create(folder: &Folder, clock: Clock, capacity: Capacity) -> Result<Rings> {
        let path = folder.ring();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("create", &path))?;
        Rings::fill(file, &path, clock, capacity, None)
    }

    /// Initializes a new file as a ring. `boot`: it outlives its reader, until the machine is booted again.
    fn fill(file: File, path: &Path, clock: Clock, capacity: Capacity, boot: Option<[u64; 2]>) -> Result<Rings> {
        assert!(capacity.records.is_power_of_two() && capacity.records >= 2 && capacity.slots >= 1, "{capacity:?}");
        let ticks = Ticks::start(clock);
        let ring = std::hash::RandomState::new().hash_one(std::process::id()).max(1);
        let set = Set {
            shape: capacity.shape(),
            ring,
            boot: boot.unwrap_or_default(),
            kind: ticks.kind(),
            piece_ticks: ticks.of(PIECE).max(1),
            // Programs of a daemon's ring were not started by this process: each checks its own system call filters.
            is_daemon: boot.is_some(),
            filters: system_call_filters(boot.is_some()),
        };
        let ring_file = RingFile::fill(file, path, &set, FIRST, geteuid().as_raw(), capacity.ready)?;
        Ok(Rings::of(ring_file, set, ticks))
    }

    fn of(ring_file: RingFile, set: Set, ticks: Ticks) -> Rings {
        let new_pairs = ticks.pairs();
        Rings {
            ring_files: BTreeMap::from([(ring_file.index, ring_file)]),
            shape: set.shape,
            ticks,
            ring: set.ring,
            new_pairs,
            catch_up: None,
            read_until: Timestamp::ZERO,
            budget: ROUND_RECORDS_MAX,
            invalid_records: 0,
            headers_restored: 0,
            cut: false,
            cut_users: Vec::new(),
            folder: None,
            separate_users: set.is_daemon,
            ring_server: None,
        }
    }

    /// Creates a folder with rings, in the first location with space for both: a /dev/shm of 64 MB, as in containers,
    /// is too small for a second tap.
    ///
    /// # Errors
    /// No location has space.
    ///
    /// # Panics
    /// As [`Rings::create`].
    pub fn create_somewhere(clock: Clock, capacity: Capacity) -> Result<(Folder, Rings)> {
        Folder::create_with(|folder| {
            let rings = Rings::create(&folder, clock, capacity)?;
            Ok((folder, rings))
        })
    }

    /// Adopts the unread file that the previous image of this process created ([`crate::self_tap`]). Times are on
    /// `clock`.
    ///
    /// # Errors
    /// There is no such file, or it was not created by [`Rings::create`].
    pub fn open(folder: &Folder, clock: Clock) -> Result<Rings> {
        let path = folder.ring();
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::file("open", &path))?;
        let ticks = Ticks::start(clock);
        let (mut ring_file, set) = RingFile::adopt(file, &path, FIRST, geteuid().as_raw(), ticks.kind())?;
        ring_file.resume(&ReaderState::default(), false);
        Ok(Rings::of(ring_file, set, ticks))
    }

    /// [`Rings::images`] of a file without a reader.
    pub(crate) fn images_of(folder: &Folder) -> Result<u32> {
        let path = folder.ring();
        let mut images = [0; 4];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut images, header::IMAGES as u64))
            .map_err(Error::file("read", &path))?;
        Ok(u32::from_le_bytes(images))
    }

    /// Whether a user has truncated that user's file. From then on the file is not read, and the amount of missing
    /// records is unknown. Files of other users are still read.
    pub fn is_truncated(&self) -> bool {
        self.cut
    }

    /// Headers that a program had overwritten, and that were restored.
    pub fn headers_restored(&self) -> u64 {
        self.headers_restored
    }

    /// Users who truncated their ring file, since the last call.
    pub(crate) fn take_users_of_truncated_files(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.cut_users)
    }

    /// Adds new users, restores headers, and removes truncated files.
    fn maintain(&mut self) {
        for ring_file in self.ring_server.iter().flat_map(RingServer::created) {
            self.ring_files.insert(ring_file.index, ring_file);
        }
        self.headers_restored += self.ring_files.values_mut().map(RingFile::restore_header).sum::<u64>();
        let cut = self
            .ring_files
            .values()
            .filter(|ring_file| ring_file.is_truncated())
            .map(|ring_file| (ring_file.index, ring_file.user));
        for (index, user) in cut.collect::<Vec<_>>() {
            self.ring_files.remove(&index);
            self.cut = true;
            self.cut_users.push(user);
            if let Some(folder) = &self.folder {
                // Programs that start from now on request another file; the file of this user is requested here.
                let _ = std::fs::remove_file(path_of(folder, user));
                if user == geteuid().as_raw() {
                    RingServer::request(folder);
                }
            }
        }
    }

    /// Serves rings to programs of other users from now on, as `policy` allows. This needs root, which alone can give
    /// files away.
    ///
    /// # Errors
    /// The socket or the thread cannot be created.
    pub fn serve_other_users(&mut self, folder: &Folder, policy: Policy) -> Result<()> {
        if geteuid().is_root() {
            self.ring_server = Some(RingServer::start(folder.path(), self.set(), Users::first(), policy)?);
        }
        Ok(())
    }

    /// Common properties of a new user's ring.
    fn set(&self) -> Set {
        let first = self.ring_files.values().next();
        Set {
            shape: self.shape,
            ring: self.ring,
            boot: first.map(RingFile::boot).unwrap_or_default(),
            kind: self.ticks.kind(),
            piece_ticks: self.ticks.of(PIECE).max(1),
            is_daemon: self.separate_users,
            filters: system_call_filters(self.separate_users),
        }
    }

    /// The user whose ring an image writes to, according to the kernel.
    pub fn user_of(&self, image: u32) -> Option<u32> {
        self.ring_files.get(&(image >> INDEX_SHIFT)).map(|ring_file| ring_file.user)
    }

    /// The files that are read: index and inode.
    pub(crate) fn files(&self) -> Vec<(u32, u64)> {
        self.ring_files.values().map(|ring_file| (ring_file.index, ring_file.inode)).collect()
    }

    fn ring_file(&self, number: u32) -> Option<(&RingFile, u32)> {
        Some((self.ring_files.get(&(number / self.shape.slots))?, number % self.shape.slots))
    }

    fn ring_file_mut(&mut self, number: u32) -> Option<(&mut RingFile, u32)> {
        Some((self.ring_files.get_mut(&(number / self.shape.slots))?, number % self.shape.slots))
    }

    /// Number of slots ever claimed, of all users.
    fn used(&self) -> Vec<u32> {
        let slots = self.shape.slots;
        self.ring_files
            .values()
            .flat_map(|ring_file| (0..ring_file.used).map(move |slot| ring_file.index * slots + slot))
            .collect()
    }

    fn word(&self, number: u32, at: usize) -> &AtomicU64 {
        let (ring_file, slot) = self.ring_file(number).expect("the slot belongs to a mapped file");
        ring_file.memory.word(slot_at(slot) + at)
    }

    fn reader(&self, number: u32) -> &Reader {
        let (ring_file, slot) = self.ring_file(number).expect("the slot belongs to a mapped file");
        &ring_file.readers[slot as usize]
    }

    fn reader_mut(&mut self, number: u32) -> &mut Reader {
        let (ring_file, slot) = self.ring_file_mut(number).expect("the slot belongs to a mapped file");
        &mut ring_file.readers[slot as usize]
    }

    fn records(&self, number: u32) -> u32 {
        self.shape.records(number % self.shape.slots)
    }

    /// The threads of the rings in use.
    pub fn owners(&self) -> Vec<Origin> {
        let owned = |slot: &u32| self.state(*slot).load(Ordering::Acquire) as u32 == state::OWNED;
        self.used().into_iter().filter(owned).map(|slot| self.origin(slot)).collect()
    }

    /// Process images that reported that they loaded the library, or were forked from one.
    pub fn images(&self) -> u32 {
        self.sum(header::IMAGES)
    }

    /// Connections so far beyond the tables of their programs, by number or descriptor. They have no events.
    pub fn unfollowed(&self) -> u32 {
        self.sum(header::UNFOLLOWED)
    }

    fn sum(&self, at: usize) -> u32 {
        let all = self.ring_files.values().map(|ring_file| ring_file.memory.half(at).load(Ordering::Relaxed));
        all.fold(0, u32::saturating_add)
    }

    /// Invalid records, or records dated later than they were read; counted as lost. Zero, unless a program overwrote
    /// the ring.
    pub fn invalid_records(&self) -> u64 {
        self.invalid_records
    }

    /// The owner of a slot, if valid: images of another user's ring are rejected.
    fn origin(&self, number: u32) -> Origin {
        let (ring_file, slot) = self.ring_file(number).expect("the slot belongs to a mapped file");
        let base = slot_at(slot);
        // The image is read first: once it is set, the other fields are set.
        let image = ring_file.memory.half(base + slot::IMAGE).load(Ordering::Acquire);
        Origin {
            image: if image >> INDEX_SHIFT == ring_file.index { image } else { 0 },
            pid: (ring_file.memory.word(base + slot::STATE).load(Ordering::Relaxed) >> 32) as u32,
            tid: ring_file.memory.half(base + slot::TID).load(Ordering::Relaxed),
            space: ring_file.memory.half(base + slot::SPACE).load(Ordering::Relaxed),
        }
    }

    fn state(&self, number: u32) -> &AtomicU64 {
        self.word(number, slot::STATE)
    }

    fn free(&mut self, number: u32) {
        self.reader_mut(number).at.path.clear();
        self.forget_owner(number);
        self.state(number).store(u64::from(state::FREE), Ordering::Release);
    }

    /// Clears the image before the slot becomes free: a new owner claims the slot before it writes its image.
    fn forget_owner(&self, number: u32) {
        let (ring_file, slot) = self.ring_file(number).expect("the slot belongs to a mapped file");
        ring_file.memory.half(slot_at(slot) + slot::IMAGE).store(0, Ordering::Relaxed);
    }

    /// Reserves memory for a ring whose thread will soon need it, and may be unable to reserve it itself.
    fn reserve_ahead(&mut self, number: u32) {
        if let Some((ring_file, slot)) = self.ring_file_mut(number) {
            ring_file.reserve_ahead(slot);
        }
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

/// Ensures that memory (or disk) backs these bytes: writing to a page without backing raises SIGBUS.
fn reserve(file: &File, from: u64, bytes: u64) -> std::io::Result<()> {
    let number = |value: u64| libc::off_t::try_from(value).map_err(|_| std::io::Error::from_raw_os_error(libc::EFBIG));
    match fallocate(file.as_fd(), FallocateFlags::FALLOC_FL_KEEP_SIZE, number(from)?, number(bytes)?) {
        // A file system without fallocate. The bytes are unused so far, so zeros may be written.
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

/// Number of system call filters of this process. Every program that it starts has them too, and they allow what a
/// tap needs, such as those of a container. For programs that others start: also the filters of the first process,
/// which all have.
fn system_call_filters(of_all: bool) -> u32 {
    let filters = |status: &str| {
        let number = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        // Before Linux 5.9 they are not counted.
        number("Seccomp_filters:").or_else(|| number("Seccomp:").map(|mode: u32| mode.min(1)))
    };
    let of = |path| std::fs::read_to_string(path).ok().and_then(|status| filters(&status));
    let own_filters = of("/proc/self/status").unwrap_or(0);
    if of_all { of("/proc/1/status").map_or(own_filters, |first| first.min(own_filters)) } else { own_filters }
}

/// A page of a file, mapped like a ring.
#[cfg(test)]
pub(crate) fn map_for_test(file: &File) -> impl Sized {
    map(file, 4096).unwrap()
}

/// Empty positions of a ring.
#[cfg(test)]
pub(crate) fn positions_for_test(ring: u64) -> Positions {
    Positions { ring, ..Positions::default() }
}

#[cfg(test)]
mod tests;
