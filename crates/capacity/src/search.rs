//! Search for the highest load that keeps the objective: a rate, or a number of users or connections.
//!
//! ```text
//!   Plan --plan--> rules --search--> the next trial --plan--> Plan of a run --TrialMachines--> TrialRun
//!                             ^                                                                  |
//!                             '----- verdict <--trial--- growth, objective, validity checks -----'
//!   all trials --result--> result, interval, limiting resource, findings
//! ```
//!
//! `docs/concepts/capacity.md` defines the terms. Read [`sequence`] first: the sequence of trials as a pure function;
//! then [`trial`]: what makes a trial good, bad, the client's limit or void. [`quantity`] holds what differs between
//! rates, users and connections. Each trial is a run (`docs/decisions/0023-a-trial-is-a-run.md`), of this machine or of
//! several ([`trial_run`]), and is written to the journal before the next one begins.

mod bound;
mod checks;
mod each;
mod estimate;
pub mod findings;
pub mod growth;
mod journal;
pub mod quantity;
pub mod result;
pub mod sequence;
pub mod trial;
mod trial_plan;
pub mod trial_run;
pub mod warmup;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::slo::Slo;
use plan::{Plan, ShardPlan};
use schema::document::{Check, CheckState, Host, Run, SCHEMA, Validity};
use schema::{CapacityDocument, CapacityPart, EachDistance, TrialPart};
use store::{RunFolder, RunStore};
use sys::signal::Interrupts;
use testbed::TestbedError;
use testbed::host;

use self::journal::{Journal, TrialMachine};
use self::sequence::{End, Next, Rules, TrialSequence};
use self::trial::{Purpose, TrialRequest};
use self::trial_run::{PlannedTrial, TrialMachines, TrialVariant};
use experiment::ExperimentError;
use experiment::progress::ExperimentProgress;
use experiment::watchdog::ObjectiveGuard;
use experiment::{Order, SearchProgress, Stage};

/// Options of `capacity` in addition to its plan.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// Options that every experiment has.
    pub order: Order,
    /// Folder of an interrupted search to continue, as opened by [`resumed`]; absent for a new search.
    pub resume: Option<PathBuf>,
}

/// A finished or interrupted search.
#[derive(Debug)]
pub struct CapacityResult {
    /// The complete document.
    pub document: CapacityDocument,
    /// Folder in the run store.
    pub folder: PathBuf,
}

/// Makes trials: the testbed, or a simulated server in tests.
pub trait Trials {
    /// Makes trial `number`. `bytes` is the expected mean size of a response. `None`: interrupted.
    ///
    /// # Errors
    /// The trial cannot be made.
    fn make(&mut self, request: &TrialRequest, number: usize, bytes: f64)
    -> Result<Option<TrialPart>, ExperimentError>;

    /// Records a finished trial; `sequence` has the bracket so far.
    ///
    /// # Errors
    /// The trial cannot be stored.
    fn record(&mut self, trial: &TrialPart, sequence: &TrialSequence<'_>) -> Result<(), ExperimentError>;
}

/// Makes trials until the search ends. `None`: interrupted.
///
/// # Errors
/// The first trial cannot be made, or a trial cannot be stored. A later trial that cannot be made ends the search.
pub fn drive(sequence: &mut TrialSequence<'_>, trials: &mut dyn Trials) -> Result<Option<End>, ExperimentError> {
    loop {
        let request = match sequence.next() {
            Next::End(end) => return Ok(Some(end)),
            Next::Make(request) => request,
        };
        let trial = match trials.make(&request, sequence.trials().len(), sequence.response_bytes()) {
            Ok(Some(trial)) => trial,
            Ok(None) => return Ok(None),
            Err(error) if sequence.trials().is_empty() => return Err(error),
            Err(error) => return Ok(Some(End::Refused(format!("the search stopped: {error}")))),
        };
        sequence.add(trial.clone());
        trials.record(&trial, sequence)?;
    }
}

/// Approximate duration of the search.
///
/// # Errors
/// The plan contradicts itself or has no `[capacity]`.
pub fn time(plan: &Plan) -> Result<Duration, ExperimentError> {
    let (capacity, slo) = trial_plan::of(plan)?;
    let rules = trial_plan::rules(plan, capacity, slo, None, None);
    Ok(estimate::rest(&rules, &TrialSequence::new(&rules)) * distances_of(capacity))
}

/// Number of distances at which a capacity is searched for.
fn distances_of(capacity: &plan::CapacityPlan) -> u32 {
    capacity.each.len().max(1) as u32
}

/// Refuses a plan that no trial can satisfy, before anything is started or written.
///
/// # Errors
/// The plan contradicts itself or cannot be carried out.
pub fn check(plan: &Plan) -> Result<(), ExperimentError> {
    let (capacity, slo) = trial_plan::of(plan)?;
    for (_, plan) in distances(plan, &capacity.each)? {
        let rules = trial_plan::rules(&plan, capacity, slo, None, None);
        if let Next::End(End::Refused(why)) = TrialSequence::new(&rules).next() {
            return Err(ExperimentError::Plan(why));
        }
    }
    Ok(())
}

/// The plan of a stored search.
///
/// # Errors
/// The folder has no search, or cannot be read.
pub fn resumed(folder: &Path) -> Result<Plan, ExperimentError> {
    let text = store::read_plan(folder)?;
    let plan = Plan::from_toml(&text, &folder.join("plan.toml").display().to_string()).map_err(TestbedError::from)?;
    if plan.capacity.is_none() || !folder.join(journal::NAME).exists() {
        return Err(ExperimentError::Plan(format!("--resume {}: this run is not a capacity search", folder.display())));
    }
    Ok(plan)
}

/// Runs the search; `machines` make its trials. Must be called while this process has one thread, since the testbed
/// forks. An interrupt voids the current trial; earlier trials stay stored and the search can be resumed.
///
/// # Errors
/// The plan cannot be carried out, the first trial cannot be made, or a folder cannot be written.
pub fn run(
    plan: &Plan,
    order: &CapacityOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    (machines, stage): (&mut dyn TrialMachines, &mut dyn Stage),
) -> Result<CapacityResult, ExperimentError> {
    check(plan)?;
    let (capacity, slo) = trial_plan::of(plan)?;
    let here = host::facts(&host::CorePlan::default(), plan.host.threads)?;
    let place = TrialMachine::of(&here, plan.shard.count());
    let (record, journal, stored) = match &order.resume {
        None => {
            let record = run_store.create(&plan.name, order.order.started, plan.seed)?;
            // Every machine gives its own shard.
            record.write_plan(&Plan { shard: ShardPlan::default(), ..plan.clone() }.to_toml())?;
            let journal = Journal::begin(record.path(), &place)?;
            (record, journal, journal::JournalContents::default())
        }
        Some(folder) => {
            let record = RunFolder::reopen(folder.clone(), order.order.started)?;
            let (mut journal, mut stored) = Journal::reopen(folder)?;
            if let Some(differs) = stored.place.as_ref().and_then(|began| place.differs(began)) {
                return Err(ExperimentError::Plan(format!(
                    "--resume {}: its trials come from another machine or version ({differs}); start a new search",
                    folder.display()
                )));
            }
            let now = store::rfc3339(order.order.started);
            journal.resumed(&now)?;
            stored.resumed.push(now);
            (record, journal, stored)
        }
    };
    let is_new = order.resume.is_none();
    let showing = ExperimentProgress::begin(&record, "capacity", &order.order.command, plan.seed, stage);
    let mut stage = showing.staging(stage);
    let mut running = RunningSearch {
        order: &order.order,
        run_store,
        interrupts,
        machines,
        stage: &mut stage,
        showing: &showing,
        slo,
        record: &record,
        journal,
        host: None,
        here,
        resumed: stored.resumed,
        at: String::new(),
        rules: trial_plan::rules(plan, capacity, slo, None, None),
        plan: plan.clone(),
        capacity: capacity.clone(),
        before: Vec::new(),
    };
    let document = running.all(plan, &stored.trials).inspect_err(|_| {
        if is_new {
            // Nothing was measured. A remaining folder would look like a killed run.
            let _ = std::fs::remove_dir_all(record.path());
        }
    })?;
    Ok(CapacityResult { document, folder: record.path().to_owned() })
}

/// The plan at each requested distance, by name; the plan itself if none is requested.
fn distances(plan: &Plan, each: &[String]) -> Result<Vec<(String, Plan)>, ExperimentError> {
    if each.is_empty() {
        return Ok(vec![(String::new(), plan.clone())]);
    }
    each.iter().map(|words| Ok((words.clone(), at_distance(plan, words)?))).collect()
}

/// The plan at a distance.
fn at_distance(plan: &Plan, words: &str) -> Result<Plan, ExperimentError> {
    let at = each::at(plan, words).map_err(ExperimentError::Plan)?;
    at.check().map_err(TestbedError::from)?;
    if let Some(path) = &at.path {
        testbed::distances::spec(path, at.load.clients).map_err(TestbedError::from)?;
    }
    Ok(at)
}

/// State of a running search.
struct RunningSearch<'a> {
    order: &'a Order,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    machines: &'a mut dyn TrialMachines,
    stage: &'a mut dyn Stage,
    showing: &'a ExperimentProgress,
    slo: &'a Slo,
    record: &'a RunFolder,
    journal: Journal,
    /// Facts of the machine as recorded by the first run.
    host: Option<Host>,
    /// Facts of the machine before any run.
    here: Host,
    resumed: Vec<String>,
    /// The current distance, its rules and its plan.
    at: String,
    rules: Rules,
    plan: Plan,
    capacity: plan::CapacityPlan,
    /// Earlier distances: results and checks.
    before: Vec<(String, CapacityPart, Vec<Check>)>,
}

impl RunningSearch<'_> {
    fn all(&mut self, plan: &Plan, stored: &[TrialPart]) -> Result<CapacityDocument, ExperimentError> {
        let (mut first, mut limit) = (None, None);
        let mut interrupted = false;
        for (name, plan) in distances(plan, &self.capacity.each)? {
            let rules = trial_plan::rules(&plan, &self.capacity, self.slo, first, limit);
            (self.at, self.plan, self.rules) = (name.clone(), plan, rules.clone());
            let mut sequence = TrialSequence::new(&rules);
            stored.iter().filter(|trial| trial.at == name).for_each(|trial| sequence.add(trial.clone()));
            let end = drive(&mut sequence, self)?;
            interrupted = end.is_none();
            let part = result::part(&rules, &sequence, end.as_ref(), &self.slo.to_string());
            let checks = checks::all(&rules, &sequence, &part);
            // The next distance starts at this result; the generator's limit does not depend on the distance.
            (first, limit) =
                (sequence.result().or(sequence.short_lower()).or(first), sequence.generator_limit().or(limit));
            self.before.push((name, part, checks));
            if interrupted {
                break;
            }
        }
        let document = self.document(None, interrupted);
        self.record.write_summary(&document)?;
        self.showing.done(&document.validity, |progress| progress.capacity = Some(document.capacity.clone()));
        Ok(document)
    }

    /// Label of a trial for the progress display.
    fn named_load(&self, request: &TrialRequest) -> String {
        let load = self.rules.quantity.words(request.load);
        match request.purpose {
            Purpose::Guess => "initial estimate".into(),
            Purpose::Long => format!("search {}, {load}", request.search),
            Purpose::Limit => format!("generator limit, {}", quantity::per_second(request.load)),
            purpose => format!("{}, {load}", purpose.name()),
        }
    }

    /// A trial that could not be made.
    fn void(&self, request: &TrialRequest, why: String) -> TrialPart {
        TrialPart {
            stage: request.purpose.name().into(),
            at: self.at.clone(),
            search: request.search,
            load: request.load,
            planned_s: request.lasts.as_secs_f64(),
            verdict: "void".into(),
            why: vec![why],
            ..TrialPart::default()
        }
    }

    /// The document as far as known; `current_distance` is the distance being measured.
    fn document(&self, current_distance: Option<(CapacityPart, Vec<Check>)>, interrupted: bool) -> CapacityDocument {
        let current_distance = current_distance.map(|(part, checks)| (self.at.clone(), part, checks));
        let parts: Vec<(String, CapacityPart, Vec<Check>)> =
            self.before.iter().cloned().chain(current_distance).collect();
        let checks = parts.iter().flat_map(|(name, _, checks)| checks.iter().map(|check| named(name, check)));
        let validity = Validity::from_checks(checks.collect());
        let capacity =
            together(parts.iter().map(|(name, part, checks)| (name.as_str(), part, checks.as_slice())), &self.resumed);
        let lasted = capacity.trials.iter().map(|trial| trial.actual_s).sum();
        CapacityDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: self.record.id().into(),
                dir: self.record.path().display().to_string(),
                command: self.order.command.clone(),
                seed: self.plan.seed,
                started_at: store::rfc3339(self.order.started),
                duration_s: lasted,
                warmup_s: capacity.warmup_s,
                interrupted,
                host: self.host.clone().unwrap_or_else(|| self.here.clone()),
                ..Run::default()
            },
            validity,
            capacity,
        }
    }
}

impl Trials for RunningSearch<'_> {
    fn make(
        &mut self,
        request: &TrialRequest,
        number: usize,
        bytes: f64,
    ) -> Result<Option<TrialPart>, ExperimentError> {
        if self.machines.is_interrupted(self.interrupts) {
            return Ok(None);
        }
        let plan = trial_plan::of_trial(&self.plan, request, number, bytes, &self.order.program);
        let mut guard =
            ObjectiveGuard::new(self.stage.begin(&self.named_load(request)), trial_plan::keep(request, self.slo));
        let run_store = request.purpose.is_stored().then_some(self.run_store);
        let variant = TrialVariant { at: self.at.clone(), number, bytes, request: *request };
        let (command, interrupts) = (&self.order.command, self.interrupts);
        let folder = self.record.path();
        let planned = PlannedTrial { plan: &plan, variant: &variant, command, folder, run_store, interrupts };
        let run = match self.machines.run(planned, &mut guard) {
            Ok(Some(run)) => run,
            Ok(None) => return Ok(None),
            // After a failed generator trial the generator's limit is unknown, and the search continues.
            Err(error) if request.purpose == Purpose::Limit => return Ok(Some(self.void(request, error.to_string()))),
            Err(error) => return Err(error),
        };
        self.host.get_or_insert_with(|| run.document.run.host.clone());
        let mut part = trial::part(&run, request, guard.lost(), &plan, self.slo);
        part.at.clone_from(&self.at);
        if part.verdict == "bad" && self.plan.server.is_none() {
            self.interrupts.wait(trial_plan::rest(self.slo));
        }
        Ok(Some(part))
    }

    fn record(&mut self, trial: &TrialPart, sequence: &TrialSequence<'_>) -> Result<(), ExperimentError> {
        self.journal.trial(trial)?;
        let later = distances_of(&self.capacity) - 1 - self.before.len() as u32;
        let each = estimate::rest(&self.rules, &TrialSequence::new(&self.rules));
        let rest = estimate::rest(&self.rules, sequence) + each * later;
        self.stage.trial(trial, &SearchProgress { bracket: sequence.so_far(), rest });
        let part = result::part(&self.rules, sequence, None, &self.slo.to_string());
        let checks = checks::all(&self.rules, sequence, &part);
        let document = self.document(Some((part, checks)), true);
        self.record.write_summary(&document)?;
        self.showing.put(|progress| {
            progress.validity = Some(document.validity);
            progress.capacity = Some(document.capacity);
        });
        Ok(())
    }
}

/// Prefixes a check with its distance.
fn named(at: &str, check: &Check) -> Check {
    match at {
        "" => check.clone(),
        at => Check { name: format!("{at}: {}", check.name), ..check.clone() },
    }
}

/// The first distance's part, with the trials of all distances and a row for each.
fn together<'a>(
    parts: impl Iterator<Item = (&'a str, &'a CapacityPart, &'a [Check])>,
    resumed: &[String],
) -> CapacityPart {
    let parts: Vec<_> = parts.collect();
    let Some((name, first, _)) = parts.first() else { return CapacityPart::default() };
    let mut whole = CapacityPart { resumed_at: resumed.to_vec(), ..(*first).clone() };
    if !resumed.is_empty() {
        whole.notes.push(format!("The search was interrupted and resumed: {}.", resumed.join(", ")));
    }
    if name.is_empty() {
        return whole;
    }
    whole.trials = parts.iter().flat_map(|(_, part, _)| part.trials.clone()).collect();
    whole.converged = parts.iter().all(|(_, part, _)| part.converged);
    whole.notes =
        parts.iter().flat_map(|(name, part, _)| part.notes.iter().map(move |note| format!("{name}: {note}"))).collect();
    whole.findings = parts
        .iter()
        .flat_map(|(name, part, _)| {
            part.findings
                .iter()
                .map(move |finding| schema::Finding { test: format!("{name}, {}", finding.test), ..finding.clone() })
        })
        .collect();
    whole.each = parts.iter().map(|(name, part, checks)| distance(name, part, checks, first.result)).collect();
    whole
}

fn distance(name: &str, part: &CapacityPart, checks: &[Check], first: Option<f64>) -> EachDistance {
    // The longest trial that passed at the result.
    let at = part.trials.iter().filter(|trial| Some(trial.load) == part.result && trial.verdict == "good");
    let at = at.max_by(|a, b| a.actual_s.total_cmp(&b.actual_s));
    EachDistance {
        name: name.into(),
        result: part.result,
        rate_per_s: part.rate_per_s,
        interval: part.interval,
        ratio: part.result.zip(first).map(|(result, first)| result / first),
        connections: at.map(|trial| trial.connections),
        response_time_ns: at.map(|trial| trial.response_time_ns),
        bound_by: part.bound_by.clone(),
        converged: part.converged,
        confirmed: checks.iter().any(|check| check.name == "confirmed" && check.state == CheckState::Ok),
    }
}
