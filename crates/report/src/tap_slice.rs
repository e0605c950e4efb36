//! The result of `tap slice` as a page.

use schema::tap_part::{TapGroup, TapSlice};
use stats::Histogram;

use crate::figures::count;
use crate::page::{Page, Section, Table};
use crate::plot::{Axis, Bars, Chart, Quantity, Scale, Series};
use crate::run_page::{response_tail, tap_view};

/// Distributions for the plots of one end.
#[derive(Clone, Copy, Debug)]
pub struct SliceTimes<'a> {
    /// Name of the end: `as clients`.
    pub name: &'a str,
    /// Response times.
    pub response: &'a Histogram,
    /// Set-up times.
    pub setup: &'a Histogram,
    /// Connection durations.
    pub connection: &'a Histogram,
}

/// Builds the page.
pub fn page(slice: &TapSlice, times: &[SliceTimes<'_>]) -> Page {
    let conditions = if slice.conditions.is_empty() { "everything".to_owned() } else { slice.conditions.join(", ") };
    let mut page = Page::new("Slice of tap records").lead(format!(
        "{} of {} rows of {} runs: {conditions}.",
        count(slice.rows_taken),
        count(slice.rows),
        count(slice.runs.len() as u64)
    ));
    let mut figures = Section::new("Indicators");
    for (name, view) in [("As clients", &slice.client), ("As servers", &slice.server)] {
        if let Some(view) = view {
            figures = tap_view(figures, name, view);
        }
    }
    let mut tail = response_tail(times.iter().map(|of| (of.name, of.response)));
    tail.title = "Response time by percentile".into();
    tail.about =
        "From the first call of the request to the last call of the response, of exchanges that succeeded.".into();
    figures = figures.figure(tail);
    for of in times {
        let spread = Chart::cumulative(format!("Distribution of times, {}", of.name), "time")
            .series(Series::distribution("response", of.response))
            .series(Series::distribution("set-up", of.setup))
            .series(Series::distribution("connection", of.connection));
        figures = figures.figure(spread);
    }
    page = page.section(figures);
    if let Some(by) = &slice.by {
        page = page.section(by_group(by, &slice.groups));
    }
    page.section(runs(slice))
}

fn by_group(by: &str, groups: &[TapGroup]) -> Section {
    let mut table = Table::new(&[by, "connections", "attempts", "failed", "p50", "p90", "p99", "max"]);
    for group in groups {
        let times = &group.response_ns;
        let mut row = vec![group.name.clone(), count(group.connections), count(group.attempts), count(group.failed)];
        row.extend(crate::phrases::percentiles(times));
        table = table.row(row);
    }
    let section = Section::new(format!("By {by}"));
    let section = if by == "minute" { over_minutes(section, groups) } else { section.figure(dots(by, groups)) };
    let legend = crate::phrases::too_few_values_to_p99(groups.iter().map(|group| &group.response_ns));
    let legend = legend.map(|text| format!("{text}.")).unwrap_or_default();
    if groups.len() > GROUPS_SHOWN {
        section.folded("All groups", Section::new("").table(table).text(legend))
    } else {
        section.table(table).text(legend)
    }
}

/// Lines over the minutes, numbered from the first one.
fn over_minutes(section: Section, groups: &[TapGroup]) -> Section {
    let line = |name: &str, value: fn(&TapGroup) -> Option<f64>| {
        let points = groups.iter().enumerate().map(|(at, group)| [at as f64, value(group).unwrap_or(f64::NAN)]);
        Series::line(name, points.collect())
    };
    let x = || Axis::from_zero("minute, counted from the first", Quantity::Count);
    let y = Axis { scale: Scale::Log, ..Axis::new("response time", Quantity::Nanoseconds) };
    let times = Chart::new("Response time by minute", x(), y)
        .series(line("p50", |g| (g.response_ns.count > 0).then_some(g.response_ns.p50 as f64)))
        .series(line("p99", |g| (g.response_ns.count > 0).then_some(g.response_ns.p99 as f64)));
    let attempts = Chart::new("Attempts by minute", x(), Axis::from_zero("attempts", Quantity::Count))
        .series(line("attempts", |g| Some(g.attempts as f64)))
        .series(line("failed", |g| Some(g.failed as f64)));
    section.figure(times).figure(attempts)
}

fn dots(by: &str, groups: &[TapGroup]) -> Bars {
    let bars = Bars::dots(format!("Response time by {by}"), Quantity::Nanoseconds, &["p50", "p99"]);
    groups.iter().take(GROUPS_SHOWN).fold(bars, |bars, group| {
        let times = &group.response_ns;
        let value = |time: u64| (times.count > 0).then_some(time as f64);
        bars.row(group.name.clone(), &[value(times.p50), value(times.p99)])
    })
}

fn runs(slice: &TapSlice) -> Section {
    let mut table = Table::new(&["run", "start", "verdict", "not read"]).left(&[1, 2, 3]);
    for run in &slice.runs {
        let verdict = run.verdict.map_or("did not end", |verdict| verdict.name());
        table = table.row([run.id.clone(), run.started_at.clone(), verdict.to_owned(), run.unread.clone()]);
    }
    Section::new("Runs").table(table)
}

/// Most groups drawn, and shown without folding.
const GROUPS_SHOWN: usize = 40;
