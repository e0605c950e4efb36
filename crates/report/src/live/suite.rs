//! A run that is made up of several: the search for a capacity, the points of a cache, the conditions of a gateway.
//!
//! What it has found so far is shown as its report will show it, from the same code; the run under way, if it is in the book,
//! stands below as it would on a page of its own.

use schema::document::{Run, SCHEMA, Validity};
use schema::{
    CapacityDocument, CompareDocument, ComparePart, Document, GatewayDocument, PredictDocument, Reproduction,
    RunProgress,
};

use super::follow::{Ended, Records};
use super::state::{Fact, Piece, Section, State, Table, Text};
use super::{paged, run};
use crate::capacity;
use crate::figures::{count, rate};
use crate::page::Page;
use crate::phrases::measure;

/// Whether it is made up of several runs, or else has no seconds of its own.
pub(super) fn is_one(records: &Records) -> bool {
    match (&records.ended, &records.standing) {
        (Some(Ended::Run(document)), _) => document.load.is_none() && document.cache.is_some(),
        (Some(Ended::Unreadable(_)), _) => false,
        (Some(_), _) => true,
        (None, Some(standing)) => {
            let has_part = standing.capacity.is_some()
                || standing.gateway.is_some()
                || standing.predict.is_some()
                || standing.reproduce.is_some()
                || standing.compare.is_some()
                || (standing.cache.is_some() && standing.load.is_none());
            has_part || standing.under.is_some() || !standing.ended.is_empty()
        }
        (None, None) => false,
    }
}

/// The experiment, and the run under way.
pub(super) fn state(records: &Records, under: Option<&Records>) -> State {
    let mut found = found(records);
    let step = records.standing.as_ref().and_then(|standing| standing.step.clone());
    let lead = match step.filter(|_| !records.is_over()) {
        Some(step) => format!("Under way: {step}."),
        None => std::mem::take(&mut found.lead),
    };
    let mut status = run::status(records);
    if !records.is_over() {
        status.word = "Going on".to_owned();
    }
    let mut state = State {
        title: records.id.clone(),
        aloud: aloud(&status.word, &lead, &found.facts),
        status,
        lead,
        progress: None,
        facts: found.facts,
        judged: run::judged(records),
        sections: found.sections,
        foot: Vec::new(),
        is_over: records.is_over(),
    };
    if let Some(under) = under {
        let said = run::progress(under).map(|progress| format!(", {}", progress.text)).unwrap_or_default();
        let said = format!("{}{said}", run::status(under).word);
        let mut now = Section::new("under", format!("Now: {}", under.id));
        now.pieces.push(Piece::Text(Text { id: "under-where".to_owned(), text: said, verbatim: false }));
        state.sections.push(now);
        state.sections.extend(run::sections(under));
    }
    if let Some(runs) = records.standing.as_ref().map(|standing| &standing.ended).filter(|runs| !runs.is_empty()) {
        let newest = runs.iter().rev().take(RUNS_MAX);
        state.sections.push(Section::new("runs", "Its runs").with(Piece::Table(Table {
            id: "runs-table".to_owned(),
            rows: newest.clone().map(|run| vec![run.clone()]).collect(),
            links: newest.map(|run| format!("run/{run}/")).collect(),
            ..Table::default()
        })));
    }
    run::close(&mut state, records);
    state
}

/// What an experiment has found.
#[derive(Default)]
struct Found {
    lead: String,
    facts: Vec<Fact>,
    sections: Vec<Section>,
}

fn found(records: &Records) -> Found {
    match (&records.ended, &records.standing) {
        (Some(Ended::Run(document)), _) => of_cache(document),
        (Some(Ended::Capacity(document)), _) => of_capacity(document),
        (Some(Ended::Gateway(document)), _) => of_page(&crate::gateway_page(document, ""), Vec::new()),
        (Some(Ended::Predict(document)), _) => of_page(&crate::predict_page(document, ""), Vec::new()),
        (Some(Ended::Disk(document)), _) => of_page(&crate::disk_page(document, ""), Vec::new()),
        (Some(Ended::Reproduction(document)), _) => of_reproduction(&document.reproduce),
        (Some(Ended::Compare(document)), _) => of_comparison(document),
        (Some(Ended::Unreadable(_)), _) | (None, None) => Found::default(),
        (None, Some(standing)) => so_far(standing),
    }
}

/// The same from what stands so far, as if it ended now.
fn so_far(standing: &RunProgress) -> Found {
    let schema = SCHEMA.to_owned();
    let run = Run {
        id: standing.run.clone(),
        command: standing.command.clone(),
        seed: standing.seed,
        started_at: standing.started_at.clone(),
        duration_s: standing.at_s,
        ..Run::default()
    };
    let validity = standing.validity.clone().unwrap_or_else(|| Validity::from_checks(Vec::new()));
    if let Some(capacity) = standing.capacity.clone() {
        return of_capacity(&CapacityDocument { schema, run, validity, capacity });
    }
    if let Some(gateway) = standing.gateway.clone() {
        return of_page(&crate::gateway_page(&GatewayDocument { schema, run, validity, gateway }, ""), Vec::new());
    }
    if let Some(predict) = standing.predict.clone() {
        return of_page(&crate::predict_page(&PredictDocument { schema, run, validity, predict }, ""), Vec::new());
    }
    if let Some(reproduce) = &standing.reproduce {
        return of_reproduction(reproduce);
    }
    if let Some(compare) = standing.compare.clone() {
        return of_comparison(&CompareDocument { schema, run, validity, compare });
    }
    if let Some(cache) = standing.cache.clone() {
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
    if let (Some(carried), "users" | "connections") = (part.rate_per_s, part.find.as_str()) {
        facts.push(Fact::new("Carried", rate(carried), carried, "at the answer"));
    }
    if let Some(bracket) = part.partial_result {
        if let Some(lower) = bracket.lower {
            facts.push(Fact::new("Held so far", words(lower), lower, part.objective.clone()));
        }
        if let Some(upper) = bracket.upper {
            facts.push(Fact::new("Too much so far", words(upper), upper, ""));
        }
    }
    facts.push(Fact::new("Trials", count(part.trials.len() as u64), part.trials.len() as f64, ""));
    if let Some(last) = part.trials.last() {
        // Of the first guesses the load is another than what is sought: as the table of trials says it.
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

/// Paper beside here, row by row.
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
    let table = table("rows", &["experiment", "setting", "figure", "paper", "here", ""], &[1, 2, 5], rows.collect());
    Found {
        lead: part.answer.clone(),
        facts: Vec::new(),
        sections: vec![Section::new("rows", "Paper beside here").with(table)],
    }
}

/// The two sides, metric by metric.
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
    let table = table("metrics", &["metric", "A", "B", "B less A", "interval"], &[], rows.collect());
    let lead = format!("A: {}. B: {}.", a.what, b.what);
    Found { lead, facts: Vec::new(), sections: vec![Section::new("metrics", "Side by side").with(table)] }
}

fn table(id: &str, head: &[&str], left: &[usize], rows: Vec<Vec<String>>) -> Option<Piece> {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    (!rows.is_empty())
        .then(|| Piece::Table(Table { id: format!("{id}-table"), head, left: left.to_vec(), rows, ..Table::default() }))
}

fn aloud(word: &str, lead: &str, facts: &[Fact]) -> String {
    let facts = facts.iter().filter(|fact| fact.value.is_some()).map(|fact| format!(" {} {}.", fact.name, fact.text));
    format!("{word}. {lead}{}", facts.collect::<String>())
}

/// Runs that are listed, the newest first.
const RUNS_MAX: usize = 50;
