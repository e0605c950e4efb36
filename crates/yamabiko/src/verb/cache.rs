//! `yamabiko cache`: measures a proxy cache at one rate after another.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cachebench::CachePlan;
use experiment::{Order, Stage};
use schema::{CachePoint, Document};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::Observer;

use super::bench::{ExecutionOptions, command_line, print};
use super::result_page::{Output, write_and_print};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::terminal::{self, print_message};

/// Measures the sweep of the given options.
pub fn run(arguments: &args::ProxyCache) -> Result<Exit> {
    let result = &arguments.result;
    let options = ExecutionOptions {
        print_plan: result.print_plan,
        json: result.json,
        strict: result.strict,
        no_save: result.no_save,
        show: result.show.clone(),
        command: &command_line(),
    };
    execute_sweep(&arguments.plan()?, &options, result.html.as_ref())
}

/// Measures the sweep of a plan; `text` is the plan, and `file` where it was read.
pub fn run_plan(text: &str, file: &Path, options: &ExecutionOptions<'_>) -> Result<Exit> {
    let mut plan = CachePlan::from_toml(text, &file.display().to_string())?;
    plan.find_files_from(file.parent().unwrap_or(Path::new("")));
    cachebench::check(&plan)?;
    execute_sweep(&plan, options, None)
}

fn execute_sweep(plan: &CachePlan, options: &ExecutionOptions<'_>, html: Option<&PathBuf>) -> Result<Exit> {
    if options.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = LivePage::start(&options.show, !options.no_save)?;
    let interrupts = Interrupts::install()?;
    // An unsaved run is stored in a temporary folder, since the simulated cache reads its tables.
    let temporary_dir = tempfile::tempdir().context("a folder for unsaved results")?;
    let run_store = if options.no_save { RunStore::at(temporary_dir.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: options.command.to_owned(),
        started: Clock::start().started(),
    };
    if !options.json {
        let time = std::time::Duration::from_secs(cachebench::time(plan)?.as_secs());
        let points = match plan.cache.rates.len() {
            1 => "one point".to_owned(),
            n => format!("{n} points"),
        };
        print_message(format_args!("{points}; this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: options.json };
    let mut measured = cachebench::run(plan, &order, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    let page = report::cache_page(&measured.document, &plan.to_toml());
    if options.no_save {
        clear_run_ids(&mut measured.document);
    }
    let output = Output { folder: (!options.no_save).then_some(measured.folder.as_path()), html, json: options.json };
    write_and_print(page, &output, || show(&measured.document, options.json))?;
    Ok(exit::of_document(&measured.document, options.strict))
}

/// Removes the paths and IDs of unsaved runs from a document.
fn clear_run_ids(document: &mut Document) {
    document.run.dir.clear();
    document.run.id.clear();
    let points = document.cache.iter_mut().flat_map(|part| &mut part.points);
    points.for_each(|point| point.run.clear());
}

/// Prints a new or stored sweep.
pub fn show(document: &Document, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::cache(document, terminal::style()))
    }
}

/// Prints each measured point on stderr.
pub struct Progress {
    /// Print nothing.
    pub quiet: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        Box::new(Display::new(what, self.quiet))
    }

    fn point(&mut self, point: &CachePoint) {
        if !self.quiet {
            print_message(report::terminal::cache_point(point));
        }
    }

    fn step(&mut self, what: &str) {
        if !self.quiet {
            print_message(what);
        }
    }
}
