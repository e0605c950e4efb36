//! Prediction of a server's capacity from the cost of its requests at small loads.
//!
//! The NTT DIRECTORY paper states that measurements of components, added up, estimate the whole. Here the components
//! are the costs of requests to a real server and, with `--components`, those of a server that exists only as a model
//! (components.rs):
//!
//! ```text
//!   loads of each class (demands.rs, gauge.rs) --> Cost, WorkloadDemand (model.rs) --+
//!   idle open connections (memory.rs) -------------------------------------------------+--> limits, curve, users (limits.rs) --> PredictDocument
//!   components measured alone (components.rs) --> sum, WorkloadDemand -----------------+
//!   distances (path.rs), one load there -----------------------------------------------+
//!   capacity search (comparison.rs) --> predicted vs. measured
//! ```
//!
//! Read `model.rs` first: it defines the cost of a request and why the cost is two figures.

mod assumptions;
mod checks;
mod class_costs;
mod comparison;
mod components;
mod demands;
mod gauge;
pub mod limits;
mod memory;
pub mod model;
pub mod path;
mod real_server;

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

/// Input of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictPlan {
    /// Server, path and requests, without a rate. Its length is not used; see [`PredictOptions::each`].
    pub plan: Plan,
    /// The options.
    pub options: PredictOptions,
}

/// What to predict, and with how many loads.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictOptions {
    /// Light and saturated loads of each class: 3 to 20.
    pub loads: u32,
    /// Length of a light load: 200 ms to 1 h. A saturated load takes half as long.
    pub each: Duration,
    /// Whether to measure memory and descriptors per connection.
    pub memory: bool,
    /// Users of a closed loop, at most [`limits::USERS_MAX`].
    pub users: Option<u32>,
    /// Think time between a response and the next request.
    pub think: Duration,
    /// Peak rate for which to compute the number of machines.
    pub peak: Option<RequestRate>,
    /// Unused share of each machine: below 1.
    pub headroom: Probability,
    /// Peak over mean of a day: 1 or more.
    pub peak_to_mean: f64,
    /// Workers of the server that each serve one connection at a time.
    pub workers: Option<u32>,
    /// A URL in the server's result cache, and one that is never in it; the workload consists of both.
    pub hit_and_miss: Option<(String, String)>,
    /// Share of hits; absent: fitted to one load of the plan's own requests.
    pub hit_ratio: Option<Probability>,
    /// Whether to search for the capacity afterwards and compare.
    pub check: bool,
    /// Length of a trial of that search; short trials take a quarter of it. At least [`CHECK_TRIAL_MIN`].
    pub check_trial: Duration,
    /// Process of a service on this host, if the testbed does not start the server.
    pub pid: Option<i32>,
    /// Whether to measure components alone and add them up for the model in the plan (`[components]`). Without a server
    /// and a process, nothing else is measured.
    pub components: bool,
    /// Folder for the components' files; absent: a temporary folder.
    pub components_folder: Option<PathBuf>,
    /// Whether to measure storage reads with fio for requests whose file is not cached.
    pub disk: bool,
}

impl Default for PredictOptions {
    fn default() -> Self {
        PredictOptions {
            loads: 5,
            each: Duration::from_secs(4),
            memory: true,
            users: None,
            // Mean think time of TPC-W.
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
            components: false,
            components_folder: None,
            disk: false,
        }
    }
}

/// A finished prediction.
#[derive(Debug)]
pub struct PredictResult {
    /// The complete document.
    pub document: PredictDocument,
    /// Folder in the run store.
    pub folder: PathBuf,
}

/// Time of each load in addition to its length: sandboxes, server, warm-up, drain.
const LOAD_EXTRA: Duration = Duration::from_millis(900);
/// Shortest trial of the `--check` search: its short trials then have the least length.
pub const CHECK_TRIAL_MIN: Duration = Duration::from_secs(2);
/// Error of the prediction from which on reasons are printed.
pub const ERROR_MAX: f64 = 0.15;
/// CPU time at the result over the most measured, from which on the result is an extrapolation.
const BEYOND_MAX: f64 = 2.0;
/// Rate of the load on the path, as a share of the result, and at most [`PATH_RATE_MAX`].
const PATH_SHARE: f64 = 0.3;
const PATH_RATE_MAX: f64 = 1_000.0;
/// Quota period of the testbed, unless the share is too small for it.
const QUOTA_PERIOD: Duration = Duration::from_millis(5);
const BUDGET_MIN_S: f64 = 1e-3;

/// Quota period that the testbed uses for this share of a core.
fn period(cores: f64) -> Duration {
    QUOTA_PERIOD.max(Duration::from_secs_f64(BUDGET_MIN_S / cores))
}

impl PredictPlan {
    /// Refuses contradictory options.
    ///
    /// # Errors
    /// The contradiction, as a sentence.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |why: String| Err(ExperimentError::Plan(why));
        let PredictOptions { loads, each, users, headroom, peak_to_mean, .. } = self.options;
        let load = &self.plan.load;
        if self.options.components {
            components::check(self)?;
        } else if self.options.disk || self.options.components_folder.is_some() {
            return wrong("--disk and --components-folder need --components: add it".into());
        }
        if !self.is_assembled() && !self.options.components {
            return wrong(
                "the cost of a request is measured at the server: give --server COMMAND, or --server-pid PID of a \
                 service on this host; or --components, for a modelled server"
                    .into(),
            );
        }
        if self.plan.server.is_some() && self.options.pid.is_some() {
            return wrong("--server starts a server, --server-pid names a running one: omit one of them".into());
        }
        if load.is_open() {
            return wrong(
                "predict chooses its own rates, far below the server's limit: omit rate, phases, rate_file \
                          and replay"
                    .into(),
            );
        }
        if load.requests.is_some() || load.open_connections.is_some() {
            return wrong(
                "predict chooses the length of its loads (--load-time) and their connections: omit -n and \
                 --open-connections"
                    .into(),
            );
        }
        if !load.session.is_empty() || load.har.is_some() || load.cache_workload.is_some() || self.plan.origin.is_some()
        {
            return wrong(
                "predict adds up the costs of single requests: omit sessions, recordings and cache workloads".into(),
            );
        }
        if self.plan.watch.tap {
            return wrong("a tap (--tap) observes one run and predict makes many: omit it".into());
        }
        if !(3..=20).contains(&loads) {
            return wrong(format!(
                "--loads {loads}: expected 3 to 20; a line through fewer points has no error estimate"
            ));
        }
        if each < Duration::from_millis(200) || each > Duration::from_secs(3600) {
            return wrong(format!("--load-time {}: expected 200ms to 1h", units::format_duration(each)));
        }
        if users.is_some_and(|users| users == 0 || users > limits::USERS_MAX) {
            return wrong(format!("--users: expected 1 to {}", limits::USERS_MAX));
        }
        if self.options.workers == Some(0) {
            return wrong("--workers: expected 1 or more".into());
        }
        if headroom.value() >= 1.0 {
            return wrong(format!("--headroom {headroom}: expected less than 100%"));
        }
        if !(peak_to_mean >= 1.0 && peak_to_mean.is_finite()) {
            return wrong(format!("--peak-to-mean {peak_to_mean}: expected 1 or more"));
        }
        if self.options.check {
            if self.plan.server.is_none() {
                return wrong(
                    "--check compares with a capacity search, which starts the server itself: give --server".into(),
                );
            }
            if self.plan.slo.is_none() {
                return wrong(
                    "--check searches for the capacity, which needs an objective: give --slo, such as --slo 'p99 < \
                     500ms, errors < 0.1%'"
                        .into(),
                );
            }
            if self.options.check_trial < CHECK_TRIAL_MIN {
                return wrong(format!(
                    "--check-trial {}: expected {} or more",
                    units::format_duration(self.options.check_trial),
                    units::format_duration(CHECK_TRIAL_MIN)
                ));
            }
            search::check(&comparison::plan(self))?;
        }
        if self.options.hit_ratio.is_some() && self.options.hit_and_miss.is_none() {
            return wrong("--hit-ratio needs --hit URL and --miss URL: give both".into());
        }
        Ok(())
    }

    /// Whether there is a real server to measure.
    fn is_assembled(&self) -> bool {
        self.plan.server.is_some() || self.options.pid.is_some()
    }

    /// Approximate duration.
    pub fn time(&self) -> Duration {
        let parts = if self.options.components { components::time(self) } else { Duration::ZERO };
        if !self.is_assembled() {
            return parts;
        }
        let PredictOptions { loads, each, memory, .. } = self.options;
        let classes = if self.options.hit_and_miss.is_some() { 2 } else { demands::classes(&self.plan).len() };
        let derived = match (self.plan.load.close, &self.plan.load.tls) {
            (false, _) => 0,
            (true, Some(tls)) if tls.resumption => 2,
            (true, _) => 1,
        };
        let saturated = if self.plan.server.is_some() { each / 2 + LOAD_EXTRA } else { Duration::ZERO };
        let class = Duration::from_secs(1) + LOAD_EXTRA + (each + LOAD_EXTRA + saturated) * loads;
        let mut time = class * (classes + derived) as u32;
        if memory && self.plan.server.is_some() {
            time += Duration::from_secs(7);
        }
        if self.options.check {
            time += search::time(&comparison::plan(self)).unwrap_or_default();
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

/// Measures and predicts. Must be called while this process has one thread, since the testbed forks. An interrupt
/// stores nothing, since half of the costs give no prediction.
///
/// # Errors
/// The plan contradicts itself, the server does not respond, the machine lacks a feature, or an interrupt occurred.
pub fn run(
    input: &PredictPlan,
    order: &Order,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<PredictResult, ExperimentError> {
    input.check()?;
    let record = run_store.create(&input.plan.name, order.started, input.plan.seed)?;
    let showing = ExperimentProgress::begin(&record, "predict", &order.command, input.plan.seed, stage);
    let mut staged = showing.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let outcome = record.write_plan(&input.plan.to_toml()).map_err(ExperimentError::from).and_then(|()| {
        let mut measuring = Measuring::new(input, &order.command, interrupts, &mut *stage, None);
        measuring.showing = Some(&showing);
        let measured = match input.options.components {
            true => Some(components::measure(input, order, run_store, &mut measuring)?.ok_or_else(interrupted)?),
            false => None,
        };
        let assembled = input.is_assembled();
        let (mut predict, mut checks) = match assembled {
            true => class_costs::predict(input, &mut measuring)?,
            false => (PredictPart::default(), Vec::new()),
        };
        if let Some(measured) = measured {
            checks.extend(measured.add_up(input, &mut measuring, &mut predict, !assembled)?);
        }
        predict.loads = std::mem::take(&mut measuring.loads);
        predict.notes.append(&mut measuring.notes);
        let mut document = real_server::document(predict, checks, order, &record, &mut measuring)?;
        if input.options.check && interrupts.count() == 0 {
            showing.put(|progress| progress.predict = Some(document.predict.clone()));
            let of_search = comparison::make(input, &mut document.predict, order, run_store, interrupts, stage)?;
            let as_measured = checks::as_measured(&document.predict);
            document.validity = Validity::from_checks([document.validity.checks, as_measured, of_search].concat());
        }
        record.write_summary(&document)?;
        Ok(document)
    });
    let document = outcome.inspect_err(|_| {
        let _ = std::fs::remove_dir_all(record.path());
    })?;
    showing.done(&document.validity, |progress| progress.predict = Some(document.predict.clone()));
    Ok(PredictResult { document, folder: record.path().to_owned() })
}

fn interrupted() -> ExperimentError {
    ExperimentError::Plan("interrupted before all costs were measured: no prediction".into())
}

#[cfg(test)]
mod tests;
