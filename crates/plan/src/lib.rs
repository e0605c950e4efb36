//! The plan: a run as meant, complete, so that the same file gives the same run.
//!
//! The command line and a plan file both end here. Every field has its default written out when a plan is printed,
//! and unknown keys are errors: a misspelt option must not become a run that measured something else.

mod arrivals;
mod capacity;
mod mix;
mod origin;
mod parts;
mod path;
mod proxy;
mod replay;
pub mod slo;
mod target;
mod tls;
mod transport;
mod watch;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use schema::Method;
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuShare, RequestRate};

pub use self::arrivals::RateFile;
pub use self::arrivals::{ArrivalKind, BurstsPlan, OfferedRate, PhaseKind, PhasePlan, SelfSimilarPlan, sweep};
pub use self::capacity::{CapacityPlan, Find, SoughtLoad, TrialLoad};
pub use self::mix::MixPlan;
pub use self::origin::OriginPlan;
pub use self::parts::{BodyFrom, LogLines, ObjectPlan, PartsPlan, Waits};
pub use self::path::PathPlan;
pub use self::proxy::Proxy;
pub use self::replay::{ClientMapping, HarPlan, LogFormat, ReplayPlan};
pub use self::target::{AddressFamily, TargetPlan, To};
pub use self::tls::{Alpn, TlsPlan, TlsVersion};
pub use self::transport::STREAMS;
pub use self::watch::{WatchAt, WatchPlan};
pub use self::workload::{
    ChoicePlan, ContentPlan, DrawnThink, ExpectPlan, ExtractPlan, LengthRange, ModelName, OnFailure, PARALLEL,
    RequestPlan, SessionPlan, StatusSet, StepPlan, ThinkPlan, Time, Turn, literal,
};
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
    /// The origin behind the proxy under test, that the lab starts; absent: there is none, or it is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginPlan>,
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
    /// The search for the highest load that keeps the objective; absent: this is one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
    /// A server in words, for `predict --parts`; nothing else reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsPlan>,
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// `http://host[:port]/path`, or `https`, perhaps with places. With a server of the lab the host is `server`. With
    /// requests of their own, a list or content: the host, to which URLs that begin with `/` belong; then it may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// A file with one URL a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<PathBuf>,
    /// Request method.
    #[serde(default)]
    pub method: Method,
    /// File sent as the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<PathBuf>,
    /// Text sent as the body, as it is: braces are no places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// Extra header lines of all requests, `Name: value`, with places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// `user:password` of all requests, with places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<String>,
    /// Each client keeps the cookies it is given, and sends them back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cookies: bool,
    /// Redirects followed one after another; 0: a redirect is a response like any other.
    #[serde(default)]
    pub redirects: u8,
    /// How one of several requests is chosen; absent: drawn by weights where there are any, else each in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoicePlan>,
    /// An HTTP proxy that the clients connect to, `HOST:PORT`; absent: the URL's own host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// A Unix socket that the clients connect to, instead of the URL's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// `1.1`, `1.0` or `2`.
    #[serde(default)]
    pub http: HttpVersion,
    /// HTTP/2: most requests at once on a connection, if the server allows as many; written out as 100.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub streams: Option<u32>,
    /// One connection per request.
    #[serde(default)]
    pub close: bool,
    /// Whether a request is sent again where the server's close of an idle connection crossed it; `never`, or `idle-race`.
    #[serde(default)]
    pub retry: Retry,
    /// Open loop at this rate. Without it, `phases`, `rate_file` or `replay` the loop is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RequestRate>,
    /// How arrivals are spaced in the open loop.
    #[serde(default)]
    pub arrivals: ArrivalKind,
    /// Open loop whose rate changes: one phase after the other, each with results of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhasePlan>,
    /// Open loop at the rates of a table, such as `profile learn` writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_file: Option<PathBuf>,
    /// Open loop of the requests of an access log, at its times, by its clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayPlan>,
    /// Sessions that ask for what a recorded browser asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub har: Option<HarPlan>,
    /// Closed loop: number of connections. Open loop: most connections open at once; absent: as many as this
    /// process may have descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub connections: Option<u32>,
    /// Open loop: connections opened before the load, 5,000 a second, held through it and closed at the same pace; the
    /// clients' requests take them in turn.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub open_connections: Option<u32>,
    /// Closed loop of sessions: its users begin evenly over so long from the start of the load (of the warm-up) on; absent: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub users_over: Option<Duration>,
    /// Virtual clients, each with its own address where there is a path.
    #[serde(default = "default_clients", deserialize_with = "units::count::u32")]
    pub clients: u32,
    /// The measured phase ends after so many requests.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u64")]
    pub requests: Option<u64>,
    /// Length of the measured phase.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub duration: Option<Duration>,
    /// Load before the measured phase that is not in the results.
    #[serde(with = "units::time::text", default)]
    pub warmup: Duration,
    /// Whether the rate of an open loop rises evenly from 0 over the warm-up, so that a cold server is not buried under requests that
    /// it still has when it is measured. Otherwise the warm-up has the rate with which the measured phase begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup_rises: bool,
    /// Bound on establishing a connection.
    #[serde(with = "units::time::text", default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// Bound from the request being handed to an open connection to the last byte of its response.
    #[serde(with = "units::time::text", default = "default_response_timeout")]
    pub timeout: Duration,
    /// How `https://` is spoken; written out where the URL asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
    /// What every response must be for its request to count as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectPlan>,
    /// Objects of a model, below `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentPlan>,
    /// The workload of a cache benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<MixPlan>,
    /// Different requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request: Vec<RequestPlan>,
    /// What users do, one step after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<SessionPlan>,
}

impl LoadPlan {
    /// GET of a URL in a closed loop without end, every other field at its default.
    pub fn get(url: &str) -> Self {
        LoadPlan {
            url: url.to_owned(),
            urls: None,
            method: Method::Get,
            body: None,
            body_text: None,
            headers: Vec::new(),
            basic_auth: None,
            cookies: false,
            redirects: 0,
            choice: None,
            proxy: None,
            unix: None,
            http: HttpVersion::default(),
            streams: None,
            close: false,
            retry: Retry::default(),
            rate: None,
            arrivals: ArrivalKind::default(),
            phases: Vec::new(),
            rate_file: None,
            replay: None,
            har: None,
            connections: None,
            open_connections: None,
            users_over: None,
            clients: default_clients(),
            requests: None,
            duration: None,
            warmup: Duration::ZERO,
            warmup_rises: false,
            connect_timeout: default_connect_timeout(),
            timeout: default_response_timeout(),
            tls: None,
            expect: None,
            content: None,
            mix: None,
            request: Vec::new(),
            session: Vec::new(),
        }
    }
}

/// When a request is sent again, once, on a fresh connection: [`load::Retry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    /// Never.
    Never,
    /// After a race with the server's idle timeout.
    #[default]
    IdleRace,
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
    /// HTTP/2
    #[serde(rename = "2")]
    Http2,
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
    /// Another share, from shortly before the measured phase on: what starts and grows warm within `cpu`, or unbounded, and is
    /// measured within less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_measured: Option<CpuShare>,
    /// Holds it to so much memory, page cache included, at least [`ServerPlan::MEMORY_MIN`]. Who needs more is killed by the
    /// kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
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
    /// In less no server starts.
    pub const MEMORY_MIN: Bytes = Bytes(1 << 20);

    /// What it is held to while it is measured, if it is.
    pub fn share(&self) -> Option<CpuShare> {
        self.cpu_measured.or(self.cpu)
    }

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
        if let Some(memory) = self.memory.filter(|memory| *memory < Self::MEMORY_MIN) {
            return Err(format!("memory = \"{memory}\" (--server-memory): at least {} is wanted", Self::MEMORY_MIN));
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// How the loop waits for the next due moment.
    #[serde(default)]
    pub wait: Wait,
    /// What processors do that have nothing to do.
    #[serde(default, skip_serializing_if = "Idle::is_usual")]
    pub idle: Idle,
    /// Which cores are whose.
    #[serde(default)]
    pub placement: Placement,
    /// How the load talks to the kernel.
    #[serde(default)]
    pub engine: Engine,
    /// Threads that make the load, each with its own clients and connections; the first has the path as well.
    #[serde(default = "default_threads", skip_serializing_if = "is_one")]
    pub threads: u32,
}

impl Default for HostPlan {
    fn default() -> Self {
        HostPlan {
            wait: Wait::default(),
            idle: Idle::default(),
            placement: Placement::default(),
            engine: Engine::default(),
            threads: default_threads(),
        }
    }
}

impl HostPlan {
    /// Most threads.
    pub const THREADS_MAX: u32 = 64;
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

/// What this machine's processors do during the run when they have nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// They look for work, where this user may ask for that (PM QoS, a wake-up latency of 0): nothing that is due waits for
    /// a processor that sleeps, or that the hypervisor has lent to others meanwhile.
    #[default]
    Awake,
    /// What the system has them do.
    Sleep,
}

impl Idle {
    /// As in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Idle::Awake => "awake",
            Idle::Sleep => "sleep",
        }
    }

    fn is_usual(&self) -> bool {
        *self == Idle::default()
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

/// Stands in a server command of a plan for the absolute path of the plan file's folder. It is not quoted: write it within double quotes.
const PLAN_FOLDER: &str = "$PLAN_FOLDER";

/// A command of a plan whose file is in `folder`.
pub fn in_folder(command: &str, folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    command.replace(PLAN_FOLDER, &folder.to_string_lossy())
}

impl Plan {
    /// Files that the plan names are found from `folder` on, where its own file is: those of the load, the profile of the path, and what the
    /// server's command calls `$PLAN_FOLDER`.
    pub fn find_files_from(&mut self, folder: &Path) {
        self.load.find_files_from(folder);
        if let Some(path) = &mut self.path {
            path.find_files_from(folder);
        }
        if let Some(server) = &mut self.server {
            server.command = in_folder(&server.command, folder);
        }
    }

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
        plan.load.settle_phases();
        plan.check()?;
        plan.watch.at = Some(plan.watch_at());
        plan.load.settle_tls();
        plan.load.settle_workload();
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
        if let Some(parts) = &self.parts {
            parts.check()?;
        }
        if let Some(capacity) = &self.capacity {
            return capacity.check(self);
        }
        let load = &self.load;
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return refuse(format!("name `{}`: letters, digits, - and _ are wanted", self.name));
        }
        if self.host.threads == 0 || self.host.threads > HostPlan::THREADS_MAX {
            return refuse(format!(
                "threads = {} (--threads): from 1 to {} are possible",
                self.host.threads,
                HostPlan::THREADS_MAX
            ));
        }
        if load.connections == Some(0) {
            return refuse("connections = 0 (-c): at least one is needed".into());
        }
        if let Some(held) = load.open_connections {
            let http2 = !matches!(load.http, HttpVersion::Http10 | HttpVersion::Http11);
            if !load.is_open() || load.close || http2 {
                return refuse(
                    "open_connections (--open-connections) are held for the requests of an open loop over HTTP/1: give a \
                     rate (--rate), and leave out close (--close) and HTTP/2"
                        .into(),
                );
            }
            if held == 0 || load.connections.is_some_and(|most| most < held) {
                return refuse(format!(
                    "open_connections = {held} (--open-connections): at least 1, and at most as many as connections (-c)"
                ));
            }
        }
        if load.users_over.is_some() && (load.is_open() || load.session.is_empty()) {
            return refuse(
                "users_over is over how long the users of a closed loop of sessions begin: give [[load.session]] and no rate, or leave it out"
                    .into(),
            );
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
        if load.requests.is_none() && load.duration.is_none() && load.rate_file.is_none() && load.replay.is_none() {
            return refuse("neither requests nor duration is given: the run would have no end".into());
        }
        if load.timeout.is_zero() || load.connect_timeout.is_zero() {
            return refuse("a timeout of zero fails every request: give one above zero".into());
        }
        load.check_arrivals().map_err(PlanError::Contradiction)?;
        if load.method == Method::Post && !load.has_body() {
            return refuse("POST needs a body: text or a file (--body TEXT, --body @FILE)".into());
        }
        if load.body.is_some() && load.body_text.is_some() {
            return refuse("body and body_text: leave one of the two out".into());
        }
        load.check_workload().map_err(PlanError::Contradiction)?;
        self.check_transport().map_err(PlanError::Contradiction)?;
        load.check_tls().map_err(PlanError::Contradiction)?;
        if load.secure() && self.host.engine == Engine::IoUring {
            return refuse(transport::SECURE_ON_RING.into());
        }
        if let Some(path) = &self.path {
            path.check().map_err(PlanError::Contradiction)?;
        }
        if let Some(origin) = &self.origin {
            origin.check(self).map_err(PlanError::Contradiction)?;
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
        if self.watch.tap && self.host.engine == Engine::IoUring {
            return refuse(
                "tap (--tap) sees calls of functions, and io_uring makes none: write engine = \"epoll\", or leave it out"
                    .into(),
            );
        }
        if self.watch.tap && load.unix.is_some() {
            return refuse("tap (--tap) follows TCP: connections to a Unix socket (--unix) are not seen".into());
        }
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

fn default_threads() -> u32 {
    1
}

fn is_one(threads: &u32) -> bool {
    *threads == 1
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
