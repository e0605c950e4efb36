//! Bytes that are on their way into the kernel.
//!
//! A send that must not wait is executed by the very system call that submits it, so its bytes are needed until then,
//! and once more when the completions of that call have told that not all of them were taken. Hence two halves: one is
//! filled while the other, whose sends have been submitted, can still be read.

use std::io;
use std::ops::Range;

use super::mapping::Mapping;

/// Room for the sends of two submissions. Nothing in it is ever freed before it is dropped, so that whatever the kernel
/// reads, it reads memory of ours.
pub(super) struct Arena {
    data: Mapping,
    half: usize,
    /// The half being filled begins here: 0 or `half`.
    base: usize,
    filled: usize,
}

impl Arena {
    /// Two halves of `half` bytes.
    pub fn new(half: usize) -> io::Result<Self> {
        Ok(Arena { data: Mapping::new(half * 2)?, half, base: 0, filled: 0 })
    }

    /// Copies `bytes` in; `None` when the half is full.
    pub fn put(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        if bytes.len() > self.half - self.filled {
            return None;
        }
        let from = self.base + self.filled;
        // SAFETY: within the mapping, which no reference of ours is into at this moment (`bytes` of `Arena::bytes` borrow
        // the arena). What the kernel reads lies before `from` in this half, or in the other half.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start().add(from), bytes.len()) };
        self.filled += bytes.len();
        Some(from..from + bytes.len())
    }

    /// Where a range begins, for the kernel.
    pub fn pointer(&self, range: &Range<usize>) -> *const u8 {
        assert!(range.end <= self.half * 2, "a range of this arena");
        // SAFETY: within the mapping.
        unsafe { self.start().add(range.start) }
    }

    /// What is in a range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.half * 2, "a range of this arena");
        // SAFETY: within the mapping, whose bytes are all initialised (by the kernel, to zero); the kernel only reads it.
        unsafe { std::slice::from_raw_parts(self.start().add(range.start), range.len()) }
    }

    /// Everything in the half being filled has been submitted: the other one is filled next. What is in this one stays
    /// until the next turn-over.
    pub fn turn_over(&mut self) {
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
    fn what_was_submitted_last_can_still_be_read() {
        let mut arena = Arena::new(8).unwrap();
        let first = arena.put(b"abcde").unwrap();
        assert_eq!(arena.put(b"fghi"), None);
        let second = arena.put(b"fgh").unwrap();
        assert_eq!(arena.put(b"x"), None);
        arena.turn_over();
        let third = arena.put(b"12345678").unwrap();
        assert_eq!((arena.bytes(first), arena.bytes(second)), (&b"abcde"[..], &b"fgh"[..]));
        arena.turn_over();
        let fourth = arena.put(b"new").unwrap();
        assert_eq!((arena.bytes(third), arena.bytes(fourth.clone())), (&b"12345678"[..], &b"new"[..]));
        assert_eq!(arena.pointer(&fourth), arena.bytes(fourth.clone()).as_ptr());
    }
}
