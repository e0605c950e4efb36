//! Memory that the kernel may read or write at any time.

use std::io;
use std::ptr::NonNull;

/// Private pages, unmapped on drop.
pub(super) struct Mapping {
    pub at: NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: the pages are owned by this value alone; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// A mapping of `length` bytes, all zero.
    pub fn new(length: usize) -> io::Result<Self> {
        let length = length.max(1);
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Mapping { at, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr(), self.length) };
    }
}
