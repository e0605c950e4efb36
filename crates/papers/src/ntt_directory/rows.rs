//! Names of what the rows say.

pub use crate::figures::{beside, find, row};

/// MAX and general servers; also throughput of the cache's part.
pub const PER_SECOND: &str = "requests per second";
/// MAX over a general server.
pub const MAX_OVER: &str = "requests per second, MAX over it";
/// CPU for each response.
pub const CPU: &str = "CPU per request";
/// Of it in user mode.
pub const CPU_USER: &str = "CPU per request, user";
/// Of it in the kernel.
pub const CPU_SYSTEM: &str = "CPU per request, system";
/// What a feature adds to the step before it.
pub const ADDED: &str = "CPU per request, added";
/// Of all CPU time at the paper's mix.
pub const STATIC_SHARE: &str = "static share of CPU";
/// Of one core.
pub const PER_DAY: &str = "requests a day of one CPU";
/// Answers out of the cache, of all.
pub const HIT_RATIO: &str = "hit ratio";
/// Of the page.
pub const STATIC_P50: &str = "static response time, median";
/// Of the page.
pub const STATIC_P99: &str = "static response time, 99 %";
/// Of all that were asked for.
pub const STATIC_FAILED: &str = "static requests that failed";
/// The judge's figure.
pub const P99_RATIO: &str = "static response time, 99 %, over unloaded";
/// What that may be while the application is flooded and bounded.
pub const FLOOD_RATIO_MAX: f64 = 1.1;
/// Searches a second that were answered with results.
pub const DYNAMIC_PER_SECOND: &str = "searches answered per second";
/// Searches a second.
pub const DYNAMIC_OFFERED: &str = "searches offered per second";
/// CPU of the application over time.
pub const DYNAMIC_SHARE: &str = "share of the core that the application had";

/// The experiments' names.
pub const CLOSE: &str = "one connection per request";
/// Kept connections.
pub const KEPT: &str = "kept connections";
/// The ladder.
pub const FEATURES: &str = "features added to MAX";
/// A page.
pub const STATIC: &str = "static request";
/// A search.
pub const DYNAMIC: &str = "dynamic request";
/// Both, as the paper's service had them.
pub const MIX: &str = "the paper's mix";
/// Searches by popularity.
pub const CACHE: &str = "cache of results";
/// Ten times over.
pub const FLOOD: &str = "ten times too many searches";
