//! Host names that requests may use.

use std::net::IpAddr;

/// Host names that no web site can own: `localhost`, loopback addresses, the local address of the connection, and
/// configured names.
///
/// A web site can point a name of its own to this host, and its scripts then count as this host's origin (DNS
/// rebinding). The browser still sends that name in `Host`. A numeric address cannot be redirected.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// The permitted hosts, with these additional names in any case.
    pub fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a request with this `Host` is permitted on a connection to the address `local`. The port is ignored: a
    /// port forwarding may change it.
    pub fn permit(&self, host: &str, local: IpAddr) -> bool {
        let Some(name) = host_of(host) else { return false };
        let name = name.to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match bare.unwrap_or(&name).parse::<IpAddr>() {
            // An IPv6 address is in brackets, an IPv4 address is not.
            Ok(ip) if ip.is_ipv6() == bare.is_some() => {
                let ip = ip.to_canonical();
                ip.is_loopback() || ip == local.to_canonical()
            }
            Ok(_) => false,
            Err(_) => bare.is_none() && (name == "localhost" || self.0.contains(&name)),
        }
    }
}

/// The host without its port; `None` if the port is invalid.
fn host_of(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(']') {
        Some(end) => host.split_at(end + 1),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port_is_valid = match port.strip_prefix(':') {
        Some(digits) => digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    (!name.is_empty() && port_is_valid).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_names_and_configured_names_are_permitted() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let hosts = Hosts::new(&["Bench.example".to_owned()]);
        for valid in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "bench.example:9", "BENCH.EXAMPLE"]
        {
            assert!(hosts.permit(valid, loopback), "{valid}");
        }
        for bad in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "evil.localhost",
            "",
            ":80",
            "192.0.2.1",
            "[192.0.2.1]",
            "::1",
            "[::1",
            "[::1]x",
            "localhost:port",
            "localhost:80:80",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "localhost:999999",
            "[localhost]",
            "2130706433",
            "127.1",
        ] {
            assert!(!hosts.permit(bad, loopback), "{bad}");
        }
    }

    #[test]
    fn the_address_of_the_connection_is_permitted() {
        let local = IpAddr::from([192, 0, 2, 7]);
        assert!(Hosts::default().permit("192.0.2.7:80", local) && !Hosts::default().permit("192.0.2.8", local));
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert!(Hosts::default().permit("192.0.2.7:80", mapped));
        let six: IpAddr = "2001:db8::7".parse().unwrap();
        assert!(Hosts::default().permit("[2001:db8::7]:80", six) && !Hosts::default().permit("[2001:db8::8]:80", six));
    }
}
