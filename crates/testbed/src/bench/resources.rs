//! Second stage: the machine's resources for the run. Descriptors, processes and cores, and the privilege to create
//! namespaces.

use load::{LoadSpec, Shard};
use sys::sched::Cores;

use super::resolve::Resolved;
use super::{possible, urgency};
use crate::error::TestbedError;
use crate::host::{CorePlan, Wakefulness};
use crate::shards::ShardPlan;
use crate::topology;
use plan::Plan;

/// Most processes of a run.
pub(super) const PROCESSES_MAX: u32 = 64;
/// Descriptors reserved for everything but connections.
pub(super) const DESCRIPTORS_RESERVED: u64 = 128;

/// Resources of the run.
pub(super) struct Resources {
    /// Open files that a process may have.
    pub descriptors: u64,
    /// Connections that the run may have open.
    pub connections_max: u32,
    /// The loops that the load takes.
    pub shard_plan: ShardPlan,
    /// Keeps idle processors awake, if the plan configures it.
    pub wakefulness: Wakefulness,
    /// Cores that this process may run on.
    pub allowed: Cores,
    /// Which part of the run each core belongs to.
    pub cores: CorePlan,
    /// Whether a loop has its own core.
    pub own_core: bool,
    /// Whether this process is root of a user namespace only.
    pub rootless: bool,
}

impl Resources {
    /// Claims the resources, and writes the number of connections into `load_spec`.
    ///
    /// # Errors
    /// The machine's limits are too low for the plan; namespaces cannot be created.
    pub fn claim(resolved: &Resolved, load_spec: &mut LoadSpec) -> Result<Self, TestbedError> {
        let plan = &resolved.plan;
        let descriptors = sys::limits::raise_open_files();
        // The kernel enlarges the descriptor table on demand, which would stall the loop while it opens connections.
        sys::limits::widen_table_of_files(descriptors);
        // In a closed loop every connection stands for a user, who may open several for a step.
        let at_once = if plan.load.is_open() { 1 } else { u32::from(load_spec.workload.widest_step()) };
        let (connections_max, shard_plan) = connections_max(plan, descriptors, at_once)?;
        load_spec.connections_max = connections_max;

        // Done before this process is root of a namespace only, and before the server starts, so that the server starts
        // on processors that are awake.
        let wakefulness = Wakefulness::of(plan.host.idle);
        let allowed = Cores::allowed().map_err(TestbedError::system("sched_getaffinity"))?;
        // Without a server of the testbed its cores are unknown: nothing is pinned.
        let cores = if plan.server.is_some() {
            CorePlan::new(plan.host.placement, &allowed, shard_plan.of)
        } else {
            CorePlan::default()
        };
        let own_core = urgency::has_own_core(&cores, &allowed, &resolved.destination.addresses);
        // A user namespace comes before the first file, because files belong to the user that creates them.
        let rootless = plan.server.is_some() && topology::gain_privilege()?;
        Ok(Resources { descriptors, connections_max, shard_plan, wakefulness, allowed, cores, own_core, rootless })
    }

    /// The cores that the server may use: all allowed cores if nothing is pinned.
    pub fn server_cores(&self) -> &Cores {
        self.cores.server.as_ref().unwrap_or(&self.allowed)
    }

    /// Whether generator, path and recorder share one core.
    pub fn recorder_shares_the_core(&self) -> bool {
        self.cores.client.as_ref().unwrap_or(&self.allowed).list().len() == 1
    }
}

/// The part of this machine among those that make the plan's load.
pub(super) fn machine(plan: &Plan) -> Shard {
    plan.shard.shard.map_or(Shard::WHOLE, |shard| Shard::new(shard.index, shard.count))
}

/// Connections that the run may have open, and its number of shards: if one process may not have all, several share
/// them.
fn connections_max(plan: &Plan, descriptors: u64, at_once: u32) -> Result<(u32, ShardPlan), TestbedError> {
    let possible = u32::try_from(descriptors.saturating_sub(DESCRIPTORS_RESERVED)).unwrap_or(u32::MAX);
    if possible == 0 {
        return Err(TestbedError::Environment(format!(
            "this process may have {descriptors} open files, but needs {DESCRIPTORS_RESERVED} before the first \
             connection: raise the limit (ulimit -n, or LimitNOFILE= of a service)"
        )));
    }
    let (threads, machine) = (plan.host.threads, machine(plan));
    match plan.load.connections.or(plan.load.open_connections) {
        Some(configured) => {
            let configured = machine.share(u64::from(configured)) as u32;
            let shards = ShardPlan::new(threads, configured, possible / at_once);
            if shards.in_processes && shards.of > PROCESSES_MAX {
                return Err(TestbedError::Environment(format!(
                    "-c {configured}: a process may have {descriptors} open files, {possible} of them connections, so this \
                     needs {} processes, but there are at most {PROCESSES_MAX}: raise the limit (ulimit -n, or \
                     LimitNOFILE= of a service) or lower -c",
                    shards.of
                )));
            }
            Ok((configured, shards.of_machine(machine)))
        }
        None => {
            let possible = if plan.path.is_none() { possible.min(possible::ports_easily_found()) } else { possible };
            Ok((possible, ShardPlan::new(threads, possible, possible).of_machine(machine)))
        }
    }
}
