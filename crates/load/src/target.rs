//! Parses the URL of a request into host, port, scheme and path.

use std::borrow::Cow;
use std::fmt;

use crate::LoadError;

/// A parsed URL. Host names are not resolved here: the driver resolves them in its network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Whether the scheme is `https`, so that connections use TLS.
    pub secure: bool,
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port; by default 80, or 443 with TLS.
    pub port: u16,
    /// Path and query, beginning with `/`; without the fragment.
    pub path_and_query: String,
    /// Value of the Host header: host and port as typed.
    pub authority: String,
    url: String,
}

impl Target {
    /// Parses `http://host:port/path?query` or the same with `https`. Characters outside ASCII are converted as in
    /// browsers: in the host by IDNA (UTS 46), in path and query to percent-encoded UTF-8.
    ///
    /// # Errors
    /// The text is not a URL, or has no scheme, a scheme other than http and https, a user name, a port outside 1 to
    /// 65535, a space, or an invalid host name.
    pub fn parse(typed: &str) -> Result<Target, LoadError> {
        let url = typed.trim();
        if url.is_empty() {
            return Err(LoadError::EmptyUrl);
        }
        let unreadable =
            |why: &str| LoadError::UnreadableUrl { url: url.escape_debug().to_string(), why: why.to_owned() };
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(unreadable("it contains a space or control character (write %20 for a space)"));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(LoadError::NoScheme { url: url.to_owned() });
        };
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(LoadError::UnknownScheme { url: url.to_owned(), scheme: scheme.to_owned() }),
        };
        let without_fragment = rest.split('#').next().unwrap_or_default();
        let path_at = without_fragment.find(['/', '?']).unwrap_or(without_fragment.len());
        let (authority, path) = without_fragment.split_at(path_at);
        let (authority, path) = (ascii_authority(authority).map_err(unreadable)?, ascii_path(path));
        let authority = authority.as_ref();
        if authority.contains('@') {
            return Err(LoadError::UserInUrl { url: url.to_owned() });
        }
        let (host, port) = split_authority(authority).map_err(unreadable)?;
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        let path_and_query = if path.starts_with('/') { path.into_owned() } else { format!("/{path}") };
        // The http crate checks the characters of the path: a server would reject a request line with others.
        path_and_query
            .parse::<http::uri::PathAndQuery>()
            .map_err(|_| unreadable("its path contains a character that must be percent-encoded"))?;
        Ok(Target { secure, host, port, path_and_query, authority: authority.to_owned(), url: url.to_owned() })
    }

    /// The URL as typed, without surrounding spaces.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The target with another path on the same host; `path_and_query` in origin form.
    pub fn with_path(&self, path_and_query: &str) -> Target {
        let scheme = if self.secure { "https" } else { "http" };
        Target {
            path_and_query: path_and_query.to_owned(),
            url: format!("{scheme}://{}{path_and_query}", self.authority),
            ..self.clone()
        }
    }

    /// Whether a connection to `other` can carry a request to this target.
    pub fn same_endpoint(&self, other: &Target) -> bool {
        self.secure == other.secure && self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// The authority with its host in the form of DNS: `bücher.example` becomes `xn--bcher-kva.example`.
fn ascii_authority(authority: &str) -> Result<Cow<'_, str>, &'static str> {
    if authority.is_ascii() {
        return Ok(authority.into());
    }
    let (host, port) = authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let host = idna::domain_to_ascii(host).map_err(|_| "its host is not a valid internationalized domain name")?;
    Ok(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}")).into())
}

/// Path and query with characters outside ASCII percent-encoded.
fn ascii_path(path: &str) -> Cow<'_, str> {
    if path.is_ascii() {
        return path.into();
    }
    let mut encoded = String::with_capacity(path.len() * 2);
    for &byte in path.as_bytes() {
        match byte {
            0..=0x7f => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded.into()
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port` into host and port.
fn split_authority(authority: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or("the `[` of an IPv6 address is not closed")?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| "what stands between [ and ] is not an IPv6 address")?;
        match after {
            "" => (address, None),
            _ => (address, Some(after.strip_prefix(':').ok_or("after `]` only a port can follow")?)),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address goes in brackets: http://[2001:2::1]/");
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    if !authority.starts_with('[')
        && !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    {
        return Err("its host contains a character that no host name has");
    }
    let port = match port {
        None => None,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => {
            Some(port.parse::<u16>().ok().filter(|&port| port != 0).ok_or("its port is not within 1 to 65535")?)
        }
        Some(_) => return Err("its port is not a number"),
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, u16, String, String) {
        let target = Target::parse(url).unwrap();
        (target.host, target.port, target.path_and_query, target.authority)
    }

    #[test]
    fn urls_are_parsed_into_host_port_and_target() {
        let owned = |host: &str, port, path: &str, authority: &str| (host.into(), port, path.into(), authority.into());
        assert_eq!(parts("http://server:8080/10k.bin"), owned("server", 8080, "/10k.bin", "server:8080"));
        assert_eq!(parts(" http://server "), owned("server", 80, "/", "server"));
        assert_eq!(parts("HTTP://a.example/b?c=d&e#f"), owned("a.example", 80, "/b?c=d&e", "a.example"));
        assert_eq!(parts("http://h?q=1"), owned("h", 80, "/?q=1", "h"));
        assert_eq!(parts("http://[2001:2::1]:81/"), owned("2001:2::1", 81, "/", "[2001:2::1]:81"));
        assert_eq!(parts("http://h:65535/").1, 65535);
    }

    #[test]
    fn https_urls_use_tls_and_port_443() {
        assert_eq!(parts("HTTPS://shop.example/a"), ("shop.example".into(), 443, "/a".into(), "shop.example".into()));
        assert_eq!(parts("https://[2001:2::1]:8443/").1, 8443);
        assert!(Target::parse("https://h").unwrap().secure && !Target::parse("http://h:443").unwrap().secure);
    }

    #[test]
    fn invalid_urls_are_rejected_with_a_suggestion() {
        let message = |url: &str| Target::parse(url).unwrap_err().to_string();
        assert!(message("").contains("http://server:8080"));
        assert!(message("server/x").contains("did you mean http://server/x"));
        assert!(message("ftp://server/").contains("only http:// and https://"));
        assert!(message("http://user:pw@server/").contains("Authorization"));
        assert!(message("http://").contains("names no host"));
        assert!(message("http://:80/").contains("names no host"));
        assert!(message("http://h:0/").contains("1 to 65535"));
        assert!(message("http://h:65536/").contains("1 to 65535"));
        assert!(message("http://h:/").contains("1 to 65535"));
        assert!(message("http://h:http/").contains("not a number"));
        assert!(message("http://2001:2::1/").contains("brackets"));
        assert!(message("http://[2001:2::1/").contains("not closed"));
        assert!(message("http://[x]/").contains("not an IPv6"));
        assert!(message("http://h/a b").contains("%20"));
        assert!(message("http://b\u{fc}cher\u{2fff}.example/").contains("internationalized"));
        assert!(message("http://h/\r\nX: y").contains("control"));
        assert!(message("http://h^/").contains("host name"));
    }

    #[test]
    fn non_ascii_urls_are_encoded() {
        let owned = |host: &str, port, path: &str, authority: &str| (host.into(), port, path.into(), authority.into());
        let german = owned("xn--bcher-kva.example", 8080, "/", "xn--bcher-kva.example:8080");
        assert_eq!(parts("http://B\u{fc}cher.example:8080/"), german);
        let japanese = owned("xn--wgv71a119e.jp", 443, "/%E5%B1%B1?q=%C3%A9", "xn--wgv71a119e.jp");
        assert_eq!(parts("https://\u{65e5}\u{672c}\u{8a9e}.jp/\u{5c71}?q=\u{e9}#\u{5c71}"), japanese);
        assert_eq!(Target::parse("http://h/\u{5c71}").unwrap().url(), "http://h/\u{5c71}");
    }

    #[test]
    fn endpoints_compare_by_scheme_host_and_port() {
        let target = |url| Target::parse(url).unwrap();
        assert!(target("http://A:80/x").same_endpoint(&target("http://a/y")));
        assert!(!target("http://a:81/x").same_endpoint(&target("http://a/x")));
        assert!(!target("http://a:443/x").same_endpoint(&target("https://a/x")));
    }
}
