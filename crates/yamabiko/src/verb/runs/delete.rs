//! `yamabiko runs delete`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Result, bail};
use report::figures;
use store::{RunEntry, RunState, RunStore};

use super::name;
use crate::args::Delete;
use crate::exit::Exit;
use crate::terminal::say;

/// Says what would go, asks, and removes it.
pub fn run(book: &RunStore, delete: &Delete) -> Result<Exit> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for asked in &delete.runs {
        let dir = book.find(asked)?;
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    let listing = book.listing()?;
    let chosen: BTreeSet<String> = dirs.iter().map(|dir| name(dir)).collect();
    let trials = trials(&listing.entries, &chosen);
    if delete.trials {
        dirs.extend(trials.iter().map(|entry| entry.dir.clone()));
    }
    // All of them or none: what is refused is refused before anything goes.
    for dir in &dirs {
        store::removable(book, dir)?;
    }
    if !delete.yes && !io::stdin().is_terminal() {
        bail!("cannot ask for confirmation, as standard input is not a terminal; --yes deletes without asking");
    }
    for dir in &dirs {
        let id = name(dir);
        say(format_args!("{id}  {}", figures::bytes(store::disk_use(dir)?.bytes)));
        let run = listing.entries.iter().find(|entry| entry.id == id);
        let makers = listing.entries.iter().filter(|entry| run.is_some_and(|run| made(entry, run)));
        for suite in makers.filter(|entry| !chosen.contains(&entry.id)) {
            say(format_args!("  {} refers to this run, which it made", figures::plain(&suite.id)));
        }
    }
    if !delete.trials && !trials.is_empty() {
        let ids: Vec<String> = trials.iter().take(SHOWN).map(|entry| figures::plain(&entry.id)).collect();
        let more = if trials.len() > SHOWN { format!(", and {} more", trials.len() - SHOWN) } else { String::new() };
        say(format_args!(
            "{} made on the way stay ({}{more}); --trials removes them too",
            runs(trials.len()),
            ids.join(", ")
        ));
    }
    if !delete.yes && !agreed(dirs.len())? {
        say("nothing was deleted");
        return Ok(Exit::Success);
    }
    for (at, dir) in dirs.iter().enumerate() {
        store::remove(book, dir).inspect_err(|_| {
            if at > 0 {
                say(format_args!("{} of {} deleted", at, runs(dirs.len())));
            }
        })?;
    }
    say(format_args!("{} deleted", runs(dirs.len())));
    Ok(Exit::Success)
}

/// Runs that the chosen ones made on their way, without those that are chosen themselves.
fn trials<'a>(entries: &'a [RunEntry], chosen: &BTreeSet<String>) -> Vec<&'a RunEntry> {
    let suites: Vec<&RunEntry> = entries.iter().filter(|entry| chosen.contains(&entry.id)).collect();
    let of_them = |entry: &&RunEntry| !chosen.contains(&entry.id) && suites.iter().any(|suite| made(suite, entry));
    entries.iter().filter(of_them).collect()
}

/// Whether a suite made a run on its way: it is of a verb that makes runs, names it, was begun before it, and came into this book as
/// it did: both were made here, or both came with one archive. (Runs that were only compared are older than the comparison. A
/// document from elsewhere may name what it likes.)
fn made(suite: &RunEntry, run: &RunEntry) -> bool {
    let moment = |id: &str| id.get(..MOMENT).unwrap_or_default().to_owned();
    let names = |brief: &store::Brief| MAKERS.contains(&brief.verb()) && brief.names.contains(&run.id);
    matches!(&suite.state, RunState::Finished(brief) if names(brief))
        && moment(&suite.id) <= moment(&run.id)
        && store::imported_with(&suite.dir) == store::imported_with(&run.dir)
}

/// Asks on the terminal.
fn agreed(count: usize) -> Result<bool> {
    say(format_args!("delete {} permanently? [y/N] ", runs(count)));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// Verbs whose runs make others.
const MAKERS: [&str; 8] = ["cache", "capacity", "compare", "demo", "gateway", "predict", "reproduce", "run"];
/// Length of `yyyymmdd-hhmmss` at the front of a run's name.
const MOMENT: usize = 15;
const SHOWN: usize = 5;
