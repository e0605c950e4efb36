//! Files that are there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Result, StoreError};

/// Writes `bytes` beside `path`, makes them durable, then renames: a reader sees the old file or the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_for(0o666, path, bytes)
}

/// The same, and only its owner may read it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_for(0o600, path, bytes)
}

/// `mode`: less what the umask takes.
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

/// The same without making anything durable: for what the next second replaces.
pub(crate) fn write_passing(path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = unfinished(path);
    let outcome = fs::write(&unfinished, bytes)
        .map_err(|source| StoreError::io("write", &unfinished, source))
        .and_then(|()| fs::rename(&unfinished, path).map_err(|source| StoreError::io("rename", &unfinished, source)));
    if outcome.is_err() {
        discard(&unfinished);
    }
    outcome
}

/// Makes a finished file durable under its own name.
pub(crate) fn publish(file: &File, unfinished: &Path, path: &Path) -> Result<()> {
    file.sync_all().map_err(|source| StoreError::io("fsync", unfinished, source))?;
    fs::rename(unfinished, path).map_err(|source| StoreError::io("rename", unfinished, source))?;
    // The rename itself is durable only once the folder is.
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| StoreError::io("fsync", folder, source))
}

/// The name a file bears until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

/// Removes what could not be finished. Its own failure would only hide the error that led here.
pub(crate) fn discard(unfinished: &Path) {
    let _ = fs::remove_file(unfinished);
}
