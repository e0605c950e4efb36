//! The trials of each stage of a course: which one is still to be made, and where its search stands.

use std::time::Duration;

use stats::search::{Cap, Goal, Search, SearchResult, Step, Trial};

use super::{
    AIM, CALIBRATION_SHARE, Came, Course, End, LIMIT_START, LIMIT_TRIALS, LIMIT_WIDTH, LONG_RAMP, Next, SECOND,
    SHORT_RAMP, SHORT_WIDTH, VOID_AT_LOAD, VOID_IN_SEARCH, rounded,
};
use crate::search::trial::{Purpose, TrialRequest};
use crate::search::warmup::CALIBRATION;

impl Course<'_> {
    pub(super) fn limit_next(&self, first: f64) -> Option<Next> {
        if !self.seeks_limit() {
            return None;
        }
        let search = self.limit_search((8.0 * self.rules.question.rate_per_s(first)).max(LIMIT_START));
        if search.trials().len() >= LIMIT_TRIALS {
            return None;
        }
        match search.next() {
            Step::Try(load) => {
                match self.ask(Purpose::Limit, 0, rounded(load), SECOND, Duration::from_millis(200), LIMIT_WIDTH) {
                    // That nothing can be learnt of the generator does not end the search for the server's capacity.
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
            trial: SECOND,
            sum: SECOND,
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
            search.add(Trial { load: trial.load, lasted: SECOND, full: true, good });
        }
        search
    }

    pub(super) fn calibration_next(&self, first: f64) -> Option<Next> {
        if self.rules.warmup.is_some() {
            return None;
        }
        let mut made = self.counted(Purpose::Calibration, 0);
        let load = self.rules.question.load(CALIBRATION_SHARE * first);
        let lasts = match (made.next(), made.next()) {
            (None, _) => CALIBRATION[0],
            (Some(trial), _) if trial.verdict == "bad" => {
                return Some(Next::End(End::Refused(trial.why.first().cloned().unwrap_or_default())));
            }
            (Some(trial), _) if trial.verdict == "client" => return Some(Next::End(End::ClientLimit { held: 0.0 })),
            (Some(trial), None) if trial.settled_s.is_none() => CALIBRATION[1],
            _ => return None,
        };
        // A user who has not begun yet is nothing that settles.
        Some(self.ask(Purpose::Calibration, 0, load, lasts, self.rules.question.warmup, SHORT_WIDTH))
    }

    /// A search by its trials.
    pub(super) fn search(&self, purpose: Purpose, number: u32, start: f64) -> Search {
        let plan = &self.rules.plan;
        let width = self.width(purpose);
        let (trial, ramp) = if purpose == Purpose::Short { (plan.short, SHORT_RAMP) } else { (plan.trial, LONG_RAMP) };
        let (min, max) = (self.min(), self.max().max(self.min()));
        let mut search = Search::new(Goal {
            trial,
            sum: trial,
            exceed_ratio: 0.5,
            width: width * AIM,
            min,
            max,
            start: start.clamp(min, max),
            ramp: ramp.max(1.0 + width),
            ramp_max: SHORT_RAMP.max(1.0 + width),
            whole: !self.rules.question.find.is_rate(),
        });
        if let Some(most) = &self.rules.question.most {
            search.cap(most.load);
        }
        for trial in self.counted(purpose, number) {
            let lasted = Duration::from_secs_f64(trial.actual_s.max(0.0));
            match trial.verdict.as_str() {
                "client" => {
                    // The limit lies somewhere between what held and this.
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

    /// Goes on with a search; its bracket when it is over.
    pub(super) fn searched(&self, purpose: Purpose, number: u32, start: f64) -> Came<(f64, f64)> {
        let plan = &self.rules.plan;
        let search = self.search(purpose, number, start);
        if let Some(bracket) = self.bracket(&search, purpose) {
            return Came::To(bracket);
        }
        let least = if purpose == Purpose::Short { plan.short } else { plan.trial };
        if let Step::Try(load) = search.next() {
            let load = self.rules.question.load(load);
            let lasts = self.lasts(load, least);
            return Came::Next(self.ask(purpose, number, load, lasts, self.warmup().0, self.width(purpose)));
        }
        Came::Next(Next::End(match search.result() {
            SearchResult::Regular { lower, upper } => return Came::To((lower, upper)),
            SearchResult::NoLower { upper } => End::MissedAtAny { at: upper },
            SearchResult::NoUpper { lower, why: Cap::Max } => End::NeverTooMuch { at: lower },
            SearchResult::NoUpper { lower, why: Cap::Generator } => End::ClientLimit { held: lower },
            SearchResult::Open { lower, .. } => End::ClientLimit { held: lower.unwrap_or(0.0) },
        }))
    }

    /// One trial of a load, if it was not made yet.
    pub(super) fn once(&self, purpose: Purpose, load: f64, lasts: Duration) -> Option<Next> {
        if self.counted(purpose, 0).any(|trial| trial.load == load) {
            return None;
        }
        let width = self.rules.plan.width.value();
        match self.ask(purpose, 0, load, self.lasts(load, lasts), self.warmup().0, width) {
            // The answer is known; that nothing can be added to it is told by a check.
            Next::End(_) => None,
            make => Some(make),
        }
    }

    /// The trial, unless trials like it were disturbed too often.
    pub(super) fn ask(
        &self,
        purpose: Purpose,
        search: u32,
        load: f64,
        lasts: Duration,
        warmup: Duration,
        width: f64,
    ) -> Next {
        let voids = self
            .made
            .iter()
            .filter(|trial| trial.stage == purpose.name() && trial.search == search && trial.verdict == "void");
        let (all, here) = voids.fold((0, 0), |(all, here), trial| (all + 1, here + usize::from(trial.load == load)));
        if here > VOID_AT_LOAD || all > VOID_IN_SEARCH {
            return Next::End(End::Undecided { voids: all });
        }
        let generator_limit = self.generator_limit();
        let question = &self.rules.question;
        // Of the guess and of the generator's limit loads are not what is sought.
        let rate_per_s = match purpose {
            Purpose::Guess | Purpose::Limit => load,
            _ => question.rate_per_s(load),
        };
        Next::Make(TrialRequest {
            find: question.find,
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
