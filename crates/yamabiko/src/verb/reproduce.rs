//! `yamabiko reproduce`: repeats the experiments of a paper, and compares published with measured figures.

mod directory;
mod dserver;
mod emulators;
mod gateway;
mod http3;
mod koshien;
mod transparent;

use std::path::Path;

use anyhow::{Context, Result};
use experiment::{Order, Stage};
use report::page::Page;
use schema::ReproductionDocument;
use sys::clock::Clock;
use testbed::Observer;

use super::bench::{command_line, print};
use super::result_page::{self, Output};
use crate::args;
use crate::exit::{self, Exit};
use crate::progress::Display;
use crate::terminal::{self, print_message};

/// Runs the reproduction and prints its rows.
pub fn run(reproduce: &args::Reproduce) -> Result<Exit> {
    match reproduce {
        args::Reproduce::Koshien(koshien) => koshien::run(koshien),
        args::Reproduce::Dserver(dserver) => dserver::run(dserver),
        args::Reproduce::Directory(directory) => directory::run(directory),
        args::Reproduce::Transparent(transparent) => transparent::run(transparent),
        args::Reproduce::Gateway(gateway) => gateway::run(gateway),
        args::Reproduce::Emulators(emulators) => emulators::run(emulators),
        args::Reproduce::Http3(http3) => http3::run(http3),
        args::Reproduce::EmulatorProbe(probe) => emulators::probe(&probe.probe),
    }
}

/// Options that every reproduction has.
fn order(result: &args::Reproduced) -> Result<Order> {
    Ok(Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: result.seed,
        command: command_line(),
        started: Clock::start().started(),
    })
}

/// Writes the page, prints the rows, and returns the exit status.
fn write_and_print(
    document: &ReproductionDocument,
    page: Page,
    folder: &Path,
    result: &args::Reproduced,
) -> Result<Exit> {
    let output = Output { folder: Some(folder), html: result.html.as_ref(), json: result.json };
    result_page::write_and_print(page, &output, || show(document, result.json))?;
    Ok(exit::of_validity(&document.validity))
}

/// Prints a new or stored reproduction.
pub fn show(document: &ReproductionDocument, json: bool) -> Result<()> {
    if json {
        return print(&(serde_json::to_string_pretty(document)? + "\n"));
    }
    let style = terminal::style();
    let summary = papers::summary(&document.reproduce);
    let first = (!summary.lines.is_empty()).then(|| report::terminal::table(&summary.head, &summary.lines, style));
    let more = summary.more.iter().map(|more| report::terminal::table(&more.head, &more.lines, style));
    let table = first.into_iter().chain(more).collect::<Vec<_>>().join("\n");
    // The first note describes the origin of the figures; the page has all notes.
    let notes: Vec<&str> = summary.notes.iter().chain(document.reproduce.notes.first()).map(String::as_str).collect();
    let (run, validity) = (&document.run, &document.validity);
    print(&report::terminal::judged(run, validity, &document.reproduce.answer, &table, &notes, style))
}

/// A page of the rows alone; the page with charts is written by the command and stored.
pub fn rows_page(document: &ReproductionDocument) -> Page {
    let summary = papers::summary(&document.reproduce);
    let title = if document.run.id.is_empty() { "A reproduction" } else { &document.run.id };
    report::reproduction::page_with(title, document, (&summary.head, &summary.lines), &[], Vec::new())
}

struct Progress {
    quiet: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        if !self.quiet {
            print_message(what);
        }
        Box::new(Display::new("", self.quiet))
    }
}
