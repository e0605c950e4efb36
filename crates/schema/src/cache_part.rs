//! The cache's part of a run's JSON document: results of a workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::Quantiles;

/// Results of a cache benchmark: one point for each offered rate; a single run has one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CachePart {
    /// Name of the workload.
    pub workload: String,
    /// The cache as configured: `forward HOST:PORT`, `reverse URL`, or `none`. Of a single run without a proxy `at
    /// URL`: the origin or a reverse proxy, which is unknown.
    pub proxy: String,
    /// Document hit ratio that the workload aims at, 0 to 1; absent if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hit_ratio: Option<f64>,
    /// The points in the order of measurement.
    pub points: Vec<CachePoint>,
    /// Clients supported; absent without the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_supported: Option<ClientsSupported>,
    /// Notes on the figures: scaled and unscaled quantities, and caches that were not filled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One offered rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// Id of the point's own run; empty if not stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Phase of the run that the figures cover; empty for its whole measured phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Requests scheduled, a second.
    pub offered_rate_per_s: f64,
    /// Complete responses within the measured phase, a second.
    pub achieved_rate_per_s: f64,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Whether the point ended early because too many requests failed or every connection was refused.
    pub ended_early: bool,
    /// Whether the user ended it early.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Figures of the virtual users.
    #[serde(flatten)]
    pub figures: CacheFigures,
    /// Requests that reached the origin; absent if the origin was not queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginTraffic>,
}

/// Hits over requests, or their bytes over bytes, 0 to 1; of plain GETs that the proxy could see. Each is absent where
/// it is undefined: no request, no response, or no simulation.
///
/// `offered` and the ideals are over requests: properties of the workload. `measured` is over responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The workload's best, as drawn: repeats of cacheable objects whose earlier request could fill a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Simulation of the recorded requests with a cache without size limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<f64>,
    /// Best hit ratio of a cache of the stated size that evicts the least recently used object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal_lru: Option<f64>,
    /// Responses from the cache, by the identity of the responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
}

/// Figures of the virtual users: the exchanges that were scheduled in the measured phase.
///
/// Counts of exchanges: `requests = answered + sum of errors`. *Basic* ones are plain GETs (no condition, no reload)
/// visible to the proxy (not in a CONNECT tunnel); hit ratios cover these. Bytes of ratios are lengths of bodies as the
/// origin generates them, whatever was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Exchanges.
    pub requests: u64,
    /// Successful exchanges, including those aborted by the client as planned.
    pub answered: u64,
    /// Failed exchanges by cause.
    pub errors: BTreeMap<String, u64>,
    /// Exchanges that failed for their status, by status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_statuses: BTreeMap<String, u64>,
    /// Failed over all, 0 to 1; absent without requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// Hits over requests.
    pub hit_ratio: Ratio,
    /// Bytes of hits over bytes.
    pub byte_hit_ratio: Ratio,
    /// Basic requests.
    pub basic_requests: u64,
    /// Basic exchanges with a response.
    pub basic_answered: u64,
    /// Basic requests that could be hits: repeats of which an earlier request could have left a copy.
    pub offered: u64,
    /// Basic requests for cacheable objects that had been requested before, whether or not a cache could have had a
    /// copy of them: the offered hits of other benchmarks.
    pub repeats: u64,
    /// Of those offered, the ones that were sent while no copy had come whole yet, so that only a cache that collapses
    /// requests could serve them.
    pub offered_while_fetching: u64,
    /// Offered repeats after the lifetime of the last copy.
    pub offered_expired: u64,
    /// Basic requests answered from the cache.
    pub hits: u64,
    /// Of these, the ones that were not offered: a cache may finish a fetch that its client aborted, fetch without the
    /// client's condition, keep objects of an earlier run, prefetch, or make one variant from another.
    pub hits_not_offered: u64,
    /// Answers of any form and method from the cache, without 304.
    pub hits_of_all: u64,
    /// Responses generated for a request without request id, and not certainly before this one: possibly hits, not
    /// counted as hits. More than a few mean that the proxy does not forward `X-Yamabiko-Request-Id`.
    #[serde(default)]
    pub without_identity: u64,
    /// Hits with an older version after its lifetime, which the origin may have renewed by a 304 before the object
    /// changed. Not in `wrong`.
    #[serde(default)]
    pub possibly_stale: u64,
    /// Exchanges that were not verified because of their high rate. They are in no other count, so the other counts are
    /// too low.
    #[serde(default)]
    pub unverified: u64,
    /// done - scheduled, of all requests, failed ones until their failure.
    pub response_time_ns: Quantiles,
    /// Response times of basic requests answered from the cache.
    pub hits_response_time_ns: Quantiles,
    /// Response times of basic requests served by the origin.
    pub misses_response_time_ns: Quantiles,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Wrong responses, by kind; kinds that did not occur are absent.
    pub wrong: BTreeMap<String, u64>,
    /// Examples of them, at most [`EXAMPLES_MAX`] per kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<WrongExample>,
}

impl CacheFigures {
    /// Responses that a client must not get: all of `wrong` but false misses.
    pub fn incorrect(&self) -> u64 {
        let false_misses = self.wrong.get(crate::Wrong::FalseMiss.name()).copied().unwrap_or(0);
        self.wrong.values().fold(0u64, |sum, &n| sum.saturating_add(n)).saturating_sub(false_misses)
    }
}

/// Number of stored examples of a kind of wrong response.
pub const EXAMPLES_MAX: usize = 20;

/// One wrong response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongExample {
    /// Kind: a key of [`CacheFigures::wrong`].
    pub kind: String,
    /// The request: method, path and form.
    pub request: String,
    /// Number of the request in the run: `sequence` in the run's tables.
    pub sequence: u64,
    /// The received and the expected response.
    pub why: String,
}

/// Requests and bytes at the origin, by its own count, while a point was measured (including warm-up and drain),
/// compared with the responses to the virtual users in the same time. Failed requests and error pages of the proxy are
/// no savings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginTraffic {
    /// Requests that reached the origin.
    pub requests: u64,
    /// Body bytes that the origin sent.
    pub bytes: u64,
    /// Requests of the virtual users with a response of the origin's objects, less the origin's requests; negative if
    /// the cache sends more requests than it receives.
    pub saved_requests: i64,
    /// Bytes of bodies of these responses less those that the origin sent; negative if the cache fetches more than it
    /// sends.
    pub saved_bytes: i64,
}

/// Clients supported. At its peak every client of a class makes one request a second, so that 40 clients need 40/s
/// (school gateway, 2001).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientsSupported {
    /// The highest offered rate that, with every lower one, satisfied the rule, over the rate per client.
    pub clients: u64,
    /// Requests a second of a client at the peak.
    pub rate_per_client_per_s: f64,
    /// The lowest offered rate that did not meet it; absent if all met it: the machine may support more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsustained_rate_per_s: Option<f64>,
    /// Points that do not count, by rate: interrupted ones, and those with invalid runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<UncountedRun>,
    /// The rule, in words.
    pub rule: String,
}

/// A point that does not count for the clients supported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UncountedRun {
    /// Configured rate per second.
    pub rate_per_s: f64,
    /// The reason in a few words.
    pub why: String,
}
