//! Receive buffers from which the kernel chooses when bytes arrive.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use super::mapping::Mapping;

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// A ring of free buffers, shared with the kernel, and the buffers.
pub(super) struct Buffers {
    entries: Mapping,
    data: Mapping,
    count: u16,
    each: u32,
    /// Number of free buffers given to the kernel, wrapping; published by [`Self::publish`].
    tail: u16,
}

impl Buffers {
    /// `count` (a power of two) buffers of `each` bytes, all free.
    pub fn register(ring: &IoUring, count: u16, each: u32) -> io::Result<Self> {
        if !count.is_power_of_two() || count > 1 << 15 || each == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let data = Mapping::new(usize::from(count) * each as usize)?;
        // SAFETY: the entries are page-aligned, `count` of them fit, and they stay mapped until they are unregistered
        // (or the ring is gone).
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.at.as_ptr() as u64, count, GROUP, 0)? };
        let mut buffers = Buffers { entries, data, count, each, tail: 0 };
        for number in 0..count {
            buffers.give_back(number);
        }
        buffers.publish();
        Ok(buffers)
    }

    pub fn bytes(&self, number: u16, length: usize) -> &[u8] {
        assert!(number < self.count && length <= self.each as usize, "a buffer of this ring, within its length");
        // SAFETY: within the mapping; the kernel writes to a buffer only before it completes and after it is given
        // back, and a `Buffer` is given back by value.
        unsafe {
            let start = self.data.at.as_ptr().cast::<u8>().add(usize::from(number) * self.each as usize);
            std::slice::from_raw_parts(start, length)
        }
    }

    pub fn give_back(&mut self, number: u16) {
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: `place` is below `count`; the kernel reads an entry only after the tail has passed it, and a buffer
        // that is out cannot be in the ring, so the place is free. The entries are written field by field, since the
        // first one shares its last field with the tail.
        unsafe {
            let entry = &mut *self.entries.at.as_ptr().cast::<BufRingEntry>().add(place);
            entry.set_addr(self.data.at.as_ptr() as u64 + u64::from(number) * u64::from(self.each));
            entry.set_len(self.each);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the returned buffers to the kernel.
    pub fn publish(&mut self) {
        // SAFETY: the first entry is mapped and the tail is a field of it, aligned for 16 bits; the kernel only reads it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.at.as_ptr().cast()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    pub fn unregister(&self, ring: &IoUring) {
        // A ring that is about to be closed releases them anyway.
        let _ = ring.submitter().unregister_buf_ring(GROUP);
    }
}
