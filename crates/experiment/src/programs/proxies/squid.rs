//! squid as a forward proxy: one process, its own defaults, a folder of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{ProxyCounters, Sizes, folder_for, mebibytes};
use crate::error::ExperimentError;
use crate::get;
use crate::programs::quoted;

/// Where distributions put the program.
const PROGRAMS: [&str; 3] = ["/usr/sbin/squid", "/usr/local/sbin/squid", "/usr/local/squid/sbin/squid"];
/// Accounts that distributions made for it.
const ACCOUNTS: [&str; 3] = ["proxy", "squid", "nobody"];
/// Where its cache manager has the counters.
const COUNTERS: &str = "/squid-internal-mgr/counters";
/// What is written to the access log of one that is asked to keep one.
const FORMAT: &str = "%rm %rp";

/// An installed squid.
#[derive(Clone, Debug)]
pub struct Squid {
    program: PathBuf,
}

/// How one is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its cache.
    pub sizes: Sizes,
    /// Whether it writes a line for each request, which [`Squid::counters`] needs: its own counter has tunnels among the
    /// requests, and only the log says how many these are.
    pub log: bool,
}

impl Squid {
    /// Looks for it where distributions put it.
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

    /// The Squid whose program is `program`, which nothing looks for before a server is started.
    pub fn at(program: impl Into<PathBuf>) -> Squid {
        Squid { program: program.into() }
    }

    /// The program's own words for its version, such as `squid 5.7`; empty if it says none.
    pub fn version(&self) -> String {
        let said = std::process::Command::new(&self.program).arg("-v").output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let version = said.lines().find_map(|line| line.strip_prefix("Squid Cache: Version "));
        version.map_or(String::new(), |version| format!("squid {}", version.trim()))
    }

    /// Writes a configuration into a folder `squid` of `folder`, and gives the shell command that starts it in the foreground.
    /// Anyone may use it, for any origin; everything else is as compiled in, but for what would reach out of the folder, and
    ///
    /// - `collapsed_forwarding` is off, as by default: on, squid 5.7 answers a plain GET that it joined to a conditional one
    ///   with the 304 of that;
    /// - no name is looked up: origins are addresses;
    /// - memory keeps objects of up to 64 MB, and not of up to 512 KB only.
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
        // The folders of a store are made before.
        let first = if setup.sizes.disk.is_some() { format!("{program} -N -z -f {file} && ") } else { String::new() };
        Ok(format!("{first}exec {program} -N -f {file}"))
    }

    /// What one that listens at `listen`, was configured in `folder` and keeps a log has counted, by its cache manager:
    /// `client_http.requests` and `client_http.hits`, which has among it what it asked the origin about and was told to keep.
    ///
    /// Taken off the requests are tunnels and questions for counters, which it counts too: its log, written in the moment in
    /// which it counts, says how many there were. A request is counted when it is over, a tunnel when it is closed.
    ///
    /// # Errors
    /// It does not answer, or not as squid does; it keeps no log.
    pub fn counters(&self, folder: &Path, listen: SocketAddr) -> Result<ProxyCounters, ExperimentError> {
        let log = folder.join("squid/access.log");
        let wrong = |why: String| ExperimentError::Program { program: "squid", why };
        // Before the question, which is in the log soon and not in its own answer.
        let lines = fs::read_to_string(&log).map_err(ExperimentError::file(&log))?;
        let said = get::body(listen, COUNTERS).map_err(|error| wrong(format!("its counters: {error}")))?;
        let counted =
            read_counters(&said).ok_or_else(|| wrong("its counters lack client_http.requests or .hits".into()))?;
        let others = lines.lines().filter(|line| is_other(line)).count() as u64;
        Ok(ProxyCounters { requests: counted.requests.saturating_sub(others), ..counted })
    }
}

/// Whether a line of the log is of a tunnel or a question for counters. Connections without a request are in the log too, but
/// are not counted.
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
    fn counters_are_read_from_its_page() {
        let page =
            "sample_time = 1.2 (x)\nclient_http.requests = 1234\nclient_http.hits = 567\nclient_http.errors = 8\n";
        assert_eq!(read_counters(page), Some(ProxyCounters { requests: 1234, hits: 567 }));
        assert_eq!(read_counters("client_http.requests = 1234\n"), None);
        assert_eq!(read_counters("client_http.requests_all = 1\nclient_http.hits = x\n"), None);
    }

    #[test]
    fn tunnels_and_questions_are_told_apart() {
        for other in ["CONNECT 127.0.0.1:443", "CONNECT -", "CONNECT", "GET /squid-internal-mgr/counters"] {
            assert!(is_other(other), "{other}");
        }
        for request in ["GET /y/1/A1.html", "POST /", "- -", "", "GET /squid-internal-mgr/countersX"] {
            assert!(!is_other(request), "{request}");
        }
    }

    #[test]
    fn a_store_on_disk_is_made_before_it_starts() {
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
