//! What `capacity` seeks, `[capacity]`: data only, the search is a suite.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Probability, RequestRate};

use super::{HttpVersion, LoadPlan, Plan, PlanError, ThinkPlan};

/// What is sought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Find {
    /// The highest offered rate of an open loop.
    #[default]
    Rate,
    /// The most users who think, ask and wait.
    Users,
    /// The most connections in process that are held open, with a light load over them.
    Connections,
    /// The highest rate of new connections, one a request.
    NewConnections,
}

impl Find {
    /// Every one.
    pub const ALL: [Find; 4] = [Find::Rate, Find::Users, Find::Connections, Find::NewConnections];

    /// As in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Find::Rate => "rate",
            Find::Users => "users",
            Find::Connections => "connections",
            Find::NewConnections => "new-connections",
        }
    }

    /// What its loads are counted in: `1/s`, `users` or `connections`.
    pub const fn unit(self) -> &'static str {
        match self {
            Find::Rate | Find::NewConnections => "1/s",
            Find::Users => "users",
            Find::Connections => "connections",
        }
    }

    /// Whether a load is a rate; else it is a whole number.
    pub const fn is_rate(self) -> bool {
        matches!(self, Find::Rate | Find::NewConnections)
    }
}

impl FromStr for Find {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let found = Find::ALL.into_iter().find(|find| find.name() == typed);
        found
            .ok_or_else(|| format!("`{}`: rate, users, connections or new-connections is wanted", typed.escape_debug()))
    }
}

/// A load as typed: `100/s`, or a number of users or connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a load is a rate such as \"100/s\", or of users and connections a whole number")]
pub enum SoughtLoad {
    /// A number a second.
    Rate(RequestRate),
    /// A whole number.
    Number(u32),
}

impl SoughtLoad {
    /// In the unit of what is sought.
    pub fn value(self) -> f64 {
        match self {
            SoughtLoad::Rate(rate) => rate.per_second(),
            SoughtLoad::Number(number) => f64::from(number),
        }
    }
}

impl FromStr for SoughtLoad {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match units::parse_count_u32(typed) {
            Ok(number) => Ok(SoughtLoad::Number(number)),
            Err(_) => typed.parse().map(SoughtLoad::Rate).map_err(|error: units::ParseError| {
                format!("{error}; of users and connections a whole number, such as 1000")
            }),
        }
    }
}

impl fmt::Display for SoughtLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SoughtLoad::Rate(rate) => rate.fmt(f),
            SoughtLoad::Number(number) => number.fmt(f),
        }
    }
}

/// The load of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialLoad {
    /// An open loop at a rate.
    Rate(RequestRate),
    /// The same, one connection a request.
    NewConnections(RequestRate),
    /// So many users.
    Users(u32),
    /// So many connections, held, with an open loop over them.
    Connections(u32, RequestRate),
}

/// The search for the highest load whose objective holds: a rate, or what else [`Find`] names. In such a plan `[load]` has no rate and no
/// length, since these are what a search chooses; everything else is as in any other plan, and `slo` is the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityPlan {
    /// What is sought.
    pub find: Find,
    /// Of users: how long they think before each request; absent: as the steps of `[[load.session]]` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<ThinkPlan>,
    /// Of connections: each is asked for something once in so long, or more often where so few would have too few requests for the
    /// objective; absent: 60 s.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub each_every: Option<Duration>,
    /// Length of a trial of the first, short stage, which brackets the answer: 500 ms or more.
    #[serde(with = "units::time::text")]
    pub short: Duration,
    /// Length of a trial of the searches: at least `short`. An overload of a share e stays below a response time of L for L / e, so short
    /// trials let too much pass.
    #[serde(with = "units::time::text")]
    pub trial: Duration,
    /// Length of the confirmation at the answer, and of that at nine tenths of it; zero: none is made.
    #[serde(with = "units::time::text")]
    pub confirm: Duration,
    /// A search ends when the loads on both sides of the answer differ by no more than this share: 0.1 % to 50 %.
    pub width: Probability,
    /// How often the search of long trials is made: 1 to 20.
    pub searches: u32,
    /// The first load; absent: half of what a closed loop gets in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<SoughtLoad>,
    /// The highest load that is tried; absent: whatever the generator can make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<SoughtLoad>,
    /// Distances to find it at, one after the other, such as `lan`, `rtt:48ms`, `koshien-2001`; none: that of `[path]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<String>,
    /// Whether to try 1.2 and 2 times the answer in the end.
    pub overload: bool,
    /// Whether to find out first how much the generator itself can make, where this program's own fastest server can stand in for the
    /// server.
    pub limit: bool,
}

impl Default for CapacityPlan {
    fn default() -> Self {
        CapacityPlan {
            find: Find::Rate,
            think: None,
            each_every: None,
            short: Duration::from_secs(10),
            trial: Duration::from_secs(60),
            confirm: Duration::from_secs(60),
            width: Probability::new(0.02).expect("a share"),
            searches: 3,
            start: None,
            max: None,
            each: Vec::new(),
            overload: true,
            limit: true,
        }
    }
}

impl CapacityPlan {
    /// A shorter one: some three minutes instead of a quarter of an hour, and an interval that is a bracket only.
    pub fn quick() -> Self {
        CapacityPlan {
            short: Duration::from_secs(5),
            trial: Duration::from_secs(20),
            confirm: Duration::from_secs(20),
            searches: 1,
            ..CapacityPlan::default()
        }
    }

    /// Least length of a short trial: five times the span by which growth is judged, twice over.
    pub const SHORT_MIN: Duration = Duration::from_millis(500);
    /// The longest trial.
    pub const TRIAL_MAX: Duration = Duration::from_secs(3600);
    /// How often each connection that is held is asked for something, where the plan does not say.
    const EACH_EVERY: Duration = Duration::from_secs(60);
    /// A trial of users lasts so many of their turns at least: in fewer there is no mean of what they come to.
    pub const TURNS_MIN: u32 = 3;

    /// How often each connection that is held is asked for something.
    pub fn each_every(&self) -> Duration {
        self.each_every.unwrap_or(Self::EACH_EVERY)
    }

    /// Refuses what cannot be meant by the plan that it belongs to.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        let load = &plan.load;
        if load.rate.is_some() {
            return refuse("rate (--rate) is what capacity seeks: leave it out (start = .. is where to begin)".into());
        }
        if !load.phases.is_empty() || load.rate_file.is_some() || load.replay.is_some() {
            return refuse(
                "capacity is sought with one rate a trial: phases, rate_file and replay have their own".into(),
            );
        }
        if load.requests.is_some() || load.duration.is_some() {
            return refuse(
                "requests and duration (-n, -d) are what capacity chooses: trial = .. (--trial) is the length of a trial".into(),
            );
        }
        if load.mix.is_some() || plan.origin.is_some() {
            return refuse(
                "the capacity of a cache under a mix is what `yamabiko cache` measures, rate by rate".into(),
            );
        }
        if plan.watch.tap {
            return refuse("tap (--tap) serves one run, and capacity makes many: leave it out".into());
        }
        let Some(slo) = &plan.slo else {
            return refuse("an objective says what too much is: give slo (--slo 'p99 < 200ms, errors < 0.1%')".into());
        };
        if slo.response_limit().is_none() {
            return refuse(format!(
                "the objective `{slo}` says nothing of response times: add one, such as p99 < 200ms"
            ));
        }
        if self.short < Self::SHORT_MIN || self.trial < self.short || self.trial > Self::TRIAL_MAX {
            return refuse(format!(
                "short = {} and trial = {} (--short, --trial): 500ms or more, the trial no shorter than the short one and at most 1h",
                units::format_duration(self.short),
                units::format_duration(self.trial)
            ));
        }
        if !self.confirm.is_zero() && self.confirm < self.trial || self.confirm > Self::TRIAL_MAX {
            return refuse(format!(
                "confirm = {} (--confirm): at least as long as a trial ({}), or 0s for none",
                units::format_duration(self.confirm),
                units::format_duration(self.trial)
            ));
        }
        if !(0.001..=0.5).contains(&self.width.value()) {
            return refuse(format!("width = {} (--width): from 0.1% to 50%", self.width));
        }
        if self.searches == 0 || self.searches > 20 {
            return refuse(format!("searches = {} (--searches): from 1 to 20", self.searches));
        }
        self.check_loads().map_err(PlanError::Contradiction)?;
        self.check_question(load).map_err(PlanError::Contradiction)?;
        // A load to check the rest of a plan with.
        let any = self.start.or(self.max);
        let (rate, number) = match any {
            Some(SoughtLoad::Rate(rate)) => (rate, 1),
            Some(SoughtLoad::Number(number)) => (RequestRate::ONE, number),
            None => (RequestRate::ONE, 1),
        };
        let any = match self.find {
            Find::Rate => TrialLoad::Rate(rate),
            Find::NewConnections => TrialLoad::NewConnections(rate),
            Find::Users => TrialLoad::Users(number),
            Find::Connections => TrialLoad::Connections(number, rate),
        };
        let trial = plan.of_trial(any, self.trial);
        trial.check()?;
        if let (Find::Users, Some(turn)) = (self.find, trial.load.turn())
            && (turn.lasts.is_zero() || turn.lasts.div_f64(turn.steps) * Self::TURNS_MIN > Self::TRIAL_MAX)
        {
            return refuse(
                "users think between an answer and the next request, for more than nothing and at most 20 minutes: give think (--think 7s), \
                 or think = .. in the steps of [[load.session]]"
                    .into(),
            );
        }
        Ok(())
    }

    /// Refuses loads in another unit than that of what is sought.
    fn check_loads(&self) -> Result<(), String> {
        for (name, load) in [("start", self.start), ("max", self.max)] {
            match (load, self.find.is_rate()) {
                (Some(SoughtLoad::Number(number)), true) => {
                    return Err(format!("{name} = {number} (--{name}): a rate is sought, so write {number}/s"));
                }
                (Some(SoughtLoad::Rate(rate)), false) => {
                    let unit = self.find.unit();
                    return Err(format!(
                        "{name} = {rate} (--{name}): {unit} are sought, so a whole number of them is wanted"
                    ));
                }
                (Some(SoughtLoad::Number(0)), false) => {
                    return Err(format!("{name} = 0 (--{name}): 1 or more is wanted"));
                }
                _ => {}
            }
        }
        match (self.start, self.max) {
            (Some(start), Some(max)) if start.value() > max.value() => {
                Err(format!("start = {start} is above max = {max} (--start, --max)"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what makes no sense for what is sought.
    fn check_question(&self, load: &LoadPlan) -> Result<(), String> {
        if self.think.is_some() && self.find != Find::Users {
            return Err("think (--think) is what users do: find = \"users\" (--find users) seeks how many".into());
        }
        if self.each_every.is_some() && self.find != Find::Connections {
            return Err(
                "each_every (--each-every) is of connections that are held: find = \"connections\" (--find connections) seeks how many".into(),
            );
        }
        let has_sessions = !load.session.is_empty() || load.har.is_some();
        let is_http1 = matches!(load.http, HttpVersion::Http10 | HttpVersion::Http11);
        match self.find {
            Find::Rate => Ok(()),
            Find::Users => {
                if load.har.is_some() || load.session.is_empty() && (load.urls.is_some() || load.content.is_some()) {
                    return Err("users ask for one URL, for [[load.request]] or by [[load.session]]: leave urls, content and har out".into());
                }
                if load.session.is_empty() != self.think.is_some() {
                    return Err(if self.think.is_some() {
                        "think (--think) and [[load.session]] both say how users think: leave one of the two out".into()
                    } else {
                        "users think between an answer and the next request: give think (--think 7s), or [[load.session]]".into()
                    });
                }
                if load.clients != LoadPlan::default().clients
                    || load.connections.is_some()
                    || load.users_over.is_some()
                {
                    return Err(
                        "each user is a client of its own, with as many connections as a page needs: leave clients, connections (--clients, \
                         -c) and users_over out"
                            .into(),
                    );
                }
                if load.close {
                    return Err(
                        "users keep their connections while they think, as browsers do: leave close (--close) out"
                            .into(),
                    );
                }
                Ok(())
            }
            Find::Connections => {
                if load.open_connections.is_some() || load.connections.is_some() {
                    return Err(
                        "connections are what is sought: leave connections and open_connections (-c, --open-connections) out".into(),
                    );
                }
                if load.close || has_sessions || !is_http1 {
                    return Err(
                        "connections are held open by an open loop over HTTP/1: leave close (--close), sessions, har and HTTP/2 out".into(),
                    );
                }
                let (every, most) = (self.each_every(), Self::TRIAL_MAX);
                if every < Duration::from_millis(1) || every > most {
                    return Err(format!(
                        "each_every = {} (--each-every): from 1ms to 1h; few requests are made up for where there are few connections",
                        units::format_duration(every)
                    ));
                }
                Ok(())
            }
            Find::NewConnections => {
                if has_sessions || load.open_connections.is_some() || !is_http1 {
                    return Err(
                        "new connections are made one a request over HTTP/1: leave sessions, har, open_connections (--open-connections) and \
                         HTTP/2 out"
                            .into(),
                    );
                }
                Ok(())
            }
        }
    }
}

impl Plan {
    /// The plan of one trial of this one: a load, a length, no search.
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
                // A client without a connection of its own would open another.
                trial.load.clients = trial.load.clients.min(number.max(1));
            }
        }
        trial
    }
}

impl LoadPlan {
    /// Over how long users begin, so that they do not all ask at once; none where they are spread by their thinking.
    fn users_begin_over(&self) -> Option<Duration> {
        /// Longer sessions are not waited for: what comes of them is spread enough.
        const LONGEST: Duration = Duration::from_secs(60);
        let turn = self.turn().filter(|turn| !turn.begins_spread && !turn.lasts.is_zero())?;
        Some(turn.lasts.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://127.0.0.1:8080/\"\n[capacity]\n";

    #[test]
    fn an_empty_table_is_the_defaults_and_is_read_back() {
        let plan = Plan::from_toml(PLAN, "plan").unwrap();
        assert_eq!(plan.capacity, Some(CapacityPlan::default()));
        let again = Plan::from_toml(&plan.to_toml(), "again").unwrap();
        assert_eq!(again, plan);
        let quick = Plan { capacity: Some(CapacityPlan::quick()), ..plan };
        assert_eq!(Plan::from_toml(&quick.to_toml(), "quick").unwrap(), quick);
    }

    #[test]
    fn what_a_search_chooses_is_refused() {
        for (more, word) in [
            ("rate = \"10/s\"\n", "what capacity seeks"),
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
    fn a_trial_is_a_plan_of_its_own() {
        let plan = Plan::from_toml(PLAN, "plan").unwrap();
        let rate = RequestRate::from_per_second(12.5).unwrap();
        let trial = plan.of_trial(TrialLoad::Rate(rate), Duration::from_secs(3));
        trial.check().unwrap();
        assert_eq!(trial.capacity, None);
        assert_eq!((trial.load.rate.unwrap().per_second(), trial.load.duration), (12.5, Some(Duration::from_secs(3))));
        let held = plan.of_trial(TrialLoad::Connections(50, rate), Duration::from_secs(3));
        held.check().unwrap();
        assert_eq!((held.load.open_connections, held.load.is_open()), (Some(50), true));
        assert!(plan.of_trial(TrialLoad::NewConnections(rate), Duration::from_secs(3)).load.close);
    }

    #[test]
    fn users_are_clients_of_their_own_and_begin_one_after_the_other() {
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
        // Those who think for a time without a memory are spread from the beginning.
        assert_eq!(plan("{ exponential = { mean = \"7s\", max = \"70s\" } }"), None);
    }

    #[test]
    fn what_makes_no_sense_for_a_question_is_refused() {
        let sessions = "[[load.request]]\nname = \"a\"\nurl = \"/\"\n[[load.session]]\nsteps = [{ request = \"a\", think = \"1s\" }]\n";
        for (load, capacity, word) in [
            ("", "find = \"user\"", "connections"),
            ("", "find = \"users\"", "--think"),
            ("", "find = \"users\"\nthink = \"0s\"", "more than nothing"),
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
            ("open_connections = 7\n", "find = \"new-connections\"", "--open-connections"),
            (sessions, "find = \"users\"\nthink = \"7s\"", "both say"),
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
