//! The result of `cache` as one page, with the plots of the school gateway paper (2001): responses, mean response time,
//! hit ratio and error ratio by offered rate.

use std::collections::BTreeMap;

use schema::{CachePart, CachePoint, Document, Wrong};

use crate::figures::count;
use crate::page::{Page, Section, Table};
use crate::phrases::{by_frequency, sentence, span, wall_clock};
use crate::plot::{Axis, Chart, Quantity, Series};
use crate::sweep;

/// Builds the page; `plan` is the sweep's own text.
pub fn cache_page(document: &Document, plan: &str) -> Page {
    let run = &document.run;
    let title = if run.id.is_empty() { "A cache" } else { &run.id };
    let empty = CachePart::default();
    let part = document.cache.as_ref().unwrap_or(&empty);
    let early = if run.interrupted { ", interrupted: the figures cover that time only" } else { "" };
    let about = format!(
        "{}: measured for {} in all{early}. {}.",
        wall_clock(&run.started_at),
        span(run.duration_s),
        sentence(&sweep::about(part))
    );
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", schema::withheld::plan(plan)));
    let runs: Vec<&str> = part.points.iter().map(|point| point.run.as_str()).filter(|run| !run.is_empty()).collect();
    let page = Page::new(title)
        .lead(sweep::answer(part))
        .subject("", run.command.clone())
        .judged("", &document.validity)
        .about(about);
    let page = sections(part).into_iter().fold(page, Page::section);
    page.section(repeat).foot(match &runs[..] {
        [] => "These runs were not stored.".to_owned(),
        runs => format!("Stored runs: {}", runs.join(", ")),
    })
}

/// Sections about a cache, for this page and that of a single run.
pub(crate) fn sections(part: &CachePart) -> Vec<Section> {
    let notes = part.notes.iter().fold(Section::new("Notes"), Section::text);
    let supported = part.clients_supported.as_ref().map_or(Section::new("Clients supported"), |supported| {
        Section::new("Clients supported")
            .text(sweep::clients_supported(supported))
            .text(format!("Rule: {}.", supported.rule))
    });
    vec![by_rate(part), load(part), hits(part), wrong(part), supported, notes]
}

/// Figures 2 and 3 of the school gateway paper.
fn by_rate(part: &CachePart) -> Section {
    let rates = part.points.iter().map(|point| point.offered_rate_per_s);
    let most = rates.fold(0.0, f64::max);
    let responses = over_rate(
        part,
        "Responses",
        "responses/s",
        Quantity::PerSecond,
        &[("achieved", &|point| Some(point.achieved_rate_per_s))],
    )
    .series(Series::line("offered", vec![[0.0, 0.0], [most, most]]).dashed().color(5))
    .about("Below the dashed line the cache is saturated.");
    let times = over_rate(
        part,
        "Mean response time",
        "mean",
        Quantity::Nanoseconds,
        &[
            ("all", &|point| mean(&point.figures.response_time_ns)),
            ("hits", &|point| mean(&point.figures.hits_response_time_ns)),
            ("misses", &|point| mean(&point.figures.misses_response_time_ns)),
        ],
    );
    let times = Chart { y: Axis::log("mean", Quantity::Nanoseconds), ..times }
        .about("From the scheduled time of the request; `all` includes failed requests.");
    let hits = share(over_rate(
        part,
        "Hit ratio",
        "hits",
        Quantity::Share,
        &[
            ("measured", &|point| point.figures.hit_ratio.measured),
            ("ideal", &|point| point.figures.hit_ratio.ideal),
            ("ideal, LRU", &|point| point.figures.hit_ratio.ideal_lru),
            ("uncollapsed", &sweep::uncollapsed),
        ],
    ));
    let hits = offered(part, hits, &|point| point.figures.hit_ratio.offered)
        .about("Uncollapsed: offered, without requests sent during the first fetch.");
    let errors = share(over_rate(
        part,
        "Error ratio",
        "failed",
        Quantity::Share,
        &[("errors", &|point| point.figures.error_ratio)],
    ));
    let bytes = share(over_rate(
        part,
        "Byte hit ratio",
        "hits",
        Quantity::Share,
        &[
            ("measured", &|point| point.figures.byte_hit_ratio.measured),
            ("ideal", &|point| point.figures.byte_hit_ratio.ideal),
            ("ideal, LRU", &|point| point.figures.byte_hit_ratio.ideal_lru),
        ],
    ));
    let bytes = offered(part, bytes, &|point| point.figures.byte_hit_ratio.offered);
    let saved = over_rate(
        part,
        "Requests saved at the origin",
        "share of requests",
        Quantity::Share,
        &[("saved", &sweep::saved_share)],
    );
    Section::new("By offered rate")
        .figure(responses)
        .figure(times)
        .figure(hits)
        .figure(errors)
        .figure(bytes)
        .figure(share(saved))
}

fn mean(q: &schema::Quantiles) -> Option<f64> {
    (q.count > 0).then_some(q.mean)
}

/// The value of a point in a series.
type Value<'a> = &'a dyn Fn(&CachePoint) -> Option<f64>;

/// A chart over the offered rate, with a series for each phase of a schedule.
fn over_rate(part: &CachePart, title: &str, label: &str, quantity: Quantity, series: &[(&str, Value<'_>)]) -> Chart {
    let mut chart =
        Chart::new(title, Axis::from_zero("offered", Quantity::PerSecond), Axis::from_zero(label, quantity));
    for phase in phases(part) {
        for (at, (name, value)) in series.iter().enumerate() {
            let points = line(part, phase, value);
            if points.is_empty() {
                continue;
            }
            let one = match phase {
                "" => Series::line(*name, points).color(at),
                phase => Series::line(format!("{name}, {phase}"), points),
            }
            .dotted();
            chart = chart.series(one);
        }
    }
    chart
}

/// The phases of the points, each once; `""` for points that are complete runs.
fn phases(part: &CachePart) -> Vec<&str> {
    let mut phases: Vec<&str> = Vec::new();
    for point in &part.points {
        if !phases.contains(&point.phase.as_str()) {
            phases.push(&point.phase);
        }
    }
    phases
}

/// Adds the offered values as dashed lines, one for each phase.
fn offered(part: &CachePart, chart: Chart, value: Value<'_>) -> Chart {
    phases(part).into_iter().fold(chart, |chart, phase| {
        let points = line(part, phase, value);
        if points.is_empty() {
            return chart;
        }
        chart.series(match phase {
            "" => Series::line("offered", points).dashed().dotted().color(5),
            phase => Series::line(format!("offered, {phase}"), points).dashed().dotted(),
        })
    })
}

/// The values of the points of a phase, by rate.
fn line(part: &CachePart, phase: &str, value: Value<'_>) -> Vec<[f64; 2]> {
    let of_phase = part.points.iter().filter(|point| point.phase == phase);
    let mut points: Vec<[f64; 2]> =
        of_phase.filter_map(|point| Some([point.offered_rate_per_s, value(point)?])).collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    points
}

/// A chart whose vertical axis goes from 0 to 1.
fn share(chart: Chart) -> Chart {
    Chart { y: Axis { to: Some(1.0), ..chart.y.clone() }, ..chart }
}

fn load(part: &CachePart) -> Section {
    let (head, rows) = sweep::load_table(part);
    let table = rows.into_iter().fold(Table::new(&head), Table::row);
    let causes = part.points.iter().filter(|point| !point.figures.errors.is_empty());
    let causes = causes.fold(Table::new(&["offered", "failures by cause"]).left(&[1]), |table, point| {
        table.row([sweep::label(point), sweep::causes(point)])
    });
    Section::new("Load").table(table).table(causes)
}

fn hits(part: &CachePart) -> Section {
    let (head, rows) = sweep::hits_table(part);
    let table = rows.into_iter().fold(Table::new(&head), Table::row);
    let head = ["offered", "requests", "plain GETs", "repeats", "offered hits", "hits", "including"];
    let counts = part.points.iter().fold(Table::new(&head).left(&[6]), |table, point| {
        let figures = &point.figures;
        let mut row = vec![sweep::label(point)];
        row.extend(
            [figures.requests, figures.basic_requests, figures.repeats, figures.offered, figures.hits].map(count),
        );
        row.push(sweep::asides(point).join("; "));
        table.row(row)
    });
    Section::new("Hits").text(sweep::TERMS).table(table).folded("Counts", Section::new("").table(counts))
}

fn wrong(part: &CachePart) -> Section {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for point in &part.points {
        for (kind, n) in by_frequency(&point.figures.wrong) {
            let sum = kinds.entry(kind).or_default();
            *sum = n.saturating_add(*sum);
        }
    }
    if kinds.is_empty() {
        return Section::new("");
    }
    let mut table = Table::new(&["kind", "offered", "responses"]);
    let mut examples = Table::new(&["kind", "offered", "request", "response"]).left(&[2, 3]);
    for (kind, _) in kinds {
        let name = kind.replace('_', " ");
        for point in &part.points {
            if let Some(n) = point.figures.wrong.get(kind).filter(|n| **n > 0) {
                table = table.row([name.clone(), sweep::label(point), count(*n)]);
            }
            for example in point.figures.examples.iter().filter(|example| example.kind == kind) {
                examples =
                    examples.row([name.clone(), sweep::label(point), example.request.clone(), example.why.clone()]);
            }
        }
    }
    Section::new("Wrong responses")
        .text(format!(
            "A {} only costs time: a finite cache evicts. All others are responses that a client must not get.",
            Wrong::FalseMiss.name().replace('_', " ")
        ))
        .table(table)
        .folded("Examples, with their requests", Section::new("").table(examples))
}
