//! The two ends of the testbed and the devices between them.
//!
//! ```text
//!   client namespace                                      server namespace (kind 1)
//!   198.19.0.0/16 local (AnyIP)   tun c0 ==fds== tun s0   198.18.0.1 (name: `server`)
//!   2001:2:0:2::/64                       |               2001:2:0:1::1
//!                                         |
//!                                         | or            this host's own network
//!                                         '===== tun yamabiko0   a service of this host (kind 2), another host (kind 3)
//! ```
//!
//! Invariant: nothing here outlives this process. Namespaces are held by descriptors, devices are in the namespaces or
//! are removed with a descriptor, and every program runs in a sandbox whose first process ends with this one. See
//! [`target`] for addresses, `ends.rs` and `host_end.rs` for their creation.

mod ends;
mod host_end;
pub mod listening;
pub(crate) mod origin;
pub mod target;

use std::ffi::OsString;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use path::{AddressPlan, Network, PathSpec, Rewrite};
use sys::accounting::HostFacts;
use sys::cgroup::{Cgroup, Limits};
use sys::namespace::{NetNamespace, Privilege};
use sys::netlink::{LinkStats, Netlink};
use sys::nft::Masquerade;
use sys::sandbox::{Sandbox, SandboxSpec, Stdio, Stdio3};
use sys::tun::Offload;

use crate::drive::path_io::PathIo;
use crate::error::TestbedError;
use crate::host::CorePlan;
pub use ends::bring_up;
pub use host_end::forwards_ipv6;
use plan::{ServerPlan, ServerTcp};
use target::{Reach, Routing};

/// The server's address (RFC 2544's range for benchmarking).
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The server's IPv6 address (RFC 5180's range for benchmarking).
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);
/// Address of the first client; client i has this address plus i.
pub const FIRST_CLIENT: Ipv4Addr = AddressPlan::FIRST_CLIENT;
/// The name by which programs in the testbed reach the server.
pub const SERVER_NAME: &str = "server";

pub(crate) const CLIENT_DEVICE: &str = "c0";
const SERVER_DEVICE: &str = "s0";

/// A network with a path, and a server if one is configured.
pub struct Topology {
    /// The clients' namespace.
    pub client_net: NetNamespace,
    /// The server's namespace: the testbed's own, or this host's.
    pub server_net: NetNamespace,
    /// The path's device in the server's namespace.
    pub server_device: String,
    /// Services that the clients reach, if the server's end is not the testbed's own.
    pub reaches: Vec<Reach>,
    /// Addresses of the testbed's own server end.
    lab_addresses: Vec<IpAddr>,
    /// Masquerading, so that other hosts respond. Its tables exist as long as this value.
    firewall: Vec<Masquerade>,
    /// Whether the clients' end has IPv6; known once the path is created.
    ipv6: bool,
    /// Warnings to show before a result.
    pub notes: Vec<String>,
    /// The origin behind the server, if the testbed starts one. Declared before the server, so that the server's
    /// requests end first.
    pub origin: Option<origin::Origin>,
    /// The server's processes.
    pub server: Option<Sandbox>,
    /// The server's output: the run's server.log, or memory if the run is not stored.
    pub server_output: Option<File>,
    /// The server's control group, if one could be created.
    pub cgroup: Option<Cgroup>,
    /// The server's TCP, as text.
    pub tcp: String,
    /// Whether the server's receive processing is steered to its own cores.
    pub steering: Steering,
    /// Whether the testbed is in a user namespace.
    pub rootless: bool,
}

/// Where receive processing of the server's device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the server's cores.
    ServerCores,
    /// In the path's write, on the path's core, because nothing is pinned.
    PathCore,
    /// In the path's write, on the path's core, because steering failed.
    Failed(String),
}

/// Obtains the right to create namespaces: as root immediately, otherwise by a user namespace. Only while there is one
/// thread.
///
/// # Errors
/// This process is neither root nor allowed to create a user namespace; the message has the fix.
pub fn gain_privilege() -> Result<bool, TestbedError> {
    if sys::namespace::in_user_namespace() && matches!(sys::namespace::privilege(), Privilege::Root) {
        return Ok(true);
    }
    match sys::namespace::privilege() {
        Privilege::Root => Ok(false),
        Privilege::UserNamespace => {
            sys::namespace::enter_user_namespace().map_err(TestbedError::environment)?;
            Ok(true)
        }
        Privilege::None { why } => Err(TestbedError::Environment(format!(
            "a path needs CAP_NET_ADMIN and CAP_SYS_ADMIN, or a user namespace: {why}"
        ))),
    }
}

/// Checks that a path may end in this host's own network, before anything is created.
///
/// # Errors
/// This user may not; the message names alternatives.
pub fn require_host_privilege(host: &str) -> Result<(), TestbedError> {
    match sys::namespace::privilege() {
        Privilege::Root => Ok(()),
        Privilege::UserNamespace | Privilege::None { .. } => Err(TestbedError::Environment(format!(
            "a path to `{host}` ends in this host's own network, which needs CAP_NET_ADMIN and CAP_SYS_ADMIN there: run as \
             root; any user may use a server that the testbed starts (--server), and without a path (--path none) \
             any URL"
        ))),
    }
}

impl Topology {
    /// Creates both ends. The server's sandbox waits for [`Sandbox::exec`].
    ///
    /// # Errors
    /// The machine refuses a step: the message names it.
    pub fn new(
        server: Option<&ServerPlan>,
        cores: &CorePlan,
        log: Option<&Path>,
        rootless: bool,
    ) -> Result<Self, TestbedError> {
        // Removes control groups of a killed run, if the machine has control groups.
        let _ = sys::cgroup::sweep();
        let cgroup = match server {
            None => None,
            Some(plan) => match server_group(plan) {
                Ok(group) => Some(group),
                Err(error) if plan.share().is_some() || plan.memory.is_some() => {
                    let options = if plan.memory.is_none() { "--server-cpu" } else { "--server-memory, --server-cpu" };
                    return Err(TestbedError::Environment(format!("{options}: {error}")));
                }
                // No limit is configured: /proc gives the resource usage without a control group.
                Err(_) => None,
            },
        };
        let (sandbox, server_output, server_net) = match server {
            None => (None, None, NetNamespace::create().map_err(TestbedError::environment)?),
            Some(plan) => {
                let output = server_output(log)?;
                let sandbox = start_server(plan, cores, cgroup.as_ref(), rootless, &output)?;
                let net = sandbox.net().try_clone().map_err(TestbedError::environment)?;
                (Some(sandbox), Some(output), net)
            }
        };
        let client_net = NetNamespace::create().map_err(TestbedError::environment)?;
        let lab_addresses = target::lab_addresses(server.map_or(1, |server| server.addresses));
        Ok(Topology {
            server: sandbox,
            server_output,
            cgroup,
            rootless,
            lab_addresses,
            ..Topology::between(client_net, server_net, SERVER_DEVICE)
        })
    }

    /// Creates the clients' end only: the server's end is in this host's own network, at `reaches`.
    ///
    /// # Errors
    /// The machine refuses a step: the message names it.
    pub fn toward(reaches: Vec<Reach>) -> Result<Self, TestbedError> {
        let client_net = NetNamespace::create().map_err(TestbedError::environment)?;
        let server_net = NetNamespace::current().map_err(TestbedError::environment)?;
        Ok(Topology { reaches, ..Topology::between(client_net, server_net, "") })
    }

    fn between(client_net: NetNamespace, server_net: NetNamespace, server_device: &str) -> Self {
        Topology {
            client_net,
            server_net,
            server_device: server_device.to_owned(),
            reaches: Vec::new(),
            lab_addresses: Vec::new(),
            firewall: Vec::new(),
            ipv6: false,
            notes: Vec::new(),
            origin: None,
            server: None,
            server_output: None,
            cgroup: None,
            tcp: String::new(),
            steering: Steering::PathCore,
            rootless: false,
        }
    }

    /// Creates the path between the two ends.
    ///
    /// # Errors
    /// The machine refuses a step: the message names it, most often /dev/net/tun.
    pub fn connect(
        &mut self,
        spec: &PathSpec,
        offload: bool,
        tcp: &ServerTcp,
        cores: &CorePlan,
        seed: u64,
    ) -> Result<PathIo, TestbedError> {
        let offload = if offload { Offload::Full } else { Offload::None };
        let reaches = &self.reaches;
        // The server's end is created first, because most refusals happen there.
        let (server, rewrite) = if reaches.is_empty() {
            let addresses = &self.lab_addresses;
            let end = self.server_net.run(|| ends::server_end(offload, tcp, addresses));
            (end.map_err(TestbedError::environment)??, Rewrite::default())
        } else {
            let end = host_end::host_end(reaches, offload, tcp)?;
            self.server_device = end.tun.name().to_owned();
            (self.firewall, self.notes) = (end.firewall, end.notes);
            (end.tun, Rewrite::new(end.pairs))
        };
        let reaches = &self.reaches;
        let client = self.client_net.run(|| ends::client_end(offload, reaches));
        let (client, ipv6) = client.map_err(TestbedError::environment)??;
        self.ipv6 = ipv6;
        self.tcp = match reaches.iter().all(|reach| reach.routing == Routing::Forwarded) && !reaches.is_empty() {
            true => "the other host's own".into(),
            false => describe(tcp),
        };
        self.steering = match &cores.server {
            None => Steering::PathCore,
            Some(cores) => match sys::accounting::set_rps(&self.server_net, &self.server_device, cores.list()) {
                Ok(()) => Steering::ServerCores,
                Err(error) => Steering::Failed(error.to_string()),
            },
        };
        let addresses = AddressPlan { first_client: FIRST_CLIENT, clients: spec.clients.len() as u32 };
        Ok(PathIo::new(Network::new(addresses, spec, seed), client, server, rewrite))
    }

    /// The server's cores, if its packets are received on them: interrupts there belong to the server.
    pub fn steered<'a>(&self, cores: &'a CorePlan) -> Option<&'a sys::sched::Cores> {
        cores.server.as_ref().filter(|_| self.steering == Steering::ServerCores)
    }

    /// Checks that the clients can reach these addresses.
    ///
    /// # Errors
    /// One of the addresses is an IPv6 address, and IPv6 is not available.
    pub fn require_family(&self, mut addresses: impl Iterator<Item = IpAddr>) -> Result<(), TestbedError> {
        if !self.ipv6 && addresses.any(|address| address.is_ipv6()) { Err(ends::no_ipv6()) } else { Ok(()) }
    }

    /// Addresses of servers in packets at the server's end: a capture there filters by them.
    pub fn server_addresses(&self) -> Vec<IpAddr> {
        if self.reaches.is_empty() {
            return self.lab_addresses.clone();
        }
        self.reaches.iter().map(Reach::at_server).collect()
    }

    /// Addresses of servers in packets at the clients' end.
    pub fn addresses_at_clients(&self) -> Vec<IpAddr> {
        if self.reaches.is_empty() {
            return self.lab_addresses.clone();
        }
        self.reaches.iter().map(|reach| reach.connect).collect()
    }

    /// Whether a server is on another host, beyond a real network.
    pub fn beyond(&self) -> bool {
        self.reaches.iter().any(|reach| reach.routing == Routing::Forwarded)
    }

    /// Counters of both devices, the clients' first.
    ///
    /// # Errors
    /// The counters could not be read.
    pub fn device_statistics(&self) -> Result<[LinkStats; 2], TestbedError> {
        let read = |net: &NetNamespace, device: &str| {
            net.run(|| Netlink::open()?.link_statistics(device))
                .and_then(|outcome| outcome)
                .map_err(TestbedError::environment)
        };
        Ok([read(&self.client_net, CLIENT_DEVICE)?, read(&self.server_net, &self.server_device)?])
    }
}

/// Client i's address of the family of `server`.
pub fn client_address(client: u32, server: IpAddr) -> IpAddr {
    let plan = AddressPlan { first_client: FIRST_CLIENT, clients: AddressPlan::CLIENTS_MAX };
    if server.is_ipv4() { plan.address(client).into() } else { plan.address_v6(client).into() }
}

/// Every name with every address, for /etc/hosts.
pub fn hosts(addresses: &[IpAddr], names: &[&str]) -> Vec<(IpAddr, String)> {
    let each = |name: &&str| addresses.iter().map(|&address| (address, (*name).to_owned())).collect::<Vec<_>>();
    names.iter().flat_map(each).collect()
}

/// The server's output file; readable, for its last lines.
fn server_output(log: Option<&Path>) -> Result<File, TestbedError> {
    match log {
        Some(path) => File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(TestbedError::system(&format!("open {}", path.display()))),
        None => sys::limits::unnamed_file(c"server-output").map_err(TestbedError::system("memfd_create")),
    }
}

/// A control group with the limits for the server's start. It also checks that the limit of the measured phase can be
/// set, instead of failing in the middle of the run.
fn server_group(plan: &ServerPlan) -> sys::Result<Cgroup> {
    let memory = plan.memory.map(|bytes| bytes.0);
    let mut group = Cgroup::create("server", Limits { cpu: plan.share(), memory, ..Limits::default() })?;
    match (plan.cpu, plan.cpu_measured) {
        (_, None) => {}
        (Some(share), Some(_)) => group.set_cpu_limit(share)?,
        (None, Some(_)) => group.remove_cpu_limit(),
    }
    Ok(group)
}

/// Environment variables of the user's commands: `YAMABIKO`, the path of this program.
pub fn user_command_variables() -> Vec<(OsString, OsString)> {
    std::env::current_exe().map(|program| ("YAMABIKO".into(), program.into_os_string())).into_iter().collect()
}

/// Time between SIGTERM and SIGKILL for a server, so that it can write its logs and results.
pub const SERVER_GRACE: Duration = Duration::from_secs(2);

fn start_server(
    plan: &ServerPlan,
    cores: &CorePlan,
    cgroup: Option<&Cgroup>,
    rootless: bool,
    output: &File,
) -> Result<Sandbox, TestbedError> {
    let [output, errors] =
        [output.try_clone(), output.try_clone()].map(|file| file.map_err(TestbedError::system("dup")));
    let (output, errors) = (output?, errors?);
    Sandbox::start(SandboxSpec {
        hosts: hosts(&target::lab_addresses(plan.addresses), &target::names(plan)),
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(output.into()), stderr: Stdio::File(errors.into()) },
        // Ctrl-C ends the measurement, not the server under test.
        new_session: true,
        grace: SERVER_GRACE,
        env: user_command_variables(),
        cpus: cores.server.as_ref().map(|cores| cores.list().to_vec()),
        cgroup,
        rootless,
        ..SandboxSpec::new(vec!["/bin/sh".into(), "-c".into(), plan.command.clone().into()])
    })
    .map_err(TestbedError::environment)
}

fn describe(tcp: &ServerTcp) -> String {
    let control = match &tcp.cc {
        Some(cc) => cc.clone(),
        None => match HostFacts::read() {
            Ok(facts) => format!("{} (this host's default)", facts.congestion_control),
            Err(_) => "the host's default".into(),
        },
    };
    let window = tcp.initcwnd.map_or("10 (the kernel's)".into(), |segments| segments.to_string());
    format!("congestion control {control}, initial window {window} segments")
}
