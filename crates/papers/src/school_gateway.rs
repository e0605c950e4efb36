//! School gateway: Makino, Kubo, Ohtsuka, Shibata, Matsumoto and Hayashi (Reitaku University, 2001), evaluation of a
//! multi-function gateway for school networks. squid on three machines at the paper's rates and in its situations,
//! forwarding on the same machines, and storage:
//!
//! | part | what |
//! |---|---|
//! | [`SchoolGatewayPart::Small`], [`SchoolGatewayPart::Middle`], [`SchoolGatewayPart::Large`] | PolyMix-1 at 5 to 80/s, through an interface of 10 Mbit/s; the large one also of 100 |
//! | [`SchoolGatewayPart::Repeats`] | 95 % cacheable with 90 % hits, on the small machine |
//! | [`SchoolGatewayPart::New`] | a course in which every URL is new, on the middle one |
//! | [`SchoolGatewayPart::Class`] | 40 clients after the teacher fetched the pages, on the small one |
//! | [`SchoolGatewayPart::Forwarding`] | a TCP stream through all three in five conditions, with both interfaces ([`forwarding`]) |
//! | [`SchoolGatewayPart::Disk`] | Bonnie's table ([`storage`]) |
//!
//! ```text
//!   virtual users ───┐                                 ┌─── squid, with limited CPU share and memory
//!                    ├── one interface of 10 F Mbit/s ──┤
//!   origin ──────────┘   for both of its sides          └─── restarted for each point
//! ```
//!
//! **Time runs F times as fast as in the paper.** One core of today does hundreds of times the work of a 100 MHz
//! Pentium, and no kernel schedules so small a share smoothly. So rates and interface speeds are F times the paper's,
//! and think times and timeouts 1/F: concurrency and relative load equal the paper's, and figures are converted back by
//! F. F is calibrated first, from squid's CPU time per request: the small machine gets the CPU for the paper's 10/s.
//! The other two follow by clock rate, and nothing else is fitted. Forwarding has its own F, calibrated in the same
//! way. The paper's conclusions are evaluated on the measured figures ([`conclusions`]). Read [`scale`] next.

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
pub use self::scale::{Interface, Machine, Scale};
pub use self::summary::summary;

use self::forwarding::Forwarding;
use self::plans::at;
use super::Reproduced;
use super::builder::DocumentBuilder;
use cachebench::CachePlan;
use experiment::ExperimentError;
use experiment::Stage;
use experiment::programs::proxies::{Sizes, Squid};

/// Name of the reproduction.
pub const NAME: &str = "gateway";
/// Default length of a point.
pub const POINT: Duration = Duration::from_secs(8);
/// Length of a point in the paper.
pub const POINT_FULL: Duration = Duration::from_secs(30 * 60);
/// Trials of a stream, and their length: ten as in the paper, whose length is not published.
pub const STREAMS_FULL: (u32, Duration) = (10, Duration::from_secs(10));
/// Longest trial.
pub const STREAM_MAX: Duration = Duration::from_secs(120);
/// Shortest point with figures.
pub const POINT_MIN: Duration = Duration::from_secs(2);
/// Response timeout in the paper's time, by default and with `--full`. The paper's is unknown, but above its means of
/// 79 s.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_FULL: Duration = Duration::from_secs(180);
/// Rate and length of the measurement of CPU time per request: some hundreds of requests on a lightly loaded machine.
const COST_PER_S: f64 = 250.0;
const COST_POINT: Duration = Duration::from_secs(4);
/// Think time there.
const COST_FACTOR: f64 = 10.0;

/// Runs the parts and compares them with the paper. Must be called while this process has one thread, since the testbed
/// forks. An interrupt ends it during the current measurement; earlier ones stay in the document.
///
/// # Errors
/// squid is not installed, CPU or memory cannot be limited, F could not be determined, the testbed could not make a run
/// of a cache, or the run store cannot be written. Later errors of forwarding or storage are checks that could not run.
pub fn make(
    input: &SchoolGatewayOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let builder = DocumentBuilder::new(run_store, NAME, &input.order, stage)?;
    let mut staged = builder.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let mut made = DocumentSoFar { builder, about: Vec::new(), notes: Vec::new(), rows: Vec::new() };
    // Factors first: all other figures depend on them, and a missing one should be reported early.
    let mut factor = None;
    if input.forwards() {
        factor = Some(made.forwarding(input, run_store, interrupts, &mut *stage, |forwarding| forwarding.factor())?);
    }
    let scale = made.caches(input, run_store, interrupts, stage)?;
    let mut forwarded = None;
    if let Some(factor) = factor.as_ref().filter(|_| interrupts.count() == 0) {
        made.about.push(summary::about_forwarding(input, factor));
        made.notes.extend(forwarding::rows::NOTES);
        made.rows.extend(forwarding::rows::of_factor(factor));
        let rounds = |forwarding: &mut Forwarding<'_>| forwarding.rounds(factor, scale.as_ref());
        match made.forwarding(input, run_store, interrupts, &mut *stage, rounds) {
            Ok(done) => {
                made.rows.extend(forwarding::rows::rows(&done));
                forwarded = Some(done);
            }
            Err(why) => made.builder.check(not_made("forwarding", &why)),
        }
    }
    if input.parts.contains(&SchoolGatewayPart::Disk) && interrupts.count() == 0 {
        made.disk(input, run_store, interrupts, stage);
    }
    let concluded = conclusions::rows(&made.rows, forwarded.as_ref(), input.clients);
    made.rows.extend(concluded);
    let DocumentSoFar { builder, about, notes, rows } = made;
    let part = Reproduction {
        name: NAME.into(),
        about: format!("{} {}", summary::PAPER, about.join(" ")),
        answer: summary::result_sentence(&rows),
        notes: notes.into_iter().map(str::to_owned).collect(),
        rows,
        runs: Vec::new(),
    };
    builder.close(&input.order, interrupts.count() > 0, part)
}

/// The document so far.
struct DocumentSoFar {
    builder: DocumentBuilder,
    about: Vec<String>,
    notes: Vec<&'static str>,
    rows: Vec<ReproductionRow>,
}

impl DocumentSoFar {
    /// The caches, and their scale if known.
    fn caches(
        &mut self,
        input: &SchoolGatewayOptions,
        run_store: &RunStore,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
    ) -> Result<Option<Scale>, ExperimentError> {
        if !input.has_caches() && !input.measures_cost() {
            return Ok(input.factor.map(Scale::given));
        }
        // Removed also after SIGKILL. squid drops root privileges and must still own its files.
        let folder = Scratch::new("reproduce-gateway")?;
        let (squid, builder) = (Squid::find()?, &mut self.builder);
        let mut context =
            MeasurementContext { input, run_store, interrupts, stage, folder: folder.path(), squid, builder };
        let scale = match input.factor {
            Some(factor) => Scale::given(factor),
            None => context.measure_cost()?,
        };
        self.rows.extend(rows::of_scale(&scale));
        for experiment in input.experiments() {
            if interrupts.count() > 0 {
                break;
            }
            self.rows.extend(context.run_one(&experiment, &scale)?);
            context.builder.rows(&self.rows);
        }
        if input.has_caches() {
            self.about.push(summary::about(input, &scale, &context.squid.version()));
            self.notes.extend(summary::NOTES);
        }
        Ok(Some(scale))
    }

    /// Runs a step of forwarding, and adds its runs.
    fn forwarding<T>(
        &mut self,
        input: &SchoolGatewayOptions,
        run_store: &RunStore,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
        what: impl FnOnce(&mut Forwarding<'_>) -> Result<T, ExperimentError>,
    ) -> Result<T, ExperimentError> {
        let builder = &mut self.builder;
        let mut take =
            |name: &str, document: &GatewayDocument| builder.take_run(name, &document.run, &document.validity);
        what(&mut Forwarding {
            input: &input.streams,
            order: &input.order,
            run_store,
            interrupts,
            stage,
            take: &mut take,
        })
    }

    /// Storage.
    fn disk(
        &mut self,
        input: &SchoolGatewayOptions,
        run_store: &RunStore,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
    ) {
        self.about.push(summary::about_storage(&input.storage));
        self.notes.extend(storage::NOTES);
        let (builder, rows) = (&mut self.builder, &mut self.rows);
        let mut take = |name: &str, document: &DiskDocument, made: Vec<ReproductionRow>| {
            builder.take_run(name, &document.run, &document.validity);
            rows.extend(made);
        };
        let mut begin = |what: &str| stage.step(what);
        if let Err(why) = storage::make(&input.storage, &input.order, run_store, interrupts, &mut begin, &mut take) {
            self.builder.check(not_made("disk", &why));
        }
    }
}

/// A part whose failure does not end the others.
fn not_made(what: &str, why: &ExperimentError) -> Check {
    let source = std::error::Error::source(why).map_or(String::new(), |source| format!(": {source}"));
    Check::without_figure(format!("{what}: made"), CheckState::CouldNotRun, Weight::Suspect, format!("{why}{source}"))
}

/// What all sweeps share.
struct MeasurementContext<'a> {
    input: &'a SchoolGatewayOptions,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    folder: &'a Path,
    squid: Squid,
    builder: &'a mut DocumentBuilder,
}

impl MeasurementContext<'_> {
    /// Calibrates F: CPU time per request of an unlimited squid.
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
                    "the CPU per request could not be measured{}, so F is unknown: give it (--factor)",
                    if self.interrupts.count() > 0 { ", since it was interrupted" } else { "" }
                ),
            });
        };
        Ok(Scale::of_cost(cpu_us))
    }

    /// Measures the points of an experiment; returns its rows.
    fn run_one(
        &mut self,
        experiment: &CacheExperiment,
        scale: &Scale,
    ) -> Result<Vec<ReproductionRow>, ExperimentError> {
        let rates = self.input.rates_of(experiment);
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
            made.push(rows::usable(&name, experiment.machine, experiment.interface, &supported));
        }
        if part.points.len() < rates.len() && self.interrupts.count() == 0 {
            self.builder.check(Check {
                name: format!("{name}: points"),
                state: CheckState::CouldNotRun,
                weight: Weight::Suspect,
                value: Some(part.points.len() as f64),
                limit: Some(rates.len() as f64),
                unit: "points".into(),
                why: "some points were not measured; the sweep's own document has the reasons".into(),
            });
        }
        Ok(made)
    }

    /// Runs a sweep and adds its checks.
    fn sweep(&mut self, name: &str, plan: &CachePlan) -> Result<Document, ExperimentError> {
        let mut stage = Named { name, inner: &mut *self.stage };
        let mut document =
            cachebench::run(plan, &self.input.order, self.run_store, self.interrupts, &mut stage)?.document;
        allow_overload(&mut document);
        self.builder.take(name, &document, None);
        Ok(document)
    }

    /// The document of a point's run, if stored.
    fn run_of(&self, point: &CachePoint) -> Result<Option<Document>, ExperimentError> {
        if point.run.is_empty() {
            return Ok(None);
        }
        Ok(Some(store::read_summary(&self.run_store.find(&point.run)?)?))
    }
}

/// A point without any response in time is a result here, not a missing server: squid listened before the load began,
/// and the rates exceed a machine's limit, as the paper's did. This applies only if all failures were timeouts; a squid
/// that refuses or breaks connections stays a failed check.
fn allow_overload(document: &mut Document) {
    let only_late = |point: &&CachePoint| {
        let figures = &point.figures;
        point.ended_early
            && figures.answered == 0
            && figures.errors.keys().all(|cause| TIMEOUT_CAUSES.contains(&cause.as_str()))
    };
    let overloaded = document.cache.iter().flat_map(|part| &part.points).filter(only_late).count();
    let mut checks = document.validity.checks.clone();
    let unanswered = |check: &&mut Check| check.state == CheckState::Failed && check.name.ends_with(SERVER_ANSWERS);
    if checks.iter_mut().filter(unanswered).count() != overloaded {
        return;
    }
    for check in checks.iter_mut().filter(unanswered) {
        check.state = CheckState::Ok;
        check.why = "the rate exceeds the machine's limit so far that no response of the measured phase came in \
                     time; the point ended by the paper's rule"
            .into();
    }
    document.validity = schema::Validity::from_checks(checks);
}

/// Name of the testbed's check that a server responds.
const SERVER_ANSWERS: &str = ": server_answers";
/// Causes of failure that are timeouts.
const TIMEOUT_CAUSES: [&str; 2] = ["response_timeout", "connect_timeout"];

/// Prefixes a text with its machine.
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
    fn overloaded_point_is_a_result_and_a_broken_squid_is_not() {
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
        assert_eq!(states(document(&late, &two)), [CheckState::Failed; 2], "the cause of one failure is unknown");
    }
}
