//! The storage under a folder as one page: Bonnie's table, what caches and databases ask for with its percentiles, plots. Where the page
//! cache answered instead of storage it stands first, and beside each figure.

use schema::{DiskDocument, Quantiles};

use crate::disk::{self, Made};
use crate::figures::{bytes, count, duration, duration_f64};
use crate::page::{Page, Section, Table};
use crate::phrases::{moment, span};
use crate::plot::{Bars, Chart, Quantity, Series};

/// Puts the page together; `plan` is the plan's own text, which may be empty.
pub fn disk_page(document: &DiskDocument, plan: &str) -> Page {
    let run = &document.run;
    let title = if run.id.is_empty() { "A disk" } else { &run.id };
    let of = |name: &str| disk::setting(document, name);
    let early = if run.interrupted { ", stopped early: tests that are missing were not made" } else { "" };
    let about = format!(
        "{}: measured for {} in all{early}. A file of {} without a name in {} ({}), read and written by {}.",
        moment(&run.started_at),
        span(run.duration_s),
        of("file"),
        of("folder"),
        of("file system"),
        of("fio"),
    );
    let doubt = disk::not_of_storage(document).map_or(Section::new(""), |doubt| {
        Section::new("The page cache was measured").text(doubt).text(
            "It keeps in memory what was read and written. Measure with a larger file (--size, twice the memory), or on a file system that has a \
             disk; the last column says how much came from storage or went there, as the kernel counted.",
        )
    });
    let repeat = Section::new("Repeat it")
        .verbatim("The command", run.command.clone())
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", plan));
    Page::new(title)
        .lead(disk::answer(document))
        .judged("", &document.validity)
        .about(about)
        .section(doubt)
        .section(as_bonnie_does(document))
        .section(needs(document))
        .section(processor(document))
        .section(Section::new("What to know when reading").text(disk::COUNTED).text(PER_CHAR))
        .section(repeat)
        .foot(if run.dir.is_empty() {
            "Nothing was kept of this run.".to_owned()
        } else {
            format!("fio's own answers, a file for each test, are in {}", run.dir)
        })
}

/// What differs from Bonnie 1.0, whose table it is.
const PER_CHAR: &str = "A byte a call is a system call for each byte, as Bonnie++ 2 has it; Bonnie 1.0 called putc and getc, which go through \
     a buffer in the program and are many times as fast. Writes include the flush at their end, which Bonnie 1.0 left out.";

fn as_bonnie_does(document: &DiskDocument) -> Section {
    let tests = disk::of_bonnie(document);
    let head = ["as Bonnie does", "KB/s", "a second", "%CPU", "read", "written", "for", "from or to storage"];
    let table = tests.iter().fold(Table::new(&head), |table, test| {
        let figures = test.figures;
        let moved = |moved: u64| if moved == 0 { String::new() } else { bytes(moved) };
        table.row([
            test.label(),
            disk::whole(figures.bytes_per_s / 1e3),
            if test.name == "seeks" { disk::whole(figures.iops) } else { String::new() },
            disk::percent(figures.cpu),
            moved(figures.read_bytes),
            moved(figures.written_bytes),
            span(figures.duration_s),
            disk::storage(figures),
        ])
    });
    let transfers = tests.iter().filter(|test| test.name != "seeks");
    let transfers = transfers.fold(Bars::new("Transfers", Quantity::Bytes, &["bytes a second"]), |bars, test| {
        bars.row(test.short(), &[Some(test.figures.bytes_per_s)])
    });
    Section::new("As Bonnie's table has it")
        .table(table)
        .figure(transfers.about("Bytes a second, sequentially; of a rewrite each byte once."))
        .figure(operations(document))
}

/// Seeks are among them, so that they can be compared.
fn operations(document: &DiskDocument) -> Bars {
    let seeks = disk::of_bonnie(document).into_iter().filter(|test| test.name == "seeks");
    let all = seeks.chain(disk::of_needs(document));
    let bars = Bars::dots("Operations", Quantity::PerSecond, &["a second"]);
    let bars = all.fold(bars, |bars, test| bars.row(test.short(), &[Some(test.figures.iops)]));
    bars.about("At random places, on a logarithmic axis; 32: so many at once; a commit is a write and its fdatasync.")
}

fn needs(document: &DiskDocument) -> Section {
    let tests = disk::of_needs(document);
    let head = ["caches, databases", "a second", "bytes a second", "%CPU", "for", "from or to storage"];
    let rates = tests.iter().fold(Table::new(&head), |table, test| {
        let figures = test.figures;
        table.row([
            test.label(),
            disk::whole(figures.iops),
            bytes(figures.bytes_per_s.max(0.0) as u64),
            disk::percent(figures.cpu),
            span(figures.duration_s),
            disk::storage(figures),
        ])
    });
    let head = ["time of one", "of", "mean", "min", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "max"];
    let timed = || tests.iter().filter_map(|test| Some((test, test.figures.latency_ns.as_ref()?)));
    let times = timed().fold(Table::new(&head), |table, (test, q)| {
        let mut row = vec![test.label(), count(q.count), duration_f64(q.mean)];
        let at = [q.min, q.p50, q.p90, q.p99, q.p99_9, q.p99_99, q.max];
        row.extend(at.map(duration));
        table.row(row)
    });
    let chart = Chart::percentiles("Times", "time of one").about(
        "How long the slowest tenth, hundredth, thousandth took; a curve ends where its values do. Straight between fio's percentiles.",
    );
    let chart = timed().fold(chart, |chart, (test, q)| chart.series(Series::line(test.short(), curve(q)).dotted()));
    let spread = Bars::dots("Times side by side", Quantity::Nanoseconds, &["median", "99 %", "99.9 %", "largest"]);
    let spread = timed().fold(spread, |bars, (test, q)| {
        bars.row(test.short(), &[q.p50, q.p99, q.p99_9, q.max].map(|ns| Some(ns as f64)))
    });
    Section::new("What caches and databases ask for").table(rates).table(times).figure(chart).figure(spread)
}

/// The percentiles that so many values can tell.
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
    // 0.1 of 10 values is one of them, whatever floating point makes of it.
    let told = |at: f64| q.count as f64 * (1.0 - at) > 1.0 - 1e-6;
    all.into_iter().filter(|(at, _)| told(*at)).map(|(at, ns)| [at, ns as f64]).collect()
}

fn processor(document: &DiskDocument) -> Section {
    let bars = Bars::new("User and kernel time", Quantity::Share, &["user", "kernel"]);
    let all: Vec<Made<'_>> = disk::of_bonnie(document).into_iter().chain(disk::of_needs(document)).collect();
    let bars = all
        .iter()
        .fold(bars, |bars, test| bars.row(test.short(), &[Some(test.figures.cpu_user), Some(test.figures.cpu_system)]));
    Section::new("Processor").figure(bars.about("Of one core, while the test went on."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_its_values_do() {
        let ends = |count| curve(&Quantiles { count, ..Quantiles::default() }).last().map(|point| point[0]);
        assert_eq!([1, 9, 10, 99, 100, 9_999, 10_000].map(ends), [0.0, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999].map(Some));
        assert_eq!(ends(0), None);
    }
}
