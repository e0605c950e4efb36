//! What to serve, where, within which bounds; and what can go wrong at the start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::{ENOSYS, EPERM};
use sys::file::Root;

/// A server to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSpec {
    /// The directory whose files are served; nothing outside is reachable.
    pub root: PathBuf,
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Worker threads; 0 counts as 1.
    pub threads: usize,
    /// What a client may take of the server's time and memory.
    pub limits: Limits,
}

impl ServeSpec {
    /// Serves `root` at `listen` with one thread and the default limits.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        ServeSpec { root: root.into(), listen, threads: 1, limits: Limits::default() }
    }
}

/// Bounds on one connection. Times are checked about once a second, or four times within the shortest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A request head (request line and headers) may be this long; at most 32 KiB. Longer: 431, or 414 when the
    /// request line alone is.
    pub head_bytes: usize,
    /// From the first byte of a head to its last; also from accept to the first byte.
    pub head_time: Duration,
    /// A kept connection may be idle this long between requests.
    pub idle_time: Duration,
    /// A client may take nothing of a response for this long.
    pub stall_time: Duration,
}

impl Default for Limits {
    /// 8 KiB of head in 30 s, 75 s idle, 60 s stalled: the figures nginx has, so that comparisons are fair.
    fn default() -> Self {
        Limits {
            head_bytes: 8 << 10,
            head_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(75),
            stall_time: Duration::from_secs(60),
        }
    }
}

/// Why the server did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The root cannot be opened.
    #[error("cannot serve {}: {source}; name a directory that exists and may be entered", root.display())]
    Root {
        /// As asked for.
        root: PathBuf,
        /// From open(2).
        source: io::Error,
    },
    /// The kernel cannot confine lookups to the root.
    #[error("openat2: {source}; the server needs Linux 5.6 or later, and a sandbox that lets openat2 pass")]
    Confinement {
        /// ENOSYS or EPERM.
        source: io::Error,
    },
    /// The address cannot be bound.
    #[error("bind {address}: {source}; choose another address or port, or end the program that holds it")]
    Listen {
        /// As asked for.
        address: SocketAddr,
        /// From socket(2), bind(2) or listen(2).
        source: io::Error,
    },
    /// Too few descriptors to take a single connection.
    #[error("{limit} descriptors are too few for {threads} threads; raise `ulimit -n` or ask for fewer threads")]
    Descriptors {
        /// The limit of this process (RLIMIT_NOFILE).
        limit: usize,
        /// As asked for.
        threads: usize,
    },
    /// A system call failed that should not.
    #[error("{call}: {source}")]
    System {
        /// Its name.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// Opens the directory to serve.
pub(crate) fn open_root(root: &Path) -> Result<Root, ServeError> {
    Root::open(root).map_err(|source| match source.raw_os_error() {
        Some(ENOSYS | EPERM) => ServeError::Confinement { source },
        _ => ServeError::Root { root: root.to_owned(), source },
    })
}

/// Names the system call that failed.
pub(crate) fn system<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> ServeError {
    move |source| ServeError::System { call, source: source.into() }
}
