//! What could be done with control groups here, found out without leaving anything changed.

use units::CpuShare;

use super::hierarchy::Hierarchies;
use super::{Cgroup, Limits};
use crate::error::Result;

/// What came of trying to bound processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundTrial {
    /// A group was made, bound and removed again.
    Bound,
    /// Not tried: a version 2 group above has to be told first to hand the cpu controller out, which the first bound
    /// does, and which stays.
    NotHandedOutYet,
}

/// Makes a group with a bound of `share`, and removes it.
///
/// # Errors
/// As of [`Cgroup::create`].
pub fn try_bound(share: CpuShare) -> Result<BoundTrial> {
    let hierarchies = Hierarchies::read()?;
    if hierarchies.must_be_told() {
        return Ok(BoundTrial::NotHandedOutYet);
    }
    let group = Cgroup::create_in(&hierarchies, "trial", Limits { cpu: Some(share), ..Limits::default() })?;
    // A server has to join it: the right to is checked as well.
    group.open_procs()?;
    Ok(BoundTrial::Bound)
}

/// Which versions are mounted here, in words.
///
/// # Errors
/// /proc could not be read.
pub fn describe() -> Result<String> {
    Ok(Hierarchies::read()?.describe())
}

/// The tightest bound on processor time that this process is under, in cores; `None` for none that can be seen (a
/// container may hide it).
pub fn cpu_quota() -> Option<f64> {
    Hierarchies::read().ok()?.cpu_quota()
}
