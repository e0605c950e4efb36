//! Entry of a run in a list.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use schema::{Document, RequestRecord};

use crate::folder::SUMMARY;
use crate::reader::count_parts;
use crate::{Brief, Result, read_plan, read_progress, read_tags};
use schema::Record;

/// A run in the run store.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The run's id: the folder's name.
    pub id: String,
    /// The run's folder.
    pub dir: PathBuf,
    /// The run's state.
    pub state: RunState,
    /// The run's tags, sorted.
    pub tags: Vec<String>,
}

/// State of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunState {
    /// Ended, with a document.
    Finished(Box<Brief>),
    /// Still running. A running run may have a document already: a capacity search writes one after every trial. The
    /// end of the run is in progress.json.
    Running {
        /// Closed parts of the requests table.
        parts: usize,
        /// Requests in the closed parts.
        rows: u64,
    },
    /// Killed, or failed at the end: there is no document.
    Unfinished {
        /// Closed parts of the requests table.
        parts: usize,
        /// Requests in the closed parts, all readable.
        rows: u64,
    },
    /// The run's document is invalid.
    Unreadable {
        /// Why the document is invalid.
        why: String,
    },
}

impl RunEntry {
    /// Reads the state of the run in `dir`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read(dir: &Path) -> Result<Self> {
        let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let state = state(&id, dir)?;
        Ok(RunEntry { id, dir: dir.to_owned(), state, tags: read_tags(dir) })
    }

    /// Start of the run as its ID has it, `yyyymmdd-hhmmss` in UTC; empty if the folder has another name.
    pub fn started(&self) -> &str {
        self.id.get(..TIMESTAMP_LENGTH).unwrap_or_default()
    }
}

/// Length of `yyyymmdd-hhmmss` at the start of a run's ID.
const TIMESTAMP_LENGTH: usize = 15;

fn state(id: &str, dir: &Path) -> Result<RunState> {
    // The lock is read first, so that a run that ends between the two reads counts as finished, not as killed.
    let running = is_running(dir);
    if running && has_unfinished_progress(dir) {
        let (parts, rows) = count_parts(dir, RequestRecord::TABLE)?;
        return Ok(RunState::Running { parts, rows });
    }
    let path = dir.join(SUMMARY);
    match fs::read_to_string(&path) {
        Ok(text) => {
            return Ok(match serde_json::from_str::<Document>(&text) {
                Ok(document) => {
                    RunState::Finished(Box::new(Brief::of(id, &document, &text, &read_plan(dir).unwrap_or_default())))
                }
                Err(source) => RunState::Unreadable { why: format!("{SUMMARY}: {source}") },
            });
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Ok(RunState::Unreadable { why: format!("{SUMMARY}: {source}") }),
    }
    let (parts, rows) = count_parts(dir, RequestRecord::TABLE)?;
    Ok(if running { RunState::Running { parts, rows } } else { RunState::Unfinished { parts, rows } })
}

/// Whether progress.json reports a phase before the end of the run.
fn has_unfinished_progress(dir: &Path) -> bool {
    read_progress(dir).is_ok_and(|progress| progress.is_some_and(|progress| !progress.phase.is_over()))
}

/// Whether the run in `dir` is still running.
pub(crate) fn is_running(dir: &Path) -> bool {
    folder_lock(dir) == FolderLock::Locked
}

/// Lock state of a run's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderLock {
    /// The process of the run has locked the folder.
    Locked,
    /// The folder is unlocked: the run has ended.
    Free,
    /// The file system has no locks, or the folder cannot be opened.
    Unknown,
}

/// Tests the lock with a shared lock, so that concurrent lists do not mistake each other for a running run.
pub(crate) fn folder_lock(dir: &Path) -> FolderLock {
    match File::open(dir).map(|dir| dir.try_lock_shared()) {
        Ok(Ok(())) => FolderLock::Free,
        Ok(Err(TryLockError::WouldBlock)) => FolderLock::Locked,
        _ => FolderLock::Unknown,
    }
}
