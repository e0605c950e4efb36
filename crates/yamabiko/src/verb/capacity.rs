//! `yamabiko capacity`: searches for the highest load that meets an objective, as a rate or as a number of users or
//! connections.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use capacity::search::trial_run::{ThisMachine, TrialMachines};
use capacity::search::{self, CapacityOptions};
use experiment::{Order, SearchProgress, Stage};
use plan::{CoordinationOptions, Plan, ShardPlan};
use schema::{CapacityDocument, TrialPart, Verdict};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::{Observer, RunFacts};

use super::bench::{ExecutionOptions, command_line, print};
use super::result_page::{Output, write_and_print};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::several;
use crate::terminal::{self, print_message};

/// Runs the search of the given options.
pub fn run(arguments: args::Capacity) -> Result<Exit> {
    let result = &arguments.result;
    let command = command_line();
    let options = ExecutionOptions {
        print_plan: result.print_plan,
        json: result.json,
        strict: result.strict,
        no_save: result.no_save,
        show: result.show.clone(),
        command: &command,
    };
    let html = arguments.html.clone();
    let coordination = arguments.coordination.clone();
    let shard = arguments.shard_of_search();
    match &arguments.resume {
        None => execute_plan(&arguments.into_plan()?, None, &options, (html.as_ref(), &coordination)),
        Some(run) => {
            ensure!(
                !options.no_save,
                "--resume continues in the run's own folder, which --no-save contradicts: omit \
                                     one of them"
            );
            let folder = RunStore::open()?.find(run)?;
            ensure!(
                shard.shard.is_none_or(|shard| shard.index == 0),
                "--resume continues the search of shard 0, which has its trials: give the other shards the options of \
                 the search"
            );
            let plan = Plan { shard, ..search::resumed(&folder)? };
            // The recorded command is the one that began the search.
            let original_command = store::read_capacity(&folder).ok().flatten().map(|document| document.run.command);
            let options =
                ExecutionOptions { command: original_command.as_deref().unwrap_or(options.command), ..options };
            execute_plan(&plan, Some(folder), &options, (html.as_ref(), &coordination))
        }
    }
}

/// Runs the search of a plan, on the machines that the options name; `resume`: folder of a search to continue.
pub fn execute_plan(
    plan: &Plan,
    resume: Option<PathBuf>,
    options: &ExecutionOptions<'_>,
    (html, machines): (Option<&PathBuf>, &CoordinationOptions),
) -> Result<Exit> {
    ensure!(
        machines.hosts.is_empty(),
        "--hosts makes one run on several machines, and a search for a capacity makes many: start `yamabiko capacity` on \
         each machine, with --shard INDEX/COUNT and --coordinate nats://HOST"
    );
    ensure!(
        !machines.abort_on_lost || machines.coordinate.is_some(),
        "--abort-on-lost needs other shards: --coordinate; a search always ends when one is lost"
    );
    let plan = &several::with_owned_target(plan, machines);
    if options.print_plan {
        let plan = Plan { shard: ShardPlan { start_at: None, ..plan.shard }, ..plan.clone() };
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    search::check(plan)?;
    let Some(url) = &machines.coordinate else { return lead(plan, resume, options, html, &mut ThisMachine) };
    several::search_together(plan, options, url, |machines| lead(plan, resume, options, html, machines))
}

/// Runs the search, whose trials `machines` make, and prints its result.
fn lead(
    plan: &Plan,
    resume: Option<PathBuf>,
    options: &ExecutionOptions<'_>,
    html: Option<&PathBuf>,
    machines: &mut dyn TrialMachines,
) -> Result<Exit> {
    let live = LivePage::start(&options.show, !options.no_save)?;
    let interrupts = Interrupts::install()?;
    let temporary_dir = tempfile::tempdir().context("a folder for unsaved results")?;
    let run_store = if options.no_save { RunStore::at(temporary_dir.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: options.command.to_owned(),
        started: Clock::start().started(),
    };
    if !options.json {
        let time = Duration::from_secs(search::time(plan)?.as_secs());
        let prefix = if resume.is_some() { "from the start " } else { "" };
        print_message(format_args!(
            "{prefix}this takes about {}; Ctrl-C prints a partial result, and --resume continues",
            units::format_duration(time)
        ));
    }
    let unit = plan.capacity.as_ref().map_or("1/s", |capacity| capacity.find.unit());
    let is_part = plan.shard.shard.is_some();
    let mut progress = Progress { quiet: options.json, is_part, unit, noted: false };
    let mut result_of_search = search::run(
        plan,
        &CapacityOptions { order, resume },
        &run_store,
        &interrupts,
        (machines, &mut live.staging(&mut progress)),
    )?;
    let page = report::capacity_page(&result_of_search.document, &plan.to_toml());
    if options.no_save {
        clear_run_ids(&mut result_of_search.document);
    }
    let output =
        Output { folder: (!options.no_save).then_some(result_of_search.folder.as_path()), html, json: options.json };
    write_and_print(page, &output, || show(&result_of_search.document, options.json))?;
    Ok(exit_of(&result_of_search.document, options.strict))
}

/// Exit status, from the checks. Trials that miss the objective are part of every search and do not count.
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

/// Removes the paths and IDs of unsaved runs from a document.
fn clear_run_ids(document: &mut CapacityDocument) {
    document.run.dir.clear();
    document.run.id.clear();
    document.capacity.trials.iter_mut().for_each(|trial| trial.run.clear());
}

/// Progress on stderr.
struct Progress {
    quiet: bool,
    /// Whether a run on this machine is one of several parts: progress of all is printed by the coordination.
    is_part: bool,
    /// Unit of the loads.
    unit: &'static str,
    /// Whether the notes of a run were printed, with the first trial.
    noted: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        let notes = !std::mem::replace(&mut self.noted, true);
        Box::new(Trial { display: Display::new(what, self.quiet || self.is_part), notes })
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        if !self.quiet {
            let line = report::terminal::capacity_trial(trial, so_far.bracket, self.unit);
            print_message(format_args!("{line}{}", remaining_text(so_far.rest)));
        }
    }
}

/// The remaining time as a text; empty for less than a second.
fn remaining_text(rest: Duration) -> String {
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
