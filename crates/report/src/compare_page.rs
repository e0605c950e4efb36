//! The result of `compare` as one page: differences with intervals, both distributions in one chart, differences of
//! plans.
//!
//! ```text
//!   CompareDocument ──┐
//!   stored runs ──────┴─ CompareSources::read ──> compare_page ──> Page ──> HTML, Markdown
//! ```

use std::path::{Component, Path, PathBuf};

use schema::compare_part::{CompareSide, ComparedBlock, ComparedMetric};
use schema::{CompareDocument, ComparePart, CompareVerdict, SecondRecord};
use stats::Histogram;

use crate::compare::{HEAD, answer, differing, how, row, signed, size, terms, words};
use crate::page::{Page, Section, Table};
use crate::phrases::{span, wall_clock};
use crate::plot::{Axis, Chart, Quantity, Series, SpanRow, Spans};

/// The data of the page.
#[derive(Clone, Debug)]
pub struct CompareSources {
    /// The comparison.
    pub document: CompareDocument,
    /// Stored runs of A and B; of many the first few.
    pub sides: [Vec<SideRun>; 2],
    /// The plan of the runs; empty without one.
    pub plan: String,
    /// Parts that could not be read, one sentence each.
    pub missing: Vec<String>,
}

/// A run of one side.
#[derive(Clone, Debug)]
pub struct SideRun {
    /// Name of the run.
    pub id: String,
    /// Length of its warm-up in seconds.
    pub warmup_s: f64,
    /// Seconds of the run.
    pub series: Vec<SecondRecord>,
    /// Response times of its measured phase.
    pub response_time: Histogram,
}

impl CompareSources {
    /// Only the comparison.
    pub fn of(document: CompareDocument) -> Self {
        CompareSources { document, sides: [Vec::new(), Vec::new()], plan: String::new(), missing: Vec::new() }
    }

    /// Reads the compared runs. `plan` is that of the comparison; if empty, that of A's first run is read. `find`
    /// returns the folder of a run; it is called with names only, never paths, since a document may come from
    /// elsewhere.
    pub fn read(document: CompareDocument, plan: String, find: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        let mut sources = CompareSources { plan, ..CompareSources::of(document) };
        let names = [&sources.document.compare.a.runs, &sources.document.compare.b.runs].map(Clone::clone);
        for (at, names) in names.into_iter().enumerate() {
            for name in names.iter().take(RUNS_READ) {
                let found = Some(name).filter(|name| is_folder_name(name)).and_then(|name| find(name));
                if let Some(dir) = found.as_ref().filter(|_| sources.plan.is_empty()) {
                    sources.plan = store::read_plan(dir).unwrap_or_default();
                }
                match found.map(|dir| read_run(name, &dir)) {
                    Some(Ok(run)) => sources.sides[at].push(run),
                    Some(Err(why)) => sources.missing.push(format!("{name} could not be read: {why}")),
                    None => sources.missing.push(format!("{name} is no longer stored; its curves are missing.")),
                }
            }
        }
        sources
    }
}

/// Whether `name` is a single folder name, not a path.
fn is_folder_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

fn read_run(id: &str, dir: &Path) -> store::Result<SideRun> {
    let document = store::read_summary(dir)?;
    Ok(SideRun {
        id: id.to_owned(),
        warmup_s: document.run.warmup_s,
        series: store::read_series(dir)?.collect::<store::Result<_>>()?,
        response_time: store::read_histogram(dir, "response_time")?,
    })
}

/// Builds the page.
pub fn compare_page(sources: &CompareSources) -> Page {
    let (run, part) = (&sources.document.run, &sources.document.compare);
    let title = if run.id.is_empty() { "A comparison" } else { &run.id };
    let method = match part.method.as_str() {
        "one_run" => "one run per side",
        "runs" => "several runs per side",
        _ => "two servers, alternating runs",
    };
    let about = format!("{}: {method}, measured for {} in all.", wall_clock(&run.started_at), span(run.duration_s));
    let notes = part.notes.iter().fold(Section::new("Notes"), Section::text);
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("Plan of A", Section::new("").verbatim("", schema::withheld::plan(&sources.plan)));
    Page::new(title)
        .lead(format!("B compared with A: {}", answer(part)))
        .subject("", run.command.clone())
        .judged("", &sources.document.validity)
        .about(about)
        .section(sides(part))
        .section(failing(part))
        .section(differences(part))
        .section(distributions(sources))
        .section(over_time(sources))
        .section(blocks(part))
        .section(what_differed(part))
        .section(notes)
        .section(repeat)
        .foot(if run.dir.is_empty() {
            "This comparison was not stored.".to_owned()
        } else {
            format!("Stored in {}", run.dir)
        })
}

fn sides(part: &ComparePart) -> Section {
    let row = |name: &str, side: &CompareSide| [name.to_owned(), side.what.clone(), side.counted.to_string()];
    let table = Table::new(&["", "subject", "valid runs"]).left(&[1]).row(row("A", &part.a)).row(row("B", &part.b));
    Section::new("").table(table)
}

fn failing(part: &ComparePart) -> Section {
    let table = Table::new(&["fail if", "result", "reason"]).left(&[1, 2]);
    let table = terms(part).into_iter().fold(table, |table, term| table.row(term));
    Section::new("Failure conditions").table(table)
}

/// Every metric with its interval around zero, as a plot and a table.
fn differences(part: &ComparePart) -> Section {
    let shown: Vec<&ComparedMetric> = part.metrics.iter().filter(|metric| metric.relative).collect();
    let limit = |metric: &ComparedMetric| {
        let of = |term: &&schema::compare_part::FailTerm| term.metric == metric.name && term.unit == "ratio";
        part.fail_if.iter().find(of).map(|term| term.limit)
    };
    let plot = Spans::new("B compared with A", Quantity::Share, ["B is lower", "B is higher"]).about(
        "Dot: estimate. Line: confidence interval; a difference is detected if it excludes 0. Dashed mark: limit of --fail-if.",
    );
    let plot = shown.into_iter().fold(plot, |plot, metric| {
        let interval =
            metric.interval.map(|[low, high]| format!(" ({} to {})", signed(metric, low), signed(metric, high)));
        let words_of = match (metric.verdict, metric.difference) {
            (CompareVerdict::NotKnown, Some(difference)) => {
                format!("{}, no interval", signed(metric, difference))
            }
            (_, Some(difference)) => signed(metric, difference) + &interval.unwrap_or_default(),
            (_, None) => "unknown".to_owned(),
        };
        plot.row(SpanRow {
            name: words(metric).to_owned(),
            at: metric.difference,
            interval: metric.interval,
            shown: matches!(metric.verdict, CompareVerdict::Less | CompareVerdict::More),
            limit: limit(metric),
            words: words_of,
        })
    });
    let table = part.metrics.iter().map(row).fold(Table::new(&HEAD).left(&[5]), Table::row);
    Section::new("Differences").text(in_words(part)).figure(plot).table(table).text(how(part).unwrap_or_default())
}

/// Detected differences and undetected ones, in words.
fn in_words(part: &ComparePart) -> String {
    if part.metrics.is_empty() {
        return "Nothing could be compared.".to_owned();
    }
    let named = |verdicts: &[CompareVerdict]| {
        let of = part.metrics.iter().filter(|metric| verdicts.contains(&metric.verdict));
        of.map(words).collect::<Vec<_>>().join(", ")
    };
    let shown = named(&[CompareVerdict::Less, CompareVerdict::More]);
    let not = part.metrics.iter().filter(|metric| metric.verdict == CompareVerdict::NoDifferenceShown).map(|metric| {
        match metric.detectable_difference {
            Some(seen) => format!("{} (detectable from {})", words(metric), size(metric, seen)),
            None => words(metric).to_owned(),
        }
    });
    let not: Vec<String> = not.collect();
    let unknown = named(&[CompareVerdict::NotKnown]);
    let mut sentences = Vec::new();
    sentences.push(if shown.is_empty() {
        "No difference was detected.".to_owned()
    } else {
        format!("Different: {shown}.")
    });
    if !not.is_empty() && !shown.is_empty() {
        sentences.push(format!("No difference detected: {}.", not.join(", ")));
    }
    if !unknown.is_empty() {
        sentences.push(format!("Without confidence interval: {unknown}."));
    }
    sentences.join(" ")
}

/// Percentile curves of each side, all runs together.
fn distributions(sources: &CompareSources) -> Section {
    let together = |runs: &[SideRun]| {
        runs.iter().fold(Histogram::new(), |mut all, run| {
            all.merge(&run.response_time);
            all
        })
    };
    let [a, b] = sources.sides.each_ref().map(|runs| together(runs));
    let mut section = Section::new("Distributions");
    for text in &sources.missing {
        section = section.text(text.clone());
    }
    if a.is_empty() || b.is_empty() {
        return section;
    }
    let tail = Chart::percentiles("Response time by percentile", "response time")
        .about("All runs of a side together. Right: the slowest 1 %, 0.1 % and so on.")
        .series(Series::tail("A", &a))
        .series(Series::tail("B", &b));
    let all = Chart::cumulative("Response times", "response time")
        .about("Share of requests with at most this response time.")
        .series(Series::distribution("A", &a))
        .series(Series::distribution("B", &b));
    section.figure(tail).figure(all).figure(ratio(&a, &b))
}

/// Ratio of the quantiles of B and A along the percentiles, to see where the distributions differ.
fn ratio(a: &Histogram, b: &Histogram) -> Chart {
    let decades = (a.len().min(b.len()) as f64).log10().clamp(1.0, 5.0);
    let points = (0..=RATIO_STEPS).filter_map(|step| {
        let q = 1.0 - 10_f64.powf(-decades * f64::from(step) / f64::from(RATIO_STEPS));
        let (of_a, of_b) = (a.value_at(q) as f64, b.value_at(q) as f64);
        (of_a > 0.0).then_some([q, of_b / of_a - 1.0])
    });
    let x = Axis { scale: crate::plot::Scale::Tail, from: Some(0.0), ..Axis::new("percentile", Quantity::Share) };
    Chart::new("B compared with A by percentile", x, Axis::new("B higher than A by", Quantity::Share))
        .about("Estimates without intervals; few requests at the right, so they scatter.")
        .series(Series::line("difference", points.collect()))
        .rule(0.0, "equal")
}

/// Each side's seconds from the start of its measured phase.
fn over_time(sources: &CompareSources) -> Section {
    type Value = fn(&SecondRecord) -> f64;
    let response: Value = |row| if row.completed == 0 { f64::NAN } else { row.response_p99_ns as f64 };
    let charts: [(&str, &str, Quantity, Value); 4] = [
        ("Response time, p99", "p99 of each second", Quantity::Nanoseconds, response),
        ("Achieved rate", "responses/s", Quantity::PerSecond, |row| row.completed as f64),
        ("Concurrent connections", "concurrent connections", Quantity::Count, |row| row.connections_mean),
        ("Failed", "requests/s", Quantity::PerSecond, |row| row.failed as f64),
    ];
    let mut section = Section::new("Over time");
    let runs: usize = sources.sides.iter().map(Vec::len).sum();
    if runs == 0 {
        return section;
    }
    let hidden = sources.sides.iter().map(|runs| runs.len().saturating_sub(RUNS_DRAWN)).sum::<usize>();
    if hidden > 0 {
        section = section.text(format!("The first {RUNS_DRAWN} runs of each side are drawn; {hidden} more are not."));
    }
    for (title, label, quantity, value) in charts {
        let mut chart = Chart::over_time(title, label, quantity);
        let mut most = 0.0_f64;
        for (at, (side, runs)) in ["A", "B"].iter().zip(&sources.sides).enumerate() {
            for (number, run) in runs.iter().take(RUNS_DRAWN).enumerate() {
                let measured = || run.series.iter().filter(|row| row.measured);
                let first = measured().next().map_or(0, |row| row.second);
                let name = if runs.len() > 1 { format!("{side}, run {}", number + 1) } else { (*side).to_owned() };
                let rows = measured().map(|row| (f64::from(row.second - first), value(row)));
                chart = chart.series(Series::seconds(name, rows).color(at));
                most = measured().map(value).filter(|value| value.is_finite()).fold(most, f64::max);
            }
        }
        // Without failures there is no chart of failures.
        if title != "Failed" || most > 0.0 {
            section = section.figure(chart);
        }
    }
    section
}

/// The difference within each block of alternating runs.
fn blocks(part: &ComparePart) -> Section {
    let section = Section::new("Blocks");
    let Some(metric) = part.headline().filter(|_| !part.blocks.is_empty()) else { return section };
    let plot = Spans::new(
        format!("Difference of {} in each block", words(metric)),
        Quantity::Share,
        ["B is lower", "B is higher"],
    )
    .about("Within a block of four runs, drift of the host affects both sides alike. A discarded block has no dot.");
    let plot = part.blocks.iter().enumerate().fold(plot, |plot, (number, block)| {
        let at = block_difference(block, metric).filter(|_| block.counted);
        let words = match (at, block.counted) {
            (Some(at), _) => signed(metric, at),
            (None, true) => "unknown".to_owned(),
            (None, false) => format!("discarded: {}", block.why),
        };
        plot.row(SpanRow { name: format!("{number}: {}", block.order), at, words, ..SpanRow::default() })
    });
    let head = ["block", "side", "verdict", "figure"];
    let mut table = Table::new(&head).left(&[1, 2]);
    for (number, block) in part.blocks.iter().enumerate() {
        for run in &block.runs {
            let figure = run.figures.get(&part.by).map(|figure| crate::compare::of_unit(&metric.unit, *figure));
            table = table.row([
                number.to_string(),
                run.side.clone(),
                run.verdict.clone(),
                figure.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
    }
    section.figure(plot).folded("Every run", Section::new("").table(table))
}

/// As in the comparison: relative metrics use means of logarithms.
fn block_difference(block: &ComparedBlock, metric: &ComparedMetric) -> Option<f64> {
    let mean = |side: &str| -> Option<f64> {
        let of = block.runs.iter().filter(|run| run.side == side).map(|run| {
            let figure = *run.figures.get(&metric.name)?;
            if metric.relative { (figure > 0.0).then(|| figure.ln()) } else { Some(figure) }
        });
        let of: Vec<f64> = of.collect::<Option<_>>()?;
        (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
    };
    let difference = mean("B")? - mean("A")?;
    Some(if metric.relative { difference.exp_m1() } else { difference })
}

fn what_differed(part: &ComparePart) -> Section {
    let table = Table::new(&["different", "A", "B", "kind"]).left(&[1, 2, 3]);
    let table = differing(part).into_iter().fold(table, |table, row| table.row(row));
    let summary = match (part.plans_differ.is_empty(), part.hosts_differ.is_empty()) {
        (true, true) => "Nothing: plans and hosts are the same.",
        (true, false) => "The plans are the same; the host or its state differs.",
        (false, true) => "The host and its state are the same.",
        (false, false) => "",
    };
    Section::new("Differences of plans and hosts").text(summary).table(table)
}

/// Most runs of a side that are read, and most that are drawn over time: more lines would overlap.
const RUNS_READ: usize = 40;
const RUNS_DRAWN: usize = 3;
/// Points of the curve.
const RATIO_STEPS: u32 = 120;
