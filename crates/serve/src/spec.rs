//! Configuration of the server, and errors at its start.

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

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSpec {
    /// The root directory; nothing outside is reachable.
    pub root: PathBuf,
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Which files are visible, and how.
    pub files: FileRules,
    /// Worker threads; 0 counts as 1.
    pub threads: usize,
    /// The engine.
    pub engine: Engine,
    /// Limits of a client's use of time and memory.
    pub limits: Limits,
    /// TLS; the listener then accepts nothing else.
    pub tls: Option<Tls>,
    /// HTTP/3 too, on the UDP port with the listener's number. It needs [`ServeSpec::tls`]: nothing else is HTTP/3.
    pub http3: bool,
    /// The access log.
    pub log: Option<Log>,
    /// The metrics; a clone can read them.
    pub figures: Figures,
    /// Who may read `/-/status`.
    pub status: StatusSpec,
    /// Dynamic routes.
    pub dynamic: Option<DynamicSpec>,
    /// An origin workload in place of files and dynamic routes; `root` is then unused.
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
            http3: false,
            log: None,
            figures: Figures::new(),
            status: StatusSpec::default(),
            dynamic: None,
            origin: None,
        }
    }

    /// Serves the objects of a workload at `listen` with one thread, with the workload's idle timeout.
    pub fn of_origin(origin: OriginSpec, listen: SocketAddr) -> Self {
        let limits = Limits { idle_time: origin.world.spec.origin_idle, ..Limits::default() };
        // Any directory: an origin opens no file.
        ServeSpec { limits, origin: Some(origin), ..ServeSpec::new("/", listen) }
    }
}

/// Which files of the directory are visible, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRules {
    /// Also serve names with a leading dot, and files below such directories. Otherwise they get 404, except
    /// `/.well-known` (RFC 8615).
    pub hidden: bool,
    /// Index files of a directory: the first existing one. Empty: directories get 404.
    pub index: Vec<String>,
    /// Send a file with `.br` or `.gz` added to its name, if it is not older, to clients that accept the coding.
    pub precompressed: bool,
}

impl Default for FileRules {
    /// `index.html`; precompressed files are used; names with a leading dot are hidden.
    fn default() -> Self {
        FileRules { hidden: false, index: vec!["index.html".to_owned()], precompressed: true }
    }
}

/// Limits of connections. Timeouts are checked about once a second, or four times within the shortest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a request head (request line and fields); at most 32 KiB. Longer: 431, or 414 for the request
    /// line alone.
    pub head_bytes: usize,
    /// Maximum number of header fields; at most 128. More: 431.
    pub head_fields: usize,
    /// From the first byte of a head to its last; also from accept to the first byte.
    pub head_time: Duration,
    /// Idle timeout of a persistent connection between requests.
    pub idle_time: Duration,
    /// Time in which a client must read 16 KiB of a response, or the rest of it.
    pub stall_time: Duration,
    /// Maximum length of a request body; longer ones get 413.
    pub body_bytes: u64,
    /// Time in which 1 KiB of a request body, or the rest of it, must arrive.
    pub body_time: Duration,
    /// Maximum of concurrent connections, over all threads. `None`: as many as descriptors permit. Beyond it the
    /// longest idle connection is displaced; if all are busy, new ones wait.
    pub connections: Option<usize>,
    /// Maximum of concurrent connections of one address (IPv6: one /64 network), over all threads. `None`: three
    /// quarters of the total, so that no single address can use all. Further ones get 503 and are closed.
    pub connections_per_address: Option<usize>,
    /// Time for a stopping server to finish responses in progress.
    pub stop_time: Duration,
}

impl Default for Limits {
    /// 8 KiB of head in 100 fields and 30 s, 75 s idle, 60 s stall: nginx's defaults, for fair comparisons.
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
        /// The configured directory.
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
        /// The configured address.
        address: SocketAddr,
        /// From socket(2), bind(2) or listen(2).
        source: io::Error,
    },
    /// HTTP/3 without a certificate.
    #[error("HTTP/3 needs TLS: give a certificate and its key")]
    Http3WithoutTls,
    /// TLS cannot be used for QUIC.
    #[error("HTTP/3: TLS has no cipher suite for QUIC (TLS_AES_128_GCM_SHA256)")]
    Quic,
    /// Too few descriptors for a single connection.
    #[error("{limit} descriptors are too few for {threads} threads; raise `ulimit -n` or use fewer threads")]
    Descriptors {
        /// The limit of this process (RLIMIT_NOFILE).
        limit: usize,
        /// The configured number of threads.
        threads: usize,
    },
    /// The dynamic program cannot be started as configured.
    #[error("dynamic program: {source}")]
    Program {
        /// Why.
        source: sys::Error,
    },
    /// An essential system call failed.
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

/// Adds the name of the failed system call.
pub(crate) fn system<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> ServeError {
    move |source| ServeError::System { call, source: source.into() }
}
