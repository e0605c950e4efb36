//! Trials with two small ends of a path, created as in a run, and removed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::Duration;

use sys::namespace::{NetNamespace, Privilege};
use sys::netlink::{Netlink, Route, sysctl};
use sys::nft::Masquerade;
use sys::sandbox::{Exit, Net, Sandbox, SandboxSpec, Stdio, Stdio3};
use sys::tun::{Offload, Tun};
use units::CpuShare;

use super::facts::{Ends, Machine, Refusal, Rights, Trial};
use testbed::topology::{SERVER, SERVER_NAME, forwards_ipv6};

/// A TUN with an address, up, in its own namespace, to measure the cost of a write.
pub(super) struct Device {
    /// Network namespace of the device.
    pub(super) net: NetNamespace,
    /// Descriptor of the device.
    pub(super) tun: Tun,
}

/// Tries all features that a path needs, in the order in which a run needs them. An ordinary user's process enters a
/// user namespace, as in a run.
pub(super) fn try_out(rights: &Rights, machine: &Machine) -> (Ends, Option<Device>) {
    let mut ends =
        Ends { cgroups: sys::cgroup::describe().unwrap_or_else(|error| error.to_string()), ..Ends::default() };
    let device = match rights.privilege {
        Privilege::None { .. } => None,
        Privilege::Root => make(&mut ends, rights.in_user_namespace, machine),
        Privilege::UserNamespace => match sys::namespace::enter_user_namespace() {
            Ok(()) => make(&mut ends, true, machine),
            Err(error) => {
                ends.namespace = Trial::Refused(error.into());
                None
            }
        },
    };
    let half = "50%".parse::<CpuShare>().expect("a share");
    ends.bound = sys::cgroup::try_bound(half).map_err(Refusal::from);
    (ends, device)
}

fn make(ends: &mut Ends, rootless: bool, machine: &Machine) -> Option<Device> {
    let clients = match NetNamespace::create() {
        Ok(net) => net,
        Err(error) => {
            ends.namespace = Trial::Refused(error.into());
            return None;
        }
    };
    ends.namespace = Trial::Worked("created, and removed with its descriptor".into());
    ends.clients_v4 = in_namespace(&clients, clients_v4, "clients can use every address of a network");
    ends.clients_v6 = in_namespace(&clients, clients_v6, "clients can use every address of a network");
    let net = match run_in_sandbox(rootless) {
        Ok((net, trial)) => {
            ends.sandbox = trial;
            net
        }
        Err(error) => {
            ends.sandbox = Trial::Refused(error.into());
            clients
        }
    };
    let tun = match net.run(|| Tun::open(DEVICE)).and_then(|opened| opened) {
        Ok(tun) => tun,
        Err(error) => {
            ends.tun = Trial::Refused(error.into());
            return None;
        }
    };
    ends.tun = Trial::Worked("a device was created in a namespace, and removed with its descriptor".into());
    ends.offload = Trial::of(
        tun.set_offload(Offload::None).and_then(|()| tun.set_offload(Offload::Full)),
        "large segments and partial checksums pass unchanged",
    );
    let up = in_namespace(&net, server_end, "up");
    ends.loopback = in_namespace(
        &net,
        || sysctl(&format!("net/ipv4/conf/{DEVICE}/route_localnet"), "1"),
        "packets of a device can reach 127.0.0.1",
    );
    let other = machine.congestion_controls.iter().find(|name| **name != machine.facts.congestion_control);
    let control = other.unwrap_or(&machine.facts.congestion_control).clone();
    ends.congestion = in_namespace(
        &net,
        || Netlink::open()?.add_route(&Route { congestion: Some(&control), ..to_clients() }),
        "can be set for the server",
    );
    ends.masquerade = in_namespace(
        &net,
        || {
            let device = Netlink::open()?.link_index(DEVICE)?;
            Masquerade::new("yamabiko-doctor", Ipv4Addr::new(198, 19, 0, 0).into(), 16, device).map(drop)
        },
        "a firewall table was created, and removed with its descriptor",
    );
    ends.forward_v6 = match forwards_ipv6() {
        true => Trial::Worked("this host forwards IPv6".into()),
        false => in_namespace(
            &net,
            || sysctl(&format!("net/ipv6/conf/{DEVICE}/force_forwarding"), "1"),
            "a single device can forward",
        ),
    };
    if let [first, _, ..] = machine.allowed.list() {
        ends.steering = Trial::of(sys::accounting::set_rps(&net, DEVICE, &[*first]), "can run on the server's cores");
        // The cost of a write to the device is measured without the sandbox.
        let _ = sys::accounting::set_rps(&net, DEVICE, &[]);
    }
    up.worked().then_some(Device { net, tun })
}

fn in_namespace(net: &NetNamespace, work: impl FnOnce() -> sys::Result<()> + Send, worked: &str) -> Trial {
    Trial::of(net.run(work).and_then(|outcome| outcome), worked)
}

/// Runs a command in a sandbox until it ends.
fn run_in_sandbox(rootless: bool) -> sys::Result<(NetNamespace, Trial)> {
    let mut sandbox = Sandbox::start(SandboxSpec {
        hosts: vec![(SERVER.into(), SERVER_NAME.to_owned())],
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::Null, stderr: Stdio::Null },
        new_session: true,
        net: Net::New,
        rootless,
        ..SandboxSpec::new(vec!["/bin/sh".into(), "-c".into(), ":".into()])
    })?;
    let net = sandbox.net().try_clone()?;
    sandbox.exec()?;
    let mut polls_left = SANDBOX_POLLS_MAX;
    let trial = loop {
        match sandbox.try_exit()? {
            Some(Exit::Code(0)) => {
                break Trial::Worked("a command ran in its own sandbox, and ended with it".into());
            }
            Some(how) => break refused(format!("/bin/sh in its own sandbox: {how:?}")),
            None if polls_left == 0 => break refused("/bin/sh in its own sandbox does not end".into()),
            None => {
                polls_left -= 1;
                sys::signal::wait_readable(sandbox.status_fd(), SANDBOX_POLL_INTERVAL);
            }
        }
    };
    sandbox.stop(Duration::ZERO);
    Ok((net, trial))
}

/// AnyIP, as in [`testbed::topology`].
fn clients_v4() -> sys::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.link_up("lo")?;
    netlink.add_route(&Route::local(Ipv4Addr::new(198, 19, 0, 0).into(), 16, "lo"))?;
    bind(Ipv4Addr::new(198, 19, 77, 7).into())
}

/// IPv6 also needs permission to bind to foreign addresses, and an address on a device.
fn clients_v6() -> sys::Result<()> {
    if !std::fs::exists("/proc/sys/net/ipv6").unwrap_or(false) {
        return Err(sys::Error::Missing { what: "this kernel has no IPv6, or it is off (ipv6.disable=1)".to_owned() });
    }
    sysctl("net/ipv6/ip_nonlocal_bind", "1")?;
    let network = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 0);
    let mut netlink = Netlink::open()?;
    netlink.link_up("lo")?;
    netlink.add_address("lo", Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 1).into(), 128)?;
    netlink.add_route(&Route::local(network.into(), 64, "lo"))?;
    bind(Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 0x77).into())
}

fn bind(address: IpAddr) -> sys::Result<()> {
    TcpListener::bind((address, 0)).map(drop).map_err(|source| call(format!("bind {address}"), source))
}

fn server_end() -> sys::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.add_address(DEVICE, SERVER.into(), 32)?;
    netlink.link_up("lo")?;
    netlink.link_up(DEVICE)?;
    netlink.add_route(&to_clients())
}

fn to_clients() -> Route<'static> {
    Route::new(Ipv4Addr::new(198, 19, 0, 0).into(), 16, DEVICE)
}

fn call(call: String, source: io::Error) -> sys::Error {
    sys::Error::Call { call, source }
}

fn refused(what: String) -> Trial {
    Trial::Refused(Refusal { what, fix: None })
}

/// The device of the trial, in its own namespace.
const DEVICE: &str = "s0";

/// A shell with an empty command gets ten seconds, for very busy machines.
const SANDBOX_POLLS_MAX: u32 = 100;
const SANDBOX_POLL_INTERVAL: Duration = Duration::from_millis(100);
