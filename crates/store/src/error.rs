//! Errors of the run store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;

/// Result of this crate.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why the run store could not be written or read. Sources are in an `Arc`, so that a writer can return its first error
/// again on each later call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A system call failed.
    #[error("{operation} {path}: {source}{}", advice(operation, source))]
    Io {
        /// The call, such as `open` or `rename`.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The disk, or the quota on it, is full.
    #[error(
        "no space left while writing {path}; what was written before stays readable. Free some space, or set YAMABIKO_RUNS to a folder on another disk"
    )]
    DiskFull {
        /// The file that did not fit.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A Parquet file could not be encoded or decoded.
    #[error(
        "{path} is not a valid table: {source}. If the run was killed while writing it, delete the file: its rows are lost"
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The error of the format's reader or writer.
        source: Arc<ParquetError>,
    },
    /// A required column is missing or has another type.
    #[error("{path} has no column `{column}` of type {expected}; it was written by another program or version")]
    Column {
        /// The file.
        path: PathBuf,
        /// The column's name.
        column: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A column has an unknown value.
    #[error("column `{column}` of {path} has an unknown value: `{value}`")]
    Value {
        /// The file.
        path: PathBuf,
        /// The column's name.
        column: String,
        /// The value, as text.
        value: String,
    },
    /// summary.json is not a document of this version.
    #[error("{path} is not a valid summary: {source}")]
    Summary {
        /// The file.
        path: PathBuf,
        /// The error of the JSON reader.
        source: Arc<serde_json::Error>,
    },
    /// The run has no summary: it is still running, was killed, or failed to write its end.
    #[error("{} has no summary.json: the run is still running, or was killed; {rows} requests in {parts} closed parts are readable \
        (requests/*.parquet), later ones are lost", dir.display())]
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
    #[error("there is no run `{name}` in {root}; `yamabiko runs` lists all runs")]
    NoSuchRun {
        /// As typed.
        name: String,
        /// The run store's folder.
        root: PathBuf,
    },
    /// The operation is refused.
    #[error("{what}: {why}")]
    Refused {
        /// Subject of the operation: a run, a tag.
        what: String,
        /// The reason, and what to do instead.
        why: String,
    },
    /// The archive is invalid; nothing was imported.
    #[error("{archive} is not imported: {why}")]
    Archive {
        /// Name of the archive.
        archive: String,
        /// What is wrong with it.
        why: String,
    },
    /// The catalogue cannot be created.
    #[error("{path}: {why}; the runs are unaffected, and lists work without it")]
    Catalogue {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        why: String,
    },
    /// Several runs have an id with this prefix.
    #[error("`{prefix}` is ambiguous: {}; type more characters of the id", candidates.join(", "))]
    Ambiguous {
        /// As typed.
        prefix: String,
        /// Runs whose ids begin so, at most five.
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

    /// Converts an error of the parquet crate, which wraps the system's error; a full disk must be reported as such.
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

fn advice(operation: &str, source: &io::Error) -> &'static str {
    let refused = matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
    // If the run store cannot be created or listed, another folder is the fix for any cause.
    if refused || matches!(operation, "mkdir" | "opendir" | "realpath") {
        "; set YAMABIKO_RUNS to a folder that this user may write"
    } else {
        ""
    }
}
