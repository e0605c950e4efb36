//! Validation of a `[capacity]` table.

use std::time::Duration;

use units::RequestRate;

use super::{CapacityPlan, Find, LoadLimit, TrialLoad};
use crate::{LoadPlan, Plan, PlanError};

impl CapacityPlan {
    /// Refuses a search that contradicts its plan.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        let load = &plan.load;
        if load.rate.is_some() {
            return refuse(
                "rate (--rate) is what capacity searches for: omit it (start = .. is the first load)".into(),
            );
        }
        if load.offered().has_length() {
            return refuse("capacity makes trials of one rate each: omit phases, rate_file and replay".into());
        }
        if load.requests.is_some() || load.duration.is_some() {
            return refuse(
                "requests and duration (-n, -d) are chosen by capacity: omit them; trial = .. (--trial) is the \
                 length of a trial"
                    .into(),
            );
        }
        if load.cache_workload.is_some() || plan.origin.is_some() {
            return refuse(
                "a plan with a cache workload has no [capacity]: `yamabiko cache` measures a cache rate by rate".into(),
            );
        }
        if plan.watch.tap {
            return refuse("a tap (--tap) observes one run and capacity makes many: omit it".into());
        }
        let Some(slo) = &plan.slo else {
            return refuse("capacity needs an objective: give slo (--slo 'p99 < 200ms, errors < 0.1%')".into());
        };
        if slo.response_limit().is_none() {
            return refuse(format!(
                "the objective `{slo}` has no limit of response times: add one, such as p99 < 200ms"
            ));
        }
        self.check_lengths().map_err(PlanError::Contradiction)?;
        self.check_loads().map_err(PlanError::Contradiction)?;
        self.check_question(load).map_err(PlanError::Contradiction)?;
        let trial = plan.of_trial(self.any_load(plan.shard.count()), self.trial);
        trial.check()?;
        if let (Find::Users, Some(turn)) = (self.find, trial.load.turn())
            && (turn.lasts.is_zero() || turn.lasts.div_f64(turn.steps) * Self::TURNS_MIN > Self::TRIAL_MAX)
        {
            return refuse(
                "users need a think time above 0 and at most 20 minutes: give think (--think 7s), or think = .. in \
                 the steps of [[load.session]]"
                    .into(),
            );
        }
        Ok(())
    }

    /// Refuses lengths and numbers of trials out of range.
    fn check_lengths(&self) -> Result<(), String> {
        if self.short < Self::SHORT_MIN || self.trial < self.short || self.trial > Self::TRIAL_MAX {
            return Err(format!(
                "short = {} and trial = {} (--short, --trial): expected 500ms or more, trial no shorter than short, \
                 and at most 1h",
                units::format_duration(self.short),
                units::format_duration(self.trial)
            ));
        }
        if !self.confirm.is_zero() && self.confirm < self.trial || self.confirm > Self::TRIAL_MAX {
            return Err(format!(
                "confirm = {} (--confirm): expected at least the length of a trial ({}), or 0s for none",
                units::format_duration(self.confirm),
                units::format_duration(self.trial)
            ));
        }
        if !(0.001..=0.5).contains(&self.width.value()) {
            return Err(format!("width = {} (--width): expected 0.1% to 50%", self.width));
        }
        if self.searches == 0 || self.searches > 20 {
            return Err(format!("searches = {} (--searches): expected 1 to 20", self.searches));
        }
        Ok(())
    }

    /// A load with which to validate the rest of a plan. Every shard has a user or a connection at least.
    fn any_load(&self, shards: u32) -> TrialLoad {
        let (rate, number) = match self.start.or(self.max) {
            Some(LoadLimit::Rate(rate)) => (rate, shards),
            Some(LoadLimit::Number(number)) => (RequestRate::ONE, number),
            None => (RequestRate::ONE, shards),
        };
        match self.find {
            Find::Rate => TrialLoad::Rate(rate),
            Find::NewConnections => TrialLoad::NewConnections(rate),
            Find::Users => TrialLoad::Users(number),
            Find::Connections => TrialLoad::Connections(number, rate),
        }
    }

    /// Refuses loads in another unit than that of the search.
    fn check_loads(&self) -> Result<(), String> {
        for (name, load) in [("start", self.start), ("max", self.max)] {
            match (load, self.find.is_rate()) {
                (Some(LoadLimit::Number(number)), true) => {
                    return Err(format!("{name} = {number} (--{name}): expected a rate, {number}/s"));
                }
                (Some(LoadLimit::Rate(rate)), false) => {
                    let unit = self.find.unit();
                    return Err(format!("{name} = {rate} (--{name}): expected a whole number of {unit}"));
                }
                (Some(LoadLimit::Number(0)), false) => {
                    return Err(format!("{name} = 0 (--{name}): expected 1 or more"));
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

    /// Refuses options that do not fit the quantity.
    fn check_question(&self, load: &LoadPlan) -> Result<(), String> {
        if self.think.is_some() && self.find != Find::Users {
            return Err("think (--think) needs find = \"users\" (--find users)".into());
        }
        if self.each_every.is_some() && self.find != Find::Connections {
            return Err("each_every (--each-every) needs find = \"connections\" (--find connections)".into());
        }
        let has_sessions = !load.session.is_empty() || load.har.is_some();
        let is_http1 = load.http.is_http1();
        match self.find {
            Find::Rate => Ok(()),
            Find::Users => {
                if load.har.is_some() || load.session.is_empty() && (load.urls.is_some() || load.content.is_some()) {
                    return Err(
                        "users request one URL, [[load.request]] or [[load.session]]: omit urls, content and har"
                            .into(),
                    );
                }
                if load.session.is_empty() != self.think.is_some() {
                    return Err(if self.think.is_some() {
                        "think (--think) and [[load.session]] both set the think time: omit one of the two".into()
                    } else {
                        "users need a think time: give think (--think 7s), or [[load.session]]".into()
                    });
                }
                if load.clients != LoadPlan::default().clients
                    || load.connections.is_some()
                    || load.users_over.is_some()
                {
                    return Err(
                        "each user is a client with as many connections as a page needs: omit clients, connections \
                         (--clients, -c) and users_over"
                            .into(),
                    );
                }
                if load.close {
                    return Err(
                        "users keep their connections open while they think, as browsers do: omit close (--close)"
                            .into(),
                    );
                }
                Ok(())
            }
            Find::Connections => {
                if load.open_connections.is_some() || load.connections.is_some() {
                    return Err("the number of connections is what capacity searches for: omit connections and \
                         open_connections (-c, --open-connections)"
                        .into());
                }
                if load.close || has_sessions || !is_http1 {
                    return Err(
                        "open connections are searched for by an open loop over HTTP/1: omit close (--close), \
                         sessions, har, HTTP/2 and HTTP/3"
                            .into(),
                    );
                }
                let (every, most) = (self.each_every(), Self::TRIAL_MAX);
                if every < Duration::from_millis(1) || every > most {
                    return Err(format!(
                        "each_every = {} (--each-every): expected 1ms to 1h; with few connections requests are more \
                         frequent",
                        units::format_duration(every)
                    ));
                }
                Ok(())
            }
            Find::NewConnections => {
                if has_sessions || load.open_connections.is_some() || !is_http1 {
                    return Err(
                        "new connections are made by HTTP/1, one per request: omit sessions, har, open_connections \
                         (--open-connections), HTTP/2 and HTTP/3"
                            .into(),
                    );
                }
                Ok(())
            }
        }
    }
}
