//! The lab's two ends and the devices between them.
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
//! Invariant: nothing here outlives this process. Namespaces are held by descriptors, devices live in the
//! namespaces or hang on a descriptor, and every program runs in a place whose first process dies with us. Read
//! [`target`] for what is where, `ends.rs` and `host_end.rs` for how it is made.

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
use sys::place::{Place, PlaceSpec, Stdio, Stdio3};
use sys::tun::Offload;

use crate::drive::path_io::PathIo;
use crate::error::LabError;
use crate::host::CorePlan;
pub use ends::bring_up;
pub use host_end::forwards_ipv6;
use plan::{ServerPlan, ServerTcp};
use target::{How, Reach};

/// The server's address (RFC 2544's range for benchmarking).
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The same in IPv6 (RFC 5180's range for benchmarking).
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);
/// First virtual client; client i is this plus i.
pub const FIRST_CLIENT: Ipv4Addr = AddressPlan::FIRST_CLIENT;
/// The name by which programs in the lab reach the server.
pub const SERVER_NAME: &str = "server";

pub(crate) const CLIENT_DEVICE: &str = "c0";
const SERVER_DEVICE: &str = "s0";

/// A network with a path in it, and a server if one was asked for.
pub struct Places {
    /// The clients' namespace.
    pub client_net: NetNamespace,
    /// The server's namespace: the lab's own, or this host's.
    pub server_net: NetNamespace,
    /// The path's device there.
    pub server_device: String,
    /// What the clients reach, where the far end is not the lab's own.
    pub reaches: Vec<Reach>,
    /// Addresses of the lab's own server end.
    lab_addresses: Vec<IpAddr>,
    /// Held for as long as the places are: what makes other hosts answer.
    firewall: Vec<Masquerade>,
    /// Whether the clients' end has IPv6; known once the path is laid.
    ipv6: bool,
    /// What the user should know before a result.
    pub notes: Vec<String>,
    /// The origin behind the server, where the lab starts one. Before the server: what is asked goes after who asks.
    pub origin: Option<origin::Origin>,
    /// The server's processes.
    pub server: Option<Place>,
    /// What the server prints: the run's server.log, or memory where nothing is kept.
    pub server_output: Option<File>,
    /// The server's control group, where one could be made.
    pub cgroup: Option<Cgroup>,
    /// The server's TCP, in words.
    pub tcp: String,
    /// Whether the server's receive work is steered to its own cores.
    pub steering: Steering,
    /// Whether all this lives in a user namespace.
    pub rootless: bool,
}

/// Where the receive processing of the server's device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the server's cores.
    ServerCores,
    /// Inside the path's write, on the path's core, because cores float.
    PathCore,
    /// The same, because steering failed.
    Failed(String),
}

/// Becomes able to make namespaces: as root at once, else by a user namespace. Only while there is one thread.
///
/// # Errors
/// Neither is possible; the message says what would mend it.
pub fn gain_privilege() -> Result<bool, LabError> {
    if sys::namespace::in_user_namespace() && matches!(sys::namespace::privilege(), Privilege::Root) {
        return Ok(true);
    }
    match sys::namespace::privilege() {
        Privilege::Root => Ok(false),
        Privilege::UserNamespace => {
            sys::namespace::enter_user_namespace().map_err(LabError::environment)?;
            Ok(true)
        }
        Privilege::None { why } => Err(LabError::Environment(format!(
            "a path needs CAP_NET_ADMIN and CAP_SYS_ADMIN, or a user namespace: {why}"
        ))),
    }
}

/// Makes sure that a path may end in this host's own network, before anything is made.
///
/// # Errors
/// This user may not; the message says what works without.
pub fn require_host_privilege(host: &str) -> Result<(), LabError> {
    match sys::namespace::privilege() {
        Privilege::Root => Ok(()),
        Privilege::UserNamespace | Privilege::None { .. } => Err(LabError::Environment(format!(
            "a path to `{host}` ends in this host's own network, which needs CAP_NET_ADMIN and CAP_SYS_ADMIN there: run as \
             root; a server that the lab starts (--server) is behind a path for any user, and without a path (--path none) \
             any URL can be asked"
        ))),
    }
}

impl Places {
    /// Makes both ends. The server's place waits for [`Place::go`].
    ///
    /// # Errors
    /// What the machine refuses, by name.
    pub fn new(
        server: Option<&ServerPlan>,
        cores: &CorePlan,
        log: Option<&Path>,
        rootless: bool,
    ) -> Result<Self, LabError> {
        // What a killed run left of control groups; where there are none, nothing was left.
        let _ = sys::cgroup::sweep();
        let cgroup = match server {
            None => None,
            Some(plan) => match server_group(plan) {
                Ok(group) => Some(group),
                Err(error) if plan.share().is_some() || plan.memory.is_some() => {
                    let options = if plan.memory.is_none() { "--server-cpu" } else { "--server-memory, --server-cpu" };
                    return Err(LabError::Environment(format!("{options}: {error}")));
                }
                // Without a share to hold, /proc gives the figures as well.
                Err(_) => None,
            },
        };
        let (place, server_output, server_net) = match server {
            None => (None, None, NetNamespace::create().map_err(LabError::environment)?),
            Some(plan) => {
                let output = server_output(log)?;
                let place = start_server(plan, cores, cgroup.as_ref(), rootless, &output)?;
                let net = place.net().try_clone().map_err(LabError::environment)?;
                (Some(place), Some(output), net)
            }
        };
        let client_net = NetNamespace::create().map_err(LabError::environment)?;
        let lab_addresses = target::lab_addresses(server.map_or(1, |server| server.addresses));
        Ok(Places {
            server: place,
            server_output,
            cgroup,
            rootless,
            lab_addresses,
            ..Places::between(client_net, server_net, SERVER_DEVICE)
        })
    }

    /// Makes the clients' end alone: the far end is in this host's own network, at `reaches`.
    ///
    /// # Errors
    /// What the machine refuses, by name.
    pub fn toward(reaches: Vec<Reach>) -> Result<Self, LabError> {
        let client_net = NetNamespace::create().map_err(LabError::environment)?;
        let server_net = NetNamespace::current().map_err(LabError::environment)?;
        Ok(Places { reaches, ..Places::between(client_net, server_net, "") })
    }

    fn between(client_net: NetNamespace, server_net: NetNamespace, server_device: &str) -> Self {
        Places {
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

    /// Lays the path between the two ends.
    ///
    /// # Errors
    /// What the machine refuses, by name: /dev/net/tun above all.
    pub fn connect(
        &mut self,
        spec: &PathSpec,
        offload: bool,
        tcp: &ServerTcp,
        cores: &CorePlan,
        seed: u64,
    ) -> Result<PathIo, LabError> {
        let offload = if offload { Offload::Full } else { Offload::None };
        let reaches = &self.reaches;
        // The host's end first: most of what can be refused is refused there.
        let (server, rewrite) = if reaches.is_empty() {
            let addresses = &self.lab_addresses;
            let end = self.server_net.run(|| ends::server_end(offload, tcp, addresses));
            (end.map_err(LabError::environment)??, Rewrite::default())
        } else {
            let end = host_end::host_end(reaches, offload, tcp)?;
            self.server_device = end.tun.name().to_owned();
            (self.firewall, self.notes) = (end.firewall, end.notes);
            (end.tun, Rewrite::new(end.pairs))
        };
        let reaches = &self.reaches;
        let client = self.client_net.run(|| ends::client_end(offload, reaches));
        let (client, ipv6) = client.map_err(LabError::environment)??;
        self.ipv6 = ipv6;
        self.tcp = match reaches.iter().all(|reach| reach.how == How::Forwarded) && !reaches.is_empty() {
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

    /// The server's cores, where its packets are received on them: interrupt work there is work for the server.
    pub fn steered<'a>(&self, cores: &'a CorePlan) -> Option<&'a sys::sched::Cores> {
        cores.server.as_ref().filter(|_| self.steering == Steering::ServerCores)
    }

    /// Makes sure that the clients can reach these addresses at all.
    ///
    /// # Errors
    /// One of them is an IPv6 address, and there is no IPv6 here.
    pub fn require_family(&self, mut addresses: impl Iterator<Item = IpAddr>) -> Result<(), LabError> {
        if !self.ipv6 && addresses.any(|address| address.is_ipv6()) { Err(ends::no_ipv6()) } else { Ok(()) }
    }

    /// Addresses of servers in packets at the path's far end: what a witness there filters by.
    pub fn server_addresses(&self) -> Vec<IpAddr> {
        if self.reaches.is_empty() {
            return self.lab_addresses.clone();
        }
        self.reaches.iter().map(Reach::at_server).collect()
    }

    /// The same at the clients' end.
    pub fn addresses_at_clients(&self) -> Vec<IpAddr> {
        if self.reaches.is_empty() {
            return self.lab_addresses.clone();
        }
        self.reaches.iter().map(|reach| reach.connect).collect()
    }

    /// Whether a server is on another host, beyond a real network.
    pub fn beyond(&self) -> bool {
        self.reaches.iter().any(|reach| reach.how == How::Forwarded)
    }

    /// What both devices counted: the clients' first.
    ///
    /// # Errors
    /// The counters could not be read.
    pub fn device_statistics(&self) -> Result<[LinkStats; 2], LabError> {
        let read = |net: &NetNamespace, device: &str| {
            net.run(|| Netlink::open()?.link_statistics(device))
                .and_then(|outcome| outcome)
                .map_err(LabError::environment)
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

/// Where the server prints to; readable, for its last words.
fn server_output(log: Option<&Path>) -> Result<File, LabError> {
    match log {
        Some(path) => File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(LabError::system(&format!("open {}", path.display()))),
        None => sys::limits::unnamed_file(c"server-output").map_err(LabError::system("memfd_create")),
    }
}

/// A group with what the server may use when it starts. Whether it may be held to what it is measured in is seen here, and not in
/// the middle of the run.
fn server_group(plan: &ServerPlan) -> sys::Result<Cgroup> {
    let memory = plan.memory.map(|bytes| bytes.0);
    let mut group = Cgroup::create("server", Limits { cpu: plan.share(), memory, ..Limits::default() })?;
    match (plan.cpu, plan.cpu_measured) {
        (_, None) => {}
        (Some(share), Some(_)) => group.hold(share)?,
        (None, Some(_)) => group.lift(),
    }
    Ok(group)
}

/// Environment variables of the user's commands: `YAMABIKO`, the path of this program.
pub fn own_variables() -> Vec<(OsString, OsString)> {
    std::env::current_exe().map(|program| ("YAMABIKO".into(), program.into_os_string())).into_iter().collect()
}

/// Time between SIGTERM and SIGKILL for a server: it may still write its logs and results.
pub const SERVER_GRACE: Duration = Duration::from_secs(2);

fn start_server(
    plan: &ServerPlan,
    cores: &CorePlan,
    cgroup: Option<&Cgroup>,
    rootless: bool,
    output: &File,
) -> Result<Place, LabError> {
    let [output, errors] = [output.try_clone(), output.try_clone()].map(|file| file.map_err(LabError::system("dup")));
    let (output, errors) = (output?, errors?);
    Place::start(PlaceSpec {
        hosts: hosts(&target::lab_addresses(plan.addresses), &target::names(plan)),
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(output.into()), stderr: Stdio::File(errors.into()) },
        // Ctrl-C ends the measuring, not the server that is being measured.
        new_session: true,
        grace: SERVER_GRACE,
        env: own_variables(),
        cpus: cores.server.as_ref().map(|cores| cores.list().to_vec()),
        cgroup,
        rootless,
        ..PlaceSpec::new(vec!["/bin/sh".into(), "-c".into(), plan.command.clone().into()])
    })
    .map_err(LabError::environment)
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
