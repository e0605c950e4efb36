//! `yamabiko disk`: how fast a folder's storage reads, writes and commits.

use std::fs;

use anyhow::{Context, Result};
use disk::Trial;
use experiment::Order;
use schema::DiskDocument;
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::bench::{command_line, print};
use super::concluding::{Ending, conclude};
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal::{self, say};

/// Measures it as typed.
pub fn run(typed: &args::Disk) -> Result<Exit> {
    let plan = typed.plan();
    let interrupts = Interrupts::install()?;
    let passing = tempfile::tempdir().context("a folder for what is not kept")?;
    let book = if typed.no_save { RunStore::at(passing.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: typed.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let mut began = false;
    let mut tell = |test: Trial| {
        if typed.json {
            return;
        }
        if !std::mem::replace(&mut began, true) {
            let time = std::time::Duration::from_secs(plan.time().as_secs().max(1));
            say(format_args!(
                "a file of {} in {}, without a name; this takes about {}, longer on a slow disk",
                plan.size,
                plan.directory.display(),
                units::format_duration(time)
            ));
        }
        say(report::disk::about(test.name()));
    };
    let mut done = disk::run(&plan, &order, &book, &interrupts, &mut tell)?;
    if typed.no_save {
        done.document.run.dir.clear();
        done.document.run.id.clear();
    }
    let plan = fs::read_to_string(done.folder.join("plan.toml")).unwrap_or_default();
    let page = report::disk_page(&done.document, &plan);
    let ending = Ending {
        folder: (!typed.no_save).then_some(done.folder.as_path()),
        html: typed.html.as_ref(),
        json: typed.json,
    };
    conclude(page, &ending, || show(&done.document, typed.json))?;
    Ok(exit_of(&done.document, typed.strict))
}

/// Its status: that of its checks.
pub fn exit_of(document: &DiskDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != schema::Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Prints what was measured, now or from the book.
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
