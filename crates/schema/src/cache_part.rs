//! The cache's part of a run's JSON document: what a mix found out about a cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::Quantiles;

/// What was found out about a cache: one point for each offered rate; a single run has one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CachePart {
    /// Name of the mix.
    pub workload: String,
    /// The cache, as it was given: `forward HOST:PORT`, `reverse URL`, or `none`. Of a single run without a proxy `at URL`:
    /// whether the origin answers there or a reverse proxy, nobody said.
    pub proxy: String,
    /// Document hit ratio that the mix aims at, 0 to 1; absent where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hit_ratio: Option<f64>,
    /// The points, in the order in which they were measured.
    pub points: Vec<CachePoint>,
    /// How many seats of a class this machine holds; absent where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_supported: Option<ClientsSupported>,
    /// What to know when reading the figures: what was scaled and what was not, what was not filled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One offered rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// Id of the point's own run; empty if nothing was kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Phase of the run that these figures are of; empty where they are of its whole measured phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Requests intended, a second.
    pub offered_rate_per_s: f64,
    /// Whole answers within the measured phase, a second.
    pub achieved_rate_per_s: f64,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Whether it was ended before its time, since too many requests failed or every connection was refused.
    pub ended_early: bool,
    /// Whether somebody ended it before its time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// What the robots saw.
    #[serde(flatten)]
    pub figures: CacheFigures,
    /// What reached the origin; absent where the origin was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginTraffic>,
}

/// Hits over requests, or their bytes over bytes, 0 to 1; of plain GETs that the proxy could see. Each is absent where it
/// does not exist: nothing was asked, no answer came, or no simulation was run.
///
/// `offered` and the ideals are over what was *asked*: they are the workload's. `measured` is over what was *answered*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The workload's best, as drawn: repeats of cacheable objects of which an earlier ask could fill a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// A simulation of the recorded requests with a cache without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<f64>,
    /// The same with a cache of the size stated that forgets what was used least recently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal_lru: Option<f64>,
    /// What came out of the cache, by the identity of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
}

/// What the robots saw of a cache: the exchanges that were intended in the measured phase.
///
/// Counts of exchanges: `requests = answered + sum of errors`. *Basic* ones are plain GETs (no condition, no reload) that the
/// proxy could see (not in a CONNECT tunnel); hit ratios are of these. Bytes of ratios are lengths of bodies as the origin
/// makes them, whatever came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Exchanges.
    pub requests: u64,
    /// Of these, the ones that ended well; those that the client left as planned are among them.
    pub answered: u64,
    /// The ones that failed, by cause.
    pub errors: BTreeMap<String, u64>,
    /// Of those that failed of their status, how many had which.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_statuses: BTreeMap<String, u64>,
    /// Failed over all, 0 to 1; absent where nothing was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// Hits over requests.
    pub hit_ratio: Ratio,
    /// Bytes of hits over bytes.
    pub byte_hit_ratio: Ratio,
    /// Basic requests.
    pub basic_requests: u64,
    /// Of these, the ones that were answered.
    pub basic_answered: u64,
    /// Basic requests that were offered as hits.
    pub offered: u64,
    /// Basic requests for cacheable objects that had been asked for before, whether or not a cache could have them: what
    /// other benchmarks call offered.
    pub repeats: u64,
    /// Of those offered, the ones that were sent while no copy had come whole yet, so that only a cache that joins requests
    /// could answer them.
    pub offered_while_fetching: u64,
    /// Of those offered, the ones for which the last copy's lifetime was over.
    pub offered_expired: u64,
    /// Basic requests answered out of the cache.
    pub hits: u64,
    /// Of these, the ones that were not offered: a cache may carry on a fetch that its client left, fetch without the client's
    /// condition, keep what an earlier run filled, fetch ahead, or make one variant from another.
    pub hits_not_offered: u64,
    /// Answers of any form and method that came out of the cache, a 304 never among them.
    pub hits_of_all: u64,
    /// Answers with an object that the origin made for a request without an ask, and not surely before this one: whether they
    /// are hits nobody can tell, and they count as none. More than a few mean that the proxy does not pass
    /// `X-Yamabiko-Request-Id` on.
    #[serde(default)]
    pub without_identity: u64,
    /// Hits with an older version whose lifetime was over since the origin made it, which the origin may have renewed by a 304
    /// before the object changed. They are not in `wrong`.
    #[serde(default)]
    pub possibly_stale: u64,
    /// Exchanges that nobody judged, since they came faster than they could be: in no other count, so that these are too low.
    #[serde(default)]
    pub unverified: u64,
    /// done - intended, of all, failed ones at the moment of their failure.
    pub response_time_ns: Quantiles,
    /// The same, of basic requests answered out of the cache.
    pub hits_response_time_ns: Quantiles,
    /// The same, of basic requests answered by the origin.
    pub misses_response_time_ns: Quantiles,
    /// Bytes of bodies that came.
    pub body_bytes: u64,
    /// Wrong answers, by kind; kinds that did not occur are absent.
    pub wrong: BTreeMap<String, u64>,
    /// Some of them, at most [`EXAMPLES_MAX`] a kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<WrongExample>,
}

impl CacheFigures {
    /// Answers that a client must not get: all of `wrong` but false misses.
    pub fn incorrect(&self) -> u64 {
        let false_misses = self.wrong.get(crate::Wrong::FalseMiss.name()).copied().unwrap_or(0);
        self.wrong.values().fold(0u64, |sum, &n| sum.saturating_add(n)).saturating_sub(false_misses)
    }
}

/// So many examples of a kind of wrong answer are kept: enough to see what they have in common.
pub const EXAMPLES_MAX: usize = 20;

/// One wrong answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongExample {
    /// Kind: a key of [`CacheFigures::wrong`].
    pub kind: String,
    /// The request: method, path and form.
    pub request: String,
    /// Number of the request in the run: `sequence` in the run's tables.
    pub sequence: u64,
    /// What came, and what was due.
    pub why: String,
}

/// What reached the origin, by its own count, while a point was measured (its warm-up and drain included), beside what the
/// robots were answered in the same time. What failed, and a proxy's own error page, saves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginTraffic {
    /// Requests that reached it.
    pub requests: u64,
    /// Bytes of bodies that it sent.
    pub bytes: u64,
    /// Requests of the robots that were answered with the origin's objects less those; negative where the cache asks more than it
    /// answers.
    pub saved_requests: i64,
    /// Bytes of bodies of these answers less those it sent; negative where the cache fetches more than it hands out.
    pub saved_bytes: i64,
}

/// How many seats a machine holds. In a class every seat asks once a second at its peak, so that 40 seats need 40/s (Makino
/// and others, 2001).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientsSupported {
    /// ClientsSupported held: the highest offered rate whose point, and every point below it, kept the rule.
    pub clients: u64,
    /// Requests a seat makes a second at the peak.
    pub rate_per_client_per_s: f64,
    /// The lowest offered rate that did not keep it; absent where all did, so that the machine may hold more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsustained_rate_per_s: Option<f64>,
    /// Points that say nothing of seats, by their rates: interrupted ones, and those whose runs are not to be trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<NotCounted>,
    /// The rule, in words.
    pub rule: String,
}

/// A point that is no evidence of how many seats a machine holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotCounted {
    /// Rate that was to be offered, a second.
    pub rate_per_s: f64,
    /// Why, in a few words.
    pub why: String,
}
