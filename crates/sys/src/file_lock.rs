//! An exclusive lock on a file (flock(2)) that ends when its value is dropped.
//!
//! Closing the file does not release the lock while a duplicate of the descriptor is open, and a child process has one
//! between fork and exec. So the lock is released explicitly.

use std::fs::{File, TryLockError};

/// A locked file. The kernel also releases the lock when the process ends.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks `file`, without waiting.
    ///
    /// # Errors
    /// `WouldBlock`: another process, or another open file of this process, has the lock. Otherwise those of flock(2).
    pub fn exclusive(file: File) -> Result<FileLock, (File, TryLockError)> {
        match file.try_lock() {
            Ok(()) => Ok(FileLock(file)),
            Err(error) => Err((file, error)),
        }
    }

    /// The locked file.
    pub fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A failure leaves the lock to the kernel.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_lock_releases_it_although_a_duplicate_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::create(folder.path().join("lock")).unwrap();
        let mut lock = FileLock::exclusive(open()).unwrap();
        let (_, error) = FileLock::exclusive(open()).unwrap_err();
        assert!(matches!(error, TryLockError::WouldBlock), "{error}");
        // What a child process has between fork and exec.
        let duplicate = lock.file().try_clone().unwrap();
        drop(lock);
        FileLock::exclusive(open()).unwrap();
        drop(duplicate);
    }
}
