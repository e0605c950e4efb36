//! Makino, Kubo, Ohtsuka, Shibata, Matsumoto and Hayashi (Reitaku University, 2001), evaluation of a multi-function
//! gateway for school networks. squid on three machines at the school gateway's rates and in its situations,
//! forwarding on the same machines, and storage:
//!
//! | part | what |
//! |---|---|
//! | [`SchoolGatewayPart::Small`], [`SchoolGatewayPart::Middle`], [`SchoolGatewayPart::Large`] | PolyMix-1 at 5 to 80/s, through a card of 10 Mbit/s; the large one also of 100 |
//! | [`SchoolGatewayPart::Repeats`] | 95 % cacheable with 90 % hits, on the small machine |
//! | [`SchoolGatewayPart::New`] | a course in which every URL is new, on the middle one |
//! | [`SchoolGatewayPart::Class`] | 40 seats after the teacher fetched the pages, on the small one |
//! | [`SchoolGatewayPart::Forwarding`] | a TCP stream through all three in five conditions, behind both cards ([`forwarding`]) |
//! | [`SchoolGatewayPart::Disk`] | Bonnie's table ([`storage`]) |
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
//! 10/s. The other two follow by their clocks, and nothing else is fitted. Forwarding has an F of its own, found likewise. What the
//! paper concluded is asked of the figures of the run ([`conclusions`]). Read [`scale`] next.

pub mod conclusions;
pub mod forwarding;
mod options;
mod paper;
mod plans;
pub mod rows;
mod scale;
pub mod storage;
mod summary;

use std::path::Path;
use std::time::Duration;

use plan::PathPlan;
use schema::document::{Check, CheckState, Weight};
use schema::{CachePoint, DiskDocument, Document, GatewayDocument, Reproduction, ReproductionRow};
use store::RunStore;
use sys::scratch::Scratch;
use sys::signal::Interrupts;
use testbed::Observer;

pub use self::options::{CacheExperiment, SchoolGatewayOptions, SchoolGatewayPart, Storage, Streams};
pub use self::paper::{PUBLISHED, Published};
pub use self::scale::{Card, Machine, Scale};
pub use self::summary::summary;

use self::forwarding::Forwarding;
use self::plans::at;
use super::Reproduced;
use super::sheet::Sheet;
use cachebench::CachePlan;
use experiment::ExperimentError;
use experiment::Stage;
use experiment::programs::proxies::{Sizes, Squid};

/// Its name among the reproductions.
pub const NAME: &str = "gateway";
/// A point, unless it is said.
pub const POINT: Duration = Duration::from_secs(8);
/// A point of the paper.
pub const POINT_FULL: Duration = Duration::from_secs(30 * 60);
/// Trials of a stream, and how long each is: ten as in the paper, whose length is not said.
pub const STREAMS_FULL: (u32, Duration) = (10, Duration::from_secs(10));
/// The longest trial.
pub const STREAM_MAX: Duration = Duration::from_secs(120);
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

/// Makes the parts asked for, and puts the paper beside them. Must be called while this process has one thread, since the
/// lab forks. An interrupt ends it with what is at hand; what was made by then is in the document.
///
/// # Errors
/// squid is not installed; CPU or memory cannot be bounded here; no factor was found; the lab could not make a run of a cache; the book cannot be
/// written. What goes wrong with forwarding or storage later than that is a check that could not run.
pub fn make(
    asked: &SchoolGatewayOptions,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let sheet = Sheet::new(book, NAME, &asked.order, stage)?;
    let mut staged = sheet.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let mut made = Made { sheet, about: Vec::new(), notes: Vec::new(), rows: Vec::new() };
    // Factors first: without them nothing else has a meaning, and who is missing one wants to know it soon.
    let mut factor = None;
    if asked.forwards() {
        factor = Some(made.forwarding(asked, book, interrupts, &mut *stage, |forwarding| forwarding.factor())?);
    }
    let scale = made.caches(asked, book, interrupts, stage)?;
    let mut forwarded = None;
    if let Some(factor) = factor.as_ref().filter(|_| interrupts.count() == 0) {
        made.about.push(summary::about_forwarding(asked, factor));
        made.notes.extend(forwarding::rows::NOTES);
        made.rows.extend(forwarding::rows::of_factor(factor));
        let rounds = |forwarding: &mut Forwarding<'_>| forwarding.rounds(factor, scale.as_ref());
        match made.forwarding(asked, book, interrupts, &mut *stage, rounds) {
            Ok(done) => {
                made.rows.extend(forwarding::rows::rows(&done));
                forwarded = Some(done);
            }
            Err(why) => made.sheet.check(not_made("forwarding", &why)),
        }
    }
    if asked.parts.contains(&SchoolGatewayPart::Disk) && interrupts.count() == 0 {
        made.disk(asked, book, interrupts, stage);
    }
    let concluded = conclusions::rows(&made.rows, forwarded.as_ref(), asked.seats);
    made.rows.extend(concluded);
    let Made { sheet, about, notes, rows } = made;
    let part = Reproduction {
        name: NAME.into(),
        about: format!("{} {}", summary::PAPER, about.join(" ")),
        answer: summary::answer(&rows),
        notes: notes.into_iter().map(str::to_owned).collect(),
        rows,
        runs: Vec::new(),
    };
    sheet.close(&asked.order, interrupts.count() > 0, part)
}

/// The document while it grows.
struct Made {
    sheet: Sheet,
    about: Vec<String>,
    notes: Vec<&'static str>,
    rows: Vec<ReproductionRow>,
}

impl Made {
    /// The cache half; its scale, where there is one.
    fn caches(
        &mut self,
        asked: &SchoolGatewayOptions,
        book: &RunStore,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
    ) -> Result<Option<Scale>, ExperimentError> {
        if !asked.has_caches() && !asked.measures_cost() {
            return Ok(asked.factor.map(Scale::given));
        }
        // Gone also after SIGKILL. squid gives root away, and must still find what is its own.
        let folder = Scratch::new("reproduce-gateway")?;
        let (squid, sheet) = (Squid::find()?, &mut self.sheet);
        let mut kitchen = Kitchen { asked, book, interrupts, stage, folder: folder.path(), squid, sheet };
        let scale = match asked.factor {
            Some(factor) => Scale::given(factor),
            None => kitchen.measure_cost()?,
        };
        self.rows.extend(rows::of_scale(&scale));
        for experiment in asked.experiments() {
            if interrupts.count() > 0 {
                break;
            }
            self.rows.extend(kitchen.cook(&experiment, &scale)?);
            kitchen.sheet.rows(&self.rows);
        }
        if asked.has_caches() {
            self.about.push(summary::about(asked, &scale, &kitchen.squid.version()));
            self.notes.extend(summary::NOTES);
        }
        Ok(Some(scale))
    }

    /// Does something of forwarding, and takes its runs in.
    fn forwarding<T>(
        &mut self,
        asked: &SchoolGatewayOptions,
        book: &RunStore,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
        what: impl FnOnce(&mut Forwarding<'_>) -> Result<T, ExperimentError>,
    ) -> Result<T, ExperimentError> {
        let sheet = &mut self.sheet;
        let mut take = |name: &str, document: &GatewayDocument| sheet.take_run(name, &document.run, &document.validity);
        what(&mut Forwarding { asked: &asked.streams, order: &asked.order, book, interrupts, stage, take: &mut take })
    }

    /// Storage.
    fn disk(&mut self, asked: &SchoolGatewayOptions, book: &RunStore, interrupts: &Interrupts, stage: &mut dyn Stage) {
        self.about.push(summary::about_storage(&asked.storage));
        self.notes.extend(storage::NOTES);
        let (sheet, rows) = (&mut self.sheet, &mut self.rows);
        let mut take = |name: &str, document: &DiskDocument, made: Vec<ReproductionRow>| {
            sheet.take_run(name, &document.run, &document.validity);
            rows.extend(made);
        };
        let mut begin = |what: &str| stage.step(what);
        if let Err(why) = storage::make(&asked.storage, &asked.order, book, interrupts, &mut begin, &mut take) {
            self.sheet.check(not_made("disk", &why));
        }
    }
}

/// A part that the rest can do without.
fn not_made(what: &str, why: &ExperimentError) -> Check {
    let source = std::error::Error::source(why).map_or(String::new(), |source| format!(": {source}"));
    Check::without_figure(format!("{what}: made"), CheckState::CouldNotRun, Weight::Suspect, format!("{why}{source}"))
}

/// What every sweep is made with.
struct Kitchen<'a> {
    asked: &'a SchoolGatewayOptions,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    folder: &'a Path,
    squid: Squid,
    sheet: &'a mut Sheet,
}

impl Kitchen<'_> {
    /// Finds F: what squid, bound by nothing, takes for a request.
    fn measure_cost(&mut self) -> Result<Scale, ExperimentError> {
        const NAME: &str = "CPU of a request";
        let path = PathPlan { rtt: Some(Duration::ZERO), offload: false, ..PathPlan::default() };
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
            return Err(ExperimentError::Program {
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
    fn cook(&mut self, experiment: &CacheExperiment, scale: &Scale) -> Result<Vec<ReproductionRow>, ExperimentError> {
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
        if let Some(supported) = part.clients_supported.filter(|_| experiment.is_sweep()) {
            made.push(rows::usable(&name, experiment.machine, experiment.card, &supported));
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
    fn sweep(&mut self, name: &str, plan: &CachePlan) -> Result<Document, ExperimentError> {
        let mut stage = Named { name, inner: &mut *self.stage };
        let mut document = cachebench::run(plan, &self.asked.order, self.book, self.interrupts, &mut stage)?.document;
        allow_overload(&mut document);
        self.sheet.take(name, &document, None);
        Ok(document)
    }

    /// The document of a point's own run, if it was kept.
    fn run_of(&self, point: &CachePoint) -> Result<Option<Document>, ExperimentError> {
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
    document.validity = schema::Validity::from_checks(checks);
}

/// The lab's check that a server answers.
const UNANSWERED: &str = ": server_answers";
/// Causes of failures of requests that came to nothing but late.
const LATE: [&str; 2] = ["response_timeout", "connect_timeout"];

/// Says which machine something is of.
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

    fn step(&mut self, what: &str) {
        self.inner.step(&format!("{}: {what}", self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_is_a_result_and_a_broken_squid_is_not() {
        let document = |errors: &[&str], checks: &[&str]| -> Document {
            let point = CachePoint {
                ended_early: true,
                figures: schema::CacheFigures {
                    errors: errors.iter().map(|cause| ((*cause).to_owned(), 9)).collect(),
                    ..schema::CacheFigures::default()
                },
                ..CachePoint::default()
            };
            let failed = |name: &&str| Check::without_figure(*name, CheckState::Failed, Weight::Invalid, String::new());
            let part = schema::CachePart { points: vec![point], ..schema::CachePart::default() };
            let validity = schema::Validity::from_checks(checks.iter().map(failed).collect());
            let (run, part) = (schema::document::Run::default(), part);
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
