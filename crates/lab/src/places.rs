//! The lab's two ends and the devices between them.
//!
//! ```text
//!   client namespace                                      server namespace
//!   198.19.0.0/16 local (AnyIP)   tun c0 ==fds== tun s0   198.18.0.1 (name: `server`)
//! ```
//!
//! Invariant: nothing here outlives this process. Namespaces are held by descriptors, devices live in the
//! namespaces, and every program runs in a place whose first process dies with us.

pub mod listening;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use path::{AddressPlan, Network, PathSpec};
use sys::accounting::HostFacts;
use sys::cgroup::{Cgroup, Limits};
use sys::namespace::{NetNamespace, Privilege};
use sys::netlink::{LinkStats, Netlink, Route, RouteKind};
use sys::place::{Place, PlaceSpec, Stdio, Stdio3};
use sys::tun::{Offload, Tun};

use crate::drive::path_io::PathIo;
use crate::error::LabError;
use crate::host::CorePlan;
use crate::plan::{ServerPlan, ServerTcp};

/// The server's address (RFC 2544's range for benchmarking).
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// First virtual client; client i is this plus i.
pub const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
/// The name by which programs in the lab reach the server.
pub const SERVER_NAME: &str = "server";

const CLIENT_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
const SERVER_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const PREFIX: u8 = 16;
pub(crate) const CLIENT_DEVICE: &str = "c0";
pub(crate) const SERVER_DEVICE: &str = "s0";
const MTU_BYTES: u32 = 1500;
/// The devices' own queues must never drop: ten thousand packets is what 10,000 clients send at once.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;

/// A network with a path in it, and a server if one was asked for.
pub struct Places {
    /// The clients' namespace.
    pub client_net: NetNamespace,
    /// The server's namespace.
    pub server_net: NetNamespace,
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
            Some(plan) => match Cgroup::create("server", Limits { cpu: plan.cpu, ..Limits::default() }) {
                Ok(group) => Some(group),
                Err(error) if plan.cpu.is_some() => {
                    return Err(LabError::Environment(format!("--server-cpu: {error}")));
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
        Ok(Places {
            client_net,
            server_net,
            server: place,
            server_output,
            cgroup,
            tcp: String::new(),
            steering: Steering::PathCore,
            rootless,
        })
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
        let client = self.client_net.run(|| client_end(offload)).map_err(LabError::environment)??;
        let server = self.server_net.run(|| server_end(offload, tcp)).map_err(LabError::environment)??;
        self.tcp = describe(tcp);
        self.steering = match &cores.server {
            None => Steering::PathCore,
            Some(cores) => match sys::accounting::set_rps(&self.server_net, SERVER_DEVICE, cores.list()) {
                Ok(()) => Steering::ServerCores,
                Err(error) => Steering::Failed(error.to_string()),
            },
        };
        let addresses = AddressPlan { first_client: FIRST_CLIENT, clients: spec.clients.len() as u32 };
        Ok(PathIo::new(Network::new(addresses, spec, seed), client, server))
    }

    /// What both devices counted: the clients' first.
    ///
    /// # Errors
    /// The counters could not be read.
    pub fn device_statistics(&self) -> Result<[LinkStats; 2], LabError> {
        let read = |net: &NetNamespace, device: &'static str| {
            net.run(|| Netlink::open()?.link_statistics(device))
                .and_then(|outcome| outcome)
                .map_err(LabError::environment)
        };
        Ok([read(&self.client_net, CLIENT_DEVICE)?, read(&self.server_net, SERVER_DEVICE)?])
    }
}

/// Where `host` is for a generator in the lab's client namespace.
///
/// # Errors
/// Any host but `server` or its address: there is nothing else in the lab.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, LabError> {
    if host.eq_ignore_ascii_case(SERVER_NAME) || host.parse::<IpAddr>() == Ok(SERVER.into()) {
        return Ok(SocketAddr::new(SERVER.into(), port));
    }
    Err(LabError::Plan(format!(
        "with --server the URL's host must be `{SERVER_NAME}`, not `{host}`: write http://{SERVER_NAME}:{port}/.."
    )))
}

/// Client i's address.
pub fn client_address(client: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST_CLIENT.to_bits() + client))
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
        hosts: vec![(SERVER.into(), SERVER_NAME.to_owned())],
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(output.into()), stderr: Stdio::File(errors.into()) },
        // Ctrl-C ends the measuring, not the server that is being measured.
        new_session: true,
        cpus: cores.server.as_ref().map(|cores| cores.list().to_vec()),
        cgroup,
        rootless,
        ..PlaceSpec::new(vec!["/bin/sh".into(), "-c".into(), plan.command.clone().into()])
    })
    .map_err(LabError::environment)
}

fn client_end(offload: Offload) -> Result<Tun, LabError> {
    let tun = device(CLIENT_DEVICE, offload)?;
    let mut netlink = Netlink::open().map_err(LabError::environment)?;
    // AnyIP: every address of the clients' network is bindable without being configured.
    add(&mut netlink, &Route { kind: RouteKind::Local, ..route(CLIENT_NETWORK, "lo") })?;
    // Without `src`, a program that binds nothing gets "Network is unreachable".
    add(&mut netlink, &Route { src: Some(FIRST_CLIENT.into()), ..route(SERVER_NETWORK, CLIENT_DEVICE) })?;
    for (key, value) in [
        // A port may be used again at once for another connection to the server: TIME_WAIT is on the side that
        // closed first, and thousands of clients share this one kernel.
        ("net/ipv4/tcp_tw_reuse", "1"),
        ("net/ipv4/ip_local_port_range", "1024 65535"),
        ("net/ipv4/tcp_max_tw_buckets", "1000000"),
        // What one connection learnt must not change the next.
        ("net/ipv4/tcp_no_metrics_save", "1"),
    ] {
        // An older kernel without a key runs with its default; the checks on ports and drops still hold.
        let _ = sys::netlink::sysctl(key, value);
    }
    Ok(tun)
}

fn server_end(offload: Offload, tcp: &ServerTcp) -> Result<Tun, LabError> {
    let tun = device(SERVER_DEVICE, offload)?;
    let mut netlink = Netlink::open().map_err(LabError::environment)?;
    netlink.add_address(SERVER_DEVICE, SERVER.into(), 32).map_err(LabError::environment)?;
    let to_clients =
        Route { initcwnd: tcp.initcwnd, congestion: tcp.cc.as_deref(), ..route(CLIENT_NETWORK, SERVER_DEVICE) };
    netlink.add_route(&to_clients).map_err(|error| match &tcp.cc {
        Some(cc) => LabError::Environment(format!(
            "--server-tcp cc={cc}: {error}; this kernel has: {}",
            available_congestion_controls()
        )),
        None => LabError::environment(error),
    })?;
    for (key, value) in [("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/tcp_no_metrics_save", "1")] {
        let _ = sys::netlink::sysctl(key, value);
    }
    Ok(tun)
}

fn device(name: &'static str, offload: Offload) -> Result<Tun, LabError> {
    let tun = Tun::open(name).map_err(LabError::environment)?;
    tun.set_offload(offload).map_err(LabError::environment)?;
    // Router solicitations and the like are nobody's traffic.
    let _ = sys::netlink::disable_ipv6(name);
    let mut netlink = Netlink::open().map_err(LabError::environment)?;
    netlink.set_mtu(name, MTU_BYTES).map_err(LabError::environment)?;
    netlink.set_tx_queue_len(name, DEVICE_QUEUE_PACKETS).map_err(LabError::environment)?;
    netlink.link_up("lo").map_err(LabError::environment)?;
    netlink.link_up(name).map_err(LabError::environment)?;
    Ok(tun)
}

fn route(network: Ipv4Addr, dev: &'static str) -> Route<'static> {
    Route::new(network.into(), PREFIX, dev)
}

fn add(netlink: &mut Netlink, route: &Route<'_>) -> Result<(), LabError> {
    netlink.add_route(route).map_err(LabError::environment)
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

fn available_congestion_controls() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}
