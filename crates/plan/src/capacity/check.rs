//! What a search cannot be.

use std::time::Duration;

use units::RequestRate;

use super::{CapacityPlan, Find, SoughtLoad, TrialLoad};
use crate::{HttpVersion, LoadPlan, Plan, PlanError};

impl CapacityPlan {
    /// Refuses what cannot be meant by the plan that it belongs to.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        let load = &plan.load;
        if load.rate.is_some() {
            return refuse("rate (--rate) is what capacity seeks: leave it out (start = .. is where to begin)".into());
        }
        if load.offered().has_length() {
            return refuse(
                "capacity is sought with one rate a trial: phases, rate_file and replay have their own".into(),
            );
        }
        if load.requests.is_some() || load.duration.is_some() {
            return refuse(
                "requests and duration (-n, -d) are what capacity chooses: trial = .. (--trial) is the length of a trial".into(),
            );
        }
        if load.cache_workload.is_some() || plan.origin.is_some() {
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
        self.check_lengths().map_err(PlanError::Contradiction)?;
        self.check_loads().map_err(PlanError::Contradiction)?;
        self.check_question(load).map_err(PlanError::Contradiction)?;
        let trial = plan.of_trial(self.any_load(), self.trial);
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

    /// Refuses lengths and numbers of trials that no search has.
    fn check_lengths(&self) -> Result<(), String> {
        if self.short < Self::SHORT_MIN || self.trial < self.short || self.trial > Self::TRIAL_MAX {
            return Err(format!(
                "short = {} and trial = {} (--short, --trial): 500ms or more, the trial no shorter than the short one and at most 1h",
                units::format_duration(self.short),
                units::format_duration(self.trial)
            ));
        }
        if !self.confirm.is_zero() && self.confirm < self.trial || self.confirm > Self::TRIAL_MAX {
            return Err(format!(
                "confirm = {} (--confirm): at least as long as a trial ({}), or 0s for none",
                units::format_duration(self.confirm),
                units::format_duration(self.trial)
            ));
        }
        if !(0.001..=0.5).contains(&self.width.value()) {
            return Err(format!("width = {} (--width): from 0.1% to 50%", self.width));
        }
        if self.searches == 0 || self.searches > 20 {
            return Err(format!("searches = {} (--searches): from 1 to 20", self.searches));
        }
        Ok(())
    }

    /// A load to check the rest of a plan with.
    fn any_load(&self) -> TrialLoad {
        let (rate, number) = match self.start.or(self.max) {
            Some(SoughtLoad::Rate(rate)) => (rate, 1),
            Some(SoughtLoad::Number(number)) => (RequestRate::ONE, number),
            None => (RequestRate::ONE, 1),
        };
        match self.find {
            Find::Rate => TrialLoad::Rate(rate),
            Find::NewConnections => TrialLoad::NewConnections(rate),
            Find::Users => TrialLoad::Users(number),
            Find::Connections => TrialLoad::Connections(number, rate),
        }
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
