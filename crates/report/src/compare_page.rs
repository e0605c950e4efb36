//! A comparison as one page: the differences with their intervals, both sides' curves in one chart, and what differed besides.
//!
//! ```text
//!   CompareDocument ──┐
//!   runs of the book ─┴─ CompareSources::read ──> compare_page ──> Page ──> HTML, Markdown
//! ```

use std::path::{Component, Path, PathBuf};

use schema::compare_part::{CompareSide, ComparedBlock, ComparedMetric};
use schema::{CompareDocument, ComparePart, CompareVerdict, SecondRecord};
use stats::Histogram;

use crate::compare::{HEAD, answer, differing, how, row, signed, size, terms, words};
use crate::page::{Page, Section, Table};
use crate::phrases::{moment, span};
use crate::plot::{Axis, Chart, Quantity, Series, SpanRow, Spans};

/// What the page is made from.
#[derive(Clone, Debug)]
pub struct CompareSources {
    /// The comparison.
    pub document: CompareDocument,
    /// Runs of A and of B, as far as they are in the book; of many the first few.
    pub sides: [Vec<SideRun>; 2],
    /// The plan that the runs were made by; empty where there is none.
    pub plan: String,
    /// What could not be read, one sentence each.
    pub missing: Vec<String>,
}

/// A run of one side.
#[derive(Clone, Debug)]
pub struct SideRun {
    /// Its name.
    pub id: String,
    /// Length of its warm-up in seconds.
    pub warmup_s: f64,
    /// Its seconds.
    pub series: Vec<SecondRecord>,
    /// Response times of its measured phase.
    pub response_time: Histogram,
}

impl CompareSources {
    /// Only the comparison.
    pub fn of(document: CompareDocument) -> Self {
        CompareSources { document, sides: [Vec::new(), Vec::new()], plan: String::new(), missing: Vec::new() }
    }

    /// Reads the runs that were compared. `plan` is the comparison's own; where it has none, that of A's first run. `find` says
    /// where a run of that name is; it is asked for names only, never for paths: a document may come from elsewhere.
    pub fn read(document: CompareDocument, plan: String, find: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        let mut sources = CompareSources { plan, ..CompareSources::of(document) };
        let names = [&sources.document.compare.a.runs, &sources.document.compare.b.runs].map(Clone::clone);
        for (at, names) in names.into_iter().enumerate() {
            for name in names.iter().take(RUNS_READ) {
                let found = Some(name).filter(|name| is_a_name(name)).and_then(|name| find(name));
                if let Some(dir) = found.as_ref().filter(|_| sources.plan.is_empty()) {
                    sources.plan = store::read_plan(dir).unwrap_or_default();
                }
                match found.map(|dir| read_run(name, &dir)) {
                    Some(Ok(run)) => sources.sides[at].push(run),
                    Some(Err(why)) => sources.missing.push(format!("{name} could not be read: {why}")),
                    None => {
                        sources.missing.push(format!("{name} is no longer in the book; its curves are missing here."))
                    }
                }
            }
        }
        sources
    }
}

/// One folder's name, and nothing that leads elsewhere.
fn is_a_name(name: &str) -> bool {
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

/// Puts the page together.
pub fn compare_page(sources: &CompareSources) -> Page {
    let (run, part) = (&sources.document.run, &sources.document.compare);
    let title = if run.id.is_empty() { "A comparison" } else { &run.id };
    let method = match part.method.as_str() {
        "one_run" => "one run a side",
        "runs" => "several runs a side",
        _ => "two servers in turns",
    };
    let about = format!("{}: {method}, measured for {} in all.", moment(&run.started_at), span(run.duration_s));
    let notes = part.notes.iter().fold(Section::new("What to know when reading"), Section::text);
    let repeat = Section::new("Repeat it")
        .verbatim("The command", run.command.clone())
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan of A", Section::new("").verbatim("", schema::withheld::plan(&sources.plan)));
    Page::new(title)
        .lead(format!("B against A: {}", answer(part)))
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
        .foot(if run.dir.is_empty() { "Nothing was kept of it.".to_owned() } else { format!("Kept in {}", run.dir) })
}

fn sides(part: &ComparePart) -> Section {
    let row = |name: &str, side: &CompareSide| [name.to_owned(), side.what.clone(), side.counted.to_string()];
    let table = Table::new(&["", "what", "runs that count"]).left(&[1]).row(row("A", &part.a)).row(row("B", &part.b));
    Section::new("").table(table)
}

fn failing(part: &ComparePart) -> Section {
    let table = Table::new(&["fail if", "", "why"]).left(&[1, 2]);
    let table = terms(part).into_iter().fold(table, |table, term| table.row(term));
    Section::new("Asked to fail if").table(table)
}

/// Every metric with its interval about none, and the same as a table.
fn differences(part: &ComparePart) -> Section {
    let shown: Vec<&ComparedMetric> = part.metrics.iter().filter(|metric| metric.relative).collect();
    let limit = |metric: &ComparedMetric| {
        let of = |term: &&schema::compare_part::FailTerm| term.metric == metric.name && term.unit == "ratio";
        part.fail_if.iter().find(of).map(|term| term.limit)
    };
    let plot = Spans::new("B against A", Quantity::Share, ["B is less", "B is more"]).about(
        "The dot is the estimate, the line its interval. Where the line leaves 0 out, a difference is shown; a dashed mark is what \
         --fail-if asked for.",
    );
    let plot = shown.into_iter().fold(plot, |plot, metric| {
        let interval =
            metric.interval.map(|[low, high]| format!(" ({} to {})", signed(metric, low), signed(metric, high)));
        let words_of = match (metric.verdict, metric.difference) {
            (CompareVerdict::NotKnown, Some(difference)) => {
                format!("{}, not known how well", signed(metric, difference))
            }
            (_, Some(difference)) => signed(metric, difference) + &interval.unwrap_or_default(),
            (_, None) => "not known".to_owned(),
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

/// What is shown and what is not, plainly.
fn in_words(part: &ComparePart) -> String {
    if part.metrics.is_empty() {
        return "Nothing could be compared.".to_owned();
    }
    let named = |wanted: &[CompareVerdict]| {
        let of = part.metrics.iter().filter(|metric| wanted.contains(&metric.verdict));
        of.map(words).collect::<Vec<_>>().join(", ")
    };
    let shown = named(&[CompareVerdict::Less, CompareVerdict::More]);
    let not = part.metrics.iter().filter(|metric| metric.verdict == CompareVerdict::NoDifferenceShown).map(|metric| {
        match metric.detectable_difference {
            Some(seen) => format!("{} (one of {} would have been)", words(metric), size(metric, seen)),
            None => words(metric).to_owned(),
        }
    });
    let not: Vec<String> = not.collect();
    let unknown = named(&[CompareVerdict::NotKnown]);
    let mut said = Vec::new();
    said.push(if shown.is_empty() {
        "No difference is shown.".to_owned()
    } else {
        format!("A difference is shown in: {shown}.")
    });
    if !not.is_empty() && !shown.is_empty() {
        said.push(format!("None is shown in: {}.", not.join(", ")));
    }
    if !unknown.is_empty() {
        said.push(format!("Not known how well the difference is known: {unknown}."));
    }
    said.join(" ")
}

/// Percentile curves of all runs of a side together.
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
        .about("All runs of a side together. To the right the slowest 1 %, 0.1 % and so on.")
        .series(Series::tail("A", &a))
        .series(Series::tail("B", &b));
    let all = Chart::cumulative("Response times", "response time")
        .about("What share took at most so long.")
        .series(Series::distribution("A", &a))
        .series(Series::distribution("B", &b));
    section.figure(tail).figure(all).figure(ratio(&a, &b))
}

/// B's quantile over A's, along the percentiles: where in the distribution the difference lies.
fn ratio(a: &Histogram, b: &Histogram) -> Chart {
    let decades = (a.len().min(b.len()) as f64).log10().clamp(1.0, 5.0);
    let points = (0..=RATIO_STEPS).filter_map(|step| {
        let q = 1.0 - 10_f64.powf(-decades * f64::from(step) / f64::from(RATIO_STEPS));
        let (of_a, of_b) = (a.value_at(q) as f64, b.value_at(q) as f64);
        (of_a > 0.0).then_some([q, of_b / of_a - 1.0])
    });
    let x = Axis { scale: crate::plot::Scale::Tail, from: Some(0.0), ..Axis::new("percentile", Quantity::Share) };
    Chart::new("B against A, percentile by percentile", x, Axis::new("B more than A by", Quantity::Share))
        .about("Estimates without intervals: to the right they are of few requests and scatter.")
        .series(Series::line("difference", points.collect()))
        .rule(0.0, "the same")
}

/// Each side's seconds from the start of its measured phase.
fn over_time(sources: &CompareSources) -> Section {
    type Value = fn(&SecondRecord) -> f64;
    let response: Value = |row| if row.completed == 0 { f64::NAN } else { row.response_p99_ns as f64 };
    let charts: [(&str, &str, Quantity, Value); 4] = [
        ("Response time, 99 % within", "p99 of each second", Quantity::Nanoseconds, response),
        ("Carried", "responses each second", Quantity::PerSecond, |row| row.completed as f64),
        ("Connections in process", "connections in process", Quantity::Count, |row| row.connections_mean),
        ("Failed", "requests each second", Quantity::PerSecond, |row| row.failed as f64),
    ];
    let mut section = Section::new("Over time");
    let runs: usize = sources.sides.iter().map(Vec::len).sum();
    if runs == 0 {
        return section;
    }
    let hidden = sources.sides.iter().map(|runs| runs.len().saturating_sub(RUNS_DRAWN)).sum::<usize>();
    if hidden > 0 {
        section = section.text(format!("Of each side the first {RUNS_DRAWN} runs are drawn; {hidden} more are not."));
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
        // That nothing failed needs no picture.
        if title != "Failed" || most > 0.0 {
            section = section.figure(chart);
        }
    }
    section
}

/// The difference of each block of a comparison in turns.
fn blocks(part: &ComparePart) -> Section {
    let section = Section::new("Block by block");
    let Some(metric) = part.headline().filter(|_| !part.blocks.is_empty()) else { return section };
    let plot = Spans::new(
        format!("Difference of {} in each block", words(metric)),
        Quantity::Share,
        ["B is less", "B is more"],
    )
    .about(
        "Within a block of four runs what drifts weighs on both sides alike. A block that does not count has no dot.",
    );
    let plot = part.blocks.iter().enumerate().fold(plot, |plot, (number, block)| {
        let at = block_difference(block, metric).filter(|_| block.counted);
        let words = match (at, block.counted) {
            (Some(at), _) => signed(metric, at),
            (None, true) => "not known".to_owned(),
            (None, false) => format!("does not count: {}", block.why),
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

/// As the comparison takes it: of relative metrics the means of logarithms.
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
    let table = Table::new(&["what", "A", "B", "of"]).left(&[1, 2, 3]);
    let table = differing(part).into_iter().fold(table, |table, row| table.row(row));
    let said = match (part.plans_differ.is_empty(), part.hosts_differ.is_empty()) {
        (true, true) => "Nothing: plans and machines are the same.",
        (true, false) => "The plans are the same; the machine, or how it was used, is not.",
        (false, true) => "The machine, and how it was used, is the same.",
        (false, false) => "",
    };
    Section::new("What differed").text(said).table(table)
}

/// Runs of a side that are read, and those of which the seconds are drawn: more lines would hide one another.
const RUNS_READ: usize = 40;
const RUNS_DRAWN: usize = 3;
/// Finer than a line is wide.
const RATIO_STEPS: u32 = 120;
