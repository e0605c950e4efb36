//! Errors of the manager, with what the user can do.

use std::io;
use std::path::{Path, PathBuf};

use store::StoreError;

/// Result of the manager's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file system call failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// The call, such as `open` or `rename`.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The disk or the quota is full.
    #[error("no space left on the disk of {}: free some, or store less (--keep-for, --keep-bytes)", path.display())]
    NoSpace {
        /// The file being written.
        path: PathBuf,
    },
    /// Another manager uses the folder.
    #[error("another manager uses {}: stop it, or choose another directory (--data)", .0.display())]
    InUse(PathBuf),
    /// The index is of another version.
    #[error(
        "{} has version {found}, and this program supports version {known}: run the version that created it, or choose \
         another directory (--data)",
        path.display()
    )]
    Version {
        /// The index.
        path: PathBuf,
        /// The version of the index.
        found: i64,
        /// The version that this program supports.
        known: i64,
    },
    /// The index file is not an index.
    #[error("{} is not the index of a tap manager: choose another directory (--data), or move the file away", .0.display())]
    Foreign(PathBuf),
    /// The folder has no index.
    #[error("{} has no manager index: `yamabiko tap manager token add NAME --data DIR` creates one", .0.display())]
    NoData(PathBuf),
    /// SQLite failed.
    #[error("the index: {0}")]
    Index(rusqlite::Error),
    /// A day file could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The web server could not be started.
    #[error(transparent)]
    Server(#[from] web::WebServerError),
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] serve::TlsError),
    /// A certificate could not be created.
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Nothing with this name exists.
    #[error("there is no {kind} `{name}`")]
    Unknown {
        /// Kind of the name: `agent`, `token`.
        kind: &'static str,
        /// The requested name, without control characters.
        name: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// A stream of NATS cannot be read.
    #[error("--from: {0}")]
    Stream(String),
    /// The kernel has no random bytes.
    #[error("the kernel returned no random bytes")]
    Random,
    /// A thread could not be started, or has ended unexpectedly.
    #[error("the manager's thread `{0}` does not run: it could not be started, or it failed; see the log")]
    Thread(&'static str),
    /// A test ended the work here, as SIGKILL would.
    #[cfg(test)]
    #[error("a test stopped here: {0}")]
    Stopped(String),
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { path: path.to_owned() },
            _ => Error::Io { operation, path: path.to_owned(), source },
        }
    }

    /// Whether the rows themselves cannot be written, so that another batch may succeed.
    pub(crate) fn is_row_error(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        let Error::Index(error) = self else { return false };
        !matches!(
            error.sqlite_error_code(),
            Some(
                Code::DiskFull
                    | Code::SystemIoFailure
                    | Code::DatabaseBusy
                    | Code::DatabaseLocked
                    | Code::OutOfMemory
                    | Code::ReadOnly
                    | Code::CannotOpen
                    | Code::DatabaseCorrupt
                    | Code::NotADatabase
                    | Code::PermissionDenied
                    | Code::FileLockingProtocolFailed
                    | Code::OperationInterrupted
                    | Code::OperationAborted
            )
        )
    }

    /// Whether a test ended the work as SIGKILL would: then no clean-up is done.
    pub(crate) fn is_stop(&self) -> bool {
        #[cfg(test)]
        if matches!(self, Error::Stopped(_)) {
            return true;
        }
        false
    }

    /// Whether the cause is the machine or another process, and not the request.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            Error::Io { .. }
            | Error::NoSpace { .. }
            | Error::InUse(_)
            | Error::Index(_)
            | Error::Random
            | Error::Thread(_) => true,
            Error::Store(_) => true,
            Error::Server(error) => !matches!(error, web::WebServerError::Secret(_)),
            _ => false,
        }
    }

    /// Whether the cause is a full disk or an exhausted quota.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::NoSpace { .. } => true,
            Error::Store(error) => error.is_disk_full(),
            Error::Index(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            _ => false,
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        Error::Index(error)
    }
}
