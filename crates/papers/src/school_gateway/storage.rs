//! Storage: Bonnie's table of the paper's machines, and of the storage here.

use std::time::Duration;

use schema::{DiskDocument, ReproductionRow};
use store::RunStore;
use sys::signal::Interrupts;
use units::Bytes;

use super::options::Storage;
use crate::figures::{find, row, with_published};
use crate::{Lines, level};
use disk::{DiskPlan, Trial};
use experiment::ExperimentError;
use experiment::Order;

/// Bonnie's size: its MB are 2^20 bytes.
const PAPERS_SIZE: Bytes = Bytes(100 << 20);
/// Bonnie's K in bytes, for rates in K per second.
pub const BYTES_PER_K: f64 = 1024.0;

/// Bonnie's rate.
pub const RATE: &str = "K/s";
/// Share of a core used during a test.
pub const CPU: &str = "CPU of the test";
/// Seeks per second.
pub const SEEKS: &str = "seeks/s";

/// The paper's columns and the corresponding tests.
const COLUMNS: [(&str, Trial); 6] = [
    ("out per char", Trial::WritePerChar),
    ("out block", Trial::WritePerBlock),
    ("rewrite", Trial::Rewrite),
    ("in per char", Trial::ReadPerChar),
    ("in block", Trial::ReadPerBlock),
    ("random seeks", Trial::Seeks),
];

/// The paper's figures in its own digits: K/s and %CPU by column; for seeks, seeks/s and %CPU.
const PUBLISHED: [(&str, [(&str, &str); 6]); 3] = [
    ("Type1", [("1757", "60"), ("3244", "25.2"), ("1420", "21"), ("1765", "53.6"), ("2566", "18.7"), ("53.9", "4.5")]),
    ("Type2", [("3961", "33.1"), ("5300", "17"), ("2215", "6.2"), ("3760", "27.9"), ("3957", "6.4"), ("94.3", "2")]),
    ("Type3", [("2734", "9.2"), ("2884", "3.9"), ("1391", "2.1"), ("2656", "11.5"), ("2705", "2.8"), ("104.7", "0.9")]),
];

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 2] = [
    "Disks: the paper has three machines with a disk each; here one storage is compared with all three, and no CPU \
     limit slows it. Bonnie 1.0 called putc and getc per character, through a buffer in the program; here each byte \
     is a system call, so the columns per char show the cost of small calls and are not comparable. Bonnie's time \
     ended before its writes were on disk; here the flush is included, and the page cache is emptied before a file \
     is read. 100 MB exceeded the memory of the paper's machines; a larger file is measured as well.",
    "By the paper's text Type3 has the best disk and Type1 the worst; in its table Type2 is the fastest in every \
     column except seeks, and only seeks and CPU have the text's order.",
];

/// Experiment name of a row.
pub fn experiment(size: Bytes) -> String {
    format!("disk, a file of {size}")
}

fn plan(input: &Storage, size: Bytes) -> DiskPlan {
    let tests = COLUMNS.map(|(_, test)| test).to_vec();
    DiskPlan { directory: input.directory.clone(), size, each: input.each, tests }
}

fn sizes(input: &Storage) -> Vec<Bytes> {
    if input.size == PAPERS_SIZE { vec![PAPERS_SIZE] } else { vec![PAPERS_SIZE, input.size] }
}

/// Duration on storage with 200 MB a second.
pub fn time(input: &Storage, _order: &Order) -> Duration {
    sizes(input).into_iter().map(|size| plan(input, size).time()).sum()
}

/// Runs the tests with the paper's size and the configured one; passes each result to `take` with its rows.
pub fn make(
    input: &Storage,
    order: &Order,
    run_store: &RunStore,
    interrupts: &Interrupts,
    begin: &mut dyn FnMut(&str),
    take: &mut dyn FnMut(&str, &DiskDocument, Vec<ReproductionRow>),
) -> Result<(), ExperimentError> {
    for size in sizes(input) {
        if interrupts.count() > 0 {
            break;
        }
        let name = experiment(size);
        let mut tell = |test: Trial| begin(&format!("{name}: {}", test.name().replace('_', " ")));
        let document = disk::run(&plan(input, size), order, run_store, interrupts, &mut tell)?.document;
        let made = rows(&name, &document);
        take(&name, &document, made);
    }
    Ok(())
}

/// The rows of one size.
pub fn rows(name: &str, document: &DiskDocument) -> Vec<ReproductionRow> {
    let mut made = Vec::new();
    for (at, (column, test)) in COLUMNS.iter().enumerate() {
        let Some(figures) = document.disk.get(test.name()) else { continue };
        let paper = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            let each: Vec<String> =
                PUBLISHED.iter().map(|(machine, columns)| format!("{machine} {}", of(&columns[at]))).collect();
            each.join(", ")
        };
        let (unit, here) = match test {
            Trial::Seeks => ("/s", figures.iops),
            _ => ("K/s", figures.bytes_per_s / BYTES_PER_K),
        };
        made.push(with_published(
            row(name, column, quantity(*test), unit, here),
            Some(&paper(|one| one.0)),
            note(*test),
        ));
        let cpu = row(name, column, CPU, "%", 100.0 * figures.cpu);
        made.push(with_published(cpu, Some(&paper(|one| one.1)), ""));
    }
    made
}

fn quantity(test: Trial) -> &'static str {
    if test == Trial::Seeks { SEEKS } else { RATE }
}

fn note(test: Trial) -> &'static str {
    match test {
        Trial::WritePerChar | Trial::ReadPerChar => "a system call per byte; Bonnie 1.0 used a buffer in the program",
        Trial::WritePerBlock | Trial::Rewrite => "includes the flush; Bonnie 1.0 did not",
        _ => "",
    }
}

/// Names of the table's columns.
pub fn columns() -> [&'static str; 6] {
    COLUMNS.map(|(column, _)| column)
}

/// Figures of the storage here as a sentence; empty if not measured.
pub fn result_sentence(rows: &[ReproductionRow]) -> Option<String> {
    let file = files(rows).into_iter().next_back()?;
    let quantities = [(1, "K/s out"), (4, "K/s in"), (5, "seeks/s")];
    let parts: Vec<String> = quantities
        .into_iter()
        .filter_map(|(at, unit)| {
            let (column, test) = COLUMNS[at];
            let here = find(rows, file, column, quantity(test))?;
            let mut of_paper: Vec<f64> = PUBLISHED.iter().filter_map(|(_, rates)| rates[at].0.parse().ok()).collect();
            of_paper.sort_by(f64::total_cmp);
            let (least, most) = (of_paper.first()?, of_paper.last()?);
            Some(format!("{} {unit} (published: {least} to {most})", level(here)))
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("The storage here, {}: {}.", file.trim_start_matches("disk, "), parts.join(", ")))
}

/// One line of the table as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The machine, or the file here.
    pub name: String,
    /// K/s by column; the last is seeks/s.
    pub rates: [Option<f64>; 6],
}

/// The paper's machines, and the storage here.
pub fn machines(rows: &[ReproductionRow]) -> Vec<Rates> {
    let published = PUBLISHED.iter().map(|(machine, columns)| Rates {
        name: (*machine).to_owned(),
        rates: columns.map(|(rate, _)| rate.parse().ok()),
    });
    let here = files(rows).into_iter().map(|file| Rates {
        name: here(file),
        rates: COLUMNS.map(|(column, test)| find(rows, file, column, quantity(test))),
    });
    published.chain(here).collect()
}

/// Storage experiments among the rows.
fn files(rows: &[ReproductionRow]) -> Vec<&str> {
    let mut files: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.quantity == RATE || row.quantity == SEEKS) {
        if !files.contains(&row.experiment.as_str()) {
            files.push(&row.experiment);
        }
    }
    files
}

fn here(file: &str) -> String {
    format!("here, {}", file.trim_start_matches("disk, "))
}

/// The paper's table with the storage here as the last line; nothing if not measured.
pub fn lines(rows: &[ReproductionRow]) -> Option<Lines> {
    let files = files(rows);
    if files.is_empty() {
        return None;
    }
    let published = PUBLISHED.iter().map(|(machine, columns)| {
        let cells = columns.iter().map(|(rate, cpu)| format!("{rate}, {cpu}"));
        std::iter::once(format!("{machine}, 100 MB")).chain(cells).collect()
    });
    let below = files.into_iter().map(|file| {
        let cells = COLUMNS.iter().map(|(column, test)| {
            let cell = |quantity: &str| find(rows, file, column, quantity);
            match (cell(quantity(*test)), cell(CPU)) {
                (Some(rate), Some(cpu)) => format!("{}, {}", level(rate), level(cpu)),
                _ => "-".to_owned(),
            }
        });
        std::iter::once(here(file)).chain(cells).collect()
    });
    let mut head = vec!["Bonnie: K/s, %CPU"];
    head.extend(columns());
    Some(Lines { head, lines: published.chain(below).collect() })
}

#[cfg(test)]
mod tests {
    use schema::document::Run;
    use schema::{DiskTest, Validity};

    use super::*;

    fn document(tests: &[(Trial, f64)]) -> DiskDocument {
        let test = |per_s: f64| DiskTest { bytes_per_s: per_s, iops: per_s / 1000.0, cpu: 0.5, ..DiskTest::default() };
        DiskDocument {
            schema: String::new(),
            run: Run::default(),
            validity: Validity::from_checks(Vec::new()),
            disk: tests.iter().map(|(trial, per_s)| (trial.name().to_owned(), test(*per_s))).collect(),
        }
    }

    #[test]
    fn bonnie_rates_are_in_1024_bytes_and_seeks_are_counts() {
        let made = rows("disk, x", &document(&[(Trial::WritePerBlock, 2048.0), (Trial::Seeks, 5000.0)]));
        assert_eq!(find(&made, "disk, x", "out block", RATE), Some(2.0));
        assert_eq!(find(&made, "disk, x", "out block", CPU), Some(50.0));
        assert_eq!(find(&made, "disk, x", "random seeks", SEEKS), Some(5.0));
        let paper = |at: usize| made[at].published.as_deref();
        assert_eq!(paper(0), Some("Type1 3244, Type2 5300, Type3 2884"));
        assert_eq!(paper(3), Some("Type1 4.5, Type2 2, Type3 0.9"));
        assert_eq!(made.len(), 4, "a missing test has no row");
    }

    #[test]
    fn table_lists_the_papers_machines_before_the_storage_here() {
        assert_eq!((lines(&[]), result_sentence(&[])), (None, None));
        let name = experiment(PAPERS_SIZE);
        assert_eq!(name, "disk, a file of 100MiB");
        let table = lines(&rows(&name, &document(&[(Trial::Seeks, 5000.0)]))).unwrap();
        assert_eq!(table.lines.len(), 4);
        assert_eq!(table.lines[1][..3], ["Type2, 100 MB", "3961, 33.1", "5300, 17"]);
        assert_eq!(table.lines[3], ["here, a file of 100MiB", "-", "-", "-", "-", "-", "5.00, 50.0"]);
        assert!(table.lines.iter().all(|line| line.len() == table.head.len()));
        assert_eq!(
            result_sentence(&rows(&name, &document(&[(Trial::Seeks, 5000.0)]))).unwrap(),
            "The storage here, a file of 100MiB: 5.00 seeks/s (published: 53.9 to 104.7)."
        );
        let drawn = machines(&rows(&name, &document(&[(Trial::Seeks, 5000.0)])));
        assert_eq!(drawn.len(), 4);
        assert_eq!((drawn[0].rates[0], drawn[0].rates[5]), (Some(1757.0), Some(53.9)));
        assert_eq!((drawn[3].rates[0], drawn[3].rates[5]), (None, Some(5.0)));
    }

    #[test]
    fn the_papers_size_is_measured_once() {
        let input = |size| Storage { directory: "/".into(), size, each: Duration::from_secs(5) };
        assert_eq!(sizes(&input(PAPERS_SIZE)).len(), 1);
        assert_eq!(sizes(&input(Bytes(1 << 30))), [PAPERS_SIZE, Bytes(1 << 30)]);
    }

    /// The text ranks Type3 before Type2 before Type1; the table does so for seeks and CPU time only.
    #[test]
    fn the_papers_table_and_text_rank_disks_differently() {
        let of = |machine: usize, column: usize| {
            let (rate, cpu) = PUBLISHED[machine].1[column];
            (rate.parse::<f64>().unwrap(), cpu.parse::<f64>().unwrap())
        };
        for column in 0..6 {
            let rising = of(0, column).0 < of(1, column).0 && of(1, column).0 < of(2, column).0;
            assert_eq!(rising, column == 5, "{column}");
            if column < 5 {
                assert!(of(1, column).0 > of(0, column).0 && of(1, column).0 > of(2, column).0, "{column}");
            }
            assert!(of(0, column).1 > of(1, column).1 && of(1, column).1 > of(2, column).1, "{column}");
        }
    }
}
