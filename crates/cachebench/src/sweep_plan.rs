//! A sweep as meant: the file with a `[cache]` table, complete, so that the same file makes the same sweep.

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

use super::phases::{PhaseOfPoint, PolygraphSchedule};

/// A sweep of rates against a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePlan {
    /// Becomes part of the names of the run folders.
    #[serde(default = "default_name")]
    pub name: String,
    /// Seed of every random choice.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// What is measured, and how.
    pub cache: SweepPlan,
    /// The model of what is asked for.
    #[serde(default)]
    pub workload: CacheWorkloadPlan,
    /// The origin behind the cache.
    #[serde(default)]
    pub origin: OriginPlan,
    /// The distances; absent: robots talk to the cache directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
    /// The cache that the lab starts, anew for each point; absent: it is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
    /// Where the cache is, where its name alone does not say.
    #[serde(default)]
    pub target: TargetPlan,
    /// The second witness.
    #[serde(default)]
    pub watch: WatchPlan,
    /// How the loop waits and where things run.
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
    /// A reverse proxy, `http://HOST:PORT` or `https`: it is configured to fetch from the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<String>,
    /// No cache at all: robots ask the origin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Offered requests a second, a point each, in this order.
    #[serde(default = "default_rates")]
    pub rates: Vec<RequestRate>,
    /// Length of a point, its warm-up included. Not of one with a schedule or phases, which have lengths of their own: a plan
    /// that gives both is refused, and there it is not written.
    #[serde(with = "units::time::text", default = "default_point")]
    pub point: Duration,
    /// Share of a point before its measured phase. As `point` not of one with a schedule or phases.
    #[serde(default = "default_warmup")]
    pub warmup: Probability,
    /// Share of failures among what ended of late that ends a point, or `none`.
    #[serde(default)]
    pub stop_errors: StopErrors,
    /// The schedule of a point.
    #[serde(default)]
    pub schedule: PolygraphSchedule,
    /// Factor of the schedule's lengths. Without a schedule refused, and not written.
    #[serde(default = "default_scale")]
    pub time_scale: f64,
    /// Phases of the user's own instead of a schedule.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseOfPoint>,
    /// How arrivals are spaced.
    #[serde(default = "default_arrivals")]
    pub arrivals: ArrivalKind,
    /// Robots; absent: the rate over the workload's rate of a client, and where the workload has none 100 with a path, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Whether all points ask for the objects of one world, so that each finds what those before it left in the cache;
    /// otherwise each has a world of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_world: bool,
    /// Size of the cache, for the simulation that forgets, and for filling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_size: Option<Bytes>,
    /// Requests a second of a seat at its peak.
    #[serde(default = "default_client_rate")]
    pub client_rate: RequestRate,
    /// Bound on a whole answer.
    #[serde(with = "units::time::text", default = "default_timeout")]
    pub timeout: Duration,
    /// Bound on a connection.
    #[serde(with = "units::time::text", default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// An origin that runs already, `ADDRESS:PORT`: `yamabiko serve --workload` with the same workload and seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_at: Option<SocketAddr>,
    /// How a reverse proxy is spoken to over https; refused with any other cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
}

/// Where the cache stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Front {
    /// Between robots that know it and any origin.
    Forward(Proxy),
    /// In front of our origin, at this URL.
    Reverse(String),
    /// Nowhere: robots ask the origin.
    Direct,
}

/// Share of failures that ends a point; `none`: no share does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StopErrors(pub Option<Probability>);

impl Default for StopErrors {
    /// The school gateway's 50 %.
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
                Ok(_) => Err("a share of 0 would end every point at once; `none` ends none".into()),
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

/// Rates as typed on one line: `5,10,15/s`; the unit may stand behind the last alone.
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

/// The school gateway's workload.
pub const DEFAULT_WORKLOAD: &str = "polymix-1";
/// The school gateway's rates.
pub const RATES_PER_S: [f64; 8] = [5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 80.0];
/// A point by default.
pub const POINT: Duration = Duration::from_secs(60);
/// A point of the school gateway's paper.
pub const POINT_FULL: Duration = Duration::from_secs(30 * 60);
/// Bound on an answer within a point of a minute.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The school gateway's paper shows means of 79 s, so that its bound was longer; which it was is not known.
pub const TIMEOUT_FULL: Duration = Duration::from_secs(180);
/// Of a schedule, unless it is asked for in full.
pub const TIME_SCALE: f64 = 1.0 / 60.0;
/// More points than anybody waits for.
const POINTS_MAX: usize = 100;
/// Shorter points say nothing.
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

/// PolyMix-1 leaves the first tenth out.
fn default_warmup() -> Probability {
    Probability::new(0.1).expect("a share")
}

fn default_scale() -> f64 {
    TIME_SCALE
}

/// Independent users (ours).
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
    /// The school gateway's rates, a minute each, against nothing yet.
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
    /// Everything at its default, of this cache.
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

    /// Whether a plan file is one of these: it has a table `cache`.
    pub fn is_one(text: &str) -> bool {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("cache"))
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
        if let Some(key) = plan.cache.idle_keys().iter().find(|key| is_written(key)) {
            return Err(PlanError::Contradiction(plan.cache.idle(key)));
        }
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML, readable by [`CachePlan::from_toml`]. What would do nothing is not written.
    pub fn to_toml(&self) -> String {
        let mut table = toml::Table::try_from(self).expect("a plan is plain tables of text and numbers");
        if let Some(toml::Value::Table(cache)) = table.get_mut("cache") {
            self.cache.idle_keys().iter().for_each(|&key| drop(cache.remove(key)));
        }
        toml::to_string_pretty(&table).expect("a plan is plain tables of text and numbers")
    }

    /// Makes paths in it relative to `folder`, where the plan's own file is; also what the server's command calls `$PLAN_FOLDER`.
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

    /// Where the cache stands.
    ///
    /// # Errors
    /// None or several are named.
    pub fn front(&self) -> Result<Front, String> {
        let cache = &self.cache;
        match (&cache.proxy, &cache.reverse, cache.direct) {
            (Some(proxy), None, false) => Ok(Front::Forward(proxy.clone())),
            (None, Some(url), false) => Ok(Front::Reverse(url.clone())),
            (None, None, true) => Ok(Front::Direct),
            (None, None, false) => {
                Err("where is the cache? proxy = \"HOST:PORT\" (--proxy) for one that robots are told of, \
                     reverse = \"http://HOST:PORT\" (--reverse) for one in front of the origin; direct = true (--direct) for \
                     none"
                    .into())
            }
            _ => Err("proxy (--proxy), reverse (--reverse) and direct (--direct) exclude each other: leave one".into()),
        }
    }

    /// Refuses what cannot be meant. What the runs of the points would refuse is refused when they are made.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        self.contradiction().map_or(Ok(()), |why| Err(PlanError::Contradiction(why)))
    }
}

impl SweepPlan {
    /// Whether a point is one rate for its whole length.
    pub fn is_constant(&self) -> bool {
        self.schedule == PolygraphSchedule::Constant && self.phases.is_empty()
    }
}

/// Whether a reverse proxy's URL is https, and its host and port; `None` where it is no `http[s]://HOST[:PORT]`.
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
    fn a_plan_of_one_line_is_p5s_sweep_and_reads_back() {
        let plan = read("cache.proxy = \"127.0.0.1:3128\"").unwrap();
        assert_eq!(plan.cache.rates.iter().map(|rate| rate.per_second()).collect::<Vec<_>>(), RATES_PER_S);
        assert_eq!((plan.cache.point, plan.cache.stop_errors), (POINT, StopErrors::default()));
        assert_eq!(read(&plan.to_toml()).unwrap(), plan);
        assert!(CachePlan::is_one("cache.proxy = \"h:1\""));
        assert!(!CachePlan::is_one("[load]\nurl = \"http://h/\"\n"));
    }

    #[test]
    fn every_key_reads_back() {
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
        // Those of a point without phases.
        let text = "[cache]\nproxy = \"127.0.0.1:80\"\npoint = \"10s\"\nwarmup = \"20%\"\nkeep_world = true\n";
        let plan = read(text).unwrap();
        assert_eq!((plan.cache.point, plan.cache.warmup.value()), (Duration::from_secs(10), 0.2));
        assert_eq!(read(&plan.to_toml()).unwrap(), plan);
    }

    #[test]
    fn rates_share_a_unit() {
        let read =
            |typed: &str| rates(typed).map(|rates| rates.iter().map(|rate| rate.per_second()).collect::<Vec<_>>());
        assert_eq!(read("5,10, 15/s").unwrap(), [5.0, 10.0, 15.0]);
        assert_eq!(read("60/m,2/s").unwrap(), [1.0, 2.0]);
        assert!(read("5,10").unwrap_err().contains("110/s"));
        assert!(read("5,,10/s").is_err());
    }
}
