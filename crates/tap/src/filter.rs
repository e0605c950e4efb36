//! Selects exchanges by peer, port, program and time, for the data slicer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use schema::TapExchange;
use serde::{Deserialize, Serialize};

/// An address or a network: `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMatch {
    network: IpAddr,
    bits: u8,
}

impl PeerMatch {
    /// Whether `address` is in it. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn matches(&self, address: IpAddr) -> bool {
        fn same(a: u128, b: u128, width: u32, bits: u8) -> bool {
            let shift = width - u32::from(bits);
            shift >= 128 || (a >> shift) == (b >> shift)
        }
        match (self.network.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32, self.bits),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128, self.bits),
            _ => false,
        }
    }
}

impl fmt::Display for PeerMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.network.is_ipv4() { 32 } else { 128 };
        if self.bits == whole { self.network.fmt(f) } else { write!(f, "{}/{}", self.network, self.bits) }
    }
}

impl FromStr for PeerMatch {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{typed}` is not a valid address or network: expected for example 192.0.2.7 or \
         2001:db8::/32"
            )
        };
        let (address, bits) = match typed.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (typed, None),
        };
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let network: IpAddr = bare.parse::<IpAddr>().map_err(|_| expected())?.to_canonical();
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= width).ok_or_else(expected)?,
        };
        Ok(PeerMatch { network, bits })
    }
}

/// A value of `--only`: a peer, a port, or both (`192.0.2.7:443`, `[2001:db8::1]:443`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Only {
    peer: Option<PeerMatch>,
    port: Option<u16>,
}

impl Only {
    /// Whether a connection with this `peer` and service port matches. The port of the service is the peer's if the
    /// program connected, and the local one if it accepted.
    pub fn matches(&self, peer: Option<SocketAddr>, service: Option<u16>) -> bool {
        self.peer.is_none_or(|expected| peer.is_some_and(|peer| expected.matches(peer.ip())))
            && self.port.is_none_or(|expected| service == Some(expected))
    }
}

impl FromStr for Only {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        if let Ok(port) = typed.strip_prefix(':').unwrap_or(typed).parse::<u16>() {
            return Ok(Only { peer: None, port: Some(port) });
        }
        if let Ok(both) = typed.parse::<SocketAddr>() {
            let peer = both.ip().to_string().parse().ok();
            return Ok(Only { peer, port: Some(both.port()) });
        }
        typed.parse().map(|peer| Only { peer: Some(peer), port: None }).map_err(|_| {
            format!(
                "`{typed}` is not a valid filter: expected a peer (192.0.2.7, 192.0.2.0/24), a port (443) or both \
             (192.0.2.7:443)"
            )
        })
    }
}

/// Conditions on rows. Of several values of one kind one must match; each given kind must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Peers.
    pub peers: Vec<PeerMatch>,
    /// Ports of the service: see [`service_port`].
    pub ports: Vec<u16>,
    /// Full names of programs.
    pub programs: Vec<String>,
    /// Excludes earlier ends: nanoseconds since 1970 (UTC).
    pub since_ns: Option<u64>,
    /// Excludes ends at or after this time.
    pub until_ns: Option<u64>,
}

impl Filter {
    /// Whether `row` matches; `at_ns` is when it ended, in nanoseconds since 1970 (UTC).
    pub fn matches_row(&self, row: &TapExchange, at_ns: u64) -> bool {
        let peer = || row.peer.map(|peer| peer.ip());
        let one_of_peers = self.peers.is_empty()
            || peer().is_some_and(|address| self.peers.iter().any(|expected| expected.matches(address)));
        let one_of_ports = self.ports.is_empty() || service_port(row).is_some_and(|port| self.ports.contains(&port));
        let one_of_programs = self.programs.is_empty()
            || row.program.as_deref().is_some_and(|name| self.programs.iter().any(|expected| expected == name));
        one_of_peers
            && one_of_ports
            && one_of_programs
            && self.since_ns.is_none_or(|since| at_ns >= since)
            && self.until_ns.is_none_or(|until| at_ns < until)
    }
}

/// Port of the service: the peer's at a client, the local one at a server.
pub fn service_port(row: &TapExchange) -> Option<u16> {
    match row.side {
        schema::TapSide::Client => row.peer,
        schema::TapSide::Server => row.local,
    }
    .map(|address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::TapSide;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_matches_addresses_within_its_prefix_length() {
        let network: PeerMatch = "192.0.2.128/25".parse().unwrap();
        assert!(network.matches(address("192.0.2.128")) && network.matches(address("::ffff:192.0.2.255")));
        assert!(!network.matches(address("192.0.2.127")) && !network.matches(address("2001:db8::1")));
        assert!("0.0.0.0/0".parse::<PeerMatch>().unwrap().matches(address("8.8.8.8")));
        assert!("::/0".parse::<PeerMatch>().unwrap().matches(address("2001:db8::1")));
        let one: PeerMatch = "2001:db8::1".parse().unwrap();
        assert!(one.matches(address("2001:db8::1")) && !one.matches(address("2001:db8::2")));
        for wrong in ["", "192.0.2.1/33", "::/129", "name", "192.0.2.1/x"] {
            assert!(wrong.parse::<PeerMatch>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn filter_only_parses_a_peer_a_port_or_both() {
        let peer = Some("192.0.2.7:443".parse().unwrap());
        for (typed, meant) in [
            ("443", true),
            (":443", true),
            ("80", false),
            ("192.0.2.7", true),
            ("192.0.2.0/24", true),
            ("192.0.2.8", false),
            ("192.0.2.7:443", true),
            ("192.0.2.7:80", false),
            ("[2001:db8::1]:443", false),
        ] {
            assert_eq!(typed.parse::<Only>().unwrap().matches(peer, Some(443)), meant, "{typed}");
        }
        assert!("65536".parse::<Only>().is_err());
        assert!(!"192.0.2.7".parse::<Only>().unwrap().matches(None, None));
    }

    #[test]
    fn a_row_matches_if_each_kind_of_condition_matches() {
        let row = TapExchange {
            peer: Some("192.0.2.7:50000".parse().unwrap()),
            local: Some("192.0.2.1:80".parse().unwrap()),
            side: TapSide::Server,
            program: Some("nginx".into()),
            ..TapExchange::BLANK
        };
        assert!(Filter::default().matches_row(&row, 0));
        let filter = Filter { ports: vec![443, 80], programs: vec!["nginx".into()], ..Filter::default() };
        assert!(filter.matches_row(&row, 0));
        assert!(
            !Filter { ports: vec![50_000], ..filter.clone() }.matches_row(&row, 0),
            "a port filter matches the port of the service only"
        );
        assert!(!Filter { programs: vec!["ngin".into()], ..filter.clone() }.matches_row(&row, 0));
        let timed = Filter { since_ns: Some(10), until_ns: Some(20), ..filter };
        assert!(
            !timed.matches_row(&row, 9)
                && timed.matches_row(&row, 10)
                && timed.matches_row(&row, 19)
                && !timed.matches_row(&row, 20)
        );
    }
}
