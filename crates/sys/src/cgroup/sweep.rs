//! Names of this program's control groups, and the removal of those whose owner is dead.

use std::fs;
use std::path::Path;

use super::hierarchy::Hierarchies;
use crate::error::{Error, Result};

/// Removes the groups of yamabiko processes that are dead, and returns the number of removed directories. A group that
/// still holds processes stays. Call it at start: nothing else removes groups after a SIGKILL.
///
/// # Errors
/// /proc could not be read. A directory that this user may not remove is not an error: it belongs to another user.
pub fn sweep() -> Result<usize> {
    Ok(Hierarchies::read()?.mounts().map(|mount| sweep_below(mount, DEPTH_MAX)).sum())
}

/// Searches the whole hierarchy, since the dead process may have had another directory in it.
fn sweep_below(parent: &Path, depth: usize) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        match entry.file_name().to_str().filter(|name| owner(name).is_some()) {
            Some(name) if is_of_dead_process(name) => {
                removed += sweep_inside(&entry.path()) + usize::from(fs::remove_dir(entry.path()).is_ok());
            }
            Some(_) => {}
            None if depth > 0 => removed += sweep_below(&entry.path(), depth - 1),
            None => {}
        }
    }
    removed
}

/// Removes groups that programs created within `group` and left when they were killed, and returns the number of
/// removed directories: a group cannot be removed before its children. A group that contains processes is not removed.
pub(crate) fn sweep_inside(group: &Path) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed += sweep_inside(&entry.path()) + usize::from(fs::remove_dir(entry.path()).is_ok());
        }
    }
    removed
}

/// `yamabiko-<pid>-<start time>-<label>` of this process.
pub(crate) fn own_name(label: &str) -> Result<String> {
    let pid = std::process::id();
    let started = start_time(pid).ok_or_else(|| Error::Missing { what: "/proc is not mounted".to_owned() })?;
    let label: String = label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    Ok(format!("{PREFIX}{pid}-{started}-{label}"))
}

/// Whether a group's name belongs to a dead process.
pub(crate) fn is_of_dead_process(name: &str) -> bool {
    owner(name).is_some_and(|(pid, started)| start_time(pid) != Some(started))
}

/// Process and start time in a group's name, if it is one of this program's.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| owner)
}

/// Start time of a process, in clock ticks since boot: identifies it together with the pid, as pids are reused.
fn start_time(pid: u32) -> Option<u64> {
    crate::accounting::ProcessStat::read(pid as i32).map(|stat| stat.start_ticks)
}

const PREFIX: &str = "yamabiko-";

/// Maximum depth, more than sessions and containers nest.
const DEPTH_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_name_identifies_its_owner() {
        let name = own_name("the server/1").unwrap();
        assert!(name.ends_with("-the_server_1"), "{name}");
        let (pid, started) = owner(&name).unwrap();
        assert_eq!((pid, Some(started)), (std::process::id(), start_time(pid)));
        assert_eq!(owner("yamabiko-12-34"), None);
        assert_eq!(owner("yamabiko-12-x-server"), None);
        assert_eq!(owner("system.slice"), None);
    }
}
