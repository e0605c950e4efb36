//! The names of our groups, and the removal of those whose owner is dead.

use std::fs;
use std::path::Path;

use super::hierarchy::Hierarchies;
use crate::error::{Error, Result};

/// Removes the groups of yamabiko processes that no longer live, and returns how many directories went. A group that
/// still holds processes is left alone. Call it at start: nobody else removes what a SIGKILL left.
///
/// # Errors
/// /proc could not be read. A directory that this user may not remove is not an error: it is another user's.
pub fn sweep() -> Result<usize> {
    Ok(Hierarchies::read()?.mounts().map(|mount| sweep_below(mount, DEPTH_MAX)).sum())
}

/// The whole hierarchy, since the dead one's own place in it need not have been ours.
fn sweep_below(parent: &Path, depth: usize) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        match entry.file_name().to_str().filter(|name| owner(name).is_some()) {
            Some(name) if is_of_the_dead(name) => {
                removed += sweep_inside(&entry.path()) + usize::from(fs::remove_dir(entry.path()).is_ok());
            }
            Some(_) => {}
            None if depth > 0 => removed += sweep_below(&entry.path(), depth - 1),
            None => {}
        }
    }
    removed
}

/// Removes what programs that ran in a group made within it and left when they were killed, and returns how many
/// directories went: a group cannot be removed before those in it. One that holds processes stays.
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

/// Whether a name of ours says a process that no longer lives.
pub(crate) fn is_of_the_dead(name: &str) -> bool {
    owner(name).is_some_and(|(pid, started)| start_time(pid) != Some(started))
}

/// Process and start time that a group's name says, when it is one of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| owner)
}

/// When a process started, in clock ticks since boot: with the pid, its identity, as pids are used again.
fn start_time(pid: u32) -> Option<u64> {
    crate::accounting::ProcessStat::read(pid as i32).map(|stat| stat.start_ticks)
}

const PREFIX: &str = "yamabiko-";

/// Deeper than sessions and containers nest.
const DEPTH_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_owner() {
        let name = own_name("the server/1").unwrap();
        assert!(name.ends_with("-the_server_1"), "{name}");
        let (pid, started) = owner(&name).unwrap();
        assert_eq!((pid, Some(started)), (std::process::id(), start_time(pid)));
        assert_eq!(owner("yamabiko-12-34"), None);
        assert_eq!(owner("yamabiko-12-x-server"), None);
        assert_eq!(owner("system.slice"), None);
    }
}
