//! `yamabiko ab`: measures a run with the options of ApacheBench and prints the result in its layout.
//!
//! ```text
//!   words --> Options --> Plan --> testbed::bench --> requests.parquet --> figures --> report::ab --> stdout, -g, -e
//!           (args::ab)  (plan)      (the run, stored)       (figures)
//! ```
//!
//! Standard output has ab's lines. A verdict other than valid, which ab does not have, is printed on standard error.

mod ab_plan;
mod failures;
mod figures;
mod output;
mod progress;

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

use self::progress::ProgressLines;
use super::bench::{command_line, print};
use crate::args::ab::{Invocation, Options, Refused, USAGE, parse};
use crate::exit::{Exit, without_os_error_number};
use crate::terminal::print_message;

/// Exit status of ab after wrong usage: EINVAL.
const USAGE_STATUS: u8 = 22;
/// Exit status of ab after any other error, and after an interruption.
const ERROR_STATUS: u8 = 1;

/// Runs the command line after `ab`.
pub fn run(words: &[OsString]) -> Result<Exit> {
    match parse(words.iter().cloned()) {
        Ok(Invocation::Run(options)) => bench(&options),
        Ok(Invocation::Version) => print(&output::banner(false)).map(|()| Exit::Success),
        Ok(Invocation::Help) => print(USAGE).map(|()| Exit::Success),
        Ok(Invocation::Usage) => {
            print_message(USAGE.trim_end());
            Ok(Exit::Ab(USAGE_STATUS))
        }
        Err(Refused { message, usage }) => {
            print_message(plain(&message));
            if usage {
                print_message(USAGE.trim_end());
            }
            Ok(Exit::Ab(if usage { USAGE_STATUS } else { ERROR_STATUS }))
        }
    }
}

fn bench(options: &Options) -> Result<Exit> {
    let plan = ab_plan::plan(options)?;
    let interrupts = Interrupts::install()?;
    let store = Store::open()?;
    let mut progress = ProgressLines::new(options);
    begin(options, &progress)?;
    let outcome = testbed::bench(&plan, &command_line(), Some(&store.run_store), &interrupts, &mut progress)?;
    let records = records(&outcome)?;
    if let Err(why) = require_all(records.len() as u64, &outcome.document) {
        print_message(format_args!("yamabiko: {why}"));
        return Ok(Exit::Ab(ERROR_STATUS));
    }
    let records = figures::ended_within(records, outcome.document.run.duration_s);

    print(&output::exchange(options, &outcome.first_exchange, &records))?;
    if let Some(failure) = failures::fatal(&records, options) {
        print_message(&failure.message);
        if failure.completed > 0 {
            print(&format!("Total of {} requests completed\n", failure.completed))?;
        }
        return Ok(Exit::Ab(failure.status));
    }
    progress.finish(records.len() as u64);
    if !progress.is_enabled() {
        print("..done\n")?;
    }
    let report = figures::report(options, &outcome, &records);
    print(&match &options.html {
        Some(attributes) => report::ab::html(&report, attributes),
        None => report::ab::text(&report, Shown { percentiles: options.percentiles, deviations: options.deviations }),
    })?;
    if let Err(message) = write_files(options, &report) {
        print_message(message);
        return Ok(Exit::Ab(ERROR_STATUS));
    }
    Ok(close(&outcome.document, progress.aborted()))
}

/// Prints ab's lines before the first request.
fn begin(options: &Options, progress: &ProgressLines) -> Result<()> {
    print(&output::banner(options.html.is_some()))?;
    if options.html.is_none() {
        print(&output::benchmarking(options, progress.is_enabled()))?;
    }
    // The last line may have no line feed yet, so it is flushed.
    let _ = std::io::stdout().flush();
    Ok(())
}

/// The stored requests of the run.
fn records(outcome: &Outcome) -> Result<Vec<RequestRecord>> {
    let dir = outcome.folder.as_deref().context("the run has no folder")?;
    Ok(store::read_requests(dir)?.collect::<store::Result<_>>()?)
}

/// Refuses a run of which not every request was stored: ab's figures are computed from all requests, and a part of them
/// would give a lower count and rate.
fn require_all(rows: u64, document: &Document) -> Result<(), String> {
    let load = document.load.as_ref().ok_or("there was no load")?;
    // A run of ab has no warm-up, and requests in flight at its end are aborted, so every request is in these counts.
    let ended = load.completed + load.failed.values().sum::<u64>();
    if rows == ended {
        return Ok(());
    }
    let storage_check = document.validity.checks.iter().find(|check| check.name == "records_stored");
    let why = storage_check.map(|check| format!(" ({})", plain(&check.why))).unwrap_or_default();
    Err(format!(
        "only {rows} of {ended} requests were stored, and ab's report needs all of them: no report is printed{why}; \
         yamabiko bench counts requests independently of the disk"
    ))
}

/// Writes the files of -e and -g, in ab's order. The error is ab's message.
fn write_files(options: &Options, report: &Report) -> Result<(), String> {
    let write = |file: &Path, kind: &str, text: String| {
        let why = |error: std::io::Error| without_os_error_number(&error.to_string());
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

/// Prints the failed checks of a run that is not valid, and returns the exit status. `aborted`: after ten failures.
fn close(document: &Document, aborted: bool) -> Exit {
    let validity = &document.validity;
    if validity.verdict != Verdict::Valid {
        let failed_checks = validity
            .checks
            .iter()
            .filter(|check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun))
            .map(|check| format!("{}: {}", check.name.replace('_', " "), plain(&check.why)));
        for check in failed_checks {
            print_message(format_args!("yamabiko: this measurement is {}: {check}", validity.verdict.name()));
        }
    }
    match validity.verdict {
        _ if document.run.interrupted && !aborted => Exit::Ab(ERROR_STATUS),
        Verdict::Invalid => Exit::Invalid,
        Verdict::Valid | Verdict::Suspect => Exit::Success,
    }
}

/// The run store, or, if it cannot be written, a temporary folder that is removed at the end.
struct Store {
    run_store: RunStore,
    _temporary_dir: Option<TempDir>,
}

impl Store {
    fn open() -> Result<Store> {
        let run_store = RunStore::open()?;
        let Err(error) = fs::create_dir_all(run_store.root()) else {
            return Ok(Store { run_store, _temporary_dir: None });
        };
        let why = without_os_error_number(&error.to_string());
        print_message(format_args!("yamabiko: the run is not stored: {}: {why}", run_store.root().display()));
        let folder = tempfile::tempdir().context("a temporary folder for the run")?;
        Ok(Store { run_store: RunStore::at(folder.path()), _temporary_dir: Some(folder) })
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
