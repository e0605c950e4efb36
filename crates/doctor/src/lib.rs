//! Checks of this machine: what works here, which figures suffer, and how to fix both.
//!
//! ```text
//!   rights of this process  -->  ends: namespace, TUN, addresses, sandbox, created and removed again
//!        |                         |          timing: waits, clock, writes to the TUN
//!        '--------- Facts ---------'
//!                     |--> findings: the state of each fact, with its fix
//!                     '--> abilities: what each verb can do
//! ```
//!
//! Features are tried by the system calls that a run makes. Nothing that a trial creates outlives it, and the host is
//! not changed. States ([`findings`], [`abilities`]) are computed from [`Facts`] only.

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

use testbed::TestbedError;

pub use facts::Facts;

/// Reads settings, tries features and, unless `quick`, measures timers for about two seconds. `root` is the run store.
///
/// Call it while this process has one thread, because the sandbox is forked. An ordinary user's process is in its own
/// user namespace afterwards.
///
/// # Errors
/// /proc is not mounted, or cannot be parsed. A feature that is refused or missing is a finding, not an error.
pub fn examine(root: &Path, quick: bool) -> Result<DoctorDocument, TestbedError> {
    let machine = machine::read().map_err(TestbedError::environment)?;
    let run_store = machine::run_store(root);
    let rights = rights::read();
    let (ends, tun) = ends::try_out(&rights, &machine);
    let measured = if quick { None } else { Some(timing::measure(&machine, tun)?) };
    let facts = Facts { rights, ends, machine, run_store, measured };
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
