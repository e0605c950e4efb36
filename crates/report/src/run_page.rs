//! One run as a page, from its document and its tables.
//!
//! ```text
//!   run folder ──Sources::read──> Sources ──page──> Page ──> HTML, or its figures as SVG
//! ```
//!
//! Each section shows one part of the document and is absent without it, so that the same page serves a run with load,
//! path and wire, a capture (`watch`), and a path alone (`net`).

mod diagram;
mod environment;
mod load;
mod over_time;
mod phases;
mod sources;
mod tap;
mod wire;

use schema::Document;
use schema::document::{Run, Slo};

pub(crate) use load::{by_distance, failures};
pub use over_time::{concurrent_connections, response_tail};
pub use sources::Sources;
pub(crate) use tap::view_of as tap_view;
pub(crate) use wire::answer as wire_answer;

use crate::page::{Page, Section, Table};
use crate::phrases::{answer, measure, span, wall_clock};

/// The result of the run in a sentence; empty if it measured nothing.
pub(crate) fn answer_of(document: &Document) -> String {
    match (&document.load, &document.watch, &document.path) {
        (Some(part), ..) => answer(part),
        (None, Some(part), _) => wire::answer(part),
        (None, None, Some(part)) => environment::answer(part),
        (None, None, None) => document.tap.as_ref().map(tap::answer).unwrap_or_default(),
    }
}

/// Puts the page together.
pub fn page(sources: &Sources) -> Page {
    let document = &sources.document;
    let run = &document.run;
    let title = if run.id.is_empty() { "A run" } else { &run.id };
    let url = document.load.as_ref().and_then(crate::phrases::url).unwrap_or_default();
    let mut page = Page::new(title)
        .lead(answer_of(document))
        .subject(url, run.command.clone())
        .judged("", &document.validity)
        .about(when(run));
    if let Some(slo) = &document.slo {
        let requests = document.load.as_ref().map_or(0, |load| load.response_time_ns.count);
        page = page.section(objective(slo, requests));
    }
    page = page.section(Section::new("").figure(diagram::diagram(document)));
    if let Some(part) = &document.load {
        page = page.section(load::figures(part, run));
    }
    page = page.section(over_time::section(sources));
    if let Some(part) = &document.load {
        let bands = part.by_distance.iter().map(|band| &band.response_time_ns);
        let legend = crate::phrases::too_few_values_to_p99(bands).map(|text| format!("{text}.")).unwrap_or_default();
        page = page
            .section(load::times(part, sources))
            .section(phases::by_phase(part))
            .section(load::by_distance(part).text(legend))
            .section(load::by_url(part))
            .section(load::failures(part));
    }
    if let Some(part) = &document.cache {
        page = crate::cache_page::sections(part).into_iter().fold(page, Page::section);
    }
    if let Some(part) = &document.watch {
        page = page.section(wire::figures(part, run, sources));
    }
    if let Some(part) = &document.tap {
        page = page.section(tap::section(part, sources));
    }
    if let Some(part) = &document.path {
        page = page.section(environment::path(part, sources));
    }
    if let Some(part) = &document.server {
        page = page.section(environment::server(part, sources));
    }
    page = page.section(environment::host(&run.host)).section(repeat(run, sources));
    page.foot(if run.dir.is_empty() { "This run was not stored.".to_owned() } else { format!("Stored in {}", run.dir) })
}

/// Start and length of the run, by which a reader recognizes it.
fn when(run: &Run) -> String {
    let warmup = if run.warmup_s > 0.0 { format!(" after a warm-up of {}", span(run.warmup_s)) } else { String::new() };
    let early = if run.interrupted { ", interrupted: the figures cover that time only" } else { "" };
    let started = match wall_clock(&run.started_at) {
        time if time.is_empty() => time,
        time => format!("{time}: "),
    };
    let part = crate::phrases::shards(run).map(|text| format!(" Shards: {text}.")).unwrap_or_default();
    format!("{started}measured for {}{warmup}{early}.{part}", span(run.duration_s))
}

fn objective(slo: &Slo, requests: u64) -> Section {
    let outcome = if slo.met { "Met" } else { "Not met" };
    let mut table = Table::new(&["term", "figure", "limit", ""]).left(&[3]);
    for term in &slo.terms {
        let figure = measure(term.value, &term.unit);
        let limit = crate::phrases::limit(term.limit, &term.unit);
        table = table.row([term.term.clone(), figure, limit, if term.met { "met" } else { "not met" }.to_owned()]);
    }
    let warning =
        crate::phrases::too_few_requests(slo, requests).map(|warning| format!("{warning}.")).unwrap_or_default();
    Section::new("Objective").text(format!("{outcome}: {}", slo.objective)).table(table).text(warning)
}

fn repeat(run: &Run, sources: &Sources) -> Section {
    Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan, with every default", Section::new("").verbatim("", schema::withheld::plan(&sources.plan)))
}
