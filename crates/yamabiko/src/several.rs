//! A load that several machines make, whose runs are collected and merged: shards that meet over NATS
//! ([`coordinated`]), or that this machine starts by ssh ([`hosts`]).

#[cfg(feature = "coordination")]
mod coordinated;
mod hosts;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use merge::MergeOptions;
use plan::{CoordinationOptions, Plan};
use store::RunStore;
use store::archive::{self, Import};

#[cfg(all(feature = "experiments", feature = "coordination"))]
pub use self::coordinated::search::execute_plan as search_together;
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::{self, ExecutionOptions};
use crate::verb::merge::merge_runs;

/// Executes a plan on the machines that the options name; on this one if they name none.
///
/// # Errors
/// As for one run; a load that was not started.
pub fn execute_plan(plan: &Plan, options: &ExecutionOptions<'_>, machines: &CoordinationOptions) -> Result<Exit> {
    ensure!(
        !machines.abort_on_lost || machines.coordinate.is_some() || !machines.hosts.is_empty(),
        "--abort-on-lost needs other shards: --hosts or --coordinate"
    );
    let plan = &with_owned_target(plan, machines);
    if !machines.hosts.is_empty() {
        return hosts::execute_plan(plan, options, machines);
    }
    match &machines.coordinate {
        None => bench::execute_plan(plan, options),
        #[cfg(feature = "coordination")]
        Some(url) => coordinated::execute_plan(plan, options, (url, machines.abort_on_lost)),
        #[cfg(not(feature = "coordination"))]
        Some(_) => anyhow::bail!(crate::left_out::missing("--coordinate", "coordination")),
    }
}

/// A search whose trials are made by several machines.
///
/// # Errors
/// Always: it needs a feature.
#[cfg(all(feature = "experiments", not(feature = "coordination")))]
pub fn search_together(
    _plan: &Plan,
    _options: &ExecutionOptions<'_>,
    _url: &str,
    _lead: impl FnOnce(&mut dyn capacity::search::trial_run::TrialMachines) -> Result<Exit>,
) -> Result<Exit> {
    anyhow::bail!(crate::left_out::missing("--coordinate", "coordination"))
}

/// The plan with the hosts that the user states to own.
pub fn with_owned_target(plan: &Plan, machines: &CoordinationOptions) -> Plan {
    let mut plan = plan.clone();
    plan.target.owned.extend(machines.i_own_the_target.iter().cloned());
    plan
}

/// Imports the runs in the archives and merges them with those in the folders.
fn merge_all(
    folders: Vec<PathBuf>,
    archives: &[PathBuf],
    run_store: &RunStore,
    plan: &Plan,
    options: &ExecutionOptions<'_>,
) -> Result<Exit> {
    let runs = import_all(folders, archives, run_store)?;
    ensure!(!runs.is_empty(), "no shard has a result");
    let merge_options = MergeOptions {
        name: plan.name.clone(),
        output: None,
        allow_missing: false,
        command: options.command.to_owned(),
    };
    merge_runs(&runs, run_store, &merge_options, options.json, options.strict)
        .context("merging the runs of the shards; those that were collected are stored")
}

/// The runs in the folders, and those in the archives, imported into the run store.
fn import_all(folders: Vec<PathBuf>, archives: &[PathBuf], run_store: &RunStore) -> Result<Vec<PathBuf>> {
    let mut runs = folders;
    for path in archives {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("open {name}"))?;
        let how = Import { bytes_max: None, rename: true, seed_for_letters: sys::clock::realtime_ns() };
        match archive::import(run_store, file, &name, how) {
            Ok(imported) => runs.extend(imported.into_iter().map(|run| run_store.root().join(run.id))),
            // The shard is then missing, by its name.
            Err(error) => print_message(format_args!("a received run cannot be imported: {error}")),
        }
    }
    Ok(runs)
}
