//! The result of `disk` as one page: Bonnie's table, the tests of caches and databases with percentiles, plots. Figures
//! answered by the page cache are marked, and a warning comes first.

use schema::{DiskDocument, Quantiles};

use crate::disk::{self, TestResult};
use crate::durations;
use crate::figures::{bytes, count};
use crate::page::{Page, Section, Table};
use crate::phrases::{span, wall_clock};
use crate::plot::{Bars, Chart, Quantity, Series};

/// Builds the page; `plan` is the text of the plan; it may be empty.
pub fn disk_page(document: &DiskDocument, plan: &str) -> Page {
    let run = &document.run;
    let title = if run.id.is_empty() { "A disk" } else { &run.id };
    let of = |name: &str| disk::setting(document, name);
    let early = if run.interrupted { ", interrupted: missing tests were not made" } else { "" };
    let about = format!(
        "{}: measured for {} in all{early}. An unnamed file of {} in {} ({}), read and written by {}.",
        wall_clock(&run.started_at),
        span(run.duration_s),
        of("file"),
        of("folder"),
        of("file system"),
        of("fio"),
    );
    let doubt = disk::not_of_storage(document).map_or(Section::new(""), |doubt| {
        Section::new("The page cache was measured").text(doubt).text(
            "The page cache keeps read and written data in memory. Use a larger file (--size, twice the memory), or a file system on \
             a disk. The last column shows the share that storage read or wrote, by the kernel's counters.",
        )
    });
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", plan));
    Page::new(title)
        .lead(disk::answer(document))
        .subject("", run.command.clone())
        .judged("", &document.validity)
        .about(about)
        .section(doubt)
        .section(as_bonnie_does(document))
        .section(needs(document))
        .section(processor(document))
        .section(Section::new("Notes").text(disk::TERMS).text(PER_CHAR))
        .section(repeat)
        .foot(if run.dir.is_empty() {
            "This run was not stored.".to_owned()
        } else {
            format!("Output of fio, a file for each test: {}", run.dir)
        })
}

/// Differences from Bonnie 1.0.
const PER_CHAR: &str = "1 byte per call is a system call for each byte, as in Bonnie++ 2; Bonnie 1.0 called putc and getc, which are \
     buffered and many times as fast. Writes include the final flush, which Bonnie 1.0 left out.";

fn as_bonnie_does(document: &DiskDocument) -> Section {
    let tests = disk::bonnie_tests(document);
    let head = ["Bonnie tests", "KB/s", "per second", "%CPU", "read", "written", "time", "from or to storage"];
    let table = tests.iter().fold(Table::new(&head), |table, test| {
        let figures = test.figures;
        let moved = |moved: u64| if moved == 0 { String::new() } else { bytes(moved) };
        table.row([
            test.label(),
            disk::rounded(figures.bytes_per_s / 1e3),
            if test.name == "seeks" { disk::rounded(figures.iops) } else { String::new() },
            disk::percent(figures.cpu),
            moved(figures.read_bytes),
            moved(figures.written_bytes),
            span(figures.duration_s),
            disk::storage(figures),
        ])
    });
    let transfers = tests.iter().filter(|test| test.name != "seeks");
    let transfers = transfers.fold(Bars::new("Transfers", Quantity::Bytes, &["bytes/s"]), |bars, test| {
        bars.row(test.short(), &[Some(test.figures.bytes_per_s)])
    });
    Section::new("Bonnie tests")
        .table(table)
        .figure(transfers.about("Sequential bytes per second; a rewrite counts each byte once."))
        .figure(operations(document))
}

/// Operations per second, with Bonnie's seeks for comparison.
fn operations(document: &DiskDocument) -> Bars {
    let seeks = disk::bonnie_tests(document).into_iter().filter(|test| test.name == "seeks");
    let all = seeks.chain(disk::application_tests(document));
    let bars = Bars::dots("Operations", Quantity::PerSecond, &["per second"]);
    let bars = all.fold(bars, |bars, test| bars.row(test.short(), &[Some(test.figures.iops)]));
    bars.about(
        "At random offsets, on a logarithmic axis. 32: concurrent operations. A commit is a write and its fdatasync.",
    )
}

fn needs(document: &DiskDocument) -> Section {
    let tests = disk::application_tests(document);
    let head = ["caches, databases", "per second", "bytes/s", "%CPU", "time", "from or to storage"];
    let rates = tests.iter().fold(Table::new(&head), |table, test| {
        let figures = test.figures;
        table.row([
            test.label(),
            disk::rounded(figures.iops),
            bytes(figures.bytes_per_s.max(0.0) as u64),
            disk::percent(figures.cpu),
            span(figures.duration_s),
            disk::storage(figures),
        ])
    });
    let head = ["latency", "values", "mean", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let timed = || tests.iter().filter_map(|test| Some((test, test.figures.latency_ns.as_ref()?)));
    let times = timed().fold(Table::new(&head), |table, (test, q)| {
        let values = [q.min, q.p50, q.p90, q.p99, q.p99_9, q.p99_99, q.max].map(|ns| ns as f64);
        let times = durations::in_one_unit(&[&[q.mean][..], &values].concat());
        table.row([vec![test.label(), count(q.count)], times].concat())
    });
    let chart = Chart::percentiles("Latency", "latency").about(
        "Latency of the slowest 10 %, 1 %, 0.1 %; a curve ends with its last value. Linear between fio's percentiles.",
    );
    let chart = timed().fold(chart, |chart, (test, q)| chart.series(Series::line(test.short(), curve(q)).dotted()));
    let spread = Bars::dots("Latency by test", Quantity::Nanoseconds, &["p50", "p99", "p99.9", "max"]);
    let spread = timed().fold(spread, |bars, (test, q)| {
        bars.row(test.short(), &[q.p50, q.p99, q.p99_9, q.max].map(|ns| Some(ns as f64)))
    });
    Section::new("Tests of caches and databases").table(rates).table(times).figure(chart).figure(spread)
}

/// The percentiles that are known from the number of values.
fn curve(q: &Quantiles) -> Vec<[f64; 2]> {
    let all = [
        (0.0, q.min),
        (0.5, q.p50),
        (0.75, q.p75),
        (0.9, q.p90),
        (0.95, q.p95),
        (0.99, q.p99),
        (0.999, q.p99_9),
        (0.9999, q.p99_99),
    ];
    // 0.1 of 10 values is one value, despite floating-point rounding.
    let known = |at: f64| q.count as f64 * (1.0 - at) > 1.0 - 1e-6;
    all.into_iter().filter(|(at, _)| known(*at)).map(|(at, ns)| [at, ns as f64]).collect()
}

fn processor(document: &DiskDocument) -> Section {
    let bars = Bars::new("User and kernel CPU time", Quantity::Share, &["user", "kernel"]);
    let all: Vec<TestResult<'_>> =
        disk::bonnie_tests(document).into_iter().chain(disk::application_tests(document)).collect();
    let bars = all
        .iter()
        .fold(bars, |bars, test| bars.row(test.short(), &[Some(test.figures.cpu_user), Some(test.figures.cpu_system)]));
    Section::new("CPU").figure(bars.about("Share of one core during the test."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_curve_ends_with_the_last_known_percentile() {
        let ends = |count| curve(&Quantiles { count, ..Quantiles::default() }).last().map(|point| point[0]);
        assert_eq!([1, 9, 10, 99, 100, 9_999, 10_000].map(ends), [0.0, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999].map(Some));
        assert_eq!(ends(0), None);
    }
}
