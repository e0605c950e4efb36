//! First stages of `net`: the target, the program's sandbox and the server's, and the path between them.

use std::ffi::OsString;
use std::net::IpAddr;

use path::PathSpec;
use sys::clock::Clock;
use sys::sandbox::{Net, Sandbox, SandboxSpec};
use sys::sched::Cores;

use super::NetPlan;
use crate::drive::path_io::PathIo;
use crate::error::TestbedError;
use crate::host::{CorePlan, Wakefulness};
use crate::tapping::Prepared;
use crate::topology::target::{self, Named, Reach};
use crate::topology::{self, Topology};
use crate::{distances, server};
use plan::Placement;

/// The program's sandbox and the network around it; the program waits for its start.
pub(super) struct Sandboxes {
    /// The path's links.
    pub spec: PathSpec,
    /// Keeps idle processors awake, if the plan configures it.
    pub wakefulness: Wakefulness,
    /// Cores of each part of the run.
    pub cores: CorePlan,
    /// Services at the server's end that the testbed does not start.
    pub far: Vec<Named>,
    /// The run's clock.
    pub clock: Clock,
    /// The program's tap, if it has one.
    pub prepared: Option<Prepared>,
    /// The program.
    pub program: Sandbox,
    /// Both ends of the network.
    pub topology: Topology,
    /// The path, until its thread takes it.
    pub path_io: Option<PathIo>,
}

impl Sandboxes {
    /// Creates the sandboxes. A server of the testbed listens when this returns.
    ///
    /// # Errors
    /// A plan that cannot be carried out, a machine that lacks a feature, or a program or server that cannot be
    /// started.
    pub fn create(plan: &NetPlan, command: &[OsString]) -> Result<Self, TestbedError> {
        let spec = distances::spec(&plan.path, plan.clients)?;
        distances::refuse_migration(&spec)?;
        let wakefulness = Wakefulness::of(plan.host.idle);
        let allowed = Cores::allowed().map_err(TestbedError::system("sched_getaffinity"))?;
        // The program is the client: it runs on the server's cores, not on the path's.
        let cores = if plan.host.placement == Placement::Split {
            CorePlan::new(Placement::Split, &allowed, 1)
        } else {
            CorePlan::default()
        };
        let far = match plan.to.first() {
            None => Vec::new(),
            Some(first) => {
                topology::require_host_privilege(&first.host)?;
                target::named(&plan.to, plan.target.family)?
            }
        };
        let rootless = far.is_empty() && topology::gain_privilege()?;
        let clock = Clock::start();
        let prepared = plan.tap.as_ref().map(|_| Prepared::new(clock)).transpose()?;
        let program = start_program(plan, command, &far, prepared.as_ref(), rootless)?;
        let mut topology = if far.is_empty() {
            Topology::new(plan.server.as_ref(), &CorePlan::default(), None, rootless)?
        } else {
            Topology::toward(reaches(&far))?
        };
        topology.client_net = program.net().try_clone().map_err(TestbedError::environment)?;
        let path_io = connect(plan, &mut topology, &spec, far.is_empty())?;
        Ok(Sandboxes { spec, wakefulness, cores, far, clock, prepared, program, topology, path_io: Some(path_io) })
    }

    /// The server's end of the path, as text.
    pub fn far_end(&self) -> String {
        far_end(&self.far)
    }

    /// The description of the network for the user, before the program starts.
    pub fn describe(&self, profile: &str) -> String {
        let last = self.spec.clients.len() as u32 - 1;
        format!(
            "client addresses {} to {}; {}; {profile}",
            topology::client_address(0, topology::SERVER.into()),
            topology::client_address(last, topology::SERVER.into()),
            self.far_end(),
        )
    }
}

fn start_program(
    plan: &NetPlan,
    command: &[OsString],
    far: &[Named],
    prepared: Option<&Prepared>,
    rootless: bool,
) -> Result<Sandbox, TestbedError> {
    let preload = std::env::var_os("LD_PRELOAD");
    let started = Sandbox::start(SandboxSpec {
        env: prepared.map(|tap| tap.environment(preload.as_deref())).unwrap_or_default(),
        hosts: hosts(plan, far),
        net: Net::New,
        rootless,
        ..SandboxSpec::new(command.to_vec())
    });
    started.map_err(|error| match error {
        sys::Error::Exec { .. } => TestbedError::plan(error),
        other => TestbedError::environment(other),
    })
}

/// Creates the path, and starts the server of the testbed if there is one.
fn connect(plan: &NetPlan, topology: &mut Topology, spec: &PathSpec, in_testbed: bool) -> Result<PathIo, TestbedError> {
    let tcp = plan.server.as_ref().map_or(&plan.target.tcp, |server| &server.tcp);
    let path_io = topology.connect(spec, plan.path.offload, tcp, &CorePlan::default(), plan.seed)?;
    if in_testbed {
        let count = plan.server.as_ref().map_or(1, |server| server.addresses);
        topology.require_family(plan.target.family.choose(&target::lab_addresses(count)).into_iter())?;
    }
    if let Some(server) = &plan.server {
        let addresses = plan.target.family.choose(&target::lab_addresses(server.addresses));
        server::start_on_any_port(topology, server, &addresses)?;
    }
    Ok(path_io)
}

/// Names that the program can resolve: the server's, or those of the services.
fn hosts(plan: &NetPlan, far: &[Named]) -> Vec<(IpAddr, String)> {
    let names = match &plan.server {
        Some(server) => target::names(server),
        None => vec![topology::SERVER_NAME],
    };
    if far.is_empty() {
        let count = plan.server.as_ref().map_or(1, |server| server.addresses);
        return topology::hosts(&plan.target.family.choose(&target::lab_addresses(count)), &names);
    }
    let connects = |named: &Named| named.reaches.iter().map(|reach| reach.connect).collect::<Vec<_>>();
    let mut hosts: Vec<(IpAddr, String)> = Vec::new();
    for named in far.iter().filter(|named| named.name.parse::<IpAddr>().is_err()) {
        hosts.extend(topology::hosts(&connects(named), &[&named.name]));
    }
    if !far.iter().any(|named| named.name == topology::SERVER_NAME) {
        hosts.extend(topology::hosts(&connects(&far[0]), &names));
    }
    hosts
}

/// The addresses of all services, each once.
fn reaches(far: &[Named]) -> Vec<Reach> {
    let mut all: Vec<Reach> = Vec::new();
    for reach in far.iter().flat_map(|named| &named.reaches) {
        if !all.contains(reach) {
            all.push(*reach);
        }
    }
    all
}

/// The server's end of the path, as text.
fn far_end(far: &[Named]) -> String {
    if far.is_empty() {
        return format!("the server's end is {} (`{}`)", topology::SERVER, topology::SERVER_NAME);
    }
    let each = far.iter().map(|named| {
        let words: Vec<String> = named.reaches.iter().map(Reach::words).collect();
        format!("`{}` ({})", named.name, words.join(", "))
    });
    format!(
        "reachable: {}, and nothing else; the first is also `{}`",
        each.collect::<Vec<_>>().join(", "),
        topology::SERVER_NAME
    )
}
