//! What load to offer, as meant.

use std::time::Duration;

use crate::workload::Choice;
use crate::{Arrivals, LoadError, Workload};

/// A load, complete: with the same spec and the same answers from outside, [`Load`](crate::Load) does the same.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// What is asked for.
    pub workload: Workload,
    /// The request line carries the whole URL, as proxies want it (RFC 9112, section 3.2.2).
    pub absolute_form: bool,
    /// Version of HTTP.
    pub version: HttpVersion,
    /// HTTP/2: most streams open at once on a connection, if the server allows as many. 0 is taken as 1.
    pub streams_max: u32,
    /// Whether connections serve more than one request.
    pub reuse: Reuse,
    /// Whether a request that the server closed before may be retried.
    pub retry: Retry,
    /// When requests are intended.
    pub arrivals: Arrivals,
    /// Open loop: most connections open at once. Closed loop: their number. 0 is taken as 1.
    pub connections_max: u32,
    /// Ends the measured phase after this many requests scheduled in it.
    pub requests_max: Option<u64>,
    /// Number of virtual clients, each with its own address. 0 is taken as 1.
    pub clients: u32,
    /// From connect called to established.
    pub connect_timeout: Duration,
    /// From the request being handed to an open connection (for a new one: once it is established) to the whole
    /// response.
    pub response_timeout: Duration,
    /// Which part of the load this engine makes; the others are made by engines beside it.
    pub lane: Lane,
    /// Seed of every random choice.
    pub seed: u64,
    /// Load before the measured phase, not in the results.
    pub warmup: Duration,
    /// Length of the measured phase; `None` for until `requests_max`, or until stopped.
    pub duration: Option<Duration>,
}

impl LoadSpec {
    /// Requests at once on a connection, as far as the server allows: 1 but for HTTP/2.
    pub(crate) fn streams_most(&self) -> u32 {
        match self.version {
            HttpVersion::Http2 if self.reuse == Reuse::KeepAlive => self.streams_max.max(1),
            _ => 1,
        }
    }

    /// Most connections open at once. In a closed loop of sessions every connection asked for stands for a user, who
    /// opens as many as the plan's sessions have requests under way at once ([`Workload::widest_step`]).
    pub fn connections_most(&self) -> u32 {
        let users_open_more = !self.arrivals.is_open() && matches!(self.workload.choice, Choice::Sessions(_));
        let widest = if users_open_more { self.workload.widest_step() } else { 1 };
        self.connections_max.max(1).saturating_mul(u32::from(widest))
    }
}

/// One of several engines that make one load together, each with its own clients, connections and records.
///
/// Every shard draws the whole schedule and takes its own arrivals from it, so that requests, moments and clients are the
/// same however many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// From 0.
    pub index: u32,
    /// Number of shards, at least 1.
    pub of: u32,
}

impl Lane {
    /// The only one.
    pub const WHOLE: Lane = Lane { index: 0, of: 1 };

    /// Whether an arrival is this shard's. A client stays with one shard, and so do its connections; only where there are
    /// fewer clients than shards do several shards act for one.
    pub const fn takes(self, sequence: u64, client: u32, clients: u32) -> bool {
        let turn = if clients >= self.of { client as u64 } else { sequence };
        turn % self.of as u64 == self.index as u64
    }

    /// Number in the run of this shard's `local`-th connection, session or request of a closed loop (from 0): no other
    /// shard has it.
    pub const fn number(self, local: u64) -> u64 {
        local * self.of as u64 + self.index as u64
    }

    /// This shard's part of `n` things that are numbered by [`Self::number`]: of all shards together exactly `n`.
    pub const fn share(self, n: u64) -> u64 {
        let of = self.of as u64;
        n / of + ((self.index as u64) < n % of) as u64
    }
}

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0; connections are kept only where the server agrees (`Connection: keep-alive`).
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2: several requests at once on a connection.
    Http2,
}

impl HttpVersion {
    /// As on the request line (HTTP/2 has none).
    pub const fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2",
        }
    }
}

/// Whether connections serve more than one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Kept open as long as the server keeps them.
    #[default]
    KeepAlive,
    /// One connection a request: sends `Connection: close`.
    Close,
}

/// When a request is retried, once, on a fresh connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Never: a connection that ends unanswered is a failure of its request.
    Never,
    /// After a race with the server's idle timeout (RFC 9112, section 9.3.1), for idempotent methods (RFC 9110, section
    /// 9.2.2): the connection had served requests before, its end came within one RTT of sending (and
    /// [`RACE_MARGIN`](crate::RACE_MARGIN)), and it was a reset, or acknowledged nothing of the request. Over HTTP/2 also where the
    /// server says that it has not processed the request (RFC 9113, section 8.7).
    #[default]
    IdleRace,
}

/// Takes `Name: value` apart, as given with `-H`.
///
/// # Errors
/// No colon, an empty name, or characters that a header name or value cannot hold (so no line break gets in).
pub fn parse_header(typed: &str) -> Result<(String, String), LoadError> {
    let bad = |why| LoadError::BadHeader { header: typed.escape_debug().to_string(), why };
    let (name, value) = typed.split_once(':').ok_or_else(|| bad("it has no colon"))?;
    let value = value.trim_matches([' ', '\t']);
    http::HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| bad("its name is empty or holds a character no name has"))?;
    http::HeaderValue::from_str(value).map_err(|_| bad("its value holds a control character"))?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A closed loop of one connection.
    pub(crate) fn plain(workload: Workload) -> LoadSpec {
        LoadSpec {
            workload,
            absolute_form: false,
            version: HttpVersion::Http11,
            streams_max: 1,
            reuse: Reuse::KeepAlive,
            retry: Retry::IdleRace,
            arrivals: Arrivals::Closed,
            connections_max: 1,
            requests_max: None,
            clients: 1,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            lane: Lane::WHOLE,
            seed: 0,
            warmup: Duration::ZERO,
            duration: None,
        }
    }

    #[test]
    fn shards_divide_numbers_arrivals_and_shares_exactly() {
        for of in 1..9 {
            let lanes: Vec<Lane> = (0..of).map(|index| Lane { index, of }).collect();
            for n in 0..40u64 {
                assert_eq!(lanes.iter().map(|lane| lane.share(n)).sum::<u64>(), n, "{n} by {of}");
                let numbers = lanes.iter().flat_map(|&lane| (0..lane.share(n)).map(move |local| lane.number(local)));
                let mut numbers: Vec<u64> = numbers.collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..n).collect::<Vec<_>>(), "{n} by {of}");
                for clients in [1, of - 1, of, of + 1, 100].into_iter().filter(|&clients| clients > 0) {
                    let takers = lanes.iter().filter(|lane| lane.takes(n, n as u32 % clients, clients)).count();
                    assert_eq!(takers, 1, "{n}, {clients} clients, {of} lanes");
                }
            }
        }
    }

    #[test]
    fn typed_headers_are_parsed_and_validated() {
        assert_eq!(parse_header("Accept: text/html"), Ok(("Accept".into(), "text/html".into())));
        assert_eq!(parse_header("X-Empty:"), Ok(("X-Empty".into(), String::new())));
        assert_eq!(parse_header("X:a:b"), Ok(("X".into(), "a:b".into())));
        for bad in ["Accept", ": x", "A b: c", "A: b\r\nC: d", "\u{5c71}: A"] {
            assert!(parse_header(bad).is_err(), "{bad:?}");
        }
    }
}
