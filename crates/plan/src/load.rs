//! `[load]`: what is offered.

use std::path::PathBuf;
use std::time::Duration;

use schema::Method;
use serde::{Deserialize, Serialize};
use units::RequestRate;

use super::named::named;
use super::{
    ArrivalKind, ChoicePlan, ContentPlan, ExpectPlan, HarPlan, MixPlan, PhasePlan, Proxy, ReplayPlan, RequestPlan,
    SessionPlan, TlsPlan,
};

/// What is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadPlan {
    /// `http://host[:port]/path`, or `https`, perhaps with places. With a server of the lab the host is `server`. With
    /// requests of their own, a list or content: the host, to which URLs that begin with `/` belong; then it may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// A file with one URL a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<PathBuf>,
    /// Request method.
    pub method: Method,
    /// File sent as the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<PathBuf>,
    /// Text sent as the body, as it is: braces are no places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// Extra header lines of all requests, `Name: value`, with places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// `user:password` of all requests, with places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<String>,
    /// Each client keeps the cookies it is given, and sends them back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cookies: bool,
    /// Redirects followed one after another; 0: a redirect is a response like any other.
    pub redirects: u8,
    /// How one of several requests is chosen; absent: drawn by weights where there are any, else each in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoicePlan>,
    /// An HTTP proxy that the clients connect to, `HOST:PORT`; absent: the URL's own host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// A Unix socket that the clients connect to, instead of the URL's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// `1.1`, `1.0` or `2`.
    pub http: HttpVersion,
    /// HTTP/2: most requests at once on a connection, if the server allows as many; written out as 100.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub streams: Option<u32>,
    /// One connection per request.
    pub close: bool,
    /// Whether a request is sent again where the server's close of an idle connection crossed it; `never`, or `idle-race`.
    pub retry: Retry,
    /// Open loop at this rate. Without it, `phases`, `rate_file` or `replay` the loop is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RequestRate>,
    /// How arrivals are spaced in the open loop.
    pub arrivals: ArrivalKind,
    /// Open loop whose rate changes: one phase after the other, each with results of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhasePlan>,
    /// Open loop at the rates of a table, such as `profile learn` writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_file: Option<PathBuf>,
    /// Open loop of the requests of an access log, at its times, by its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayPlan>,
    /// Sessions that ask for what a recorded browser asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub har: Option<HarPlan>,
    /// Closed loop: number of connections. Open loop: most connections open at once; absent: as many as this
    /// process may have descriptors.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub connections: Option<u32>,
    /// Open loop: connections opened before the load, 5,000 a second, held through it and closed at the same pace; the
    /// clients' requests take them in turn.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    pub open_connections: Option<u32>,
    /// Closed loop of sessions: its users begin evenly over so long from the start of the load (of the warm-up) on; absent: all at once.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub users_over: Option<Duration>,
    /// Virtual clients, each with its own address where there is a path.
    #[serde(deserialize_with = "units::count::u32")]
    pub clients: u32,
    /// The measured phase ends after so many requests.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u64")]
    pub requests: Option<u64>,
    /// Length of the measured phase.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub duration: Option<Duration>,
    /// Load before the measured phase that is not in the results.
    #[serde(with = "units::time::text")]
    pub warmup: Duration,
    /// Whether the rate of an open loop rises evenly from 0 over the warm-up, so that a cold server is not buried under requests that
    /// it still has when it is measured. Otherwise the warm-up has the rate with which the measured phase begins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub warmup_rises: bool,
    /// Bound on establishing a connection.
    #[serde(with = "units::time::text")]
    pub connect_timeout: Duration,
    /// Bound from the request being handed to an open connection to the last byte of its response.
    #[serde(with = "units::time::text")]
    pub timeout: Duration,
    /// How `https://` is spoken; written out where the URL asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
    /// What every response must be for its request to count as done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectPlan>,
    /// Objects of a model, below `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentPlan>,
    /// The workload of a cache benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<MixPlan>,
    /// Different requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request: Vec<RequestPlan>,
    /// What users do, one step after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<SessionPlan>,
}

impl Default for LoadPlan {
    /// A closed loop without end, of nothing yet.
    fn default() -> Self {
        LoadPlan {
            url: String::new(),
            urls: None,
            method: Method::default(),
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
            clients: 1,
            requests: None,
            duration: None,
            warmup: Duration::ZERO,
            warmup_rises: false,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            tls: None,
            expect: None,
            content: None,
            mix: None,
            request: Vec::new(),
            session: Vec::new(),
        }
    }
}

impl LoadPlan {
    /// GET of a URL in a closed loop without end, every other field at its default.
    pub fn get(url: &str) -> Self {
        LoadPlan { url: url.to_owned(), ..LoadPlan::default() }
    }
}

/// When a request is sent again, once, on a fresh connection: [`load::Retry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Retry {
    /// Never: a connection that ends unanswered is a failure
    Never,
    /// Once, if nothing of the request was acknowledged and its method is idempotent
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

named!(HttpVersion: Http10 "1.0", Http11 "1.1", Http2 "2");
