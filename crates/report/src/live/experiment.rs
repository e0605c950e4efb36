//! The live page of an experiment that makes several runs: a capacity search, the points of a cache, a gateway.
//!
//! Results so far are shown as in the report, by the same code; the current run, if it is stored, follows as on its own
//! page.

use schema::document::{Run, SCHEMA, Validity};
use schema::{
    CapacityDocument, CompareDocument, ComparePart, Document, GatewayDocument, PredictDocument, Reproduction,
    RunProgress,
};

use super::follow::{Ended, Records};
use super::state::{Fact, Piece, Section, State, Table, Text};
use super::{paged, run, shards};
use crate::capacity;
use crate::figures::{count, rate};
use crate::page::Page;
use crate::phrases::measure;

/// Whether the records are those of an experiment, which has no seconds of its own.
pub(super) fn is_one(records: &Records) -> bool {
    match (&records.ended, &records.progress) {
        (Some(Ended::Run(document)), _) => document.load.is_none() && document.cache.is_some(),
        (Some(Ended::Unreadable(_)), _) => false,
        (Some(_), _) => true,
        (None, Some(progress)) => {
            let has_part = progress.capacity.is_some()
                || progress.gateway.is_some()
                || progress.predict.is_some()
                || progress.reproduce.is_some()
                || progress.compare.is_some()
                || (progress.cache.is_some() && progress.load.is_none());
            has_part || progress.under.is_some() || !progress.ended.is_empty()
        }
        (None, None) => false,
    }
}

/// The experiment, and its current run.
pub(super) fn state(records: &Records, under: Option<&Records>) -> State {
    let mut found = found(records);
    let step = records.progress.as_ref().and_then(|progress| progress.step.clone());
    let lead = match step.filter(|_| !records.is_over()) {
        Some(step) => format!("Current step: {step}."),
        None => std::mem::take(&mut found.lead),
    };
    let mut status = run::status(records);
    if !records.is_over() {
        status.word = "Running".to_owned();
    }
    let mut state = State {
        title: records.id.clone(),
        aloud: spoken(&status.word, &lead, &found.facts),
        status,
        lead,
        progress: None,
        facts: found.facts,
        judged: run::judged(records),
        sections: found.sections,
        foot: Vec::new(),
        is_over: records.is_over(),
    };
    state.sections.extend(shards::section(records));
    if let Some(under) = under {
        let text = run::progress(under).map(|progress| format!(", {}", progress.text)).unwrap_or_default();
        let text = format!("{}{text}", run::status(under).word);
        let mut now = Section::new("under", format!("Now: {}", under.id));
        now.pieces.push(Piece::Text(Text { id: "under-where".to_owned(), text, verbatim: false }));
        state.sections.push(now);
        state.sections.extend(run::sections(under));
    }
    if let Some(runs) = records.progress.as_ref().map(|progress| &progress.ended).filter(|runs| !runs.is_empty()) {
        let newest = runs.iter().rev().take(RUNS_MAX);
        state.sections.push(Section::new("runs", "Runs").with(Piece::Table(Table {
            id: "runs-table".to_owned(),
            rows: newest.clone().map(|run| vec![run.clone()]).collect(),
            links: newest.map(|run| format!("run/{run}/")).collect(),
            ..Table::default()
        })));
    }
    run::add_end(&mut state, records);
    state
}

/// Results of an experiment so far.
#[derive(Default)]
struct Found {
    lead: String,
    facts: Vec<Fact>,
    sections: Vec<Section>,
}

fn found(records: &Records) -> Found {
    match (&records.ended, &records.progress) {
        (Some(Ended::Run(document)), _) => of_cache(document),
        (Some(Ended::Capacity(document)), _) => of_capacity(document),
        (Some(Ended::Gateway(document)), _) => of_page(&crate::gateway_page(document, ""), Vec::new()),
        (Some(Ended::Predict(document)), _) => of_page(&crate::predict_page(document, ""), Vec::new()),
        (Some(Ended::Disk(document)), _) => of_page(&crate::disk_page(document, ""), Vec::new()),
        (Some(Ended::Reproduction(document)), _) => of_reproduction(&document.reproduce),
        (Some(Ended::Compare(document)), _) => of_comparison(document),
        (Some(Ended::Unreadable(_)), _) | (None, None) => Found::default(),
        (None, Some(progress)) => so_far(progress),
    }
}

/// The results so far, as if the experiment ended now.
fn so_far(progress: &RunProgress) -> Found {
    let schema = SCHEMA.to_owned();
    let run = Run {
        id: progress.run.clone(),
        command: progress.command.clone(),
        seed: progress.seed,
        started_at: progress.started_at.clone(),
        duration_s: progress.at_s,
        ..Run::default()
    };
    let validity = progress.validity.clone().unwrap_or_else(|| Validity::from_checks(Vec::new()));
    if let Some(capacity) = progress.capacity.clone() {
        return of_capacity(&CapacityDocument { schema, run, validity, capacity });
    }
    if let Some(gateway) = progress.gateway.clone() {
        return of_page(&crate::gateway_page(&GatewayDocument { schema, run, validity, gateway }, ""), Vec::new());
    }
    if let Some(predict) = progress.predict.clone() {
        return of_page(&crate::predict_page(&PredictDocument { schema, run, validity, predict }, ""), Vec::new());
    }
    if let Some(reproduce) = &progress.reproduce {
        return of_reproduction(reproduce);
    }
    if let Some(compare) = progress.compare.clone() {
        return of_comparison(&CompareDocument { schema, run, validity, compare });
    }
    if let Some(cache) = progress.cache.clone() {
        let document = Document {
            schema,
            run,
            validity,
            load: None,
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: Some(cache),
        };
        return of_cache(&document);
    }
    Found::default()
}

fn of_page(page: &Page, facts: Vec<Fact>) -> Found {
    Found { lead: page.lead_sentence().to_owned(), facts, sections: paged::sections_of(page, "part") }
}

fn of_capacity(document: &CapacityDocument) -> Found {
    let part = &document.capacity;
    let words = |value: f64| capacity::load(&part.unit, value);
    let mut facts = Vec::new();
    if let Some(found) = part.result {
        facts.push(Fact::new(capacity::title(&part.find), words(found), found, part.objective.clone()));
    }
    if let (Some(achieved), "users" | "connections") = (part.rate_per_s, part.find.as_str()) {
        facts.push(Fact::new("Achieved", rate(achieved), achieved, "at this capacity"));
    }
    if let Some(bracket) = part.partial_result {
        if let Some(lower) = bracket.lower {
            facts.push(Fact::new("Sustained so far", words(lower), lower, part.objective.clone()));
        }
        if let Some(upper) = bracket.upper {
            facts.push(Fact::new("Too much so far", words(upper), upper, ""));
        }
    }
    facts.push(Fact::new("Trials", count(part.trials.len() as u64), part.trials.len() as f64, ""));
    if let Some(last) = part.trials.last() {
        // The load of the first trials has another unit, as in the table of trials.
        let load = capacity::trial(last, &part.unit).swap_remove(capacity::LOAD);
        facts.push(Fact::new("Last trial", load, last.load, format!("{}: {}", last.stage, last.verdict)));
    }
    of_page(&crate::capacity_page(document, ""), facts)
}

fn of_cache(document: &Document) -> Found {
    let mut facts = Vec::new();
    if let Some(part) = &document.cache {
        facts.push(Fact::new(
            "Points",
            count(part.points.len() as u64),
            part.points.len() as f64,
            part.workload.clone(),
        ));
        if let Some(last) = part.points.last() {
            let offered = last.offered_rate_per_s;
            facts.push(Fact::new("Last point", rate(offered), offered, "offered"));
            if let Some(hits) = last.figures.hit_ratio.measured {
                facts.push(Fact::new("Hit ratio", crate::figures::share(hits), hits, "of the last point"));
            }
        }
    }
    of_page(&crate::cache_page(document, ""), facts)
}

/// Published vs. measured figures.
fn of_reproduction(part: &Reproduction) -> Found {
    let rows = part.rows.iter().map(|row| {
        let here = row.measured.map(|here| measure(here, &row.unit)).unwrap_or_default();
        vec![
            row.experiment.clone(),
            row.setting.clone(),
            row.quantity.clone(),
            row.published.clone().unwrap_or_default(),
            here,
            row.note.clone(),
        ]
    });
    let table = table(
        "rows",
        &["experiment", "setting", "quantity", "published", "measured", "note"],
        &[1, 2, 5],
        rows.collect(),
    );
    Found {
        lead: part.answer.clone(),
        facts: Vec::new(),
        sections: vec![Section::new("rows", "Published vs. measured").with(table)],
    }
}

/// Figures of both sides by metric.
fn of_comparison(document: &CompareDocument) -> Found {
    let ComparePart { a, b, metrics, .. } = &document.compare;
    let rows = metrics.iter().map(|metric| {
        let figure = |value: Option<f64>, unit: &str| value.map(|value| measure(value, unit)).unwrap_or_default();
        let unit = if metric.relative { "ratio" } else { &metric.unit };
        let signed = |value: f64| match value {
            value if value < 0.0 => format!("-{}", measure(-value, unit)),
            value => format!("+{}", measure(value, unit)),
        };
        let interval =
            metric.interval.map(|[low, high]| format!("{} to {}", signed(low), signed(high))).unwrap_or_default();
        let difference = metric.difference.map(signed).unwrap_or_default();
        vec![metric.name.clone(), figure(metric.a, &metric.unit), figure(metric.b, &metric.unit), difference, interval]
    });
    let table = table("metrics", &["metric", "A", "B", "difference", "interval"], &[], rows.collect());
    let lead = format!("A: {}. B: {}.", a.what, b.what);
    Found { lead, facts: Vec::new(), sections: vec![Section::new("metrics", "Metrics").with(table)] }
}

fn table(id: &str, head: &[&str], left: &[usize], rows: Vec<Vec<String>>) -> Option<Piece> {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    (!rows.is_empty())
        .then(|| Piece::Table(Table { id: format!("{id}-table"), head, left: left.to_vec(), rows, ..Table::default() }))
}

fn spoken(word: &str, lead: &str, facts: &[Fact]) -> String {
    let facts = facts.iter().filter(|fact| fact.value.is_some()).map(|fact| format!(" {} {}.", fact.name, fact.text));
    format!("{word}. {lead}{}", facts.collect::<String>())
}

/// Most runs listed, the newest first.
const RUNS_MAX: usize = 50;
