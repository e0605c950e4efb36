//! One run as a list shows it.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use ledger::{Document, RequestRecord};

use crate::folder::SUMMARY;
use crate::reader::count_parts;
use crate::table::Row;
use crate::{Result, read_summary};

/// A run in the book.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// Its id: the folder's name.
    pub id: String,
    /// Its folder.
    pub dir: PathBuf,
    /// How far it came.
    pub state: RunState,
}

/// How far a run came.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunState {
    /// It ended and left its document.
    Finished(Box<Document>),
    /// It goes on at this moment.
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
        Ok(RunEntry { id, dir: dir.to_owned(), state: state(dir)? })
    }
}

fn state(dir: &Path) -> Result<RunState> {
    // The lock first: a run that ends between the two looks is then seen as finished, not as killed.
    let running = locked(dir);
    if dir.join(SUMMARY).exists() {
        return Ok(match read_summary(dir) {
            Ok(document) => RunState::Finished(Box::new(document)),
            Err(error) => RunState::Unreadable { why: error.to_string() },
        });
    }
    let (parts, rows) = count_parts(dir, RequestRecord::TABLE)?;
    Ok(if running { RunState::Running { parts, rows } } else { RunState::Unfinished { parts, rows } })
}

fn locked(dir: &Path) -> bool {
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
