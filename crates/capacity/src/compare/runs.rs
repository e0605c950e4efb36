//! Runs of the book.

mod moments;

use std::fs;
use std::path::{Path, PathBuf};

use schema::compare_part::{CompareSide, PlanDifference};
use schema::document::{CheckState, Host, Weight};
use schema::{ComparePart, Document};
use stats::Rng;
use stats::compare::Estimate;
use store::{RunStore, StoreError};

use self::moments::Moments;
use super::metric::{Evidence, Found, Metric, coarse, grain_note, judged};
use super::{Closing, CompareDone, CompareQuestion, check, hosts, plans};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict::of_runs;

/// What is compared.
#[derive(Clone, Debug)]
pub struct RunsPlan {
    /// Folders of the first side's runs, one or more.
    pub a: Vec<PathBuf>,
    /// Of the second side's.
    pub b: Vec<PathBuf>,
    /// Compare though the plans differ in more than the server.
    pub different_plans: bool,
}

/// The folders of some runs: names, beginnings of names or folders between commas, `last` for the last run of load in
/// the book, `last~1` for the one before.
///
/// # Errors
/// There is no such run, or more than one.
pub fn find(book: &RunStore, words: &str) -> Result<Vec<PathBuf>, ExperimentError> {
    let names = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let found: Vec<PathBuf> = names.map(|word| of_load(book, word)).collect::<Result<_, _>>()?;
    if found.is_empty() { Err(ExperimentError::Plan(format!("`{words}` names no run"))) } else { Ok(found) }
}

/// The folder of a run that has a load. Comparisons and searches are stored too and may be the last; the error then names the newest two runs with a load.
fn of_load(book: &RunStore, word: &str) -> Result<PathBuf, ExperimentError> {
    let found = book.find(word).map_err(asked_for)?;
    let is_load = |dir: &&PathBuf| store::read_summary(dir).is_ok_and(|document| document.load.is_some());
    if is_load(&&found) || store::read_summary(&found).is_err() {
        return Ok(found);
    }
    let dirs = book.dirs()?;
    let id = |dir: &PathBuf| dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let newest: Vec<String> = dirs.iter().rev().filter(is_load).take(2).map(id).collect();
    let newest =
        if newest.is_empty() { String::new() } else { format!("; the newest of these: {}", newest.join(", ")) };
    Err(ExperimentError::Plan(format!(
        "`{word}` is {}: only runs of load are compared, such as `bench` makes{newest}",
        id(&found)
    )))
}

/// What was asked for is not there, or not whole: that is for whoever asked to mend, not for the machine.
fn asked_for(error: StoreError) -> ExperimentError {
    match error {
        StoreError::Io { .. } | StoreError::DiskFull { .. } => error.into(),
        other => ExperimentError::Plan(other.to_string()),
    }
}

/// A run as it was kept.
struct Kept {
    dir: PathBuf,
    document: Document,
    plan: String,
}

impl Kept {
    fn read(dir: &Path) -> Result<Self, ExperimentError> {
        let document = store::read_summary(dir).map_err(asked_for)?;
        if document.load.is_none() {
            return Err(ExperimentError::Plan(format!(
                "{}: only runs of load are compared, such as `bench` makes; this has none",
                dir.display()
            )));
        }
        // A folder may be named in more ways than one.
        let dir = dir.canonicalize().map_err(ExperimentError::file(dir))?;
        Ok(Kept { document, plan: store::read_plan(&dir).map_err(asked_for)?, dir })
    }

    fn name(&self) -> &str {
        &self.document.run.id
    }

    fn loop_kind(&self) -> &str {
        self.document.load.as_ref().map_or("", |load| &load.loop_kind)
    }
}

/// Compares them. Nothing is run.
///
/// # Errors
/// A run that is not one of load, or did not end; plans that differ in more than the server; one on one side and several on
/// the other.
pub fn compare(
    plan: &RunsPlan,
    question: &CompareQuestion,
    order: &Order,
    book: &RunStore,
) -> Result<CompareDone, ExperimentError> {
    question.check()?;
    let read = |dirs: &[PathBuf]| dirs.iter().map(|dir| Kept::read(dir)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (read(&plan.a)?, read(&plan.b)?);
    let differ = plans_of(&a, &b, plan.different_plans)?;
    let mut dirs: Vec<&PathBuf> = a.iter().chain(&b).map(|kept| &kept.dir).collect();
    dirs.sort();
    if let Some(twice) = dirs.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ExperimentError::Plan(format!(
            "{} is named twice: a run says nothing of itself",
            twice[0].display()
        )));
    }
    let one_each = a.len() == 1 && b.len() == 1;
    if !one_each && (a.len() < 2 || b.len() < 2) {
        return Err(ExperimentError::Plan(format!(
            "{} and {} runs: one a side, or two or more on both (A1,A2,A3 B1,B2,B3)",
            a.len(),
            b.len()
        )));
    }
    let by = question.by.unwrap_or(Metric::deciding(a[0].loop_kind() == "open"));
    let missing = if one_each { a.iter().chain(&b).find_map(|kept| Moments::missing(&kept.document)) } else { None };
    let found = match (&missing, one_each) {
        (Some(_), _) => without_intervals(&a[0], &b[0]),
        (None, true) => within(&a[0], &b[0], order.seed)?,
        (None, false) => between_runs(&a, &b),
    };
    let mut notes = notes(one_each, a.len().min(b.len()));
    notes.extend(no_interval_note(&found, missing.as_deref()));
    notes.extend(grain_note(&found, by, question.confidence));
    let all = || a.iter().chain(&b);
    let mut checks = of_runs(all().map(|kept| (kept.name(), &kept.document.validity)));
    checks.push(same_machine(&a, &b));
    checks.push(same_plans(&differ));
    let side = |runs: &[Kept]| CompareSide {
        what: runs.iter().map(Kept::name).collect::<Vec<_>>().join(", "),
        runs: runs.iter().map(|kept| kept.name().to_owned()).collect(),
        counted: runs.len() as u64,
    };
    let closing = Closing {
        part: ComparePart {
            method: if one_each { "one_run" } else { "runs" }.to_owned(),
            confidence: question.confidence,
            by: by.name().to_owned(),
            a: side(&a),
            b: side(&b),
            plans_differ: differ,
            hosts_differ: hosts::differences(&a[0].document.run.host, &b[0].document.run.host),
            metrics: judged(found, by, question.confidence),
            notes,
            ..ComparePart::default()
        },
        checks,
        measured_s: all().map(|kept| kept.document.run.duration_s).sum(),
        warmup_s: all().map(|kept| kept.document.run.warmup_s).sum(),
        interrupted: false,
    };
    let record = book.create("compare", order.started, order.seed)?;
    closing.close(question, order, &record).inspect_err(|_| {
        let _ = fs::remove_dir_all(record.path());
    })
}

fn notes(one_each: bool, fewest: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if one_each {
        notes.push(
            "One run a side: the intervals are of moments within these two runs, and say nothing of what another start of the server, or another \
             hour of the machine, would show. Several runs a side do (compare A1,A2,A3 B1,B2,B3), or two servers in turns (compare URL --server A --server B)."
                .to_owned(),
        );
    } else if fewest < 5 {
        notes.push(format!(
            "{fewest} runs on a side: each figure counts once a run, so the intervals are wide; five or more are better."
        ));
    }
    notes
}

/// Where the two sides' plans differ; those of one side must not.
fn plans_of(a: &[Kept], b: &[Kept], anyway: bool) -> Result<Vec<PlanDifference>, ExperimentError> {
    let between = |first: &Kept, other: &Kept| {
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
            "the plans differ in {}: then nobody knows what of a difference is the server's; --different-plans compares them all the same",
            plans::listed(differ.iter().filter(|one| !one.subject))
        )));
    }
    Ok(differ)
}

fn same_plans(differ: &[PlanDifference]) -> schema::Check {
    let others: Vec<&PlanDifference> = differ.iter().filter(|one| !one.subject).collect();
    if others.is_empty() {
        let why = "the plans differ in nothing but the server, or where it is".to_owned();
        return check("plans_alike", CheckState::Ok, Weight::Suspect, why);
    }
    let why = format!(
        "--different-plans was asked for, and they differ in {}: a difference is that of server and plan together",
        plans::listed(others.into_iter())
    );
    check("plans_alike", CheckState::NotApplicable, Weight::Suspect, why)
}

fn same_machine(a: &[Kept], b: &[Kept]) -> schema::Check {
    let facts = |host: &Host| (host.kernel.clone(), host.cpu.clone(), host.cores, host.memory_bytes);
    let first = &a[0].document.run.host;
    let other = a.iter().chain(b).find(|kept| facts(&kept.document.run.host) != facts(first));
    match other {
        None => {
            let why = "kernel, processor, cores and memory are the same in all runs".to_owned();
            check("same_machine", CheckState::Ok, Weight::Suspect, why)
        }
        Some(other) => {
            let of = |host: &Host| format!("{}, {} cores of {}", host.kernel, host.cores, host.cpu);
            let why = format!(
                "{} was made on another machine ({} instead of {}): a difference is that of the machines as well",
                other.name(),
                of(&other.document.run.host),
                of(first)
            );
            check("same_machine", CheckState::Failed, Weight::Suspect, why)
        }
    }
}

/// Why figures have no confidence interval.
fn no_interval_note(found: &[Found], missing: Option<&str>) -> Option<String> {
    if let Some(why) = missing {
        return Some(format!(
            "No figure has an interval, so no difference can be shown or ruled out: {why} to see how its figures scatter. Make longer runs (-d 20s), or name \
             several a side."
        ));
    }
    let bare =
        found.iter().filter(|found| matches!(found.evidence, Evidence::None) && found.a.is_some() && found.b.is_some());
    let names: Vec<&str> = bare.map(|found| found.metric.short()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "No interval for {}: too few of its values are in these runs (CPU time is known once a second, and 20 are needed; memory once a run; a percentile \
             needs requests beyond it). Longer runs, or several a side, have one.",
            names.join(", ")
        )
    })
}

/// Figures side by side, of runs that do not say how they scatter.
fn without_intervals(a: &Kept, b: &Kept) -> Vec<Found> {
    let found = Metric::ALL.into_iter().map(|metric| Found {
        metric,
        a: metric.of(&a.document),
        b: metric.of(&b.document),
        evidence: Evidence::None,
        grain: coarse(metric, [&a.document].into_iter(), [&b.document].into_iter()),
    });
    with_a_figure(found)
}

/// One run each: by their own moments.
fn within(a: &Kept, b: &Kept, seed: u64) -> Result<Vec<Found>, ExperimentError> {
    let moments = |kept: &Kept, name: &str| -> Result<Moments, ExperimentError> {
        Moments::read(&kept.dir, &kept.document, &mut Rng::named(seed, name))
    };
    let (of_a, of_b) = (moments(a, "a")?, moments(b, "b")?);
    let found = Metric::ALL.into_iter().map(|metric| {
        let evidence = match (of_a.estimate(metric, &a.document), of_b.estimate(metric, &b.document)) {
            (Some(a), Some(b)) => Evidence::Apart(a, b),
            _ => Evidence::None,
        };
        let grain = coarse(metric, [&a.document].into_iter(), [&b.document].into_iter());
        Found { metric, a: metric.of(&a.document), b: metric.of(&b.document), evidence, grain }
    });
    Ok(with_a_figure(found))
}

/// Several a side: by their figures.
fn between_runs(a: &[Kept], b: &[Kept]) -> Vec<Found> {
    let found = Metric::ALL.into_iter().map(|metric| {
        let scaled = |runs: &[Kept]| -> Option<Vec<f64>> {
            runs.iter().map(|kept| metric.scaled(metric.of(&kept.document)?)).collect()
        };
        let (of_a, of_b) = (scaled(a), scaled(b));
        let mean =
            |of: &Option<Vec<f64>>| of.as_ref().map(|of| metric.figure(of.iter().sum::<f64>() / of.len() as f64));
        let estimate = |of: &Option<Vec<f64>>| of.as_ref().and_then(|of| Estimate::of_mean(of));
        let evidence = match (estimate(&of_a), estimate(&of_b)) {
            (Some(a), Some(b)) => Evidence::Apart(a, b),
            _ => Evidence::None,
        };
        let grain = coarse(metric, a.iter().map(|kept| &kept.document), b.iter().map(|kept| &kept.document));
        Found { metric, a: mean(&of_a), b: mean(&of_b), evidence, grain }
    });
    with_a_figure(found)
}

/// What neither side has is no row.
fn with_a_figure(found: impl Iterator<Item = Found>) -> Vec<Found> {
    found.filter(|found| found.a.is_some() || found.b.is_some()).collect()
}

#[cfg(test)]
mod tests;
