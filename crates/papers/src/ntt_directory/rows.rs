//! Names of rows.

pub use crate::figures::{find, row, with_published};

/// MAX and general servers; also throughput with the result cache.
pub const PER_SECOND: &str = "requests per second";
/// MAX relative to a general server.
pub const MAX_OVER: &str = "requests per second, MAX relative to it";
/// CPU time per response.
pub const CPU: &str = "CPU per request";
/// The part in user mode.
pub const CPU_USER: &str = "CPU per request, user";
/// The part in the kernel.
pub const CPU_SYSTEM: &str = "CPU per request, system";
/// CPU time that a feature adds to the step before it.
pub const ADDED: &str = "CPU per request, added";
/// Share of all CPU time with the paper's share of requests.
pub const STATIC_SHARE: &str = "static share of CPU";
/// Per core.
pub const PER_DAY: &str = "requests a day of one CPU";
/// Responses from the cache, of all.
pub const HIT_RATIO: &str = "hit ratio";
/// Median response time of the page.
pub const STATIC_P50: &str = "static response time, median";
/// 99th percentile of the response time of the page.
pub const STATIC_P99: &str = "static response time, 99 %";
/// Failed requests, as a share of all requests for the page.
pub const STATIC_FAILED: &str = "static requests that failed";
/// The deciding figure.
pub const P99_RATIO: &str = "static response time, 99 %, flooded over unloaded";
/// Target of that figure while the application is flooded and limited.
pub const FLOOD_RATIO_MAX: f64 = 1.1;
/// Searches per second with a result.
pub const DYNAMIC_PER_SECOND: &str = "searches completed per second";
/// Searches per second.
pub const DYNAMIC_OFFERED: &str = "searches offered per second";
/// CPU time of the application over time.
pub const DYNAMIC_SHARE: &str = "share of the core used by the application";

/// Names of the experiments.
pub const CLOSE: &str = "one connection per request";
/// Keep-alive connections.
pub const KEEP_ALIVE: &str = "keep-alive connections";
/// The sequence of features.
pub const FEATURES: &str = "features added to MAX";
/// A page.
pub const STATIC: &str = "static request";
/// A search.
pub const DYNAMIC: &str = "dynamic request";
/// Static and dynamic requests in the paper's shares.
pub const MIX: &str = "the paper's workload";
/// Searches by popularity.
pub const CACHE: &str = "result cache";
/// Ten times the application's maximum.
pub const FLOOD: &str = "searches at ten times the maximum";
