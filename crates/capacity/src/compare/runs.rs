//! Comparison of stored runs.

mod within_run;

use std::fs;
use std::path::{Path, PathBuf};

use schema::compare_part::{CompareSide, PlanDifference};
use schema::document::{CheckState, Host, Weight};
use schema::{ComparePart, Document};
use stats::Rng;
use stats::compare::Estimate;
use store::{RunStore, StoreError};

use self::within_run::RunVariation;
use super::metric::{ComparedFigures, Evidence, Metric, coarse, judged, systematic_error_note};
use super::{CompareOptions, CompareResult, ComparisonParts, check, hosts, plans};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict::of_runs;

/// Input of a comparison.
#[derive(Clone, Debug)]
pub struct StoredRunsPlan {
    /// Folders of the first side's runs, one or more.
    pub a: Vec<PathBuf>,
    /// Folders of the second side's runs.
    pub b: Vec<PathBuf>,
    /// Compare although the plans differ in more than the server.
    pub different_plans: bool,
}

/// Folders of runs: names, prefixes of names or folders separated by commas, `last` for the last stored run with load,
/// `last~1` for the one before.
///
/// # Errors
/// There is no such run, or several match.
pub fn find(run_store: &RunStore, words: &str) -> Result<Vec<PathBuf>, ExperimentError> {
    let names = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let dirs: Vec<PathBuf> = names.map(|word| of_load(run_store, word)).collect::<Result<_, _>>()?;
    if dirs.is_empty() { Err(ExperimentError::Plan(format!("`{words}` does not name a run"))) } else { Ok(dirs) }
}

/// The folder of a run with load. Comparisons and searches are stored too and may be the last; the error then names the
/// newest two runs with load.
fn of_load(run_store: &RunStore, word: &str) -> Result<PathBuf, ExperimentError> {
    let dir = run_store.find(word).map_err(request_error)?;
    let is_load = |dir: &&PathBuf| store::read_summary(dir).is_ok_and(|document| document.load.is_some());
    if is_load(&&dir) || store::read_summary(&dir).is_err() {
        return Ok(dir);
    }
    let dirs = run_store.dirs()?;
    let id = |dir: &PathBuf| dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let newest: Vec<String> = dirs.iter().rev().filter(is_load).take(2).map(id).collect();
    let newest =
        if newest.is_empty() { String::new() } else { format!("; the newest of these: {}", newest.join(", ")) };
    Err(ExperimentError::Plan(format!(
        "`{word}` is {}: only runs with load, such as those of `bench`, can be compared{newest}",
        id(&dir)
    )))
}

/// Converts a store error: a missing or incomplete run is an error of the user's options, not of the machine.
fn request_error(error: StoreError) -> ExperimentError {
    match error {
        StoreError::Io { .. } | StoreError::DiskFull { .. } => error.into(),
        other => ExperimentError::Plan(other.to_string()),
    }
}

/// A stored run.
struct StoredRun {
    dir: PathBuf,
    document: Document,
    plan: String,
}

impl StoredRun {
    fn read(dir: &Path) -> Result<Self, ExperimentError> {
        let document = store::read_summary(dir).map_err(request_error)?;
        if document.load.is_none() {
            return Err(ExperimentError::Plan(format!(
                "{}: only runs with load, such as those of `bench`, can be compared; this one has none",
                dir.display()
            )));
        }
        // Different paths can name the same folder.
        let dir = dir.canonicalize().map_err(ExperimentError::file(dir))?;
        Ok(StoredRun { document, plan: store::read_plan(&dir).map_err(request_error)?, dir })
    }

    fn name(&self) -> &str {
        &self.document.run.id
    }

    fn loop_kind(&self) -> &str {
        self.document.load.as_ref().map_or("", |load| &load.loop_kind)
    }
}

/// Compares the runs. Nothing is executed.
///
/// # Errors
/// A run has no load or did not end, plans differ in more than the server, or one side has one run and the other
/// several.
pub fn compare(
    plan: &StoredRunsPlan,
    question: &CompareOptions,
    order: &Order,
    run_store: &RunStore,
) -> Result<CompareResult, ExperimentError> {
    question.check()?;
    let read = |dirs: &[PathBuf]| dirs.iter().map(|dir| StoredRun::read(dir)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (read(&plan.a)?, read(&plan.b)?);
    let differ = plans_of(&a, &b, plan.different_plans)?;
    let mut dirs: Vec<&PathBuf> = a.iter().chain(&b).map(|stored| &stored.dir).collect();
    dirs.sort();
    if let Some(twice) = dirs.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ExperimentError::Plan(format!("{} is given twice: expected different runs", twice[0].display())));
    }
    let one_each = a.len() == 1 && b.len() == 1;
    if !one_each && (a.len() < 2 || b.len() < 2) {
        return Err(ExperimentError::Plan(format!(
            "{} and {} runs: expected one per side, or two or more on both (A1,A2,A3 B1,B2,B3)",
            a.len(),
            b.len()
        )));
    }
    let by = question.by.unwrap_or(Metric::deciding(a[0].loop_kind() == "open"));
    let missing =
        if one_each { a.iter().chain(&b).find_map(|stored| RunVariation::missing(&stored.document)) } else { None };
    let figures = match (&missing, one_each) {
        (Some(_), _) => without_intervals(&a[0], &b[0]),
        (None, true) => within(&a[0], &b[0], order.seed)?,
        (None, false) => between_runs(&a, &b),
    };
    let mut notes = notes(one_each, a.len().min(b.len()));
    notes.extend(no_interval_note(&figures, missing.as_deref()));
    notes.extend(systematic_error_note(&figures, by, question.confidence));
    let all = || a.iter().chain(&b);
    let mut checks = of_runs(all().map(|stored| (stored.name(), &stored.document.validity)));
    checks.push(same_machine(&a, &b));
    checks.push(same_plans(&differ));
    let side = |runs: &[StoredRun]| CompareSide {
        what: runs.iter().map(StoredRun::name).collect::<Vec<_>>().join(", "),
        runs: runs.iter().map(|stored| stored.name().to_owned()).collect(),
        counted: runs.len() as u64,
    };
    let closing = ComparisonParts {
        part: ComparePart {
            method: if one_each { "one_run" } else { "runs" }.to_owned(),
            confidence: question.confidence,
            by: by.name().to_owned(),
            a: side(&a),
            b: side(&b),
            plans_differ: differ,
            hosts_differ: hosts::differences(&a[0].document.run.host, &b[0].document.run.host),
            metrics: judged(figures, by, question.confidence),
            notes,
            ..ComparePart::default()
        },
        checks,
        measured_s: all().map(|stored| stored.document.run.duration_s).sum(),
        warmup_s: all().map(|stored| stored.document.run.warmup_s).sum(),
        interrupted: false,
    };
    let record = run_store.create("compare", order.started, order.seed)?;
    closing.close(question, order, &record).inspect_err(|_| {
        let _ = fs::remove_dir_all(record.path());
    })
}

fn notes(one_each: bool, fewest: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if one_each {
        notes.push(
            "One run per side: the intervals cover the variation within these two runs, not another start of the \
             server or another hour of the machine. Several runs per side do (compare A1,A2,A3 B1,B2,B3), or \
             interleaved runs (compare URL --server A --server B)."
                .to_owned(),
        );
    } else if fewest < 5 {
        notes.push(format!(
            "{fewest} runs on a side: each run gives one value per metric, so the intervals are wide; five or more \
             are better."
        ));
    }
    notes
}

/// Differences between the plans of the two sides; within a side there must be none.
fn plans_of(a: &[StoredRun], b: &[StoredRun], anyway: bool) -> Result<Vec<PlanDifference>, ExperimentError> {
    let between = |first: &StoredRun, other: &StoredRun| {
        plans::differences(&first.plan, &other.plan)
            .map_err(|why| ExperimentError::Plan(format!("the plans of {} and {}: {why}", first.name(), other.name())))
    };
    for side in [a, b] {
        for other in &side[1..] {
            let differ = between(&side[0], other)?;
            if !differ.is_empty() {
                return Err(ExperimentError::Plan(format!(
                    "{} and {} are on one side, and their plans differ in {}",
                    side[0].name(),
                    other.name(),
                    plans::listed(differ.iter())
                )));
            }
        }
    }
    let differ = between(&a[0], &b[0])?;
    if !anyway && differ.iter().any(|one| !one.subject) {
        return Err(ExperimentError::Plan(format!(
            "the plans differ in {}, so a difference may not be the server's; --different-plans compares them \
             nevertheless",
            plans::listed(differ.iter().filter(|one| !one.subject))
        )));
    }
    Ok(differ)
}

fn same_plans(differ: &[PlanDifference]) -> schema::Check {
    let others: Vec<&PlanDifference> = differ.iter().filter(|one| !one.subject).collect();
    if others.is_empty() {
        let why = "the plans differ only in the server or its address".to_owned();
        return check("plans_alike", CheckState::Ok, Weight::Suspect, why);
    }
    let why = format!(
        "the plans differ in {} (--different-plans): a difference is that of server and plan together",
        plans::listed(others.into_iter())
    );
    check("plans_alike", CheckState::NotApplicable, Weight::Suspect, why)
}

fn same_machine(a: &[StoredRun], b: &[StoredRun]) -> schema::Check {
    let facts = |host: &Host| (host.kernel.clone(), host.cpu.clone(), host.cores, host.memory_bytes);
    let first = &a[0].document.run.host;
    let other = a.iter().chain(b).find(|stored| facts(&stored.document.run.host) != facts(first));
    match other {
        None => {
            let why = "kernel, CPU, cores and memory are the same in all runs".to_owned();
            check("same_machine", CheckState::Ok, Weight::Suspect, why)
        }
        Some(other) => {
            let of = |host: &Host| format!("{}, {} cores of {}", host.kernel, host.cores, host.cpu);
            let why = format!(
                "{} was made on another machine ({} instead of {}): a difference may be the machine's",
                other.name(),
                of(&other.document.run.host),
                of(first)
            );
            check("same_machine", CheckState::Failed, Weight::Suspect, why)
        }
    }
}

/// Why figures have no confidence interval.
fn no_interval_note(figures: &[ComparedFigures], missing: Option<&str>) -> Option<String> {
    if let Some(why) = missing {
        return Some(format!(
            "No figure has an interval, so no difference can be shown or ruled out: {why} to show its variation. \
             Make longer runs (-d 20s), or give several per side."
        ));
    }
    let bare = figures
        .iter()
        .filter(|figures| matches!(figures.evidence, Evidence::None) && figures.a.is_some() && figures.b.is_some());
    let names: Vec<&str> = bare.map(|figures| figures.metric.short()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "No interval for {}: too few of its values are in these runs (CPU time is known once a second, and 20 \
             are needed; memory once a run; a percentile needs requests beyond it). Make longer runs, or give \
             several per side.",
            names.join(", ")
        )
    })
}

/// Metrics of runs without known variation.
fn without_intervals(a: &StoredRun, b: &StoredRun) -> Vec<ComparedFigures> {
    let figures = Metric::ALL.into_iter().map(|metric| ComparedFigures {
        metric,
        a: metric.of(&a.document),
        b: metric.of(&b.document),
        evidence: Evidence::None,
        systematic_error: coarse(metric, [&a.document].into_iter(), [&b.document].into_iter()),
    });
    with_a_figure(figures)
}

/// One run per side: variation within the runs.
fn within(a: &StoredRun, b: &StoredRun, seed: u64) -> Result<Vec<ComparedFigures>, ExperimentError> {
    let variation = |stored: &StoredRun, name: &str| -> Result<RunVariation, ExperimentError> {
        RunVariation::read(&stored.dir, &stored.document, &mut Rng::named(seed, name))
    };
    let (of_a, of_b) = (variation(a, "a")?, variation(b, "b")?);
    let figures = Metric::ALL.into_iter().map(|metric| {
        let evidence = match (of_a.estimate(metric, &a.document), of_b.estimate(metric, &b.document)) {
            (Some(a), Some(b)) => Evidence::Apart(a, b),
            _ => Evidence::None,
        };
        let systematic_error = coarse(metric, [&a.document].into_iter(), [&b.document].into_iter());
        ComparedFigures { metric, a: metric.of(&a.document), b: metric.of(&b.document), evidence, systematic_error }
    });
    Ok(with_a_figure(figures))
}

/// Several per side: variation between their figures.
fn between_runs(a: &[StoredRun], b: &[StoredRun]) -> Vec<ComparedFigures> {
    let figures = Metric::ALL.into_iter().map(|metric| {
        let scaled = |runs: &[StoredRun]| -> Option<Vec<f64>> {
            runs.iter().map(|stored| metric.scaled(metric.of(&stored.document)?)).collect()
        };
        let (of_a, of_b) = (scaled(a), scaled(b));
        let mean =
            |of: &Option<Vec<f64>>| of.as_ref().map(|of| metric.figure(of.iter().sum::<f64>() / of.len() as f64));
        let estimate = |of: &Option<Vec<f64>>| of.as_ref().and_then(|of| Estimate::of_mean(of));
        let evidence = match (estimate(&of_a), estimate(&of_b)) {
            (Some(a), Some(b)) => Evidence::Apart(a, b),
            _ => Evidence::None,
        };
        let systematic_error =
            coarse(metric, a.iter().map(|stored| &stored.document), b.iter().map(|stored| &stored.document));
        ComparedFigures { metric, a: mean(&of_a), b: mean(&of_b), evidence, systematic_error }
    });
    with_a_figure(figures)
}

/// A metric that neither side has is omitted.
fn with_a_figure(figures: impl Iterator<Item = ComparedFigures>) -> Vec<ComparedFigures> {
    figures.filter(|figures| figures.a.is_some() || figures.b.is_some()).collect()
}

#[cfg(test)]
mod tests;
