//! The plan of a sweep: a file with a `[cache]` table. The same file makes the same sweep.

mod refusals;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use plan::{
    ArrivalKind, CacheWorkloadPlan, HostPlan, OriginPlan, PathPlan, PlanError, Proxy, ServerPlan, TargetPlan, TlsPlan,
    WatchPlan,
};
use serde::{Deserialize, Serialize};
use units::{Bytes, Probability, RequestRate, parse_duration};

use super::phases::{PointPhase, PolygraphSchedule};

/// A sweep of rates against a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePlan {
    /// Part of the names of the run folders.
    #[serde(default = "default_name")]
    pub name: String,
    /// Seed of every random choice.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The cache and the points.
    pub cache: SweepPlan,
    /// The workload.
    #[serde(default)]
    pub workload: CacheWorkloadPlan,
    /// The origin behind the cache.
    #[serde(default)]
    pub origin: OriginPlan,
    /// The emulated path; absent: virtual users connect to the cache directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
    /// The cache, started for each point; absent: it runs already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
    /// Addresses of the cache, if its name does not determine them.
    #[serde(default)]
    pub target: TargetPlan,
    /// The packet capture.
    #[serde(default)]
    pub watch: WatchPlan,
    /// Placement on cores and how the loop waits.
    #[serde(default)]
    pub host: HostPlan,
}

/// The `[cache]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPlan {
    /// A forward proxy, `HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// A reverse proxy, `http://HOST:PORT` or `https`, configured to fetch from the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<String>,
    /// No cache: virtual users request from the origin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Offered request rates, one point each, in this order.
    #[serde(default = "default_rates")]
    pub rates: Vec<RequestRate>,
    /// Length of a point, warm-up included. Excludes a schedule and phases, which have lengths of their own.
    #[serde(with = "units::time::text", default = "default_point")]
    pub point: Duration,
    /// Share of a point that is warm-up. Excludes a schedule and phases.
    #[serde(default = "default_warmup")]
    pub warmup: Probability,
    /// Share of failures among the requests of the last second that ends a point, or `none`.
    #[serde(default)]
    pub stop_errors: StopErrors,
    /// The schedule of a point.
    #[serde(default)]
    pub schedule: PolygraphSchedule,
    /// Factor of the schedule's lengths. Requires a schedule.
    #[serde(default = "default_scale")]
    pub time_scale: f64,
    /// Custom phases instead of a schedule.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PointPhase>,
    /// How arrivals are spaced.
    #[serde(default = "default_arrivals")]
    pub arrivals: ArrivalKind,
    /// Virtual users; absent: the rate over the workload's rate per client; without one 100 with a path, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Whether all points use one world (set of objects), so that each finds the cache as earlier points left it;
    /// otherwise each has a new world.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_world: bool,
    /// Size of the cache, for the LRU simulation and for the cache fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_size: Option<Bytes>,
    /// Peak request rate of one client.
    #[serde(default = "default_client_rate")]
    pub client_rate: RequestRate,
    /// Limit for a complete response.
    #[serde(with = "units::time::text", default = "default_timeout")]
    pub timeout: Duration,
    /// Limit for establishing a connection.
    #[serde(with = "units::time::text", default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// An origin that runs already, `ADDRESS:PORT`: `yamabiko serve --workload` with the same workload and seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_at: Option<SocketAddr>,
    /// TLS settings for a reverse proxy; rejected with any other cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
}

/// Position of the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum CachePosition {
    /// Forward proxy, chosen by the virtual users.
    Forward(Proxy),
    /// Reverse proxy in front of the origin, at this URL.
    Reverse(String),
    /// No cache: virtual users request from the origin.
    Direct,
}

/// Share of failures that ends a point, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StopErrors(pub Option<Probability>);

impl Default for StopErrors {
    /// 50 %, as in the school gateway paper.
    fn default() -> Self {
        StopErrors(Probability::new(0.5))
    }
}

impl FromStr for StopErrors {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed.trim() {
            "none" => Ok(StopErrors(None)),
            share => match share.parse::<Probability>() {
                Ok(share) if share.value() > 0.0 => Ok(StopErrors(Some(share))),
                Ok(_) => Err("a share of 0 would end every point immediately; `none` disables the limit".into()),
                Err(error) => Err(format!("{error}, or `none`")),
            },
        }
    }
}

impl TryFrom<String> for StopErrors {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<StopErrors> for String {
    fn from(stop: StopErrors) -> String {
        stop.to_string()
    }
}

impl fmt::Display for StopErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(share) => write!(f, "{}", share.value()),
            None => f.write_str("none"),
        }
    }
}

/// Parses a list of rates: `5,10,15/s`. The unit of the last applies to all without one.
///
/// # Errors
/// One sentence.
pub fn rates(typed: &str) -> Result<Vec<RequestRate>, String> {
    let unit = typed.trim().rsplit_once('/').map(|(_, unit)| format!("/{unit}"));
    let rate = |text: &str| -> Result<RequestRate, String> {
        let text = match &unit {
            Some(unit) if !text.contains('/') => format!("{text}{unit}"),
            _ => text.to_owned(),
        };
        text.parse::<RequestRate>().map_err(|error| error.to_string())
    };
    typed.split(',').map(str::trim).map(rate).collect()
}

/// The workload of the school gateway paper.
pub const DEFAULT_WORKLOAD: &str = "polymix-1";
/// The rates of the school gateway paper.
pub const RATES_PER_S: [f64; 8] = [5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 80.0];
/// Default length of a point.
pub const POINT: Duration = Duration::from_secs(60);
/// Length of a point in the school gateway paper.
pub const POINT_FULL: Duration = Duration::from_secs(30 * 60);
/// Default response timeout.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Response timeout with `--full`. The school gateway paper reports means of 79 s; its timeout is not published.
pub const TIMEOUT_FULL: Duration = Duration::from_secs(180);
/// Default factor of a schedule's lengths.
pub const TIME_SCALE: f64 = 1.0 / 60.0;
/// Limit of the number of points.
const POINTS_MAX: usize = 100;
/// Shortest point.
const POINT_MIN: Duration = Duration::from_secs(1);

fn default_name() -> String {
    "cache".into()
}

fn default_seed() -> u64 {
    1
}

fn default_rates() -> Vec<RequestRate> {
    RATES_PER_S.iter().filter_map(|&rate| RequestRate::from_per_second(rate)).collect()
}

fn default_point() -> Duration {
    POINT
}

/// As in PolyMix-1.
fn default_warmup() -> Probability {
    Probability::new(0.1).expect("a share")
}

fn default_scale() -> f64 {
    TIME_SCALE
}

/// Independent users (our choice).
fn default_arrivals() -> ArrivalKind {
    ArrivalKind::Poisson
}

fn default_client_rate() -> RequestRate {
    RequestRate::from_per_second(1.0).expect("a rate")
}

fn default_timeout() -> Duration {
    TIMEOUT
}

fn default_connect_timeout() -> Duration {
    parse_duration("10s").expect("a duration")
}

impl Default for SweepPlan {
    /// The rates of the school gateway paper, a minute each; no cache is set.
    fn default() -> Self {
        SweepPlan {
            proxy: None,
            reverse: None,
            direct: false,
            rates: default_rates(),
            point: default_point(),
            warmup: default_warmup(),
            stop_errors: StopErrors::default(),
            schedule: PolygraphSchedule::default(),
            time_scale: default_scale(),
            phases: Vec::new(),
            arrivals: default_arrivals(),
            clients: None,
            keep_world: false,
            cache_size: None,
            client_rate: default_client_rate(),
            timeout: default_timeout(),
            connect_timeout: default_connect_timeout(),
            origin_at: None,
            tls: None,
        }
    }
}

impl CachePlan {
    /// The default plan for this cache.
    pub fn new(cache: SweepPlan) -> Self {
        CachePlan {
            name: default_name(),
            seed: default_seed(),
            cache,
            workload: CacheWorkloadPlan { name: Some(DEFAULT_WORKLOAD.to_owned()), ..CacheWorkloadPlan::default() },
            origin: OriginPlan::default(),
            path: None,
            server: None,
            target: TargetPlan::default(),
            watch: WatchPlan::default(),
            host: HostPlan::default(),
        }
    }

    /// Reads a plan from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// Syntax, unknown keys, values out of range, and what [`CachePlan::check`] refuses.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, PlanError> {
        let mut plan: CachePlan = toml::from_str(text).map_err(|error| PlanError::Unreadable {
            origin: origin.to_owned(),
            line: 1 + error.span().map_or(0, |span| text.bytes().take(span.start).filter(|&b| b == b'\n').count()),
            message: error.message().trim().replace('\n', "; "),
        })?;
        if plan.workload.name.is_none() && plan.workload.file.is_none() {
            plan.workload.name = Some(DEFAULT_WORKLOAD.to_owned());
        }
        let written = toml::from_str::<toml::Table>(text).ok().and_then(|table| table.get("cache").cloned());
        let is_written = |key: &str| written.as_ref().is_some_and(|cache| cache.get(key).is_some());
        if let Some(key) = plan.cache.unused_keys().iter().find(|key| is_written(key)) {
            return Err(PlanError::Contradiction(plan.cache.unused(key)));
        }
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML, readable by [`CachePlan::from_toml`], without keys that have no effect.
    pub fn to_toml(&self) -> String {
        let mut table = toml::Table::try_from(self).expect("a plan is plain tables of text and numbers");
        if let Some(toml::Value::Table(cache)) = table.get_mut("cache") {
            self.cache.unused_keys().iter().for_each(|&key| drop(cache.remove(key)));
        }
        toml::to_string_pretty(&table).expect("a plan is plain tables of text and numbers")
    }

    /// Resolves relative file names, and `$PLAN_FOLDER` in the server's command, against `folder`, the folder of the
    /// plan file.
    pub fn find_files_from(&mut self, folder: &Path) {
        let tls = self.cache.tls.iter_mut();
        let tls = tls.flat_map(|tls| [&mut tls.cacert, &mut tls.cert, &mut tls.key].into_iter().flatten());
        for file in self.workload.file.iter_mut().chain(tls).filter(|file| file.is_relative()) {
            *file = folder.join(&*file);
        }
        if let Some(path) = &mut self.path {
            path.find_files_from(folder);
        }
        if let Some(server) = &mut self.server {
            server.command = plan::in_folder(&server.command, folder);
        }
    }

    /// Position of the cache.
    ///
    /// # Errors
    /// None or several are given.
    pub fn position(&self) -> Result<CachePosition, String> {
        let cache = &self.cache;
        match (&cache.proxy, &cache.reverse, cache.direct) {
            (Some(proxy), None, false) => Ok(CachePosition::Forward(proxy.clone())),
            (None, Some(url), false) => Ok(CachePosition::Reverse(url.clone())),
            (None, None, true) => Ok(CachePosition::Direct),
            (None, None, false) => {
                Err("no cache is given: expected proxy = \"HOST:PORT\" (--proxy) for a forward proxy, \
                     reverse = \"http://HOST:PORT\" (--reverse) for a reverse proxy, or direct = true (--direct) for \
                     none"
                    .into())
            }
            _ => Err("proxy (--proxy), reverse (--reverse) and direct (--direct) exclude each other: give one".into()),
        }
    }

    /// Rejects contradictions. The plans of the points are checked when they are made.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        self.contradiction().map_or(Ok(()), |why| Err(PlanError::Contradiction(why)))
    }
}

impl SweepPlan {
    /// Whether a point has one constant rate.
    pub fn is_constant(&self) -> bool {
        self.schedule == PolygraphSchedule::Constant && self.phases.is_empty()
    }
}

/// Whether the URL of a reverse proxy is https, and its host and port; `None` if it is not `http[s]://HOST[:PORT]`.
pub fn reverse_parts(url: &str) -> Option<(bool, &str)> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let usual = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    (!authority.is_empty() && authority.chars().all(usual)).then_some((secure, authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CachePlan, String> {
        CachePlan::from_toml(text, "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn one_line_plan_is_the_sweep_of_the_school_gateway_paper_and_round_trips() {
        let plan = read("cache.proxy = \"127.0.0.1:3128\"").unwrap();
        assert_eq!(plan.cache.rates.iter().map(|rate| rate.per_second()).collect::<Vec<_>>(), RATES_PER_S);
        assert_eq!((plan.cache.point, plan.cache.stop_errors), (POINT, StopErrors::default()));
        assert_eq!(read(&plan.to_toml()).unwrap(), plan);
    }

    #[test]
    fn every_key_of_a_sweep_plan_round_trips() {
        let text = "name = \"x\"\nseed = 7\n[cache]\nreverse = \"http://127.0.0.1:80\"\nrates = [\"5/s\", \"80/s\"]\n\
                    stop_errors = \"none\"\ncache_size = \"64MB\"\nclients = 3\n\
                    timeout = \"3m\"\nclient_rate = \"2/s\"\narrivals = \"constant\"\n\
                    [[cache.phase]]\nname = \"teacher\"\nduration = \"5s\"\nload = 0.5\nrecurrence = [0, 0]\n\
                    [[cache.phase]]\nname = \"class\"\nduration = \"9s\"\nload = 0.5\nload_to = 1.0\nmeasured = true\n\
                    grows = false\nspecial = [0.0, 1.0]\n[origin]\nlisten = \"127.0.0.1:8400\"\n\
                    [workload]\nname = \"polymix-4\"\nset = { recurrence = 0.5 }\n";
        let plan = read(text).unwrap();
        assert_eq!(plan.cache.stop_errors, StopErrors(None));
        assert_eq!(plan.cache.phases[1].load_to, Some(1.0));
        assert_eq!(read(&plan.to_toml()).unwrap(), plan);
        // Keys of a point without phases.
        let text = "[cache]\nproxy = \"127.0.0.1:80\"\npoint = \"10s\"\nwarmup = \"20%\"\nkeep_world = true\n";
        let plan = read(text).unwrap();
        assert_eq!((plan.cache.point, plan.cache.warmup.value()), (Duration::from_secs(10), 0.2));
        assert_eq!(read(&plan.to_toml()).unwrap(), plan);
    }

    #[test]
    fn unit_of_the_last_rate_applies_to_all() {
        let read =
            |typed: &str| rates(typed).map(|rates| rates.iter().map(|rate| rate.per_second()).collect::<Vec<_>>());
        assert_eq!(read("5,10, 15/s").unwrap(), [5.0, 10.0, 15.0]);
        assert_eq!(read("60/m,2/s").unwrap(), [1.0, 2.0]);
        assert!(read("5,10").unwrap_err().contains("110/s"));
        assert!(read("5,,10/s").is_err());
    }
}
