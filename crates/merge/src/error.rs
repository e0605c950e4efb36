//! Why runs cannot be merged.

use std::path::PathBuf;

use store::StoreError;

/// Why runs cannot be merged. The message says which runs, and what is expected.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The runs are not shards of one load, each given once.
    #[error("{0}")]
    NotOneLoad(String),
    /// A file of a run cannot be read.
    #[error("{}: {why}", run.display())]
    Unreadable {
        /// The run's folder.
        run: PathBuf,
        /// The reason.
        why: String,
    },
    /// The folder of the merged run exists already.
    #[error("{}: it exists already; expected a new folder (-o)", .0.display())]
    Exists(PathBuf),
    /// The run store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A table could not be placed in the merged run.
    #[error("copy {}: {source}", path.display())]
    Table {
        /// The table's file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
