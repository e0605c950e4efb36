//! What can go wrong between a run and its folder.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;

/// Result of this crate.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why the book could not be written or read. Sources are shared, so that a writer that failed once can return its
/// first error again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A system call failed.
    #[error("{operation} {path}: {source}{}", mend(operation, source))]
    Io {
        /// The call, such as `open` or `rename`.
        operation: &'static str,
        /// What it was about.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The disk, or the quota on it, is full.
    #[error(
        "no space left while writing {path}; what was written before it is kept. Free some space, or point YAMABIKO_RUNS at another disk"
    )]
    DiskFull {
        /// The file that did not fit.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// A Parquet file could not be encoded or decoded.
    #[error(
        "{path} is not a table this version can use: {source}. If the run was killed while writing it, delete this file: its rows are lost"
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the format's reader or writer said.
        source: Arc<ParquetError>,
    },
    /// A required column is missing or has another type.
    #[error("{path} has no column `{column}` of type {wanted}; it was written by another program or version")]
    Column {
        /// The file.
        path: PathBuf,
        /// The column's name.
        column: String,
        /// The type it should have.
        wanted: &'static str,
    },
    /// A value in a column is not one this version knows.
    #[error("column `{column}` of {path} holds a value this version does not know: `{value}`")]
    Value {
        /// The file.
        path: PathBuf,
        /// The column's name.
        column: String,
        /// The value, as text.
        value: String,
    },
    /// summary.json is not a document of this version.
    #[error("{path} is not a summary this version can read: {source}")]
    Summary {
        /// The file.
        path: PathBuf,
        /// What the JSON reader said.
        source: Arc<serde_json::Error>,
    },
    /// The run has no summary: it goes on, or was killed, or could not write its end.
    #[error("{} has no summary.json: the run goes on, or was killed; {rows} requests in {parts} closed parts can be read \
        (requests/*.parquet), what came after the last part is lost", dir.display())]
    Unfinished {
        /// The run's folder.
        dir: PathBuf,
        /// Closed parts of its requests.
        parts: usize,
        /// Requests in them.
        rows: u64,
    },
    /// A histogram log could not be encoded or decoded.
    #[error("{path} is not a histogram log: {why}")]
    Log {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No run of this name.
    #[error("there is no run `{asked}` in {root}; `yamabiko runs` lists them")]
    NoSuchRun {
        /// As typed.
        asked: String,
        /// The book's folder.
        root: PathBuf,
    },
    /// What was asked for is not done, for a reason that lies in what was asked.
    #[error("{what}: {why}")]
    Refused {
        /// What it is about: a run, a tag.
        what: String,
        /// Why not, and what to do instead.
        why: String,
    },
    /// An archive is not one to be taken into the book; nothing of it was.
    #[error("{archive} is not imported, nor any part of it: {why}")]
    Archive {
        /// Its name.
        archive: String,
        /// What is wrong with it.
        why: String,
    },
    /// The catalogue could not be made.
    #[error("{path}: {why}; the runs themselves are not concerned, and lists are made without it")]
    Catalogue {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// Several runs begin like this.
    #[error("`{asked}` could be {}; type more of it", candidates.join(", "))]
    Ambiguous {
        /// As typed.
        asked: String,
        /// Runs that begin so, at most five.
        candidates: Vec<String>,
    },
}

impl StoreError {
    /// Whether the cause is a full disk or an exhausted quota.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, StoreError::DiskFull { .. })
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let (path, source) = (path.to_owned(), Arc::new(source));
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::DiskFull { path, source },
            _ => StoreError::Io { operation, path, source },
        }
    }

    /// The Parquet crate hides the system's error inside its own; a full disk must still be told as such.
    pub(crate) fn parquet(path: &Path, source: ParquetError) -> Self {
        match source {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => StoreError::io("write or read", path, *source),
                Err(inner) => {
                    StoreError::Parquet { path: path.to_owned(), source: Arc::new(ParquetError::External(inner)) }
                }
            },
            source => StoreError::Parquet { path: path.to_owned(), source: Arc::new(source) },
        }
    }

    pub(crate) fn summary(path: &Path, source: serde_json::Error) -> Self {
        StoreError::Summary { path: path.to_owned(), source: Arc::new(source) }
    }
}

fn mend(operation: &str, source: &io::Error) -> &'static str {
    let refused = matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
    // Whatever the reason, a book that cannot be made or listed is in the wrong place.
    if refused || matches!(operation, "mkdir" | "opendir" | "realpath") {
        "; point YAMABIKO_RUNS at a folder this user may write"
    } else {
        ""
    }
}
