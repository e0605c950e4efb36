//! Configuration of dynamic routes: prefixes, upstreams and limits.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sys::cgroup::Weight;
use units::CpuShare;

use crate::cache::CacheSpec;

/// The dynamic part of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicSpec {
    /// The routes. The longest matching prefix wins.
    pub routes: Vec<Route>,
    /// Limits of every upstream.
    pub limits: DynamicLimits,
    /// A program to start and keep running: the upstream of the first route.
    pub program: Option<ProgramSpec>,
    /// The result cache, if enabled.
    pub cache: Option<CacheSpec>,
}

impl DynamicSpec {
    /// These routes with the default limits; their upstreams run already.
    pub fn new(routes: Vec<Route>) -> Self {
        DynamicSpec { routes, limits: DynamicLimits::default(), program: None, cache: None }
    }

    /// Whether the server starts a program with a lower priority than static responses.
    pub(crate) fn has_lower_priority(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.weight == Weight::Least)
    }
}

/// One prefix and its upstream. Written `/app=http://127.0.0.1:9000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Begins with `/`. `/app` and `/app/` both match `/app` and paths below it, but not `/apple`; `/` matches every
    /// path.
    pub prefix: String,
    /// The program that responds.
    pub upstream: Upstream,
}

/// A program that responds to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// HTTP/1.1: `http://host:port[/base]` or `unix:/path[:/base]`.
    Http {
        /// Its address.
        transport: Transport,
        /// Replaces the prefix. Without it the path is forwarded unchanged.
        base: Option<String>,
    },
    /// FastCGI: `fastcgi://host:port[FILE]`, `fastcgi:/path[:FILE]` or `fastcgi+unix:/path[:FILE]`.
    FastCgi {
        /// Its address.
        transport: Transport,
        /// The script of a path.
        script: FastCgiScript,
    },
}

/// Address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A name or address with a port. A name is resolved for every connection.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How a path selects the script of a FastCGI program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastCgiScript {
    /// The first segment of the path that ends in `.php`, below this directory (default: the served one); a path that
    /// ends in `/` selects `index.php` there. The server must see the script as a file, so that `/photo.jpg/x.php` runs
    /// nothing.
    Below(Option<PathBuf>),
    /// This script for every path: `PATH_INFO` is the path after the prefix. It may be on another machine.
    One(PathBuf),
}

/// Limits of the exchanges with one upstream. Beyond them a client gets 503 with Retry-After, or 504.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicLimits {
    /// Concurrent exchanges; at least 1.
    pub concurrency: usize,
    /// Requests in the queue for an exchange, first in first out.
    pub queue: usize,
    /// Maximum time in the queue.
    pub queue_time: Duration,
    /// Time to connect.
    pub connect_time: Duration,
    /// From the last accepted piece of the request's body to the end of the response's head.
    pub first_byte_time: Duration,
    /// Between two pieces of the response, while the client reads.
    pub stall_time: Duration,
    /// Time of the complete exchange, without the queue.
    pub timeout: Duration,
    /// Maximum length of a response head; at least 8 KiB.
    pub head_bytes: usize,
}

impl Default for DynamicLimits {
    /// 16 concurrent, 128 queued for up to 5 s; connect 3 s, first byte 60 s, stall 60 s, total 10 min; 64 KiB of head.
    fn default() -> Self {
        DynamicLimits {
            concurrency: 16,
            queue: 128,
            queue_time: Duration::from_secs(5),
            connect_time: Duration::from_secs(3),
            first_byte_time: Duration::from_secs(60),
            stall_time: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            head_bytes: 64 << 10,
        }
    }
}

/// A program that the server starts, limits and restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// For `/bin/sh -c`. `YAMABIKO_UPSTREAM` is the address of the first route: `host:port`, or `unix:/path`.
    pub command: String,
    /// CPU limit of all its processes together.
    pub cpu: Option<CpuShare>,
    /// Period of the CPU limit. Short, since a program that has used its share is stopped for the rest of the period.
    pub period: Duration,
    /// CPU priority of the program against the static server.
    pub weight: Weight,
}

impl ProgramSpec {
    /// No limit; period 5 ms; the static server has priority.
    pub fn new(command: impl Into<String>) -> Self {
        ProgramSpec { command: command.into(), cpu: None, period: Duration::from_millis(5), weight: Weight::Least }
    }
}

/// Why a route is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No `=` between prefix and upstream.
    #[error("{0:?} is not a valid route; expected PREFIX=UPSTREAM, as in /app=http://127.0.0.1:9000")]
    NoUpstream(String),
    /// The prefix is not a valid path.
    #[error(
        "{0:?} is not a valid prefix; it begins with / and contains no `.` or `..` segment, `%`, `?`, `#` or space"
    )]
    Prefix(String),
    /// The upstream has an unknown form.
    #[error(
        "{0:?} is not a valid upstream; expected http://HOST:PORT[/BASE], unix:/PATH[:/BASE], fastcgi://HOST:PORT[/FILE] or fastcgi:/PATH[:/FILE]"
    )]
    Upstream(String),
    /// TLS to the upstream.
    #[error(
        "{0:?}: TLS to an upstream is not supported; run the upstream on this machine, or reach it through a tunnel"
    )]
    Tls(String),
}

impl Route {
    /// The prefix without a trailing slash: empty for `/`.
    pub(crate) fn stem(&self) -> &str {
        self.prefix.trim_end_matches('/')
    }
}

impl FromStr for Route {
    type Err = RouteError;

    /// # Errors
    /// The route is invalid; the error shows the expected form.
    fn from_str(typed: &str) -> Result<Self, RouteError> {
        let (prefix, upstream) = typed.split_once('=').ok_or_else(|| RouteError::NoUpstream(typed.to_owned()))?;
        let plain = prefix.bytes().all(|byte| byte.is_ascii_graphic() && !b"%?#\\".contains(&byte));
        let dots = prefix.split('/').any(|part| part == "." || part == "..");
        if !prefix.starts_with('/') || prefix.contains("//") || !plain || dots {
            return Err(RouteError::Prefix(prefix.to_owned()));
        }
        Ok(Route { prefix: prefix.to_owned(), upstream: upstream.parse()? })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.prefix, self.upstream)
    }
}

impl Upstream {
    /// Its address.
    pub fn transport(&self) -> &Transport {
        match self {
            Upstream::Http { transport, .. } | Upstream::FastCgi { transport, .. } => transport,
        }
    }
}

impl FromStr for Upstream {
    type Err = RouteError;

    /// # Errors
    /// An unknown scheme, no port, a path that is not absolute.
    fn from_str(typed: &str) -> Result<Self, RouteError> {
        let wrong = || RouteError::Upstream(typed.to_owned());
        if typed.starts_with("https:") {
            return Err(RouteError::Tls(typed.to_owned()));
        }
        if let Some(rest) = typed.strip_prefix("http://") {
            let (transport, base) = tcp(rest).ok_or_else(wrong)?;
            let base = base.map(|base| base_path(base).ok_or_else(wrong)).transpose()?;
            return Ok(Upstream::Http { transport, base });
        }
        if let Some(rest) = typed.strip_prefix("unix:") {
            let (transport, base) = unix(rest).ok_or_else(wrong)?;
            let base = base.map(|base| base_path(base).ok_or_else(wrong)).transpose()?;
            return Ok(Upstream::Http { transport, base });
        }
        let (transport, file) = if let Some(rest) = typed.strip_prefix("fastcgi://") {
            tcp(rest).ok_or_else(wrong)?
        } else {
            let path =
                typed.strip_prefix("fastcgi+unix:").or_else(|| typed.strip_prefix("fastcgi:")).ok_or_else(wrong)?;
            unix(path).ok_or_else(wrong)?
        };
        let script = match file {
            None => FastCgiScript::Below(None),
            Some(directory) if directory.ends_with('/') => FastCgiScript::Below(Some(directory.into())),
            Some(file) => FastCgiScript::One(file.into()),
        };
        Ok(Upstream::FastCgi { transport, script })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, transport, rest) = match self {
            Upstream::Http { transport, base } => ("http", transport, base.clone()),
            Upstream::FastCgi { transport, script: FastCgiScript::One(file) } => {
                ("fastcgi", transport, Some(file.display().to_string()))
            }
            Upstream::FastCgi { transport, script: FastCgiScript::Below(root) } => {
                ("fastcgi", transport, root.as_ref().map(|root| root.display().to_string()))
            }
        };
        match transport {
            Transport::Tcp(authority) => write!(f, "{scheme}://{authority}{}", rest.unwrap_or_default()),
            Transport::Unix(path) => {
                write!(f, "{}:{}", if scheme == "http" { "unix" } else { scheme }, path.display())?;
                rest.map_or(Ok(()), |rest| write!(f, ":{rest}"))
            }
        }
    }
}

impl fmt::Display for Transport {
    /// As in `YAMABIKO_UPSTREAM`: `host:port`, or `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Tcp(authority) => f.write_str(authority),
            Transport::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `host:port`, and the path after it.
fn tcp(typed: &str) -> Option<(Transport, Option<&str>)> {
    let (authority, path) = match typed.find('/') {
        Some(at) => (&typed[..at], Some(&typed[at..])),
        None => (typed, None),
    };
    let (host, port) = authority.rsplit_once(':')?;
    let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let port_is_one = port.parse::<u16>().is_ok_and(|port| port != 0);
    (!host.is_empty() && plain && !bare_ipv6 && port_is_one).then(|| (Transport::Tcp(authority.to_owned()), path))
}

/// An absolute path, and another one after a colon.
fn unix(typed: &str) -> Option<(Transport, Option<&str>)> {
    let (socket, path) = match typed.find(":/") {
        Some(at) => (&typed[..at], Some(&typed[at + 1..])),
        None => (typed, None),
    };
    // A socket's path must fit into sockaddr_un with a NUL.
    (socket.starts_with('/') && socket.len() < 108).then(|| (Transport::Unix(socket.into()), path))
}

/// A base path that is valid in a request line.
fn base_path(typed: &str) -> Option<String> {
    let plain = typed.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte));
    plain.then(|| typed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(typed: &str) -> Route {
        typed.parse().unwrap()
    }

    #[test]
    fn upstreams_are_parsed_and_printed() {
        for typed in [
            "/app=http://127.0.0.1:9000",
            "/app=http://localhost:9000/base",
            "/=http://[::1]:80/",
            "/app=unix:/run/app.sock",
            "/app=unix:/run/app.sock:/base/",
            "/php=fastcgi://127.0.0.1:9000",
            "/php=fastcgi://127.0.0.1:9000/srv/www/",
            "/php=fastcgi:/run/php.sock:/srv/app/index.php",
        ] {
            assert_eq!(route(typed).to_string(), typed);
        }
        let php = route("/php=fastcgi+unix:/run/php.sock:/srv/www/").upstream;
        let script = FastCgiScript::Below(Some("/srv/www/".into()));
        assert_eq!(php, Upstream::FastCgi { transport: Transport::Unix("/run/php.sock".into()), script });
        assert_eq!(php.transport().to_string(), "unix:/run/php.sock");
    }

    #[test]
    fn invalid_routes_are_refused() {
        for typed in
            ["/app", "app=http://h:1", "/a/../b=http://h:1", "/%61=http://h:1", "/a b=http://h:1", "//a=http://h:1"]
        {
            assert!(typed.parse::<Route>().is_err(), "{typed}");
        }
        for typed in ["http://host", "http://host:0", "http://:80", "http://::1:80", "http://h:99999", "http://a@h:80"]
        {
            assert!(typed.parse::<Upstream>().is_err(), "{typed}");
        }
        for typed in ["ftp://h:1", "unix:app.sock", "fastcgi:", "unix:", "http://h:80/a b", "http://h:80/a?b"] {
            assert!(typed.parse::<Upstream>().is_err(), "{typed}");
        }
        assert_eq!("https://h:443".parse::<Upstream>(), Err(RouteError::Tls("https://h:443".to_owned())));
    }
}
