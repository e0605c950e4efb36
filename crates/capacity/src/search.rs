//! The highest load that still keeps its objective, a rate or a number of users or connections: found, repeated, confirmed, and explained.
//!
//! ```text
//!   Plan --plan--> rules --search--> a trial that is asked for --plan--> Plan of a run --testbed::bench--> Outcome
//!                             ^                                                                          |
//!                             '----- its verdict <--trial--- growth, objective, the gate's checks -------'
//!   all trials --answer--> how high, how sure, what bound it, what was come upon
//! ```
//!
//! `docs/concepts/capacity.md` defines what is sought. Read [`course`] first: the course as a pure function of its trials; then [`trial`]: what
//! makes a trial good, bad, the client's limit or void. [`question`] is what differs between rates, users and connections. Each trial is a
//! run of its own (`docs/decisions/0023-a-trial-is-a-run.md`), and is in the journal before the next begins.

pub mod answer;
mod bound;
mod checks;
pub mod course;
mod each;
mod estimate;
pub mod findings;
pub mod growth;
mod journal;
pub mod question;
pub mod trial;
mod trial_plan;
pub mod warmup;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::Plan;
use plan::slo::Slo;
use schema::document::{Check, CheckState, Host, Run, SCHEMA, Validity};
use schema::{CapacityDocument, CapacityPart, EachDistance, TrialPart};
use store::{RunFolder, RunStore};
use sys::signal::Interrupts;
use testbed::LabError;
use testbed::host;

use self::course::{Course, End, Next, Rules};
use self::journal::{Journal, TrialMachine};
use self::trial::{Purpose, TrialRequest};
use experiment::ExperimentError;
use experiment::progress::ExperimentProgress;
use experiment::watchdog::ObjectiveGuard;
use experiment::{Order, SearchProgress, Stage};

/// What `capacity` is told besides its plan.
#[derive(Clone, Debug)]
pub struct CapacityOrder {
    /// What any suite is told.
    pub order: Order,
    /// The folder of a capacity that was interrupted and goes on here, as [`resumed`] opened it.
    pub resume: Option<PathBuf>,
}

/// A capacity that was sought, and is all in its document.
#[derive(Debug)]
pub struct CapacityDone {
    /// Its document.
    pub document: CapacityDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// Makes trials: the lab, or a simulated server of a test.
pub trait Trials {
    /// Makes one, the `number`th of its course; answers are about `bytes` long, as far as is known. None: it was interrupted.
    ///
    /// # Errors
    /// It cannot be made at all.
    fn make(&mut self, asked: &TrialRequest, number: usize, bytes: f64) -> Result<Option<TrialPart>, ExperimentError>;

    /// One was made, and these are the loads on both sides of the answer so far.
    ///
    /// # Errors
    /// It cannot be kept.
    fn made(&mut self, trial: &TrialPart, course: &Course<'_>) -> Result<(), ExperimentError>;
}

/// Makes trials until the course is at its end. None: it was interrupted.
///
/// # Errors
/// A trial that cannot be made before any was; one that cannot be kept. Later than that a course that cannot go on ends.
pub fn drive(course: &mut Course<'_>, trials: &mut dyn Trials) -> Result<Option<End>, ExperimentError> {
    loop {
        let asked = match course.next() {
            Next::End(end) => return Ok(Some(end)),
            Next::Make(asked) => asked,
        };
        let trial = match trials.make(&asked, course.made().len(), course.response_bytes()) {
            Ok(Some(trial)) => trial,
            Ok(None) => return Ok(None),
            Err(error) if course.made().is_empty() => return Err(error),
            Err(error) => return Ok(Some(End::Refused(format!("the search could not go on: {error}")))),
        };
        course.add(trial.clone());
        trials.made(&trial, course)?;
    }
}

/// How long it takes, about.
///
/// # Errors
/// A plan that contradicts itself, or asks for no capacity.
pub fn time(plan: &Plan) -> Result<Duration, ExperimentError> {
    let (capacity, slo) = trial_plan::of(plan)?;
    let rules = trial_plan::rules(plan, capacity, slo, None, None);
    Ok(estimate::rest(&rules, &Course::new(&rules)) * distances_of(capacity))
}

/// At how many distances a capacity is sought.
fn distances_of(capacity: &plan::CapacityPlan) -> u32 {
    capacity.each.len().max(1) as u32
}

/// Refuses what no trial could do, before anything is started or written.
///
/// # Errors
/// A plan that contradicts itself or cannot be carried out.
pub fn check(plan: &Plan) -> Result<(), ExperimentError> {
    let (capacity, slo) = trial_plan::of(plan)?;
    for (_, plan) in distances(plan, &capacity.each)? {
        let rules = trial_plan::rules(&plan, capacity, slo, None, None);
        if let Next::End(End::Refused(why)) = Course::new(&rules).next() {
            return Err(ExperimentError::Plan(why));
        }
    }
    Ok(())
}

/// The plan of a capacity in the book.
///
/// # Errors
/// It is none, or cannot be read.
pub fn resumed(folder: &Path) -> Result<Plan, ExperimentError> {
    let text = store::read_plan(folder)?;
    let plan = Plan::from_toml(&text, &folder.join("plan.toml").display().to_string()).map_err(LabError::from)?;
    if plan.capacity.is_none() || !folder.join(journal::NAME).exists() {
        return Err(ExperimentError::Plan(format!("--resume {}: this run sought no capacity", folder.display())));
    }
    Ok(plan)
}

/// Seeks it. Must be called while this process has one thread, since the lab forks. An interrupt voids the trial at hand; what is known by
/// then is kept, and can be gone on from.
///
/// # Errors
/// A plan that cannot be carried out; a first trial that cannot be made; a folder that cannot be written.
pub fn run(
    plan: &Plan,
    order: &CapacityOrder,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<CapacityDone, ExperimentError> {
    check(plan)?;
    let (capacity, slo) = trial_plan::of(plan)?;
    let here = host::facts(&host::CorePlan::default(), plan.host.threads)?;
    let place = TrialMachine::of(&here);
    let (record, journal, kept) = match &order.resume {
        None => {
            let record = book.create(&plan.name, order.order.started, plan.seed)?;
            record.write_plan(&plan.to_toml())?;
            let journal = Journal::begin(record.path(), &place)?;
            (record, journal, journal::JournalContents::default())
        }
        Some(folder) => {
            let record = RunFolder::reopen(folder.clone(), order.order.started)?;
            let (mut journal, mut kept) = Journal::reopen(folder)?;
            if let Some(differs) = kept.place.as_ref().and_then(|began| place.differs(began)) {
                return Err(ExperimentError::Plan(format!(
                    "--resume {}: its trials were made elsewhere ({differs}), and are no trials of this search",
                    folder.display()
                )));
            }
            let now = store::rfc3339(order.order.started);
            journal.resumed(&now)?;
            kept.resumed.push(now);
            (record, journal, kept)
        }
    };
    let is_new = order.resume.is_none();
    let showing = ExperimentProgress::begin(&record, "capacity", &order.order.command, plan.seed, stage);
    let mut stage = showing.staging(stage);
    let mut seeking = Seeking {
        order: &order.order,
        book,
        interrupts,
        stage: &mut stage,
        showing: &showing,
        slo,
        record: &record,
        journal,
        host: None,
        here,
        resumed: kept.resumed,
        at: String::new(),
        rules: trial_plan::rules(plan, capacity, slo, None, None),
        plan: plan.clone(),
        capacity: capacity.clone(),
        before: Vec::new(),
    };
    let document = seeking.all(plan, &kept.trials).inspect_err(|_| {
        if is_new {
            // Nothing was measured: a folder left behind would look like a run that was killed.
            let _ = std::fs::remove_dir_all(record.path());
        }
    })?;
    Ok(CapacityDone { document, folder: record.path().to_owned() })
}

/// The plan at each distance that is asked for, by name; without any, as it is.
fn distances(plan: &Plan, each: &[String]) -> Result<Vec<(String, Plan)>, ExperimentError> {
    if each.is_empty() {
        return Ok(vec![(String::new(), plan.clone())]);
    }
    let at = |words: &String| {
        let at = each::at(plan, words).map_err(ExperimentError::Plan)?;
        at.check().map_err(LabError::from)?;
        if let Some(path) = &at.path {
            testbed::distances::spec(path, at.load.clients).map_err(LabError::from)?;
        }
        Ok((words.clone(), at))
    };
    each.iter().map(at).collect()
}

/// A capacity under way.
struct Seeking<'a> {
    order: &'a Order,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    showing: &'a ExperimentProgress,
    slo: &'a Slo,
    record: &'a RunFolder,
    journal: Journal,
    /// The machine, as the first run saw it.
    host: Option<Host>,
    /// The machine, before any run.
    here: Host,
    resumed: Vec<String>,
    /// The distance at hand, its rules and its plan.
    at: String,
    rules: Rules,
    plan: Plan,
    capacity: plan::CapacityPlan,
    /// What was found at the distances before: their parts, and the checks of each.
    before: Vec<(String, CapacityPart, Vec<Check>)>,
}

impl Seeking<'_> {
    fn all(&mut self, plan: &Plan, kept: &[TrialPart]) -> Result<CapacityDocument, ExperimentError> {
        let (mut first, mut limit) = (None, None);
        let mut interrupted = false;
        for (name, plan) in distances(plan, &self.capacity.each)? {
            let rules = trial_plan::rules(&plan, &self.capacity, self.slo, first, limit);
            (self.at, self.plan, self.rules) = (name.clone(), plan, rules.clone());
            let mut course = Course::new(&rules);
            kept.iter().filter(|trial| trial.at == name).for_each(|trial| course.add(trial.clone()));
            let end = drive(&mut course, self)?;
            interrupted = end.is_none();
            let part = answer::part(&rules, &course, end.as_ref(), &self.slo.to_string());
            let checks = checks::all(&rules, &course, &part);
            // The next begins where this one ended, and the generator is the same.
            (first, limit) = (course.answer().or(course.short_lower()).or(first), course.generator_limit().or(limit));
            self.before.push((name, part, checks));
            if interrupted {
                break;
            }
        }
        let document = self.document(None, interrupted);
        self.record.write_summary(&document)?;
        self.showing.done(&document.validity, |standing| standing.capacity = Some(document.capacity.clone()));
        Ok(document)
    }

    /// What is told of a trial that begins.
    fn named_load(&self, asked: &TrialRequest) -> String {
        let load = self.rules.question.words(asked.load);
        match asked.purpose {
            Purpose::Guess => "a first guess".into(),
            Purpose::Long => format!("search {}, {load}", asked.search),
            Purpose::Limit => format!("the generator's own limit, {}", question::per_second(asked.load)),
            purpose => format!("{}, {load}", purpose.name()),
        }
    }

    /// A trial that could not be made.
    fn void(&self, asked: &TrialRequest, why: String) -> TrialPart {
        TrialPart {
            stage: asked.purpose.name().into(),
            at: self.at.clone(),
            search: asked.search,
            load: asked.load,
            planned_s: asked.lasts.as_secs_f64(),
            verdict: "void".into(),
            why: vec![why],
            ..TrialPart::default()
        }
    }

    /// The document as things stand; `at_hand`: the distance that is being measured.
    fn document(&self, at_hand: Option<(CapacityPart, Vec<Check>)>, interrupted: bool) -> CapacityDocument {
        let at_hand = at_hand.map(|(part, checks)| (self.at.clone(), part, checks));
        let parts: Vec<(String, CapacityPart, Vec<Check>)> = self.before.iter().cloned().chain(at_hand).collect();
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

impl Trials for Seeking<'_> {
    fn make(&mut self, asked: &TrialRequest, number: usize, bytes: f64) -> Result<Option<TrialPart>, ExperimentError> {
        if self.interrupts.count() > 0 {
            return Ok(None);
        }
        let plan = trial_plan::of_trial(&self.plan, asked, number, bytes, &self.order.program);
        let mut guard =
            ObjectiveGuard::new(self.stage.begin(&self.named_load(asked)), trial_plan::keep(asked, self.slo));
        let book = asked.purpose.is_kept().then_some(self.book);
        let outcome = match testbed::bench(&plan, &self.order.command, book, self.interrupts, &mut guard) {
            Ok(outcome) => outcome,
            // Nothing is learnt of the generator then; of the server everything can be.
            Err(error) if asked.purpose == Purpose::Limit => return Ok(Some(self.void(asked, error.to_string()))),
            Err(error) => return Err(error.into()),
        };
        if self.interrupts.count() > 0 {
            return Ok(None);
        }
        self.host.get_or_insert_with(|| outcome.document.run.host.clone());
        let mut part = trial::part(&outcome, asked, guard.lost(), &plan, self.slo);
        part.at.clone_from(&self.at);
        if part.verdict == "bad" && self.plan.server.is_none() {
            self.interrupts.wait(trial_plan::rest(self.slo));
        }
        Ok(Some(part))
    }

    fn made(&mut self, trial: &TrialPart, course: &Course<'_>) -> Result<(), ExperimentError> {
        self.journal.trial(trial)?;
        let later = distances_of(&self.capacity) - 1 - self.before.len() as u32;
        let each = estimate::rest(&self.rules, &Course::new(&self.rules));
        let rest = estimate::rest(&self.rules, course) + each * later;
        self.stage.trial(trial, &SearchProgress { bracket: course.so_far(), rest });
        let part = answer::part(&self.rules, course, None, &self.slo.to_string());
        let checks = checks::all(&self.rules, course, &part);
        let document = self.document(Some((part, checks)), true);
        self.record.write_summary(&document)?;
        self.showing.put(|standing| {
            standing.validity = Some(document.validity);
            standing.capacity = Some(document.capacity);
        });
        Ok(())
    }
}

/// A check of one distance among several.
fn named(at: &str, check: &Check) -> Check {
    match at {
        "" => check.clone(),
        at => Check { name: format!("{at}: {}", check.name), ..check.clone() },
    }
}

/// The first distance's part, with the trials of all and a line on each.
fn together<'a>(
    parts: impl Iterator<Item = (&'a str, &'a CapacityPart, &'a [Check])>,
    resumed: &[String],
) -> CapacityPart {
    let parts: Vec<_> = parts.collect();
    let Some((name, first, _)) = parts.first() else { return CapacityPart::default() };
    let mut whole = CapacityPart { resumed_at: resumed.to_vec(), ..(*first).clone() };
    if !resumed.is_empty() {
        whole.notes.push(format!("It was interrupted, and taken up again: {}.", resumed.join(", ")));
    }
    if name.is_empty() {
        return whole;
    }
    whole.trials = parts.iter().flat_map(|(_, part, _)| part.trials.clone()).collect();
    whole.regular = parts.iter().all(|(_, part, _)| part.regular);
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
    whole.each = parts.iter().map(|(name, part, checks)| distance(name, part, checks, first.answer)).collect();
    whole
}

fn distance(name: &str, part: &CapacityPart, checks: &[Check], first: Option<f64>) -> EachDistance {
    // The longest trial that held at the answer.
    let at = part.trials.iter().filter(|trial| Some(trial.load) == part.answer && trial.verdict == "good");
    let at = at.max_by(|a, b| a.actual_s.total_cmp(&b.actual_s));
    EachDistance {
        name: name.into(),
        answer: part.answer,
        rate_per_s: part.rate_per_s,
        interval: part.interval,
        ratio: part.answer.zip(first).map(|(answer, first)| answer / first),
        connections: at.map(|trial| trial.connections),
        response_time_ns: at.map(|trial| trial.response_time_ns),
        bound_by: part.bound_by.clone(),
        regular: part.regular,
        confirmed: checks.iter().any(|check| check.name == "confirmed" && check.state == CheckState::Ok),
    }
}
