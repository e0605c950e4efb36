//! What a server will do, foretold: from what its requests cost in a few small loads.
//!
//! P3 says that measurements of parts, added up, estimate the whole. Here the parts are what requests cost:
//!
//! ```text
//!   loads of each class (demands.rs, gauge.rs) --> Cost, Mixed (model.rs) --+
//!   connections held open (memory.rs) --------------------------------------+--> limits, curve, users (answer.rs) --> PredictDocument
//!   distances (path.rs), one load there ------------------------------------+
//!   the search for the capacity (check.rs) --> predicted beside measured
//! ```
//!
//! Read `model.rs` first: it says what a request costs, and why that is two figures.

pub mod answer;
mod check;
mod demands;
mod doubts;
mod gauge;
mod memory;
pub mod model;
pub mod path;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use lab::host;
use lab::plan::{HttpVersion, Plan, TlsVersion};
use ledger::document::{Run, SCHEMA};
use ledger::{Demand, PathTimes, PerConnection, PredictDocument, PredictPart, Validity};
use stats::Rng;
use stats::regression::Line;
use store::{Book, RunFolder};
use sys::signal::Interrupts;
use units::{CpuShare, Probability, RequestRate};

use self::answer::{Known, Processor};
use self::demands::{Class, Measured, Measuring};
use self::model::{Each, Estimate, Mixed};
use self::path::{Manner, PathModel, Traffic};
use crate::capacity;
use crate::error::SuiteError;
use crate::reproduce::{Order, Stage};
use crate::standing::Showing;

/// What is to be foretold of.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictPlan {
    /// Server, path and requests, without a rate; its length is that of no load, see [`Asked::each`].
    pub plan: Plan,
    /// The questions.
    pub asked: Asked,
}

/// What is asked, and how carefully.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Light loads, and held ones, of each class: 3 to 20.
    pub loads: u32,
    /// Length of a light load: 200 ms to 1 h. A held one takes half as long.
    pub each: Duration,
    /// Whether to measure what a connection takes.
    pub memory: bool,
    /// Users of a closed loop, at most [`answer::USERS_MAX`].
    pub users: Option<u32>,
    /// How long they think between an answer and the next request.
    pub think: Duration,
    /// A peak that several machines are to carry.
    pub peak: Option<RequestRate>,
    /// Share of each machine to be kept free: below 1.
    pub headroom: Probability,
    /// Peak over mean of a day: 1 or more.
    pub peak_to_mean: f64,
    /// Workers of the server that each keep one connection at a time.
    pub workers: Option<u32>,
    /// A URL that a cache of results has, and one that it never has; the mix is of the two.
    pub hit_and_miss: Option<(String, String)>,
    /// Share of hits; absent: what the plan's own requests show in one load.
    pub hit_ratio: Option<Probability>,
    /// Whether to search for the capacity afterwards, and hold the one against the other.
    pub check: bool,
    /// The service's process on this host, where the lab does not start the server.
    pub pid: Option<i32>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked {
            loads: 5,
            each: Duration::from_secs(4),
            memory: true,
            users: None,
            // The mean of the think time that TPC-W has its users take.
            think: Duration::from_secs(7),
            peak: None,
            headroom: Probability::new(0.3).expect("a share"),
            peak_to_mean: 3.0,
            workers: None,
            hit_and_miss: None,
            hit_ratio: None,
            check: false,
            pid: None,
        }
    }
}

/// A prediction that was made, and is all in its document.
#[derive(Debug)]
pub struct PredictDone {
    /// Its document.
    pub document: PredictDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// Of every load besides its own length: places, server, warm-up, drain.
const LOAD_EXTRA: Duration = Duration::from_millis(900);
/// The prediction's error from which on it needs a reason.
pub const ERROR_MAX: f64 = 0.15;
/// An answer further beyond what was measured is an extrapolation.
const BEYOND_MAX: f64 = 2.0;
/// The load behind the path is at this share of the answer, and no more than [`PATH_RATE_MAX`].
const PATH_SHARE: f64 = 0.3;
const PATH_RATE_MAX: f64 = 1_000.0;
/// What the lab deals a share out in, unless that is too small to be dealt.
const PERIOD: Duration = Duration::from_millis(5);
const BUDGET_MIN_S: f64 = 1e-3;

impl PredictPlan {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), SuiteError> {
        let wrong = |why: String| Err(SuiteError::Plan(why));
        let Asked { loads, each, users, headroom, peak_to_mean, .. } = self.asked;
        let load = &self.plan.load;
        if self.plan.server.is_none() && self.asked.pid.is_none() {
            return wrong(
                "what a request costs is read at the server: give --server COMMAND, or --server-pid PID of a service on this host".into(),
            );
        }
        if self.plan.server.is_some() && self.asked.pid.is_some() {
            return wrong(
                "--server starts a server, --server-pid names one that runs: leave one of the two out".into(),
            );
        }
        if load.rate.is_some() || !load.phases.is_empty() || load.rate_file.is_some() || load.replay.is_some() {
            return wrong("predict chooses its own rates, far below what the server can do: leave rate, phases, rate_file and replay out".into());
        }
        if load.requests.is_some() || load.open_connections.is_some() {
            return wrong(
                "predict chooses the length of its loads (--load-time) and their connections: leave -n and --open-connections out".into(),
            );
        }
        if !load.session.is_empty() || load.har.is_some() || load.mix.is_some() || self.plan.origin.is_some() {
            return wrong("predict adds up requests, so that it needs requests alone: no sessions, recordings or mixes of a cache".into());
        }
        if self.plan.watch.tap {
            return wrong("tap (--tap) serves one run, and predict makes many: leave it out".into());
        }
        if !(3..=20).contains(&loads) {
            return wrong(format!("--loads {loads}: from 3 to 20; a line through fewer has no error"));
        }
        if each < Duration::from_millis(200) || each > Duration::from_secs(3600) {
            return wrong(format!("--load-time {}: from 200ms to 1h", units::format_duration(each)));
        }
        if users.is_some_and(|users| users == 0 || users > answer::USERS_MAX) {
            return wrong(format!("--users: from 1 to {}", answer::USERS_MAX));
        }
        if self.asked.workers == Some(0) {
            return wrong("--workers: at least 1".into());
        }
        if headroom.value() >= 1.0 {
            return wrong(format!("--headroom {headroom}: below 100%, or nothing is left to work with"));
        }
        if !(peak_to_mean >= 1.0 && peak_to_mean.is_finite()) {
            return wrong(format!("--peak-to-mean {peak_to_mean}: 1 or more"));
        }
        if self.asked.check {
            if self.plan.server.is_none() {
                return wrong(
                    "--check holds the prediction against a search, which needs a server of its own: --server".into(),
                );
            }
            if self.plan.slo.is_none() {
                return wrong(
                    "--check searches for the capacity, which needs an objective: --slo 'p99 < 500ms, errors < 0.1%'"
                        .into(),
                );
            }
            capacity::check(&check::plan(self))?;
        }
        if self.asked.hit_ratio.is_some() && self.asked.hit_and_miss.is_none() {
            return wrong("--hit-ratio is of --hit URL and --miss URL: give both".into());
        }
        Ok(())
    }

    /// How long it takes, nearly.
    pub fn time(&self) -> Duration {
        let Asked { loads, each, memory, .. } = self.asked;
        let classes = if self.asked.hit_and_miss.is_some() { 2 } else { demands::classes(&self.plan).len() };
        let derived = match (self.plan.load.close, &self.plan.load.tls) {
            (false, _) => 0,
            (true, Some(tls)) if tls.resumption => 2,
            (true, _) => 1,
        };
        let held = if self.plan.server.is_some() { each / 2 + LOAD_EXTRA } else { Duration::ZERO };
        let class = Duration::from_secs(1) + LOAD_EXTRA + (each + LOAD_EXTRA + held) * loads;
        let mut time = class * (classes + derived) as u32;
        if memory && self.plan.server.is_some() {
            time += Duration::from_secs(7);
        }
        if self.asked.check {
            time += capacity::time(&check::plan(self)).unwrap_or_default();
        }
        if self.is_far() {
            time += each + LOAD_EXTRA * 2;
        }
        time
    }

    fn is_far(&self) -> bool {
        self.plan
            .path
            .as_ref()
            .is_some_and(|path| !(path.profile.is_none() && path.rtt == Some(Duration::ZERO) && path.down.is_none()))
    }
}

/// Makes the loads and foretells. Must be called while this process has one thread, since the lab forks. Interrupted, it keeps nothing:
/// half of the costs foretell nothing.
///
/// # Errors
/// A plan that contradicts itself; a server that does not answer; a machine that lacks something; an interrupt.
pub fn run(
    asked: &PredictPlan,
    order: &Order,
    book: &Book,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<PredictDone, SuiteError> {
    asked.check()?;
    let record = book.create(&asked.plan.name, order.started, asked.plan.seed)?;
    let showing = Showing::begin(&record, "predict", &order.command, asked.plan.seed, stage);
    let mut staged = showing.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let made = record.write_plan(&asked.plan.to_toml()).map_err(SuiteError::from).and_then(|()| {
        let mut measuring = Measuring::new(asked, &order.command, interrupts, &mut *stage, None);
        measuring.showing = Some(&showing);
        let mut document = foretell(asked, order, &record, &mut measuring)?;
        if asked.asked.check && interrupts.count() == 0 {
            showing.put(|standing| standing.predict = Some(document.predict.clone()));
            check::make(asked, &mut document.predict, order, book, interrupts, stage)?;
            document.validity =
                Validity::from_checks([document.validity.checks, doubts::as_measured(&document.predict)].concat());
        }
        record.write_summary(&document)?;
        Ok(document)
    });
    let document = made.inspect_err(|_| {
        let _ = std::fs::remove_dir_all(record.path());
    })?;
    showing.done(&document.validity, |standing| standing.predict = Some(document.predict.clone()));
    Ok(PredictDone { document, folder: record.path().to_owned() })
}

/// The name that a part begins with that is a connection of its own for each request.
const NEW_CONNECTION: &str = "new connection";

/// A class in the mix, measured.
struct Part {
    name: String,
    /// How many each request brings; none: measured for comparison.
    each: Option<f64>,
    measured: Option<Measured>,
    processes: Each,
    cores: Each,
}

impl Part {
    fn of(name: &str, each: Option<f64>, measured: Measured) -> Self {
        let (processes, cores) = (Each::of(&measured.processes), Each::of(&measured.cores));
        Part { name: name.into(), each, measured: Some(measured), processes, cores }
    }

    /// Whether it is the connection that each request has of its own.
    fn is_connection(&self) -> bool {
        self.name.starts_with(NEW_CONNECTION)
    }

    fn derived(name: &str, each: Option<f64>, [processes, cores]: [Each; 2]) -> Self {
        Part { name: name.into(), each, measured: None, processes, cores }
    }
}

fn foretell(
    asked: &PredictPlan,
    order: &Order,
    record: &RunFolder,
    measuring: &mut Measuring<'_>,
) -> Result<PredictDocument, SuiteError> {
    let interrupted = || SuiteError::Plan("interrupted: nothing can be foretold of half of the costs".into());
    let mut classes = demands::classes(&asked.plan);
    if let Some((hit, miss)) = &asked.asked.hit_and_miss {
        classes = cached(&asked.plan, hit, miss);
    }
    let mut parts = Vec::new();
    for (class, share) in &classes {
        // Of a request on an open connection; the connection is a part of its own.
        let mut class = class.clone();
        class.load.close = false;
        let measured = measuring.class(&class)?.ok_or_else(interrupted)?;
        parts.push(Part::of(&class.name, Some(*share), measured));
    }
    if asked.asked.hit_and_miss.is_some() {
        shares_of_hits(asked, measuring, &mut parts)?;
    }
    if asked.plan.load.close {
        connections(asked, measuring, &classes[0].0, &mut parts)?;
    }
    let memory = match asked.asked.memory && asked.plan.server.is_some() {
        true => memory::measure(measuring, &classes[0].0)?,
        false => None,
    };
    if measuring.is_interrupted() {
        return Err(interrupted());
    }
    let whole = Whole { asked, parts, memory };
    whole.answered(order, record, measuring)
}

/// What a cache of results makes two of.
fn cached(plan: &Plan, hit: &str, miss: &str) -> Vec<(Class, f64)> {
    let class = |name: &str, url: &str| {
        let mut load = plan.load.clone();
        (load.request, load.urls, load.content) = (Vec::new(), None, None);
        load.url = url.to_owned();
        (Class { name: name.into(), load }, 0.5)
    };
    vec![class("hit", hit), class("miss", miss)]
}

/// The share of hits: as given, or that with which the two cost what the plan's own requests do, in one light load.
fn shares_of_hits(asked: &PredictPlan, measuring: &mut Measuring<'_>, parts: &mut [Part]) -> Result<(), SuiteError> {
    let share = match asked.asked.hit_ratio {
        Some(ratio) => ratio.value(),
        None => {
            let (Some(hit), Some(miss)) = (parts[0].processes.light, parts[1].processes.light) else { return Ok(()) };
            let mut load = asked.plan.load.clone();
            load.close = false;
            let rough = parts[1].measured.as_ref().map_or(0.0, |miss| miss.rate_max);
            load.rate = RequestRate::from_per_second(rough * PATH_SHARE);
            let plan = measuring.plan_of(load);
            let Some(made) = measuring.measure("mix", "mix", &plan, asked.asked.each, "the mix, lightly")? else {
                return Ok(());
            };
            let each = (made.part.busy_processes - parts[1].processes.idle) / made.part.rate_per_s.max(1e-9);
            let Some(share) = model::hit_share(hit.value, miss.value, each) else {
                measuring.notes.push("a hit and a miss cost nearly the same, so that the share of hits cannot be told and hardly matters".into());
                return Ok(());
            };
            measuring.notes.push(format!(
                "share of hits {:.1} %: with it hits of {} and misses of {} come to the {} that the mix cost in one light load; a cache that \
                 was empty when it began, over {}",
                share * 100.0,
                answer::seconds(hit.value),
                answer::seconds(miss.value),
                answer::seconds(each),
                units::format_duration(asked.asked.each)
            ));
            share
        }
    };
    (parts[0].each, parts[1].each) = (Some(share), Some(1.0 - share));
    Ok(())
}

/// What a connection of its own adds to a request; with TLS, a handshake in full and a resumed one apart.
fn connections(
    asked: &PredictPlan,
    measuring: &mut Measuring<'_>,
    class: &Class,
    parts: &mut Vec<Part>,
) -> Result<(), SuiteError> {
    let interrupted = || SuiteError::Plan("interrupted: nothing can be foretold of half of the costs".into());
    let less = |measured: &Measured, parts: &[Part]| {
        [Each::of(&measured.processes).less(&parts[0].processes), Each::of(&measured.cores).less(&parts[0].cores)]
    };
    let as_is = Class { name: format!("{}, a connection each", class.name), load: class.load.clone() };
    let with = measuring.class(&as_is)?.ok_or_else(interrupted)?;
    let connection = less(&with, parts);
    let is_tls = class.load.tls.is_some();
    let name = if is_tls { format!("{NEW_CONNECTION} and handshake") } else { NEW_CONNECTION.to_owned() };
    let resumed = with.resumed;
    parts.push(Part { measured: Some(with), ..Part::derived(&name, Some(1.0), connection) });
    let resumes = asked.plan.load.tls.as_ref().is_some_and(|tls| tls.resumption);
    if !resumes || resumed == (None, None) {
        return Ok(());
    }
    let mut load = class.load.clone();
    if let Some(tls) = &mut load.tls {
        tls.resumption = false;
    }
    let in_full = Class { name: format!("{}, every handshake in full", class.name), load };
    let full = measuring.class(&in_full)?.ok_or_else(interrupted)?;
    let full = less(&full, parts);
    let apart = |index: usize| {
        let of = |pick: fn(&Each) -> Option<Estimate>, resumed: Option<f64>| {
            let resumed = resumed.filter(|share| *share > 0.05)?;
            model::ends(&[(0.0, pick(&full[index])?), (resumed, pick(&connection[index])?)])
        };
        let (light, held) = (of(|each| each.light, resumed.0), of(|each| each.held, resumed.1));
        let pick = |which: fn((Estimate, Estimate)) -> Estimate| Each {
            light: light.map(which),
            held: held.map(which),
            idle: 0.0,
        };
        [pick(|ends| ends.0), pick(|ends| ends.1)]
    };
    let ([full_processes, resumed_processes], [full_cores, resumed_cores]) = (apart(0), apart(1));
    parts.push(Part::derived("connection, full TLS handshake", None, [full_processes, full_cores]));
    parts.push(Part::derived("connection, resumed TLS handshake", None, [resumed_processes, resumed_cores]));
    Ok(())
}

/// Everything measured.
struct Whole<'a> {
    asked: &'a PredictPlan,
    parts: Vec<Part>,
    memory: Option<PerConnection>,
}

impl Whole<'_> {
    /// What a request of the mix costs: classes by their shares. Where each has a connection of its own, the first class less what it costs
    /// on an open connection and as it is measured with one; so nothing that cancels out adds to the error.
    fn mixed(&self, of: fn(&Part) -> Each, measured: fn(&Measured) -> &model::Cost) -> Option<Mixed> {
        let connection = self.parts.iter().find(|part| part.is_connection()).and_then(|part| part.measured.as_ref());
        let classes = self.parts.iter().filter(|part| !part.is_connection());
        let mut terms: Vec<(f64, Each)> = classes.filter_map(|part| Some((part.each?, of(part)))).collect();
        if let (Some(with), Some((share, _))) = (connection, terms.first_mut()) {
            *share -= 1.0;
            terms.push((1.0, Each::of(measured(with))));
        }
        Mixed::of(&terms)
    }

    fn manner(&self) -> Manner {
        let load = &self.asked.plan.load;
        let resumed = self
            .parts
            .iter()
            .filter_map(|part| part.measured.as_ref().and_then(|it| it.resumed.1.or(it.resumed.0)))
            .next_back()
            .unwrap_or(0.0);
        let server = self.asked.plan.server.as_ref();
        Manner {
            close: load.close && load.http != HttpVersion::Http2,
            tls_round_trips: match &load.tls {
                None => 0.0,
                Some(tls) if tls.version == TlsVersion::V12 => 2.0 - resumed,
                Some(_) => 1.0,
            },
            initcwnd: server.and_then(|server| server.tcp.initcwnd).unwrap_or(path::INITCWND),
        }
    }

    /// Of a request of the mix, as far as known: by shares over the classes, with connections where each has one.
    fn traffic(&self) -> Option<Traffic> {
        if self.asked.plan.load.close {
            let with = self.parts.iter().find(|part| part.is_connection())?;
            return with.measured.as_ref()?.traffic;
        }
        let mut sum = Traffic::default();
        for part in &self.parts {
            let (Some(each), Some(measured)) = (part.each, &part.measured) else { continue };
            let traffic = measured.traffic?;
            sum.up_bytes += each * traffic.up_bytes;
            sum.down_bytes += each * traffic.down_bytes;
            sum.up_packets += each * traffic.up_packets;
            sum.down_packets += each * traffic.down_packets;
            sum.answer_bytes += each * traffic.answer_bytes;
        }
        Some(sum)
    }

    fn processor(&self, measuring: &mut Measuring<'_>) -> Processor {
        let host = measuring.host.clone().unwrap_or_default();
        let cores =
            host.server_cores.as_deref().map_or(host.cores as usize, |list| demands::core_list(list).len()).max(1)
                as f64;
        let share = self.asked.plan.server.as_ref().and_then(|server| server.cpu).map(CpuShare::cores);
        let quota = share.map(|share| (share, PERIOD.max(Duration::from_secs_f64(BUDGET_MIN_S / share))));
        let used = measuring
            .loads
            .iter()
            .filter(|load| load.kind == "rough")
            .map(|load| load.busy_processes)
            .fold(0.0, f64::max);
        if quota.is_none() && used < cores * 0.8 && cores > 1.0 {
            let usable = used.ceil().clamp(1.0, cores);
            measuring.notes.push(format!(
                "in a closed loop the server used {used:.2} of {cores:.0} cores: it is taken to be able to use {usable:.0} (fewer threads than \
                 cores, a lock, or a generator that was slower than it)"
            ));
            return Processor { quota, cores: usable };
        }
        Processor { quota, cores }
    }

    fn answered(
        self,
        order: &Order,
        record: &RunFolder,
        measuring: &mut Measuring<'_>,
    ) -> Result<PredictDocument, SuiteError> {
        let asked = self.asked;
        let (processes, cores) =
            (self.mixed(|part| part.processes, |it| &it.processes), self.mixed(|part| part.cores, |it| &it.cores));
        let processor = self.processor(measuring);
        let (manner, traffic) = (self.manner(), self.traffic());
        let model = match &asked.plan.path {
            Some(path) => {
                Some(PathModel::of(&lab::distances::spec(path, asked.plan.load.clients).map_err(lab::LabError::from)?))
            }
            None => None,
        };
        let mut predict = PredictPart {
            demands: self.parts.iter().flat_map(demand_rows).collect(),
            memory: self.memory,
            peak_to_mean: asked.asked.peak_to_mean,
            ..PredictPart::default()
        };
        let known = processes.zip(cores).map(|(processes, cores)| {
            let way = model.as_ref().zip(traffic).map(|(model, traffic)| (model, manner, traffic));
            let nofile = sys::limits::raise_open_files() as f64;
            let per = self.memory.as_ref();
            let memory = asked.plan.server.as_ref().and_then(|server| server.memory);
            Known {
                processor,
                classes: self.classes(processes.behind.value),
                processes,
                cores,
                beside_s: beside(&measuring.loads, processes.light.map_or(0.0, |light| light.value)),
                path: way,
                workers: asked.asked.workers,
                worker_held_s: None,
                connection_s: None,
                connections_by_memory: memory
                    .zip(per)
                    .and_then(|(bytes, per)| memory::connections(per, bytes.0 as f64)),
                connections_by_descriptors: per
                    .and_then(|per| per.descriptors)
                    .filter(|each| *each > 0.0)
                    .map(|each| nofile / each),
                slo: asked.plan.slo.as_ref(),
                seed: asked.plan.seed,
            }
        });
        if let Some(mut known) = known {
            let first = answer::limits(&Known { slo: None, ..known.clone() }).first().map(|limit| limit.rate_per_s);
            if let (Some((path, manner, traffic)), Some(first)) = (known.path, first) {
                let times = self.way(path, manner, traffic, first, measuring)?;
                known.connection_s = times.measured_connection_s.or(times.connection_s);
                known.worker_held_s = times.worker_held_s;
                predict.path = Some(times);
            } else if manner.close {
                known.worker_held_s = Some(0.0);
            }
            self.fill(&mut predict, &known, measuring);
            words::assumes(&mut predict, &known, &asked.asked);
        }
        predict.loads = std::mem::take(&mut measuring.loads);
        predict.notes.append(&mut measuring.notes);
        let checks = doubts::checks(&predict, processes.as_ref(), asked);
        let document = PredictDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: record.id().into(),
                dir: record.path().display().to_string(),
                command: order.command.clone(),
                seed: asked.plan.seed,
                started_at: store::rfc3339(order.started),
                duration_s: measuring.duration_s,
                host: match measuring.host.take() {
                    Some(host) => host,
                    None => host::facts(&host::CorePlan::default(), 1)?,
                },
                ..Run::default()
            },
            validity: Validity::from_checks(checks),
            predict,
        };
        Ok(document)
    }

    /// Shares of the classes, and what each costs over the mix. What each request brings along is in all of them alike.
    fn classes(&self, mix_s: f64) -> Vec<(f64, f64)> {
        let is_class = |part: &&Part| part.measured.is_some() && !part.is_connection();
        let of = |part: &Part| part.processes.behind().map_or(0.0, |demand| demand.value);
        let classes: Vec<&Part> =
            self.parts.iter().filter(is_class).filter(|part| part.each.is_some_and(|each| each > 0.0)).collect();
        let sum: f64 = classes.iter().map(|part| part.each.unwrap_or(0.0) * of(part)).sum();
        let along = mix_s - sum;
        let least = mix_s * 1e-6;
        classes.iter().map(|part| (part.each.unwrap_or(0.0), (of(part) + along).max(least) / mix_s)).collect()
    }

    /// What the path adds, with one load there at a part of what the server can do.
    fn way(
        &self,
        path: &PathModel,
        manner: Manner,
        traffic: Traffic,
        first: f64,
        measuring: &mut Measuring<'_>,
    ) -> Result<PathTimes, SuiteError> {
        let asked = self.asked;
        let windows = path::round_trips(&manner, traffic.answer_bytes);
        let response_mean_s = path.response_mean_s(&manner, &traffic);
        let mut times = PathTimes {
            name: asked.plan.path.as_ref().map(lab::distances::name).unwrap_or_default(),
            rtt_mean_s: path.rtt_mean_s(),
            round_trips: windows,
            response_mean_s,
            connection_s: manner.close.then_some(response_mean_s),
            // Accepted when the handshake is over, one round trip after it began.
            worker_held_s: manner.close.then(|| response_mean_s - path.rtt_mean_s()),
            up_bytes: traffic.up_bytes,
            down_bytes: traffic.down_bytes,
            up_packets: traffic.up_packets,
            down_packets: traffic.down_packets,
            ..PathTimes::default()
        };
        if !asked.is_far() {
            return Ok(times);
        }
        let mut plan = asked.plan.clone();
        plan.load.rate = RequestRate::from_per_second((first * PATH_SHARE).min(PATH_RATE_MAX));
        let longest = asked.plan.path.as_ref().and_then(|path| lab::distances::spec(path, plan.load.clients).ok());
        let longest = longest.map_or(Duration::ZERO, |spec| lab::distances::longest_rtt(&spec));
        plan.load.warmup = (longest * 4 + Duration::from_millis(500)).min(Duration::from_secs(15));
        let lasts = asked.asked.each.max(longest * 2);
        let made = measuring.measure("mix", "path", &plan, lasts, "the path, lightly")?;
        let Some(made) = made else { return Ok(times) };
        times.measured_mean_s = Some(made.part.response_mean_ns / 1e9);
        if manner.close && made.connection_s > 0.0 {
            times.measured_connection_s = Some(made.connection_s);
            times.worker_held_s = Some((made.connection_s - made.connect_s).max(0.0));
        }
        Ok(times)
    }

    fn fill(&self, predict: &mut PredictPart, known: &Known<'_>, measuring: &Measuring<'_>) {
        let asked = &self.asked.asked;
        predict.limits = answer::limits(known);
        let Some(least) = predict.limits.first().cloned() else { return };
        predict.rate_per_s = Some(least.rate_per_s);
        predict.interval = least.interval;
        predict.bound_by.clone_from(&least.resource);
        let (busy, of_processes) = answer::busy(known, least.rate_per_s);
        let measured = measuring.loads.iter().filter(|load| matches!(load.kind.as_str(), "light" | "held"));
        let telling = measured.filter(|load| !known.processes.held || load.kind == "held");
        let most =
            telling.map(|load| if of_processes { load.busy_processes } else { load.busy_cores }).fold(0.0, f64::max);
        predict.beyond = if most > 0.0 { busy / most } else { f64::INFINITY };
        predict.curve = answer::curve(known);
        predict.connections_in_process = known.connection_s.map(|time| time * least.rate_per_s);
        if let Some(users) = asked.users {
            (predict.closed, predict.users_at_saturation) = answer::users(known, users, asked.think);
        }
        predict.per_day = answer::per_day(least.rate_per_s, asked.peak_to_mean);
        predict.machines =
            asked.peak.map(|peak| answer::machines(least.rate_per_s, peak.per_second(), asked.headroom.value()));
        let points: Vec<(f64, f64)> = measuring
            .loads
            .iter()
            .filter(|load| load.kind == "light" && load.in_flight >= 1.0)
            .map(|load| (load.in_flight, load.rate_per_s))
            .collect();
        predict.usl = usl(&points, self.asked.plan.seed);
    }
}

/// What the median request took beyond its demand in the lightest load.
fn beside(loads: &[ledger::MeasuredLoad], demand_s: f64) -> f64 {
    let light = loads.iter().filter(|load| load.kind == "light");
    let lightest = light.min_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    lightest.map_or(0.0, |load| (load.response_p50_ns as f64 / 1e9 - demand_s).max(0.0))
}

/// The universal scalability law through loads, where there are enough.
fn usl(points: &[(f64, f64)], seed: u64) -> Option<ledger::UslPart> {
    let fit = stats::usl::usl(points, &mut Rng::named(seed, "usl"))?;
    Some(ledger::UslPart {
        gamma: fit.law.gamma,
        gamma_interval: fit.gamma,
        alpha: fit.law.alpha,
        alpha_interval: fit.alpha,
        beta: fit.law.beta,
        beta_interval: fit.beta,
        r2: fit.law.r2,
        number_max: points.iter().map(|(number, _)| *number).fold(0.0, f64::max),
    })
}

fn demand_rows(part: &Part) -> Vec<Demand> {
    let is_derived = part.measured.is_none() || part.is_connection();
    let mut rows = Vec::new();
    let measured = |resource: &str| {
        part.measured
            .as_ref()
            .filter(|_| !is_derived)
            .map(|measured| if resource == "cores" { &measured.cores } else { &measured.processes })
    };
    for (resource, each) in [("processes", &part.processes), ("cores", &part.cores)] {
        for (loads, estimate) in [("held", each.held), ("light", each.light)] {
            let Some(estimate) = estimate else { continue };
            let line: Option<Line> = measured(resource).and_then(|cost| cost.light).filter(|_| loads == "light");
            let points = part.measured.as_ref().map_or((0, 0), |measured| measured.points);
            rows.push(Demand {
                class: part.name.clone(),
                each: part.each,
                resource: resource.into(),
                loads: if is_derived { format!("derived, {loads}") } else { loads.into() },
                seconds: estimate.value,
                interval: estimate.interval(),
                idle_cores: line.map(|line| line.intercept),
                curvature_t: line.map(|line| line.curvature.clamp(-1e6, 1e6)),
                points: if loads == "held" { points.1 } else { points.0 },
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests;
