//! What `capacity` seeks, `[capacity]`: data only, the search is a suite.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Probability, RequestRate};

use super::{Plan, PlanError};

/// The search for the highest load whose objective holds. In such a plan `[load]` has no rate and no length, since these are what a
/// search chooses; everything else is as in any other plan, and `slo` is the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityPlan {
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
    pub start: Option<RequestRate>,
    /// The highest load that is tried; absent: whatever the generator can make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<RequestRate>,
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
        if let (Some(start), Some(max)) = (self.start, self.max)
            && start.per_second() > max.per_second()
        {
            return refuse(format!("start = {start} is above max = {max} (--start, --max)"));
        }
        plan.of_trial(self.start.or(self.max).unwrap_or(ANY), self.trial).check()
    }
}

impl Plan {
    /// The plan of one trial of this one: a rate, a length, no search.
    pub fn of_trial(&self, rate: RequestRate, lasts: Duration) -> Plan {
        let mut trial = Plan { capacity: None, ..self.clone() };
        trial.load.rate = Some(rate);
        trial.load.duration = Some(lasts);
        trial
    }
}

/// A rate to check the rest of a plan with.
const ANY: RequestRate = RequestRate::ONE;

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
        let trial = plan.of_trial(RequestRate::from_per_second(12.5).unwrap(), Duration::from_secs(3));
        trial.check().unwrap();
        assert_eq!(trial.capacity, None);
        assert_eq!((trial.load.rate.unwrap().per_second(), trial.load.duration), (12.5, Some(Duration::from_secs(3))));
    }
}
