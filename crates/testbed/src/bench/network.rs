//! Third stage: the sandboxes with their network, the path between them, the server, and capture rings.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use path::PathSpec;
use sys::accounting::CpuTimes;
use sys::namespace::NetNamespace;
use sys::netlink::LinkStats;

use super::resolve::Resolved;
use super::resources::Resources;
use crate::drive::path_io::PathIo;
use crate::error::TestbedError;
use crate::topology::{self, Topology};
use crate::watching::{CLIENT_SNAPLEN, Taps};
use crate::{distances, server};
use plan::{HttpVersion, PathPlan, Plan};

/// The run's network; without a path there is none, and connections go directly to the target.
#[derive(Default)]
pub(super) struct Network {
    /// The sandboxes.
    pub topology: Option<Topology>,
    /// The path, until the first loop takes it.
    pub path_io: Option<PathIo>,
    /// Open capture rings, until the capture starts.
    pub taps: Option<Taps>,
    /// Whether packets are captured: local ports are then recorded.
    pub is_captured: bool,
}

impl Network {
    /// Creates the network; a server of the testbed listens when this returns. Its output goes to `server.log` in
    /// `folder`.
    ///
    /// # Errors
    /// The machine lacks a feature, or the server does not start or does not listen.
    pub fn create(resolved: &Resolved, resources: &Resources, folder: Option<&Path>) -> Result<Self, TestbedError> {
        let (Some(path), Some(spec)) = (&resolved.plan.path, &resolved.spec) else { return Ok(Network::default()) };
        let spec = distances::with_origin(spec, resolved.plan.origin.as_ref())?;
        let log = folder.map(|folder| folder.join("server.log"));
        let (topology, path_io) = create_topology(resolved, resources, path, &spec, log.as_deref())?;
        let plan = &resolved.plan;
        let port = resolved.destination.addresses[0].port();
        // Kept datagrams of QUIC are decrypted, those of the clients' end as well.
        let is_decrypted = plan.watch.keep && plan.load.http == HttpVersion::Http3;
        let at_clients = if is_decrypted { plan.snaplen() } else { CLIENT_SNAPLEN };
        let snaplens = [plan.snaplen(), at_clients];
        let taps = Taps::open(&topology, plan.watch_at(), Some(port), (snaplens, plan.watch.ring))?;
        Ok(Network { topology: Some(topology), path_io: Some(path_io), is_captured: taps.is_some(), taps })
    }

    /// The clients' namespace.
    ///
    /// # Errors
    /// No descriptor is available for it.
    pub fn client_net(&self) -> Result<Option<NetNamespace>, TestbedError> {
        let net = self.topology.as_ref().map(|topology| topology.client_net.try_clone());
        net.transpose().map_err(TestbedError::environment)
    }

    /// Whether connections to a service outside the testbed are closed at the end; a server of the testbed ends as
    /// well, unless packets are captured.
    pub fn carries_end(&self) -> bool {
        self.is_captured || self.topology.as_ref().is_some_and(|topology| !topology.reaches.is_empty())
    }
}

/// The machine's counters at the start or the end of a run.
pub(super) struct MachineCounters {
    /// Counters of the clients' device and of the server's.
    pub devices: Option<[LinkStats; 2]>,
    /// CPU time of every core.
    pub cpu: Option<Vec<(usize, CpuTimes)>>,
}

impl MachineCounters {
    /// Reads the counters; unreadable ones are absent.
    pub fn read(topology: Option<&Topology>) -> Self {
        MachineCounters { devices: device_statistics(topology), cpu: sys::accounting::cpu_times().ok() }
    }
}

/// Counters of the clients' device and the server's.
pub(super) fn device_statistics(topology: Option<&Topology>) -> Option<[LinkStats; 2]> {
    topology.and_then(|topology| topology.device_statistics().ok())
}

/// Creates the sandboxes and the path, and starts the origin and the server under test.
fn create_topology(
    resolved: &Resolved,
    resources: &Resources,
    path: &PathPlan,
    spec: &PathSpec,
    log: Option<&Path>,
) -> Result<(Topology, PathIo), TestbedError> {
    let (plan, cores) = (&resolved.plan, &resources.cores);
    let Some(server) = &plan.server else {
        let mut topology = Topology::toward(resolved.destination.reaches.clone())?;
        let path_io = topology.connect(spec, path.offload, &plan.target.tcp, cores, plan.seed)?;
        return Ok((topology, path_io));
    };
    let endpoints = &resolved.destination.addresses;
    let port = endpoints[0].port();
    let mut topology = Topology::new(Some(server), cores, log, resources.rootless)?;
    let path_io = topology.connect(spec, path.offload, &server.tcp, cores, plan.seed)?;
    let addresses: Vec<IpAddr> = endpoints.iter().map(SocketAddr::ip).collect();
    topology.require_family(addresses.iter().copied())?;
    start_origin(&mut topology, plan, resources, port, log)?;
    server::start(&mut topology, server, &addresses, port, plan.load.http == HttpVersion::Http3)?;
    Ok((topology, path_io))
}

/// Starts the origin behind a proxy under test, if the plan has one.
fn start_origin(
    topology: &mut Topology,
    plan: &Plan,
    resources: &Resources,
    port: u16,
    log: Option<&Path>,
) -> Result<(), TestbedError> {
    let Some(origin) = &plan.origin else { return Ok(()) };
    // The packet capture recognises the proxy's own flows by their port.
    if origin.at(plan.load.clients).port() == port {
        return Err(TestbedError::Plan(format!("[origin] listen: port {port} is the proxy's: expected another one")));
    }
    topology::origin::start(topology, origin, plan.load.clients, &resources.cores, log)
}
