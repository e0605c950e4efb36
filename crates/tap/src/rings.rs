//! The rings, read: [`Rings`] makes the shared files, one a user, and turns what programs wrote there into
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
//! A file belongs to its user, and nobody else (but root) can open it: what is in it is that user's word, and is taken
//! for nothing else ([`area`]). A user whose programs have no ring yet gets one by asking ([`asking`]).
//!
//! The other end of it may crash at any point, or write anything: a record is 64 bytes read through atomics, numbers
//! are taken as they come, and a ring whose counters make no sense is emptied and counted as lost; so is a record that
//! makes none, or is dated later than it was read. Constants of a header that was written over are put back. A user who
//! makes the own file shorter ends the own tap ([`Rings::is_cut`]), and not this process.
//!
//! `reading.rs` is the reading: [`Rings::drain`] at once, [`Rings::collect`] and [`Rings::commit`] in two steps, for who
//! writes down in between what it has read. `standing.rs` takes over a ring that outlived its reader.

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
    /// 20 MB at once, 128 MB at most.
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

/// The reader of all rings of a run, of all its users. One thread uses it; it may be handed to another.
#[derive(Debug)]
pub struct Rings {
    /// By index: the user's ring files.
    areas: BTreeMap<u32, RingFile>,
    shape: Shape,
    ticks: Ticks,
    /// The number of all files together.
    ring: u64,
    /// Pairs of the clocks that were not collected yet.
    new_pairs: Vec<Pair>,
    catch_up: Option<CatchUp>,
    read_until: Timestamp,
    /// Records of one user's rings together that a round of collecting reads, as far as it can be shared out.
    budget: u64,
    /// Records that were none of ours.
    invalid_records: u64,
    /// Headers that were put right.
    headers_restored: u64,
    /// A user's file was made shorter, and is not read any more.
    cut: bool,
    /// Whose, since that was last asked for.
    cut_users: Vec<u32>,
    /// Where files of those who made the own one shorter are made anew.
    folder: Option<PathBuf>,
    /// A connection of one user is never that of another, whatever the numbers say: the users do not trust each other.
    apart: bool,
    /// Who makes rings for users that ask.
    askers: Option<RingServer>,
}

/// 2 MB of records of one user: some 5 MB as events. An agent that comes back to rings that are full reads them in several rounds.
const ROUND_RECORDS_MAX: u64 = 1 << 15;
/// 16 KB: what a ring has from the start. Most processes of a shell script write a handful.
const FIRST_RECORDS: u32 = 256;
/// So many rings of a user have it before anybody has come to use them, and so many are kept ahead of those in use.
const FIRST_SLOTS: u32 = 64;

impl Rings {
    /// Makes the ring's file in `folder`, for this user. Times will be those of `clock`. Before the first program starts.
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
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("create", &path))?;
        Rings::fill(file, &path, clock, capacity, None)
    }

    /// Makes a new file a ring. `boot`: it outlives its reader, until the machine is started anew.
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
            // Who comes to a standing ring was not started by this process: each looks which filters it is under.
            is_standing: boot.is_some(),
            filters: system_call_filters(boot.is_some()),
        };
        let area = RingFile::fill(file, path, &set, FIRST, geteuid().as_raw(), capacity.ready)?;
        Ok(Rings::of(area, set, ticks))
    }

    fn of(area: RingFile, set: Set, ticks: Ticks) -> Rings {
        let new_pairs = ticks.pairs();
        Rings {
            areas: BTreeMap::from([(area.index, area)]),
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
            apart: set.is_standing,
            askers: None,
        }
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
        let ticks = Ticks::start(clock);
        let (mut area, set) = RingFile::taken_over(file, &path, FIRST, geteuid().as_raw(), ticks.kind())?;
        area.go_on(&ReaderState::default(), false);
        Ok(Rings::of(area, set, ticks))
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

    /// Whether a user has made the own file shorter. From then on it is not read: what its programs would have said is missing,
    /// and nobody knows how much that is. Those of other users are.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Headers of rings that a program had written over, and that were put right.
    pub fn headers_restored(&self) -> u64 {
        self.headers_restored
    }

    /// Users who made the own file shorter, since this was last asked for.
    pub(crate) fn take_truncated(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.cut_users)
    }

    /// Takes new users in, puts headers right, and looks whose file is shorter than it was: it is gone afterwards.
    fn maintain(&mut self) {
        for area in self.askers.iter().flat_map(RingServer::made) {
            self.areas.insert(area.index, area);
        }
        self.headers_restored += self.areas.values_mut().map(RingFile::mend).sum::<u64>();
        let cut = self.areas.values().filter(|area| area.is_cut()).map(|area| (area.index, area.user));
        for (index, user) in cut.collect::<Vec<_>>() {
            self.areas.remove(&index);
            self.cut = true;
            self.cut_users.push(user);
            if let Some(folder) = &self.folder {
                // Programs that start from now on ask for another one; that of this user's own is asked for here.
                let _ = std::fs::remove_file(path_of(folder, user));
                if user == geteuid().as_raw() {
                    RingServer::ask(folder);
                }
            }
        }
    }

    /// From now on programs of other users get rings, as far as `policy` says. Without it, none does. Nor does one where this is not
    /// root, who alone can give a file away.
    ///
    /// # Errors
    /// The socket cannot be made, or no thread.
    pub fn let_others_ask(&mut self, folder: &Folder, policy: Policy) -> Result<()> {
        if geteuid().is_root() {
            self.askers = Some(RingServer::start(folder.path(), self.set(), Users::first(), policy)?);
        }
        Ok(())
    }

    /// What a new user's ring needs to know.
    fn set(&self) -> Set {
        let first = self.areas.values().next();
        Set {
            shape: self.shape,
            ring: self.ring,
            boot: first.map(RingFile::boot).unwrap_or_default(),
            kind: self.ticks.kind(),
            piece_ticks: self.ticks.of(PIECE).max(1),
            is_standing: self.apart,
            filters: system_call_filters(self.apart),
        }
    }

    /// The user whose ring an image is in: what the kernel says of it, and not the ring.
    pub fn user_of(&self, image: u32) -> Option<u32> {
        self.areas.get(&(image >> INDEX_SHIFT)).map(|area| area.user)
    }

    /// The files that are read: index and inode.
    pub(crate) fn files(&self) -> Vec<(u32, u64)> {
        self.areas.values().map(|area| (area.index, area.inode)).collect()
    }

    fn area(&self, number: u32) -> Option<(&RingFile, u32)> {
        Some((self.areas.get(&(number / self.shape.slots))?, number % self.shape.slots))
    }

    fn area_mut(&mut self, number: u32) -> Option<(&mut RingFile, u32)> {
        Some((self.areas.get_mut(&(number / self.shape.slots))?, number % self.shape.slots))
    }

    /// Slots that were ever claimed, of all users.
    fn used(&self) -> Vec<u32> {
        let slots = self.shape.slots;
        self.areas.values().flat_map(|area| (0..area.used).map(move |slot| area.index * slots + slot)).collect()
    }

    fn word(&self, number: u32, at: usize) -> &AtomicU64 {
        let (area, slot) = self.area(number).expect("a slot of a file that is read");
        area.memory.word(slot_at(slot) + at)
    }

    fn reader(&self, number: u32) -> &Reader {
        let (area, slot) = self.area(number).expect("a slot of a file that is read");
        &area.readers[slot as usize]
    }

    fn reader_mut(&mut self, number: u32) -> &mut Reader {
        let (area, slot) = self.area_mut(number).expect("a slot of a file that is read");
        &mut area.readers[slot as usize]
    }

    fn records(&self, number: u32) -> u32 {
        self.shape.records(number % self.shape.slots)
    }

    /// Rings in use, by their threads.
    pub fn owners(&self) -> Vec<Origin> {
        let owned = |slot: &u32| self.state(*slot).load(Ordering::Acquire) as u32 == state::OWNED;
        self.used().into_iter().filter(owned).map(|slot| self.origin(slot)).collect()
    }

    /// Process images that have said that they loaded the library, or were forked from one that had.
    pub fn images(&self) -> u32 {
        self.sum(header::IMAGES)
    }

    /// Connections that found no room in the tables of their programs, or whose descriptor is above them, so far: nothing
    /// is told of them.
    pub fn unfollowed(&self) -> u32 {
        self.sum(header::UNFOLLOWED)
    }

    fn sum(&self, at: usize) -> u32 {
        let all = self.areas.values().map(|area| area.memory.half(at).load(Ordering::Relaxed));
        all.fold(0, u32::saturating_add)
    }

    /// Records that were not understood, or dated later than they were read; told as lost. Zero, unless a program wrote over
    /// the ring.
    pub fn invalid_records(&self) -> u64 {
        self.invalid_records
    }

    /// Who has a slot, as far as that can be: an image of another user's ring is none of this one.
    fn origin(&self, number: u32) -> Origin {
        let (area, slot) = self.area(number).expect("a slot of a file that is read");
        let base = slot_at(slot);
        // First: who has said it has said the rest.
        let image = area.memory.half(base + slot::IMAGE).load(Ordering::Acquire);
        Origin {
            image: if image >> INDEX_SHIFT == area.index { image } else { 0 },
            pid: (area.memory.word(base + slot::STATE).load(Ordering::Relaxed) >> 32) as u32,
            tid: area.memory.half(base + slot::TID).load(Ordering::Relaxed),
            space: area.memory.half(base + slot::SPACE).load(Ordering::Relaxed),
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

    /// Before a slot is free: who claims it says so a moment before it says which image it is, and is not to be taken for the one before.
    fn forget_owner(&self, number: u32) {
        let (area, slot) = self.area(number).expect("a slot of a file that is read");
        area.memory.half(slot_at(slot) + slot::IMAGE).store(0, Ordering::Relaxed);
    }

    /// More memory for a ring whose thread will soon be at the end of what it has: it may not be able to ask itself.
    fn reserve_ahead(&mut self, number: u32) {
        if let Some((area, slot)) = self.area_mut(number) {
            area.reserve_ahead(slot);
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
fn system_call_filters(of_all: bool) -> u32 {
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
