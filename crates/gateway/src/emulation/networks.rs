//! The three networks of the emulation, and the devices between them.
//!
//! ```text
//!   clients'  c0  198.19.0.1     to 198.18.0.0/16 by c0
//!   gateway's g0  198.18.255.1   to 198.19.0.1 by g0        forwards; squid and the like listen here
//!             g1  198.19.0.2     to 198.18.0.1 by g1
//!   server's  s0  198.18.0.1     to 198.19.0.0/16 by s0, with NAT to 198.19.0.2 only: untranslated packets get no response
//! ```
//!
//! IPv4 only. The namespaces have no names and end with this process.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use sys::namespace::NetNamespace;
use sys::netlink::{LinkStats, Netlink, Route, disable_ipv6, sysctl};
use sys::tun::Tun;

use super::{At, CLIENT, GatewayCounts, INSIDE, OUTSIDE, SERVER};
use testbed::TestbedError;
use testbed::topology::{bring_up, hosts};

const SERVERS_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const CLIENTS_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);

/// The three networks.
pub(super) struct Networks {
    pub(super) client: NetNamespace,
    pub(super) gateway: NetNamespace,
    pub(super) server: NetNamespace,
}

/// The devices: one of the clients', two of the gateway's, one of the server's.
pub(super) struct Devices {
    pub(super) client: Tun,
    pub(super) inside: Tun,
    pub(super) outside: Tun,
    pub(super) server: Tun,
}

impl Networks {
    /// Creates empty networks.
    pub(super) fn new() -> Result<Self, TestbedError> {
        let new = || NetNamespace::create().map_err(TestbedError::environment);
        Ok(Networks { client: new()?, gateway: new()?, server: new()? })
    }

    pub(super) fn at(&self, at: At) -> &NetNamespace {
        match at {
            At::Clients => &self.client,
            At::Gateway => &self.gateway,
            At::Server => &self.server,
        }
    }

    /// Creates devices with addresses and routes, and enables forwarding.
    pub(super) fn connect(&self, nat: bool) -> Result<Devices, TestbedError> {
        let inside = |net: &NetNamespace, make: fn(bool) -> sys::Result<Vec<Tun>>| {
            net.run(|| make(nat)).map_err(TestbedError::environment)?.map_err(TestbedError::environment)
        };
        let mut client = inside(&self.client, client_end)?;
        let mut gateway = inside(&self.gateway, gateway)?;
        let mut server = inside(&self.server, server_end)?;
        let next = |devices: &mut Vec<Tun>| devices.pop().expect("each end made its devices");
        let (outside, inside) = (next(&mut gateway), next(&mut gateway));
        Ok(Devices { client: next(&mut client), inside, outside, server: next(&mut server) })
    }

    /// Counters of the devices c0, g0, g1, s0.
    pub(super) fn statistics(&self) -> Result<[LinkStats; 4], TestbedError> {
        let read = |net: &NetNamespace, name: &str| {
            let result = net.run(|| Netlink::open()?.link_statistics(name));
            result.and_then(|outcome| outcome).map_err(TestbedError::environment)
        };
        Ok([
            read(&self.client, "c0")?,
            read(&self.gateway, "g0")?,
            read(&self.gateway, "g1")?,
            read(&self.server, "s0")?,
        ])
    }

    /// Counters of the gateway's kernel.
    pub(super) fn counts(&self) -> GatewayCounts {
        let read = || {
            let file = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
            let tracked = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
            (file("snmp"), file("stat/nf_conntrack"), tracked.unwrap_or_default())
        };
        let (snmp, tracking, tracked) = self.gateway.run(read).unwrap_or_default();
        GatewayCounts {
            tracked: tracked.trim().parse().ok(),
            untracked_drops: tracking_drops(&tracking),
            ..ip_counts(&snmp)
        }
    }
}

/// Host names for the programs of a network.
pub(super) fn names(at: At) -> Vec<(IpAddr, String)> {
    let gateway = if at == At::Server { OUTSIDE } else { INSIDE };
    let each = [(SERVER, testbed::topology::SERVER_NAME), (gateway, "gateway"), (CLIENT, "client")];
    each.iter().flat_map(|&(address, name)| hosts(&[address.into()], &[name])).collect()
}

fn client_end(_nat: bool) -> sys::Result<Vec<Tun>> {
    let (device, mut netlink) = open("c0", CLIENT)?;
    netlink.add_route(&Route::new(SERVERS_NETWORK.into(), 16, "c0"))?;
    for (key, value) in [
        // Reuse ports immediately: this address makes thousands of connections a second.
        ("tcp_tw_reuse", "1"),
        ("ip_local_port_range", "1024 65535"),
        ("tcp_max_tw_buckets", "1000000"),
    ] {
        let _ = sysctl(&format!("net/ipv4/{key}"), value);
    }
    Ok(vec![device])
}

fn gateway(_nat: bool) -> sys::Result<Vec<Tun>> {
    // Before the devices inherit it: packets return by another device.
    for key in ["conf/all/rp_filter", "conf/default/rp_filter"] {
        sysctl(&format!("net/ipv4/{key}"), "0")?;
    }
    sysctl("net/ipv4/ip_forward", "1")?;
    let (inside, mut netlink) = open("g0", INSIDE)?;
    netlink.add_route(&Route::new(CLIENT.into(), 32, "g0"))?;
    let (outside, mut netlink) = open("g1", OUTSIDE)?;
    netlink.add_route(&Route::new(SERVER.into(), 32, "g1"))?;
    Ok(vec![inside, outside])
}

fn server_end(nat: bool) -> sys::Result<Vec<Tun>> {
    let (device, mut netlink) = open("s0", SERVER)?;
    let return_route =
        if nat { Route::new(OUTSIDE.into(), 32, "s0") } else { Route::new(CLIENTS_NETWORK.into(), 16, "s0") };
    netlink.add_route(&return_route)?;
    let _ = sysctl("net/ipv4/tcp_max_tw_buckets", "1000000");
    Ok(vec![device])
}

/// Creates a device in a network in which ordinary users may use every port and ping.
fn open(name: &str, address: Ipv4Addr) -> sys::Result<(Tun, Netlink)> {
    let device = Tun::open(name)?;
    let mut netlink = Netlink::open()?;
    disable_ipv6(name)?;
    netlink.link_up("lo")?;
    bring_up(&mut netlink, name)?;
    netlink.add_address(name, address.into(), 32)?;
    for (key, value) in [
        ("ip_unprivileged_port_start", "0"),
        // Group 0 is the one mapped in a user namespace.
        ("ping_group_range", "0 0"),
        // Connections must not share cached metrics.
        ("tcp_no_metrics_save", "1"),
    ] {
        let _ = sysctl(&format!("net/ipv4/{key}"), value);
    }
    Ok((device, netlink))
}

/// Counters of the two `Ip:` lines, names and figures.
fn ip_counts(snmp: &str) -> GatewayCounts {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, figures) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let of = |key: &str| {
        let mut both = names.split_whitespace().zip(figures.split_whitespace());
        both.find(|(name, _)| *name == key).and_then(|(_, figure)| figure.parse().ok()).unwrap_or(0)
    };
    GatewayCounts {
        forwarded: of("ForwDatagrams"),
        no_route: of("OutNoRoutes") + of("InAddrErrors"),
        header_errors: of("InHdrErrors"),
        ..GatewayCounts::default()
    }
}

/// Hexadecimal figures, a line for each core, below a line of names.
fn tracking_drops(table: &str) -> Option<u64> {
    let mut lines = table.lines();
    let column = lines.next()?.split_whitespace().position(|name| name == "drop")?;
    let figures = lines.filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok());
    Some(figures.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snmp_counters_are_found_by_name() {
        let snmp =
            "Ip: Forwarding InHdrErrors InAddrErrors ForwDatagrams OutNoRoutes\nIp: 1 2 3 4 5\nIcmp: A\nIcmp: 9\n";
        let counts = ip_counts(snmp);
        assert_eq!((counts.header_errors, counts.forwarded, counts.no_route), (2, 4, 8));
        assert_eq!(ip_counts(""), GatewayCounts::default());
    }

    #[test]
    fn conntrack_drops_of_all_cores_are_summed() {
        let table = "entries found drop early_drop\n00000001 00 0000000a 1\n00000001 00 00000010 1\n";
        assert_eq!(tracking_drops(table), Some(26));
        assert_eq!((tracking_drops(""), tracking_drops("entries\n1\n")), (None, None));
    }

    #[test]
    fn server_resolves_the_gateway_to_its_outer_address() {
        let of = |at| names(at).into_iter().find(|(_, name)| name == "gateway").unwrap().0;
        assert_eq!((of(At::Clients), of(At::Server)), (IpAddr::from(INSIDE), IpAddr::from(OUTSIDE)));
    }
}
