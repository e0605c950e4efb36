//! `yamabiko bench`: offers load to a server, through an emulated path or without one.

use std::path::Path;

use anyhow::Result;
use plan::Plan;
use store::RunStore;
use sys::signal::Interrupts;
use testbed::Outcome;

use super::explain::Explained;
use crate::args;
use crate::args::{ShowOptions, to_plan};
pub use crate::command_line::{command_line, quote};
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::several;
use crate::terminal;

/// How to execute a plan and what to print; shared by the verbs that run plans.
pub struct ExecutionOptions<'a> {
    /// Print the plan as TOML instead of executing it.
    pub print_plan: bool,
    /// Print one JSON document and nothing else.
    pub json: bool,
    /// A suspect result counts as invalid.
    pub strict: bool,
    /// Do not store the run.
    pub no_save: bool,
    /// Whether and where to serve a live page.
    pub show: ShowOptions,
    /// The command line that repeats the run.
    pub command: &'a str,
}

/// Makes the plan of the options, executes it, and prints the result.
pub fn run(bench: &args::Bench) -> Result<Exit> {
    let plan = to_plan::bench(bench)?;
    let options = ExecutionOptions {
        print_plan: bench.result.print_plan,
        json: bench.result.json,
        strict: bench.result.strict,
        no_save: bench.result.no_save,
        show: bench.result.show.clone(),
        command: &command_line(),
    };
    several::execute_plan(&plan, &options, &bench.coordination)
}

/// Executes a plan and prints its result.
pub fn execute_plan(plan: &Plan, options: &ExecutionOptions<'_>) -> Result<Exit> {
    if options.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    // This comes first, because it restarts this program with the tap's library.
    let tap_start = plan.watch.tap.then(testbed::tapping::own_start).transpose()?;
    let live = LivePage::start(&options.show, !options.no_save)?;
    let interrupts = Interrupts::install()?;
    let run_store = if options.no_save { None } else { Some(RunStore::open()?) };
    let mut display = live.observing(Display::new("", options.json));
    let outcome =
        testbed::bench_tapped(plan, tap_start, options.command, run_store.as_ref(), &interrupts, &mut display)?;
    let explained = match &outcome.folder {
        // A run that cannot be explained, as one without a complete response, still has its result.
        Some(folder) if plan.watch.keep => super::explain::of_run(folder, &outcome.document)
            .inspect(|explained| explained.store(folder))
            .inspect_err(|error| terminal::print_message(format_args!("note: not explained: {error:#}")))
            .ok(),
        _ => None,
    };
    show(&outcome, explained.as_ref(), options.json)?;
    Ok(exit::of_document(&outcome.document, options.strict))
}

/// Prints the result of a run.
pub fn show(outcome: &Outcome, explained: Option<&Explained>, json: bool) -> Result<()> {
    if json {
        let mut document = serde_json::to_value(&outcome.document)?;
        if let Some(explained) = explained {
            document["explain"] = explained.summary_json();
        }
        print(&(serde_json::to_string_pretty(&document)? + "\n"))
    } else {
        let (document, times) = (&outcome.document, Some(&outcome.response_time));
        // Only a stored run has a series of seconds.
        let run_dir = Some(&document.run.dir).filter(|dir| !dir.is_empty());
        let seconds = run_dir.map(|dir| super::report::seconds(Path::new(dir))).unwrap_or_default();
        print(&report::terminal::render_over_time(document, times, &seconds, terminal::style()))?;
        explained.map_or(Ok(()), |explained| print(&format!("\n{}", explained.text())))
    }
}

/// Writes to stdout; a closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    match terminal::write_out(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
