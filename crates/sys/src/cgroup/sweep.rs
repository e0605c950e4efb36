//! The removal of control groups whose owner is dead.

use std::fs;
use std::path::Path;

use super::hierarchy::Hierarchies;
use crate::error::Result;
use crate::owner::{has_owner, is_of_dead_process};

/// Removes the groups of yamabiko processes of this PID namespace that are dead, and returns the number of removed directories. A group that
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
        match entry.file_name().to_str().filter(|name| has_owner(name)) {
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

/// Maximum depth, more than sessions and containers nest.
const DEPTH_MAX: usize = 8;
