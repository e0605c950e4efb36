//! The `[capacity]` table: data only, the search is an experiment of its own.

mod check;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
#[cfg(feature = "cli")]
use units::parse_duration;
use units::{Probability, RequestRate};

#[cfg(feature = "cli")]
use super::cli::{Given, think};
use super::{LoadPlan, Plan, ThinkPlan};

/// The quantity to find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Find {
    /// The highest offered rate of an open loop.
    #[default]
    Rate,
    /// The most users, each of whom requests, waits and thinks.
    Users,
    /// The most idle open connections, with a light load over them.
    Connections,
    /// The highest rate of new connections, one per request.
    NewConnections,
}

impl Find {
    /// All quantities.
    pub const ALL: [Find; 4] = [Find::Rate, Find::Users, Find::Connections, Find::NewConnections];

    /// Name in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Find::Rate => "rate",
            Find::Users => "users",
            Find::Connections => "connections",
            Find::NewConnections => "new-connections",
        }
    }

    /// Unit of its loads: `1/s`, `users` or `connections`.
    pub const fn unit(self) -> &'static str {
        match self {
            Find::Rate | Find::NewConnections => "1/s",
            Find::Users => "users",
            Find::Connections => "connections",
        }
    }

    /// Whether a load is a rate, otherwise a whole number.
    pub const fn is_rate(self) -> bool {
        matches!(self, Find::Rate | Find::NewConnections)
    }
}

impl FromStr for Find {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let found = Find::ALL.into_iter().find(|find| find.name() == typed);
        found.ok_or_else(|| format!("`{}`: expected rate, users, connections or new-connections", typed.escape_debug()))
    }
}

/// A load as typed: `100/s`, or a number of users or connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a load is a rate such as \"100/s\", or a whole number of users or connections")]
pub enum LoadLimit {
    /// A rate per second.
    Rate(RequestRate),
    /// A whole number.
    Number(u32),
}

impl LoadLimit {
    /// The value in the unit of the search.
    pub fn value(self) -> f64 {
        match self {
            LoadLimit::Rate(rate) => rate.per_second(),
            LoadLimit::Number(number) => f64::from(number),
        }
    }
}

impl FromStr for LoadLimit {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match units::parse_count_u32(typed) {
            Ok(number) => Ok(LoadLimit::Number(number)),
            Err(_) => typed.parse().map(LoadLimit::Rate).map_err(|error: units::ParseError| {
                format!("{error}; for users and connections give a whole number, such as 1000")
            }),
        }
    }
}

impl fmt::Display for LoadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadLimit::Rate(rate) => rate.fmt(f),
            LoadLimit::Number(number) => number.fmt(f),
        }
    }
}

/// The load of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialLoad {
    /// An open loop at a rate.
    Rate(RequestRate),
    /// An open loop at a rate, with one connection per request.
    NewConnections(RequestRate),
    /// A number of users.
    Users(u32),
    /// A number of idle open connections, with an open loop over them.
    Connections(u32, RequestRate),
}

/// The search for the highest load that meets the objective: a rate, or another quantity (`find`). Such a plan has
/// `slo` and a `[load]` without rate and length, since the search chooses these; everything else is as in any other
/// plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Search"))]
pub struct CapacityPlan {
    /// Find the most of this: rate, users, connections (open at the same time) or new-connections (a second) [default:
    /// rate]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHAT", default_value = "rate", hide_default_value = true))]
    pub find: Find,
    /// Let each user think this long between a response and the next request: 7s, or exponential:7s [with --find users]
    // Plan: Absent: as the steps of `[[load.session]]` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = think, allow_hyphen_values = true))]
    pub think: Option<ThinkPlan>,
    /// Send a request over each connection once in this time [with --find connections; default: 60s]
    // Plan: Or more often, where the objective needs more requests.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true))]
    pub each_every: Option<Duration>,
    /// Length of a trial of a search [default: 60s]
    // Plan: At least `short`. An overload of a share e stays below a response time of L for L / e, so short trials miss
    // Plan: overloads.
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "60s", hide_default_value = true))]
    pub trial: Duration,
    /// Length of a trial of the first stage, which brackets the result [default: 10s]
    // Plan: 500 ms or more.
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "10s", hide_default_value = true))]
    pub short: Duration,
    /// Length of the confirmation at the result and at nine tenths of it; 0s for none [default: 60s]
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "60s", hide_default_value = true))]
    pub confirm: Duration,
    /// Stop when the loads that passed and failed differ by no more than this [default: 2%]
    // Plan: 0.1 % to 50 %.
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "2%", hide_default_value = true))]
    pub width: Probability,
    /// Number of searches with long trials, for a confidence interval [default: 3]
    // Plan: 1 to 20.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value_t = 3, hide_default_value = true))]
    pub searches: u32,
    /// Make one search with trials of 20s: a bracket instead of an interval
    // On the command line only: [`CapacityPlan::quick`].
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(id = "quick", long = "quick", conflicts_with = "searches"))]
    pub is_quick: bool,
    /// Start at this load: a rate, or a number of users or connections [default: half of a closed loop's throughput; 64
    /// connections]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LOAD", allow_hyphen_values = true))]
    pub start: Option<LoadLimit>,
    /// Try no load above this one
    // Plan: Absent: as much as the generator can make.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LOAD", allow_hyphen_values = true))]
    pub max: Option<LoadLimit>,
    /// Search at each of these distances, such as lan,rtt:48ms,rtt:48ms+loss:1%,koshien-2001
    // Plan: None: that of `[path]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORDS", value_delimiter = ',', conflicts_with = "path"))]
    pub each: Vec<String>,
    /// Omit the trials at 1.2 and 2 times the result
    #[cfg_attr(feature = "cli", arg(long = "no-overload", action = clap::ArgAction::SetFalse))]
    pub overload: bool,
    /// Omit the search for the generator's own limit
    // Plan: Measured where `serve --max` can replace the server.
    #[cfg_attr(feature = "cli", arg(long = "no-limit", action = clap::ArgAction::SetFalse))]
    pub limit: bool,
}

impl Default for CapacityPlan {
    fn default() -> Self {
        CapacityPlan {
            find: Find::Rate,
            think: None,
            each_every: None,
            trial: Duration::from_secs(60),
            short: Duration::from_secs(10),
            confirm: Duration::from_secs(60),
            width: Probability::new(0.02).expect("a share"),
            searches: 3,
            is_quick: false,
            start: None,
            max: None,
            each: Vec::new(),
            overload: true,
            limit: true,
        }
    }
}

impl CapacityPlan {
    /// A shorter search: three minutes instead of a quarter of an hour, and a bracket instead of an interval.
    pub fn quick() -> Self {
        CapacityPlan {
            short: Duration::from_secs(5),
            trial: Duration::from_secs(20),
            confirm: Duration::from_secs(20),
            searches: 1,
            ..CapacityPlan::default()
        }
    }

    /// The typed options, over a file's table or the defaults.
    #[cfg(feature = "cli")]
    pub fn over(&self, file: Option<CapacityPlan>, given: &Given) -> CapacityPlan {
        let file = file.unwrap_or_default();
        let base = if self.is_quick {
            let CapacityPlan { short, trial, confirm, searches, .. } = CapacityPlan::quick();
            CapacityPlan { short, trial, confirm, searches, ..file }
        } else {
            file
        };
        let mut search = given.over(self, &base);
        // Lengths that were not typed follow the typed length of a trial.
        if !given.has("short") {
            search.short = base.short.min(search.trial);
        }
        if !given.has("confirm") && !base.confirm.is_zero() {
            search.confirm = base.confirm.max(search.trial);
        }
        search
    }

    /// Least length of a short trial: twice five spans of the growth estimate.
    pub const SHORT_MIN: Duration = Duration::from_millis(500);
    /// Longest trial.
    pub const TRIAL_MAX: Duration = Duration::from_secs(3600);
    /// Default interval between the requests of an idle open connection.
    const REQUEST_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
    /// Least number of cycles in a trial of users; fewer give no stable mean.
    pub const TURNS_MIN: u32 = 3;

    /// Interval between the requests of an idle open connection.
    pub fn each_every(&self) -> Duration {
        self.each_every.unwrap_or(Self::REQUEST_INTERVAL_DEFAULT)
    }
}

impl Plan {
    /// The plan of a single trial: a load, a length, no search.
    pub fn of_trial(&self, load: TrialLoad, lasts: Duration) -> Plan {
        let mut trial = Plan { capacity: None, ..self.clone() };
        trial.load.duration = Some(lasts);
        match load {
            TrialLoad::Rate(rate) => trial.load.rate = Some(rate),
            TrialLoad::NewConnections(rate) => (trial.load.rate, trial.load.close) = (Some(rate), true),
            TrialLoad::Users(users) => {
                if let Some(think) = self.capacity.as_ref().and_then(|capacity| capacity.think.as_ref()) {
                    trial.load.ask_thinking(think);
                }
                trial.load.connections = Some(users);
                trial.load.clients = users.clamp(1, ::path::AddressPlan::CLIENTS_MAX);
                trial.load.users_over = trial.load.users_begin_over();
            }
            TrialLoad::Connections(number, rate) => {
                (trial.load.rate, trial.load.open_connections) = (Some(rate), Some(number));
                // A client without an open connection would open another.
                trial.load.clients = trial.load.clients.min(number.max(1));
            }
        }
        trial
    }
}

impl LoadPlan {
    /// Time over which users start, so that their requests are not simultaneous; `None` where think times spread them.
    fn users_begin_over(&self) -> Option<Duration> {
        /// Longest start-up; the requests of longer sessions are spread enough.
        const START_UP_MAX: Duration = Duration::from_secs(60);
        let turn = self.turn().filter(|turn| !turn.begins_spread && !turn.lasts.is_zero())?;
        Some(turn.lasts.min(START_UP_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://127.0.0.1:8080/\"\n[capacity]\n";

    #[test]
    fn empty_capacity_table_has_defaults_and_round_trips() {
        let plan = Plan::from_toml(PLAN, "plan").unwrap();
        assert_eq!(plan.capacity, Some(CapacityPlan::default()));
        let again = Plan::from_toml(&plan.to_toml(), "again").unwrap();
        assert_eq!(again, plan);
        let quick = Plan { capacity: Some(CapacityPlan::quick()), ..plan };
        assert_eq!(Plan::from_toml(&quick.to_toml(), "quick").unwrap(), quick);
    }

    #[test]
    fn options_that_capacity_chooses_are_refused() {
        for (more, word) in [
            ("rate = \"10/s\"\n", "capacity searches for"),
            ("duration = \"1s\"\n", "-d"),
            ("[watch]\ntap = true\n", "--tap"),
        ] {
            let text = PLAN.replace("[capacity]", &format!("{more}[capacity]"));
            let error = Plan::from_toml(&text, "plan").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let without = PLAN.replace("slo = \"p99 < 200ms\"\n", "");
        assert!(Plan::from_toml(&without, "plan").unwrap_err().to_string().contains("--slo"));
        let errors = PLAN.replace("p99 < 200ms", "errors < 1%");
        assert!(Plan::from_toml(&errors, "plan").unwrap_err().to_string().contains("response times"));
        for (wrong, word) in [
            ("short = \"100ms\"", "--short"),
            ("trial = \"5s\"", "--trial"),
            ("confirm = \"30s\"", "--confirm"),
            ("width = 0.9", "--width"),
            ("searches = 0", "--searches"),
            ("start = \"10/s\"\nmax = \"5/s\"", "--max"),
            ("wdith = 0.1", "wdith"),
        ] {
            let error = Plan::from_toml(&format!("{PLAN}{wrong}\n"), "plan").unwrap_err().to_string();
            assert!(error.contains(word), "{wrong}: {error}");
        }
        assert!(Plan::from_toml(&format!("{PLAN}confirm = \"0s\"\n"), "plan").is_ok());
    }

    #[test]
    fn trial_is_a_plan_with_its_own_load_and_length() {
        let plan = Plan::from_toml(PLAN, "plan").unwrap();
        let rate = RequestRate::from_per_second(12.5).unwrap();
        let trial = plan.of_trial(TrialLoad::Rate(rate), Duration::from_secs(3));
        trial.check().unwrap();
        assert_eq!(trial.capacity, None);
        assert_eq!((trial.load.rate.unwrap().per_second(), trial.load.duration), (12.5, Some(Duration::from_secs(3))));
        let open = plan.of_trial(TrialLoad::Connections(50, rate), Duration::from_secs(3));
        open.check().unwrap();
        assert_eq!((open.load.open_connections, open.load.is_open()), (Some(50), true));
        assert!(plan.of_trial(TrialLoad::NewConnections(rate), Duration::from_secs(3)).load.close);
    }

    #[test]
    fn users_are_separate_clients_with_staggered_starts() {
        let plan = |think: &str| {
            let text = format!("{PLAN}find = \"users\"\nthink = {think}\nmax = 500\n");
            let plan = Plan::from_toml(&text, "plan").unwrap();
            assert_eq!(Plan::from_toml(&plan.to_toml(), "again").unwrap(), plan);
            let trial = plan.of_trial(TrialLoad::Users(120), Duration::from_secs(30));
            trial.check().unwrap();
            assert_eq!((trial.load.connections, trial.load.clients, trial.load.is_open()), (Some(120), 120, false));
            trial.load.users_over
        };
        assert_eq!(plan("\"7s\""), Some(Duration::from_secs(7)));
        // Exponential think times have no memory, so the users are spread from the start.
        assert_eq!(plan("{ exponential = { mean = \"7s\", max = \"70s\" } }"), None);
    }

    #[test]
    fn options_that_do_not_fit_the_quantity_are_refused() {
        let sessions = "[[load.request]]\nname = \"a\"\nurl = \"/\"\n[[load.session]]\nsteps = [{ request = \"a\", think = \"1s\" }]\n";
        for (load, capacity, word) in [
            ("", "find = \"user\"", "connections"),
            ("", "find = \"users\"", "--think"),
            ("", "find = \"users\"\nthink = \"0s\"", "above 0"),
            ("", "find = \"users\"\nthink = \"1h\"", "20 minutes"),
            ("", "think = \"7s\"", "--find users"),
            ("", "each_every = \"7s\"", "--find connections"),
            ("", "find = \"connections\"\nthink = \"7s\"", "--find users"),
            ("", "find = \"connections\"\neach_every = \"2h\"", "--each-every"),
            ("", "find = \"connections\"\nstart = \"10/s\"", "whole number"),
            ("", "find = \"connections\"\nmax = 0", "1 or more"),
            ("", "start = 10", "10/s"),
            ("", "find = \"users\"\nthink = \"1s\"\nstart = 10\nmax = 5", "above max"),
            ("clients = 7\n", "find = \"users\"\nthink = \"7s\"", "--clients"),
            ("connections = 7\n", "find = \"users\"\nthink = \"7s\"", "-c"),
            ("close = true\n", "find = \"users\"\nthink = \"7s\"", "--close"),
            ("close = true\n", "find = \"connections\"", "--close"),
            ("open_connections = 7\n", "find = \"connections\"", "--open-connections"),
            ("http = \"2\"\n", "find = \"connections\"", "HTTP/2"),
            ("http = \"2\"\n", "find = \"new-connections\"", "HTTP/2"),
            ("http = \"3\"\n", "find = \"new-connections\"", "HTTP/3"),
            ("open_connections = 7\n", "find = \"new-connections\"", "--open-connections"),
            (sessions, "find = \"users\"\nthink = \"7s\"", "both set"),
            (sessions, "find = \"connections\"", "sessions"),
            (sessions, "find = \"new-connections\"", "sessions"),
        ] {
            let text = PLAN.replace("[capacity]\n", &format!("{load}[capacity]\n{capacity}\n"));
            let error = Plan::from_toml(&text, "plan").unwrap_err().to_string();
            assert!(error.contains(word), "{load}{capacity}: {error}");
        }
        let text = PLAN.replace("/\"\n[capacity]\n", &format!("\"\n{sessions}[capacity]\nfind = \"users\"\n"));
        Plan::from_toml(&text, "plan").unwrap();
    }
}
