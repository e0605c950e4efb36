//! One rate after another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lab::plan::{OriginPlan, Placement, Plan, Proxy};
use lab::{LabError, Outcome};
use ledger::document::{Check, CheckState, Host, Run, SCHEMA, Weight};
use ledger::{CacheExchange, CachePart, CachePoint, Document, Validity};
use mix::origin_figures::WorldFigures;
use mix::{MixSpec, OriginFigures, World};
use stats::Rng;
use store::{Book, RunFolder};
use sys::signal::Interrupts;
use units::{RequestRate, format_duration};

use super::origin::{self, Origin};
use super::phases::{PhaseOfPoint, Schedule};
use super::plan::{CachePlan, Front};
use super::point::Made;
use super::runs::{self, Target, Timed};
use super::seats;
use super::watchdog::Watchdog;
use crate::error::SuiteError;
use crate::local::Division;
use crate::reproduce::{Order, Stage, of_run};

/// An origin may answer so much later than it was to: a hundredth of what the mixes let it think.
const LATENESS_P99_NS_MAX: u64 = 25_000_000;
/// By this name robots know the cache that the lab starts.
const SERVER: &str = "server";

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
/// A mix that cannot be had.
pub fn time(plan: &CachePlan) -> Result<Duration, SuiteError> {
    let mix = mix_of(plan)?;
    let point = |&rate: &RequestRate| {
        let phases = runs::phases(plan, &mix, rate);
        let lasts = if phases.is_empty() { plan.cache.point } else { phases.iter().map(|timed| timed.lasts).sum() };
        lasts + Duration::from_secs(4)
    };
    Ok(plan.cache.rates.iter().map(point).sum())
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
    book: &Book,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<CacheDone, SuiteError> {
    plan.check().map_err(LabError::from)?;
    let front = plan.front().map_err(LabError::Plan)?;
    let mix = mix_of(plan)?;
    let record = book.create(&plan.name, order.started, plan.seed)?;
    let made = Sweep::begin(plan, &front, &mix, order, book, &record)
        .and_then(|mut sweep| sweep.points(interrupts, stage).map(|()| sweep));
    let made = made.and_then(|sweep| sweep.close(interrupts.count() > 0, &record)).inspect_err(|_| {
        // Nothing was measured, or nothing could be written: a folder left behind would look like a run that was killed.
        let _ = std::fs::remove_dir_all(record.path());
    });
    Ok(CacheDone { document: made?, folder: record.path().to_owned() })
}

fn mix_of(plan: &CachePlan) -> Result<MixSpec, SuiteError> {
    Ok(plan.mix.spec().map_err(LabError::Plan)?)
}

/// A sweep under way.
struct Sweep<'a> {
    plan: &'a CachePlan,
    front: &'a Front,
    mix: &'a MixSpec,
    order: &'a Order,
    book: &'a Book,
    division: Division,
    /// `None`: the lab starts it for each point, behind the cache that it starts too.
    origin: Option<Origin>,
    /// Of this sweep alone, so that nothing is in any cache.
    worlds: Rng,
    folder: PathBuf,
    points: Vec<CachePoint>,
    /// Of each point, the rate asked for.
    asked_rates: Vec<f64>,
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
        mix: &'a MixSpec,
        order: &'a Order,
        book: &'a Book,
        record: &RunFolder,
    ) -> Result<Sweep<'a>, SuiteError> {
        record.write_plan(&plan.to_toml())?;
        let folder = record.path().to_owned();
        // With a cache of the lab's the lab divides the cores itself.
        let whole = plan.server.is_some() || plan.host.placement == Placement::Float;
        let division = if whole { Division::default() } else { Division::of_this_machine()? };
        let origin = match &plan.server {
            Some(_) if mix.https > 0.0 => {
                return Err(LabError::Plan(
                    "https in the mix needs an origin with TLS, which is not there yet behind a cache that the lab starts: set \
                     https = 0 ([mix] set), or start the cache yourself"
                        .into(),
                )
                .into());
            }
            Some(_) => None,
            None => Some(Origin::start(plan, mix, order, &folder, &division)?),
        };
        let since_1970 = order.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Sweep {
            notes: notes(plan, mix),
            worlds: Rng::new(since_1970.as_nanos() as u64, plan.seed),
            plan,
            front,
            mix,
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

    fn points(&mut self, interrupts: &Interrupts, stage: &mut dyn Stage) -> Result<(), SuiteError> {
        for &rate in &self.plan.cache.rates {
            if interrupts.count() > 0 {
                break;
            }
            match self.point(rate, interrupts, stage) {
                Ok(()) => {}
                // What was measured is kept, and says that it is not all.
                Err(error) if !self.points.is_empty() => {
                    self.checks.push(Check {
                        name: format!("{rate}: made"),
                        state: CheckState::CouldNotRun,
                        weight: Weight::Suspect,
                        value: None,
                        limit: None,
                        unit: String::new(),
                        why: format!("this point and those after it were not measured: {error}"),
                    });
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.checks.extend(self.on_time());
        Ok(())
    }

    /// Whether the origin answered when it had thought as long as it was to.
    fn on_time(&self) -> Option<Check> {
        let p99 = self.lateness_p99_ns.filter(|_| self.mix.think.is_some())?;
        Some(Check {
            name: "origin on time".into(),
            state: if p99 <= LATENESS_P99_NS_MAX { CheckState::Ok } else { CheckState::Failed },
            weight: Weight::Suspect,
            value: Some(p99 as f64),
            limit: Some(LATENESS_P99_NS_MAX as f64),
            unit: "ns".into(),
            why: "how much later than its think time the origin answered, 99 % of the time less; beyond the limit it is slower \
                  than the mix says, and misses with it"
                .into(),
        })
    }

    fn point(&mut self, rate: RequestRate, interrupts: &Interrupts, stage: &mut dyn Stage) -> Result<(), SuiteError> {
        let phases = runs::phases(self.plan, self.mix, rate);
        let world = self.plan.mix.world.unwrap_or_else(|| self.worlds.next() as u32);
        let plan = self.plan_of(rate, world, &phases)?;
        let before = self.asked()?;
        let mut watchdog = Watchdog::new(stage.begin(&self.name(rate)), self.plan.cache.stop_errors.0);
        let command = &self.order.command;
        let book = self.book;
        let outcome = self.division.as_load(|| lab::bench(&plan, command, Some(book), interrupts, &mut watchdog))?;
        let after = self.asked()?;
        // By world: what the cache still fetches of an earlier point is not this one's.
        let of_world = |figures: OriginFigures| figures.worlds.get(&format!("{world:x}")).copied().unwrap_or_default();
        // One of the lab's lives as long as its run.
        let counted = after.zip(before).map(|(after, before)| after.since(&before)).or_else(|| outcome.origin.clone());
        self.lateness_p99_ns = self.lateness_p99_ns.max(counted.as_ref().map(|figures| figures.think_lateness_ns.p99));
        let reached = counted.map(of_world);
        let made = Made {
            exchanges: exchanges(&outcome)?,
            world: Arc::new(World::new(Arc::new(self.mix.clone()), self.plan.seed, world)),
            origin: reached,
            ended_early: watchdog.reached().is_some(),
            cache_size: self.plan.cache.cache_size,
            outcome: &outcome,
        };
        let of_point: Vec<PhaseOfPoint> = phases.into_iter().map(|timed| timed.phase).collect();
        let points = made.points(&of_point);
        let document = &outcome.document;
        self.checks.extend(of_run(&rate.to_string(), &document.validity));
        self.checks.extend(reached.and_then(|reached| self.unreached(rate, reached, &points)));
        self.checks.extend(unsimulated(rate, &points));
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
        for point in &points {
            let phase = of_point.iter().find(|phase| phase.name == point.phase);
            self.asked_rates.push(rate.per_second() * phase.map_or(1.0, PhaseOfPoint::mean_load));
        }
        self.points.extend(points);
        Ok(())
    }

    fn name(&self, rate: RequestRate) -> String {
        format!("{rate}, {}", self.mix.name)
    }

    /// What the origin has counted, where it can be asked.
    fn asked(&self) -> Result<Option<OriginFigures>, SuiteError> {
        self.origin.as_ref().map(Origin::figures).transpose()
    }

    fn plan_of(&self, rate: RequestRate, world: u32, phases: &[Timed]) -> Result<Plan, SuiteError> {
        let name = format!("{}-{}", self.plan.name, rate.per_second()).replace('.', "_");
        let clients = runs::clients(self.plan, self.mix, rate);
        let (target, origin) = match &self.origin {
            Some(origin) => {
                let secure = origin.secure.as_ref().map(|(address, _)| address.to_string());
                (runs::target(self.front, &origin.plain.to_string(), secure), None)
            }
            None => {
                let listen = self.plan.origin.at(clients);
                let command = origin::command(self.plan, self.mix, self.order, listen, None, &self.folder)?;
                let plan = OriginPlan { command: Some(command), listen: Some(listen), ..self.plan.origin.clone() };
                (self.in_lab(listen)?, Some(plan))
            }
        };
        let mut made = runs::plan(self.plan, self.mix, rate, name, world, &target, phases);
        made.origin = origin;
        if let Some((_, tls)) = self.origin.as_ref().and_then(|origin| origin.secure.as_ref()) {
            made.load.tls = Some(tls.clone());
        }
        Ok(made)
    }

    /// Where robots ask with a cache of the lab's: by the name `server`, whatever host was typed.
    fn in_lab(&self, origin: SocketAddr) -> Result<Target, SuiteError> {
        let front = match self.front {
            Front::Forward(proxy) if proxy.host != SERVER => {
                Front::Forward(Proxy { host: SERVER.into(), ..proxy.clone() })
            }
            front => front.clone(),
        };
        Ok(runs::target(&front, &origin.to_string(), None))
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

    fn close(self, interrupted: bool, record: &RunFolder) -> Result<Document, SuiteError> {
        let part = CachePart {
            mix: self.mix.name.clone(),
            proxy: proxy_words(self.front),
            target_hit_ratio: Some(self.mix.document_hit_ratio()),
            // Of an origin alone nobody asks.
            seats: seats::of(self.asked_rates.iter().copied().zip(&self.points), self.plan.cache.seat)
                .filter(|_| *self.front != Front::Direct),
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

/// Every exchange of a run, in the order in which they ended; none where the disk could not take all.
fn exchanges(outcome: &Outcome) -> Result<Option<Vec<CacheExchange>>, SuiteError> {
    let Some(folder) = outcome.folder.as_deref().filter(|_| outcome.exchanges_left_out == 0) else { return Ok(None) };
    let mut rows = store::read_cache_exchanges(folder)?.collect::<Result<Vec<CacheExchange>, _>>()?;
    rows.sort_by_key(|row| (row.done_at, row.sequence));
    Ok(Some(rows))
}

/// A check that could not run, if a point has no ideal to be held against.
fn unsimulated(rate: RequestRate, points: &[CachePoint]) -> Option<Check> {
    let lacks = |point: &&CachePoint| point.figures.basic_requests > 0 && point.figures.hit_ratio.ideal.is_none();
    points.iter().find(lacks).map(|point| Check {
        name: format!("{rate}: ideal simulated"),
        state: CheckState::CouldNotRun,
        weight: Weight::Suspect,
        value: None,
        limit: None,
        unit: String::new(),
        why: format!(
            "of the {} requests that hit ratios are of not all are in the run's table, and a part of them has no order to \
             simulate: is the disk too slow?",
            point.figures.basic_requests
        ),
    })
}

fn proxy_words(front: &Front) -> String {
    match front {
        // The password stays out of documents.
        Front::Forward(proxy) => format!("forward {}", Proxy { user: None, ..proxy.clone() }),
        Front::Reverse(url) => format!("reverse {url}"),
        Front::Direct => "none".into(),
    }
}

/// What to know before reading any figure.
fn notes(plan: &CachePlan, mix: &MixSpec) -> Vec<String> {
    let cache = &plan.cache;
    let mut notes = Vec::new();
    if cache.schedule != Schedule::Constant {
        let name = cache.schedule.name();
        let scale = cache.time_scale;
        let times = if scale < 1.0 { format!("1/{}", (1.0 / scale).round()) } else { format!("{scale} times") };
        if (scale - 1.0).abs() > 1e-9 {
            notes.push(format!(
                "{name}-shaped, {times} of its time: ramps, plateaus, idle phases and the working set are scaled; the life cycles \
                 of objects and the filling of the cache are not."
            ));
        }
        if cache.cache_size.is_none() && cache.schedule != Schedule::Polymix2 {
            notes.push(
                "The cache was not filled beforehand: without its size (--cache-size) nobody knows how much that is."
                    .into(),
            );
        }
    }
    let warmup = cache.point.mul_f64(cache.warmup.value());
    let think_s = mix.think.as_ref().map_or(0.0, |law| law.mean());
    if cache.schedule == Schedule::Constant && cache.phases.is_empty() && warmup.as_secs_f64() < think_s {
        notes.push(format!(
            "The warm-up of a point, {}, is shorter than the origin thinks, {think_s:.1} s in the mean: what is measured is the \
             beginning, in which less is carried than offered. Make points longer (--duration) before you conclude anything of \
             seats.",
            format_duration(warmup)
        ));
    }
    if mix.https > 0.0 {
        notes.push(format!(
            "{:.0} % of the requests were inside TLS, where no forward proxy sees them: they are in load and response time, and \
             in no hit ratio.",
            mix.https * 100.0
        ));
    }
    notes
}
