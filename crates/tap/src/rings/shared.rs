//! Memory that other processes write to at any time: accessed through atomics only, word by word, so that no
//! behaviour here is undefined.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::guard::Guard;

/// A shared read-write mapping of a file.
#[derive(Debug)]
pub struct Shared {
    // Drop order: after the unmapping another mapping may use the addresses, which must not be guarded then.
    guard: Guard,
    mapping: Mapping,
}

#[derive(Debug)]
struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread, and is accessed through atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Shared {
    /// Maps the first `bytes` of `file`. Truncated parts read as zeros.
    pub fn map(file: &File, bytes: usize) -> io::Result<Shared> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice, of a descriptor that is open during the call.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(at.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mapping = Mapping { memory, bytes };
        let guard = Guard::new(at as usize, bytes)?;
        // Keeps the ring out of core dumps.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
        Ok(Shared { guard, mapping })
    }

    /// Whether truncated parts were read.
    pub fn is_truncated(&self) -> bool {
        self.guard.is_truncated()
    }

    /// The 8 bytes at `offset`, which must be a multiple of 8 and inside.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= self.mapping.bytes));
        // SAFETY: inside the mapping, which is page-aligned and exists as long as `self`; all bit patterns are numbers.
        unsafe { self.mapping.memory.add(offset).cast().as_ref() }
    }

    /// The 4 bytes at `offset`, which must be a multiple of 4 and inside.
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset.checked_add(4).is_some_and(|end| end <= self.mapping.bytes));
        // SAFETY: as in `word`.
        unsafe { self.mapping.memory.add(offset).cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `Shared::map`; references into it do not outlive that.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
