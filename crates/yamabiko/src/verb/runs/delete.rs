//! `yamabiko runs delete`: deletes stored runs after a confirmation.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Result, bail};
use report::figures;
use store::{RunEntry, RunState, RunStore};

use super::name;
use crate::args::Delete;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Lists the runs to delete, asks for confirmation, and deletes them.
pub fn run(run_store: &RunStore, delete: &Delete) -> Result<Exit> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for name in &delete.runs {
        let dir = run_store.find(name)?;
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    let listing = run_store.listing()?;
    let chosen: BTreeSet<String> = dirs.iter().map(|dir| name(dir)).collect();
    let trials = trials(&listing.entries, &chosen);
    if delete.trials {
        dirs.extend(trials.iter().map(|entry| entry.dir.clone()));
    }
    // All runs are checked before the first is deleted, so that a refusal deletes none.
    for dir in &dirs {
        store::removable(run_store, dir)?;
    }
    if !delete.yes && !io::stdin().is_terminal() {
        bail!("cannot ask for confirmation, as standard input is not a terminal; --yes deletes without asking");
    }
    for dir in &dirs {
        let id = name(dir);
        print_message(format_args!("{id}  {}", figures::bytes(store::disk_use(dir)?.bytes)));
        let run = listing.entries.iter().find(|entry| entry.id == id);
        let experiments = listing.entries.iter().filter(|entry| run.is_some_and(|run| is_trial_of(run, entry)));
        for experiment in experiments.filter(|entry| !chosen.contains(&entry.id)) {
            print_message(format_args!("  {} refers to this run, which it made", figures::plain(&experiment.id)));
        }
    }
    if !delete.trials && !trials.is_empty() {
        let ids: Vec<String> = trials.iter().take(LISTED_TRIALS_MAX).map(|entry| figures::plain(&entry.id)).collect();
        let more = if trials.len() > LISTED_TRIALS_MAX {
            format!(", and {} more", trials.len() - LISTED_TRIALS_MAX)
        } else {
            String::new()
        };
        print_message(format_args!(
            "not deleted: {} that these experiments made ({}{more}); --trials deletes them too",
            runs(trials.len()),
            ids.join(", ")
        ));
    }
    if !delete.yes && !is_confirmed(dirs.len())? {
        print_message("nothing was deleted");
        return Ok(Exit::Success);
    }
    for (at, dir) in dirs.iter().enumerate() {
        store::remove(run_store, dir).inspect_err(|_| {
            if at > 0 {
                print_message(format_args!("{} of {} deleted", at, runs(dirs.len())));
            }
        })?;
    }
    print_message(format_args!("{} deleted", runs(dirs.len())));
    Ok(Exit::Success)
}

/// The trials of the chosen experiments, without runs that are chosen themselves.
fn trials<'a>(entries: &'a [RunEntry], chosen: &BTreeSet<String>) -> Vec<&'a RunEntry> {
    let experiments: Vec<&RunEntry> = entries.iter().filter(|entry| chosen.contains(&entry.id)).collect();
    let is_trial = |entry: &&RunEntry| {
        !chosen.contains(&entry.id) && experiments.iter().any(|experiment| is_trial_of(entry, experiment))
    };
    entries.iter().filter(is_trial).collect()
}

/// Whether an experiment made a run: its verb makes runs, its document names the run, it began before the run, and both
/// were measured here or imported with the same archive. (Runs that were only compared are older than the comparison.
/// An imported document may name any run.)
fn is_trial_of(run: &RunEntry, experiment: &RunEntry) -> bool {
    let names = |brief: &store::Brief| EXPERIMENT_VERBS.contains(&brief.verb()) && brief.names.contains(&run.id);
    matches!(&experiment.state, RunState::Finished(brief) if names(brief))
        && experiment.started() <= run.started()
        && store::imported_with(&experiment.dir) == store::imported_with(&run.dir)
}

/// Asks for confirmation on the terminal.
fn is_confirmed(count: usize) -> Result<bool> {
    print_message(format_args!("delete {} permanently? [y/N] ", runs(count)));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// Verbs that make several runs.
const EXPERIMENT_VERBS: [&str; 8] = ["cache", "capacity", "compare", "demo", "gateway", "predict", "reproduce", "run"];
/// Most trials listed by their IDs.
const LISTED_TRIALS_MAX: usize = 5;
