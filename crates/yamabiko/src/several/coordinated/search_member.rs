//! A shard other than 0 in `capacity --coordinate`: makes its part of every trial that the leader requests, and sends
//! its run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use capacity::search::trial_run::TrialVariant;
use coordination::pipe::ToCoordinator;
use plan::Plan;
use store::RunStore;
use sys::signal::Interrupts;
use tempfile::TempDir;
use testbed::{NoObserver, Outcome};

use super::process::{Coordinator, Next};
use super::search::{at, observer, prepare, trial_folder};
use super::{NotStarted, ended};
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::ExecutionOptions;

/// Makes trials until the leader ends the search.
///
/// # Errors
/// The leader refused this shard, or no leader came; a trial cannot be made.
pub fn make_trials(
    plan: &Plan,
    options: &ExecutionOptions<'_>,
    coordinator: Coordinator,
    folder: &TempDir,
) -> Result<Exit> {
    ensure!(options.show.live.is_none(), "--live: the page of a search is that of shard 0");
    let interrupts = Interrupts::install()?;
    let program = std::env::current_exe().context("the path of this program")?;
    let mut member = SearchShard { plan, options, coordinator, folder, program, interrupts, made: 0, last: None };
    loop {
        match member.coordinator.next_trial(&member.interrupts) {
            Next::Trial { number, request } => {
                if let Some(why) = member.make(number, &request)? {
                    return Ok(member.ended_early(&why));
                }
            }
            Next::Finished(why) if why.is_empty() => {
                member.note(&format!("the search is complete after {} trials; shard 0 has its result", member.made));
                return Ok(Exit::Success);
            }
            Next::Finished(why) if member.made == 0 => bail!("the search was not started: {why}"),
            Next::Finished(why) => return Ok(member.ended_early(&why)),
        }
    }
}

struct SearchShard<'a> {
    plan: &'a Plan,
    options: &'a ExecutionOptions<'a>,
    coordinator: Coordinator,
    folder: &'a TempDir,
    program: PathBuf,
    interrupts: Interrupts,
    made: u32,
    /// The last trial's run: a leader that shares the file system reads it until the next trial begins.
    last: Option<TempDir>,
}

impl SearchShard<'_> {
    /// Makes this shard's part of a trial; why the others ended the search, if they did.
    fn make(&mut self, number: u32, request: &str) -> Result<Option<String>> {
        self.last = None;
        let dir = trial_folder(self.folder)?;
        let (outcome, what) = match self.run(request, dir.path()) {
            Ok(made) => made,
            Err(error) => {
                let had_start = self.coordinator.has_start();
                let by_others = self.coordinator.failed(&format!("{error:#}"), &self.interrupts);
                if had_start {
                    // The leader ends the search, by this shard's name.
                    let _ = self.coordinator.next_trial(&self.interrupts);
                }
                let why = by_others.or_else(|| Some(error.downcast_ref::<NotStarted>()?.0.clone()));
                return match why {
                    Some(why) if self.made > 0 => Ok(Some(why)),
                    Some(why) if had_start => Err(error.context(format!("the trial was ended: {why}"))),
                    _ => Err(error),
                };
            }
        };
        let own = outcome.folder.clone().unwrap_or_else(|| PathBuf::from(&outcome.document.run.dir));
        self.coordinator.send(&ToCoordinator::Ended(ended(&outcome, &own)));
        let collected = self.coordinator.collect(&self.interrupts);
        self.made += 1;
        self.last = Some(dir);
        self.note(&format!("trial {number}: {}", line(&outcome, &what)));
        for what in &collected.missing {
            print_message(format_args!("coordination: {what}"));
        }
        if self.coordinator.interrupts_of_user(&self.interrupts) > 0 {
            self.coordinator.send(&ToCoordinator::Interrupted);
        }
        Ok(None)
    }

    /// Reports a search that another shard ended.
    fn ended_early(&self, why: &str) -> Exit {
        print_message(format_args!("the search was ended after {} trials: {why}", self.made));
        Exit::Invalid
    }

    /// Prepares the trial, waits for its start and makes the load; with the trial in words.
    fn run(&mut self, request: &str, dir: &Path) -> Result<(Outcome, String)> {
        let variant = TrialVariant::from_text(request)?;
        let (plan, prepared) = prepare(&variant.plan(self.plan, &self.program)?)?;
        self.coordinator.send(&ToCoordinator::Prepared(prepared));
        let plan = at(plan, self.coordinator.wait_for_start(&self.interrupts)?);
        let mut guard = variant.guard(self.plan, Box::new(NoObserver))?;
        let mut observer = observer(&mut guard, &mut self.coordinator, &self.interrupts);
        let store = RunStore::at(dir);
        let outcome = testbed::bench(&plan, self.options.command, Some(&store), &self.interrupts, &mut observer)?;
        Ok((outcome, variant.words()))
    }

    fn note(&self, text: &str) {
        if !self.options.json {
            print_message(format_args!("{text}"));
        }
    }
}

/// A trial of this shard on one line.
fn line(outcome: &Outcome, what: &str) -> String {
    let document = &outcome.document;
    let (offered, completed, failed) = document
        .load
        .as_ref()
        .map_or((0, 0, 0), |load| (load.offered_requests, load.completed, load.failed.values().sum::<u64>()));
    let interrupted = if document.run.interrupted { ", interrupted" } else { "" };
    format!("{what}; this shard offered {offered} requests, {completed} completed, {failed} failed{interrupted}")
}
