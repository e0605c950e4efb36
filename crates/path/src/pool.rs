//! Memory for packets in transit: reused buffers of four sizes.

use std::mem;

use units::Bytes;

/// Buffers by size, taken from blocks that are never freed: after the peak of a run nothing is allocated. The buffer
/// freed last is reused first, since it is still in the processor's cache; so the memory touched by packets depends on
/// the number of packets in transit, not on the number of clients.
#[derive(Debug)]
pub(crate) struct Pool {
    classes: [Class; 4],
    /// Bytes of buffers in use, in whole buffers.
    used: u64,
    limit: u64,
    /// Temporary storage of [`Pool::duplicate`].
    scratch: Vec<u8>,
}

/// A buffer in use: its class in the two upper bits, its number within the class below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(u32);

/// Buffers of one size.
#[derive(Debug)]
struct Class {
    /// Bytes of one buffer.
    size: usize,
    /// Number of buffers in a block, as a power of two.
    block_bits: u32,
    blocks: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

/// Sizes in bytes, and number of buffers (as a power of two) that are allocated together. The first fits SYNs, ACKs and
/// small requests; the second a full packet of 1500 bytes; the third ten segments, TCP's initial window; the fourth any
/// frame. No size is a power of two: buffers at such distances would compete for the same few cache sets.
const CLASSES: [(usize, u32); 4] = [(192, 10), (1_600, 6), (15_424, 3), (FRAME_MAX_ROUNDED, 0)];
const LARGE: usize = 3;
/// A vnet header and the longest IP packet (IPv6: 65,575 bytes), rounded up to a cache line.
const FRAME_MAX_ROUNDED: usize = 65_600;
const NUMBER_BITS: u32 = 30;

impl Pool {
    /// A frame up to this length is copied; for a longer one [`Pool::adopt`] is cheaper.
    pub(crate) const COPIED_MAX: usize = CLASSES[LARGE - 1].0;

    pub(crate) fn new(limit: Bytes) -> Self {
        let class = |(size, block_bits)| Class { size, block_bits, blocks: Vec::new(), free: Vec::new() };
        Pool { classes: CLASSES.map(class), used: 0, limit: limit.0, scratch: Vec::new() }
    }

    pub(crate) fn set_limit(&mut self, limit: Bytes) {
        self.limit = limit.0;
    }

    /// An empty buffer of the largest size, to read a frame into.
    pub(crate) fn staging() -> Box<[u8]> {
        vec![0; FRAME_MAX_ROUNDED].into_boxed_slice()
    }

    /// A buffer for `length` bytes, with undefined content; `None` if it would exceed the limit.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&(size, _)| length <= size)?;
        let size = CLASSES[class].0 as u64;
        if self.used + size > self.limit {
            return None;
        }
        self.used += size;
        Some(Buffer::new(class, self.classes[class].take()))
    }

    /// A buffer that holds a copy of `bytes`.
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<Buffer> {
        let buffer = self.take(bytes.len())?;
        self.bytes_mut(buffer, bytes.len()).copy_from_slice(bytes);
        Some(buffer)
    }

    /// Another buffer with the first `length` bytes of `buffer`.
    pub(crate) fn duplicate(&mut self, buffer: Buffer, length: usize) -> Option<Buffer> {
        let copy = self.take(length)?;
        // The two buffers may lie in one block, so the bytes are copied through temporary storage.
        let mut scratch = mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.bytes(buffer, length));
        self.bytes_mut(copy, length).copy_from_slice(&scratch);
        self.scratch = scratch;
        Some(copy)
    }

    /// A buffer that holds the content of `staging` (made by [`Pool::staging`]), without copying; `staging` becomes
    /// another buffer.
    pub(crate) fn adopt(&mut self, staging: &mut Box<[u8]>) -> Option<Buffer> {
        let buffer = self.take(FRAME_MAX_ROUNDED)?;
        mem::swap(&mut self.classes[LARGE].blocks[buffer.number() as usize], staging);
        Some(buffer)
    }

    /// Returns a buffer to the pool.
    #[inline]
    pub(crate) fn release(&mut self, buffer: Buffer) {
        self.used -= CLASSES[buffer.class()].0 as u64;
        self.classes[buffer.class()].free.push(buffer.number());
    }

    /// The first `length` bytes of a buffer in use.
    #[inline]
    pub(crate) fn bytes(&self, buffer: Buffer, length: usize) -> &[u8] {
        let class = &self.classes[buffer.class()];
        let (block, start) = class.place(buffer.number());
        &class.blocks[block][start..start + length]
    }

    /// The first `length` bytes of a buffer in use, to fill.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, buffer: Buffer, length: usize) -> &mut [u8] {
        let class = &mut self.classes[buffer.class()];
        let (block, start) = class.place(buffer.number());
        &mut class.blocks[block][start..start + length]
    }
}

impl Buffer {
    fn new(class: usize, number: u32) -> Self {
        Buffer((class as u32) << NUMBER_BITS | number)
    }

    fn class(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }

    fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl Class {
    #[inline]
    fn take(&mut self) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().expect("a block has just been added")
    }

    #[cold]
    fn grow(&mut self) {
        let first = (self.blocks.len() as u32) << self.block_bits;
        assert!(first < 1 << NUMBER_BITS, "the memory limit bounds the number of buffers far below 2^30");
        self.blocks.push(vec![0; self.size << self.block_bits].into_boxed_slice());
        // Highest first, so that they are used in order of address.
        self.free.extend((first..first + (1 << self.block_bits)).rev());
    }

    #[inline]
    fn place(&self, number: u32) -> (usize, usize) {
        let within = number & ((1 << self.block_bits) - 1);
        ((number >> self.block_bits) as usize, within as usize * self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pool_limit_is_exact_and_released_buffers_do_not_count() {
        let mut pool = Pool::new(Bytes(2 * 192));
        let first = pool.copy(&[1; 192]).unwrap();
        assert!(pool.copy(&[1; 193]).is_none());
        assert!(pool.copy(&[2; 1]).is_some());
        assert!(pool.copy(&[]).is_none());
        pool.release(first);
        assert_eq!(pool.copy(&[3; 9]), Some(first));
    }

    #[test]
    fn pool_duplicate_is_another_buffer_with_the_same_bytes() {
        let mut pool = Pool::new(Bytes(3 * 192));
        let first = pool.copy(&[7; 100]).unwrap();
        let second = pool.duplicate(first, 100).unwrap();
        pool.bytes_mut(first, 100).fill(9);
        assert_eq!(pool.bytes(second, 100), [7; 100]);
        assert!(pool.duplicate(second, 100).is_some() && pool.duplicate(second, 100).is_none());
    }

    #[test]
    fn pool_fits_the_longest_frame_and_rejects_a_longer_one() {
        let mut pool = Pool::new(Bytes(u64::MAX));
        assert!(pool.take(crate::frame::FRAME_MAX).is_some());
        assert!(pool.take(FRAME_MAX_ROUNDED + 1).is_none());
    }

    proptest! {
        /// No two buffers in use share a byte, whatever is taken, adopted and released. Only the ends of buffers are
        /// marked and compared, where neighbours would overlap.
        #[test]
        fn pool_buffers_in_use_do_not_overlap(
            steps in prop::collection::vec((0usize..4, 0usize..4, any::<prop::sample::Index>()), 1..100),
        ) {
            let mut pool = Pool::new(Bytes(u64::MAX));
            let mut staging = Pool::staging();
            let mut used: Vec<(Buffer, usize, u8)> = Vec::new();
            for (number, (action, class, which)) in steps.into_iter().enumerate() {
                let (length, mark) = (CLASSES[class].0 - number, number as u8);
                if action == 0 && !used.is_empty() {
                    pool.release(used.swap_remove(which.index(used.len())).0);
                    continue;
                }
                let buffer = if action == 1 { pool.adopt(&mut staging) } else { pool.take(length) }.unwrap();
                let bytes = pool.bytes_mut(buffer, length);
                (bytes[0], bytes[length - 1]) = (mark, mark);
                used.push((buffer, length, mark));
                for &(buffer, length, mark) in &used {
                    let bytes = pool.bytes(buffer, length);
                    prop_assert_eq!((bytes[0], bytes[length - 1]), (mark, mark));
                }
            }
        }
    }
}
