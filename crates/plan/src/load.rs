//! `[load]`: what is requested, how often, and by whom.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use schema::Method;
use serde::{Deserialize, Serialize};
use units::RequestRate;
#[cfg(feature = "cli")]
use units::{parse_count, parse_count_u32, parse_duration};

#[cfg(feature = "cli")]
use super::cli::{ARRIVALS, WORKLOAD, content, har, method};
use super::named::named;
use super::{
    ArrivalKind, CacheWorkloadPlan, ChoicePlan, ContentPlan, ExpectPlan, HarPlan, Http2Plan, Http3Plan, PhasePlan,
    Proxy, ReplayPlan, RequestPlan, SessionPlan, TlsPlan, sweep,
};

/// The load: what is requested, how often, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Load"))]
pub struct LoadPlan {
    /// URL to request, `http://host[:port]/path` or `https://..`, optionally with placeholders. With a server of the
    /// testbed the host is `server`. With `[[load.request]]`, `urls` or `content`: the host of URLs that begin with
    /// `/`; it may then be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub url: String,
    /// Offer this many requests per second, such as 110/s, whatever the server does (open loop) [default: closed loop]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(short, long, allow_hyphen_values = true))]
    pub rate: Option<RequestRate>,
    /// Use this many connections (closed loop, default: 64), or open at most this many at a time (with --rate)
    // Plan: In an open loop absent means the limit of file descriptors of this process.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub connections: Option<u32>,
    /// Open this many connections before the load, 5,000 per second, and keep them open during it [with --rate]
    // Plan: They are closed at the same rate; the clients' requests use them in turn.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub open_connections: Option<u32>,
    /// End the measured phase after this many requests
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u64")]
    #[cfg_attr(feature = "cli", arg(short = 'n', long, value_parser = parse_count, allow_hyphen_values = true))]
    pub requests: Option<u64>,
    /// End the measured phase after this time [default: 10s without -n]
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = parse_duration, allow_hyphen_values = true))]
    pub duration: Option<Duration>,
    /// Load the server for this time before the measured phase [default: with --rate, 1s and four of the longest RTTs]
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_duration, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "0s", hide_default_value = true))]
    pub warmup: Duration,
    /// Simulate this many clients, each with its own address and distance [default: 100 with --rate, otherwise the
    /// number of connections; 1 without a path; with --replay the clients of the log]
    #[serde(deserialize_with = "units::count::u32")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_count_u32, allow_hyphen_values = true, conflicts_with = "replay"))]
    #[cfg_attr(feature = "cli", arg(default_value = "1", hide_default_value = true))]
    pub clients: u32,
    /// Use a new connection for each request
    #[cfg_attr(feature = "cli", arg(long, overrides_with = "keepalive"))]
    pub close: bool,
    /// Reuse connections for several requests (the default)
    // Command line only: cancels an earlier --close.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(long, overrides_with = "close"))]
    pub keepalive: bool,
    /// Repeat a request whose idle connection the server closed while the request was on its way
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub retry: Retry,
    /// Use this request method
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = method(), default_value = Method::Get.as_str(), ignore_case = true))]
    pub method: Method,
    /// Send this request body: text, or a file as @FILE or by its name
    // Command line only: becomes `body` or `body_text` of a plan.
    #[serde(skip)]
    #[cfg_attr(
        feature = "cli",
        arg(id = "body", long = "body", value_name = "TEXT|@FILE", allow_hyphen_values = true)
    )]
    pub typed_body: Option<Body>,
    /// Add the header line `Name: value` to each request; may be repeated
    // Plan: Applies to all requests; may have placeholders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(short = 'H', long = "header", value_name = "LINE"))]
    pub headers: Vec<String>,
    /// Connect through this HTTP proxy: with the absolute URL, or with a tunnel (CONNECT) to https:// URLs
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "[USER:PASSWORD@]HOST:PORT"))]
    pub proxy: Option<Proxy>,
    /// Connect to this Unix socket instead of the URL's host
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH"))]
    pub unix: Option<PathBuf>,
    /// Send at most this many concurrent requests on an HTTP/2 or HTTP/3 connection, if the server allows it [default:
    /// 100]
    // Plan: Written out in a plan that was checked.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub streams: Option<u32>,
    /// Use this HTTP version; 2 is negotiated by ALPN over TLS, and used with prior knowledge without TLS; 3 is QUIC, with
    /// prior knowledge
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub http: HttpVersion,
    /// Fail a request whose response is not complete after this time
    // Plan: Counted from the time at which an open connection gets the request.
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true))]
    pub timeout: Duration,
    /// Fail a request whose connection is not established after this time
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true))]
    pub connect_timeout: Duration,
    /// Request the URLs in this file, one a line, optionally followed by a weight; URL is the host of those that begin
    /// with /
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", conflicts_with = "content", help_heading = WORKLOAD))]
    pub urls: Option<PathBuf>,
    /// Request the objects of a content model below URL by their popularity, and check their lengths: specweb99:1000,
    /// surge:5000, or even:1000,size=10KB; `serve --make-content` creates the same objects
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "MODEL:OBJECTS", value_parser = content, help_heading = WORKLOAD))]
    pub content: Option<ContentPlan>,
    /// Send these credentials with each request (basic authentication)
    // Plan: Applies to all requests; may have placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "USER:PASSWORD", help_heading = WORKLOAD))]
    pub basic_auth: Option<String>,
    /// Keep cookies and send them back, separately for each client
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long, help_heading = WORKLOAD))]
    pub cookies: bool,
    /// Follow up to this many redirects, one after another
    // Plan: With 0 a redirect is a response like any other.
    #[cfg_attr(feature = "cli", arg(long = "follow-redirects", value_name = "NUMBER", allow_hyphen_values = true, help_heading = WORKLOAD))]
    #[cfg_attr(feature = "cli", arg(default_value_t = 0, hide_default_value = true))]
    pub redirects: u8,
    /// What every response must be for its request to count as completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub expect: Option<ExpectPlan>,
    /// How arrivals are spaced in an open loop: `constant`, `poisson`, `bursts` or `self_similar`, the last two
    /// optionally with parameters.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub arrivals: ArrivalKind,
    /// Add a part of the run with its own rate and results: '30s at 100/s', '10s ramp to 1000/s', 'spike 5s at 2000/s',
    /// optionally preceded by 'NAME:'; may be repeated
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "phase", value_name = "PHASE", allow_hyphen_values = true, help_heading = ARRIVALS))]
    pub phases: Vec<PhasePlan>,
    /// Add phases of one rate after another, such as 100..1000/s:100/s
    // Command line only: becomes `phases`.
    #[serde(skip)]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "FROM..TO:STEP", conflicts_with = "phases", allow_hyphen_values = true)
    )]
    #[cfg_attr(feature = "cli", arg(help_heading = ARRIVALS))]
    pub sweep: Option<String>,
    /// Keep each rate of a sweep for this time
    // Command line only.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", requires = "sweep", value_parser = parse_duration, default_value = "10s"))]
    #[cfg_attr(feature = "cli", arg(allow_hyphen_values = true, help_heading = ARRIVALS))]
    pub sweep_hold: Duration,
    /// Offer the rates of this CSV file, such as `profile learn` writes: columns length_s and requests, connections or
    /// rate_per_s
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = ARRIVALS))]
    pub rate_file: Option<PathBuf>,
    /// Open loop of the requests of an access log, at the log's times and by its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub replay: Option<ReplayPlan>,
    /// Request what a browser recorded (HTTP archive, HAR) as sessions; with --rate this many sessions per second
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_parser = har(), conflicts_with = "replay", help_heading = ARRIVALS))]
    pub har: Option<HarPlan>,
    /// TLS settings of `https://` URLs; written out where the URL needs them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub tls: Option<TlsPlan>,
    /// Windows of HTTP/2; written out with `http = "2"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub http2: Option<Http2Plan>,
    /// QUIC settings of HTTP/3; written out with `http = "3"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub http3: Option<Http3Plan>,
    /// File to send as the request body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body: Option<PathBuf>,
    /// Text to send as the request body, as it is: without placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body_text: Option<String>,
    /// How one of several requests is chosen; absent: by weight if any request has one, otherwise in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub choice: Option<ChoicePlan>,
    /// Closed loop of sessions: the time over which users start evenly, from the start of the load (with its warm-up);
    /// absent: all start at the same time.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub users_over: Option<Duration>,
    /// Whether the rate of an open loop rises evenly from 0 during the warm-up, so that a cold server does not enter
    /// the measured phase with a backlog. Otherwise the warm-up has the rate with which the measured phase begins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub warmup_rises: bool,
    /// The workload of a cache benchmark.
    #[serde(rename = "workload", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub cache_workload: Option<CacheWorkloadPlan>,
    /// Requests to choose from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub request: Vec<RequestPlan>,
    /// Sessions: what users do, one step after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub session: Vec<SessionPlan>,
}

impl Default for LoadPlan {
    /// A closed loop without end and without a URL.
    fn default() -> Self {
        LoadPlan {
            url: String::new(),
            rate: None,
            connections: None,
            open_connections: None,
            requests: None,
            duration: None,
            warmup: Duration::ZERO,
            clients: 1,
            close: false,
            keepalive: false,
            retry: Retry::default(),
            method: Method::default(),
            typed_body: None,
            headers: Vec::new(),
            proxy: None,
            unix: None,
            streams: None,
            http: HttpVersion::default(),
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            urls: None,
            content: None,
            basic_auth: None,
            cookies: false,
            redirects: 0,
            expect: None,
            arrivals: ArrivalKind::default(),
            phases: Vec::new(),
            sweep: None,
            sweep_hold: Duration::from_secs(10),
            rate_file: None,
            replay: None,
            har: None,
            tls: None,
            http2: None,
            http3: None,
            body: None,
            body_text: None,
            choice: None,
            users_over: None,
            warmup_rises: false,
            cache_workload: None,
            request: Vec::new(),
            session: Vec::new(),
        }
    }
}

impl LoadPlan {
    /// GET of a URL in a closed loop without end, all other fields at their defaults.
    pub fn get(url: &str) -> Self {
        LoadPlan { url: url.to_owned(), ..LoadPlan::default() }
    }

    /// Moves the fields of the command line into those of the plan: the body (text or file) and the sweep.
    ///
    /// # Errors
    /// A sweep that cannot be parsed.
    pub fn settle_options(&mut self) -> Result<(), String> {
        self.keepalive = false;
        match self.typed_body.take() {
            None => {}
            Some(Body::File(file)) => self.body = Some(file),
            Some(Body::Text(text)) => self.body_text = Some(text),
        }
        if self.method == Method::Get && self.has_body() {
            self.method = Method::Post;
        }
        if let Some(typed) = self.sweep.take() {
            self.phases = sweep(&typed, self.sweep_hold).map_err(|why| format!("--sweep: {why}"))?;
        }
        self.sweep_hold = LoadPlan::default().sweep_hold;
        Ok(())
    }

    /// How the load is offered over time.
    pub fn offered(&self) -> Offered<'_> {
        // A check refuses several of them; until then the one with its own length wins.
        match self {
            LoadPlan { replay: Some(replay), .. } => Offered::Replay(replay),
            LoadPlan { rate_file: Some(file), .. } => Offered::RateFile(file),
            LoadPlan { phases, .. } if !phases.is_empty() => Offered::Phases(phases),
            LoadPlan { rate: Some(rate), .. } => Offered::Open { rate: *rate },
            _ => Offered::Closed,
        }
    }

    /// Whether arrivals are independent of responses (open loop).
    pub fn is_open(&self) -> bool {
        self.offered() != Offered::Closed
    }
}

/// How a load is offered over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offered<'a> {
    /// A request follows a response (closed loop).
    Closed,
    /// One rate, whatever the server does.
    Open {
        /// The rate of the measured phase.
        rate: RequestRate,
    },
    /// Phases of one rate, or one change of rate, after another.
    Phases(&'a [PhasePlan]),
    /// The rates of a table.
    RateFile(&'a Path),
    /// The requests of an access log, at the log's times.
    Replay(&'a ReplayPlan),
}

impl Offered<'_> {
    /// Whether the load ends without being stopped.
    pub fn has_length(self) -> bool {
        matches!(self, Offered::Phases(_) | Offered::RateFile(_) | Offered::Replay(_))
    }
}

/// A request body as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text, sent as it is.
    Text(String),
    /// The content of a file.
    File(PathBuf),
}

impl FromStr for Body {
    type Err = String;

    /// Parses `@FILE`, a file name, or text. A word is a file name if the file exists or if the word looks like a name:
    /// it has a slash or an extension. A misspelt file name is therefore an error, not a body.
    fn from_str(typed: &str) -> Result<Self, String> {
        if let Some(file) = typed.strip_prefix('@') {
            return if file.is_empty() {
                Err("expected a file name after @".into())
            } else {
                Ok(Body::File(file.into()))
            };
        }
        if Path::new(typed).is_file() {
            return Ok(Body::File(typed.into()));
        }
        let looks_like_text = typed.contains(|c: char| c.is_whitespace() || "{}[]<>=&\"'".contains(c));
        let looks_like_name = typed.contains('/') || Path::new(typed).extension().is_some();
        let is_name = looks_like_name && !looks_like_text && typed.parse::<f64>().is_err();
        Ok(if is_name { Body::File(typed.into()) } else { Body::Text(typed.to_owned()) })
    }
}

/// When a request is repeated once on a new connection: [`load::Retry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Retry {
    /// Never: a connection that ends without a response is a failure
    Never,
    /// Once, if no part of the request was acknowledged and its method is idempotent
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
    /// HTTP/3, over QUIC
    #[serde(rename = "3")]
    Http3,
}

named!(HttpVersion: Http10 "1.0", Http11 "1.1", Http2 "2", Http3 "3");

impl HttpVersion {
    /// Whether a connection carries one request at a time.
    pub const fn is_http1(self) -> bool {
        matches!(self, HttpVersion::Http10 | HttpVersion::Http11)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_file_if_it_exists_or_looks_like_a_file_name() {
        let text = |typed: &str| typed.parse() == Ok(Body::Text(typed.to_owned()));
        for typed in ["hello", "a b", r#"{"a": 1.5}"#, "a=1&b=/x", "<x/>", "3.14", "", "see a.txt"] {
            assert!(text(typed), "{typed}");
        }
        for (typed, file) in
            [("@x", "x"), ("@a b.txt", "a b.txt"), ("/no/such/file", "/no/such/file"), ("paylod.json", "paylod.json")]
        {
            assert_eq!(typed.parse(), Ok(Body::File(file.into())), "{typed}");
        }
        assert!("@".parse::<Body>().is_err());
    }
}
