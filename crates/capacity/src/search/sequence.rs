//! The sequence of trials of a search: the next trial as a pure function of the trials already made.
//!
//! ```text
//!   guess --> generator's limit --> calibration --> short stage --> long searches 1 .. k --> confirmation --> overload
//!   1 s       6 x 1 s               15 s            bracket 5 %     each to the width         result, 0.9      1.2, 2
//! ```
//!
//! An overload of a share e stays below a response time of L for L / e seconds, so short trials let too high a load
//! pass and only give the starting point of the long ones. No function here runs a trial or reads a clock. Given the
//! same trials again ([`TrialSequence::add`]), a search continues where it stopped; this is how an interrupted search
//! resumes.

mod next;

use std::time::Duration;

use plan::{CapacityPlan, Find, LoadLimit};
use schema::TrialPart;
use stats::search::Search;

use super::quantity::{REQUESTS_MIN, SearchQuantity};
use super::trial::{Purpose, TrialRequest};

/// Connections of the closed loop that makes the initial estimate.
pub const GUESS_CONNECTIONS: f64 = 16.0;
/// Idle open connections of the first trial.
const FIRST_CONNECTIONS: f64 = 64.0;
/// Length of the initial estimate and of each generator trial.
const PROBE_LENGTH: Duration = Duration::from_secs(1);
/// First load, as a share of the closed loop's throughput.
const FIRST_SHARE: f64 = 0.5;
/// Load of the calibration, as a share of the first load.
const CALIBRATION_SHARE: f64 = 0.5;
/// Relative width of the bracket at the end of the short stage.
pub const SHORT_WIDTH: f64 = 0.05;
/// Factor between loads while one side of the bracket is unknown. Long searches start inside the short stage's bracket
/// with a small step that grows, since the server may have been cold in the short stage.
const SHORT_RAMP: f64 = 2.0;
const LONG_RAMP: f64 = 1.05;
/// Width and most trials of the search for the generator's limit.
const LIMIT_WIDTH: f64 = 0.25;
const LIMIT_TRIALS: usize = 8;
/// Lowest rate of that search.
const LIMIT_START: f64 = 2_000.0;
/// Repetitions of a disturbed trial at one load before the search is undecided.
const VOID_AT_LOAD: usize = 2;
/// Repetitions of disturbed trials in one search.
pub const VOID_IN_SEARCH: usize = 6;
/// Loads of the confirmations, as shares of the result.
pub const CONFIRMED_AT: [f64; 2] = [1.0, 0.9];
/// Loads of the overload trials, as multiples of the result.
const OVERLOADS: [f64; 2] = [1.2, 2.0];
/// Longest extension of a trial with few requests; a load that needs more time has too few.
pub const EXTENDED_TRIAL_MAX: Duration = Duration::from_secs(60);
/// Warm-up where the calibration did not see the server settle.
const WARMUP_UNSETTLED: Duration = Duration::from_secs(15);
/// Significant digits of loads: loads are stored as text and must be read back unchanged.
const LOAD_DIGITS: i32 = 7;
/// Searches step towards this share of their width and end at the whole width, so that rounding of loads alone causes
/// no further step.
const WIDTH_AIM: f64 = 0.95;

/// Parameters of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The `[capacity]` table.
    pub plan: CapacityPlan,
    /// The quantity to find.
    pub quantity: SearchQuantity,
    /// The configured warm-up; absent: calibrated.
    pub warmup: Option<Duration>,
    /// First load, if known from another distance.
    pub first: Option<f64>,
    /// Requests that a trial needs for the objective's quantile.
    pub requests_min: u64,
    /// Whether `serve --max` can replace the server to find the generator's limit.
    pub can_limit: bool,
    /// The generator's limit in requests per second, if found at another distance.
    pub generator_limit: Option<f64>,
    /// Smallest response time limit of the objective.
    pub response_limit: Duration,
    /// Number of machines that make each trial together; each has a user or a connection at least.
    pub shards: u32,
}

impl Rules {
    /// Whether to make overload trials; there are none for idle open connections.
    pub fn overloads(&self) -> bool {
        self.plan.overload && self.quantity.find != Find::Connections
    }
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Make this trial.
    Make(TrialRequest),
    /// The search has ended.
    End(End),
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All searches found a bracket within the width.
    Found,
    /// The objective is missed at the lowest load.
    MissedAtAny {
        /// The lowest load.
        at: f64,
    },
    /// Every load up to the highest permitted one passed.
    NeverTooMuch {
        /// The highest permitted load.
        at: f64,
    },
    /// The generator reached its limit while the server still passed.
    ClientLimit {
        /// The highest load that passed; 0 if none was made.
        passed: f64,
    },
    /// Repeated trials were disturbed.
    Undecided {
        /// Number of disturbed trials.
        voids: usize,
    },
    /// The search is impossible; the reason as a sentence.
    Refused(String),
}

/// State of a search.
#[derive(Clone, Debug)]
pub struct TrialSequence<'a> {
    rules: &'a Rules,
    trials: Vec<TrialPart>,
}

/// Result of one search.
enum StageResult<T> {
    To(T),
    Next(Next),
}

impl<'a> TrialSequence<'a> {
    /// A search without trials.
    pub fn new(rules: &'a Rules) -> Self {
        TrialSequence { rules, trials: Vec::new() }
    }

    /// Adds a finished trial.
    pub fn add(&mut self, trial: TrialPart) {
        self.trials.push(trial);
    }

    /// The trials so far.
    pub fn trials(&self) -> &[TrialPart] {
        &self.trials
    }

    /// The next step.
    pub fn next(&self) -> Next {
        match self.until_the_end() {
            StageResult::To(()) => Next::End(End::Found),
            StageResult::Next(next) => next,
        }
    }

    fn until_the_end(&self) -> StageResult<()> {
        let first = match self.first() {
            StageResult::To(first) => first,
            StageResult::Next(next) => return StageResult::Next(next),
        };
        if let Some(next) = self.limit_next(first) {
            return StageResult::Next(next);
        }
        if let Some(next) = self.calibration_next(first) {
            return StageResult::Next(next);
        }
        let (lower, upper) = match self.searched(Purpose::Short, 0, first) {
            StageResult::To(bracket) => bracket,
            StageResult::Next(next) => return StageResult::Next(next),
        };
        for number in 1..=self.rules.plan.searches {
            if let StageResult::Next(next) = self.searched(Purpose::Long, number, (lower * upper).sqrt()) {
                return StageResult::Next(next);
            }
        }
        let result = self.result().expect("every search is complete");
        if !self.rules.plan.confirm.is_zero() {
            for share in CONFIRMED_AT {
                let load = self.rules.quantity.load(share * result);
                if let Some(next) = self.once(Purpose::Confirmation, load, self.rules.plan.confirm) {
                    return StageResult::Next(next);
                }
            }
        }
        if self.rules.overloads() {
            for times in OVERLOADS {
                let load = self.rules.quantity.load(times * result);
                if let Some(next) = self.once(Purpose::Overload, load, self.rules.plan.short) {
                    return StageResult::Next(next);
                }
            }
        }
        StageResult::To(())
    }

    /// Median of the completed searches.
    pub fn result(&self) -> Option<f64> {
        let mut lowers: Vec<f64> = self.brackets().into_iter().map(|(lower, _)| lower).collect();
        lowers.sort_by(f64::total_cmp);
        // For an even number of searches the lower of the two middle values, because that load was tried.
        (!lowers.is_empty()).then(|| lowers[(lowers.len() - 1) / 2])
    }

    /// Brackets of the completed long searches, in order.
    pub fn brackets(&self) -> Vec<(f64, f64)> {
        let of = |number| self.bracket(&self.search(Purpose::Long, number, 1.0), Purpose::Long);
        (1..=self.rules.plan.searches).map_while(of).collect()
    }

    /// The bracket, once within the width.
    fn bracket(&self, search: &Search, purpose: Purpose) -> Option<(f64, f64)> {
        let (lower, upper) = search.bounds();
        let (lower, upper) = (lower?, upper?);
        let is_near = upper / lower <= (1.0 + self.width(purpose)) * (1.0 + 1e-6);
        let are_neighbours = !self.rules.quantity.find.is_rate() && upper - lower <= 1.0;
        (is_near || are_neighbours).then_some((lower, upper))
    }

    fn width(&self, purpose: Purpose) -> f64 {
        let request = self.rules.plan.width.value();
        if purpose == Purpose::Short { SHORT_WIDTH.max(request) } else { request }
    }

    /// The bracket so far: of the long trials, or of the short ones if there are no long ones.
    pub fn so_far(&self) -> (Option<f64>, Option<f64>) {
        let last =
            (1..=self.rules.plan.searches).rev().find(|&number| self.counted(Purpose::Long, number).next().is_some());
        match last {
            Some(number) => self.search(Purpose::Long, number, 1.0).bounds(),
            None => self.search(Purpose::Short, 0, 1.0).bounds(),
        }
    }

    /// Highest load that passed in the short stage below the lowest that failed.
    pub fn short_lower(&self) -> Option<f64> {
        self.search(Purpose::Short, 0, 1.0).bounds().0
    }

    /// Warm-up of every trial, and whether it was configured or the server was seen to settle in it.
    pub fn warmup(&self) -> (Duration, bool) {
        // Users who have not started yet make no load, so their start-up time is added.
        let least = self.rules.quantity.warmup;
        if let Some(configured) = self.rules.warmup {
            return (configured.max(least), true);
        }
        let settled = self.counted(Purpose::Calibration, 0).filter_map(|trial| trial.settled_s).next_back();
        settled.map_or((WARMUP_UNSETTLED.max(least), false), |settled_s| {
            (Duration::from_secs_f64(settled_s).max(least), true)
        })
    }

    /// Highest load that this machine can generate, as far as known without the initial estimate, and whether it was
    /// measured in requests; otherwise it is that of [`SearchQuantity::most`].
    pub fn limit(&self) -> Option<(f64, bool)> {
        let quantity = &self.rules.quantity;
        let measured = self.generator_limit().and_then(|rate| quantity.of_requests(rate));
        let most = quantity.most.as_ref().map(|most| most.load);
        match (measured, most) {
            (Some(measured), most) if most.is_none_or(|most| measured <= most) => Some((measured, true)),
            (_, Some(most)) => Some((most, false)),
            (_, None) => None,
        }
    }

    /// Measured limit of the generator, in requests per second.
    pub fn generator_limit(&self) -> Option<f64> {
        let (lower, upper) = self.limit_search(LIMIT_START).bounds();
        lower.or(upper).or(self.rules.generator_limit)
    }

    /// Estimated limit of the generator: 95 % over the busy time per request. A request costs more at low loads, so the
    /// estimate is low rather than high.
    pub fn generator_estimate(&self) -> Option<f64> {
        let counts = |trial: &&TrialPart| {
            let stages = [Purpose::Calibration, Purpose::Short, Purpose::Long, Purpose::Confirmation];
            stages.iter().any(|stage| stage.name() == trial.stage) && trial.verdict == "good" && trial.loop_busy > 0.0
        };
        let busiest =
            self.trials.iter().filter(counts).max_by(|a, b| a.achieved_rate_per_s.total_cmp(&b.achieved_rate_per_s))?;
        Some(busiest.achieved_rate_per_s * 0.95 / busiest.loop_busy)
    }

    /// Undisturbed trials of one stage and search.
    fn counted(&self, purpose: Purpose, search: u32) -> impl DoubleEndedIterator<Item = &TrialPart> {
        let of = move |trial: &&TrialPart| {
            trial.stage == purpose.name() && trial.search == search && trial.verdict != "void"
        };
        self.trials.iter().filter(of)
    }

    /// First load of the short stage.
    fn first(&self) -> StageResult<f64> {
        let plan = &self.rules.plan;
        // A limit below the least load is refused before any trial.
        if let StageResult::Next(refused) = self.within(self.max()) {
            return StageResult::Next(refused);
        }
        let quantity = &self.rules.quantity;
        let known = self.rules.first.or(plan.start.map(LoadLimit::value));
        if quantity.find == Find::Connections {
            // The throughput of a closed loop has no relation to the number of open connections.
            return self.within(known.unwrap_or(FIRST_CONNECTIONS));
        }
        // The initial estimate also gives the response size for the generator trials.
        if let Some(first) = known.filter(|_| !self.seeks_limit()) {
            return self.within(first);
        }
        match self.counted(Purpose::Guess, 0).next() {
            // Without its warm-up a slowly starting application responds with errors only.
            None => {
                match self.request_trial(
                    Purpose::Guess,
                    0,
                    GUESS_CONNECTIONS.max(f64::from(self.rules.shards)),
                    PROBE_LENGTH,
                    self.rules.warmup.unwrap_or_default(),
                    1.0,
                ) {
                    Next::Make(request) => StageResult::Next(Next::Make(request)),
                    end => StageResult::Next(end),
                }
            }
            Some(trial) if trial.verdict != "good" => {
                StageResult::Next(Next::End(End::Refused(trial.why.first().cloned().unwrap_or_default())))
            }
            Some(trial) => {
                let carried = quantity.of_requests(trial.achieved_rate_per_s).unwrap_or(0.0);
                if known.is_none() && carried < self.min() {
                    return StageResult::Next(Next::End(End::Refused(format!(
                        "too few requests for the objective's quantile: a trial needs {}, and the server handles \
                         about {}/s; choose a lower quantile (p95, p90), or longer trials (--trial)",
                        self.rules.requests_min,
                        rounded(trial.achieved_rate_per_s)
                    ))));
                }
                self.within(known.unwrap_or(FIRST_SHARE * carried))
            }
        }
    }

    fn within(&self, first: f64) -> StageResult<f64> {
        let (min, max) = (self.min(), self.max());
        if max < min {
            return StageResult::Next(Next::End(End::Refused(format!(
                "too few requests for the objective's quantile at {} (--max): a trial needs {}; choose a lower \
                 quantile (p95, p90), or longer trials (--trial)",
                self.rules.quantity.words(max),
                self.rules.requests_min
            ))));
        }
        StageResult::To(self.rules.quantity.load(first).clamp(min, max))
    }

    /// Lowest load with enough requests in the longest trial.
    pub fn min(&self) -> f64 {
        let quantity = &self.rules.quantity;
        let longest = self.rules.plan.trial.max(EXTENDED_TRIAL_MAX).max(quantity.least).as_secs_f64();
        let least = self.rules.requests_min.max(REQUESTS_MIN) as f64 / longest;
        if !quantity.find.is_rate() {
            let shards = f64::from(self.rules.shards);
            return quantity.of_requests(least).map_or(shards, |least| least.ceil().max(shards));
        }
        // Rounded up: a lower load has too few requests.
        let unit = 10_f64.powi(least.log10().floor() as i32 - 2);
        rounded((least / unit).ceil() * unit)
    }

    fn max(&self) -> f64 {
        self.rules.plan.max.map_or(1e9, LoadLimit::value)
    }

    /// Length of a trial at `load`, at least `least`.
    fn lasts(&self, load: f64, least: Duration) -> Duration {
        let quantity = &self.rules.quantity;
        let least = least.max(quantity.least);
        if quantity.find == Find::Connections {
            // For connections the number of requests follows from the length.
            return least;
        }
        let needed_s = self.rules.requests_min as f64 / quantity.rate_per_s(load);
        let tenths = (needed_s * 10.0 - 1e-6).ceil().max(0.0);
        least.max(Duration::from_millis(tenths as u64 * 100))
    }

    fn seeks_limit(&self) -> bool {
        self.rules.can_limit && self.rules.plan.limit && self.rules.quantity.find != Find::Connections
    }

    /// Mean response size in bytes, as far as known.
    pub fn response_bytes(&self) -> f64 {
        self.trials.iter().map(|trial| trial.response_bytes).find(|bytes| *bytes > 0.0).unwrap_or(0.0)
    }
}

/// A load rounded to the stored digits.
pub fn rounded(load: f64) -> f64 {
    if load <= 0.0 || !load.is_finite() {
        return load;
    }
    // Converted through text, since text is how it is read back.
    let digits = (LOAD_DIGITS - 1) as usize;
    format!("{load:.digits$e}").parse().expect("a number as it was printed")
}
