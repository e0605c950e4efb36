//! What a server will do, foretold: from what its requests cost in a few small loads.
//!
//! The paper on NTT DIRECTORY says that measurements of parts, added up, estimate the whole. Here the parts are what
//! requests cost an assembled server, and, where that is asked for, those of a server that is only described
//! (parts.rs):
//!
//! ```text
//!   loads of each class (demands.rs, gauge.rs) --> Cost, Mixed (model.rs) --+
//!   connections held open (memory.rs) --------------------------------------+--> limits, curve, users (answer.rs) --> PredictDocument
//!   parts measured alone (parts.rs) --> sums, Mixed ------------------------+
//!   distances (path.rs), one load there ------------------------------------+
//!   the search for the capacity (check.rs) --> predicted beside measured
//! ```
//!
//! Read `model.rs` first: it says what a request costs, and why that is two figures.

pub mod answer;
mod assumptions;
mod check;
mod class_costs;
mod demands;
mod doubts;
mod gauge;
mod memory;
pub mod model;
mod parts;
pub mod path;
mod whole;

use std::path::PathBuf;
use std::time::Duration;

use plan::Plan;
use schema::{PredictDocument, PredictPart, Validity};
use store::RunStore;
use sys::signal::Interrupts;
use units::{Probability, RequestRate};

use self::demands::Measuring;
use crate::search;
use experiment::ExperimentError;
use experiment::progress::ExperimentProgress;
use experiment::{Order, Stage};

/// What is to be foretold of.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictPlan {
    /// Server, path and requests, without a rate; its length is that of no load, see [`PredictOptions::each`].
    pub plan: Plan,
    /// The questions.
    pub asked: PredictOptions,
}

/// What is asked, and how carefully.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictOptions {
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
    /// Length of a trial of that search; the short ones take a quarter of it. At least [`CHECK_TRIAL_MIN`].
    pub check_trial: Duration,
    /// The service's process on this host, where the lab does not start the server.
    pub pid: Option<i32>,
    /// Whether to measure parts alone and add them up for the server that the plan describes (`[parts]`). Where the plan starts no server
    /// and no process is named, this is all that is done.
    pub parts: bool,
    /// Where the files of the parts are made; absent: a folder that passes.
    pub parts_folder: Option<PathBuf>,
    /// Whether to ask fio what storage can bring to the requests that are cold.
    pub disk: bool,
}

impl Default for PredictOptions {
    fn default() -> Self {
        PredictOptions {
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
            check_trial: Duration::from_secs(20),
            pid: None,
            parts: false,
            parts_folder: None,
            disk: false,
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
/// The shortest trial of the search that a prediction is held against: its short ones are as short as they may be.
pub const CHECK_TRIAL_MIN: Duration = Duration::from_secs(2);
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

/// How often the lab deals out a share of so many cores.
fn period(cores: f64) -> Duration {
    PERIOD.max(Duration::from_secs_f64(BUDGET_MIN_S / cores))
}

impl PredictPlan {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |why: String| Err(ExperimentError::Plan(why));
        let PredictOptions { loads, each, users, headroom, peak_to_mean, .. } = self.asked;
        let load = &self.plan.load;
        if self.asked.parts {
            parts::check(self)?;
        } else if self.asked.disk || self.asked.parts_folder.is_some() {
            return wrong("--disk and --parts-folder are of --parts: give that as well".into());
        }
        if !self.is_assembled() && !self.asked.parts {
            return wrong(
                "what a request costs is read at the server: give --server COMMAND, or --server-pid PID of a service on this host; or --parts, for a server that is only described".into(),
            );
        }
        if self.plan.server.is_some() && self.asked.pid.is_some() {
            return wrong(
                "--server starts a server, --server-pid names one that runs: leave one of the two out".into(),
            );
        }
        if load.is_open() {
            return wrong("predict chooses its own rates, far below what the server can do: leave rate, phases, rate_file and replay out".into());
        }
        if load.requests.is_some() || load.open_connections.is_some() {
            return wrong(
                "predict chooses the length of its loads (--load-time) and their connections: leave -n and --open-connections out".into(),
            );
        }
        if !load.session.is_empty() || load.har.is_some() || load.cache_workload.is_some() || self.plan.origin.is_some()
        {
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
            if self.asked.check_trial < CHECK_TRIAL_MIN {
                return wrong(format!(
                    "--check-trial {}: at least {}",
                    units::format_duration(self.asked.check_trial),
                    units::format_duration(CHECK_TRIAL_MIN)
                ));
            }
            search::check(&check::plan(self))?;
        }
        if self.asked.hit_ratio.is_some() && self.asked.hit_and_miss.is_none() {
            return wrong("--hit-ratio is of --hit URL and --miss URL: give both".into());
        }
        Ok(())
    }

    /// Whether there is a server to be measured as it is.
    fn is_assembled(&self) -> bool {
        self.plan.server.is_some() || self.asked.pid.is_some()
    }

    /// How long it takes, nearly.
    pub fn time(&self) -> Duration {
        let parts = if self.asked.parts { parts::time(self) } else { Duration::ZERO };
        if !self.is_assembled() {
            return parts;
        }
        let PredictOptions { loads, each, memory, .. } = self.asked;
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
            time += search::time(&check::plan(self)).unwrap_or_default();
        }
        if self.is_far() {
            time += each + LOAD_EXTRA * 2;
        }
        time + parts
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
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<PredictDone, ExperimentError> {
    asked.check()?;
    let record = book.create(&asked.plan.name, order.started, asked.plan.seed)?;
    let showing = ExperimentProgress::begin(&record, "predict", &order.command, asked.plan.seed, stage);
    let mut staged = showing.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let made = record.write_plan(&asked.plan.to_toml()).map_err(ExperimentError::from).and_then(|()| {
        let mut measuring = Measuring::new(asked, &order.command, interrupts, &mut *stage, None);
        measuring.showing = Some(&showing);
        let measured = match asked.asked.parts {
            true => Some(parts::measure(asked, order, book, &mut measuring)?.ok_or_else(interrupted)?),
            false => None,
        };
        let assembled = asked.is_assembled();
        let (mut predict, mut checks) = match assembled {
            true => class_costs::predict(asked, &mut measuring)?,
            false => (PredictPart::default(), Vec::new()),
        };
        if let Some(measured) = measured {
            checks.extend(measured.add_up(asked, &mut measuring, &mut predict, !assembled)?);
        }
        predict.loads = std::mem::take(&mut measuring.loads);
        predict.notes.append(&mut measuring.notes);
        let mut document = whole::document(predict, checks, order, &record, &mut measuring)?;
        if asked.asked.check && interrupts.count() == 0 {
            showing.put(|standing| standing.predict = Some(document.predict.clone()));
            let of_search = check::make(asked, &mut document.predict, order, book, interrupts, stage)?;
            let as_measured = doubts::as_measured(&document.predict);
            document.validity = Validity::from_checks([document.validity.checks, as_measured, of_search].concat());
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

fn interrupted() -> ExperimentError {
    ExperimentError::Plan("interrupted before all costs were measured: no prediction".into())
}

#[cfg(test)]
mod tests;
