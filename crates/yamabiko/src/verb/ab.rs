//! `yamabiko ab`: ApacheBench's options and layout over a run like any other.
//!
//! ```text
//!   words --> Options --> Plan --> lab::bench --> requests.parquet --> figures --> report::ab --> stdout, -g, -e
//!           (args::ab)  (plan)      (the run, kept in the book)       (figures)
//! ```
//!
//! Standard output is ab's, line for line. What ab cannot say goes to standard error: the verdict, where it is not valid.

mod failures;
mod figures;
mod plan;
mod progress;
mod talk;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use lab::Outcome;
use ledger::{CheckState, Document, RequestRecord, Verdict};
use report::ab::{Report, Shown};
use report::figures::plain;
use store::Book;
use sys::signal::Interrupts;
use tempfile::TempDir;

use self::progress::Heartbeat;
use super::bench::{command_line, print};
use crate::args::ab::{Asked, Options, Refused, USAGE, parse};
use crate::exit::{Exit, without_numbers};
use crate::terminal::say;

/// Status of ab after its usage: EINVAL.
const USAGE_STATUS: u8 = 22;
/// Status of ab after any other refusal, and when it was interrupted.
const ERROR_STATUS: u8 = 1;

/// The words after `ab`.
pub fn run(words: &[OsString]) -> Result<Exit> {
    match parse(words.iter().cloned()) {
        Ok(Asked::Run(options)) => bench(&options),
        Ok(Asked::Version) => print(&talk::banner(false)).map(|()| Exit::Fine),
        Ok(Asked::Help) => print(USAGE).map(|()| Exit::Fine),
        Ok(Asked::Usage) => {
            say(USAGE.trim_end());
            Ok(Exit::Ab(USAGE_STATUS))
        }
        Err(Refused { message, usage }) => {
            say(plain(&message));
            if usage {
                say(USAGE.trim_end());
            }
            Ok(Exit::Ab(if usage { USAGE_STATUS } else { ERROR_STATUS }))
        }
    }
}

fn bench(options: &Options) -> Result<Exit> {
    let plan = plan::plan(options)?;
    let interrupts = Interrupts::install()?;
    let place = Place::find()?;
    let mut heartbeat = Heartbeat::new(options);
    begin(options, &heartbeat)?;
    let outcome = lab::bench(&plan, &command_line(), Some(&place.book), &interrupts, &mut heartbeat)?;
    let records = ended(&outcome)?;

    print(&talk::exchange(options, &outcome.first_exchange, &records))?;
    if let Some(failure) = failures::fatal(&records, options) {
        say(&failure.message);
        if failure.completed > 0 {
            print(&format!("Total of {} requests completed\n", failure.completed))?;
        }
        return Ok(Exit::Ab(failure.status));
    }
    heartbeat.finish(records.len() as u64);
    if !heartbeat.beats() {
        print("..done\n")?;
    }
    let report = figures::report(options, &outcome, &records);
    print(&match &options.html {
        Some(attributes) => report::ab::html(&report, attributes),
        None => report::ab::text(&report, Shown { percentiles: options.percentiles, deviations: options.deviations }),
    })?;
    if let Err(message) = write_files(options, &report) {
        say(message);
        return Ok(Exit::Ab(ERROR_STATUS));
    }
    Ok(close(&outcome.document, heartbeat.stopped()))
}

/// What ab prints before the first request.
fn begin(options: &Options, heartbeat: &Heartbeat) -> Result<()> {
    print(&talk::banner(options.html.is_some()))?;
    if options.html.is_none() {
        print(&talk::benchmarking(options, heartbeat.beats()))?;
    }
    // There may be no line end yet.
    let _ = std::io::stdout().flush();
    Ok(())
}

/// The run's requests that had ended when its measured phase did, in the order in which they ended.
fn ended(outcome: &Outcome) -> Result<Vec<RequestRecord>> {
    let dir = outcome.folder.as_deref().context("the run has no folder")?;
    let rows: Vec<RequestRecord> = store::read_requests(dir)?.collect::<store::Result<_>>()?;
    Ok(figures::within(rows, outcome.document.run.duration_s))
}

/// In ab's order; an error in its words.
fn write_files(options: &Options, report: &Report) -> Result<(), String> {
    let write = |file: &Path, kind: &str, text: String| {
        let why = |error: std::io::Error| without_numbers(&error.to_string());
        fs::write(file, text).map_err(|error| format!("Cannot open {kind} output file: {}", why(error)))
    };
    if let Some(file) = &options.percentages {
        write(file, "CSV", report::ab::percentages(report))?;
    }
    if let Some(file) = &options.gnuplot {
        write(file, "gnuplot", report::ab::gnuplot(report))?;
    }
    Ok(())
}

/// Says what stands against the figures, and how the program ends.
fn close(document: &Document, stopped_by_us: bool) -> Exit {
    let validity = &document.validity;
    if validity.verdict != Verdict::Valid {
        let doubts = validity
            .checks
            .iter()
            .filter(|check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun))
            .map(|check| format!("{}: {}", check.name.replace('_', " "), plain(&check.why)));
        for doubt in doubts {
            say(format_args!("yamabiko: this measurement is {}: {doubt}", validity.verdict.name()));
        }
    }
    match validity.verdict {
        _ if document.run.interrupted && !stopped_by_us => Exit::Ab(ERROR_STATUS),
        Verdict::Invalid => Exit::Invalid,
        Verdict::Valid | Verdict::Suspect => Exit::Fine,
    }
}

/// The book, or, where that cannot be written, a folder that goes with this process.
struct Place {
    book: Book,
    _gone_at_the_end: Option<TempDir>,
}

impl Place {
    fn find() -> Result<Place> {
        let book = Book::open()?;
        let Err(error) = fs::create_dir_all(book.root()) else { return Ok(Place { book, _gone_at_the_end: None }) };
        let why = without_numbers(&error.to_string());
        say(format_args!("yamabiko: the run is not kept: {}: {why}", book.root().display()));
        let folder = tempfile::tempdir().context("a folder for the run")?;
        Ok(Place { book: Book::at(folder.path()), _gone_at_the_end: Some(folder) })
    }
}
