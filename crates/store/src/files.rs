//! Atomic writing of files: a file is complete or does not exist.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Result, StoreError};

/// Writes `bytes` to a temporary file next to `path`, syncs it, and renames it: a reader sees the old file or the new
/// one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_for(0o666, path, bytes)
}

/// As `write_whole`, for a file that only its owner may read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_for(0o600, path, bytes)
}

/// As `write_whole`, for content that `write` makes.
pub(crate) fn write_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    let written = File::create(&unfinished).map_err(|source| StoreError::io("create", &unfinished, source));
    let outcome = written.and_then(|file| {
        let mut buffered = BufWriter::new(&file);
        let whole = write(&mut buffered).and_then(|()| buffered.flush());
        drop(buffered);
        whole.map_err(|source| StoreError::io("write", &unfinished, source))?;
        publish(&file, &unfinished, path)
    });
    if outcome.is_err() {
        discard(&unfinished);
    }
    outcome
}

/// Writes a file with `mode`, masked by the umask.
fn write_for(mode: u32, path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = unfinished(path);
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&unfinished);
    let outcome = opened.map_err(|source| StoreError::io("create", &unfinished, source)).and_then(|mut file| {
        file.write_all(bytes).map_err(|source| StoreError::io("write", &unfinished, source))?;
        publish(&file, &unfinished, path)
    });
    if outcome.is_err() {
        discard(&unfinished);
    }
    outcome
}

/// As `write_whole` without a sync: for a file that is replaced every second.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = unfinished(path);
    let outcome = fs::write(&unfinished, bytes)
        .map_err(|source| StoreError::io("write", &unfinished, source))
        .and_then(|()| fs::rename(&unfinished, path).map_err(|source| StoreError::io("rename", &unfinished, source)));
    if outcome.is_err() {
        discard(&unfinished);
    }
    outcome
}

/// Syncs a finished file and renames it to its final name.
pub(crate) fn publish(file: &File, unfinished: &Path, path: &Path) -> Result<()> {
    file.sync_all().map_err(|source| StoreError::io("fsync", unfinished, source))?;
    fs::rename(unfinished, path).map_err(|source| StoreError::io("rename", unfinished, source))?;
    // The rename is durable only after a sync of the folder.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| StoreError::io("fsync", folder, source))
}

/// The temporary name of a file until it is complete.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

/// Removes an unfinished file. A failure to remove is ignored, because it would hide the first error.
pub(crate) fn discard(unfinished: &Path) {
    let _ = fs::remove_file(unfinished);
}
