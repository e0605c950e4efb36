//! Runs a sweep: one rate after another.

mod notes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plan::{OriginPlan, Placement, Plan};
use polymix::origin_figures::WorldFigures;
use polymix::{CacheWorkload, OriginFigures, World};
use schema::document::{Check, CheckState, Host, Run, SCHEMA, Weight};
use schema::{CachePart, CachePoint, Document, Validity};
use stats::Rng;
use store::{RunFolder, RunStore};
use sys::signal::Interrupts;
use testbed::TestbedError;
use units::{RequestRate, format_duration};

use self::notes::{no_clients_stated, notes, proxy_description, uncounted, unsimulated, warm_up_and_think_time};
use super::clients_supported::{self, RunEvidence};
use super::doubts;
use super::origin::{self, Origin};
use super::phases::PointPhase;
use super::point::PointRun;
use super::runs::{self, TimedPhase};
use super::sweep_plan::{CachePlan, CachePosition};
use experiment::ExperimentError;
use experiment::local::CoreDivision;
use experiment::progress::ExperimentProgress;
use experiment::verdict::of_run;
use experiment::watchdog::Watchdog;
use experiment::{Order, Stage};

/// Limit of the origin's delay after its think time: a hundredth of the think time of the workloads.
const THINK_TIMING_ERROR_P99_NS_MAX: u64 = 25_000_000;

/// A finished sweep.
#[derive(Debug)]
pub struct CacheDone {
    /// Its document.
    pub document: Document,
    /// Its folder in the run store.
    pub folder: PathBuf,
}

/// Estimated time of a sweep: its points, with start and drain.
///
/// # Errors
/// An invalid workload.
pub fn time(plan: &CachePlan) -> Result<Duration, ExperimentError> {
    let workload = workload_of(plan)?;
    let point = |&rate: &RequestRate| {
        let phases = runs::phases(plan, &workload, rate);
        runs::lasts(plan, &workload, &phases).saturating_add(Duration::from_secs(4))
    };
    Ok(plan.cache.rates.iter().map(point).fold(Duration::ZERO, Duration::saturating_add))
}

/// Checks the plans of all points, before anything is started or written.
///
/// # Errors
/// A contradictory plan or an invalid workload.
pub fn check(plan: &CachePlan) -> Result<(), ExperimentError> {
    plan.check().map_err(TestbedError::from)?;
    let position = plan.position().map_err(TestbedError::Plan)?;
    runs::check(plan, &workload_of(plan)?, &position).map_err(|why| TestbedError::Plan(why).into())
}

/// Measures the points. Must be called while this process has one thread, since the origin is started in a sandbox. An
/// interrupt ends the current point; its figures are stored.
///
/// # Errors
/// An invalid plan; an origin that does not respond; missing programs or privileges. A failing cache is not an error.
pub fn run(
    plan: &CachePlan,
    order: &Order,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<CacheDone, ExperimentError> {
    check(plan)?;
    let position = plan.position().map_err(TestbedError::Plan)?;
    let workload = workload_of(plan)?;
    let record = run_store.create(&plan.name, order.started, plan.seed)?;
    let showing = ExperimentProgress::begin(&record, "cache", &order.command, plan.seed, stage);
    let mut stage = showing.staging(stage);
    let made = Sweep::begin(plan, &position, &workload, order, run_store, &record)
        .and_then(|mut sweep| sweep.points(interrupts, &mut stage, &showing).map(|()| sweep));
    let made = made.and_then(|sweep| sweep.close(interrupts.count() > 0, &record)).inspect_err(|_| {
        // Nothing was measured or written: the folder would look like a killed run.
        let _ = std::fs::remove_dir_all(record.path());
    });
    let document = made?;
    showing.done(&document.validity, |progress| progress.cache.clone_from(&document.cache));
    Ok(CacheDone { document, folder: record.path().to_owned() })
}

fn workload_of(plan: &CachePlan) -> Result<CacheWorkload, ExperimentError> {
    Ok(plan.workload.spec().map_err(TestbedError::Plan)?)
}

/// A running sweep.
struct Sweep<'a> {
    plan: &'a CachePlan,
    position: &'a CachePosition,
    workload: &'a CacheWorkload,
    order: &'a Order,
    run_store: &'a RunStore,
    division: CoreDivision,
    /// `None`: the testbed starts cache and origin for each point.
    origin: Option<Origin>,
    /// Random world of this sweep, so that no cache has its objects.
    world: u32,
    folder: PathBuf,
    points: Vec<CachePoint>,
    /// Of each point the configured rate and the validity of its run.
    configured_rates: Vec<(f64, RunEvidence)>,
    checks: Vec<Check>,
    notes: Vec<String>,
    /// Maximum over the points.
    think_timing_error_p99_ns: Option<u64>,
    host: Option<Host>,
    duration_s: f64,
    warmup_s: f64,
}

impl<'a> Sweep<'a> {
    fn begin(
        plan: &'a CachePlan,
        position: &'a CachePosition,
        workload: &'a CacheWorkload,
        order: &'a Order,
        run_store: &'a RunStore,
        record: &RunFolder,
    ) -> Result<Sweep<'a>, ExperimentError> {
        record.write_plan(&plan.to_toml())?;
        let folder = record.path().to_owned();
        // With a cache in the testbed, the testbed assigns the cores.
        let whole = plan.server.is_some() || plan.host.placement == Placement::Float;
        let division = if whole { CoreDivision::default() } else { CoreDivision::of_this_machine()? };
        let origin = match &plan.server {
            Some(_) => None,
            None => Some(Origin::start(plan, workload, order, &folder, &division)?),
        };
        let since_1970 = order.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Sweep {
            notes: notes(plan, workload),
            world: Rng::new(since_1970.as_nanos() as u64, plan.seed).next() as u32,
            plan,
            position,
            workload,
            order,
            run_store,
            division,
            origin,
            folder,
            points: Vec::new(),
            configured_rates: Vec::new(),
            checks: Vec::new(),
            think_timing_error_p99_ns: None,
            host: None,
            duration_s: 0.0,
            warmup_s: 0.0,
        })
    }

    fn points(
        &mut self,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
        showing: &ExperimentProgress,
    ) -> Result<(), ExperimentError> {
        for (index, &rate) in self.plan.cache.rates.iter().enumerate() {
            if interrupts.count() > 0 {
                break;
            }
            match self.point(index, rate, interrupts, stage) {
                Ok(()) => showing.put(|progress| progress.cache = Some(self.partial_result())),
                // Store the measured points and report that some are missing.
                Err(error) if !self.points.is_empty() => {
                    self.checks.push(Check::without_figure(
                        format!("{rate}: measured"),
                        CheckState::CouldNotRun,
                        Weight::Suspect,
                        format!("this point and those after it were not measured: {error}"),
                    ));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.checks.extend(self.on_time());
        Ok(())
    }

    /// The result so far. The clients supported are determined after the last point.
    fn partial_result(&self) -> CachePart {
        CachePart {
            workload: self.workload.name.clone(),
            proxy: proxy_description(self.position),
            target_hit_ratio: Some(self.workload.document_hit_ratio()),
            clients_supported: None,
            points: self.points.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Whether the origin responded at the end of its think time.
    fn on_time(&self) -> Option<Check> {
        let p99 = self.think_timing_error_p99_ns.filter(|_| self.workload.think.is_some())?;
        Some(Check {
            name: "origin on time".into(),
            state: if p99 <= THINK_TIMING_ERROR_P99_NS_MAX { CheckState::Ok } else { CheckState::Failed },
            weight: Weight::Suspect,
            value: Some(p99 as f64),
            limit: Some(THINK_TIMING_ERROR_P99_NS_MAX as f64),
            unit: "ns".into(),
            why: "99th percentile of the origin's delay after its think time; above the limit, the origin is slower \
                  than the workload specifies, and so are misses"
                .into(),
        })
    }

    fn point(
        &mut self,
        index: usize,
        rate: RequestRate,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
    ) -> Result<(), ExperimentError> {
        let phases = runs::phases(self.plan, self.workload, rate);
        let world = runs::world(self.plan, index, self.world);
        let plan = self.plan_of(rate, world, &phases)?;
        let before = self.origin_figures();
        let mut watchdog = Watchdog::new(stage.begin(&self.name(rate)), self.plan.cache.stop_errors.0);
        let command = &self.order.command;
        let run_store = self.run_store;
        let outcome =
            self.division.as_load(|| testbed::bench(&plan, command, Some(run_store), interrupts, &mut watchdog))?;
        let after = self.origin_figures();
        let has_origin = self.origin.is_some() || outcome.origin.is_some();
        // A measured point is stored even if the origin's counters could not be read.
        let (before, after, read_error) = match (before, after) {
            (Ok(before), Ok(after)) => (before, after, None),
            (Err(error), _) | (_, Err(error)) => (None, None, Some(error)),
        };
        // An origin in the testbed ends with its run.
        let counted = after.as_ref().or(outcome.origin.as_ref());
        self.think_timing_error_p99_ns =
            self.think_timing_error_p99_ns.max(counted.map(|figures| figures.think_timing_error_ns.p99));
        // By world, so that fetches for an earlier point do not count.
        let reached = counted.and_then(|figures| figures.of_world(before.as_ref(), world));
        let world = Arc::new(World::new(Arc::new(self.workload.clone()), self.plan.seed, world));
        let mut made = PointRun {
            ended_early: watchdog.reached().is_some() || outcome.all_refused,
            cache_size: self.plan.cache.cache_size,
            ..PointRun::new(&outcome, world, reached)
        };
        let of_point: Vec<PointPhase> = phases.into_iter().map(|timed| timed.phase).collect();
        let points = made.points(&of_point);
        let document = &outcome.document;
        self.checks.extend(of_run(&rate.to_string(), &document.validity));
        self.checks.extend(reached.and_then(|reached| self.origin_not_reached(rate, reached, &points)));
        self.checks.extend(reached.and_then(|reached| doubts::request_ids_dropped(rate, reached)));
        let testbed_origin = outcome.origin.as_ref();
        self.checks.extend(
            testbed_origin.and_then(|figures| doubts::origin_mismatch(rate, figures, self.workload, self.plan.seed)),
        );
        self.checks.extend(match read_error {
            Some(error) => Some(uncounted(rate, &error)),
            None => doubts::not_counted(rate, has_origin, reached),
        });
        self.checks.extend(unsimulated(rate, &points, made.read_error.as_ref()));
        let short = warm_up_and_think_time(self.plan, self.workload)
            .and_then(|(before, think_s)| doubts::warmup_short(rate, before, think_s));
        let is_short = short.is_some();
        self.checks.extend(short);
        let measured = of_point.iter().filter(|phase| phase.measured).count();
        self.checks.extend(doubts::phases_unverified(rate, outcome.exchanges_left_out, measured));
        if let Some(reached) = watchdog.reached() {
            self.notes.push(format!(
                "{rate}: ended after {} of its run, since {:.0} % of the requests of the last second had failed.",
                format_duration(Duration::from_secs(reached.at.as_secs())),
                reached.ratio * 100.0
            ));
        }
        if let Some(saved) = reached.filter(|_| !of_point.is_empty()).and_then(|reached| made.saved(reached)) {
            self.notes.push(format!(
                "{rate}: over all phases {} requests reached the origin, {} were saved.",
                saved.requests, saved.saved_requests
            ));
        }
        self.duration_s += document.run.duration_s;
        self.warmup_s += document.run.warmup_s;
        let division = &self.division;
        self.host.get_or_insert_with(|| {
            let mut host = document.run.host.clone();
            if division.server.is_some() {
                division.describe(&mut host);
            }
            host
        });
        points.iter().for_each(|point| stage.point(point));
        let mut evidence = RunEvidence::of(&document.validity);
        if is_short {
            evidence = evidence.with_doubt("warm-up shorter than the think time");
        }
        for point in &points {
            let phase = of_point.iter().find(|phase| phase.name == point.phase);
            let configured = rate.per_second() * phase.map_or(1.0, PointPhase::mean_load);
            self.configured_rates.push((configured, evidence.clone()));
        }
        self.points.extend(points);
        Ok(())
    }

    fn name(&self, rate: RequestRate) -> String {
        format!("{rate}, {}", self.workload.name)
    }

    /// The origin's counters, unless the testbed starts it.
    fn origin_figures(&self) -> Result<Option<OriginFigures>, ExperimentError> {
        self.origin.as_ref().map(Origin::figures).transpose()
    }

    fn plan_of(&self, rate: RequestRate, world: u32, phases: &[TimedPhase]) -> Result<Plan, ExperimentError> {
        let name = format!("{}-{}", self.plan.name, rate.per_second()).replace('.', "_");
        let clients = runs::clients(self.plan, self.workload, rate);
        let (target, origin) = match &self.origin {
            Some(origin) => {
                let secure = origin.secure.as_ref().map(|(address, _)| address.to_string());
                (runs::target(self.position, &origin.plain.to_string(), secure), None)
            }
            None => {
                let listen = self.plan.origin.at(clients);
                let command = origin::command(self.plan, self.workload, self.order, listen, None, &self.folder)?;
                let plan = OriginPlan { command: Some(command), listen: Some(listen), ..self.plan.origin.clone() };
                (runs::target(&runs::in_testbed(self.position), &listen.to_string(), None), Some(plan))
            }
        };
        let mut made = runs::plan(self.plan, self.workload, rate, name, world, &target, phases);
        made.origin = origin;
        if let Some((_, tls)) = self.origin.as_ref().and_then(|origin| origin.secure.as_ref()) {
            made.load.tls = Some(tls.clone());
        }
        Ok(made)
    }

    /// A failed check, if requests were made and none reached the origin.
    fn origin_not_reached(&self, rate: RequestRate, reached: WorldFigures, points: &[CachePoint]) -> Option<Check> {
        let requests: u64 = points.iter().map(|point| point.figures.basic_requests).sum();
        // A cache that an earlier sweep of the same world filled needs no origin.
        let hits: u64 = points.iter().map(|point| point.figures.hits_of_all).sum();
        (reached.requests == 0 && requests > 0 && hits == 0).then(|| Check {
            name: format!("{rate}: origin reached"),
            state: CheckState::Failed,
            weight: Weight::Invalid,
            value: Some(0.0),
            limit: Some(1.0),
            unit: "requests".into(),
            why: format!(
                "of {requests} requests none reached the origin{}: can the cache reach it, and does it fetch from \
                 this one?",
                self.origin.as_ref().map_or(String::new(), |origin| format!(" at {}", origin.plain))
            ),
        })
    }

    fn close(mut self, interrupted: bool, record: &RunFolder) -> Result<Document, ExperimentError> {
        let support = match self.position {
            // Not stated for an origin without a cache.
            CachePosition::Direct => clients_supported::SupportResult::default(),
            _ => {
                let points = self.configured_rates.iter().zip(&self.points);
                clients_supported::of(
                    points.map(|((rate, evidence), point)| (*rate, point, evidence)),
                    self.plan.cache.client_rate,
                )
            }
        };
        self.notes.extend(no_clients_stated(&support.not_counted));
        let part = CachePart {
            workload: self.workload.name.clone(),
            proxy: proxy_description(self.position),
            target_hit_ratio: Some(self.workload.document_hit_ratio()),
            clients_supported: support.supported,
            points: self.points,
            notes: self.notes,
        };
        let document = Document {
            schema: SCHEMA.into(),
            run: Run {
                id: record.id().into(),
                dir: record.path().display().to_string(),
                command: self.order.command.clone(),
                seed: self.plan.seed,
                started_at: store::rfc3339(self.order.started),
                duration_s: self.duration_s,
                warmup_s: self.warmup_s,
                interrupted,
                host: self.host.unwrap_or_default(),
                ..Run::default()
            },
            validity: Validity::from_checks(self.checks),
            load: None,
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: Some(part),
        };
        record.write_summary(&document)?;
        Ok(document)
    }
}
