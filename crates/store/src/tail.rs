//! Incremental reading of a table during its run.

use std::io::ErrorKind;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::decode::Input;
use crate::writer::part_path;
use crate::{Result, StoreError};
use schema::Record;

/// A reader that gives what is new since it last looked: for tables of one or some rows a second (the series,
/// distributions), which it takes into memory.
///
/// ```text
///   requests/000001 000002 ..   each is read once        <- poll, poll, ..
///   requests.parquet            replaces them: all anew  <- poll
/// ```
///
/// A look costs one failed open where nothing is new. Parts that the finished table has replaced between two looks are not
/// missed: the table has their rows, exact now, and [`Fresh::anew`] says that what was given before is to be forgotten.
#[derive(Debug)]
pub struct Tail<R: Record> {
    dir: PathBuf,
    /// Parts that were read.
    parts: u32,
    /// The finished table was read: nothing comes any more.
    whole: bool,
    /// What could not be read in a look that gave rows all the same; the next look says it.
    trouble: Option<StoreError>,
    row: PhantomData<fn() -> R>,
}

/// What a look gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh<R> {
    /// Rows that were not given before.
    pub rows: Vec<R>,
    /// They are all rows of the finished table: those of earlier looks were provisional, and are among them.
    pub anew: bool,
}

impl<R: Record> Tail<R> {
    /// Of the run in `dir`, from its first row on.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Tail { dir: dir.into(), parts: 0, whole: false, trouble: None, row: PhantomData }
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the finished table was read, so that no look will give more.
    pub fn is_at_end(&self) -> bool {
        self.whole
    }

    /// What is new. Nothing, where the table is not there at all.
    ///
    /// # Errors
    /// A part, or the table, cannot be read. It is said once and not tried again: what could be read before and after it was given by
    /// the look before this one, or comes with the next.
    pub fn poll(&mut self) -> Result<Fresh<R>> {
        let mut rows = Vec::new();
        if self.whole {
            return Ok(Fresh { rows, anew: false });
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        if let Some(whole) = self.finished(&mut rows)? {
            return Ok(whole);
        }
        let folder = self.dir.join(R::TABLE);
        while let Some(read) = found(Input::open(&part_path(&folder, self.parts + 1))).transpose() {
            self.parts += 1;
            if let Err(error) = read.and_then(|input| read_all(&input, &mut rows)) {
                self.trouble.get_or_insert(error);
            }
        }
        // The finished table may have replaced the parts meanwhile: then the next look gives it.
        Ok(Fresh { rows, anew: false })
    }

    /// The finished table, if it is there.
    fn finished(&mut self, rows: &mut Vec<R>) -> Result<Option<Fresh<R>>> {
        let Some(input) = found(Input::open(&self.dir.join(format!("{}.parquet", R::TABLE))))? else { return Ok(None) };
        self.whole = true;
        read_all(&input, rows)?;
        Ok(Some(Fresh { rows: std::mem::take(rows), anew: self.parts > 0 }))
    }
}

fn read_all<R: Record>(input: &Input, rows: &mut Vec<R>) -> Result<()> {
    (0..input.groups()).try_for_each(|group| input.read_group(group, rows))
}

/// `None` for a file that is not there.
fn found(opened: Result<Input>) -> Result<Option<Input>> {
    match opened {
        Ok(input) => Ok(Some(input)),
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
