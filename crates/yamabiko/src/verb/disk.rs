//! `yamabiko disk`: measures how fast a folder's storage reads, writes and commits.

use std::fs;

use anyhow::{Context, Result};
use disk::Trial;
use experiment::Order;
use schema::DiskDocument;
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::bench::{command_line, print};
use super::result_page::{Output, write_and_print};
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal::{self, print_message};

/// Measures the storage with the given options, and prints the result.
pub fn run(arguments: &args::Disk) -> Result<Exit> {
    let plan = arguments.plan();
    let interrupts = Interrupts::install()?;
    let temporary_dir = tempfile::tempdir().context("a folder for unsaved results")?;
    let run_store = if arguments.no_save { RunStore::at(temporary_dir.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: arguments.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let mut has_begun = false;
    let mut print_progress = |test: Trial| {
        if arguments.json {
            return;
        }
        if !std::mem::replace(&mut has_begun, true) {
            let time = std::time::Duration::from_secs(plan.time().as_secs().max(1));
            print_message(format_args!(
                "a file of {} in {}, without a name; this takes about {}, longer on a slow disk",
                plan.size,
                plan.directory.display(),
                units::format_duration(time)
            ));
        }
        print_message(report::disk::about(test.name()));
    };
    let mut measured = disk::run(&plan, &order, &run_store, &interrupts, &mut print_progress)?;
    if arguments.no_save {
        measured.document.run.dir.clear();
        measured.document.run.id.clear();
    }
    let plan = fs::read_to_string(measured.folder.join("plan.toml")).unwrap_or_default();
    let page = report::disk_page(&measured.document, &plan);
    let output = Output {
        folder: (!arguments.no_save).then_some(measured.folder.as_path()),
        html: arguments.html.as_ref(),
        json: arguments.json,
    };
    write_and_print(page, &output, || show(&measured.document, arguments.json))?;
    Ok(exit_of(&measured.document, arguments.strict))
}

/// The exit status of a measurement, from its validity checks.
pub fn exit_of(document: &DiskDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != schema::Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Prints the document of a measurement, new or stored.
pub fn show(document: &DiskDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::disk(document, terminal::style()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_test_has_a_name() {
        for test in Trial::ALL {
            assert_ne!(report::disk::about(test.name()), test.name());
        }
    }
}
