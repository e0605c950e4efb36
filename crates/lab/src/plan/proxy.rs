//! An HTTP proxy between the clients and the URL's host.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a proxy listens, `HOST:PORT`. Clients connect there and put the whole URL on the request line; the URL's host is
/// the proxy's to find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proxy {
    /// Name or address, an IPv6 address without its brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

impl FromStr for Proxy {
    type Err = String;

    /// `proxy.example:3128`, `[2001:db8::1]:3128`; `http://` in front and `/` behind are let pass.
    fn from_str(typed: &str) -> Result<Self, String> {
        let wanted = || format!("`{typed}` is no proxy: HOST:PORT is wanted, such as proxy.example:3128");
        let bare = typed.trim().strip_prefix("http://").unwrap_or(typed.trim());
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        if let Ok(SocketAddr::V6(address)) = bare.parse::<SocketAddr>()
            && address.port() != 0
        {
            return Ok(Proxy { host: address.ip().to_string(), port: address.port() });
        }
        let (host, port) = bare.split_once(':').ok_or_else(wanted)?;
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match port.parse::<u16>() {
            Ok(port @ 1..) if !host.is_empty() && host.chars().all(usual) => Ok(Proxy { host: host.to_owned(), port }),
            _ => Err(wanted()),
        }
    }
}

impl TryFrom<String> for Proxy {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<Proxy> for String {
    fn from(proxy: Proxy) -> String {
        proxy.to_string()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.parse::<Ipv6Addr>().is_ok() {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Proxy;

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        let read = |typed: &str| typed.parse::<Proxy>().map(|proxy| proxy.to_string());
        assert_eq!(read("proxy.example:3128").unwrap(), "proxy.example:3128");
        assert_eq!(read("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080");
        assert_eq!(read("[2001:db8::1]:65535").unwrap(), "[2001:db8::1]:65535");
        for bad in
            ["", "proxy", ":80", "proxy:", "proxy:0", "proxy:65536", "[::1]:0", "::1:80", "a b:80", "https://p:1"]
        {
            assert!(read(bad).unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }
}
