//! `yamabiko ab`: ApacheBench's options and layout over a run like any other.
//!
//! ```text
//!   words --> Options --> Plan --> testbed::bench --> requests.parquet --> figures --> report::ab --> stdout, -g, -e
//!           (args::ab)  (plan)      (the run, stored)       (figures)
//! ```
//!
//! Standard output is ab's, line for line. What ab cannot say goes to standard error: the verdict, where it is not valid.

mod ab_plan;
mod failures;
mod figures;
mod progress;
mod talk;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use report::ab::{Report, Shown};
use report::figures::plain;
use schema::{CheckState, Document, RequestRecord, Verdict};
use store::RunStore;
use sys::signal::Interrupts;
use tempfile::TempDir;
use testbed::Outcome;

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
        Ok(Asked::Version) => print(&talk::banner(false)).map(|()| Exit::Success),
        Ok(Asked::Help) => print(USAGE).map(|()| Exit::Success),
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
    let plan = ab_plan::plan(options)?;
    let interrupts = Interrupts::install()?;
    let place = Place::find()?;
    let mut heartbeat = Heartbeat::new(options);
    begin(options, &heartbeat)?;
    let outcome = testbed::bench(&plan, &command_line(), Some(&place.book), &interrupts, &mut heartbeat)?;
    let records = records(&outcome)?;
    if let Err(why) = require_all(records.len() as u64, &outcome.document) {
        say(format_args!("yamabiko: {why}"));
        return Ok(Exit::Ab(ERROR_STATUS));
    }
    let records = figures::within(records, outcome.document.run.duration_s);

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

/// The run's requests, as far as the disk took them.
fn records(outcome: &Outcome) -> Result<Vec<RequestRecord>> {
    let dir = outcome.folder.as_deref().context("the run has no folder")?;
    Ok(store::read_requests(dir)?.collect::<store::Result<_>>()?)
}

/// Refuses a run of whose requests there are only so many: ab's figures are made from all of them, and those of a part
/// would be of fewer requests, at a lower rate.
fn require_all(rows: u64, document: &Document) -> Result<(), String> {
    let load = document.load.as_ref().ok_or("there was no load")?;
    // There is no warm-up, and what was in flight at the end was aborted.
    let ended = load.completed + load.failed.values().sum::<u64>();
    if rows == ended {
        return Ok(());
    }
    let kept = document.validity.checks.iter().find(|check| check.name == "records_stored");
    let why = kept.map(|check| format!(" ({})", plain(&check.why))).unwrap_or_default();
    Err(format!(
        "only {rows} of {ended} requests were kept, and ab's report is made from all of them: there is none{why}; yamabiko \
         bench counts requests whatever becomes of the disk"
    ))
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
        Verdict::Valid | Verdict::Suspect => Exit::Success,
    }
}

/// The run store, or, where that cannot be written, a folder that goes with this process.
struct Place {
    book: RunStore,
    _gone_at_the_end: Option<TempDir>,
}

impl Place {
    fn find() -> Result<Place> {
        let book = RunStore::open()?;
        let Err(error) = fs::create_dir_all(book.root()) else { return Ok(Place { book, _gone_at_the_end: None }) };
        let why = without_numbers(&error.to_string());
        say(format_args!("yamabiko: the run is not stored: {}: {why}", book.root().display()));
        let folder = tempfile::tempdir().context("a folder for the run")?;
        Ok(Place { book: RunStore::at(folder.path()), _gone_at_the_end: Some(folder) })
    }
}

#[cfg(test)]
mod tests {
    use schema::document::{Check, Load, Run, SCHEMA, Validity, Weight};

    use super::*;

    #[test]
    fn ab_report_needs_a_complete_table_of_requests() {
        let check = Check::without_figure("records_stored", CheckState::Failed, Weight::Suspect, "the disk is full");
        let document = Document {
            schema: SCHEMA.into(),
            run: Run::default(),
            validity: Validity::from_checks(vec![check]),
            load: Some(Load { completed: 990, failed: [("reset".to_owned(), 10)].into(), ..Load::default() }),
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: None,
        };
        assert_eq!(require_all(1000, &document), Ok(()));
        let why = require_all(260, &document).unwrap_err();
        assert!(why.contains("260 of 1000") && why.contains("the disk is full"), "{why}");
    }
}
