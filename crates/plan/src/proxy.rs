//! An HTTP proxy between the clients and the URL's host.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Address of a proxy, `HOST:PORT`, or `USER:PASSWORD@HOST:PORT` with basic authentication. Clients send requests with
/// the absolute URL to the proxy, or for https open a tunnel with CONNECT; the proxy resolves the URL's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proxy {
    /// Name or address, an IPv6 address without its brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
    /// `USER:PASSWORD`, as typed. It is part of the plan that is stored with the run.
    pub user: Option<String>,
}

impl Proxy {
    /// Value of the Proxy-Authorization header (RFC 7617), with a user.
    pub fn authorization(&self) -> Option<String> {
        self.user.as_ref().map(|user| format!("Basic {}", STANDARD.encode(user)))
    }
}

impl FromStr for Proxy {
    type Err = String;

    /// Parses `proxy.example:3128`, `[2001:db8::1]:3128` or `user:password@proxy.example:3128`; a leading `http://` and
    /// a trailing `/` are ignored.
    fn from_str(typed: &str) -> Result<Self, String> {
        let bare = typed.trim().strip_prefix("http://").unwrap_or(typed.trim());
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let (user, bare) = bare.rsplit_once('@').map_or((None, bare), |(user, bare)| (Some(user), bare));
        // The password must not appear in messages.
        let refusal = || format!("`{bare}` is not a valid proxy: expected HOST:PORT, such as proxy.example:3128");
        if user.is_some_and(|user| !user.contains(':') || user.starts_with(':') || user.chars().any(char::is_control)) {
            return Err("expected USER:PASSWORD before the @ of a proxy".into());
        }
        let user = user.map(str::to_owned);
        if let Ok(SocketAddr::V6(address)) = bare.parse::<SocketAddr>()
            && address.port() != 0
        {
            return Ok(Proxy { host: address.ip().to_string(), port: address.port(), user });
        }
        let (host, port) = bare.split_once(':').ok_or_else(refusal)?;
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match port.parse::<u16>() {
            Ok(port @ 1..) if !host.is_empty() && host.chars().all(usual) => {
                Ok(Proxy { host: host.to_owned(), port, user })
            }
            _ => Err(refusal()),
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
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
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
    fn proxy_parses_host_port_and_credentials() {
        let read = |typed: &str| typed.parse::<Proxy>().map(|proxy| proxy.to_string());
        assert_eq!(read("proxy.example:3128").unwrap(), "proxy.example:3128");
        assert_eq!(read("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080");
        assert_eq!(read("[2001:db8::1]:65535").unwrap(), "[2001:db8::1]:65535");
        let known = "http://me:p@ss@proxy.example:3128".parse::<Proxy>().unwrap();
        assert_eq!((known.host.as_str(), known.port, known.user.as_deref()), ("proxy.example", 3128, Some("me:p@ss")));
        assert_eq!(known.to_string().parse::<Proxy>().unwrap(), known);
        assert_eq!(
            "Aladdin:open sesame@p:1".parse::<Proxy>().unwrap().authorization().unwrap(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
        assert!("me@p:1".parse::<Proxy>().unwrap_err().contains("USER:PASSWORD"));
        for bad in
            ["", "proxy", ":80", "proxy:", "proxy:0", "proxy:65536", "[::1]:0", "::1:80", "a b:80", "https://p:1"]
        {
            assert!(read(bad).unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }
}
