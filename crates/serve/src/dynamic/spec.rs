//! What is dynamic, who answers it, and within which bounds.

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
    /// Which paths, and who answers them. The longest prefix that fits is taken.
    pub routes: Vec<Route>,
    /// Bounds on every upstream.
    pub limits: DynamicLimits,
    /// A program to start and keep running: the upstream of these routes.
    pub program: Option<ProgramSpec>,
    /// Keeps answers and gives them again; none are kept without it.
    pub cache: Option<CacheSpec>,
}

impl DynamicSpec {
    /// These routes with the default bounds, their upstreams started by someone else.
    pub fn new(routes: Vec<Route>) -> Self {
        DynamicSpec { routes, limits: DynamicLimits::default(), program: None, cache: None }
    }

    /// Whether a program of this server's runs beside it, and gives way to static answers.
    pub(crate) fn gives_way(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.weight == Weight::Least)
    }
}

/// One prefix and its upstream. Written `/app=http://127.0.0.1:9000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Begins with `/`. `/app` and `/app/` both take `/app` and what is below it, and not `/apple`; `/` takes everything.
    pub prefix: String,
    /// Who answers.
    pub upstream: Upstream,
}

/// A program that answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// It speaks HTTP/1.1: `http://host:port[/base]` or `unix:/path[:/base]`.
    Http {
        /// Where it listens.
        transport: Transport,
        /// Put in the place of the prefix. Without one the path stays as the client sent it.
        base: Option<String>,
    },
    /// It speaks FastCGI: `fastcgi://host:port[FILE]`, `fastcgi:/path[:FILE]` or `fastcgi+unix:/path[:FILE]`.
    FastCgi {
        /// Where it listens.
        transport: Transport,
        /// Which script a path means.
        script: FastCgiScript,
    },
}

/// Where an upstream listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A name or address, with a port. A name is looked up at every connect.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Which script of a FastCGI program answers a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastCgiScript {
    /// The first part of the path that ends in `.php`, below this directory (the served one when none is named); a path
    /// that ends in `/` means `index.php` there. It must be a file that this server sees, so that a name like
    /// `/photo.jpg/x.php` runs nothing.
    Below(Option<PathBuf>),
    /// This one, for every path: `PATH_INFO` is what follows the prefix. It need not be on this machine.
    One(PathBuf),
}

/// Bounds on the exchanges with one upstream. Past them a client gets 503 with Retry-After, or 504.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicLimits {
    /// Exchanges under way at once; 1 at least.
    pub concurrency: usize,
    /// Requests that may wait for one of these places, in the order of their arrival.
    pub queue: usize,
    /// How long one may wait there.
    pub queue_time: Duration,
    /// From connect called to the connection.
    pub connect_time: Duration,
    /// From the last piece of the request's body that was taken to the end of the answer's head.
    pub first_byte_time: Duration,
    /// Between two pieces of the answer, while the client takes them.
    pub stall_time: Duration,
    /// The whole exchange, waiting for a place not counted.
    pub whole_time: Duration,
    /// An answer's head may be this long; 8 KiB at least.
    pub head_bytes: usize,
}

impl Default for DynamicLimits {
    /// 16 at once, 128 waiting for 5 s at most; connect 3 s, first byte 60 s, stalled 60 s, whole 10 min; 64 KiB of head.
    fn default() -> Self {
        DynamicLimits {
            concurrency: 16,
            queue: 128,
            queue_time: Duration::from_secs(5),
            connect_time: Duration::from_secs(3),
            first_byte_time: Duration::from_secs(60),
            stall_time: Duration::from_secs(60),
            whole_time: Duration::from_secs(600),
            head_bytes: 64 << 10,
        }
    }
}

/// A program that the server starts, bounds, and starts again when it ends.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// For `/bin/sh -c`. It finds the address of the first route in `YAMABIKO_UPSTREAM`: `host:port`, or
    /// `unix:/path`.
    pub command: String,
    /// The processor time it may use, all its processes together.
    pub cpu: Option<CpuShare>,
    /// How often that is dealt out. Short, since a program that has used up its share stands still for the rest.
    pub period: Duration,
    /// Who goes first when static server and program both want the processor.
    pub weight: Weight,
}

impl ProgramSpec {
    /// No bound; 5 ms; the static server goes first.
    pub fn new(command: impl Into<String>) -> Self {
        ProgramSpec { command: command.into(), cpu: None, period: Duration::from_millis(5), weight: Weight::Least }
    }
}

/// Why a route as typed means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No `=` between prefix and upstream.
    #[error("{0:?}: a route is written PREFIX=UPSTREAM, as in /app=http://127.0.0.1:9000")]
    NoUpstream(String),
    /// The prefix is no path.
    #[error("{0:?}: a prefix begins with / and has neither `.` nor `..` parts, `%`, `?`, `#`, nor spaces")]
    Prefix(String),
    /// The upstream is none that is known.
    #[error(
        "{0:?}: an upstream is http://HOST:PORT[/BASE], unix:/PATH[:/BASE], fastcgi://HOST:PORT[/FILE] or fastcgi:/PATH[:/FILE]"
    )]
    Upstream(String),
    /// TLS to the upstream.
    #[error("{0:?}: an upstream is spoken to without TLS; put it on this machine, or a tunnel before it")]
    Tls(String),
}

impl Route {
    /// The prefix without the slash it may end in: empty for `/`.
    pub(crate) fn stem(&self) -> &str {
        self.prefix.trim_end_matches('/')
    }
}

impl FromStr for Route {
    type Err = RouteError;

    /// # Errors
    /// What is wrong with it, and how one is written.
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
    /// Where it listens.
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
    // A socket's name has to fit into sockaddr_un, with a NUL.
    (socket.starts_with('/') && socket.len() < 108).then(|| (Transport::Unix(socket.into()), path))
}

/// A base as it may stand in a request line.
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
    fn upstreams_as_typed_and_as_printed() {
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
    fn what_means_nothing_is_refused() {
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
