//! Incremental reading of a table during its run.

use std::io::ErrorKind;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::decode::Input;
use crate::writer::part_path;
use crate::{Result, StoreError};
use schema::Record;

/// A reader that returns the rows since the last poll, for small tables of a few rows a second (series, distributions):
/// all new rows are in memory.
///
/// ```text
///   requests/000001 000002 ..   each is read once        <- poll, poll, ..
///   requests.parquet            replaces them: all rows  <- poll
/// ```
///
/// A poll without new rows costs one failed `open`. If the finished table replaces parts between two polls, their rows
/// are not lost: the poll returns all rows of the table, and [`Fresh::replaces_earlier`] is set: the caller must
/// discard the rows of earlier polls.
#[derive(Debug)]
pub struct Tail<R: Record> {
    dir: PathBuf,
    /// Number of parts read.
    parts: u32,
    /// The finished table was read: no more rows follow.
    whole: bool,
    /// The error of a poll that also had rows; the next poll returns it.
    trouble: Option<StoreError>,
    row: PhantomData<fn() -> R>,
}

/// Result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh<R> {
    /// New rows.
    pub rows: Vec<R>,
    /// The rows are all rows of the finished table, and replace the provisional rows of earlier polls.
    pub replaces_earlier: bool,
}

impl<R: Record> Tail<R> {
    /// A tail of the run in `dir`, from the first row on.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Tail { dir: dir.into(), parts: 0, whole: false, trouble: None, row: PhantomData }
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the finished table was read, so that no poll returns more rows.
    pub fn is_at_end(&self) -> bool {
        self.whole
    }

    /// The new rows; empty if the table does not exist.
    ///
    /// # Errors
    /// A part, or the table, cannot be read. The error is returned once, and the file is not read again. Rows before it
    /// were returned by the previous poll, rows after it follow with the next.
    pub fn poll(&mut self) -> Result<Fresh<R>> {
        let mut rows = Vec::new();
        if self.whole {
            return Ok(Fresh { rows, replaces_earlier: false });
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        if let Some(whole) = self.finished(&mut rows)? {
            return Ok(whole);
        }
        let folder = self.dir.join(R::TABLE);
        while let Some(read) = if_exists(Input::open(&part_path(&folder, self.parts + 1))).transpose() {
            self.parts += 1;
            if let Err(error) = read.and_then(|input| read_all(&input, &mut rows)) {
                self.trouble.get_or_insert(error);
            }
        }
        // The finished table may have replaced the parts meanwhile: the next poll returns it.
        Ok(Fresh { rows, replaces_earlier: false })
    }

    /// All rows of the finished table, if it exists.
    fn finished(&mut self, rows: &mut Vec<R>) -> Result<Option<Fresh<R>>> {
        let Some(input) = if_exists(Input::open(&self.dir.join(format!("{}.parquet", R::TABLE))))? else {
            return Ok(None);
        };
        self.whole = true;
        read_all(&input, rows)?;
        Ok(Some(Fresh { rows: std::mem::take(rows), replaces_earlier: self.parts > 0 }))
    }
}

fn read_all<R: Record>(input: &Input, rows: &mut Vec<R>) -> Result<()> {
    (0..input.groups()).try_for_each(|group| input.read_group(group, rows))
}

/// Converts the error of a missing file to `None`.
fn if_exists(opened: Result<Input>) -> Result<Option<Input>> {
    match opened {
        Ok(input) => Ok(Some(input)),
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
