//! progress.json: how a run stands while it goes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schema::{RunPhase, RunProgress};

use crate::entry::{Held, held};
use crate::{Result, StoreError, files};

/// Writes progress.json of one run, from whichever thread is the right one for it.
#[derive(Clone, Debug)]
pub struct ProgressFile {
    path: PathBuf,
}

impl ProgressFile {
    pub(crate) fn of(dir: &Path) -> Self {
        ProgressFile { path: dir.join(PROGRESS_FILE) }
    }

    /// Replaces what it says. A reader sees the one before or this one, never half of it. It is not made durable: it is of
    /// the moment, and a sync a second would cost the run more than a power cut costs it.
    ///
    /// # Errors
    /// A full disk or another failure of the file system; a figure that is not a number.
    pub fn write(&self, standing: &RunProgress) -> Result<()> {
        let mut text = serde_json::to_vec(standing).map_err(|source| StoreError::summary(&self.path, source))?;
        text.push(b'\n');
        files::write_passing(&self.path, &text)
    }
}

/// How the run in `dir` stands, or stood; `None` where nothing says so. Of a run that was killed, or could not write its end,
/// the phase is [`RunPhase::Killed`]: nobody holds its folder any more.
///
/// # Errors
/// It cannot be read, or is not one of this version.
pub fn read_progress(dir: &Path) -> Result<Option<RunProgress>> {
    let path = dir.join(PROGRESS_FILE);
    // The lock first: a run that ends between the two looks has then said so itself.
    let held = held(dir);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::io("read", &path, source)),
    };
    let mut standing: RunProgress =
        serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    if held == Held::ByNobody && standing.phase != RunPhase::Done {
        standing.phase = RunPhase::Killed;
    }
    Ok(Some(standing))
}

pub(crate) const PROGRESS_FILE: &str = "progress.json";
