//! The specification of a load.

use std::time::Duration;

use crate::workload::Choice;
use crate::{Arrivals, LoadError, Workload};

/// A complete specification of a load. With the same spec and the same events, [`Load`](crate::Load) is deterministic.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The requests, and how each arrival chooses among them.
    pub workload: Workload,
    /// Whether the request line contains the whole URL, as proxies require (RFC 9112, section 3.2.2).
    pub absolute_form: bool,
    /// HTTP version of the requests.
    pub version: HttpVersion,
    /// HTTP/2 and HTTP/3: maximum concurrent streams on a connection, if the server allows as many. 0 counts as 1.
    pub streams_max: u32,
    /// Whether connections serve more than one request.
    pub reuse: Reuse,
    /// Whether a request may be retried after the server closed its connection without a response.
    pub retry: Retry,
    /// When requests are scheduled.
    pub arrivals: Arrivals,
    /// Open loop: maximum concurrent connections. Closed loop: number of connections. 0 counts as 1.
    pub connections_max: u32,
    /// Ends the measured phase after this many requests scheduled in it.
    pub requests_max: Option<u64>,
    /// Number of virtual clients, each with its own address. 0 counts as 1.
    pub clients: u32,
    /// Timeout from the call of connect to the established connection.
    pub connect_timeout: Duration,
    /// Timeout from the send of the request on an open connection (for a new connection: from its establishment) to the
    /// complete response.
    pub response_timeout: Duration,
    /// The part of the load that this engine makes. Other engines of the run make the other parts.
    pub shard: Shard,
    /// Seed of every random choice.
    pub seed: u64,
    /// Length of the load before the measured phase, which is not in the results.
    pub warmup: Duration,
    /// Length of the measured phase; `None` if it lasts until `requests_max` or until stopped.
    pub duration: Option<Duration>,
}

impl LoadSpec {
    /// Maximum concurrent requests on a connection, if the server allows as many: 1 except for HTTP/2 and
    /// HTTP/3.
    pub(crate) fn streams_limit(&self) -> u32 {
        match self.version {
            HttpVersion::Http2 | HttpVersion::Http3 if self.reuse == Reuse::KeepAlive => self.streams_max.max(1),
            _ => 1,
        }
    }

    /// Maximum concurrent connections. In a closed loop of sessions each configured connection is a user, who opens as
    /// many connections as a session has concurrent requests ([`Workload::widest_step`]).
    pub fn connections_limit(&self) -> u32 {
        let users_open_more = !self.arrivals.is_open() && matches!(self.workload.choice, Choice::Sessions(_));
        let widest = if users_open_more { self.workload.widest_step() } else { 1 };
        self.connections_max.max(1).saturating_mul(u32::from(widest))
    }
}

/// One of several engines that make one load together, each with its own clients, connections and records.
///
/// Every shard draws the whole schedule and takes its own arrivals from it, so that requests, scheduled times and
/// clients do not depend on the number of shards. A load on several machines is divided twice: among the machines, and
/// on each machine among its loops. What a machine makes depends on its number and the number of machines alone, so
/// machines may have different numbers of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of this shard, from 0.
    pub index: u32,
    /// Number of shards, at least 1, counted as if every machine had as many loops as this one.
    pub of: u32,
    /// Number of machines, at least 1, a divisor of `of`. This shard's machine is number `index % machines`.
    pub machines: u32,
}

impl Shard {
    /// The only shard of a load that is not divided.
    pub const WHOLE: Shard = Shard::new(0, 1);

    /// Shard `index` of `of` on one machine.
    pub const fn new(index: u32, of: u32) -> Shard {
        Shard { index, of, machines: 1 }
    }

    /// The part of loop `inner` among the loops of machine `machine`: both are shards of one level, by
    /// [`Shard::new`].
    pub const fn nested(machine: Shard, inner: Shard) -> Shard {
        Shard { index: machine.index + machine.of * inner.index, of: machine.of * inner.of, machines: machine.of }
    }

    /// Whether this shard makes an arrival. All requests and connections of a client belong to one machine, unless
    /// there are fewer clients than machines; and to one loop of it, unless there are fewer clients than `of`.
    pub const fn takes(self, sequence: u64, client: u32, clients: u32) -> bool {
        let (machines, loops) = (self.machines as u64, (self.of / self.machines) as u64);
        let (index, client) = (self.index as u64, client as u64);
        if clients >= self.of {
            return client % self.of as u64 == index;
        }
        // The machine's part must not depend on the number of its loops.
        if clients >= self.machines {
            return client % machines == index % machines && sequence % loops == index / machines;
        }
        sequence % self.of as u64 == index
    }

    /// Number in the run of this shard's `local`-th connection, session or request of a closed loop, from 0; unique
    /// over all shards.
    pub const fn number(self, local: u64) -> u64 {
        local * self.of as u64 + self.index as u64
    }

    /// This shard's share of `n` items that are numbered by [`Self::number`]. The shares of all shards add up to `n`.
    pub const fn share(self, n: u64) -> u64 {
        let of = self.of as u64;
        n / of + ((self.index as u64) < n % of) as u64
    }
}

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0; connections are persistent only if the server agrees (`Connection: keep-alive`).
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2: several concurrent requests on a connection.
    Http2,
    /// HTTP/3: the same over QUIC. All targets are secure.
    Http3,
}

impl HttpVersion {
    /// Whether a connection carries one request at a time.
    pub const fn is_http1(self) -> bool {
        matches!(self, HttpVersion::Http10 | HttpVersion::Http11)
    }

    /// The version as text, as on the request line of HTTP/1.
    pub const fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2",
            HttpVersion::Http3 => "HTTP/3",
        }
    }
}

/// Whether connections serve more than one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Persistent connections: open until the server closes them.
    #[default]
    KeepAlive,
    /// One connection per request: sends `Connection: close`.
    Close,
}

/// When a request is retried, once, on a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Never: a request fails if its connection ends without a response.
    Never,
    /// After a race with the server's idle timeout (RFC 9112, section 9.3.1), for idempotent methods (RFC 9110, section
    /// 9.2.2). The connection has served requests before, its end arrived within one RTT (plus
    /// [`RACE_MARGIN`](crate::RACE_MARGIN)) of sending, and was a reset or acknowledged no byte of the request. Over
    /// HTTP/2 also if the server reports that it has not processed the request (RFC 9113, section 8.7).
    #[default]
    IdleRace,
}

/// Splits `Name: value`, as given with `-H`.
///
/// # Errors
/// The text has no colon, an empty name, or characters that are invalid in a header name or value, such as line breaks.
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

    /// A spec for a closed loop of one connection.
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
            shard: Shard::WHOLE,
            seed: 0,
            warmup: Duration::ZERO,
            duration: None,
        }
    }

    #[test]
    fn shards_divide_numbers_arrivals_and_shares_exactly() {
        for of in 1..9 {
            let shards: Vec<Shard> = (0..of).map(|index| Shard::new(index, of)).collect();
            for n in 0..40u64 {
                assert_eq!(shards.iter().map(|shard| shard.share(n)).sum::<u64>(), n, "{n} by {of}");
                let numbers =
                    shards.iter().flat_map(|&shard| (0..shard.share(n)).map(move |local| shard.number(local)));
                let mut numbers: Vec<u64> = numbers.collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..n).collect::<Vec<_>>(), "{n} by {of}");
                for clients in [1, of - 1, of, of + 1, 100].into_iter().filter(|&clients| clients > 0) {
                    let takers = shards.iter().filter(|shard| shard.takes(n, n as u32 % clients, clients)).count();
                    assert_eq!(takers, 1, "{n}, {clients} clients, {of} shards");
                }
            }
        }
    }

    /// Machines with different numbers of loops still divide everything exactly, and a machine's part is the same for
    /// any number of its loops.
    #[test]
    fn machines_with_any_number_of_loops_divide_arrivals_and_shares_exactly() {
        for (machines, clients) in (1..6).flat_map(|machines| (1..20).map(move |clients| (machines, clients))) {
            let loops = |machine: u32, count: u32| {
                (0..count).map(move |inner| Shard::nested(Shard::new(machine, machines), Shard::new(inner, count)))
            };
            // Machine m has m + 1 loops.
            let all: Vec<Shard> = (0..machines).flat_map(|machine| loops(machine, machine + 1)).collect();
            for n in 0..60u64 {
                let client = (n * 7 % u64::from(clients)) as u32;
                let takers: Vec<_> = all.iter().filter(|shard| shard.takes(n, client, clients)).collect();
                assert_eq!(takers.len(), 1, "{n}, {clients} clients, {machines} machines");
                let alone = (0..machines).find(|&machine| Shard::new(machine, machines).takes(n, client, clients));
                assert_eq!(Some(takers[0].index % machines), alone, "{n}, {clients} clients, {machines} machines");
                assert_eq!(all.iter().map(|shard| shard.share(n)).sum::<u64>(), n);
                let numbers = all.iter().flat_map(|&shard| (0..shard.share(n)).map(move |local| shard.number(local)));
                let mut numbers: Vec<u64> = numbers.collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..n).collect::<Vec<_>>(), "{machines} machines");
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
