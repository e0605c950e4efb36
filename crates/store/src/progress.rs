//! progress.json: the snapshot of a run that is under way; shards.json: that of all shards of its load.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schema::{RunPhase, RunProgress, ShardsProgress};

use crate::entry::{FolderLock, folder_lock};
use crate::{Result, StoreError, files};

/// Writes progress.json of one run, from any thread.
#[derive(Clone, Debug)]
pub struct ProgressFile {
    path: PathBuf,
}

impl ProgressFile {
    pub(crate) fn of(dir: &Path) -> Self {
        ProgressFile { path: dir.join(PROGRESS_FILE) }
    }

    /// Replaces the file atomically: a reader sees the previous or the new snapshot. The file is not synced: a sync a
    /// second would cost the run more than a power cut.
    ///
    /// # Errors
    /// A full disk or another failure of the file system; a figure that is not a number.
    pub fn write(&self, progress: &RunProgress) -> Result<()> {
        let mut text = serde_json::to_vec(progress).map_err(|source| StoreError::summary(&self.path, source))?;
        text.push(b'\n');
        files::write_unsynced(&self.path, &text)
    }
}

/// The last snapshot of the run in `dir`; `None` without progress.json. The phase is [`RunPhase::Killed`] if no process
/// has locked the folder and progress.json does not report the end.
///
/// # Errors
/// The file cannot be read, or is invalid.
pub fn read_progress(dir: &Path) -> Result<Option<RunProgress>> {
    let path = dir.join(PROGRESS_FILE);
    // The lock is read first: a run that ends between the two reads has written its end by the second read.
    let lock = folder_lock(dir);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::io("read", &path, source)),
    };
    let mut progress: RunProgress =
        serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    if lock == FolderLock::Free && progress.phase != RunPhase::Done {
        progress.phase = RunPhase::Killed;
    }
    Ok(Some(progress))
}

/// Replaces shards.json of the run in `dir` atomically, and does not sync it, as [`ProgressFile::write`].
///
/// # Errors
/// A full disk or another failure of the file system; a figure that is not a number.
pub fn write_shards_progress(dir: &Path, shards: &ShardsProgress) -> Result<()> {
    let path = dir.join(SHARDS_FILE);
    let mut text = serde_json::to_vec(shards).map_err(|source| StoreError::summary(&path, source))?;
    text.push(b'\n');
    files::write_unsynced(&path, &text)
}

/// The last snapshot of all shards of the load of the run in `dir`, and when it was written; `None` without shards.json.
///
/// # Errors
/// The file cannot be read, is invalid, or is too long to be one.
pub fn read_shards_progress(dir: &Path) -> Result<Option<(ShardsProgress, SystemTime)>> {
    let path = dir.join(SHARDS_FILE);
    let read = || -> io::Result<(Vec<u8>, SystemTime)> {
        let file = fs::File::open(&path)?;
        let written = file.metadata()?.modified()?;
        let mut text = Vec::new();
        file.take(SHARDS_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > SHARDS_BYTES_MAX {
            let why = format!("expected at most {SHARDS_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok((text, written))
    };
    let (text, written) = match read() {
        Ok(found) => found,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::io("read", &path, source)),
    };
    let shards = serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    Ok(Some((shards, written)))
}

/// When progress.json of the run in `dir` was last written, if it was.
pub fn progress_written(dir: &Path) -> Option<SystemTime> {
    fs::metadata(dir.join(PROGRESS_FILE)).and_then(|found| found.modified()).ok()
}

pub(crate) const PROGRESS_FILE: &str = "progress.json";
const SHARDS_FILE: &str = "shards.json";
/// Most bytes of shards.json: ten thousand shards, each with a reason of 500 characters.
const SHARDS_BYTES_MAX: u64 = 32 << 20;
