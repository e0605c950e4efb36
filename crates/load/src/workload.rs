//! What is asked for: the requests of a load, and how the next one is chosen.
//!
//! ```text
//!   Workload --requests--> RequestSpec   target, method, headers, body; what is expected of the answer, what is taken from it
//!            \--choice---> in turn | drawn by weight | sessions: steps with think times and embedded objects
//! ```
//!
//! A request's text may hold places ([`Template`]) for the client's number, the request's, and values that earlier
//! responses of the same session brought. One without places is prepared once and costs nothing when it is sent.

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

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The different requests, at least one. Records name them by their index.
    pub requests: Vec<RequestSpec>,
    /// How an arrival chooses among them.
    pub choice: Choice,
    /// Each client keeps the cookies it is given, and sends them back.
    pub cookies: bool,
    /// Number of values that responses of a session bring ([`Extract::variable`] is below it).
    pub variables: usize,
}

/// How an arrival chooses what it asks for.
#[derive(Clone, Debug, Default)]
pub enum Choice {
    /// One request an arrival, each in turn.
    #[default]
    InTurn,
    /// One request an arrival, drawn by [`RequestSpec::weight`].
    Drawn,
    /// One session an arrival, drawn by [`SessionSpec::weight`]; at least one. In the closed loop each connection stands
    /// for a user who begins the next session when the one before has ended.
    Sessions(Vec<SessionSpec>),
    /// One ask of a workload an arrival, and after it what its page embeds: an open loop over HTTP/1. [`Workload::requests`] are
    /// then one for each kind of object, and the same again for what is asked for inside TLS where some is
    /// ([`CacheWorkloadLoad::requests`]). They say the hosts, what the kinds are called, and header fields that every ask has besides
    /// its own; paths, methods and bodies are the workload's.
    Mix(CacheWorkloadLoad),
}

/// The asks of a workload.
#[derive(Clone, Debug)]
pub struct CacheWorkloadLoad {
    /// What is asked for, and what is right.
    pub world: Arc<World>,
    /// Marks the requests of this run.
    pub run: u32,
    /// Unix time at the run's zero in ns: life cycles of objects go by it.
    pub wall_zero_ns: u64,
    /// Whose bodies are compared.
    pub verify: Verify,
}

impl CacheWorkloadLoad {
    /// How many requests the workload must have.
    pub fn requests(&self) -> usize {
        let spec = &self.world.spec;
        spec.kinds.len() * if spec.https > 0.0 { 2 } else { 1 }
    }
}

/// Whose bodies are compared with what they should be; heads always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Those of all replies.
    #[default]
    All,
    /// Those of one reply in so many, by the number of the request; 0 is taken as 1. Of the others only the length is
    /// looked at.
    OneIn(u32),
    /// None: of bodies only the length is looked at.
    Heads,
}

/// One request as meant.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// What results call it; the URL where it has no name.
    pub name: Option<String>,
    /// Where it goes: scheme, host and port. Its path is the one as typed, places and all.
    pub target: Target,
    /// Path and query, beginning with `/`.
    pub path: Template,
    /// Method.
    pub method: Method,
    /// Further headers. One named Host, User-Agent, Accept, Connection or Content-Length replaces the built-in one.
    pub headers: Vec<(String, Template)>,
    /// Body; sent with POST, PUT and PATCH, and with any method if not empty.
    pub body: Template,
    /// `user:password` for basic authentication (RFC 7617).
    pub basic_auth: Option<Template>,
    /// Share among drawn requests, relative to the others; above 0, finite.
    pub weight: f64,
    /// What is expected of the response; a complete response that is otherwise fails the request.
    pub expect: Expect,
    /// What is taken from the response for later requests of the session.
    pub extract: Vec<Extract>,
    /// Redirects (301, 302, 303, 307, 308) followed one after another; with 0 a redirect is a response like any other.
    pub redirects_max: u8,
}

impl Workload {
    /// GET of each of `targets` in turn, nothing else.
    pub fn of(targets: impl IntoIterator<Item = Target>) -> Self {
        let requests = targets.into_iter().map(RequestSpec::get).collect();
        Workload { requests, choice: Choice::InTurn, cookies: false, variables: 0 }
    }
}

impl Workload {
    /// The different hosts and ports in order of first appearance, and for each request the index of its own.
    ///
    /// # Panics
    /// With more than 65535 of them.
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

/// Connections of a user whose steps come at fixed moments: as many as browsers have to one host over HTTP/1.
pub const FIXED_AT_ONCE: u16 = 6;

impl Workload {
    /// Most requests that a session has under way at once; at least 1. Those that a step embeds, or steps at fixed moments,
    /// which wait for none before them: of these [`FIXED_AT_ONCE`] at most.
    pub fn widest_step(&self) -> u16 {
        let Choice::Sessions(sessions) = &self.choice else { return 1 };
        let embedded = |step: &Step| step.parallel.min(u16::try_from(step.embedded.len()).unwrap_or(u16::MAX));
        let at_once = |session: &SessionSpec| {
            let fixed = session.steps.iter().filter(|step| step.when.at().is_some()).take(FIXED_AT_ONCE.into()).count();
            session.steps.iter().map(embedded).max().unwrap_or(1).max(fixed as u16)
        };
        sessions.iter().map(at_once).max().unwrap_or(1).max(1)
    }

    /// Whether requests follow from responses: numbers are then given in the order in which that comes about.
    pub(crate) fn has_follow_ups(&self) -> bool {
        match &self.choice {
            Choice::Sessions(_) => true,
            Choice::Mix(mix) => mix.world.spec.kinds.iter().any(|kind| kind.embeds.is_some()),
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

    /// What results call it.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.target.url())
    }

    /// Whether every request of it has the same bytes (cookies aside).
    pub fn is_literal(&self) -> bool {
        self.path.is_literal()
            && self.body.is_literal()
            && self.headers.iter().all(|(_, value)| value.is_literal())
            && self.basic_auth.as_ref().is_none_or(Template::is_literal)
    }
}
