//! The file components: open, stat, read, close.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sys::file::Root;

use super::refused;
use super::rounds::{LocalRound, Meter, Repetitions, blocks_read, rounds};
use crate::spec::{ServeError, open_root, system};

/// Repeats the operation for a file of one size. With `read` its content is read; without, only its size.
pub(super) fn hot(
    folder: &Path,
    bytes: usize,
    read: bool,
    repetitions: Repetitions,
) -> Result<Vec<LocalRound>, ServeError> {
    let files = TemporaryFiles::new(folder, bytes, 1)?;
    let root = open_root(folder)?;
    let mut content = Vec::with_capacity(bytes);
    let name = files.names[0].as_bytes();
    rounds(repetitions, || take(&root, name, bytes, read, &mut content))
}

/// Files outside of the page cache: each is read once, and then all are evicted again, which is not counted.
///
/// Whether they came from a device is in the rounds' `blocks_read`: it stays 0 on a file system in memory, or if
/// another program keeps them cached.
pub(super) fn cold(folder: &Path, bytes: usize, repetitions: Repetitions) -> Result<Vec<LocalRound>, ServeError> {
    let files = TemporaryFiles::new(folder, bytes, COLD_FILES)?;
    let root = open_root(folder)?;
    let mut content = Vec::with_capacity(bytes);
    let mut meter = Meter::new();
    let mut made = Vec::new();
    for _ in 0..repetitions.rounds {
        meter.reset();
        let blocks = blocks_read()?;
        while meter.count == 0 || meter.cpu() < repetitions.each && meter.count < COLD_MAX {
            files.forget()?;
            for name in &files.names {
                meter.begin();
                let taken = take(&root, name.as_bytes(), bytes, true, &mut content);
                meter.end();
                taken?;
                meter.count += 1;
            }
        }
        made.push(LocalRound { blocks_read: blocks_read()?.saturating_sub(blocks), ..meter.round() });
    }
    Ok(made)
}

/// Files read before they are evicted again.
const COLD_FILES: usize = 32;
/// Limit of a round on a slow disk, independent of its CPU time.
const COLD_MAX: u64 = 512;

/// openat2, fstat, optional read, close.
fn take(root: &Root, name: &[u8], bytes: usize, read: bool, content: &mut Vec<u8>) -> Result<(), ServeError> {
    let file = root.open_file(name).map_err(system("openat2"))?;
    let length = file.metadata().map_err(system("fstat"))?.len();
    let mut taken = length;
    if read {
        content.clear();
        taken = file.take(length).read_to_end(content).map_err(system("read"))? as u64;
    }
    if taken == bytes as u64 { Ok(()) } else { Err(refused("the file changed while it was read")) }
}

/// Temporary files, removed when dropped.
struct TemporaryFiles<'a> {
    folder: &'a Path,
    names: Vec<String>,
}

impl<'a> TemporaryFiles<'a> {
    fn new(folder: &'a Path, bytes: usize, count: usize) -> Result<Self, ServeError> {
        let own = std::process::id();
        let mut made = TemporaryFiles { folder, names: Vec::new() };
        for number in 0..count {
            let name = format!("yamabiko-part-{own}-{bytes}-{number}");
            // Only new files are created, and only created files are removed.
            let mut file = File::create_new(folder.join(&name)).map_err(system("create the file of a component"))?;
            made.names.push(name);
            file.write_all(&vec![b'x'; bytes]).map_err(system("write the file of a component"))?;
            // Dirty pages cannot be evicted.
            file.sync_all().map_err(system("fsync"))?;
        }
        Ok(made)
    }

    /// Evicts the files from the page cache.
    fn forget(&self) -> Result<(), ServeError> {
        for name in &self.names {
            let file = File::open(self.folder.join(name)).map_err(system("open"))?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(system("posix_fadvise"))?;
        }
        Ok(())
    }
}

impl Drop for TemporaryFiles<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}
