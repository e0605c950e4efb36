//! One run as a list shows it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use schema::{Document, RequestRecord};

use crate::folder::SUMMARY;
use crate::reader::count_parts;
use crate::{Brief, Result, StoreError, read_plan, read_progress, read_tags};
use schema::Record;

/// A run in the book.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// Its id: the folder's name.
    pub id: String,
    /// Its folder.
    pub dir: PathBuf,
    /// How far it came.
    pub state: RunState,
    /// Words that a person gave it, sorted.
    pub tags: Vec<String>,
}

/// How far a run came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunState {
    /// It ended and left its document.
    Finished(Box<Brief>),
    /// It goes on at this moment. It may have a document already: a search for a capacity writes one after every trial, which is
    /// its end only when the standing says so.
    Running {
        /// Closed parts of its requests.
        parts: usize,
        /// Requests in them.
        rows: u64,
    },
    /// It was killed, or could not write its end: there is no document.
    Unfinished {
        /// Closed parts of its requests.
        parts: usize,
        /// Requests in them, all readable.
        rows: u64,
    },
    /// Its document is not one this version can read.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

impl RunEntry {
    /// Looks at a run's folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn look(dir: &Path) -> Result<Self> {
        let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let state = state(&id, dir)?;
        Ok(RunEntry { id, dir: dir.to_owned(), state, tags: read_tags(dir) })
    }
}

fn state(id: &str, dir: &Path) -> Result<RunState> {
    // The lock first: a run that ends between the two looks is then seen as finished, not as killed.
    let running = goes_on(dir);
    if running && says_it_goes_on(dir) {
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
                Err(source) => RunState::Unreadable { why: StoreError::summary(&path, source).to_string() },
            });
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Ok(RunState::Unreadable { why: StoreError::io("read", &path, source).to_string() }),
    }
    let (parts, rows) = count_parts(dir, RequestRecord::TABLE)?;
    Ok(if running { RunState::Running { parts, rows } } else { RunState::Unfinished { parts, rows } })
}

/// Whether progress.json says that there is more to come, whatever else is in the folder.
fn says_it_goes_on(dir: &Path) -> bool {
    read_progress(dir).is_ok_and(|standing| standing.is_some_and(|standing| !standing.phase.is_over()))
}

/// Whether the run in `dir` goes on at this moment.
pub(crate) fn goes_on(dir: &Path) -> bool {
    held(dir) == Held::ByARun
}

/// Whether a run has its folder still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// A process makes it.
    ByARun,
    /// It ended, however it did.
    ByNobody,
    /// The file system has no locks, or the folder cannot be opened.
    Unknown,
}

/// Shared, so that two lists made at once do not take each other for a run.
pub(crate) fn held(dir: &Path) -> Held {
    match File::open(dir).map(|dir| dir.try_lock_shared()) {
        Ok(Ok(())) => Held::ByNobody,
        Ok(Err(TryLockError::WouldBlock)) => Held::ByARun,
        _ => Held::Unknown,
    }
}
