//! Caches from Debian as systems under test: [`Squid`], [`Varnish`], [`NginxCache`].
//!
//! ```text
//!   find() ── configure(folder, ..) ──> a shell command ──> [server] of a plan: the testbed starts and ends it
//!                                                      '──> RunningProxy::start: on this host, until it is dropped
//!                                                                  └── counters(): its own counters
//! ```
//!
//! Each uses its own directory and configuration: the machine's configuration is not read, and its services are not
//! touched. A cache's own counters are read by its own interface. Measurements do not depend on them: they are an
//! independent count of hits, in addition to the identity of responses.

mod nginx_cache;
pub mod squid;
mod varnish;

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Uid, User};
use sys::clock::Deadline;
use sys::sandbox::TiedProcess;
use units::Bytes;

pub use nginx_cache::NginxCache;
pub use squid::Squid;
pub use varnish::Varnish;

use crate::error::ExperimentError;
use crate::programs::quoted;

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In memory. For nginx, which stores bodies in files, the size of its table of keys.
    pub memory: Bytes,
    /// On disk, in the cache's own directory; absent: none. nginx has disk storage only, and is then unlimited.
    pub disk: Option<Bytes>,
}

/// Counters of a cache since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounters {
    /// Requests of clients that the cache could parse: without tunnels (CONNECT), and without requests for these
    /// counters.
    pub requests: u64,
    /// Requests answered from the cache: also after a successful validation with the origin.
    pub hits: u64,
}

impl ProxyCounters {
    /// The counters from `earlier` to `self`.
    pub fn since(&self, earlier: &ProxyCounters) -> ProxyCounters {
        ProxyCounters {
            requests: self.requests.saturating_sub(earlier.requests),
            hits: self.hits.saturating_sub(earlier.hits),
        }
    }

    /// Hits over requests, 0 to 1; none without requests.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }
}

/// A cache that runs on this host. It ends when this is dropped, or with the thread that started it.
#[derive(Debug)]
pub struct RunningProxy {
    process: Option<TiedProcess>,
}

/// Longest time until a cache listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

impl RunningProxy {
    /// Starts the shell command of a cache and waits until it listens; its output goes to `log`, whose end is in the
    /// error. As root it has its own PID namespace, so that none of its processes remains; otherwise a process group.
    ///
    /// Unlike [`crate::local::LocalServer`] it may be called from a process with many threads; the calling thread must
    /// exist as long as the cache.
    ///
    /// # Errors
    /// Another program listens at this address; or the cache cannot be started, ended, or does not listen.
    pub fn start(command: &str, listen: SocketAddr, log: &Path) -> Result<RunningProxy, ExperimentError> {
        let failed = |why: String| ExperimentError::Program { program: "a cache", why };
        if TcpStream::connect(listen).is_ok() {
            return Err(failed(format!("another program listens on {listen}: end it first")));
        }
        File::create(log).map_err(ExperimentError::file(log))?;
        // The shell stays the first process of the namespace: it ends when its parent does, while a command that changes
        // its user, as squid does, no longer gets the parent's signal.
        let script = format!("exec >{} 2>&1\n{command}\nexit $?", quoted(log));
        let namespace: &[&str] =
            if Uid::effective().is_root() { &["unshare", "--pid", "--fork", "--kill-child", "--"] } else { &[] };
        let argv: Vec<_> = namespace.iter().copied().chain(["/bin/sh", "-c", &script]).map(Into::into).collect();
        let mut running = RunningProxy { process: Some(TiedProcess::start(&argv, &[], None)?) };
        let deadline = Deadline::after(START_TIMEOUT);
        while TcpStream::connect(listen).is_err() {
            let ended = running.process.as_mut().map_or(Ok(None), TiedProcess::try_exit)?;
            if ended.is_some() || deadline.has_passed() {
                let how = if ended.is_some() { "ended before it listened on" } else { "does not listen on" };
                let words = File::open(log).map(|log| testbed::server::output_tail(&log)).unwrap_or_default();
                return Err(failed(format!("`{command}` {how} {listen}{words}")));
            }
            sleep_between_polls();
        }
        Ok(running)
    }
}

impl Drop for RunningProxy {
    /// Sends SIGTERM, and later SIGKILL.
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(GRACE);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "no descriptor reports when a program listens")]
fn sleep_between_polls() {
    std::thread::sleep(POLL_INTERVAL);
}

/// A directory below `folder`, writable for a cache that changes from root to one of these accounts, the first that
/// exists.
fn folder_for(folder: &Path, accounts: &[&str]) -> Result<(), ExperimentError> {
    fs::create_dir_all(folder).map_err(ExperimentError::file(folder))?;
    if Uid::effective().is_root()
        && let Some(user) = accounts.iter().find_map(|name| User::from_name(name).ok().flatten())
    {
        chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(ExperimentError::file(folder))?;
    }
    Ok(())
}

/// An amount in whole mebibytes, at least one, as configurations expect.
fn mebibytes(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(1 << 20).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_requests_are_never_negative() {
        let of = |requests, hits| ProxyCounters { requests, hits };
        assert_eq!(of(10, 4).since(&of(4, 5)), of(6, 0));
        assert_eq!(of(8, 2).hit_ratio(), Some(0.25));
        assert_eq!(of(0, 0).hit_ratio(), None);
    }

    #[test]
    fn sizes_are_rounded_up_to_mebibytes() {
        assert_eq!([0, 1, 1 << 20, (1 << 20) + 1].map(|bytes| mebibytes(Bytes(bytes))), [1, 1, 1, 2]);
    }

    #[test]
    fn the_start_of_a_cache_that_ends_fails_with_its_last_output() {
        let folder = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = folder.path().join("log");
        let error = RunningProxy::start("echo no such thing; exit 1", free, &log).unwrap_err().to_string();
        assert!(
            error.contains("ended before it listened on") && error.contains("its output: no such thing"),
            "{error}"
        );
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = RunningProxy::start("sleep 100", taken.local_addr().unwrap(), &log).unwrap_err().to_string();
        assert!(error.contains("another program listens on") && error.contains("end it first"), "{error}");
    }
}
