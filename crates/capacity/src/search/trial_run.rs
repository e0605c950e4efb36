//! The run of a trial: made by this machine, or by several of which this one leads.

use std::path::Path;

use load::Span;
use plan::{CapacityPlan, Plan};
use schema::ServerSecond;
use schema::document::Document;
use serde::{Deserialize, Serialize};
use store::RunStore;
use sys::signal::Interrupts;
use testbed::{Observer, Outcome};

use super::quantity::per_second;
use super::trial::{Purpose, TrialRequest};
use super::{at_distance, trial_plan};
use experiment::ExperimentError;
use experiment::watchdog::ObjectiveGuard;

/// What a run measured, as far as a trial is judged by it.
#[derive(Debug)]
pub struct TrialRun {
    /// The run's document.
    pub document: Document,
    /// The measured phase in spans of 100 ms.
    pub spans: Vec<Span>,
    /// Resource usage of the testbed's server, second by second; empty without one.
    pub server_seconds: Vec<ServerSecond>,
    /// Share of the time in which the busiest loop of the load worked, `[0, 1]`.
    pub loop_busy: f64,
}

impl From<Outcome> for TrialRun {
    fn from(outcome: Outcome) -> Self {
        let Outcome { document, spans, server_seconds, loop_busy, .. } = outcome;
        TrialRun { document, spans, server_seconds, loop_busy }
    }
}

/// What varies from trial to trial. With the plan of the search it determines the plan of the trial, on every machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialVariant {
    /// The distance, as in the plan's list; empty for the plan's own.
    pub at: String,
    /// Number of trials before this one.
    pub number: usize,
    /// Expected mean size of a response in bytes.
    pub bytes: f64,
    /// The trial.
    pub request: TrialRequest,
}

impl TrialVariant {
    /// One line of text.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn to_text(&self) -> Result<String, ExperimentError> {
        serde_json::to_string(self).map_err(|error| ExperimentError::Plan(format!("a trial: {error}")))
    }

    /// Reads the text of another machine.
    ///
    /// # Errors
    /// It is not a trial of this version, or not one that a search makes.
    pub fn from_text(text: &str) -> Result<Self, ExperimentError> {
        let wrong = |why: &str| ExperimentError::Plan(format!("the leader's trial: {why}"));
        let variant: TrialVariant = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let request = &variant.request;
        if ![request.load, request.rate_per_s].into_iter().all(|value| value.is_finite() && value > 0.0) {
            return Err(wrong("its load is not a positive number"));
        }
        // A warm-up is as long as the slowest server needs to settle, or as given.
        if request.lasts > CapacityPlan::TRIAL_MAX || request.warmup > CapacityPlan::TRIAL_MAX {
            return Err(wrong("it is longer than an hour"));
        }
        Ok(variant)
    }

    /// The plan of this trial of the search `plan`. `program`: path of this program.
    ///
    /// # Errors
    /// The distance is none of the plan's, or the trial cannot be made of this plan.
    pub fn plan(&self, plan: &Plan, program: &Path) -> Result<Plan, ExperimentError> {
        let (capacity, _) = trial_plan::of(plan)?;
        let plan = match self.at.as_str() {
            "" => plan.clone(),
            at if capacity.each.iter().any(|known| known == at) => at_distance(plan, at)?,
            at => return Err(ExperimentError::Plan(format!("the distance `{at}` is none of the plan's (--each)"))),
        };
        Ok(trial_plan::of_trial(&plan, &self.request, self.number, self.bytes, program))
    }

    /// The trial in a few words.
    pub fn words(&self) -> String {
        let request = &self.request;
        let load = match request.purpose {
            Purpose::Guess => format!("{:.0} connections", request.load),
            Purpose::Limit => per_second(request.load),
            _ if request.find.is_rate() => per_second(request.load),
            _ => format!("{:.0} {}", request.load, request.find.unit()),
        };
        let at = if self.at.is_empty() { String::new() } else { format!("{}: ", self.at) };
        format!("{at}{}, {load} of all shards", request.purpose.name())
    }

    /// Wraps an observer, so that the trial ends early when its objective is certainly missed.
    ///
    /// # Errors
    /// The plan has no objective.
    pub fn guard(&self, plan: &Plan, observer: Box<dyn Observer>) -> Result<ObjectiveGuard, ExperimentError> {
        let (_, slo) = trial_plan::of(plan)?;
        Ok(ObjectiveGuard::new(observer, trial_plan::keep(&self.request, slo)))
    }
}

/// A trial to be made.
#[derive(Clone, Copy)]
pub struct PlannedTrial<'a> {
    /// The plan of its run, of the load of all machines together.
    pub plan: &'a Plan,
    /// What distinguishes it from other trials of the search.
    pub variant: &'a TrialVariant,
    /// The command that repeats the search.
    pub command: &'a str,
    /// Folder of the search.
    pub folder: &'a Path,
    /// Where to store its run; `None` for a short trial, which is not stored.
    pub run_store: Option<&'a RunStore>,
    /// Interrupts of the process.
    pub interrupts: &'a Interrupts,
}

/// Who makes the trials.
pub trait TrialMachines {
    /// Makes the run of a trial. `None`: the user interrupted it. Called while this process has one thread.
    ///
    /// # Errors
    /// The trial cannot be made; the search ends.
    fn run(&mut self, trial: PlannedTrial<'_>, guard: &mut ObjectiveGuard)
    -> Result<Option<TrialRun>, ExperimentError>;

    /// Whether the user interrupted the search.
    fn is_interrupted(&self, interrupts: &Interrupts) -> bool {
        interrupts.count() > 0
    }
}

/// This machine alone.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl TrialMachines for ThisMachine {
    fn run(
        &mut self,
        trial: PlannedTrial<'_>,
        guard: &mut ObjectiveGuard,
    ) -> Result<Option<TrialRun>, ExperimentError> {
        let outcome = testbed::bench(trial.plan, trial.command, trial.run_store, trial.interrupts, guard)?;
        Ok((!self.is_interrupted(trial.interrupts)).then(|| outcome.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plan::Find;

    use super::*;

    fn variant() -> TrialVariant {
        let request = TrialRequest {
            find: Find::Rate,
            purpose: Purpose::Long,
            search: 2,
            load: 100.0 / 3.0,
            rate_per_s: 0.1 + 0.2,
            lasts: Duration::from_millis(10_100),
            warmup: Duration::from_secs(2),
            width: 0.02,
            generator_limit: Some(1e9 / 7.0),
        };
        TrialVariant { at: "rtt:48ms".into(), number: 7, bytes: 612.7, request }
    }

    #[test]
    fn variants_are_read_as_written_to_the_last_bit() {
        for scale in [1.0, 1e-9, 1e17] {
            let mut variant = variant();
            variant.request.load *= scale;
            assert_eq!(TrialVariant::from_text(&variant.to_text().unwrap()).unwrap(), variant);
        }
        let text = variant().to_text().unwrap();
        assert!(text.len() < 1000 && !text.contains(char::is_control), "{text}");
    }

    #[test]
    fn variants_that_no_search_makes_are_refused() {
        let text = variant().to_text().unwrap();
        for (from, to, word) in [
            ("\"number\"", "\"numbers\"", "numbers"),
            ("33.333333333333336", "-1.0", "positive"),
            ("33.333333333333336", "null", "null"),
            ("\"secs\":10", "\"secs\":3601", "longer than an hour"),
            ("\"secs\":2", "\"secs\":18446744073709551615", "longer than an hour"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            let error = TrialVariant::from_text(&wrong).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(TrialVariant::from_text("").is_err());
    }

    #[test]
    fn every_machine_makes_the_same_plan_of_a_variant_and_only_at_the_distances_of_the_search() {
        let text =
            "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://192.0.2.1/\"\n[capacity]\neach = [\"lan\", \"rtt:48ms\"]\n";
        let plan = Plan::from_toml(text, "plan").unwrap();
        let read = TrialVariant::from_text(&variant().to_text().unwrap()).unwrap();
        let [here, there] = [&variant(), &read].map(|variant| variant.plan(&plan, Path::new("/bin/yamabiko")).unwrap());
        assert_eq!(here.to_toml(), there.to_toml());
        assert_eq!((here.seed, here.path.is_some()), (plan.seed + 7, true));
        let elsewhere = TrialVariant { at: "rtt:49ms".into(), ..variant() };
        let error = elsewhere.plan(&plan, Path::new("/bin/yamabiko")).unwrap_err().to_string();
        assert!(error.contains("rtt:49ms"), "{error}");
    }
}
