//! A file or pipe read ahead by a thread of its own, in blocks that are used again and again.
//!
//! ```text
//!   reader: wait, read --> [block] [block] --> decoder, analysis
//!              ^-------------- [block] <-----------'
//! ```
//!
//! Every block has room before its bytes, so that what the last one left over of a record is put there and the two are
//! one slice.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use sys::signal::{Interrupts, wait_readable};
use wire::capture::BLOCK_MAX;

/// What comes next.
pub enum Block {
    /// Some of it.
    Bytes(Bytes),
    /// The end of the input.
    End,
    /// Ctrl-C; everything read before it has been handed out.
    Interrupted,
    /// It cannot be read any further.
    Failed(io::Error),
}

/// A buffer with bytes in `from..to`. Memory it never used was never touched.
pub struct Bytes {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

/// The side that takes blocks.
pub struct Blocks {
    ready: Receiver<Block>,
    empty: Sender<Bytes>,
}

impl Blocks {
    /// Waits for the next. After anything but bytes, or where the reader is gone, the end.
    pub fn next(&self) -> Block {
        self.ready.recv().unwrap_or(Block::End)
    }

    /// Gives back a block that was used up, if there is one.
    pub fn give_back(&self, block: Option<Bytes>) {
        if let Some(block) = block {
            // After the end nobody wants it.
            let _ = self.empty.send(block);
        }
    }
}

/// Reads `input` ahead while `analyse` takes blocks, until either ends.
///
/// # Errors
/// That of `analyse`, or no thread can be started.
pub fn read<T>(input: &mut File, interrupts: &Interrupts, analyse: impl FnOnce(&Blocks) -> Result<T>) -> Result<T> {
    let (ready_sender, ready) = sync_channel(AHEAD);
    let (empty, empty_receiver) = channel();
    for _ in 0..AHEAD {
        let _ = empty.send(Bytes::new());
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let ahead = move || read_ahead(input, interrupts, is_over, &ready_sender, &empty_receiver);
        thread::Builder::new().name("read".into()).spawn_scoped(scope, ahead).context("starting a thread")?;
        let _over = Over(is_over);
        analyse(&Blocks { ready, empty })
    })
}

/// Tells the reader that nobody listens any more, also when the analysis panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn read_ahead(
    input: &mut File,
    interrupts: &Interrupts,
    is_over: &AtomicBool,
    ready: &SyncSender<Block>,
    empty: &Receiver<Bytes>,
) {
    while let Ok(mut bytes) = empty.recv() {
        let last = loop {
            // A pipe may be silent for long; a file is always readable.
            while interrupts.count() == 0
                && !is_over.load(Ordering::Relaxed)
                && !wait_readable(input.as_fd(), Duration::from_millis(200))
            {}
            if interrupts.count() > 0 {
                break Block::Interrupted;
            }
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            match bytes.fill(input) {
                Ok(0) => break Block::End,
                Ok(_) => break Block::Bytes(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Block::Failed(error),
            }
        };
        let is_last = !matches!(last, Block::Bytes(_));
        if ready.send(last).is_err() || is_last {
            return;
        }
    }
}

impl Bytes {
    /// An empty one.
    pub fn new() -> Bytes {
        Bytes { buffer: vec![0; BLOCK_MAX + READ], from: BLOCK_MAX, to: BLOCK_MAX }
    }

    /// Reads once. The bytes it had are gone.
    fn fill(&mut self, input: &mut impl Read) -> io::Result<usize> {
        (self.from, self.to) = (BLOCK_MAX, BLOCK_MAX);
        let read = input.read(&mut self.buffer[BLOCK_MAX..])?;
        self.to += read;
        Ok(read)
    }

    fn get(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// What lies at a place that [`Joined::place_of`] gave.
    #[inline]
    pub fn at(&self, place: usize, length: usize) -> &[u8] {
        self.buffer.get(place..place + length).unwrap_or(&[])
    }
}

/// The bytes at hand: a block, and before it what was left over of those before it.
#[derive(Default)]
pub struct Joined(Option<Bytes>);

impl Joined {
    /// All of them.
    #[inline]
    pub fn get(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Bytes::get)
    }

    /// Drops the first `used`.
    #[inline]
    pub fn drop_first(&mut self, used: usize) {
        if let Some(bytes) = &mut self.0 {
            bytes.from += used;
        }
    }

    /// Adds a block, of which at most [`BLOCK_MAX`] bytes are wanted before; gives back the one that is free now, if one is.
    /// What is copied is linear in what is added. Whatever was handed out of the block at hand stays where it is in it.
    pub fn append(&mut self, mut block: Bytes) -> Appended {
        let Some(mut bytes) = self.0.take() else {
            self.0 = Some(block);
            return Appended::First;
        };
        let (left, added) = (bytes.to - bytes.from, block.to - block.from);
        let fits_behind = bytes.to + added <= bytes.buffer.len();
        if (added < left && fits_behind) || left > block.from {
            bytes.buffer[bytes.to..][..added].copy_from_slice(block.get());
            bytes.to += added;
            self.0 = Some(bytes);
            return Appended::Copied(block);
        }
        block.from -= left;
        block.buffer[block.from..][..left].copy_from_slice(bytes.get());
        self.0 = Some(block);
        Appended::Replaced(bytes)
    }

    /// Where in the block at hand `bytes`, a part of [`Joined::get`], lie.
    #[inline]
    pub fn place_of(&self, bytes: &[u8]) -> usize {
        let start = self.0.as_ref().map_or(0, |block| block.buffer.as_ptr() as usize);
        (bytes.as_ptr() as usize).saturating_sub(start)
    }

    /// What lies at such a place.
    #[inline]
    pub fn at(&self, place: usize, length: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |block| block.at(place, length))
    }
}

/// What became of the block at hand when another was added.
pub enum Appended {
    /// There was none.
    First,
    /// It took the other's bytes; the other is free.
    Copied(Bytes),
    /// The other took its place and its last bytes.
    Replaced(Bytes),
}

/// Bytes asked for at once: as many as the caches hold beside what the analysis works on.
const READ: usize = 256 << 10;
/// Blocks that are read before they are wanted.
const AHEAD: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes of `input`, in blocks as `reads` cuts them, dropped in steps of `step`.
    fn joined(input: &[u8], reads: usize, step: usize) -> Vec<u8> {
        let (mut joined, mut spare, mut out) = (Joined::default(), vec![Bytes::new(), Bytes::new()], Vec::new());
        for piece in input.chunks(reads) {
            let mut block = spare.pop().expect("there are two");
            block.fill(&mut &*piece).unwrap();
            if let Appended::Copied(block) | Appended::Replaced(block) = joined.append(block) {
                spare.push(block);
            }
            while joined.get().len() >= step {
                out.extend_from_slice(&joined.get()[..step]);
                joined.drop_first(step);
            }
        }
        out.extend_from_slice(joined.get());
        out
    }

    #[test]
    fn records_across_blocks_are_joined() {
        let input: Vec<u8> = (0..3 * READ as u32 + 17).map(|number| (number * 7 + number / 251) as u8).collect();
        for (reads, step) in [(READ, 94), (READ, 300_000), (1000, 7), (1000, 200_000), (READ / 2 + 1, READ + 3)] {
            assert!(joined(&input, reads, step) == input, "reads of {reads}, records of {step}");
        }
        let long: Vec<u8> = (0..4 * BLOCK_MAX as u32).map(|number| (number / 3) as u8).collect();
        assert!(joined(&long, READ, BLOCK_MAX) == long);
        assert!(joined(&long, 60_000, BLOCK_MAX) == long);
    }
}
