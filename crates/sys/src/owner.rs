//! Names that say which process owns a control group or a directory, so that what a killed process left can be told
//! apart from what a running one uses.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;

use crate::accounting::ProcessStat;
use crate::error::{Error, Result};

/// `yamabiko-<PID namespace>-<pid>-<start time>-<label>` of this process. A pid identifies a process only within its
/// namespace, and with its start time, as pids are reused.
///
/// # Errors
/// /proc is not mounted.
pub(crate) fn own_name(label: &str) -> Result<String> {
    let pid = std::process::id();
    let not_mounted = || Error::Missing { what: "/proc is not mounted".to_owned() };
    let started = ProcessStat::read(pid.cast_signed()).ok_or_else(not_mounted)?.start_ticks;
    let label: String = label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    Ok(format!("{PREFIX}{}-{pid}-{started}-{label}", pid_namespace()?))
}

/// Whether the owner in a name is dead: a process of this PID namespace that no longer exists. Of processes in another
/// namespace, such as a sandbox or a container that shares a file system, this one cannot know.
pub(crate) fn is_of_dead_process(name: &str) -> bool {
    let Some(owner) = Owner::parse(name) else { return false };
    pid_namespace().is_ok_and(|own| own == owner.namespace) && is_dead(owner.pid, owner.started)
}

/// Whether a name is one of this program's.
pub(crate) fn has_owner(name: &str) -> bool {
    Owner::parse(name).is_some()
}

#[derive(Debug, PartialEq)]
struct Owner {
    namespace: u64,
    pid: u32,
    started: u64,
}

impl Owner {
    fn parse(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
        let namespace = parts.next()?.parse().ok()?;
        let owner = Owner { namespace, pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? };
        parts.next().map(|_| owner)
    }
}

/// A process whose state cannot be read, for want of a file descriptor for example, is not taken for dead.
fn is_dead(pid: u32, started: u64) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        // A program may have given its process a name that is not UTF-8.
        Ok(bytes) => {
            ProcessStat::parse(&String::from_utf8_lossy(&bytes)).is_some_and(|stat| stat.start_ticks != started)
        }
        Err(error) => error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// The inode of this process's PID namespace.
fn pid_namespace() -> Result<u64> {
    let path = "/proc/self/ns/pid";
    fs::metadata(path).map(|found| found.ino()).map_err(Error::of(format!("stat {path}")))
}

const PREFIX: &str = "yamabiko-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_identifies_its_owner() {
        let name = own_name("the server/1").unwrap();
        assert!(name.ends_with("-the_server_1"), "{name}");
        let owner = Owner::parse(&name).unwrap();
        assert_eq!((owner.namespace, owner.pid), (pid_namespace().unwrap(), std::process::id()));
        for foreign in ["yamabiko-12-34-56", "yamabiko-12-34-x-server", "yamabiko-12-34-server", "system.slice"] {
            assert!(!has_owner(foreign) && !is_of_dead_process(foreign), "{foreign}");
        }
    }

    #[test]
    fn owner_is_dead_only_if_its_own_namespace_says_so() {
        let (namespace, pid) = (pid_namespace().unwrap(), std::process::id());
        assert!(!is_of_dead_process(&own_name("server").unwrap()));
        // This pid, but of an earlier process; a pid above the maximum.
        assert!(is_of_dead_process(&format!("yamabiko-{namespace}-{pid}-1-server")));
        assert!(is_of_dead_process(&format!("yamabiko-{namespace}-4194999-1-server")));
        // The same names in a sandbox's namespace, where the process may be alive.
        assert!(!is_of_dead_process(&format!("yamabiko-{}-{pid}-1-server", namespace + 1)));
        assert!(!is_of_dead_process(&format!("yamabiko-{}-4194999-1-server", namespace + 1)));
    }
}
