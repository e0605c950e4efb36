//! `[target]`: addresses of the server, where the URL alone does not define them.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ServerTcp;

/// Addresses of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetPlan {
    /// Address family of the connections to the URL's host.
    #[serde(default)]
    pub family: AddressFamily,
    /// Addresses to connect to instead of those that this host's resolver returns for the URL's host. Connections use
    /// them in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Hosts of the load's URLs that are yours, or whose owner has agreed to the load. Shards (`[shard]`) refuse hosts
    /// with public addresses that are neither here nor permit the load by `/.well-known/yamabiko.txt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<String>,
    /// TCP settings of this host towards the clients, for a service that already runs on this host.
    #[serde(default, skip_serializing_if = "ServerTcp::is_unset")]
    pub tcp: ServerTcp,
}

/// Which addresses are used of a name that has both families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4, if the name has such an address; otherwise IPv6.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// All of them, IPv4 first.
    Both,
}

impl AddressFamily {
    /// The addresses of this family in `addresses`, each once, in their order.
    pub fn choose(self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let of = |ipv4: bool| addresses.iter().copied().filter(move |address| address.is_ipv4() == ipv4);
        let mut chosen: Vec<IpAddr> = match self {
            AddressFamily::Ipv4 => of(true).collect(),
            AddressFamily::Ipv6 => of(false).collect(),
            AddressFamily::Both => of(true).chain(of(false)).collect(),
            AddressFamily::Any if of(true).next().is_some() => of(true).collect(),
            AddressFamily::Any => of(false).collect(),
        };
        let mut seen = Vec::new();
        chosen.retain(|address| {
            !seen.contains(address) && {
                seen.push(*address);
                true
            }
        });
        chosen
    }

    /// The family in words, for error messages.
    pub fn words(self) -> &'static str {
        match self {
            AddressFamily::Any | AddressFamily::Both => "address",
            AddressFamily::Ipv4 => "IPv4 address (-4)",
            AddressFamily::Ipv6 => "IPv6 address (-6)",
        }
    }
}

/// A service at the server's end of the path for foreign programs: its name and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct To {
    /// The name or address that programs use for it.
    pub host: String,
    /// The port, if it was given.
    pub port: Option<u16>,
    /// Its addresses, if they were given; otherwise this host's resolver is used.
    pub addresses: Vec<IpAddr>,
}

impl FromStr for To {
    type Err = String;

    /// Parses `HOST`, `HOST:PORT`, `[v6]:PORT`, `http://HOST:PORT/..` or `https://..`, each optionally with
    /// `=ADDRESS,ADDRESS`.
    fn from_str(typed: &str) -> Result<Self, String> {
        const EXPECTED_FORM: &str = "expected a host, such as shop.example, 127.0.0.1:8080, [::1]:8080, https://shop.example/, or \
                              with its address shop.example=192.0.2.7";
        // A URL may have a `=` in its query, after the host.
        let (scheme, rest) = typed.split_once("://").map_or(("", typed), |(scheme, rest)| (scheme, rest));
        let (authority, addresses) = match scheme {
            "" => rest.split_once('=').map_or((rest, ""), |(authority, addresses)| (authority, addresses)),
            _ => (rest.split(['/', '?', '#']).next().unwrap_or(rest), ""),
        };
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "" => None,
            "http" => Some(80),
            "https" => Some(443),
            other => {
                return Err(format!("`{other}`: unknown scheme, only http and https are supported; {EXPECTED_FORM}"));
            }
        };
        let (host, port) = if authority.parse::<std::net::Ipv6Addr>().is_ok() {
            (authority, None)
        } else if let Some(rest) = authority.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or(EXPECTED_FORM)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| EXPECTED_FORM)?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(EXPECTED_FORM)?) })
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        let port = match port {
            None => default_port,
            Some(port) => Some(port.parse::<u16>().ok().filter(|&port| port > 0).ok_or(EXPECTED_FORM)?),
        };
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(usual) {
            return Err(EXPECTED_FORM.into());
        }
        let addresses = addresses.split(',').filter(|address| !address.is_empty());
        let addresses =
            addresses.map(|address| address.parse().map_err(|_| EXPECTED_FORM.to_owned())).collect::<Result<_, _>>()?;
        Ok(To { host: host.to_owned(), port, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_selected_by_family() {
        let all: Vec<IpAddr> =
            ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.1"].map(|a| a.parse().unwrap()).into();
        let chosen = |family: AddressFamily| family.choose(&all).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(chosen(AddressFamily::Any), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(chosen(AddressFamily::Ipv6), ["2001:db8::1"]);
        assert_eq!(chosen(AddressFamily::Both), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        assert_eq!(AddressFamily::Any.choose(&all[..1]), all[..1]);
        assert!(AddressFamily::Ipv4.choose(&all[..1]).is_empty());
    }

    #[test]
    fn target_parses_hosts_ports_urls_and_addresses() {
        let to = |typed: &str| {
            let to: To = typed.parse().unwrap();
            (to.host, to.port, to.addresses.len())
        };
        assert_eq!(to("shop.example"), ("shop.example".into(), None, 0));
        assert_eq!(to("127.0.0.1:8080"), ("127.0.0.1".into(), Some(8080), 0));
        assert_eq!(to("[::1]:8080"), ("::1".into(), Some(8080), 0));
        assert_eq!(to("::1"), ("::1".into(), None, 0));
        assert_eq!(to("https://shop.example/a?b=c"), ("shop.example".into(), Some(443), 0));
        assert_eq!(to("http://h:81"), ("h".into(), Some(81), 0));
        assert_eq!(to("shop.example:443=192.0.2.1,2001:db8::1"), ("shop.example".into(), Some(443), 2));
        for wrong in ["", "ftp://h", "h:0", "h:http", "a b", "[::1", "[x]", "h=nowhere", "/path", "u@h"] {
            assert!(wrong.parse::<To>().is_err(), "{wrong}");
        }
    }
}
