//! The search for the highest load that is not too much.
//!
//! The method is that of MLRsearch (RFC 9971), for one goal: a load is tried, perhaps several times, until it is certain on which side
//! of the answer it lies; the loads known on both sides are brought together in log space until they are as near as the goal asks. Nothing
//! here runs a trial or knows what makes one good: [`Search::next`] names a load, the caller tries it, [`Search::add`] is told.
//!
//! A search is a pure function of the trials it was told, in their order: told again, it goes on where it was.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is sought, and how sure it must be. Names in brackets are RFC 9971's.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Length of a full trial (final trial duration). Above zero.
    pub trial: Duration,
    /// Full trials that decide a load last so long together (duration sum). At least `trial`.
    pub sum: Duration,
    /// Share of that time whose trials may be bad though the load is good (exceed ratio): 0 to less than 1.
    pub exceed_ratio: f64,
    /// The search ends when the loads on both sides differ by no more than this share (goal width): above 0.
    pub width: f64,
    /// The least load that is tried. Above 0.
    pub min: f64,
    /// The highest load that is tried; infinite where there is no such bound.
    pub max: f64,
    /// The first load.
    pub start: f64,
    /// While one side is unknown, the second load is so many times the first: above 1.
    pub ramp: f64,
    /// Each further one is farther from the last, the distance doubling in log space until it is so many times: at least `ramp`. A start
    /// that was far off costs a few loads then, not one for each small step.
    pub ramp_max: f64,
    /// Loads are whole numbers (users, connections): the search ends at neighbours at the latest.
    pub whole: bool,
}

/// One trial of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The load.
    pub load: f64,
    /// How long it lasted.
    pub lasted: Duration,
    /// It lasted as long as [`Goal::trial`], or ended early since nothing could have made it good any more.
    pub full: bool,
    /// The load was not too much in it.
    pub good: bool,
}

/// On which side of the answer a load lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It is not too much, whatever further trials would show.
    Lower,
    /// It is too much, whatever they would show.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Try this load.
    Try(f64),
    /// The search is over: [`Search::result`].
    Done,
}

/// Why there is no load that is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// [`Goal::max`].
    Max,
    /// Whoever makes the load can make no more: [`Search::cap`].
    Generator,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchResult {
    /// `lower` is not too much, `upper` is, and they are as near as the goal asks.
    Regular {
        /// The answer.
        lower: f64,
        /// The next load that is too much.
        upper: f64,
    },
    /// Nothing that may be tried is too much.
    NoUpper {
        /// The highest load that was tried.
        lower: f64,
        /// What ended the search.
        why: Cap,
    },
    /// Everything is too much, the least load too.
    NoLower {
        /// The least load.
        upper: f64,
    },
    /// The search was not ended.
    Open {
        /// The highest load known not to be too much, if there is one.
        lower: Option<f64>,
        /// The least load known to be too much, if there is one.
        upper: Option<f64>,
    },
}

/// On which side of the answer a load lies by the trials made of it; those of other loads must not be among them. A short trial that was bad
/// counts against the load as far as short trials that were good do not make up for it; one that was good decides nothing.
///
/// Source: RFC 9971, load classification: a load is decided once the rest of the duration sum cannot change it.
pub fn classify(trials: &[Trial], goal: &Goal) -> Bound {
    let seconds = |full: bool, good: bool| -> f64 {
        trials
            .iter()
            .filter(|trial| trial.full == full && trial.good == good)
            .map(|trial| trial.lasted.as_secs_f64())
            .sum()
    };
    // A full trial that ended early since it was lost counts as if it had lasted.
    let full = |good: bool| -> f64 {
        let each = trials.iter().filter(|trial| trial.full && trial.good == good);
        each.map(|trial| trial.lasted.max(goal.trial).as_secs_f64()).sum()
    };
    let (good_s, bad_s) = (full(true), full(false));
    let made_up_s = seconds(false, true) * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let bad_s = bad_s + (seconds(false, false) - made_up_s).max(0.0);
    let whole_s = (good_s + bad_s).max(goal.sum.as_secs_f64());
    let may_be_bad_s = whole_s * goal.exceed_ratio;
    // If all that is still to come were bad, and if none of it were.
    let good_at_worst = whole_s - good_s <= may_be_bad_s;
    let good_at_best = bad_s <= may_be_bad_s;
    match (good_at_worst, good_at_best) {
        (true, true) => Bound::Lower,
        (false, false) => Bound::Upper,
        _ => Bound::Undecided,
    }
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    goal: Goal,
    trials: Vec<Trial>,
    cap: Option<f64>,
}

impl Search {
    /// Begins.
    ///
    /// # Panics
    /// A goal out of its ranges.
    pub fn new(goal: Goal) -> Self {
        assert!(goal.trial > Duration::ZERO && goal.sum >= goal.trial, "{goal:?}");
        assert!((0.0..1.0).contains(&goal.exceed_ratio) && goal.width > 0.0, "{goal:?}");
        assert!(goal.ramp > 1.0 && goal.ramp <= goal.ramp_max, "{goal:?}");
        assert!(goal.min > 0.0 && goal.min <= goal.start && goal.start <= goal.max, "{goal:?}");
        Search { goal, trials: Vec::new(), cap: None }
    }

    /// A trial was made.
    pub fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// Nothing above this load can be made.
    pub fn cap(&mut self, load: f64) {
        self.cap = Some(self.cap.map_or(load, |cap| cap.min(load)));
    }

    /// The trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Which side a load is on.
    pub fn side(&self, load: f64) -> Bound {
        let of: Vec<Trial> = self.trials.iter().filter(|trial| trial.load == load).copied().collect();
        classify(&of, &self.goal)
    }

    /// The highest load that is not too much below the least that is, and that one: the relevant bounds. Where a lower load was too much and a
    /// higher was not (loss inversion), the lower counts.
    pub fn bounds(&self) -> (Option<f64>, Option<f64>) {
        let of = |side: Bound| self.loads().into_iter().filter(move |&load| self.side(load) == side);
        let upper = of(Bound::Upper).reduce(f64::min);
        let lower = of(Bound::Lower).filter(|&load| upper.is_none_or(|upper| load < upper)).reduce(f64::max);
        (lower, upper)
    }

    /// What to do next.
    pub fn next(&self) -> Step {
        let Some(first) = self.first() else { return Step::Done };
        if self.trials.is_empty() {
            return Step::Try(first);
        }
        let (lower, upper) = self.bounds();
        // What was begun is brought to its end, as long as it still matters.
        let matters = |load: f64| lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper);
        let begun = self.loads().into_iter().filter(|&load| matters(load) && self.side(load) == Bound::Undecided);
        if let Some(load) = begun.reduce(f64::min) {
            return Step::Try(load);
        }
        match (lower, upper) {
            (None, None) => Step::Done,
            (Some(lower), None) => {
                let top = self.top();
                if lower >= top {
                    Step::Done
                } else {
                    Step::Try(self.rounded((lower * self.ramp()).min(top), lower, f64::INFINITY))
                }
            }
            (None, Some(upper)) => {
                let bottom = self.goal.min;
                if upper <= bottom {
                    Step::Done
                } else {
                    Step::Try(self.rounded((upper / self.ramp()).max(bottom), 0.0, upper))
                }
            }
            // What lies between can not be made.
            (Some(lower), Some(_)) if lower >= self.top() => Step::Done,
            (Some(lower), Some(upper)) => match self.between(lower, upper) {
                Step::Try(load) if load > self.top() => Step::Try(self.rounded(self.top(), lower, upper)),
                step => step,
            },
        }
    }

    /// What was found, or how far it came.
    pub fn result(&self) -> SearchResult {
        let (lower, upper) = self.bounds();
        match (lower, upper) {
            _ if self.next() != Step::Done => SearchResult::Open { lower, upper },
            (Some(lower), Some(upper)) if self.between(lower, upper) == Step::Done => {
                SearchResult::Regular { lower, upper }
            }
            (Some(lower), _) => {
                let why = if self.cap.is_some_and(|cap| cap < self.goal.max) { Cap::Generator } else { Cap::Max };
                SearchResult::NoUpper { lower, why }
            }
            (None, Some(upper)) => SearchResult::NoLower { upper },
            (None, None) => SearchResult::Open { lower, upper },
        }
    }

    /// Each load that was tried, once.
    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.trials.iter().map(|trial| trial.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// The first load; none if the cap is below the least.
    fn first(&self) -> Option<f64> {
        let first = self.rounded(self.goal.start.min(self.top()), 0.0, f64::INFINITY);
        (self.top() >= self.goal.min).then_some(first)
    }

    /// How many times the last load the next is, while one side is unknown.
    fn ramp(&self) -> f64 {
        let doublings = self.loads().len().saturating_sub(1).min(i32::MAX as usize) as i32;
        (self.goal.ramp.ln() * 2.0_f64.powi(doublings)).exp().min(self.goal.ramp_max)
    }

    fn top(&self) -> f64 {
        let top = self.cap.map_or(self.goal.max, |cap| cap.min(self.goal.max));
        if self.goal.whole { top.floor() } else { top }
    }

    /// Halves the distance, so that one half is a whole number of widths: then no step is wasted on less than one.
    fn between(&self, lower: f64, upper: f64) -> Step {
        let step = self.goal.width.ln_1p();
        let widths = (upper / lower).ln() / step;
        // What differs by rounding alone is no more than a width.
        if widths <= 1.0 + 1e-9 || (self.goal.whole && upper - lower <= 1.0) {
            return Step::Done;
        }
        let half = (widths.ceil() / 2.0).floor().max(1.0);
        let load = if half >= widths { (lower * upper).sqrt() } else { upper / (half * step).exp() };
        Step::Try(self.rounded(load, lower, upper))
    }

    /// A whole number if loads are, strictly between two others.
    fn rounded(&self, load: f64, above: f64, below: f64) -> f64 {
        if !self.goal.whole {
            return load;
        }
        let rounded = load.round().max(self.goal.min.ceil());
        if rounded <= above {
            above.floor() + 1.0
        } else if rounded >= below {
            below.ceil() - 1.0
        } else {
            rounded
        }
    }
}

#[cfg(test)]
mod tests;
