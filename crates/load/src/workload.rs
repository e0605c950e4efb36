//! The workload: the requests of a load, and how each arrival chooses among them.
//!
//! ```text
//!   Workload --requests--> RequestSpec   target, method, headers, body; expectations, extracted values
//!            \--choice---> in turn | drawn by weight | sessions: steps with think times and embedded objects
//! ```
//!
//! The texts of a request may contain placeholders ([`Template`]) for the client's number, the request's number, and
//! values extracted from earlier responses of the same session. A request without placeholders is prepared in advance
//! and needs no work when it is sent.

pub mod cookie;
pub mod expect;
pub mod extract;
pub mod fields;
pub mod redirect;
pub mod session;
pub mod template;

use std::sync::Arc;

use polymix::World;
use schema::Method;
use serde::{Deserialize, Serialize};

use crate::Target;

pub use expect::{BodyExpected, Expect};
pub use extract::{Extract, Source};
pub use session::{SessionSpec, Step, Think, When};
pub use template::{Names, Piece, Template, TemplateError, Values};

/// The requests of a load, and how each arrival chooses among them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The different requests, at least one. Records refer to them by index.
    pub requests: Vec<RequestSpec>,
    /// How an arrival chooses among them.
    pub choice: Choice,
    /// Whether each client stores the cookies that it receives, and sends them back.
    pub cookies: bool,
    /// Number of variables of a session, which store extracted values ([`Extract::variable`] is below it).
    pub variables: usize,
}

/// How an arrival chooses its request.
#[derive(Clone, Debug, Default)]
pub enum Choice {
    /// One request per arrival, all requests in turn.
    #[default]
    InTurn,
    /// One request per arrival, drawn by [`RequestSpec::weight`].
    Drawn,
    /// One session per arrival, drawn by [`SessionSpec::weight`]; at least one session. In the closed loop each
    /// connection is a user who begins the next session when the one before has ended.
    Sessions(Vec<SessionSpec>),
    /// One request of a cache workload per arrival, followed by the embedded objects of its page; only for an open loop
    /// over HTTP/1. [`Workload::requests`] then has one request for each kind of object, and a second one for each kind
    /// if some requests use TLS ([`CacheWorkloadLoad::requests`]). They define the hosts, the names of the kinds, and
    /// additional header fields; the cache workload defines paths, methods and bodies.
    CacheWorkload(CacheWorkloadLoad),
}

/// The settings of a cache workload.
#[derive(Clone, Debug)]
pub struct CacheWorkloadLoad {
    /// The objects to request, with their correct content.
    pub world: Arc<World>,
    /// Number that identifies the requests of this run.
    pub run: u32,
    /// Unix time in ns at time zero of the run; the life cycles of objects depend on it.
    pub wall_zero_ns: u64,
    /// Which responses' bodies are compared.
    pub verify: Verify,
}

impl CacheWorkloadLoad {
    /// Number of requests that [`Workload::requests`] must have.
    pub fn requests(&self) -> usize {
        let spec = &self.world.spec;
        spec.kinds.len() * if spec.https > 0.0 { 2 } else { 1 }
    }
}

/// Which responses' bodies are compared with the expected content. Heads are always verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// All responses.
    #[default]
    All,
    /// One response in this many, by the number of the request; 0 counts as 1. Of the others only the length is
    /// checked.
    OneIn(u32),
    /// None: of all bodies only the length is checked.
    Heads,
}

/// The specification of a request.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// Its name in results; without a name results show the URL.
    pub name: Option<String>,
    /// Scheme, host and port. The path of the target is the typed one, with its placeholders.
    pub target: Target,
    /// Path and query, beginning with `/`.
    pub path: Template,
    /// Method.
    pub method: Method,
    /// Additional headers. Host, User-Agent, Accept, Connection and Content-Length replace the built-in headers.
    pub headers: Vec<(String, Template)>,
    /// Body; sent with POST, PUT and PATCH, and with any method if not empty.
    pub body: Template,
    /// `user:password` for basic authentication (RFC 7617).
    pub basic_auth: Option<Template>,
    /// Weight of the request in a random choice; above 0, finite.
    pub weight: f64,
    /// Expectations of the response. A complete response that does not meet them fails the request.
    pub expect: Expect,
    /// Values to extract from the response for later requests of the session.
    pub extract: Vec<Extract>,
    /// Maximum consecutive redirects (301, 302, 303, 307, 308) to follow. With 0 a redirect is a response like any
    /// other.
    pub redirects_max: u8,
}

impl Workload {
    /// A workload of plain GET requests for `targets` in turn.
    pub fn of(targets: impl IntoIterator<Item = Target>) -> Self {
        let requests = targets.into_iter().map(RequestSpec::get).collect();
        Workload { requests, choice: Choice::InTurn, cookies: false, variables: 0 }
    }
}

impl Workload {
    /// The different hosts and ports in order of first appearance, and for each request the index of its host and port.
    ///
    /// # Panics
    /// With more than 65535 different hosts and ports.
    pub fn endpoints(&self) -> (Vec<Target>, Vec<u16>) {
        let mut places = std::collections::HashMap::new();
        let mut targets: Vec<Target> = Vec::new();
        let of = self.requests.iter().map(|request| {
            let target = &request.target;
            let place =
                *places.entry((target.secure, target.host.to_ascii_lowercase(), target.port)).or_insert_with(|| {
                    targets.push(target.clone());
                    targets.len() - 1
                });
            u16::try_from(place).expect("at most 65535 hosts and ports")
        });
        let of = of.collect();
        (targets, of)
    }
}

/// Maximum connections of a user whose steps have fixed times: as many as browsers open to one host over HTTP/1.
pub const FIXED_STEP_CONNECTIONS_MAX: u16 = 6;

impl Workload {
    /// Maximum concurrent requests of a session, at least 1: the embedded objects of a step, or the steps at fixed
    /// times, which do not wait for earlier steps. The latter count as [`FIXED_STEP_CONNECTIONS_MAX`] at most.
    pub fn widest_step(&self) -> u16 {
        let Choice::Sessions(sessions) = &self.choice else { return 1 };
        let embedded = |step: &Step| step.parallel.min(u16::try_from(step.embedded.len()).unwrap_or(u16::MAX));
        let concurrent = |session: &SessionSpec| {
            let fixed = session
                .steps
                .iter()
                .filter(|step| step.when.at().is_some())
                .take(FIXED_STEP_CONNECTIONS_MAX.into())
                .count();
            session.steps.iter().map(embedded).max().unwrap_or(1).max(fixed as u16)
        };
        sessions.iter().map(concurrent).max().unwrap_or(1).max(1)
    }

    /// Whether responses lead to further requests. Sequence numbers are then assigned in the order of scheduling.
    pub(crate) fn has_follow_ups(&self) -> bool {
        match &self.choice {
            Choice::Sessions(_) => true,
            Choice::CacheWorkload(load) => load.world.spec.kinds.iter().any(|kind| kind.embeds.is_some()),
            Choice::InTurn | Choice::Drawn => self.requests.iter().any(|request| request.redirects_max > 0),
        }
    }
}

impl RequestSpec {
    /// A plain GET.
    pub fn get(target: Target) -> Self {
        RequestSpec {
            name: None,
            path: Template::literal(&target.path_and_query),
            target,
            method: Method::Get,
            headers: Vec::new(),
            body: Template::default(),
            basic_auth: None,
            weight: 1.0,
            expect: Expect::default(),
            extract: Vec::new(),
            redirects_max: 0,
        }
    }

    /// The name in results.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.target.url())
    }

    /// Whether the bytes of the request are the same every time, apart from cookies.
    pub fn is_literal(&self) -> bool {
        self.path.is_literal()
            && self.body.is_literal()
            && self.headers.iter().all(|(_, value)| value.is_literal())
            && self.basic_auth.as_ref().is_none_or(Template::is_literal)
    }
}
