//! `[load]`: what is offered.

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
    ArrivalKind, CacheWorkloadPlan, ChoicePlan, ContentPlan, ExpectPlan, HarPlan, PhasePlan, Proxy, ReplayPlan,
    RequestPlan, SessionPlan, TlsPlan, sweep,
};

/// What is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Load"))]
pub struct LoadPlan {
    /// `http://host[:port]/path`, or `https`, perhaps with places. With a server of the lab the host is `server`. With
    /// requests of their own, a list or content: the host, to which URLs that begin with `/` belong; then it may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub url: String,
    /// Open loop: offer so many requests a second, such as 110/s, whatever the server does
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(short, long, allow_hyphen_values = true))]
    pub rate: Option<RequestRate>,
    /// Closed loop (no --rate): number of connections [default: 64]. Open loop: most connections open at once
    // Plan: Absent in an open loop: as many as this process may have descriptors.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub connections: Option<u32>,
    /// Open so many connections before the load, 5,000 a second, and hold them through it [with --rate]
    // Plan: Closed at the same rate; the clients' requests take them in turn.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub open_connections: Option<u32>,
    /// End the measured phase after so many requests
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u64")]
    #[cfg_attr(feature = "cli", arg(short = 'n', long, value_parser = parse_count, allow_hyphen_values = true))]
    pub requests: Option<u64>,
    /// End the measured phase after this time [default: 10s if -n is not given either]
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = parse_duration, allow_hyphen_values = true))]
    pub duration: Option<Duration>,
    /// Load before the measured phase, not in the results [default: with --rate, 1s and four of the longest RTTs]
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_duration, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "0s", hide_default_value = true))]
    pub warmup: Duration,
    /// Virtual clients, each with its own address and distance [default: 100 with
    /// --rate, else the connections; 1 without a path; with --replay those of the log]
    #[serde(deserialize_with = "units::count::u32")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_count_u32, allow_hyphen_values = true, conflicts_with = "replay"))]
    #[cfg_attr(feature = "cli", arg(default_value = "1", hide_default_value = true))]
    pub clients: u32,
    /// One connection per request
    #[cfg_attr(feature = "cli", arg(long, overrides_with = "keepalive"))]
    pub close: bool,
    /// Keep connections open between requests (the default)
    // Of the command line alone: takes an earlier --close back.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(long, overrides_with = "close"))]
    pub keepalive: bool,
    /// Send a request again if the server closed its idle connection while the request was on its way
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub retry: Retry,
    /// Request method
    #[cfg_attr(feature = "cli", arg(short, long, value_parser = method(), default_value = Method::Get.as_str(), ignore_case = true))]
    pub method: Method,
    /// Send this as the request's body: text, or a file, as @FILE or by its name
    // Of the command line alone: `body` or `body_text` of a plan.
    #[serde(skip)]
    #[cfg_attr(
        feature = "cli",
        arg(id = "body", long = "body", value_name = "TEXT|@FILE", allow_hyphen_values = true)
    )]
    pub typed_body: Option<Body>,
    /// Add a header line, `Name: value`; may be given more than once
    // Plan: For all requests, with places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(short = 'H', long = "header", value_name = "LINE"))]
    pub headers: Vec<String>,
    /// Connect to this HTTP proxy: ask it for the whole URL, or for a tunnel to an https:// one (CONNECT)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "[USER:PASSWORD@]HOST:PORT"))]
    pub proxy: Option<Proxy>,
    /// Connect to this Unix socket instead of the URL's host
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH"))]
    pub unix: Option<PathBuf>,
    /// HTTP/2: most requests at once on a connection, if the server allows as many [default: 100]
    // Plan: Written out in a plan that was checked.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::count::option_u32")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = parse_count_u32, allow_hyphen_values = true))]
    pub streams: Option<u32>,
    /// HTTP version of the requests; 2 is chosen by ALPN over TLS, and spoken at once without
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub http: HttpVersion,
    /// Fail a request whose response is not whole after this time
    // Plan: From its being handed to an open connection on.
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true))]
    pub timeout: Duration,
    /// Fail a request whose connection is not established after this time
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true))]
    pub connect_timeout: Duration,
    /// Ask for the URLs in this file: one a line, behind it perhaps a weight; those that begin with / are on the host of URL
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", conflicts_with = "content", help_heading = WORKLOAD))]
    pub urls: Option<PathBuf>,
    /// Ask for the objects of a model below URL, by their popularity, and expect their lengths: specweb99:1000, surge:5000,
    /// or even:1000,size=10KB; `serve --make-content` makes the same
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "MODEL:OBJECTS", value_parser = content, help_heading = WORKLOAD))]
    pub content: Option<ContentPlan>,
    /// Send these credentials (basic authentication)
    // Plan: Of all requests, with places.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "USER:PASSWORD", help_heading = WORKLOAD))]
    pub basic_auth: Option<String>,
    /// Keep cookies and send them back, each client its own
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long, help_heading = WORKLOAD))]
    pub cookies: bool,
    /// Follow up to so many redirects, one after another
    // Plan: 0: a redirect is a response like any other.
    #[cfg_attr(feature = "cli", arg(long = "follow-redirects", value_name = "NUMBER", allow_hyphen_values = true, help_heading = WORKLOAD))]
    #[cfg_attr(feature = "cli", arg(default_value_t = 0, hide_default_value = true))]
    pub redirects: u8,
    /// What every response must be for its request to count as done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub expect: Option<ExpectPlan>,
    /// How arrivals are spaced in the open loop: `constant`, `poisson`, `bursts` or `self_similar`, the last two perhaps with parameters.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub arrivals: ArrivalKind,
    /// A part of the run with its own rate and results: '30s at 100/s', '10s ramp to 1000/s', 'spike 5s at 2000/s',
    /// with 'NAME:' in front where it is to have a name; in order, may be given more than once
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "phase", value_name = "PHASE", allow_hyphen_values = true, help_heading = ARRIVALS))]
    pub phases: Vec<PhasePlan>,
    /// Phases of one rate after another, such as 100..1000/s:100/s
    // Of the command line alone: becomes `phases`.
    #[serde(skip)]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "FROM..TO:STEP", conflicts_with = "phases", allow_hyphen_values = true)
    )]
    #[cfg_attr(feature = "cli", arg(help_heading = ARRIVALS))]
    pub sweep: Option<String>,
    /// How long each rate of a sweep is held
    // Of the command line alone.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", requires = "sweep", value_parser = parse_duration, default_value = "10s"))]
    #[cfg_attr(feature = "cli", arg(allow_hyphen_values = true, help_heading = ARRIVALS))]
    pub sweep_hold: Duration,
    /// Offer the rates of this CSV file, such as `profile learn` writes: length_s with requests, connections or
    /// rate_per_s
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = ARRIVALS))]
    pub rate_file: Option<PathBuf>,
    /// Open loop of the requests of an access log, at its times, by its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub replay: Option<ReplayPlan>,
    /// Ask for what a browser recorded (HTTP archive), as sessions; with --rate so many a second
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_parser = har(), conflicts_with = "replay", help_heading = ARRIVALS))]
    pub har: Option<HarPlan>,
    /// How `https://` is spoken; written out where the URL asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub tls: Option<TlsPlan>,
    /// File sent as the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body: Option<PathBuf>,
    /// Text sent as the body, as it is: braces are no places.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body_text: Option<String>,
    /// How one of several requests is chosen; absent: drawn by weights where there are any, else each in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub choice: Option<ChoicePlan>,
    /// Closed loop of sessions: its users begin evenly over so long from the start of the load (of the warm-up) on; absent: all at the same time.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub users_over: Option<Duration>,
    /// Whether the rate of an open loop rises evenly from 0 over the warm-up, so that a cold server is not buried under requests that
    /// it still has when it is measured. Otherwise the warm-up has the rate with which the measured phase begins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub warmup_rises: bool,
    /// The workload of a cache benchmark.
    #[serde(rename = "workload", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub cache_workload: Option<CacheWorkloadPlan>,
    /// Different requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub request: Vec<RequestPlan>,
    /// What users do, one step after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub session: Vec<SessionPlan>,
}

impl Default for LoadPlan {
    /// A closed loop without end, of nothing yet.
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
    /// GET of a URL in a closed loop without end, every other field at its default.
    pub fn get(url: &str) -> Self {
        LoadPlan { url: url.to_owned(), ..LoadPlan::default() }
    }

    /// Takes in what only the command line has: a body that is text or a file, a sweep.
    ///
    /// # Errors
    /// A sweep that is none.
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

    /// What is offered over time.
    pub fn offered(&self) -> Offered<'_> {
        // Of two, which a check refuses, the one that has a length of its own.
        match self {
            LoadPlan { replay: Some(replay), .. } => Offered::Replay(replay),
            LoadPlan { rate_file: Some(file), .. } => Offered::RateFile(file),
            LoadPlan { phases, .. } if !phases.is_empty() => Offered::Phases(phases),
            LoadPlan { rate: Some(rate), .. } => Offered::Open { rate: *rate },
            _ => Offered::Closed,
        }
    }

    /// Whether arrivals do not wait for answers.
    pub fn is_open(&self) -> bool {
        self.offered() != Offered::Closed
    }
}

/// What a load offers over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offered<'a> {
    /// A request follows a response.
    Closed,
    /// One rate, whatever the server does.
    Open {
        /// That of the measured phase.
        rate: RequestRate,
    },
    /// One rate, or one change of rate, after another.
    Phases(&'a [PhasePlan]),
    /// The rates of a table.
    RateFile(&'a Path),
    /// The requests of an access log, at its times.
    Replay(&'a ReplayPlan),
}

impl Offered<'_> {
    /// Whether the load ends by itself.
    pub fn has_length(self) -> bool {
        matches!(self, Offered::Phases(_) | Offered::RateFile(_) | Offered::Replay(_))
    }
}

/// A request's body as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Sent as it is.
    Text(String),
    /// The content of a file.
    File(PathBuf),
}

impl FromStr for Body {
    type Err = String;

    /// `@FILE`, the name of a file, or text. A name is what exists as a file, or looks like one's name: one word with a slash or an
    /// extension. So a misspelt name is refused where the file is read, and not sent in its place.
    fn from_str(typed: &str) -> Result<Self, String> {
        if let Some(file) = typed.strip_prefix('@') {
            return if file.is_empty() {
                Err("a file's name is missing after @".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_text_or_files() {
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
