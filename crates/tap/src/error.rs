//! What can go wrong on the collector's side. On the program's side nothing can: it runs on without us.

use std::io;
use std::path::PathBuf;

/// What could not be done, to which file, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a file or folder failed.
    #[error("{call} {}: {source}", path.display())]
    File {
        /// What was tried.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// No folder can hold the library.
    #[error(
        "no folder for the tap's library and its rings: tried {tried}; one is needed that may be written to, has some \
         40 MB of room, is not mounted noexec, and has no space or colon in its name (set TMPDIR)"
    )]
    NoFolder {
        /// Each folder and what was against it.
        tried: String,
    },
    /// The interposer exists for Linux on x86-64 only.
    #[error("tap needs Linux on x86-64: there is no interposer for this machine")]
    Unsupported,
    /// The folder of a standing tap has its agent already.
    #[error(
        "another agent{} has the folder {}: end it, or give this one a folder of its own (--folder)",
        pid.map(|pid| format!(", process {pid},")).unwrap_or_default(),
        path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
        /// Its process, as it counts itself, if it says so.
        pid: Option<u32>,
    },
    /// A folder that others could meddle with, or that cannot serve.
    #[error("{} cannot be the folder of a standing tap: {why}; give another one (--folder)", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// What is against it.
        why: String,
    },
    /// There is no ring to write to.
    #[error("there is no standing tap in {}: start its agent (yamabiko tap agent), or name its folder", path.display())]
    NoAgent {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// This program is under a tap already, and two would write to one ring.
    #[error("this program runs under a tap already (YAMABIKO_TAP is set): leave one of the two out")]
    UnderTap,
    /// The program was started again with the library, and the library said nothing.
    #[error(
        "the loader did not load the tap's library into this program: it has capabilities of its own (getcap), is \
         set-user-ID, or may not map so much memory (ulimit -v); run it as root instead, or without the tap"
    )]
    NotLoaded,
    /// An exec ends all threads but one.
    #[error("this process has {threads} threads, and can be started again under the tap with one only")]
    Threads {
        /// How many there are.
        threads: usize,
    },
}

/// What the fallible calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`.
    pub(crate) fn file(call: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { call, path, source }
    }
}
