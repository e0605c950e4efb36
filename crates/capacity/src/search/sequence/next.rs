//! The next trial of each stage of a search.

use std::time::Duration;

use stats::search::{Cap, Goal, Search, SearchResult, Step, Trial};

use super::{
    CALIBRATION_SHARE, End, LIMIT_START, LIMIT_TRIALS, LIMIT_WIDTH, LONG_RAMP, Next, PROBE_LENGTH, SHORT_RAMP,
    SHORT_WIDTH, StageResult, TrialSequence, VOID_AT_LOAD, VOID_IN_SEARCH, WIDTH_AIM, rounded,
};
use crate::search::trial::{Purpose, TrialRequest};
use crate::search::warmup::CALIBRATION;

impl TrialSequence<'_> {
    pub(super) fn limit_next(&self, first: f64) -> Option<Next> {
        if !self.seeks_limit() {
            return None;
        }
        let search = self.limit_search((8.0 * self.rules.quantity.rate_per_s(first)).max(LIMIT_START));
        if search.trials().len() >= LIMIT_TRIALS {
            return None;
        }
        match search.next() {
            Step::Try(load) => {
                match self.request_trial(
                    Purpose::Limit,
                    0,
                    rounded(load),
                    PROBE_LENGTH,
                    Duration::from_millis(200),
                    LIMIT_WIDTH,
                ) {
                    // A failure to measure the generator does not end the search for the server's capacity.
                    Next::End(_) => None,
                    make => Some(make),
                }
            }
            Step::Done => None,
        }
    }

    pub(super) fn limit_search(&self, start: f64) -> Search {
        let start = start.min(1e9);
        let mut search = Search::new(Goal {
            trial: PROBE_LENGTH,
            sum: PROBE_LENGTH,
            exceed_ratio: 0.5,
            width: LIMIT_WIDTH,
            min: start.min(100.0),
            max: 1e9,
            start,
            ramp: SHORT_RAMP,
            ramp_max: SHORT_RAMP,
            whole: false,
        });
        for trial in self.counted(Purpose::Limit, 0) {
            let good = trial.verdict == "good";
            search.add(Trial { load: trial.load, lasted: PROBE_LENGTH, full: true, good });
        }
        search
    }

    pub(super) fn calibration_next(&self, first: f64) -> Option<Next> {
        if self.rules.warmup.is_some() {
            return None;
        }
        let mut calibrations = self.counted(Purpose::Calibration, 0);
        let load = self.rules.quantity.load(CALIBRATION_SHARE * first);
        let lasts = match (calibrations.next(), calibrations.next()) {
            (None, _) => CALIBRATION[0],
            (Some(trial), _) if trial.verdict == "bad" => {
                return Some(Next::End(End::Refused(trial.why.first().cloned().unwrap_or_default())));
            }
            (Some(trial), _) if trial.verdict == "client" => return Some(Next::End(End::ClientLimit { passed: 0.0 })),
            (Some(trial), None) if trial.settled_s.is_none() => CALIBRATION[1],
            _ => return None,
        };
        // Users who have not started yet give no information about settling.
        Some(self.request_trial(Purpose::Calibration, 0, load, lasts, self.rules.quantity.warmup, SHORT_WIDTH))
    }

    /// State of a bisection from its trials.
    pub(super) fn search(&self, purpose: Purpose, number: u32, start: f64) -> Search {
        let plan = &self.rules.plan;
        let width = self.width(purpose);
        let (trial, ramp) = if purpose == Purpose::Short { (plan.short, SHORT_RAMP) } else { (plan.trial, LONG_RAMP) };
        let (min, max) = (self.min(), self.max().max(self.min()));
        let mut search = Search::new(Goal {
            trial,
            sum: trial,
            exceed_ratio: 0.5,
            width: width * WIDTH_AIM,
            min,
            max,
            start: start.clamp(min, max),
            ramp: ramp.max(1.0 + width),
            ramp_max: SHORT_RAMP.max(1.0 + width),
            whole: !self.rules.quantity.find.is_rate(),
        });
        if let Some(most) = &self.rules.quantity.most {
            search.cap(most.load);
        }
        for trial in self.counted(purpose, number) {
            let lasted = Duration::from_secs_f64(trial.actual_s.max(0.0));
            match trial.verdict.as_str() {
                "client" => {
                    // The limit lies between the passed load and this one.
                    search.cap(match search.bounds().0 {
                        Some(lower) if trial.load <= lower * (1.0 + width) => lower,
                        Some(lower) => rounded((lower * trial.load).sqrt()),
                        None => rounded(trial.load / 2.0),
                    });
                }
                verdict => search.add(Trial { load: trial.load, lasted, full: true, good: verdict == "good" }),
            }
        }
        search
    }

    /// Continues a search; returns its bracket at the end.
    pub(super) fn searched(&self, purpose: Purpose, number: u32, start: f64) -> StageResult<(f64, f64)> {
        let plan = &self.rules.plan;
        let search = self.search(purpose, number, start);
        if let Some(bracket) = self.bracket(&search, purpose) {
            return StageResult::To(bracket);
        }
        let least = if purpose == Purpose::Short { plan.short } else { plan.trial };
        if let Step::Try(load) = search.next() {
            let load = self.rules.quantity.load(load);
            let lasts = self.lasts(load, least);
            return StageResult::Next(self.request_trial(
                purpose,
                number,
                load,
                lasts,
                self.warmup().0,
                self.width(purpose),
            ));
        }
        StageResult::Next(Next::End(match search.result() {
            SearchResult::Regular { lower, upper } => return StageResult::To((lower, upper)),
            SearchResult::NoLower { upper } => End::MissedAtAny { at: upper },
            SearchResult::NoUpper { lower, why: Cap::Max } => End::NeverTooMuch { at: lower },
            SearchResult::NoUpper { lower, why: Cap::Generator } => End::ClientLimit { passed: lower },
            SearchResult::Open { lower, .. } => End::ClientLimit { passed: lower.unwrap_or(0.0) },
        }))
    }

    /// One trial of a load, unless it exists.
    pub(super) fn once(&self, purpose: Purpose, load: f64, lasts: Duration) -> Option<Next> {
        if self.counted(purpose, 0).any(|trial| trial.load == load) {
            return None;
        }
        let width = self.rules.plan.width.value();
        match self.request_trial(purpose, 0, load, self.lasts(load, lasts), self.warmup().0, width) {
            // The result is known; a check reports the missing trials.
            Next::End(_) => None,
            make => Some(make),
        }
    }

    /// The trial, unless too many trials at this load were disturbed.
    pub(super) fn request_trial(
        &self,
        purpose: Purpose,
        search: u32,
        load: f64,
        lasts: Duration,
        warmup: Duration,
        width: f64,
    ) -> Next {
        let voids = self
            .trials
            .iter()
            .filter(|trial| trial.stage == purpose.name() && trial.search == search && trial.verdict == "void");
        let (all, here) = voids.fold((0, 0), |(all, here), trial| (all + 1, here + usize::from(trial.load == load)));
        if here > VOID_AT_LOAD || all > VOID_IN_SEARCH {
            return Next::End(End::Undecided { voids: all });
        }
        let generator_limit = self.generator_limit();
        let quantity = &self.rules.quantity;
        // Loads of the initial estimate and of generator trials are in other units than the searched load.
        let rate_per_s = match purpose {
            Purpose::Guess | Purpose::Limit => load,
            _ => quantity.rate_per_s(load),
        };
        Next::Make(TrialRequest {
            find: quantity.find,
            purpose,
            search,
            load,
            rate_per_s,
            lasts,
            warmup,
            width,
            generator_limit,
        })
    }
}
