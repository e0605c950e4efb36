//! `yamabiko cache`: a cache measured at one rate after another.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cachebench::CachePlan;
use experiment::{Order, Stage};
use schema::{CachePoint, Document};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::Observer;

use super::bench::{Doing, command_line, print};
use super::concluding::{Ending, conclude};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::progress::Display;
use crate::terminal::{self, say};

/// Makes the sweep as typed.
pub fn run(typed: &args::ProxyCache) -> Result<Exit> {
    let result = &typed.result;
    let doing = Doing {
        print_plan: result.print_plan,
        json: result.json,
        strict: result.strict,
        no_save: result.no_save,
        show: result.show.clone(),
        command: &command_line(),
    };
    do_sweep(&typed.plan()?, &doing, result.html.as_ref())
}

/// Makes the sweep of a plan's text; `file` is where it was read.
pub fn run_plan(text: &str, file: &Path, doing: &Doing<'_>) -> Result<Exit> {
    let mut plan = CachePlan::from_toml(text, &file.display().to_string())?;
    plan.find_files_from(file.parent().unwrap_or(Path::new("")));
    cachebench::check(&plan)?;
    do_sweep(&plan, doing, None)
}

fn do_sweep(plan: &CachePlan, doing: &Doing<'_>, html: Option<&PathBuf>) -> Result<Exit> {
    if doing.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = Live::start(&doing.show, !doing.no_save)?;
    let interrupts = Interrupts::install()?;
    // What is not kept must be written all the same, to be simulated: it goes with this folder.
    let passing = tempfile::tempdir().context("a folder for what is not kept")?;
    let book = if doing.no_save { RunStore::at(passing.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: doing.command.to_owned(),
        started: Clock::start().started(),
    };
    if !doing.json {
        let time = std::time::Duration::from_secs(cachebench::time(plan)?.as_secs());
        let points = match plan.cache.rates.len() {
            1 => "one point".to_owned(),
            n => format!("{n} points"),
        };
        say(format_args!("{points}; this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: doing.json };
    let mut done = cachebench::run(plan, &order, &book, &interrupts, &mut live.staging(&mut progress))?;
    let page = report::cache_page(&done.document, &plan.to_toml());
    if doing.no_save {
        forget(&mut done.document);
    }
    let ending = Ending { folder: (!doing.no_save).then_some(done.folder.as_path()), html, json: doing.json };
    conclude(page, &ending, || show(&done.document, doing.json))?;
    Ok(exit::of_document(&done.document, doing.strict))
}

/// Of what is not kept no document says where it is.
fn forget(document: &mut Document) {
    document.run.dir.clear();
    document.run.id.clear();
    let points = document.cache.iter_mut().flat_map(|part| &mut part.points);
    points.for_each(|point| point.run.clear());
}

/// Prints a sweep, now or from the book.
pub fn show(document: &Document, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::cache(document, terminal::style()))
    }
}

/// What is told of points while they are made, on stderr.
pub struct Progress {
    /// Nothing is.
    pub quiet: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        Box::new(Display::new(what, self.quiet))
    }

    fn point(&mut self, point: &CachePoint) {
        if !self.quiet {
            say(report::terminal::cache_point(point));
        }
    }

    fn step(&mut self, what: &str) {
        if !self.quiet {
            say(what);
        }
    }
}
