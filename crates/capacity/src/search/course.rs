//! The course of a capacity: which trial comes next, as a pure function of the trials that were made.
//!
//! ```text
//!   guess --> generator's limit --> calibration --> short stage --> long searches 1 .. k --> confirmation --> overload
//!   1 s       6 x 1 s               15 s            bracket 5 %     each to the width         answer, 0.9      1.2, 2
//! ```
//!
//! An overload of a share e stays below a response time of L for L / e seconds: short trials are cheap and let too much pass, so they only
//! say where the long ones begin. Nothing here runs a trial or reads a clock; told the same trials again ([`Course::add`]), a course goes on
//! where it was, which is how one that was interrupted is taken up.

mod next;

use std::time::Duration;

use plan::{CapacityPlan, Find, SoughtLoad};
use schema::TrialPart;
use stats::search::Search;

use super::question::{LoadQuestion, REQUESTS_MIN};
use super::trial::{Purpose, TrialRequest};

/// Connections of the closed loop that makes the first guess.
pub const GUESS_CONNECTIONS: f64 = 16.0;
/// Connections that are held at first.
const FIRST_CONNECTIONS: f64 = 64.0;
/// The guess, and each trial of the generator's limit, lasts so long.
const SECOND: Duration = Duration::from_secs(1);
/// Of what the closed loop gets, the share that is tried first.
const FIRST_SHARE: f64 = 0.5;
/// And of that, the share at which the server is to settle.
const CALIBRATION_SHARE: f64 = 0.5;
/// The short stage brackets the answer to this.
pub const SHORT_WIDTH: f64 = 0.05;
/// While one side is unknown, loads of the short stage are so many times the last; those of the long one begin in the bracket,
/// so that the first step is small, and grows (the server may have been cold in the short one).
const SHORT_RAMP: f64 = 2.0;
const LONG_RAMP: f64 = 1.05;
/// The generator's own limit is sought to this, in so many trials at most.
const LIMIT_WIDTH: f64 = 0.25;
const LIMIT_TRIALS: usize = 8;
/// And begins at no less.
const LIMIT_START: f64 = 2_000.0;
/// A trial that was disturbed is made again so often at one load; then the search is undecided.
const VOID_AT_LOAD: usize = 2;
/// And so often in one search.
pub const VOID_IN_SEARCH: usize = 6;
/// Confirmations, as shares of the answer.
pub const CONFIRMED_AT: [f64; 2] = [1.0, 0.9];
/// Overloads, as multiples of the answer.
const OVERLOADS: [f64; 2] = [1.2, 2.0];
/// A trial becomes so long where it has few requests; a load that would take longer has too few.
pub const LONGEST: Duration = Duration::from_secs(60);
/// The warm-up where the server was not seen to settle.
const WARMUP_UNSETTLED: Duration = Duration::from_secs(15);
/// Loads have so many digits: they are kept as text, and must come back as they were.
const DIGITS: i32 = 7;
/// Searches aim at so much of their width, and end at all of it: loads are rounded, and no step is to be made for what differs by that alone.
const AIM: f64 = 0.95;

/// What a course goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// What was asked for.
    pub plan: CapacityPlan,
    /// What is sought.
    pub question: LoadQuestion,
    /// The warm-up, where it was given.
    pub warmup: Option<Duration>,
    /// Where to begin, where it is known from elsewhere.
    pub first: Option<f64>,
    /// Requests that a trial must have for the objective's tail.
    pub requests_min: u64,
    /// Whether this program's fastest server can stand in for the server, to find the generator's limit.
    pub can_limit: bool,
    /// That limit, in requests a second, where it was found at another distance.
    pub generator_limit: Option<f64>,
    /// The objective's least limit of a response time.
    pub response_limit: Duration,
}

impl Rules {
    /// Whether loads beyond the answer are tried: beyond the most connections that are held there is nothing more to carry.
    pub fn overloads(&self) -> bool {
        self.plan.overload && self.question.find != Find::Connections
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Make this trial.
    Make(TrialRequest),
    /// Nothing more.
    End(End),
}

/// How a course ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It came to its regular end.
    Found,
    /// The objective is missed at the least load, too.
    MissedAtAny {
        /// That load.
        at: f64,
    },
    /// No load up to the highest that may be tried was too much.
    NeverTooMuch {
        /// That load.
        at: f64,
    },
    /// The generator could make no more, and the server still held.
    ClientLimit {
        /// The highest load that held; 0 if none was made.
        held: f64,
    },
    /// Trials were disturbed again and again.
    Undecided {
        /// How many.
        voids: usize,
    },
    /// It cannot be: in a sentence.
    Refused(String),
}

/// A course under way.
#[derive(Clone, Debug)]
pub struct Course<'a> {
    rules: &'a Rules,
    made: Vec<TrialPart>,
}

/// What one search came to.
enum Came<T> {
    To(T),
    Next(Next),
}

impl<'a> Course<'a> {
    /// Begins.
    pub fn new(rules: &'a Rules) -> Self {
        Course { rules, made: Vec::new() }
    }

    /// A trial was made.
    pub fn add(&mut self, trial: TrialPart) {
        self.made.push(trial);
    }

    /// The trials so far.
    pub fn made(&self) -> &[TrialPart] {
        &self.made
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match self.until_the_end() {
            Came::To(()) => Next::End(End::Found),
            Came::Next(next) => next,
        }
    }

    fn until_the_end(&self) -> Came<()> {
        let first = match self.first() {
            Came::To(first) => first,
            Came::Next(next) => return Came::Next(next),
        };
        if let Some(next) = self.limit_next(first) {
            return Came::Next(next);
        }
        if let Some(next) = self.calibration_next(first) {
            return Came::Next(next);
        }
        let (lower, upper) = match self.searched(Purpose::Short, 0, first) {
            Came::To(bracket) => bracket,
            Came::Next(next) => return Came::Next(next),
        };
        for number in 1..=self.rules.plan.searches {
            if let Came::Next(next) = self.searched(Purpose::Long, number, (lower * upper).sqrt()) {
                return Came::Next(next);
            }
        }
        let answer = self.answer().expect("every search came to its end");
        if !self.rules.plan.confirm.is_zero() {
            for share in CONFIRMED_AT {
                let load = self.rules.question.load(share * answer);
                if let Some(next) = self.once(Purpose::Confirmation, load, self.rules.plan.confirm) {
                    return Came::Next(next);
                }
            }
        }
        if self.rules.overloads() {
            for times in OVERLOADS {
                let load = self.rules.question.load(times * answer);
                if let Some(next) = self.once(Purpose::Overload, load, self.rules.plan.short) {
                    return Came::Next(next);
                }
            }
        }
        Came::To(())
    }

    /// The median of what the searches found, as far as they came to their end.
    pub fn answer(&self) -> Option<f64> {
        let mut lowers: Vec<f64> = self.brackets().into_iter().map(|(lower, _)| lower).collect();
        lowers.sort_by(f64::total_cmp);
        // Of an even number the lower of the two in the middle: a load that was tried.
        (!lowers.is_empty()).then(|| lowers[(lowers.len() - 1) / 2])
    }

    /// The brackets of the searches of long trials that came to their end, the first first.
    pub fn brackets(&self) -> Vec<(f64, f64)> {
        let of = |number| self.bracket(&self.search(Purpose::Long, number, 1.0), Purpose::Long);
        (1..=self.rules.plan.searches).map_while(of).collect()
    }

    /// The loads on both sides, once they are as near as asked.
    fn bracket(&self, search: &Search, purpose: Purpose) -> Option<(f64, f64)> {
        let (lower, upper) = search.bounds();
        let (lower, upper) = (lower?, upper?);
        let is_near = upper / lower <= (1.0 + self.width(purpose)) * (1.0 + 1e-6);
        let are_neighbours = !self.rules.question.find.is_rate() && upper - lower <= 1.0;
        (is_near || are_neighbours).then_some((lower, upper))
    }

    fn width(&self, purpose: Purpose) -> f64 {
        let asked = self.rules.plan.width.value();
        if purpose == Purpose::Short { SHORT_WIDTH.max(asked) } else { asked }
    }

    /// What is known on both sides so far: of the long trials, or of the short ones if there are none.
    pub fn so_far(&self) -> (Option<f64>, Option<f64>) {
        let last =
            (1..=self.rules.plan.searches).rev().find(|&number| self.counted(Purpose::Long, number).next().is_some());
        match last {
            Some(number) => self.search(Purpose::Long, number, 1.0).bounds(),
            None => self.search(Purpose::Short, 0, 1.0).bounds(),
        }
    }

    /// The highest load that held in the short stage below the least that did not.
    pub fn short_lower(&self) -> Option<f64> {
        self.search(Purpose::Short, 0, 1.0).bounds().0
    }

    /// The warm-up of every trial, and whether the server was seen to settle in it, or it was given.
    pub fn warmup(&self) -> (Duration, bool) {
        // Users who have not begun yet are none.
        let least = self.rules.question.warmup;
        if let Some(given) = self.rules.warmup {
            return (given.max(least), true);
        }
        let settled = self.counted(Purpose::Calibration, 0).filter_map(|trial| trial.settled_s).next_back();
        settled.map_or((WARMUP_UNSETTLED.max(least), false), |settled_s| {
            (Duration::from_secs_f64(settled_s).max(least), true)
        })
    }

    /// The most of the load that can be made here, as far as it is known without a guess, and whether that was measured in requests: else
    /// it is what [`LoadQuestion::most`] says.
    pub fn limit(&self) -> Option<(f64, bool)> {
        let question = &self.rules.question;
        let measured = self.generator_limit().and_then(|rate| question.of_requests(rate));
        let most = question.most.as_ref().map(|most| most.load);
        match (measured, most) {
            (Some(measured), most) if most.is_none_or(|most| measured <= most) => Some((measured, true)),
            (_, Some(most)) => Some((most, false)),
            (_, None) => None,
        }
    }

    /// How many requests a second the generator can make, where it was measured.
    pub fn generator_limit(&self) -> Option<f64> {
        let (lower, upper) = self.limit_search(LIMIT_START).bounds();
        lower.or(upper).or(self.rules.generator_limit)
    }

    /// The same by how busy it was: 95 % over what a request took. At low loads a request costs more, so this errs low.
    pub fn generator_estimate(&self) -> Option<f64> {
        let counts = |trial: &&TrialPart| {
            let stages = [Purpose::Calibration, Purpose::Short, Purpose::Long, Purpose::Confirmation];
            stages.iter().any(|stage| stage.name() == trial.stage) && trial.verdict == "good" && trial.loop_busy > 0.0
        };
        let busiest =
            self.made.iter().filter(counts).max_by(|a, b| a.achieved_rate_per_s.total_cmp(&b.achieved_rate_per_s))?;
        Some(busiest.achieved_rate_per_s * 0.95 / busiest.loop_busy)
    }

    /// Trials of one stage and search that count.
    fn counted(&self, purpose: Purpose, search: u32) -> impl DoubleEndedIterator<Item = &TrialPart> {
        let of = move |trial: &&TrialPart| {
            trial.stage == purpose.name() && trial.search == search && trial.verdict != "void"
        };
        self.made.iter().filter(of)
    }

    /// Where the short stage begins.
    fn first(&self) -> Came<f64> {
        let plan = &self.rules.plan;
        // What no load can give is refused before any is made.
        if let Came::Next(refused) = self.within(self.max()) {
            return Came::Next(refused);
        }
        let question = &self.rules.question;
        let known = self.rules.first.or(plan.start.map(SoughtLoad::value));
        if question.find == Find::Connections {
            // What a closed loop gets says nothing of how many connections are held.
            return self.within(known.unwrap_or(FIRST_CONNECTIONS));
        }
        // The size of an answer, which the generator's limit is sought with, is learnt by the guess too.
        if let Some(first) = known.filter(|_| !self.seeks_limit()) {
            return self.within(first);
        }
        match self.counted(Purpose::Guess, 0).next() {
            // A server that needs a warm-up (an application that starts slowly) answers nothing before it but errors.
            None => {
                match self.ask(Purpose::Guess, 0, GUESS_CONNECTIONS, SECOND, self.rules.warmup.unwrap_or_default(), 1.0)
                {
                    Next::Make(asked) => Came::Next(Next::Make(asked)),
                    end => Came::Next(end),
                }
            }
            Some(trial) if trial.verdict != "good" => {
                Came::Next(Next::End(End::Refused(trial.why.first().cloned().unwrap_or_default())))
            }
            Some(trial) => {
                let carried = question.of_requests(trial.achieved_rate_per_s).unwrap_or(0.0);
                if known.is_none() && carried < self.min() {
                    return Came::Next(Next::End(End::Refused(format!(
                        "too few requests for the objective's tail: {} of them are needed in a trial, and the server makes about {}/s; \
                         choose a quantile nearer the middle (p95, p90), or longer trials (--trial)",
                        self.rules.requests_min,
                        rounded(trial.achieved_rate_per_s)
                    ))));
                }
                self.within(known.unwrap_or(FIRST_SHARE * carried))
            }
        }
    }

    fn within(&self, first: f64) -> Came<f64> {
        let (min, max) = (self.min(), self.max());
        if max < min {
            return Came::Next(Next::End(End::Refused(format!(
                "too few requests for the objective's tail at {} (--max): {} of them are needed in a trial; choose a quantile nearer the middle \
                 (p95, p90), or longer trials (--trial)",
                self.rules.question.words(max),
                self.rules.requests_min
            ))));
        }
        Came::To(self.rules.question.load(first).clamp(min, max))
    }

    /// The least load: it has enough requests in the longest trial.
    pub fn min(&self) -> f64 {
        let question = &self.rules.question;
        let longest = self.rules.plan.trial.max(LONGEST).max(question.least).as_secs_f64();
        let least = self.rules.requests_min.max(REQUESTS_MIN) as f64 / longest;
        if !question.find.is_rate() {
            return question.of_requests(least).map_or(1.0, |least| least.ceil().max(1.0));
        }
        // Never down: then they would be too few.
        let unit = 10_f64.powi(least.log10().floor() as i32 - 2);
        rounded((least / unit).ceil() * unit)
    }

    fn max(&self) -> f64 {
        self.rules.plan.max.map_or(1e9, SoughtLoad::value)
    }

    /// How long a trial at a load lasts, if it is to last so long at least.
    fn lasts(&self, load: f64, least: Duration) -> Duration {
        let question = &self.rules.question;
        let least = least.max(question.least);
        if question.find == Find::Connections {
            // There the requests follow from the length.
            return least;
        }
        let needed_s = self.rules.requests_min as f64 / question.rate_per_s(load);
        let tenths = (needed_s * 10.0 - 1e-6).ceil().max(0.0);
        least.max(Duration::from_millis(tenths as u64 * 100))
    }

    fn seeks_limit(&self) -> bool {
        self.rules.can_limit && self.rules.plan.limit && self.rules.question.find != Find::Connections
    }

    /// Bytes of an answer, the mean, as far as it is known.
    pub fn response_bytes(&self) -> f64 {
        self.made.iter().map(|trial| trial.response_bytes).find(|bytes| *bytes > 0.0).unwrap_or(0.0)
    }
}

/// A load with as many digits as are kept.
pub fn rounded(load: f64) -> f64 {
    if load <= 0.0 || !load.is_finite() {
        return load;
    }
    // By way of text, since that is how it comes back.
    let digits = (DIGITS - 1) as usize;
    format!("{load:.digits$e}").parse().expect("a number as it was printed")
}
