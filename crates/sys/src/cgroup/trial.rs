//! Trials of control groups that leave no change behind.

use units::CpuShare;

use super::hierarchy::Hierarchies;
use super::{Cgroup, Limits};
use crate::error::Result;

/// Result of trying to set a CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundTrial {
    /// A group was created, limited and removed.
    Bound,
    /// Not tried: a version 2 group above must first enable the cpu controller for its children. The first limit does
    /// so, and the setting stays.
    NotHandedOutYet,
}

/// Creates a group with a limit of `share`, and removes it.
///
/// # Errors
/// As of [`Cgroup::create`].
pub fn try_bound(share: CpuShare) -> Result<BoundTrial> {
    let hierarchies = Hierarchies::read()?;
    if hierarchies.needs_controller_enabled() {
        return Ok(BoundTrial::NotHandedOutYet);
    }
    let group = Cgroup::create_in(&hierarchies, "trial", Limits { cpu: Some(share), ..Limits::default() })?;
    // A server must join the group: the permission is checked as well.
    group.open_procs()?;
    Ok(BoundTrial::Bound)
}

/// The versions mounted here, in words.
///
/// # Errors
/// /proc could not be read.
pub fn describe() -> Result<String> {
    Ok(Hierarchies::read()?.describe())
}

/// The lowest CPU limit of this process, in cores; `None` if none is visible (a container may hide it).
pub fn cpu_quota() -> Option<f64> {
    Hierarchies::read().ok()?.cpu_quota()
}
