//! P5: Makino, Kubo, Ohtsuka, Shibata, Matsumoto and Hayashi (Reitaku University, 2001), evaluation of a multi-function gateway for
//! school networks: its cache half. squid on three machines, P5's rates and situations:
//!
//! | part | what |
//! |---|---|
//! | [`Part::Small`], [`Part::Middle`], [`Part::Large`] | PolyMix-1 at 5 to 80/s, through a card of 10 Mbit/s; the large one also of 100 |
//! | [`Part::Repeats`] | 95 % cachable with 90 % hits, on the small machine |
//! | [`Part::New`] | a course in which every URL is new, on the middle one |
//! | [`Part::Class`] | 40 seats after the teacher fetched the pages, on the small one |
//!
//! ```text
//!   robots ───┐                            ┌─── squid, held to a share of a core and so much memory
//!             ├── one card of 10 F Mbit/s ──┤
//!   origin ───┘   for both of its sides    └─── started anew for each point
//! ```
//!
//! **Time runs F times as fast as in the paper.** One core of today does hundreds of times what a Pentium of 100 MHz did, and a
//! share that small cannot be dealt out smoothly. So rates and cards are F times the paper's, and think times and time-outs are
//! a Fth: as many requests and connections are under way as there, and each figure goes back to the paper's scale by F. F is
//! found first, from the CPU that squid takes for a request here: the small machine is to have what the paper's needed for its
//! 10/s. The other two follow by their clocks, and nothing else is fitted. Read [`scale`] next.

mod paper;
mod plans;
pub mod rows;
mod scale;
mod words;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use lab::Observer;
use lab::plan::PathPlan;
use ledger::document::{Check, CheckState, Weight};
use ledger::{CachePoint, Document, Reproduction, ReproductionRow};
use store::Book;
use sys::signal::Interrupts;

pub use self::paper::{PUBLISHED, Published};
pub use self::scale::{Card, Machine, Scale};
pub use self::words::summary;

use self::plans::at;
use super::sheet::Sheet;
use super::{Order, Reproduced, Stage};
use crate::cache::plan::RATES_PER_S;
use crate::cache::{self, CachePlan};
use crate::error::SuiteError;
use crate::proxies::{Sizes, Squid};

/// Its name among the reproductions.
pub const NAME: &str = "gateway";
/// A point, unless it is said.
pub const POINT: Duration = Duration::from_secs(8);
/// A point of the paper.
pub const POINT_FULL: Duration = Duration::from_secs(30 * 60);
/// Shorter points have no figures.
pub const POINT_MIN: Duration = Duration::from_secs(2);
/// An answer may take so long, in the paper's time, and with `--full` so long. Its means of 79 s say that it was more than
/// that; what it was is not known.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_FULL: Duration = Duration::from_secs(180);
/// The rate at which CPU per request is measured, and for how long: some hundreds of requests on a machine that is not busy.
const COST_PER_S: f64 = 250.0;
const COST_POINT: Duration = Duration::from_secs(4);
/// Think times there.
const COST_FACTOR: f64 = 10.0;
/// Starting squid and ending a run, and what is under way when a point is over.
const AROUND: Duration = Duration::from_millis(2200);

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The sweep on the small machine.
    Small,
    /// On the middle one.
    Middle,
    /// On the large one, with both cards.
    Large,
    /// 95 % cachable with 90 % hits.
    Repeats,
    /// Every URL new.
    New,
    /// A class whose teacher fetched the pages.
    Class,
}

impl Part {
    /// All, in their order.
    pub const ALL: [Part; 6] = [Part::Small, Part::Middle, Part::Large, Part::Repeats, Part::New, Part::Class];

    /// What is measured: a mix on a machine behind a card, at the paper's rates.
    fn experiments(self) -> Vec<Experiment> {
        let ten =
            |machine, mix, rates: &'static [f64]| Experiment { part: self, machine, card: Card::Mbit10, mix, rates };
        match self {
            Part::Small => vec![ten(Machine::Small, "polymix-1", &RATES_PER_S)],
            Part::Middle => vec![ten(Machine::Middle, "polymix-1", &RATES_PER_S)],
            Part::Large => {
                let large = ten(Machine::Large, "polymix-1", &RATES_PER_S);
                vec![large, Experiment { card: Card::Mbit100, ..large }]
            }
            Part::Repeats => vec![ten(Machine::Small, "p5-prepared", &[20.0])],
            Part::New => vec![ten(Machine::Middle, "p5-new", &[20.0, 40.0])],
            Part::Class => vec![ten(Machine::Small, "p5-seats", &[40.0])],
        }
    }
}

/// One mix on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experiment {
    part: Part,
    machine: Machine,
    card: Card,
    mix: &'static str,
    /// The paper's requests a second.
    rates: &'static [f64],
}

impl Experiment {
    /// As in the rows: `small, 10 Mbit/s`, and what is special about it.
    pub fn name(&self) -> String {
        let place = rows::experiment(self.machine, self.card);
        match self.part {
            Part::Small | Part::Middle | Part::Large => place,
            Part::Repeats => format!("{}, {place}", rows::REPEATS),
            Part::New => format!("{}, {place}", rows::NEW),
            Part::Class => format!("{}, {place}", rows::CLASS),
        }
    }

    fn is_sweep(&self) -> bool {
        matches!(self.part, Part::Small | Part::Middle | Part::Large)
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As for every reproduction.
    pub order: Order,
    /// Which parts.
    pub parts: Vec<Part>,
    /// Length of a point, its warm-up included.
    pub point: Duration,
    /// The paper's rates; those of a situation are its own.
    pub rates: Vec<f64>,
    /// How much faster time runs than in the paper; absent: found by a measurement.
    pub factor: Option<f64>,
    /// With the time-outs that a point of the paper's length lets one see.
    pub full: bool,
}

impl Asked {
    /// Time it takes, nearly.
    pub fn time(&self) -> Duration {
        let points: usize = self.experiments().iter().map(|experiment| self.rates_of(experiment).len()).sum();
        let cost = if self.factor.is_none() { COST_POINT + AROUND } else { Duration::ZERO };
        cost + (self.point + AROUND) * points as u32
    }

    fn experiments(&self) -> Vec<Experiment> {
        let asked = Part::ALL.into_iter().filter(|part| self.parts.contains(part));
        asked.flat_map(Part::experiments).collect()
    }

    fn rates_of(&self, experiment: &Experiment) -> Vec<f64> {
        let is_asked = |rate: &f64| !experiment.is_sweep() || self.rates.iter().any(|asked| asked == rate);
        experiment.rates.iter().copied().filter(is_asked).collect()
    }
}

/// Makes the parts asked for, and puts the paper beside them. Must be called while this process has one thread, since the
/// lab forks. An interrupt ends it with the point at hand; what was made by then is in the document.
///
/// # Errors
/// squid is not installed; CPU or memory cannot be bounded here; the lab could not make a run; the book cannot be written.
pub fn make(
    asked: &Asked,
    book: &Book,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, SuiteError> {
    let folder = tempfile::tempdir().map_err(SuiteError::file(std::env::temp_dir()))?;
    // squid gives root away, and must still find what is its own.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).map_err(SuiteError::file(folder.path()))?;
    let mut kitchen = Kitchen {
        asked,
        book,
        interrupts,
        stage,
        folder: folder.path(),
        squid: Squid::find()?,
        sheet: Sheet::new(book, NAME, &asked.order)?,
    };
    let mut rows = Vec::new();
    let scale = match asked.factor {
        Some(factor) => Scale::given(factor),
        None => kitchen.measure_cost()?,
    };
    rows.extend(rows::of_scale(&scale));
    for experiment in asked.experiments() {
        if interrupts.count() > 0 {
            break;
        }
        rows.extend(kitchen.cook(&experiment, &scale)?);
    }
    let part = Reproduction {
        name: NAME.into(),
        about: words::about(asked, &scale, &kitchen.squid.version()),
        answer: words::answer(&rows),
        notes: words::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    kitchen.sheet.close(&asked.order, interrupts.count() > 0, part)
}

/// What every sweep is made with.
struct Kitchen<'a> {
    asked: &'a Asked,
    book: &'a Book,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    folder: &'a Path,
    squid: Squid,
    sheet: Sheet,
}

impl Kitchen<'_> {
    /// Finds F: what squid, bound by nothing, takes for a request.
    fn measure_cost(&mut self) -> Result<Scale, SuiteError> {
        const NAME: &str = "CPU of a request";
        let path = PathPlan { rtt: Some(Duration::ZERO), ..PathPlan::default() };
        let sizes = Sizes { memory: Machine::Large.cache(), disk: None };
        let mut plan = self.plan("gateway-cost", "polymix-1", COST_FACTOR, sizes, path)?;
        plan.cache.rates = at(&[COST_PER_S], 1.0);
        plan.cache.point = COST_POINT;
        plan.cache.timeout = TIMEOUT;
        let document = self.sweep(NAME, &plan)?;
        let run = document.cache.as_ref().and_then(|part| part.points.first()).map(|point| self.run_of(point));
        let run = run.transpose()?.flatten();
        let cpu_us =
            run.as_ref().and_then(rows::cpu_us_per_request).filter(|cpu_us| cpu_us.is_finite() && *cpu_us > 0.0);
        let Some(cpu_us) = cpu_us else {
            return Err(SuiteError::Program {
                program: "squid",
                why: format!(
                    "nothing is known of the CPU that it takes for a request{}, so there is no factor: say one (--factor)",
                    if self.interrupts.count() > 0 { ", since it was interrupted" } else { "" }
                ),
            });
        };
        Ok(Scale::of_cost(cpu_us))
    }

    /// Makes the points of an experiment; its rows.
    fn cook(&mut self, experiment: &Experiment, scale: &Scale) -> Result<Vec<ReproductionRow>, SuiteError> {
        let rates = self.asked.rates_of(experiment);
        if rates.is_empty() {
            return Ok(Vec::new());
        }
        let plan = self.plan_of(experiment, scale, &rates)?;
        let name = experiment.name();
        let document = self.sweep(&name, &plan)?;
        let mut made = Vec::new();
        let part = document.cache.unwrap_or_default();
        for point in &part.points {
            let Some(rate) = rows::nearest(&rates, point.offered_rate_per_s / scale.factor) else { continue };
            let run = self.run_of(point)?;
            made.extend(rows::of_point(experiment, rate, point, run.as_ref(), scale));
        }
        if let Some(seats) = part.seats.filter(|_| experiment.is_sweep()) {
            made.push(rows::usable(&name, experiment.machine, experiment.card, &seats));
        }
        if part.points.len() < rates.len() && self.interrupts.count() == 0 {
            self.sheet.check(Check {
                name: format!("{name}: points"),
                state: CheckState::CouldNotRun,
                weight: Weight::Suspect,
                value: Some(part.points.len() as f64),
                limit: Some(rates.len() as f64),
                unit: "points".into(),
                why: "some were not measured; the sweep's own document says why".into(),
            });
        }
        Ok(made)
    }

    /// Makes a sweep and takes its checks in.
    fn sweep(&mut self, name: &str, plan: &CachePlan) -> Result<Document, SuiteError> {
        let mut stage = Named { name, inner: &mut *self.stage };
        let mut document = cache::run(plan, &self.asked.order, self.book, self.interrupts, &mut stage)?.document;
        allow_overload(&mut document);
        self.sheet.take(name, &document, None);
        Ok(document)
    }

    /// The document of a point's own run, if it was kept.
    fn run_of(&self, point: &CachePoint) -> Result<Option<Document>, SuiteError> {
        if point.run.is_empty() {
            return Ok(None);
        }
        Ok(Some(store::read_summary(&self.book.find(&point.run)?)?))
    }
}

/// A point in which nothing was answered in time is a result here, and no sign that there was no server: squid listened before
/// it was asked, and the rates go beyond what a machine can do, as the paper's did. Only where all that failed was late: a squid
/// that refuses, breaks off or has ended stays what it is.
fn allow_overload(document: &mut Document) {
    let only_late = |point: &&CachePoint| {
        let figures = &point.figures;
        point.ended_early && figures.answered == 0 && figures.errors.keys().all(|cause| LATE.contains(&cause.as_str()))
    };
    let overloaded = document.cache.iter().flat_map(|part| &part.points).filter(only_late).count();
    let mut checks = document.validity.checks.clone();
    let unanswered = |check: &&mut Check| check.state == CheckState::Failed && check.name.ends_with(UNANSWERED);
    if checks.iter_mut().filter(unanswered).count() != overloaded {
        return;
    }
    for check in checks.iter_mut().filter(unanswered) {
        check.state = CheckState::Ok;
        check.why = "the rate was so much beyond the machine that no answer of the measured phase came in time; the point was ended \
                     by the paper's rule"
            .into();
    }
    document.validity = ledger::Validity::from_checks(checks);
}

/// The lab's check that a server answers.
const UNANSWERED: &str = ": server_answers";
/// Causes of failures of requests that came to nothing but late.
const LATE: [&str; 2] = ["response_timeout", "connect_timeout"];

/// Says which machine a point is of.
struct Named<'a> {
    name: &'a str,
    inner: &'a mut dyn Stage,
}

impl Stage for Named<'_> {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        self.inner.begin(&format!("{}: {what}", self.name))
    }

    fn point(&mut self, point: &CachePoint) {
        self.inner.point(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    pub(super) fn asked(parts: &[Part]) -> Asked {
        let order = Order { program: "y".into(), seed: 1, command: String::new(), started: SystemTime::UNIX_EPOCH };
        let rates = RATES_PER_S.to_vec();
        Asked { order, parts: parts.to_vec(), point: POINT, rates, factor: None, full: false }
    }

    #[test]
    fn all_of_it_takes_some_minutes() {
        let whole = asked(&Part::ALL);
        assert_eq!(whole.experiments().len(), 7);
        assert!((300..560).contains(&whole.time().as_secs()), "{:?}", whole.time());
        let mut some = asked(&[Part::Class, Part::Small]);
        some.rates = vec![20.0];
        let names: Vec<String> = some.experiments().iter().map(Experiment::name).collect();
        assert_eq!(names, ["small, 10 Mbit/s", "a class, small, 10 Mbit/s"], "in their order, whatever was typed");
        some.factor = Some(10.0);
        assert_eq!(some.time(), (POINT + AROUND) * 2, "a class has its own rate");
    }

    #[test]
    fn overload_is_a_result_and_a_broken_squid_is_not() {
        let document = |errors: &[&str], checks: &[&str]| -> Document {
            let point = CachePoint {
                ended_early: true,
                figures: ledger::CacheFigures {
                    errors: errors.iter().map(|cause| ((*cause).to_owned(), 9)).collect(),
                    ..ledger::CacheFigures::default()
                },
                ..CachePoint::default()
            };
            let failed = |name: &&str| Check {
                name: (*name).to_owned(),
                state: CheckState::Failed,
                weight: Weight::Invalid,
                value: None,
                limit: None,
                unit: String::new(),
                why: String::new(),
            };
            let part = ledger::CachePart { points: vec![point], ..ledger::CachePart::default() };
            let validity = ledger::Validity::from_checks(checks.iter().map(failed).collect());
            let (run, part) = (ledger::document::Run::default(), part);
            let json = serde_json::json!({ "schema": "", "run": run, "validity": validity, "cache": part });
            serde_json::from_value(json).unwrap()
        };
        let states = |mut document: Document| -> Vec<CheckState> {
            allow_overload(&mut document);
            document.validity.checks.iter().map(|check| check.state).collect()
        };
        let late = ["response_timeout", "connect_timeout"];
        assert_eq!(states(document(&late, &["450/s: server_answers"])), [CheckState::Ok]);
        let others = ["450/s: server_answers", "450/s: generator_on_time"];
        assert_eq!(states(document(&late, &others)), [CheckState::Ok, CheckState::Failed]);
        assert_eq!(states(document(&["reset"], &["450/s: server_answers"])), [CheckState::Failed]);
        let two = ["450/s: server_answers", "600/s: server_answers"];
        assert_eq!(states(document(&late, &two)), [CheckState::Failed; 2], "of one of them nobody knows why");
    }
}
