//! `yamabiko merge`: the runs of a load's shards as one run.

use std::path::PathBuf;

use anyhow::Result;
use merge::MergeOptions;
use store::RunStore;

use super::bench::{command_line, print};
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal;

/// Merges the runs and prints the result.
pub fn run(merge: &args::Merge) -> Result<Exit> {
    let run_store = RunStore::open()?;
    let runs = merge.runs.iter().map(|name| run_store.find(name)).collect::<store::Result<Vec<PathBuf>>>()?;
    let options = MergeOptions {
        name: merge.name.clone(),
        output: merge.output.clone(),
        allow_missing: merge.allow_missing,
        command: command_line(),
    };
    merge_runs(&runs, &run_store, &options, merge.json, merge.strict)
}

/// Merges the runs in these folders and prints the result.
pub fn merge_runs(
    runs: &[PathBuf],
    run_store: &RunStore,
    options: &MergeOptions,
    json: bool,
    strict: bool,
) -> Result<Exit> {
    let merged = merge::merge(runs, run_store, options)?;
    let document = &merged.document;
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))?;
    } else {
        let (times, seconds) = (Some(&merged.response_time), super::report::seconds(&merged.folder));
        print(&report::terminal::render_over_time(document, times, &seconds, terminal::style()))?;
    }
    Ok(exit::of_document(document, strict))
}
