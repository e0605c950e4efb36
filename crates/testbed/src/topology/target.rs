//! From a URL's host to addresses that the clients connect to.
//!
//! | the address is | clients connect to | what happens on the way |
//! |---|---|---|
//! | of the testbed's server end | itself | nothing: both ends are the testbed's |
//! | 127.0.0.1 and other IPv4 loopback | 198.18.0.1 and following | the path rewrites it to the loopback address |
//! | ::1 | 2001:2:0:1::1 | nothing: the address is on the path's device |
//! | another of this host | itself | nothing |
//! | of another host | itself | this host forwards and masquerades |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use sys::netlink::{ExistingRouteKind, Netlink};

use super::listening::{Listening, find_tcp, find_udp};
use super::{SERVER, SERVER_NAME, SERVER_V6};
use crate::error::TestbedError;
use plan::{AddressFamily, ServerPlan, TargetPlan, To};

/// How packets get from the server's end of the path to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// The service is in the testbed's server namespace.
    InTestbed,
    /// The service is on a loopback address of this host: the path rewrites the address.
    Rewritten,
    /// The service is on ::1 of this host: packets reach it by an address of the path's device.
    OnDevice,
    /// The service is on another address of this host.
    HostAddress,
    /// The service is on another host.
    Forwarded,
}

/// One address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The configured address.
    pub configured: IpAddr,
    /// The address that clients connect to.
    pub connect: IpAddr,
    /// How packets get to the service.
    pub routing: Routing,
}

impl Reach {
    /// The server's address in packets at the server's end of the path.
    pub fn at_server(&self) -> IpAddr {
        if self.routing == Routing::Rewritten { self.configured } else { self.connect }
    }

    /// The address as text, for the result.
    pub fn words(&self) -> String {
        match self.routing {
            Routing::InTestbed => format!("{} of the testbed", self.connect),
            Routing::Rewritten | Routing::OnDevice => format!("{} of this host, as {}", self.configured, self.connect),
            Routing::HostAddress => format!("{} of this host", self.configured),
            Routing::Forwarded => format!("{} of another host, masqueraded", self.configured),
        }
    }
}

/// The addresses of the testbed's own server end for a URL's host.
///
/// # Errors
/// A host that is not in the testbed, or has no address of that family there.
pub fn in_testbed(
    host: &str,
    port: u16,
    server: &ServerPlan,
    family: AddressFamily,
) -> Result<Vec<Reach>, TestbedError> {
    let all = lab_addresses(server.addresses);
    let literal = host.parse::<IpAddr>().ok();
    let chosen = match literal {
        Some(address) if all.contains(&address) => family.choose(&[address]),
        None if names(server).iter().any(|name| name.eq_ignore_ascii_case(host)) => family.choose(&all),
        _ => {
            return Err(TestbedError::Plan(format!(
                "with --server the URL's host must be `{SERVER_NAME}`, not `{host}`: write http://{SERVER_NAME}:{port}/.., \
                 or give the server that name, too (--server-name {host})"
            )));
        }
    };
    if chosen.is_empty() {
        return Err(TestbedError::Plan(format!("`{host}` has no {}: it is {host}", family.words())));
    }
    Ok(chosen
        .into_iter()
        .map(|address| Reach { configured: address, connect: address, routing: Routing::InTestbed })
        .collect())
}

/// All addresses of the testbed's server end: IPv4 first.
pub fn lab_addresses(count: u32) -> Vec<IpAddr> {
    let v4 = (0..count).map(|number| Ipv4Addr::from_bits(SERVER.to_bits() + number).into());
    let v6 = (0..count).map(|number| Ipv6Addr::from_bits(SERVER_V6.to_bits() + u128::from(number)).into());
    v4.chain(v6).collect()
}

/// All names of the testbed's server.
pub fn names(server: &ServerPlan) -> Vec<&str> {
    std::iter::once(SERVER_NAME).chain(server.names.iter().map(String::as_str)).collect()
}

/// The addresses of a URL's host to use, in order: those of the plan, or those of this host's resolver.
///
/// # Errors
/// The host has no address, or none of that family.
pub fn resolve(host: &str, port: u16, target: &TargetPlan) -> Result<Vec<IpAddr>, TestbedError> {
    let literal = host.parse::<IpAddr>().ok();
    let (known, from) = if !target.addresses.is_empty() {
        (target.addresses.clone(), "the plan names")
    } else if let Some(address) = literal {
        (vec![address], "it is")
    } else {
        let resolved = (host, port).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect::<Vec<_>>());
        match resolved {
            Ok(known) if !known.is_empty() => (known, "it has"),
            _ if host.eq_ignore_ascii_case(SERVER_NAME) => {
                return Err(TestbedError::Plan(
                    "`server` is the name of a server that the testbed starts: give its command with --server".into(),
                ));
            }
            _ => {
                return Err(TestbedError::Plan(format!(
                    "`{host}` has no address: check the name, and that this machine can resolve names"
                )));
            }
        }
    };
    // `::ffff:192.0.2.7` is an IPv4 address in IPv6 notation: on the wire it is IPv4.
    let known: Vec<IpAddr> = known.iter().map(IpAddr::to_canonical).collect();
    let chosen = target.family.choose(&known);
    if chosen.is_empty() {
        let known: Vec<String> = known.iter().map(IpAddr::to_string).collect();
        return Err(TestbedError::Plan(format!(
            "`{host}` has no {}: {from} {}",
            target.family.words(),
            known.join(", ")
        )));
    }
    Ok(chosen)
}

/// How each address is reached through a path whose server's end is in this host's own network.
///
/// # Errors
/// An address that a path cannot reach, by name and with a fix.
pub fn through_path(host: &str, addresses: &[IpAddr]) -> Result<Vec<Reach>, TestbedError> {
    let mut netlink = Netlink::open().map_err(TestbedError::environment)?;
    let mut reaches = Vec::new();
    let mut loopbacks = 0;
    for &configured in addresses {
        let refuse = |why: String| Err(TestbedError::Plan(format!("`{host}` is {configured}, {why}")));
        if configured.is_unspecified() || configured.is_multicast() || configured == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return refuse(
                "which is the unspecified address: use the one that the service listens on, or 127.0.0.1".into(),
            );
        }
        if lab_addresses(ServerPlan::ADDRESSES_MAX).contains(&configured) {
            return refuse("which is the testbed's own server end: start a server there with --server".into());
        }
        let routing = match configured {
            IpAddr::V4(address) if address.is_loopback() => Routing::Rewritten,
            IpAddr::V6(address) if address.is_loopback() => Routing::OnDevice,
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                return refuse("which is valid on its own link only, not through a path: use a global address".into());
            }
            _ => match netlink.route_to(configured) {
                Ok(route) if route.kind == ExistingRouteKind::Local => Routing::HostAddress,
                Ok(route) if route.kind == ExistingRouteKind::Unicast => Routing::Forwarded,
                Ok(_) => return refuse("which this host's routing table prohibits".into()),
                Err(error) => return refuse(format!("to which this host has no route ({error})")),
            },
        };
        let connect = match routing {
            Routing::Rewritten => {
                loopbacks += 1;
                Ipv4Addr::from_bits(SERVER.to_bits() + loopbacks - 1).into()
            }
            Routing::OnDevice => SERVER_V6.into(),
            Routing::InTestbed | Routing::HostAddress | Routing::Forwarded => configured,
        };
        reaches.push(Reach { configured, connect, routing });
    }
    Ok(reaches)
}

/// Checks in this host's socket table that a service of this host is reachable; a remote one cannot be checked. Nothing
/// is sent.
///
/// # Errors
/// No socket listens, or none that the path reaches: by name and with a fix.
pub fn check_listening(reach: &Reach, port: u16) -> Result<(), TestbedError> {
    check(reach, port, find_tcp)
}

fn check(reach: &Reach, port: u16, find: fn(i32, IpAddr, u16) -> Listening) -> Result<(), TestbedError> {
    let own = std::process::id() as i32;
    match (reach.routing, find(own, reach.at_server(), port)) {
        (Routing::InTestbed | Routing::Forwarded, _) | (_, Listening::Yes) => Ok(()),
        (_, Listening::Elsewhere(IpAddr::V6(Ipv6Addr::LOCALHOST))) => Err(TestbedError::Plan(format!(
            "the service on port {port} listens on ::1 only, which Linux makes unreachable from outside the host: let it \
             listen on [::], or on 127.0.0.1 and use that address"
        ))),
        (_, Listening::Elsewhere(other)) => Err(TestbedError::Plan(format!(
            "the service on port {port} listens on {} only, not on {}: use that address in the URL, or let the service \
             listen on {}",
            SocketAddr::new(other, port),
            reach.configured,
            if reach.configured.is_ipv4() { "0.0.0.0" } else { "[::]" },
        ))),
        (_, Listening::No) => Err(TestbedError::Plan(format!(
            "nothing listens on {} of this host: check that the service runs, and the port (--server starts a service)",
            SocketAddr::new(reach.configured, port)
        ))),
    }
}

/// As [`find_tcp`], or as [`find_udp`] if nothing listens on TCP.
fn find_any(pid: i32, address: IpAddr, port: u16) -> Listening {
    match (find_tcp(pid, address, port), find_udp(pid, address, port)) {
        (Listening::Yes, _) | (_, Listening::Yes) => Listening::Yes,
        (Listening::No, datagrams) => datagrams,
        (elsewhere, _) => elsewhere,
    }
}

/// A service under the name that programs at the clients' end use.
#[derive(Clone, Debug)]
pub struct Named {
    /// The host's name.
    pub name: String,
    /// The host's addresses.
    pub reaches: Vec<Reach>,
}

/// The named services that programs at the clients' end can reach.
///
/// # Errors
/// The errors of [`resolve`], [`through_path`] and [`check_listening`].
pub fn named(to: &[To], family: AddressFamily) -> Result<Vec<Named>, TestbedError> {
    let mut all = Vec::new();
    for to in to {
        let plan = TargetPlan { family, addresses: to.addresses.clone(), ..TargetPlan::default() };
        let addresses = resolve(&to.host, to.port.unwrap_or(0), &plan)?;
        all.extend(addresses.into_iter().map(|address| (to, address)));
    }
    // All targets in one call: each loopback address gets its own address in the testbed, however often it is named.
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (_, address) in &all {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    let host = to.iter().map(|to| to.host.as_str()).collect::<Vec<_>>().join("`, `");
    let reaches = through_path(&host, &addresses)?;
    let mut named: Vec<Named> = Vec::new();
    for (to, address) in all {
        let reach = *reaches
            .iter()
            .find(|reach| reach.configured == address)
            .expect("through_path() returns an entry for every address");
        if let Some(port) = to.port {
            check(&reach, port, find_any)?;
        }
        match named.iter_mut().find(|known| known.name == to.host) {
            Some(known) => known.reaches.push(reach),
            None => named.push(Named { name: to.host.clone(), reaches: vec![reach] }),
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(names: &[&str], addresses: u32) -> ServerPlan {
        ServerPlan {
            command: "true".into(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            addresses,
            start_timeout: std::time::Duration::ZERO,
            ..ServerPlan::default()
        }
    }

    fn connects(reaches: Vec<Reach>) -> Vec<String> {
        reaches.iter().map(|reach| reach.connect.to_string()).collect()
    }

    #[test]
    fn the_testbed_has_its_own_names() {
        let one = server(&["shop.example"], 1);
        let find = |host: &str, family| in_testbed(host, 80, &one, family).map(connects);
        assert_eq!(find("SERVER", AddressFamily::Any).unwrap(), ["198.18.0.1"]);
        assert_eq!(find("shop.example", AddressFamily::Ipv6).unwrap(), ["2001:2:0:1::1"]);
        assert_eq!(find("2001:2:0:1::1", AddressFamily::Any).unwrap(), ["2001:2:0:1::1"]);
        assert_eq!(find("server", AddressFamily::Both).unwrap(), ["198.18.0.1", "2001:2:0:1::1"]);
        let wrong = find("other.example", AddressFamily::Any).unwrap_err().to_string();
        assert!(wrong.contains("--server-name other.example"), "{wrong}");
        assert!(find("198.18.0.2", AddressFamily::Any).is_err());
        let other_family = find("2001:2:0:1::1", AddressFamily::Ipv4).unwrap_err().to_string();
        assert!(other_family.contains("no IPv4 address (-4)"), "{other_family}");
        let three = in_testbed("server", 80, &server(&[], 3), AddressFamily::Any).map(connects).unwrap();
        assert_eq!(three, ["198.18.0.1", "198.18.0.2", "198.18.0.3"]);
    }

    #[test]
    fn loopback_addresses_get_addresses_in_the_testbed() {
        let addresses: Vec<IpAddr> = ["127.0.0.1", "127.0.0.53", "::1"].map(|text| text.parse().unwrap()).into();
        let reaches = through_path("h", &addresses).unwrap();
        assert_eq!(connects(reaches.clone()), ["198.18.0.1", "198.18.0.2", "2001:2:0:1::1"]);
        let at_server: Vec<String> = reaches.iter().map(|reach| reach.at_server().to_string()).collect();
        assert_eq!(at_server, ["127.0.0.1", "127.0.0.53", "2001:2:0:1::1"]);
    }

    #[test]
    fn addresses_that_a_path_cannot_reach_are_refused() {
        for address in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "198.18.0.1", "fe80::1"] {
            let error = through_path("h", &[address.parse().unwrap()]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`h` is {address}, ")), "{error}");
        }
        let plan = TargetPlan { family: AddressFamily::Ipv6, ..TargetPlan::default() };
        let error = resolve("127.0.0.1", 80, &plan).unwrap_err().to_string();
        assert!(error.contains("no IPv6 address (-6): it is 127.0.0.1"), "{error}");
        let given = TargetPlan { addresses: vec!["192.0.2.7".parse().unwrap()], ..TargetPlan::default() };
        assert_eq!(resolve("shop.example", 80, &given).unwrap(), given.addresses);
        let mapped = resolve("::ffff:192.0.2.7", 80, &TargetPlan::default()).unwrap();
        assert_eq!(mapped, given.addresses, "an IPv4-mapped address is an IPv4 address");
    }
}
