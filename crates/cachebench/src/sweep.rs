//! One rate after another.

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
use testbed::LabError;
use units::{RequestRate, format_duration};

use self::notes::{before_points, no_clients_stated, notes, proxy_words, uncounted, unsimulated};
use super::clients_supported::{self, RunEvidence};
use super::doubts;
use super::origin::{self, Origin};
use super::phases::PhaseOfPoint;
use super::point::PointRun;
use super::runs::{self, Timed};
use super::sweep_plan::{CachePlan, Front};
use experiment::ExperimentError;
use experiment::local::CoreDivision;
use experiment::progress::ExperimentProgress;
use experiment::verdict::of_run;
use experiment::watchdog::Watchdog;
use experiment::{Order, Stage};

/// An origin may answer so much later than it was to: a hundredth of what the workloads let it think.
const LATENESS_P99_NS_MAX: u64 = 25_000_000;

/// A sweep that was made, and is all in its document.
#[derive(Debug)]
pub struct CacheDone {
    /// Its document.
    pub document: Document,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// How long a sweep takes, nearly: its points, and for each the drain and the starts.
///
/// # Errors
/// A workload that cannot be had.
pub fn time(plan: &CachePlan) -> Result<Duration, ExperimentError> {
    let workload = workload_of(plan)?;
    let point = |&rate: &RequestRate| {
        let phases = runs::phases(plan, &workload, rate);
        runs::lasts(plan, &workload, &phases).saturating_add(Duration::from_secs(4))
    };
    Ok(plan.cache.rates.iter().map(point).fold(Duration::ZERO, Duration::saturating_add))
}

/// Refuses what no point could do, before anything is started or written.
///
/// # Errors
/// A plan that contradicts itself or cannot be carried out; a workload that cannot be had.
pub fn check(plan: &CachePlan) -> Result<(), ExperimentError> {
    plan.check().map_err(LabError::from)?;
    let front = plan.front().map_err(LabError::Plan)?;
    runs::check(plan, &workload_of(plan)?, &front).map_err(|why| LabError::Plan(why).into())
}

/// Makes the points. Must be called while this process has one thread, since an origin is started in a place. An interrupt
/// ends the point at hand; what was measured by then is kept.
///
/// # Errors
/// A plan that cannot be carried out; an origin that does not answer; a machine that lacks something. A cache that fails
/// is no error: that is what points are for.
pub fn run(
    plan: &CachePlan,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<CacheDone, ExperimentError> {
    check(plan)?;
    let front = plan.front().map_err(LabError::Plan)?;
    let workload = workload_of(plan)?;
    let record = book.create(&plan.name, order.started, plan.seed)?;
    let showing = ExperimentProgress::begin(&record, "cache", &order.command, plan.seed, stage);
    let mut stage = showing.staging(stage);
    let made = Sweep::begin(plan, &front, &workload, order, book, &record)
        .and_then(|mut sweep| sweep.points(interrupts, &mut stage, &showing).map(|()| sweep));
    let made = made.and_then(|sweep| sweep.close(interrupts.count() > 0, &record)).inspect_err(|_| {
        // Nothing was measured, or nothing could be written: a folder left behind would look like a run that was killed.
        let _ = std::fs::remove_dir_all(record.path());
    });
    let document = made?;
    showing.done(&document.validity, |standing| standing.cache.clone_from(&document.cache));
    Ok(CacheDone { document, folder: record.path().to_owned() })
}

fn workload_of(plan: &CachePlan) -> Result<CacheWorkload, ExperimentError> {
    Ok(plan.workload.spec().map_err(LabError::Plan)?)
}

/// A sweep under way.
struct Sweep<'a> {
    plan: &'a CachePlan,
    front: &'a Front,
    workload: &'a CacheWorkload,
    order: &'a Order,
    book: &'a RunStore,
    division: CoreDivision,
    /// `None`: the lab starts it for each point, behind the cache that it starts too.
    origin: Option<Origin>,
    /// Of this sweep alone, so that nothing is in any cache.
    world: u32,
    folder: PathBuf,
    points: Vec<CachePoint>,
    /// Of each point, the rate asked for, and what its run is worth as evidence of seats.
    asked_rates: Vec<(f64, RunEvidence)>,
    checks: Vec<Check>,
    notes: Vec<String>,
    /// The most that was seen of any point.
    lateness_p99_ns: Option<u64>,
    host: Option<Host>,
    duration_s: f64,
    warmup_s: f64,
}

impl<'a> Sweep<'a> {
    fn begin(
        plan: &'a CachePlan,
        front: &'a Front,
        workload: &'a CacheWorkload,
        order: &'a Order,
        book: &'a RunStore,
        record: &RunFolder,
    ) -> Result<Sweep<'a>, ExperimentError> {
        record.write_plan(&plan.to_toml())?;
        let folder = record.path().to_owned();
        // With a cache of the lab's the lab divides the cores itself.
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
            front,
            workload,
            order,
            book,
            division,
            origin,
            folder,
            points: Vec::new(),
            asked_rates: Vec::new(),
            checks: Vec::new(),
            lateness_p99_ns: None,
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
                Ok(()) => showing.put(|standing| standing.cache = Some(self.so_far())),
                // What was measured is kept, and says that it is not all.
                Err(error) if !self.points.is_empty() => {
                    self.checks.push(Check::without_figure(
                        format!("{rate}: made"),
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

    /// The part as it stands: seats are found when all points are there.
    fn so_far(&self) -> CachePart {
        CachePart {
            workload: self.workload.name.clone(),
            proxy: proxy_words(self.front),
            target_hit_ratio: Some(self.workload.document_hit_ratio()),
            clients_supported: None,
            points: self.points.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Whether the origin answered when it had thought as long as it was to.
    fn on_time(&self) -> Option<Check> {
        let p99 = self.lateness_p99_ns.filter(|_| self.workload.think.is_some())?;
        Some(Check {
            name: "origin on time".into(),
            state: if p99 <= LATENESS_P99_NS_MAX { CheckState::Ok } else { CheckState::Failed },
            weight: Weight::Suspect,
            value: Some(p99 as f64),
            limit: Some(LATENESS_P99_NS_MAX as f64),
            unit: "ns".into(),
            why: "how much later than its think time the origin answered, 99 % of the time less; beyond the limit it is slower \
                  than the workload says, and misses with it"
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
        let before = self.asked();
        let mut watchdog = Watchdog::new(stage.begin(&self.name(rate)), self.plan.cache.stop_errors.0);
        let command = &self.order.command;
        let book = self.book;
        let outcome =
            self.division.as_load(|| testbed::bench(&plan, command, Some(book), interrupts, &mut watchdog))?;
        let after = self.asked();
        let was_asked = self.origin.is_some() || outcome.origin.is_some();
        // A point that was measured is kept, whatever became of the origin's own count.
        let (before, after, unread) = match (before, after) {
            (Ok(before), Ok(after)) => (before, after, None),
            (Err(error), _) | (_, Err(error)) => (None, None, Some(error)),
        };
        // One of the lab's lives as long as its run.
        let counted = after.as_ref().or(outcome.origin.as_ref());
        self.lateness_p99_ns = self.lateness_p99_ns.max(counted.map(|figures| figures.think_timing_error_ns.p99));
        // By world: what the cache still fetches of an earlier point is not this one's.
        let reached = counted.and_then(|figures| figures.of_world(before.as_ref(), world));
        let world = Arc::new(World::new(Arc::new(self.workload.clone()), self.plan.seed, world));
        let mut made = PointRun {
            ended_early: watchdog.reached().is_some() || outcome.all_refused,
            cache_size: self.plan.cache.cache_size,
            ..PointRun::new(&outcome, world, reached)
        };
        let of_point: Vec<PhaseOfPoint> = phases.into_iter().map(|timed| timed.phase).collect();
        let points = made.points(&of_point);
        let document = &outcome.document;
        self.checks.extend(of_run(&rate.to_string(), &document.validity));
        self.checks.extend(reached.and_then(|reached| self.unreached(rate, reached, &points)));
        self.checks.extend(reached.and_then(|reached| doubts::asks_dropped(rate, reached)));
        let labs = outcome.origin.as_ref();
        self.checks.extend(labs.and_then(|said| doubts::another_origin(rate, said, self.workload, self.plan.seed)));
        self.checks.extend(match unread {
            Some(error) => Some(uncounted(rate, &error)),
            None => doubts::not_counted(rate, was_asked, reached),
        });
        self.checks.extend(unsimulated(rate, &points, made.unread.as_ref()));
        let short = before_points(self.plan, self.workload)
            .and_then(|(before, think_s)| doubts::warmup_short(rate, before, think_s));
        let is_short = short.is_some();
        self.checks.extend(short);
        let measured = of_point.iter().filter(|phase| phase.measured).count();
        self.checks.extend(doubts::phases_unjudged(rate, outcome.exchanges_left_out, measured));
        if let Some(reached) = watchdog.reached() {
            self.notes.push(format!(
                "{rate}: ended after {} of its run, when {:.0} % of what ended of late had failed.",
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
        let mut standing = RunEvidence::of(&document.validity);
        if is_short {
            standing = standing.doubted("warm-up shorter than the think time");
        }
        for point in &points {
            let phase = of_point.iter().find(|phase| phase.name == point.phase);
            let asked = rate.per_second() * phase.map_or(1.0, PhaseOfPoint::mean_load);
            self.asked_rates.push((asked, standing.clone()));
        }
        self.points.extend(points);
        Ok(())
    }

    fn name(&self, rate: RequestRate) -> String {
        format!("{rate}, {}", self.workload.name)
    }

    /// What the origin has counted, where it can be asked.
    fn asked(&self) -> Result<Option<OriginFigures>, ExperimentError> {
        self.origin.as_ref().map(Origin::figures).transpose()
    }

    fn plan_of(&self, rate: RequestRate, world: u32, phases: &[Timed]) -> Result<Plan, ExperimentError> {
        let name = format!("{}-{}", self.plan.name, rate.per_second()).replace('.', "_");
        let clients = runs::clients(self.plan, self.workload, rate);
        let (target, origin) = match &self.origin {
            Some(origin) => {
                let secure = origin.secure.as_ref().map(|(address, _)| address.to_string());
                (runs::target(self.front, &origin.plain.to_string(), secure), None)
            }
            None => {
                let listen = self.plan.origin.at(clients);
                let command = origin::command(self.plan, self.workload, self.order, listen, None, &self.folder)?;
                let plan = OriginPlan { command: Some(command), listen: Some(listen), ..self.plan.origin.clone() };
                (runs::target(&runs::in_lab(self.front), &listen.to_string(), None), Some(plan))
            }
        };
        let mut made = runs::plan(self.plan, self.workload, rate, name, world, &target, phases);
        made.origin = origin;
        if let Some((_, tls)) = self.origin.as_ref().and_then(|origin| origin.secure.as_ref()) {
            made.load.tls = Some(tls.clone());
        }
        Ok(made)
    }

    /// A check that failed, if robots were answered or refused and the origin saw none of them.
    fn unreached(&self, rate: RequestRate, reached: WorldFigures, points: &[CachePoint]) -> Option<Check> {
        let asked: u64 = points.iter().map(|point| point.figures.basic_requests).sum();
        // A cache that an earlier sweep of the same world filled needs no origin.
        let hits: u64 = points.iter().map(|point| point.figures.hits_of_all).sum();
        (reached.requests == 0 && asked > 0 && hits == 0).then(|| Check {
            name: format!("{rate}: the origin was reached"),
            state: CheckState::Failed,
            weight: Weight::Invalid,
            value: Some(0.0),
            limit: Some(1.0),
            unit: "requests".into(),
            why: format!(
                "of {asked} requests none reached the origin{}: does the cache reach it, and is it the one meant?",
                self.origin.as_ref().map_or(String::new(), |origin| format!(" at {}", origin.plain))
            ),
        })
    }

    fn close(mut self, interrupted: bool, record: &RunFolder) -> Result<Document, ExperimentError> {
        let found = match self.front {
            // Of an origin alone nobody asks.
            Front::Direct => clients_supported::SupportResult::default(),
            _ => {
                let points = self.asked_rates.iter().zip(&self.points);
                clients_supported::of(
                    points.map(|((rate, standing), point)| (*rate, point, standing)),
                    self.plan.cache.client_rate,
                )
            }
        };
        self.notes.extend(no_clients_stated(&found.not_counted));
        let part = CachePart {
            workload: self.workload.name.clone(),
            proxy: proxy_words(self.front),
            target_hit_ratio: Some(self.workload.document_hit_ratio()),
            clients_supported: found.supported,
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
