//! What this machine can and cannot do.
//!
//! ```text
//!   host, rights (as this process is now)  -->  ends: a namespace, a TUN, addresses, a place, tried and taken down
//!        |                                          |                   timing: waits, clock, writes to the TUN
//!        '------------------ Facts -----------------'
//!                              |--> findings: each fact judged, with its mend
//!                              '--> abilities: what each verb can do
//! ```
//!
//! What can be tried is tried, by the calls that a run makes; nothing that is made outlives the trial, and nothing of the
//! host is changed. Judging ([`findings`], [`abilities`]) is pure: from [`Facts`] alone.

#![allow(clippy::disallowed_methods, reason = "what can be tried is tried and timed")]

pub mod abilities;
mod ends;
pub mod facts;
pub mod findings;
mod machine;
mod rights;
mod timing;

use std::path::Path;

use schema::doctor::{DoctorDocument, SCHEMA};
use schema::document::Host;

use testbed::LabError;

pub use facts::Facts;

/// Looks, tries and, unless `quick`, measures for about two seconds. `book` is the folder of runs.
///
/// Call it while this process has one thread, since a place is forked; as an ordinary user the process is in a user
/// namespace of its own afterwards.
///
/// # Errors
/// /proc is not mounted, or not understood. What is refused or missing is not an error but a finding.
pub fn examine(book: &Path, quick: bool) -> Result<DoctorDocument, LabError> {
    let machine = machine::look().map_err(LabError::environment)?;
    let book = machine::book(book);
    let rights = rights::look();
    let (ends, tun) = ends::try_out(&rights, &machine);
    let measured = if quick { None } else { Some(timing::measure(&machine, tun)?) };
    let facts = Facts { rights, ends, machine, book, measured };
    Ok(document(facts))
}

fn document(facts: Facts) -> DoctorDocument {
    let machine = &facts.machine;
    DoctorDocument {
        schema: SCHEMA.into(),
        host: Host {
            kernel: machine.facts.kernel.clone(),
            cpu: machine.facts.cpu_model.clone(),
            cores: machine.allowed.list().len() as u32,
            memory_bytes: machine.facts.memory_bytes,
            ..Host::default()
        },
        verbs: abilities::abilities(&facts),
        findings: findings::findings(&facts),
        measured: facts.measured,
    }
}

#[cfg(test)]
mod tests;
