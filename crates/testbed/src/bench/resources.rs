//! Second stage: what this machine gives to the run. Descriptors, processes and cores, and the privilege to make namespaces.

use load::LoadSpec;
use sys::sched::Cores;

use super::resolve::Resolved;
use super::{possible, urgency};
use crate::error::LabError;
use crate::host::{CorePlan, Wakefulness};
use crate::lanes::LanePlan;
use crate::places;
use plan::Plan;

/// Processes that a run may be divided among.
pub(super) const PROCESSES_MAX: u32 = 64;
/// Descriptors kept for everything that is not a connection.
pub(super) const DESCRIPTORS_KEPT: u64 = 128;

/// What the run has of this machine.
pub(super) struct Resources {
    /// Open files that a process may have.
    pub descriptors: u64,
    /// Connections that the run may have open at once.
    pub connections_max: u32,
    /// The loops that the load takes.
    pub lane_plan: LanePlan,
    /// Keeps idle processors awake, where the plan says so.
    pub wakefulness: Wakefulness,
    /// Cores that this process may run on.
    pub allowed: Cores,
    /// Which of them are whose.
    pub cores: CorePlan,
    /// Whether a loop's core is its own.
    pub own_core: bool,
    /// Whether this process is root of a user namespace only.
    pub rootless: bool,
}

impl Resources {
    /// Claims them, and writes into `load_spec` how many connections there may be.
    ///
    /// # Errors
    /// The machine's limits are below what the plan needs; namespaces cannot be made.
    pub fn claim(resolved: &Resolved, load_spec: &mut LoadSpec) -> Result<Self, LabError> {
        let plan = &resolved.plan;
        let descriptors = sys::limits::raise_open_files();
        // Or the loop stands still for it in the middle of opening connections.
        sys::limits::widen_table_of_files(descriptors);
        // In a closed loop every connection stands for a user, who opens as many as a step needs at once.
        let at_once = if plan.load.is_open() { 1 } else { u32::from(load_spec.workload.widest_step()) };
        let (connections_max, lane_plan) = connections_max(plan, descriptors, at_once)?;
        load_spec.connections_max = connections_max;

        // Before this process is root of a namespace only, and so that the server starts on processors that are awake.
        let wakefulness = Wakefulness::of(plan.host.idle);
        let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
        // Without a server of the lab nobody knows where the server runs: nothing is pinned.
        let cores = if plan.server.is_some() {
            CorePlan::new(plan.host.placement, &allowed, lane_plan.of)
        } else {
            CorePlan::default()
        };
        let own_core = urgency::has_own_core(&cores, &allowed, &resolved.destination.addresses);
        // A user namespace, where one is needed, comes before the first file: files belong to whoever makes them.
        let rootless = plan.server.is_some() && places::gain_privilege()?;
        Ok(Resources { descriptors, connections_max, lane_plan, wakefulness, allowed, cores, own_core, rootless })
    }

    /// The cores that the server may use: all that are allowed where nothing is pinned.
    pub fn server_cores(&self) -> &Cores {
        self.cores.server.as_ref().unwrap_or(&self.allowed)
    }

    /// Whether generator, path and recorder have one core together.
    pub fn recorder_shares_the_core(&self) -> bool {
        self.cores.client.as_ref().unwrap_or(&self.allowed).list().len() == 1
    }
}

/// Connections that the run may have open at once, and the lanes that it takes: more than one process may have are divided
/// among several.
fn connections_max(plan: &Plan, descriptors: u64, at_once: u32) -> Result<(u32, LanePlan), LabError> {
    let possible = u32::try_from(descriptors.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(u32::MAX);
    if possible == 0 {
        return Err(LabError::Environment(format!(
            "this process may have {descriptors} open files, and needs {DESCRIPTORS_KEPT} before the first connection: \
             raise the limit (ulimit -n, or LimitNOFILE= of a service)"
        )));
    }
    let threads = plan.host.threads;
    match plan.load.connections.or(plan.load.open_connections) {
        Some(asked) => {
            let lanes = LanePlan::new(threads, asked, possible / at_once);
            if lanes.in_processes && lanes.of > PROCESSES_MAX {
                return Err(LabError::Environment(format!(
                    "-c {asked}: a process may have {descriptors} open files, {possible} of them connections, so this takes \
                     {} processes, and {PROCESSES_MAX} are the most: raise the limit (ulimit -n, or LimitNOFILE= of a \
                     service) or lower -c",
                    lanes.of
                )));
            }
            Ok((asked, lanes))
        }
        None => {
            let possible = if plan.path.is_none() { possible.min(possible::ports_easily_found()) } else { possible };
            Ok((possible, LanePlan::new(threads, possible, possible)))
        }
    }
}
