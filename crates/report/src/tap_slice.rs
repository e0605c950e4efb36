//! A slice of what programs saw, as a page.

use schema::tap_part::{TapGroup, TapSlice};
use stats::Histogram;

use crate::figures::{count, duration};
use crate::page::{Page, Section, Table};
use crate::plot::{Axis, Bars, Chart, Quantity, Scale, Series};
use crate::run_page::{response_tail, tap_view};

/// Distributions that the page draws, by name.
#[derive(Clone, Copy, Debug)]
pub struct SliceTimes<'a> {
    /// What they are of: `as clients`.
    pub name: &'a str,
    /// Response times.
    pub response: &'a Histogram,
    /// Set-up times.
    pub setup: &'a Histogram,
    /// Connections' lengths.
    pub connection: &'a Histogram,
}

/// Puts the page together.
pub fn page(slice: &TapSlice, times: &[SliceTimes<'_>]) -> Page {
    let conditions = if slice.conditions.is_empty() { "everything".to_owned() } else { slice.conditions.join(", ") };
    let mut page = Page::new("A slice of what programs saw").lead(format!(
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
    tail.about = "Request's first moment to answer's last, of exchanges that succeeded.".into();
    figures = figures.figure(tail);
    for of in times {
        let spread = Chart::cumulative(format!("How times are spread, {}", of.name), "time")
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
        row.extend(
            [times.p50, times.p90, times.p99, times.max]
                .map(|t| if times.count == 0 { "-".to_owned() } else { duration(t) }),
        );
        table = table.row(row);
    }
    let section = Section::new(format!("By {by}"));
    let section = if by == "minute" { over_minutes(section, groups) } else { section.figure(dots(by, groups)) };
    if groups.len() > FOLDED {
        section.folded("All groups", Section::new("").table(table))
    } else {
        section.table(table)
    }
}

/// Minutes are a time: lines over it. They are counted from the first one.
fn over_minutes(section: Section, groups: &[TapGroup]) -> Section {
    let line = |name: &str, value: fn(&TapGroup) -> Option<f64>| {
        let points = groups.iter().enumerate().map(|(at, group)| [at as f64, value(group).unwrap_or(f64::NAN)]);
        Series::line(name, points.collect())
    };
    let x = || Axis::from_zero("minute in which something ended, in order", Quantity::Count);
    let y = Axis { scale: Scale::Log, ..Axis::new("response time", Quantity::Nanoseconds) };
    let times = Chart::new("Response time by minute", x(), y)
        .series(line("median", |g| (g.response_ns.count > 0).then_some(g.response_ns.p50 as f64)))
        .series(line("99 %", |g| (g.response_ns.count > 0).then_some(g.response_ns.p99 as f64)));
    let attempts = Chart::new("Attempts by minute", x(), Axis::from_zero("attempts", Quantity::Count))
        .series(line("attempts", |g| Some(g.attempts as f64)))
        .series(line("failed", |g| Some(g.failed as f64)));
    section.figure(times).figure(attempts)
}

fn dots(by: &str, groups: &[TapGroup]) -> Bars {
    let bars = Bars::dots(format!("Response time by {by}"), Quantity::Nanoseconds, &["median", "99 %"]);
    groups.iter().take(FOLDED).fold(bars, |bars, group| {
        let times = &group.response_ns;
        let value = |time: u64| (times.count > 0).then_some(time as f64);
        bars.row(group.name.clone(), &[value(times.p50), value(times.p99)])
    })
}

fn runs(slice: &TapSlice) -> Section {
    let mut table = Table::new(&["run", "begun", "verdict", "not read"]).left(&[1, 2, 3]);
    for run in &slice.runs {
        let verdict = run.verdict.map_or("did not end", |verdict| verdict.name());
        table = table.row([run.id.clone(), run.started_at.clone(), verdict.to_owned(), run.unread.clone()]);
    }
    Section::new("Runs").table(table)
}

/// Groups drawn, and shown without folding.
const FOLDED: usize = 40;
