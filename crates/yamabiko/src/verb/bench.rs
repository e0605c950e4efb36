//! `yamabiko bench`: offer load, through a path or not.

use std::path::Path;

use anyhow::Result;
use plan::Plan;
use store::RunStore;
use sys::signal::Interrupts;
use testbed::Outcome;

use crate::args;
use crate::args::{ShowOptions, to_plan};
pub use crate::command_line::{command_line, quote};
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::progress::Display;
use crate::terminal;

/// What to do with a plan and its result; shared by `bench` and `run`.
pub struct Doing<'a> {
    /// The plan's own text instead of its result.
    pub print_plan: bool,
    /// One JSON document and nothing else.
    pub json: bool,
    /// Suspect counts as invalid.
    pub strict: bool,
    /// Keep nothing.
    pub no_save: bool,
    /// Whether there is a page meanwhile.
    pub show: ShowOptions,
    /// The command that repeats it.
    pub command: &'a str,
}

/// Makes the plan and does it.
pub fn run(bench: &args::Bench) -> Result<Exit> {
    let plan = to_plan::bench(bench)?;
    do_plan(
        &plan,
        &Doing {
            print_plan: bench.result.print_plan,
            json: bench.result.json,
            strict: bench.result.strict,
            no_save: bench.result.no_save,
            show: bench.result.show.clone(),
            command: &command_line(),
        },
    )
}

/// Does a plan and prints its result.
pub fn do_plan(plan: &Plan, doing: &Doing<'_>) -> Result<Exit> {
    if doing.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    // First: it starts this program again, from its beginning.
    let own = plan.watch.tap.then(testbed::tapping::own_start).transpose()?;
    let live = Live::start(&doing.show, !doing.no_save)?;
    let interrupts = Interrupts::install()?;
    let book = if doing.no_save { None } else { Some(RunStore::open()?) };
    let mut display = live.observing(Display::new("", doing.json));
    let outcome = testbed::bench_tapped(plan, own, doing.command, book.as_ref(), &interrupts, &mut display)?;
    show(&outcome, doing.json)?;
    Ok(exit::of_document(&outcome.document, doing.strict))
}

fn show(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(&outcome.document)? + "\n"))
    } else {
        let (document, times) = (&outcome.document, Some(&outcome.response_time));
        // Of what was not kept the seconds are gone.
        let kept = Some(&document.run.dir).filter(|dir| !dir.is_empty());
        let seconds = kept.map(|dir| super::report::seconds(Path::new(dir))).unwrap_or_default();
        print(&report::terminal::render_over_time(document, times, &seconds, terminal::style()))
    }
}

/// Writes to stdout; a reader that has gone away (`| head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    match terminal::write_out(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
