//! progress.json: the snapshot of a run that is under way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schema::{RunPhase, RunProgress};

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

pub(crate) const PROGRESS_FILE: &str = "progress.json";
