//! Rings that outlive their readers: created once per boot, and adopted by the next reader.
//!
//! The next reader resumes at the further of the stored position and that of the file: the file is behind by a round
//! if the previous reader was killed before its commit, and the stored position is behind if it was lost.

use std::sync::atomic::Ordering;

use sys::clock::Clock;

use nix::unistd::geteuid;

use super::layout::header;
use super::ring_file::{FIRST, RingFile, Set};
use super::ring_server::{Policy, RingServer, Users, path_of};
use super::{Capacity, ReaderState, Rings, Ticks, layout};
use crate::error::{Error, Result};
use crate::folder::DaemonFolder;

/// How the rings were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// No rings existed; new rings were created.
    Nothing,
    /// Existing rings were adopted.
    Adopted,
    /// The rings were recreated: the existing ones were of another boot, version or capacity, or invalid. Programs that
    /// have mapped the old rings still write to them, unread.
    Replaced,
}

impl Rings {
    /// Adopts the rings of a daemon folder, or creates them. `before` has the stored positions of the previous
    /// reader. Times are on `clock`, which must be [`Clock::of_boot`] to be valid for the next reader. Programs of
    /// other users get rings on request.
    ///
    /// # Errors
    /// The rings can be neither adopted nor created: no space, or the boot identifier is unreadable.
    ///
    /// # Panics
    /// As [`Rings::create`].
    pub fn adopt(
        folder: &DaemonFolder,
        clock: Clock,
        capacity: Capacity,
        before: Option<&ReaderState>,
    ) -> Result<(Rings, Adoption)> {
        let boot = boot().map_err(Error::file("read", "/proc/sys/kernel/random/boot_id".as_ref()))?;
        let there = folder.ring_file()?;
        let is_there = there.is_some();
        if let Some(file) = there {
            let known = before.filter(|before| ring_of(&file).is_some_and(|ring| ring == before.ring()));
            let ticks = known.map_or_else(|| Ticks::start(clock), |known| Ticks::resume(clock, known.pairs()));
            let users = Users::read(folder.path());
            let tap_user = geteuid().as_raw();
            let first = users.index.get(&tap_user).copied().unwrap_or(FIRST);
            if let Ok((ring_file, set)) = RingFile::adopt(file, &folder.ring(), first, tap_user, ticks.kind())
                && set.boot == boot
                && set.shape == capacity.shape()
            {
                // The header's field of filters is written by users.
                let mut rings = Rings::of(ring_file, Set { is_daemon: true, ..set }, ticks);
                rings.resume(folder, users, known)?;
                return Ok((rings, Adoption::Adopted));
            }
        }
        folder.remove_user_rings();
        let file = folder.new_ring_file()?;
        let mut rings = Rings::fill(file, &folder.ring(), clock, capacity, Some(boot))?;
        Users::first().write(folder.path())?;
        folder.install_ring()?;
        rings.ring_server = Some(RingServer::start(folder.path(), rings.set(), Users::first(), Policy::AllPrograms)?);
        rings.folder = Some(folder.path().to_owned());
        Ok((rings, if is_there { Adoption::Replaced } else { Adoption::Nothing }))
    }

    /// The common number of all files.
    pub fn ring(&self) -> u64 {
        self.ring
    }

    /// Adopts the files of other users, sets the readers to the previous positions, and gives writers the memory
    /// reserved so far.
    fn resume(&mut self, folder: &DaemonFolder, mut users: Users, before: Option<&ReaderState>) -> Result<()> {
        let set = self.set();
        let tap_user = geteuid().as_raw();
        let others: Vec<(u32, u32)> =
            users.index.iter().filter(|(user, _)| **user != tap_user).map(|(user, index)| (*user, *index)).collect();
        for (user, index) in others {
            let path = path_of(folder.path(), user);
            // An invalid file is recreated on request.
            match folder.users_ring_file(user).and_then(|file| RingFile::of_set(file, &path, &set, index, user)) {
                Ok(ring_file) => drop(self.ring_files.insert(index, ring_file)),
                Err(_) => drop((users.index.remove(&user), std::fs::remove_file(&path))),
            }
        }
        let nothing = ReaderState::default();
        for ring_file in self.ring_files.values_mut() {
            ring_file.resume(before.unwrap_or(&nothing), before.is_some());
        }
        let reported = self.unclaimed_reported();
        let written = before.map_or(0, ReaderState::unclaimed_reported);
        if let Some(ring_file) = self.ring_files.values_mut().next() {
            let unclaimed = ring_file.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
            ring_file.unclaimed_reported =
                ring_file.unclaimed_reported.saturating_add(written.saturating_sub(reported)).min(unclaimed);
        }
        self.ring_server = Some(RingServer::start(folder.path(), set, users, Policy::AllPrograms)?);
        self.folder = Some(folder.path().to_owned());
        Ok(())
    }
}

/// The number of a file that may be a ring.
fn ring_of(file: &std::fs::File) -> Option<u64> {
    use std::os::unix::fs::FileExt as _;
    let mut number = [0; 8];
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, header::MAGIC as u64).ok()?;
    file.read_exact_at(&mut number, header::RING as u64).ok()?;
    (u64::from_ne_bytes(magic) == layout::MAGIC).then_some(u64::from_ne_bytes(number))
}

/// The boot identifier as two numbers.
fn boot() -> std::io::Result<[u64; 2]> {
    let id = sys::clock::boot_id().map_err(std::io::Error::other)?;
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    let part = |from: usize| digits.get(from..from + 16).and_then(|half| u64::from_str_radix(half, 16).ok());
    part(0).zip(part(16)).map(|(a, b)| [a, b]).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
