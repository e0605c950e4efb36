//! The server's end of a path in this host's own network: for services that already run, and for other hosts.
//!
//! ```text
//!   path <==fd== yamabiko0 --- 127.0.0.1, or any address of this host
//!                          --- forwarded, masqueraded --- uplink --- another host
//! ```
//!
//! Invariant: all of it depends on two descriptors, the device's and the firewall table's, and is removed when they are
//! closed, however this process ends. Addresses, routes and settings are the device's own; the host's are not changed.

use std::net::IpAddr;

use path::AddressPlan;
use path::rewrite::Pair;
use sys::netlink::{Netlink, Route, sysctl};
use sys::nft::{self, Masquerade};
use sys::tun::{Offload, Tun};

use super::ends::{
    CLIENT_NETWORK, CLIENT_NETWORK_V6, PREFIX, PREFIX_V6, add_tcp_route, bring_up, enable_silent_ipv6, has_ipv6,
    network, no_ipv6,
};
use super::target::{Reach, Routing};
use crate::error::TestbedError;
use plan::ServerTcp;

/// Name of the path's device: the kernel replaces `%d` by a number.
const DEVICE: &str = "yamabiko%d";
const DEVICE_PREFIX: &str = "yamabiko";

/// The path's device in this host's network, with its routes and tables.
pub(super) struct HostEnd {
    pub tun: Tun,
    /// Masquerading tables; dropping them removes the tables.
    pub firewall: Vec<Masquerade>,
    /// Addresses that the path rewrites.
    pub pairs: Vec<Pair>,
    /// Warnings for the user.
    pub notes: Vec<String>,
}

/// Creates the path's device with its routes and tables, in the calling thread's network namespace.
pub(super) fn host_end(reaches: &[Reach], offload: Offload, tcp: &ServerTcp) -> Result<HostEnd, TestbedError> {
    let any = |v6: bool, routing: fn(Routing) -> bool| {
        reaches.iter().any(|it| it.connect.is_ipv6() == v6 && routing(it.routing))
    };
    let (v4, v6) = (any(false, |_| true), any(true, |_| true));
    let forwarded = |routing| routing == Routing::Forwarded;
    if !tcp.is_unset() && reaches.iter().all(|reach| reach.routing == Routing::Forwarded) {
        return Err(TestbedError::Plan(
            "--server-tcp is the TCP of this host, but the service is on another host, which has its own: leave it out"
                .into(),
        ));
    }
    if v6 && !has_ipv6() {
        return Err(no_ipv6());
    }
    let mut netlink = Netlink::open().map_err(TestbedError::environment)?;
    // Both families are checked, whichever is used: two simultaneous paths would share client addresses.
    for (network, prefix) in [("198.18.0.0", 15), ("2001:2::", 48)] {
        require_unused(&mut netlink, network.parse().expect("an address"), prefix)?;
    }
    let tun = Tun::open(DEVICE).map_err(|error| {
        TestbedError::Environment(format!(
            "{error} (a path to a service outside of the testbed ends in this host's own network)"
        ))
    })?;
    let device = tun.name().to_owned();
    tun.set_offload(offload).map_err(TestbedError::environment)?;
    if v6 {
        enable_silent_ipv6(&device).map_err(read_only)?;
    } else {
        sys::netlink::disable_ipv6(&device).map_err(TestbedError::environment).map_err(read_only)?;
    }
    let set =
        |key: &str| sysctl(&key.replace("DEV", &device), "1").map_err(TestbedError::environment).map_err(read_only);
    if any(false, |routing| routing == Routing::Rewritten) {
        set("net/ipv4/conf/DEV/route_localnet")?;
    }
    if any(false, forwarded) {
        set("net/ipv4/conf/DEV/forwarding")?;
    }
    if any(true, forwarded) && !forwards_ipv6() {
        set("net/ipv6/conf/DEV/force_forwarding").map_err(|_| {
            TestbedError::Environment(
                "another host by IPv6: forwarding for a single device needs Linux 6.17, and this host \
                 does not forward IPv6; use an IPv4 address, or allow it for all devices (sysctl net.ipv6.conf.all.forwarding=1)"
                    .into(),
            )
        })?;
    }
    bring_up(&mut netlink, &device).map_err(TestbedError::environment)?;
    for reach in reaches.iter().filter(|reach| reach.routing == Routing::OnDevice) {
        netlink.add_address(&device, reach.connect, 128).map_err(TestbedError::environment)?;
    }
    for (is_used, network_of, first) in [
        (v4, IpAddr::from(CLIENT_NETWORK), IpAddr::from(AddressPlan::FIRST_CLIENT)),
        (v6, CLIENT_NETWORK_V6.into(), AddressPlan::FIRST_CLIENT_V6.into()),
    ] {
        if is_used {
            let route = Route { exclusive: true, ..network(network_of, &device) };
            add_tcp_route(&mut netlink, &route, tcp)?;
            require_way_back(&mut netlink, first, &device)?;
        }
    }
    let (firewall, notes) = masquerade(&mut netlink, reaches, &device)?;
    let pairs = reaches.iter().filter(|reach| reach.routing == Routing::Rewritten).filter_map(pair).collect();
    Ok(HostEnd { tun, firewall, pairs, notes })
}

/// Creates the masquerading tables, one per family, and notes about a firewall that may drop forwarded packets.
fn masquerade(
    netlink: &mut Netlink,
    reaches: &[Reach],
    device: &str,
) -> Result<(Vec<Masquerade>, Vec<String>), TestbedError> {
    let (mut firewall, mut notes) = (Vec::new(), Vec::new());
    let index = netlink.link_index(device).map_err(TestbedError::environment)?;
    for (network, prefix) in [(IpAddr::from(CLIENT_NETWORK), PREFIX), (CLIENT_NETWORK_V6.into(), PREFIX_V6)] {
        let same_family = |reach: &Reach| reach.connect.is_ipv4() == network.is_ipv4();
        if !reaches.iter().any(|reach| reach.routing == Routing::Forwarded && same_family(reach)) {
            continue;
        }
        firewall.push(Masquerade::new(device, network, prefix, index).map_err(TestbedError::environment)?);
        // A failed check is ignored: if the firewall drops packets, the load's connections fail.
        if let Ok(Some(chain)) = nft::forwarding_refused_by(network) {
            notes.push(format!(
                "this host's firewall drops forwarded packets unless a rule accepts them (chain {chain}, policy drop): if \
                 no connection succeeds, accept the path's device, as with iptables -I FORWARD -i {DEVICE_PREFIX}+ -j \
                 ACCEPT"
            ));
        }
    }
    Ok((firewall, notes))
}

fn pair(reach: &Reach) -> Option<Pair> {
    match (reach.connect, reach.configured) {
        (IpAddr::V4(seen), IpAddr::V4(own)) => Some(Pair { seen, own }),
        _ => None,
    }
}

/// Checks that this host has no route to the benchmark addresses.
fn require_unused(netlink: &mut Netlink, network: IpAddr, prefix: u8) -> Result<(), TestbedError> {
    let routes = netlink.routes(network).map_err(TestbedError::environment)?;
    let Some(route) = routes.iter().find(|route| route.overlaps(network, prefix)) else { return Ok(()) };
    let device = route.device.and_then(|index| netlink.link_name(index).ok()).unwrap_or_else(|| "no device".into());
    let destination = route.dst.map_or("everything".into(), |dst| format!("{dst}/{}", route.prefix));
    Err(TestbedError::Environment(if device.starts_with(DEVICE_PREFIX) {
        format!(
            "another yamabiko has a path in this host's network (device {device}): wait for its end, or run this one in its own \
             network namespace"
        )
    } else {
        format!(
            "this host routes {destination} itself (by {device}), but a path needs {network}/{prefix}, reserved for \
             benchmarks, for its clients: remove that route, or start the server with --server, which needs no route of \
             the host"
        )
    }))
}

/// Checks that packets to clients are routed to the path's device: routing rules of this host may say otherwise.
fn require_way_back(netlink: &mut Netlink, client: IpAddr, device: &str) -> Result<(), TestbedError> {
    let found = netlink.route_to(client).map_err(TestbedError::environment)?;
    let by = found.device.and_then(|index| netlink.link_name(index).ok()).unwrap_or_default();
    if by == device {
        return Ok(());
    }
    Err(TestbedError::Environment(format!(
        "this host's routing rules send packets to the clients ({client}) by {by}, not by the path's {device}: see ip rule, \
         and give its main table priority for 198.18.0.0/15 and 2001:2::/48"
    )))
}

/// Whether this host forwards IPv6 for all of its devices.
pub fn forwards_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding").is_ok_and(|text| text.trim() == "1")
}

fn read_only(error: TestbedError) -> TestbedError {
    TestbedError::Environment(format!("{error}; is /proc/sys read-only here, as in a container?"))
}
