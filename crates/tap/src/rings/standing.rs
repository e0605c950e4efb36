//! A ring that outlives its readers: made once a boot, and taken over by whoever reads it next.
//!
//! Where the reader that comes goes on is the further of what the one before had written down and of what the file
//! says: the file is behind by a round when that one was killed before its commit, and the writing when it was lost.

use std::sync::atomic::Ordering;

use sys::clock::Clock;

use super::layout::{header, slot};
use super::positions::Place;
use super::{Capacity, ReaderState, Rings, Ticks, layout, slot_at};
use crate::error::{Error, Result};
use crate::folder::StandingFolder;

/// What became of the ring that was, or was not, there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There was none.
    Nothing,
    /// It goes on.
    Adopted,
    /// It was made anew: the old one was of another boot, version or capacity, or somebody has spoilt it. Programs that have it go on with
    /// it, and nobody hears of them any more.
    Replaced,
}

impl Rings {
    /// Takes over the ring of a standing folder, or makes it. `before` is what the reader before has written down. Times will be those of
    /// `clock`: [`Clock::of_boot`], or they mean nothing to the reader that comes next.
    ///
    /// # Errors
    /// It can be neither taken over nor made: there is no room, or the boot's name cannot be read.
    ///
    /// # Panics
    /// As [`Rings::create`].
    pub fn adopt(
        folder: &StandingFolder,
        clock: Clock,
        capacity: Capacity,
        before: Option<&ReaderState>,
    ) -> Result<(Rings, Found)> {
        let boot = boot().map_err(Error::file("read", "/proc/sys/kernel/random/boot_id".as_ref()))?;
        let there = folder.ring_file()?;
        let is_there = there.is_some();
        if let Some(file) = there {
            let known = before.filter(|before| ring_of(&file).is_some_and(|ring| ring == before.ring()));
            let ticks = known.map_or_else(|| Ticks::start(clock), |known| Ticks::resume(clock, known.pairs()));
            if let Ok(mut rings) = Rings::taken_over(file, &folder.ring(), ticks)
                && rings.boot() == boot
                && rings.shape == capacity.shape()
            {
                rings.go_on(known);
                return Ok((rings, Found::Adopted));
            }
        }
        let file = folder.new_ring_file()?;
        let rings = Rings::fill(file, &folder.ring(), clock, capacity, Some(boot))?;
        folder.place_ring()?;
        Ok((rings, if is_there { Found::Replaced } else { Found::Nothing }))
    }

    /// The file's number.
    pub fn ring(&self) -> u64 {
        self.ring
    }

    fn boot(&self) -> [u64; 2] {
        [0, 1].map(|part| self.memory.word(header::BOOT + part * 8).load(Ordering::Relaxed))
    }

    /// Puts the readers where the one before has come to, and gives the writers the room of what it had.
    fn go_on(&mut self, before: Option<&ReaderState>) {
        for number in 0..self.shape.slots {
            let word = |at| self.memory.word(slot_at(number) + at).load(Ordering::Acquire);
            let file = Place { tail: word(slot::TAIL), dropped_told: word(slot::DROPPED_TOLD), path: Vec::new() };
            let at = match before.map(|before| before.place(number)) {
                Some(written) => further(written, file, word(slot::HEAD), word(slot::DROPPED)),
                None => file,
            };
            self.memory.word(slot_at(number) + slot::TAIL).store(at.tail, Ordering::Release);
            self.readers[number as usize].at = at;
        }
        let unclaimed = self.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
        let told = self.memory.word(header::UNCLAIMED_TOLD).load(Ordering::Relaxed);
        let written = before.map_or(0, ReaderState::unclaimed_told);
        self.unclaimed_told = told.max(written).min(unclaimed);
    }
}

/// The further of two places, if both can be.
fn further(written: Place, file: Place, head: u64, dropped: u64) -> Place {
    let ahead = file.tail.wrapping_sub(written.tail);
    let is_ahead = ahead > 0 && ahead <= head.wrapping_sub(written.tail);
    let dropped_told = written.dropped_told.max(file.dropped_told).min(dropped);
    let from = if is_ahead { file } else { written };
    Place { dropped_told, ..from }
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

/// The boot's name, as two numbers.
fn boot() -> std::io::Result<[u64; 2]> {
    let id = sys::clock::boot_id().map_err(std::io::Error::other)?;
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    let part = |from: usize| digits.get(from..from + 16).and_then(|half| u64::from_str_radix(half, 16).ok());
    part(0).zip(part(16)).map(|(a, b)| [a, b]).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
