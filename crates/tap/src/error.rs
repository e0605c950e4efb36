//! Errors on the collector's side. On the program's side there are none: without the tap the program runs on.

use std::io;
use std::path::PathBuf;

/// What failed, on which file, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a file or folder failed.
    #[error("{call} {}: {source}", path.display())]
    File {
        /// The operation.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No folder can hold the library.
    #[error(
        "no directory for the tap library and its rings: tried {tried}; one must be writable, have about 40 MB free, \
         not be mounted noexec, and have no space or colon in its name (set TMPDIR)"
    )]
    NoFolder {
        /// Each tried folder with the reason.
        tried: String,
    },
    /// The interposer exists for Linux on x86-64 only.
    #[error("the tap needs Linux on x86-64: its library does not exist for this machine")]
    Unsupported,
    /// Another agent uses the folder of a tap daemon.
    #[error(
        "another tap daemon{} uses the directory {}: stop it, or choose another directory (--folder)",
        pid.map(|pid| format!(", process {pid},")).unwrap_or_default(),
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Process number of that agent in its own namespace, if known.
        pid: Option<u32>,
    },
    /// A folder that other users can change, or that cannot be used.
    #[error("{} cannot be the directory of a tap daemon: {why}; choose another one (--folder)", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is no ring to write to.
    #[error("no tap daemon in {}: start one (yamabiko tap agent), or give its directory", path.display())]
    NoAgent {
        /// Where the ring was expected.
        path: PathBuf,
    },
    /// This program is already under a tap, and two would write to one ring.
    #[error("this program already runs under a tap (YAMABIKO_TAP is set): remove one of the two")]
    UnderTap,
    /// The program was restarted with the library, and the library did not report.
    #[error(
        "the loader did not load the tap library into this program: it has file capabilities (getcap), is set-user-ID, \
         or may not map enough memory (ulimit -v); run it as root, or without the tap"
    )]
    NotLoaded,
    /// This process has several threads, and exec ends all but one.
    #[error("this process has {threads} threads, and can be restarted under the tap with one thread only")]
    Threads {
        /// Number of threads.
        threads: usize,
    },
}

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Adapter for `map_err`.
    pub(crate) fn file(call: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { call, path, source }
    }
}
