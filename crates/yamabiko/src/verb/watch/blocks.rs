//! Reads a file or pipe ahead on a separate thread, in blocks that are reused.
//!
//! ```text
//!   reader: wait, read --> [block] [block] --> decoder, analysis
//!              ^-------------- [block] <-----------'
//! ```
//!
//! Every block has free space before its bytes. The rest of a record that began in the previous block is copied there,
//! so that the record is one slice.

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

/// The next part of the input.
pub enum Block {
    /// Bytes of the input.
    Bytes(Bytes),
    /// The end of the input.
    End,
    /// Ctrl-C. All bytes read before it were delivered.
    Interrupted,
    /// The input cannot be read any further.
    Failed(io::Error),
}

/// A buffer with bytes in `from..to`.
pub struct Bytes {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

/// Receives the blocks of the reading thread.
pub struct Blocks {
    ready: Receiver<Block>,
    empty: Sender<Bytes>,
}

impl Blocks {
    /// Waits for the next block. After anything but [`Block::Bytes`] the result is [`Block::End`].
    pub fn next(&self) -> Block {
        self.ready.recv().unwrap_or(Block::End)
    }

    /// Returns a used block to the reading thread for reuse.
    pub fn reuse(&self, block: Option<Bytes>) {
        if let Some(block) = block {
            // At the end the reading thread no longer exists.
            let _ = self.empty.send(block);
        }
    }
}

/// Reads `input` ahead while `analyse` receives blocks, until either ends.
///
/// # Errors
/// The error of `analyse`, or no thread can be started.
pub fn read<T>(input: &mut File, interrupts: &Interrupts, analyse: impl FnOnce(&Blocks) -> Result<T>) -> Result<T> {
    let (ready_sender, ready) = sync_channel(BLOCKS_AHEAD);
    let (empty, empty_receiver) = channel();
    for _ in 0..BLOCKS_AHEAD {
        let _ = empty.send(Bytes::new());
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let ahead = move || read_ahead(input, interrupts, is_over, &ready_sender, &empty_receiver);
        thread::Builder::new().name("read".into()).spawn_scoped(scope, ahead).context("starting a thread")?;
        let _over = SetOnDrop(is_over);
        analyse(&Blocks { ready, empty })
    })
}

/// Sets the flag that ends the reading thread, even if the analysis panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
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
            // A pipe may have no data for long; a file is always readable.
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
    /// An empty buffer. Pages of it that are never used take no memory.
    pub fn new() -> Bytes {
        Bytes { buffer: vec![0; BLOCK_MAX + READ_BYTES], from: BLOCK_MAX, to: BLOCK_MAX }
    }

    /// Replaces the bytes by those of one read.
    fn fill(&mut self, input: &mut impl Read) -> io::Result<usize> {
        (self.from, self.to) = (BLOCK_MAX, BLOCK_MAX);
        let read = input.read(&mut self.buffer[BLOCK_MAX..])?;
        self.to += read;
        Ok(read)
    }

    fn get(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// `length` bytes at an offset that [`Joined::offset_of`] returned.
    #[inline]
    pub fn at(&self, offset: usize, length: usize) -> &[u8] {
        self.buffer.get(offset..offset + length).unwrap_or(&[])
    }
}

/// The unread bytes: a block, preceded by the unread rest of the previous block.
#[derive(Default)]
pub struct Joined(Option<Bytes>);

impl Joined {
    /// All unread bytes.
    #[inline]
    pub fn get(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Bytes::get)
    }

    /// Removes the first `used` bytes.
    #[inline]
    pub fn drop_first(&mut self, used: usize) {
        if let Some(bytes) = &mut self.0 {
            bytes.from += used;
        }
    }

    /// Appends a block to at most [`BLOCK_MAX`] unread bytes, and returns the block that is free now. The copied bytes
    /// are linear in the appended ones. Bytes of the current block keep their offset in it.
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

    /// Offset of `bytes`, a part of [`Joined::get`], in the current block.
    #[inline]
    pub fn offset_of(&self, bytes: &[u8]) -> usize {
        let start = self.0.as_ref().map_or(0, |block| block.buffer.as_ptr() as usize);
        (bytes.as_ptr() as usize).saturating_sub(start)
    }

    /// `length` bytes at an offset that [`Joined::offset_of`] returned.
    #[inline]
    pub fn at(&self, offset: usize, length: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |block| block.at(offset, length))
    }
}

/// The block that became free when a block was appended.
pub enum Appended {
    /// None: the appended block is the first.
    First,
    /// The appended block: its bytes were copied into the current block.
    Copied(Bytes),
    /// The previous block: its unread bytes were copied into the appended block.
    Replaced(Bytes),
}

/// Bytes of one read: they fit into the CPU's caches together with the data of the analysis.
const READ_BYTES: usize = 256 << 10;
/// Blocks that are read ahead.
const BLOCKS_AHEAD: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes of `input`, in blocks as `reads` cuts them, dropped in steps of `step`.
    fn joined(input: &[u8], reads: usize, step: usize) -> Vec<u8> {
        let (mut joined, mut spare, mut out) = (Joined::default(), vec![Bytes::new(), Bytes::new()], Vec::new());
        for piece in input.chunks(reads) {
            let mut block = spare.pop().expect("at most two blocks are in use");
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
        let input: Vec<u8> = (0..3 * READ_BYTES as u32 + 17).map(|number| (number * 7 + number / 251) as u8).collect();
        for (reads, step) in
            [(READ_BYTES, 94), (READ_BYTES, 300_000), (1000, 7), (1000, 200_000), (READ_BYTES / 2 + 1, READ_BYTES + 3)]
        {
            assert!(joined(&input, reads, step) == input, "reads of {reads}, records of {step}");
        }
        let long: Vec<u8> = (0..4 * BLOCK_MAX as u32).map(|number| (number / 3) as u8).collect();
        assert!(joined(&long, READ_BYTES, BLOCK_MAX) == long);
        assert!(joined(&long, 60_000, BLOCK_MAX) == long);
    }
}
