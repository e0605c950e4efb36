//! The clients' end, and the testbed's own server end.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use path::AddressPlan;
use sys::netlink::{Netlink, Route, RouteKind, sysctl};
use sys::tun::{Offload, Tun};

use super::target::{Reach, Routing};
use super::{CLIENT_DEVICE, FIRST_CLIENT, SERVER_DEVICE};
use crate::error::TestbedError;
use plan::ServerTcp;

pub(super) const CLIENT_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
const SERVER_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
pub(super) const PREFIX: u8 = 16;
pub(super) const CLIENT_NETWORK_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 0);
const SERVER_NETWORK_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 0);
pub(super) const PREFIX_V6: u8 = 64;
const MTU_BYTES: u32 = 1500;
/// The devices' own queues must never drop: ten thousand packets is what 10,000 clients send at the same time.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;

/// Creates the clients' end; returns whether it has IPv6. `reaches`: services beyond the testbed's own networks.
pub(super) fn client_end(offload: Offload, reaches: &[Reach]) -> Result<(Tun, bool), TestbedError> {
    let tun = Tun::open(CLIENT_DEVICE).map_err(TestbedError::environment)?;
    tun.set_offload(offload).map_err(TestbedError::environment)?;
    let mut netlink = Netlink::open().map_err(TestbedError::environment)?;
    // IPv6 needs this to bind to an address of a local prefix.
    let v6 = try_ipv6(CLIENT_DEVICE) && sysctl("net/ipv6/ip_nonlocal_bind", "1").is_ok();
    netlink.link_up("lo").map_err(TestbedError::environment)?;
    bring_up(&mut netlink, CLIENT_DEVICE).map_err(TestbedError::environment)?;
    // AnyIP: every address of the clients' network is bindable without being configured.
    add(&mut netlink, &Route { kind: RouteKind::Local, ..network(CLIENT_NETWORK.into(), "lo") })?;
    // One configured address: programs that resolve names of available families only (AI_ADDRCONFIG) look for it.
    netlink.add_address("lo", FIRST_CLIENT.into(), 32).map_err(TestbedError::environment)?;
    if v6 {
        add(&mut netlink, &Route { kind: RouteKind::Local, ..network(CLIENT_NETWORK_V6.into(), "lo") })?;
        // Source address of programs that do not bind.
        let first = AddressPlan::FIRST_CLIENT_V6.into();
        netlink.add_address("lo", first, 128).map_err(TestbedError::environment)?;
    }
    // Without `src`, a program that does not bind gets "Network is unreachable"; with IPv6 the source is found on lo.
    let source = |route: Route<'static>| Route { src: route.dst.is_ipv4().then_some(FIRST_CLIENT.into()), ..route };
    let in_testbed =
        |reach: &Reach| matches!(reach.routing, Routing::InTestbed | Routing::Rewritten | Routing::OnDevice);
    if reaches.is_empty() || reaches.iter().any(in_testbed) {
        add(&mut netlink, &source(network(SERVER_NETWORK.into(), CLIENT_DEVICE)))?;
        if v6 {
            add(&mut netlink, &source(network(SERVER_NETWORK_V6.into(), CLIENT_DEVICE)))?;
        }
    }
    for reach in reaches.iter().filter(|reach| !in_testbed(reach)) {
        if reach.connect.is_ipv6() && !v6 {
            return Err(no_ipv6());
        }
        let whole = if reach.connect.is_ipv4() { 32 } else { 128 };
        add(&mut netlink, &source(Route::new(reach.connect, whole, CLIENT_DEVICE)))?;
    }
    for (key, value) in [
        // A port may be reused immediately for another connection to the server: TIME_WAIT is on the side that closed
        // first, and thousands of clients share this kernel. IPv6 uses the same settings.
        ("net/ipv4/tcp_tw_reuse", "1"),
        ("net/ipv4/ip_local_port_range", "1024 65535"),
        ("net/ipv4/tcp_max_tw_buckets", "1000000"),
        // Metrics learnt by one connection must not affect the next.
        ("net/ipv4/tcp_no_metrics_save", "1"),
    ] {
        // An older kernel without a setting uses its default; the checks on ports and drops still hold.
        let _ = sysctl(key, value);
    }
    Ok((tun, v6))
}

/// Creates the server's end in a namespace of the testbed, with these addresses.
pub(super) fn server_end(offload: Offload, tcp: &ServerTcp, addresses: &[IpAddr]) -> Result<Tun, TestbedError> {
    let tun = Tun::open(SERVER_DEVICE).map_err(TestbedError::environment)?;
    tun.set_offload(offload).map_err(TestbedError::environment)?;
    let mut netlink = Netlink::open().map_err(TestbedError::environment)?;
    let v6 = try_ipv6(SERVER_DEVICE);
    netlink.link_up("lo").map_err(TestbedError::environment)?;
    bring_up(&mut netlink, SERVER_DEVICE).map_err(TestbedError::environment)?;
    for &address in addresses.iter().filter(|address| v6 || address.is_ipv4()) {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        netlink.add_address(SERVER_DEVICE, address, whole).map_err(TestbedError::environment)?;
    }
    add_tcp_route(&mut netlink, &network(CLIENT_NETWORK.into(), SERVER_DEVICE), tcp)?;
    if v6 {
        add_tcp_route(&mut netlink, &network(CLIENT_NETWORK_V6.into(), SERVER_DEVICE), tcp)?;
    }
    for (key, value) in [("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/tcp_no_metrics_save", "1")] {
        let _ = sysctl(key, value);
    }
    Ok(tun)
}

/// A route to the clients, with the server's TCP settings.
pub(super) fn add_tcp_route(netlink: &mut Netlink, route: &Route<'_>, tcp: &ServerTcp) -> Result<(), TestbedError> {
    let route = Route { initcwnd: tcp.initcwnd, congestion: tcp.cc.as_deref(), ..*route };
    netlink.add_route(&route).map_err(|error| match &tcp.cc {
        Some(cc) => TestbedError::Environment(format!(
            "--server-tcp cc={cc}: {error}; this kernel has: {}",
            available_congestion_controls()
        )),
        None => TestbedError::environment(error),
    })
}

/// Sets the MTU and the queue length that all devices of a run have, and brings the device up.
///
/// # Errors
/// The kernel refuses: the device does not exist, or may not be changed.
pub fn bring_up(netlink: &mut Netlink, name: &str) -> sys::Result<()> {
    netlink.set_mtu(name, MTU_BYTES)?;
    netlink.set_tx_queue_len(name, DEVICE_QUEUE_PACKETS)?;
    netlink.link_up(name)
}

/// Enables IPv6 in a namespace of the testbed. If it is not available (a kernel without it, read-only settings), the
/// testbed works without: only plans with IPv6 are refused.
fn try_ipv6(device: &str) -> bool {
    let tried =
        has_ipv6() && sysctl("net/ipv6/conf/lo/disable_ipv6", "0").is_ok() && enable_silent_ipv6(device).is_ok();
    if !tried {
        // Router solicitations and the like must not be in the traffic.
        let _ = sys::netlink::disable_ipv6(device);
    }
    tried
}

/// IPv6 on a device that sends nothing by itself: no automatic address, no router solicitation, no duplicate detection.
pub(super) fn enable_silent_ipv6(device: &str) -> Result<(), TestbedError> {
    for (key, value) in [
        ("disable_ipv6", "0"),
        ("addr_gen_mode", "1"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("dad_transmits", "0"),
    ] {
        sysctl(&format!("net/ipv6/conf/{device}/{key}"), value).map_err(TestbedError::environment)?;
    }
    Ok(())
}

/// Whether this kernel has IPv6.
pub(super) fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6").unwrap_or(false)
}

pub(super) fn no_ipv6() -> TestbedError {
    TestbedError::Environment(
        "there is no IPv6 here (a kernel booted with ipv6.disable=1, or /proc/sys/net read-only): use an IPv4 address"
            .into(),
    )
}

pub(super) fn network(network: IpAddr, dev: &str) -> Route<'_> {
    Route::new(network, if network.is_ipv4() { PREFIX } else { PREFIX_V6 }, dev)
}

fn add(netlink: &mut Netlink, route: &Route<'_>) -> Result<(), TestbedError> {
    netlink.add_route(route).map_err(TestbedError::environment)
}

fn available_congestion_controls() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}
