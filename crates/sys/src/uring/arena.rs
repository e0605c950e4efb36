//! Bytes being sent by the kernel.
//!
//! A send that must not wait is executed by the system call that submits it, so its bytes are needed until then, and
//! once more if the completions of that call show that not all of them were accepted. Hence two halves: one is filled
//! while the other, whose sends have been submitted, can still be read.

use std::io;
use std::ops::Range;

use super::mapping::Mapping;

/// Memory for the sends of two submissions. It is not freed before the arena is dropped, so the kernel always reads
/// valid memory.
pub(super) struct Arena {
    data: Mapping,
    half: usize,
    /// Start of the half being filled: 0 or `half`.
    base: usize,
    filled: usize,
}

impl Arena {
    /// Two halves of `half` bytes.
    pub fn new(half: usize) -> io::Result<Self> {
        Ok(Arena { data: Mapping::new(half * 2)?, half, base: 0, filled: 0 })
    }

    /// Copies `bytes` into the arena; `None` when the half is full.
    pub fn put(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        if bytes.len() > self.half - self.filled {
            return None;
        }
        let from = self.base + self.filled;
        // SAFETY: within the mapping, into which no reference exists now (the slices of `Arena::bytes` borrow the
        // arena). The kernel reads only before `from` in this half, or in the other half.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start().add(from), bytes.len()) };
        self.filled += bytes.len();
        Some(from..from + bytes.len())
    }

    /// The address of a range, for the kernel.
    pub fn pointer(&self, range: &Range<usize>) -> *const u8 {
        assert!(range.end <= self.half * 2, "a range of this arena");
        // SAFETY: within the mapping.
        unsafe { self.start().add(range.start) }
    }

    /// The bytes of a range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.half * 2, "a range of this arena");
        // SAFETY: within the mapping, whose bytes are all initialised (by the kernel, to zero); the kernel only reads
        // it.
        unsafe { std::slice::from_raw_parts(self.start().add(range.start), range.len()) }
    }

    /// The half being filled has been submitted: switches to the other one. The bytes of this one stay until the next
    /// switch.
    pub fn switch_halves(&mut self) {
        if self.filled > 0 {
            self.base = self.half - self.base;
            self.filled = 0;
        }
    }

    fn start(&self) -> *mut u8 {
        self.data.at.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_keeps_the_bytes_of_the_last_submission() {
        let mut arena = Arena::new(8).unwrap();
        let first = arena.put(b"abcde").unwrap();
        assert_eq!(arena.put(b"fghi"), None);
        let second = arena.put(b"fgh").unwrap();
        assert_eq!(arena.put(b"x"), None);
        arena.switch_halves();
        let third = arena.put(b"12345678").unwrap();
        assert_eq!((arena.bytes(first), arena.bytes(second)), (&b"abcde"[..], &b"fgh"[..]));
        arena.switch_halves();
        let fourth = arena.put(b"new").unwrap();
        assert_eq!((arena.bytes(third), arena.bytes(fourth.clone())), (&b"12345678"[..], &b"new"[..]));
        assert_eq!(arena.pointer(&fourth), arena.bytes(fourth.clone()).as_ptr());
    }
}
