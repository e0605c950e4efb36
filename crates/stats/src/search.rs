//! Searches for the highest load that meets an objective.
//!
//! The method is MLRsearch (RFC 9971) for one goal. Each load is tried, possibly several times, until it is classified
//! as a lower or upper bound. The bounds are brought together in log space until their distance is within the goal's
//! width. This module runs no trial and does not define a good trial: [`Search::next`] returns a load, the caller makes
//! the trial and reports its result with [`Search::add`].
//!
//! A search is a pure function of the added trials and their order: with the same trials it continues from the same
//! state.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The goal of a search. Names in parentheses are those of RFC 9971.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Length of a full trial (final trial duration); above zero.
    pub trial: Duration,
    /// Total length of the full trials that classify a load (duration sum); at least `trial`.
    pub sum: Duration,
    /// Maximum share of that time with bad trials for a good load (exceed ratio); 0 to less than 1.
    pub exceed_ratio: f64,
    /// The search ends when lower and upper bound differ by at most this share (goal width); above 0.
    pub width: f64,
    /// The lowest load to try; above 0.
    pub min: f64,
    /// The highest load to try; may be infinite.
    pub max: f64,
    /// The first load to try.
    pub start: f64,
    /// While one bound is unknown, the factor from the first to the second load; above 1.
    pub ramp: f64,
    /// Maximum factor between successive loads, at least `ramp`. The factor grows from `ramp`, doubling in log space
    /// with each load, so that a start far from the result needs only a few loads.
    pub ramp_max: f64,
    /// Whether loads are whole numbers (users, connections). The search then ends at the latest with neighbouring
    /// numbers.
    pub whole: bool,
}

/// One trial of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Load of the trial.
    pub load: f64,
    /// Length of the trial.
    pub lasted: Duration,
    /// Whether the trial had the length [`Goal::trial`], or ended early because it could not become good any more.
    pub full: bool,
    /// Whether the load met the objective.
    pub good: bool,
}

/// The classification of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The load is good, whatever the results of further trials.
    Lower,
    /// The load is too high, whatever the results of further trials.
    Upper,
    /// The load needs more trials.
    Undecided,
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Try this load.
    Try(f64),
    /// The search is over; see [`Search::result`].
    Done,
}

/// Why the search found no load that is too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// The search reached [`Goal::max`].
    Max,
    /// The load generator cannot make a higher load; see [`Search::cap`].
    Generator,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchResult {
    /// The bracket: `lower` is good, `upper` is too high, and they are within the goal's width.
    Regular {
        /// The highest good load.
        lower: f64,
        /// The lowest load above it that is too high.
        upper: f64,
    },
    /// No load that may be tried is too high.
    NoUpper {
        /// The highest load tried.
        lower: f64,
        /// Why the search could not go higher.
        why: Cap,
    },
    /// Even the lowest load is too high.
    NoLower {
        /// The lowest load.
        upper: f64,
    },
    /// The search is unfinished.
    Open {
        /// The highest good load so far.
        lower: Option<f64>,
        /// The lowest load so far that is too high.
        upper: Option<f64>,
    },
}

/// Classifies a load by its trials; all trials must be of the same load. Bad short trials count against the load unless
/// good short trials compensate them; good short trials alone do not classify a load.
///
/// Source: RFC 9971, load classification: a load is classified when the rest of the duration sum cannot change the
/// result.
pub fn classify(trials: &[Trial], goal: &Goal) -> Bound {
    let seconds = |full: bool, good: bool| -> f64 {
        trials
            .iter()
            .filter(|trial| trial.full == full && trial.good == good)
            .map(|trial| trial.lasted.as_secs_f64())
            .sum()
    };
    // A full trial that ended early counts with its full length.
    let full = |good: bool| -> f64 {
        let each = trials.iter().filter(|trial| trial.full && trial.good == good);
        each.map(|trial| trial.lasted.max(goal.trial).as_secs_f64()).sum()
    };
    let (good_s, bad_s) = (full(true), full(false));
    let made_up_s = seconds(false, true) * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let bad_s = bad_s + (seconds(false, false) - made_up_s).max(0.0);
    let whole_s = (good_s + bad_s).max(goal.sum.as_secs_f64());
    let may_be_bad_s = whole_s * goal.exceed_ratio;
    // The results if all remaining time were bad, and if all of it were good.
    let good_at_worst = whole_s - good_s <= may_be_bad_s;
    let good_at_best = bad_s <= may_be_bad_s;
    match (good_at_worst, good_at_best) {
        (true, true) => Bound::Lower,
        (false, false) => Bound::Upper,
        _ => Bound::Undecided,
    }
}

/// The state of a search.
#[derive(Clone, Debug)]
pub struct Search {
    goal: Goal,
    trials: Vec<Trial>,
    cap: Option<f64>,
}

impl Search {
    /// A new search.
    ///
    /// # Panics
    /// If a field of the goal is outside of its range.
    pub fn new(goal: Goal) -> Self {
        assert!(goal.trial > Duration::ZERO && goal.sum >= goal.trial, "{goal:?}");
        assert!((0.0..1.0).contains(&goal.exceed_ratio) && goal.width > 0.0, "{goal:?}");
        assert!(goal.ramp > 1.0 && goal.ramp <= goal.ramp_max, "{goal:?}");
        assert!(goal.min > 0.0 && goal.min <= goal.start && goal.start <= goal.max, "{goal:?}");
        Search { goal, trials: Vec::new(), cap: None }
    }

    /// Adds a trial.
    pub fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// Limits the search to loads up to `load`, the highest that the load generator can make.
    pub fn cap(&mut self, load: f64) {
        self.cap = Some(self.cap.map_or(load, |cap| cap.min(load)));
    }

    /// The trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The classification of a load by its trials so far.
    pub fn side(&self, load: f64) -> Bound {
        let of: Vec<Trial> = self.trials.iter().filter(|trial| trial.load == load).copied().collect();
        classify(&of, &self.goal)
    }

    /// The relevant bounds: the lowest load that is too high, and the highest good load below it. If a lower load is
    /// too high and a higher one is good (loss inversion), the lower load determines the upper bound.
    pub fn bounds(&self) -> (Option<f64>, Option<f64>) {
        let of = |side: Bound| self.loads().into_iter().filter(move |&load| self.side(load) == side);
        let upper = of(Bound::Upper).reduce(f64::min);
        let lower = of(Bound::Lower).filter(|&load| upper.is_none_or(|upper| load < upper)).reduce(f64::max);
        (lower, upper)
    }

    /// The next step.
    pub fn next(&self) -> Step {
        let Some(first) = self.first() else { return Step::Done };
        if self.trials.is_empty() {
            return Step::Try(first);
        }
        let (lower, upper) = self.bounds();
        // Undecided loads between the bounds are decided first.
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
            // The generator cannot make a load between the bounds.
            (Some(lower), Some(_)) if lower >= self.top() => Step::Done,
            (Some(lower), Some(upper)) => match self.between(lower, upper) {
                Step::Try(load) if load > self.top() => Step::Try(self.rounded(self.top(), lower, upper)),
                step => step,
            },
        }
    }

    /// The result so far.
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

    /// The distinct loads that were tried, in ascending order.
    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.trials.iter().map(|trial| trial.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// The first load; `None` if the generator cannot make the lowest load.
    fn first(&self) -> Option<f64> {
        let first = self.rounded(self.goal.start.min(self.top()), 0.0, f64::INFINITY);
        (self.top() >= self.goal.min).then_some(first)
    }

    /// The factor from the last load to the next, while one bound is unknown.
    fn ramp(&self) -> f64 {
        let doublings = self.loads().len().saturating_sub(1).min(i32::MAX as usize) as i32;
        (self.goal.ramp.ln() * 2.0_f64.powi(doublings)).exp().min(self.goal.ramp_max)
    }

    fn top(&self) -> f64 {
        let top = self.cap.map_or(self.goal.max, |cap| cap.min(self.goal.max));
        if self.goal.whole { top.floor() } else { top }
    }

    /// Halves the distance of the bounds in log space, such that one half is a whole number of widths. This avoids a
    /// last step of less than a width.
    fn between(&self, lower: f64, upper: f64) -> Step {
        let step = self.goal.width.ln_1p();
        let widths = (upper / lower).ln() / step;
        // Differences by rounding count as within a width.
        if widths <= 1.0 + 1e-9 || (self.goal.whole && upper - lower <= 1.0) {
            return Step::Done;
        }
        let half = (widths.ceil() / 2.0).floor().max(1.0);
        let load = if half >= widths { (lower * upper).sqrt() } else { upper / (half * step).exp() };
        Step::Try(self.rounded(load, lower, upper))
    }

    /// Rounds a load to a whole number strictly between two others, if loads are whole numbers.
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
