//! What to serve, where, within which bounds; and what can go wrong at the start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::{ENOSYS, EPERM};
use sys::file::Root;

use crate::dynamic::DynamicSpec;
use crate::engine::Engine;
use crate::figures::Figures;
use crate::journal::Log;
use crate::origin::OriginSpec;
use crate::status::StatusSpec;
use crate::tls::Tls;

/// A server to start.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSpec {
    /// The directory whose files are served; nothing outside is reachable.
    pub root: PathBuf,
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Which of its files are shown, and how.
    pub files: FileRules,
    /// Worker threads; 0 counts as 1.
    pub threads: usize,
    /// How to talk to the kernel.
    pub engine: Engine,
    /// What a client may take of the server's time and memory.
    pub limits: Limits,
    /// The listener speaks TLS and nothing else.
    pub tls: Option<Tls>,
    /// The access log.
    pub log: Option<Log>,
    /// Where the server counts; keep a clone to read them.
    pub figures: Figures,
    /// Who may read `/-/status`.
    pub status: StatusSpec,
    /// What other programs answer.
    pub dynamic: Option<DynamicSpec>,
    /// The objects of a mix, instead of all files and of everything dynamic: then nothing is read from `root`.
    pub origin: Option<OriginSpec>,
}

impl ServeSpec {
    /// Serves `root` at `listen` with one thread and the default limits.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        ServeSpec {
            root: root.into(),
            listen,
            files: FileRules::default(),
            threads: 1,
            engine: Engine::default(),
            limits: Limits::default(),
            tls: None,
            log: None,
            figures: Figures::new(),
            status: StatusSpec::default(),
            dynamic: None,
            origin: None,
        }
    }

    /// Serves the objects of a mix at `listen` with one thread, and keeps idle connections for as long as the mix says.
    pub fn of_origin(origin: OriginSpec, listen: SocketAddr) -> Self {
        let limits = Limits { idle_time: origin.world.spec.origin_idle, ..Limits::default() };
        // Any directory does: an origin looks up no file.
        ServeSpec { limits, origin: Some(origin), ..ServeSpec::new("/", listen) }
    }
}

/// Which files of the directory are shown, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRules {
    /// Also those with a name, or below a directory with a name, that begins with a dot. Without it they are answered
    /// with 404, but for `/.well-known` (RFC 8615).
    pub hidden: bool,
    /// The files that answer for a directory: the first that is there. None: directories are answered with 404.
    pub index: Vec<String>,
    /// A file with `.br` or `.gz` added to its name, and not older, is sent in place of the file to clients that take
    /// this coding.
    pub precompressed: bool,
}

impl Default for FileRules {
    /// `index.html`; twins are used; what begins with a dot is hidden.
    fn default() -> Self {
        FileRules { hidden: false, index: vec!["index.html".to_owned()], precompressed: true }
    }
}

/// Bounds on connections. Times are checked about once a second, or four times within the shortest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A request head (request line and headers) may be this long; at most 32 KiB. Longer: 431, or 414 when the
    /// request line alone is.
    pub head_bytes: usize,
    /// A request may have this many header fields; at most 128. More: 431.
    pub head_fields: usize,
    /// From the first byte of a head to its last; also from accept to the first byte.
    pub head_time: Duration,
    /// A kept connection may be idle this long between requests.
    pub idle_time: Duration,
    /// A client must take 16 KiB of a response, or what is left of it, within this time.
    pub stall_time: Duration,
    /// The body of a request may be this long: longer ones are refused with 413.
    pub body_bytes: u64,
    /// 1 KiB of a request's body, or what is left of it, must come within this time.
    pub body_time: Duration,
    /// Most connections at once, over all threads. `None`: as many as there are descriptors for. Where it is reached,
    /// the connection that was of no use longest is closed for the new one; where all are busy, new ones wait.
    pub connections: Option<usize>,
    /// Most connections at once of one address (of IPv6, of one network of 64 bits), over all threads. `None`: three
    /// quarters of those in all, so that no single address can have everything. Further ones are told 503 and closed.
    pub connections_per_address: Option<usize>,
    /// A server that is told to stop finishes what it is busy with, for at most this time.
    pub stop_time: Duration,
}

impl Default for Limits {
    /// 8 KiB of head in 100 fields and 30 s, 75 s idle, 60 s stalled: the figures nginx has, so that comparisons are fair.
    fn default() -> Self {
        Limits {
            head_bytes: 8 << 10,
            head_fields: 100,
            head_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(75),
            stall_time: Duration::from_secs(60),
            body_bytes: 1 << 20,
            body_time: Duration::from_secs(60),
            connections: None,
            connections_per_address: None,
            stop_time: Duration::from_secs(10),
        }
    }
}

/// Why the server did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The root cannot be opened.
    #[error("cannot serve {}: {source}; name an existing directory that this user can enter", root.display())]
    Root {
        /// As asked for.
        root: PathBuf,
        /// From open(2).
        source: io::Error,
    },
    /// The kernel cannot confine lookups to the root.
    #[error("openat2: {source}; the server needs Linux 5.6 or later, and a sandbox that permits openat2")]
    Confinement {
        /// ENOSYS or EPERM.
        source: io::Error,
    },
    /// The address cannot be bound.
    #[error("bind {address}: {source}; choose another address or port, or stop the program that uses it")]
    Listen {
        /// As asked for.
        address: SocketAddr,
        /// From socket(2), bind(2) or listen(2).
        source: io::Error,
    },
    /// Too few descriptors to take a single connection.
    #[error("{limit} descriptors are too few for {threads} threads; raise `ulimit -n` or use fewer threads")]
    Descriptors {
        /// The limit of this process (RLIMIT_NOFILE).
        limit: usize,
        /// As asked for.
        threads: usize,
    },
    /// The program that answers dynamic requests cannot be started as asked.
    #[error("dynamic program: {source}")]
    Program {
        /// Why.
        source: sys::Error,
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
