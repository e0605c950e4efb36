//! Where the far end is, where the URL alone does not say.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ServerTcp;

/// Where the far end is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetPlan {
    /// Which of the addresses behind the URL's host are connected to.
    #[serde(default)]
    pub family: AddressFamily,
    /// These addresses instead of those that this host's resolver gives for the URL's host. Connections take them in
    /// turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// TCP of this host towards the clients, for a service that runs on this host already.
    #[serde(default, skip_serializing_if = "ServerTcp::is_unset")]
    pub tcp: ServerTcp,
}

/// Which addresses are connected to, of a name that has both kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4, if the name has one; otherwise IPv6.
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
    /// Those of `addresses` that are meant, each once, in their order.
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

    /// In words, for what is not there.
    pub fn words(self) -> &'static str {
        match self {
            AddressFamily::Any | AddressFamily::Both => "address",
            AddressFamily::Ipv4 => "IPv4 address (-4)",
            AddressFamily::Ipv6 => "IPv6 address (-6)",
        }
    }
}

/// A service at the far end of a path for programs: its name, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct To {
    /// The name or address by which programs know it.
    pub host: String,
    /// The port that is meant, where one was said.
    pub port: Option<u16>,
    /// Its addresses, where they were said; otherwise this host's resolver is asked.
    pub addresses: Vec<IpAddr>,
}

impl FromStr for To {
    type Err = String;

    /// `HOST`, `HOST:PORT`, `[v6]:PORT`, `http://HOST:PORT/..`, `https://..`, each with `=ADDRESS,ADDRESS` after it.
    fn from_str(typed: &str) -> Result<Self, String> {
        const WANTED: &str = "a host is wanted, such as shop.example, 127.0.0.1:8080, [::1]:8080, https://shop.example/, or \
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
            other => return Err(format!("`{other}`: only http and https are known; {WANTED}")),
        };
        let (host, port) = if authority.parse::<std::net::Ipv6Addr>().is_ok() {
            (authority, None)
        } else if let Some(rest) = authority.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or(WANTED)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| WANTED)?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(WANTED)?) })
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        let port = match port {
            None => default_port,
            Some(port) => Some(port.parse::<u16>().ok().filter(|&port| port > 0).ok_or(WANTED)?),
        };
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(usual) {
            return Err(WANTED.into());
        }
        let addresses = addresses.split(',').filter(|address| !address.is_empty());
        let addresses =
            addresses.map(|address| address.parse().map_err(|_| WANTED.to_owned())).collect::<Result<_, _>>()?;
        Ok(To { host: host.to_owned(), port, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_chosen() {
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
    fn a_far_end_is_written_in_several_ways() {
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
