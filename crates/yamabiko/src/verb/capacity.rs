//! `yamabiko capacity`: search for the highest load that meets an objective, as a rate or as a number of users or
//! connections.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use capacity::search::{self, CapacityOptions};
use experiment::{Order, SearchProgress, Stage};
use plan::Plan;
use schema::{CapacityDocument, TrialPart, Verdict};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::{Observer, RunFacts};

use super::bench::{Doing, command_line, print};
use super::concluding::{Ending, conclude};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::progress::Display;
use crate::terminal::{self, say};

/// Runs the search as typed.
pub fn run(typed: args::Capacity) -> Result<Exit> {
    let result = &typed.result;
    let command = command_line();
    let doing = Doing {
        print_plan: result.print_plan,
        json: result.json,
        strict: result.strict,
        no_save: result.no_save,
        show: result.show.clone(),
        command: &command,
    };
    let html = typed.html.clone();
    match &typed.resume {
        None => do_plan(&typed.into_plan()?, None, &doing, html.as_ref()),
        Some(run) => {
            ensure!(
                !doing.no_save,
                "--resume continues in the run's own folder, which --no-save contradicts: omit \
                                     one of them"
            );
            let folder = RunStore::open()?.find(run)?;
            let plan = search::resumed(&folder)?;
            // The recorded command is the one that began the search.
            let begun = store::read_capacity(&folder).ok().flatten().map(|document| document.run.command);
            let doing = Doing { command: begun.as_deref().unwrap_or(doing.command), ..doing };
            do_plan(&plan, Some(folder), &doing, html.as_ref())
        }
    }
}

/// Runs the search of a plan; `resume`: folder of a search to continue.
pub fn do_plan(plan: &Plan, resume: Option<PathBuf>, doing: &Doing<'_>, html: Option<&PathBuf>) -> Result<Exit> {
    if doing.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    search::check(plan)?;
    let live = Live::start(&doing.show, !doing.no_save)?;
    let interrupts = Interrupts::install()?;
    let passing = tempfile::tempdir().context("a folder for unsaved results")?;
    let book = if doing.no_save { RunStore::at(passing.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: doing.command.to_owned(),
        started: Clock::start().started(),
    };
    if !doing.json {
        let time = Duration::from_secs(search::time(plan)?.as_secs());
        let on = if resume.is_some() { "from the start " } else { "" };
        say(format_args!(
            "{on}this takes about {}; Ctrl-C prints a partial result, and --resume continues",
            units::format_duration(time)
        ));
    }
    let unit = plan.capacity.as_ref().map_or("1/s", |capacity| capacity.find.unit());
    let mut progress = Progress { quiet: doing.json, unit, noted: false };
    let mut done =
        search::run(plan, &CapacityOptions { order, resume }, &book, &interrupts, &mut live.staging(&mut progress))?;
    let page = report::capacity_page(&done.document, &plan.to_toml());
    if doing.no_save {
        forget(&mut done.document);
    }
    let ending = Ending { folder: (!doing.no_save).then_some(done.folder.as_path()), html, json: doing.json };
    conclude(page, &ending, || show(&done.document, doing.json))?;
    Ok(exit_of(&done.document, doing.strict))
}

/// Exit status, from the checks. An objective missed above the result is what the search is for.
pub fn exit_of(document: &CapacityDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Prints a new or stored result.
pub fn show(document: &CapacityDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::capacity(document, terminal::style()))
    }
}

/// The folder of an unsaved result is not printed.
fn forget(document: &mut CapacityDocument) {
    document.run.dir.clear();
    document.run.id.clear();
    document.capacity.trials.iter_mut().for_each(|trial| trial.run.clear());
}

/// Progress on stderr.
struct Progress {
    quiet: bool,
    /// Unit of the loads.
    unit: &'static str,
    /// Notes of a trial's run were printed with the first trial.
    noted: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        let notes = !std::mem::replace(&mut self.noted, true);
        Box::new(Trial { display: Display::new(what, self.quiet), notes })
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        if !self.quiet {
            let line = report::terminal::capacity_trial(trial, so_far.bracket, self.unit);
            say(format_args!("{line}{}", left(so_far.rest)));
        }
    }
}

/// Text of the remaining time.
fn left(rest: Duration) -> String {
    match rest.as_secs() {
        0 => String::new(),
        seconds => format!("; about {} left", units::format_duration(Duration::from_secs(seconds))),
    }
}

/// Progress of one trial.
struct Trial {
    display: Display,
    notes: bool,
}

impl Observer for Trial {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut self.display)
    }

    fn started(&mut self, facts: &RunFacts) {
        let notes = if self.notes { facts.notes.clone() } else { Vec::new() };
        self.display.started(&RunFacts { notes, ..facts.clone() });
    }
}
