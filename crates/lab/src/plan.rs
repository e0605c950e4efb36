//! The plan: a run as meant, complete, so that the same file gives the same run.
//!
//! The command line and a plan file both end here. Every field has its default written out when a plan is printed,
//! and unknown keys are errors: a misspelt option must not become a run that measured something else.

mod path;
mod proxy;
mod target;
mod tls;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use ledger::Method;
use serde::{Deserialize, Serialize};
use units::{CpuShare, RequestRate};

pub use self::path::PathPlan;
pub use self::proxy::Proxy;
pub use self::target::{AddressFamily, TargetPlan, To};
pub use self::tls::{Alpn, TlsPlan, TlsVersion};
pub use self::watch::{WatchAt, WatchPlan};
use crate::slo::Slo;

/// A run as meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Becomes part of the run folder's name: letters, digits, `-` and `_`.
    #[serde(default = "default_name")]
    pub name: String,
    /// Seed of every random choice.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// What is offered, and to whom.
    pub load: LoadPlan,
    /// The distances; absent: no path, the generator talks to the URL directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
    /// The server that the lab starts; absent: it is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
    /// Where the far end is, where the URL alone does not say.
    #[serde(default)]
    pub target: TargetPlan,
    /// The second witness: packets at the ends of the path.
    #[serde(default)]
    pub watch: WatchPlan,
    /// How the loop waits and where things run.
    #[serde(default)]
    pub host: HostPlan,
    /// The objective the run is judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// `http://host[:port]/path`, or `https`. With a server of the lab the host is `server`.
    pub url: String,
    /// Request method.
    #[serde(default)]
    pub method: Method,
    /// File sent as the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<PathBuf>,
    /// Extra header lines, `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// An HTTP proxy that the clients connect to, `HOST:PORT`; absent: the URL's own host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// `1.1` or `1.0`.
    #[serde(default)]
    pub http: HttpVersion,
    /// One connection per request.
    #[serde(default)]
    pub close: bool,
    /// Open loop at this rate; absent: closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RequestRate>,
    /// How arrivals are spaced in the open loop.
    #[serde(default)]
    pub arrivals: ArrivalKind,
    /// Closed loop: number of connections. Open loop: most connections open at once; absent: as many as this
    /// process may have descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Virtual clients, each with its own address where there is a path.
    #[serde(default = "default_clients")]
    pub clients: u32,
    /// The measured phase ends after so many requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Length of the measured phase.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub duration: Option<Duration>,
    /// Load before the measured phase that is not in the results.
    #[serde(with = "units::time::text", default)]
    pub warmup: Duration,
    /// Bound on establishing a connection.
    #[serde(with = "units::time::text", default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// Bound from the request being handed to an open connection to the last byte of its response.
    #[serde(with = "units::time::text", default = "default_response_timeout")]
    pub timeout: Duration,
    /// How `https://` is spoken; written out where the URL asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
}

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.0
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalKind {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps: independent users.
    Poisson,
}

/// The server that the lab starts in its own namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPlan {
    /// Shell command; it must listen on every address, or on those of the lab's server end: 198.18.0.1, and
    /// 2001:2:0:1::1 for IPv6.
    pub command: String,
    /// Names by which the clients know it, besides `server`: for Host headers and certificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// How many addresses of each family it has behind its names, 198.18.0.1 and on, 1 to 250.
    #[serde(default = "default_addresses")]
    pub addresses: u32,
    /// Holds it to a share of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Its TCP.
    #[serde(default)]
    pub tcp: ServerTcp,
    /// How long it may take until it listens.
    #[serde(with = "units::time::text", default = "default_server_start")]
    pub start_timeout: Duration,
}

impl ServerPlan {
    /// Most addresses of each family.
    pub const ADDRESSES_MAX: u32 = 250;

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.addresses == 0 || self.addresses > Self::ADDRESSES_MAX {
            return Err(format!(
                "addresses = {} (--server-addresses): from 1 to {} are possible",
                self.addresses,
                Self::ADDRESSES_MAX
            ));
        }
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match self.names.iter().find(|name| name.is_empty() || !name.chars().all(usual)) {
            Some(name) => {
                Err(format!("`{name}` (--server-name) is no host name: letters, digits, dots and - are wanted"))
            }
            None => Ok(()),
        }
    }
}

/// The server's TCP, set on its route to the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTcp {
    /// Initial congestion window in segments; absent: the kernel's (10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initcwnd: Option<u32>,
    /// Congestion control; absent: the host's default, which the result names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
}

impl ServerTcp {
    /// Whether nothing was asked for.
    pub fn is_unset(&self) -> bool {
        *self == ServerTcp::default()
    }
}

impl std::str::FromStr for ServerTcp {
    type Err = String;

    /// `initcwnd=2,cc=reno`, either or both.
    fn from_str(typed: &str) -> Result<Self, String> {
        let mut tcp = ServerTcp::default();
        for part in typed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("initcwnd", value)) => match value.parse() {
                    Ok(segments @ 1..=1000) => tcp.initcwnd = Some(segments),
                    _ => return Err(format!("initcwnd={value}: a number of segments from 1 to 1000 is wanted")),
                },
                Some(("cc", value)) if !value.is_empty() => tcp.cc = Some(value.to_owned()),
                _ => return Err(format!("`{part}` is not understood; write initcwnd=2,cc=reno")),
            }
        }
        Ok(tcp)
    }
}

/// How the loop waits and where things run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// How the loop waits for the next due moment.
    #[serde(default)]
    pub wait: Wait,
    /// Which cores are whose.
    #[serde(default)]
    pub placement: Placement,
    /// How the load talks to the kernel.
    #[serde(default)]
    pub engine: Engine,
}

/// How the load talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// io_uring where the kernel has it and the load is not secured, epoll otherwise.
    #[default]
    Auto,
    /// io_uring: what is received is handed over, and requests are sent in batches.
    IoUring,
    /// epoll: a system call for each receive and each send.
    Epoll,
}

impl Engine {
    /// As in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }
}

/// How the loop waits for the next due moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleep until the moment itself.
    Sleep,
    /// Sleep until 5 us before, then spin.
    #[default]
    Hybrid,
    /// Never sleep. Costs a core.
    Spin,
}

impl Wait {
    /// As in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::Sleep => "sleep",
            Wait::Hybrid => "hybrid",
            Wait::Spin => "spin",
        }
    }
}

/// Which cores are whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The server on its own cores, generator and path on one of the others (with one core: float).
    #[default]
    Split,
    /// Wherever the kernel puts them.
    Float,
}

/// Why a plan was refused.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, an unknown key, a value without its unit.
    #[error("{origin}:{line}: {message}")]
    Unreadable {
        /// The file.
        origin: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there, on one line.
        message: String,
    },
    /// The parts contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

impl Plan {
    /// Reads a plan from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// Syntax, unknown keys, values out of range, and what [`Plan::check`] refuses.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, PlanError> {
        let mut plan: Plan = toml::from_str(text).map_err(|error| PlanError::Unreadable {
            origin: origin.to_owned(),
            line: 1 + error
                .span()
                .map_or(0, |span| text.bytes().take(span.start).filter(|&byte| byte == b'\n').count()),
            message: explain(error.message()),
        })?;
        plan.check()?;
        plan.watch.at = Some(plan.watch_at());
        plan.load.settle_tls();
        Ok(plan)
    }

    /// Where packets are captured.
    pub fn watch_at(&self) -> WatchAt {
        self.watch.at.unwrap_or(if self.path.is_some() { WatchAt::Server } else { WatchAt::None })
    }

    /// The plan as TOML, every field that is set, readable by [`Plan::from_toml`].
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a plan is plain tables of text and numbers")
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence that says which parts contradict each other and what to write instead.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        let load = &self.load;
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return refuse(format!("name `{}`: letters, digits, - and _ are wanted", self.name));
        }
        if load.connections == Some(0) {
            return refuse("connections = 0 (-c): at least one is needed".into());
        }
        if load.clients == 0 || load.clients > ::path::AddressPlan::CLIENTS_MAX {
            return refuse(format!(
                "clients = {} (--clients): from 1 to {} are possible",
                load.clients,
                ::path::AddressPlan::CLIENTS_MAX
            ));
        }
        if load.requests == Some(0) || load.duration == Some(Duration::ZERO) {
            return refuse("the measured phase is empty: -n and -d must be above zero".into());
        }
        if load.requests.is_none() && load.duration.is_none() {
            return refuse("neither requests nor duration is given: the run would have no end".into());
        }
        if load.timeout.is_zero() || load.connect_timeout.is_zero() {
            return refuse("a timeout of zero fails every request: give one above zero".into());
        }
        if load.rate.is_none() && load.arrivals == ArrivalKind::Poisson {
            return refuse("arrivals = \"poisson\" needs a rate: without one the loop is closed".into());
        }
        if load.method == Method::Post && load.body.is_none() {
            return refuse("POST needs a body file (--body)".into());
        }
        if load.proxy.is_some() && load.url.trim().to_ascii_lowercase().starts_with("https:") {
            return refuse(
                "a proxy (--proxy) carries http:// URLs; for https it would need CONNECT, which is not there yet"
                    .into(),
            );
        }
        if let (Some(proxy), false) = (&load.proxy, self.target.addresses.is_empty()) {
            return refuse(format!(
                "[target] addresses (--to) are the URL's host's, but with a proxy (--proxy {proxy}) that is the proxy's to \
                 find: leave one of the two out"
            ));
        }
        load.check_tls().map_err(PlanError::Contradiction)?;
        if load.secure() && self.host.engine == Engine::IoUring {
            return refuse(
                "engine = \"io_uring\" (--engine) has no way for https:// URLs yet: write epoll, or leave it out"
                    .into(),
            );
        }
        if let Some(path) = &self.path {
            path.check().map_err(PlanError::Contradiction)?;
        }
        if self.server.as_ref().is_some_and(|server| server.command.trim().is_empty()) {
            return refuse("the server's command (--server) is empty".into());
        }
        if self.server.is_some() && self.path.is_none() {
            return refuse("a server of the lab is behind a path: give one (rtt = \"0ms\" for none at all)".into());
        }
        if self.path.is_none() && self.watch_at() != WatchAt::None {
            return refuse(format!(
                "watch at = \"{}\" (--watch) needs a path, whose ends are watched: give one (--rtt 0ms is the shortest), or \
                 leave it out",
                self.watch_at().name()
            ));
        }
        self.watch.check().map_err(PlanError::Contradiction)?;
        if let Some(server) = &self.server {
            server.check().map_err(PlanError::Contradiction)?;
            if !self.target.addresses.is_empty() || !self.target.tcp.is_unset() {
                return refuse(
                    "[target] addresses and tcp are for a service that runs already; what the lab starts has its own under \
                     [server]"
                        .into(),
                );
            }
        }
        if self.path.is_none() && !self.target.tcp.is_unset() {
            return refuse(
                "[target] tcp (--server-tcp) is set on the route to the clients of a path: give a path (--rtt 0ms is the \
                 shortest), or leave it out"
                    .into(),
            );
        }
        Ok(())
    }
}

/// TOML's own message on one line, with what it cannot know.
fn explain(message: &str) -> String {
    let line = message.trim().replace('\n', "; ");
    if line.starts_with("invalid type") && line.ends_with("expected a string") {
        format!("{line}: a quantity is text with its unit, such as \"48ms\", \"110/s\" or \"10Mbit\"")
    } else {
        line
    }
}

fn default_name() -> String {
    "run".into()
}

fn default_seed() -> u64 {
    1
}

fn default_clients() -> u32 {
    1
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

fn default_response_timeout() -> Duration {
    Duration::from_secs(30)
}

fn default_addresses() -> u32 {
    1
}

fn default_server_start() -> Duration {
    Duration::from_secs(10)
}

#[cfg(test)]
mod tests;
