//! squid as a forward proxy: one process, its defaults, its own directory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{ProxyCounters, Sizes, folder_for, mebibytes};
use crate::error::ExperimentError;
use crate::programs::quoted;
use testbed::get;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 3] = ["/usr/sbin/squid", "/usr/local/sbin/squid", "/usr/local/squid/sbin/squid"];
/// Accounts that distributions create for squid.
const ACCOUNTS: [&str; 3] = ["proxy", "squid", "nobody"];
/// Path of the counters in its cache manager.
const COUNTERS: &str = "/squid-internal-mgr/counters";
/// Format of the access log, if there is one.
const FORMAT: &str = "%rm %rp";

/// An installed squid.
#[derive(Clone, Debug)]
pub struct Squid {
    program: PathBuf,
}

/// Settings of squid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Address on which squid listens.
    pub listen: SocketAddr,
    /// Sizes of squid's cache.
    pub sizes: Sizes,
    /// Whether squid writes a line for each request, which [`Squid::counters`] needs: its own counter includes tunnels,
    /// whose number is only in the log.
    pub log: bool,
}

impl Squid {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Squid, ExperimentError> {
        PROGRAMS
            .iter()
            .map(PathBuf::from)
            .find(|place| place.exists())
            .map(|program| Squid { program })
            .ok_or(ExperimentError::Missing { program: "squid", fix: "apt-get install squid" })
    }

    /// Squid at this path, which is not checked before a server is started.
    pub fn at(program: impl Into<PathBuf>) -> Squid {
        Squid { program: program.into() }
    }

    /// The program's version as printed, such as `squid 5.7`; empty if it prints none.
    pub fn version(&self) -> String {
        let output = std::process::Command::new(&self.program).arg("-v").output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let version = output.lines().find_map(|line| line.strip_prefix("Squid Cache: Version "));
        version.map_or(String::new(), |version| format!("squid {}", version.trim()))
    }

    /// Writes a configuration into a directory `squid` of `folder`, and returns the shell command that starts it in the
    /// foreground. Any client may use it, for any origin; all other settings are compiled in, except files outside of
    /// the directory, and
    ///
    /// - `collapsed_forwarding` is off, the default: with it, squid 5.7 answers a plain GET that it collapsed with a
    ///   conditional one with the 304 of the latter;
    /// - no name is resolved: origins are addresses;
    /// - memory stores objects of up to 64 MB, instead of up to 512 KB.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure(&self, folder: &Path, setup: &Setup) -> Result<String, ExperimentError> {
        let own = folder.join("squid");
        folder_for(&own, &ACCOUNTS)?;
        let root = own.display();
        let mut text = format!(
            "http_port {listen}\nhttp_access allow all\nvisible_hostname squid\n\
             cache_mem {memory} MB\nmaximum_object_size_in_memory 64 MB\nmaximum_object_size 64 MB\n\
             memory_cache_shared off\ncollapsed_forwarding off\n\
             cache_log /dev/null\ncache_store_log none\npid_filename none\nnetdb_filename none\ncoredump_dir {root}\n\
             shutdown_lifetime 0 seconds\ndns_nameservers 127.0.0.1\nmax_filedescriptors 16384\n",
            listen = setup.listen,
            memory = mebibytes(setup.sizes.memory),
        );
        if setup.log {
            text.push_str(&format!(
                "logformat own {FORMAT}\naccess_log stdio:{root}/access.log own\nbuffered_logs off\n"
            ));
        } else {
            text.push_str("access_log none\n");
        }
        if let Some(disk) = setup.sizes.disk {
            text.push_str(&format!("cache_dir aufs {root}/store {} 16 256\n", mebibytes(disk)));
        }
        let file = own.join("squid.conf");
        fs::write(&file, text).map_err(ExperimentError::file(&file))?;
        let (program, file) = (quoted(&self.program), quoted(&file));
        // The directories of a disk store are created before the start.
        let first = if setup.sizes.disk.is_some() { format!("{program} -N -z -f {file} && ") } else { String::new() };
        Ok(format!("{first}exec {program} -N -f {file}"))
    }

    /// Counters of the squid at `listen`, configured in `folder` with a log, from its cache manager:
    /// `client_http.requests` and `client_http.hits`, which includes validated responses.
    ///
    /// Tunnels and requests for counters, which squid counts too, are subtracted: the log, written at the time of
    /// counting, has their number. A request is counted when it has ended, a tunnel when it is closed.
    ///
    /// # Errors
    /// The server does not respond, or not as squid does; or squid writes no log.
    pub fn counters(&self, folder: &Path, listen: SocketAddr) -> Result<ProxyCounters, ExperimentError> {
        let log = folder.join("squid/access.log");
        let wrong = |why: String| ExperimentError::Program { program: "squid", why };
        // The log is read before the request for counters, which is in the log soon, but not in its own response.
        let lines = fs::read_to_string(&log).map_err(ExperimentError::file(&log))?;
        let output = get::body(listen, COUNTERS).map_err(|error| wrong(format!("its counters: {error}")))?;
        let counted =
            read_counters(&output).ok_or_else(|| wrong("its counters lack client_http.requests or .hits".into()))?;
        let others = lines.lines().filter(|line| is_other(line)).count() as u64;
        Ok(ProxyCounters { requests: counted.requests.saturating_sub(others), ..counted })
    }
}

/// Whether a line of the log is of a tunnel or a request for counters. Connections without a request are in the log
/// too, but are not counted.
fn is_other(line: &str) -> bool {
    let (method, path) = line.split_once(' ').unwrap_or((line, ""));
    method == "CONNECT" || path == COUNTERS
}

/// Requests and hits of the cache manager's page.
fn read_counters(page: &str) -> Option<ProxyCounters> {
    let of = |name: &str| {
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
        value?.trim().parse::<u64>().ok()
    };
    Some(ProxyCounters { requests: of("client_http.requests")?, hits: of("client_http.hits")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    #[test]
    fn counters_are_parsed_from_the_cache_managers_page() {
        let page =
            "sample_time = 1.2 (x)\nclient_http.requests = 1234\nclient_http.hits = 567\nclient_http.errors = 8\n";
        assert_eq!(read_counters(page), Some(ProxyCounters { requests: 1234, hits: 567 }));
        assert_eq!(read_counters("client_http.requests = 1234\n"), None);
        assert_eq!(read_counters("client_http.requests_all = 1\nclient_http.hits = x\n"), None);
    }

    #[test]
    fn tunnels_and_requests_for_counters_are_recognised() {
        for other in ["CONNECT 127.0.0.1:443", "CONNECT -", "CONNECT", "GET /squid-internal-mgr/counters"] {
            assert!(is_other(other), "{other}");
        }
        for request in ["GET /y/1/A1.html", "POST /", "- -", "", "GET /squid-internal-mgr/countersX"] {
            assert!(!is_other(request), "{request}");
        }
    }

    #[test]
    fn a_disk_store_is_created_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let squid = Squid::at(PROGRAMS[0]);
        let setup = |disk| Setup {
            listen: "127.0.0.1:3128".parse().unwrap(),
            sizes: Sizes { memory: Bytes(1), disk },
            log: false,
        };
        let text = |setup| {
            let command = squid.configure(folder.path(), &setup).unwrap();
            (command, fs::read_to_string(folder.path().join("squid/squid.conf")).unwrap())
        };
        let (command, conf) = text(setup(None));
        assert!(!command.contains("-z") && conf.contains("cache_mem 1 MB\n") && conf.contains("access_log none\n"));
        let (command, conf) = text(setup(Some(Bytes(100 << 20))));
        assert!(command.contains(" -N -z -f "), "{command}");
        assert!(conf.contains("/store 100 16 256\n"), "{conf}");
    }
}
