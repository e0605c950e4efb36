//! Replays the requests of a server's access log at their logged times.
//!
//! ```text
//!   access log --lines--> LogLine --> Replay: arrivals (offset, client, request) in order of time, distinct requests
//! ```
//!
//! Two formats are supported: the common or combined log format, with or without a leading virtual host, and JSON
//! lines. Each logged client becomes one virtual client, in the order of first appearance, so its requests come from
//! one address and one distance. Times count from the first request. A log with whole seconds does not contain the time
//! within a second: the requests of one second are spread evenly over it, in the order of the log, which preserves the
//! rate of every second and creates no bursts. If any line has a fraction of a second, all times are taken as exact:
//! some servers omit a fraction of zero.

mod combined;
mod escaped;
mod json;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

pub use combined::parse as parse_combined;
pub use json::parse as parse_json;

/// The request of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Time, in nanoseconds since 1970-01-01 UTC.
    pub at_unix_ns: i128,
    /// Whether the time has a fraction of a second.
    pub has_fraction: bool,
    /// Client: an address or a name.
    pub client: String,
    /// Request method, as logged.
    pub method: String,
    /// Request target in origin form, beginning with `/`.
    pub target: String,
    /// Logged status, if present.
    pub status: Option<u16>,
    /// Logged bytes of the response's body, if present.
    pub bytes: Option<u64>,
}

/// Why a line cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LineError {
    /// The line does not have the format.
    NotOfFormat,
    /// The time is invalid or missing.
    NoTime,
    /// The request line is invalid: the server received no request (`-`), or data that was not HTTP.
    NoRequest,
    /// The request target has no path: `*`, an authority, or another site's URL.
    NoPath,
}

impl LineError {
    /// A short text for the user.
    pub const fn words(self) -> &'static str {
        match self {
            LineError::NotOfFormat => "not of the log's format",
            LineError::NoTime => "no time that can be read",
            LineError::NoRequest => "no request in it",
            LineError::NoPath => "its target is not a path",
        }
    }
}

/// The settings of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplaySpec {
    /// Factor on the times between requests: 0.5 replays twice as fast. Above 0, finite.
    pub time_scale: f64,
    /// Maximum virtual clients. Further logged clients share them in turn.
    pub clients_max: u32,
}

/// The requests of a log, ready to be replayed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The arrivals in order of time.
    pub arrivals: Vec<LoggedArrival>,
    /// The different requests, in the order of first appearance.
    pub requests: Vec<LoggedRequest>,
    /// Number of virtual clients.
    pub clients: u32,
    /// Number of different clients in the log.
    pub clients_logged: u32,
    /// Time from the first request to the end of the log's last second; if times have fractions, to one mean gap after
    /// the last request (1 ms for a single request). Every arrival is earlier, and a further round may begin then.
    pub length: Duration,
}

/// A distinct request of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its method.
    pub method: String,
    /// Its target in origin form.
    pub target: String,
    /// Number of lines with this request.
    pub times: u64,
}

/// One request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedArrival {
    /// Nanoseconds after the first one, scaled.
    pub offset_ns: u64,
    /// Virtual client, from 0.
    pub client: u32,
    /// Index into [`Replay::requests`].
    pub request: u32,
}

/// Collects the lines of a log into a [`Replay`].
#[derive(Debug, Default)]
pub struct Reader {
    lines: Vec<StoredLine>,
    /// Whether any line had a fraction of a second.
    has_fraction: bool,
    clients: HashMap<String, u32>,
    /// The distinct requests, by method, a space and target.
    requests: HashMap<Box<str>, CountedRequest>,
    key: String,
}

#[derive(Clone, Copy, Debug)]
struct CountedRequest {
    index: u32,
    times: u64,
}

#[derive(Clone, Copy, Debug)]
struct StoredLine {
    at_unix_ns: i64,
    client: u32,
    request: u32,
}

impl Reader {
    /// Adds a line.
    pub fn add(&mut self, line: LogLine) {
        let next = self.clients.len() as u32;
        let client = *self.clients.entry(line.client).or_insert(next);
        self.key.clear();
        self.key.extend([line.method.as_str(), " ", line.target.as_str()]);
        let next = self.requests.len() as u32;
        let request = match self.requests.get_mut(self.key.as_str()) {
            Some(counted) => {
                counted.times += 1;
                counted.index
            }
            None => {
                self.requests.insert(self.key.as_str().into(), CountedRequest { index: next, times: 1 });
                next
            }
        };
        self.has_fraction |= line.has_fraction;
        // Times outside of the years 1678 to 2262 are clamped.
        let at_unix_ns = line.at_unix_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.lines.push(StoredLine { at_unix_ns, client, request });
    }

    /// Number of lines added.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no line was added.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The replay of all lines. Servers log a request when its response is complete, so lines may be out of order.
    pub fn finish(mut self, spec: ReplaySpec) -> Replay {
        // The sort is stable: lines with the same time keep the order of the log.
        self.lines.sort_by_key(|line| line.at_unix_ns);
        let Some(first) = self.lines.first().map(|line| i128::from(line.at_unix_ns)) else { return Replay::default() };
        let mut requests: Vec<(Box<str>, CountedRequest)> = self.requests.drain().collect();
        requests.sort_unstable_by_key(|(_, counted)| counted.index);
        let taken_apart = requests.into_iter().map(|(key, counted)| {
            let (method, target) = key.split_once(' ').unwrap_or((&key, "/"));
            LoggedRequest { method: method.to_owned(), target: target.to_owned(), times: counted.times }
        });
        let mut replay = Replay {
            clients: (self.clients.len() as u32).min(spec.clients_max.max(1)),
            clients_logged: self.clients.len() as u32,
            requests: taken_apart.collect(),
            arrivals: Vec::with_capacity(self.lines.len()),
            ..Replay::default()
        };
        // Unscaled times stay integers, since an f64 would round the times of long logs.
        let scaled_ns = |ns: i128| match spec.time_scale {
            1.0 => ns as u64,
            scale => (ns as f64 * scale).round() as u64,
        };
        let mut at = 0;
        let mut end_ns = first;
        while at < self.lines.len() {
            let line = self.lines[at];
            // In a log with whole seconds, lines of the same second are spread over it.
            let same = self.lines[at..].iter().take_while(|other| other.at_unix_ns == line.at_unix_ns).count();
            for (place, line) in self.lines[at..at + same].iter().enumerate() {
                let within = if self.has_fraction { 0 } else { SECOND_NS * place as i128 / same as i128 };
                replay.arrivals.push(LoggedArrival {
                    offset_ns: scaled_ns(i128::from(line.at_unix_ns) - first + within),
                    client: line.client % replay.clients,
                    request: line.request,
                });
                end_ns = end_ns.max(i128::from(line.at_unix_ns) + if self.has_fraction { 0 } else { SECOND_NS });
            }
            at += same;
        }
        if self.has_fraction {
            let gaps = self.lines.len() as i128 - 1;
            let mean_gap = if gaps == 0 { SECOND_NS / 1000 } else { (end_ns - first) / gaps };
            end_ns += mean_gap.max(1);
        }
        let last = replay.arrivals.last().map_or(0, |arrival| arrival.offset_ns);
        replay.length = Duration::from_nanos(scaled_ns(end_ns - first).max(last + 1));
        replay
    }
}

/// The path of a request target: in origin form, or of an absolute URL, as logged by a proxy. Targets with white space
/// or control characters are rejected: replayed, they would become a different request.
fn path_of(target: &str) -> Result<Cow<'_, str>, LineError> {
    if target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(LineError::NoPath);
    }
    let path = origin_form(target)?;
    let is_sendable = |byte: u8| (b'!'..=b'~').contains(&byte) && !b"\"\\".contains(&byte);
    if path.bytes().all(is_sendable) { Ok(path.into()) } else { Ok(escaped::percent_encoded(path.as_bytes()).into()) }
}

fn origin_form(target: &str) -> Result<&str, LineError> {
    if target.starts_with('/') {
        return Ok(target);
    }
    let rest = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")).ok_or(LineError::NoPath)?;
    if rest.is_empty() {
        return Err(LineError::NoPath);
    }
    let Some(end) = rest.find(['/', '?']) else { return Ok("/") };
    if rest[end..].starts_with('/') { Ok(&rest[end..]) } else { Err(LineError::NoPath) }
}

/// The logged client, without the port that some servers append to its address.
fn client_of(logged: &str) -> String {
    match logged.parse::<std::net::SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => logged.to_owned(),
    }
}

const SECOND_NS: i128 = 1_000_000_000;

#[cfg(test)]
mod tests;
