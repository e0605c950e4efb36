//! Merges the runs of a load's shards (`bench --shard`), made on several machines, into one run.
//!
//! ```text
//!   run of shard 0: summary.json, shard.state, tables --\
//!   run of shard 1: ..                              ------> Sources --> Sum --> document, checks --> a run's folder
//!   run of shard 2: ..                              ----/   one load?    counts   of the whole       tables side by side
//! ```
//!
//! Nothing is computed from the shards' percentiles: each run stored every count as it was ([`testbed::shard_state`]),
//! counts and histograms are added, gauges are added at each sampling time, and the figures and checks of the whole are
//! computed from the sums by the functions that compute those of one run. One shard's state is in memory at a time.

mod checks;
mod document;
mod error;
mod files;
mod path_part;
mod source;
mod sum;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use load::Span;
use schema::Document;
use stats::Histogram;
use store::{RunFolder, RunStore};

pub use self::error::MergeError;
use self::source::Sources;
use self::sum::Sum;

/// How to merge.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// Name of the merged run.
    pub name: String,
    /// Folder of the merged run, which must not exist; `None`: a new one in the run store.
    pub output: Option<PathBuf>,
    /// Whether missing shards only make the result suspect, instead of invalid.
    pub allow_missing: bool,
    /// The command, for the document.
    pub command: String,
}

/// A merged run.
#[derive(Debug)]
pub struct Merged {
    /// The document of the whole.
    pub document: Document,
    /// Response times of the measured phase.
    pub response_time: Histogram,
    /// The measured phase in spans of 100 ms; only complete ones.
    pub spans: Vec<Span>,
    /// Share of the time in which the busiest loop of any shard worked, `[0, 1]`.
    pub loop_busy: f64,
    /// The run's folder.
    pub folder: PathBuf,
}

/// Merges the runs in the folders `runs`. Shards without a result count as missing.
///
/// # Errors
/// The runs are not shards of one load, a shard is given twice, none has a result, or a file cannot be read or written.
pub fn merge(runs: &[PathBuf], run_store: &RunStore, options: &MergeOptions) -> Result<Merged, MergeError> {
    let sources = Sources::read(runs)?;
    let sum = Sum::of(&sources)?;
    let folder = create_folder(run_store, options, sources.started_at())?;
    let merged = write(&sources, sum, &folder, options);
    if merged.is_err() {
        // A folder without its summary would look like a killed run.
        let _ = std::fs::remove_dir_all(folder.path());
    }
    merged
}

fn create_folder(run_store: &RunStore, options: &MergeOptions, started: SystemTime) -> Result<RunFolder, MergeError> {
    Ok(match &options.output {
        Some(path) if path.symlink_metadata().is_ok() => return Err(MergeError::Exists(path.clone())),
        Some(path) => RunFolder::create_at(path, started)?,
        None => {
            let letters = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            run_store.create(&options.name, started, units::time::saturating_nanos(letters))?
        }
    })
}

/// Writes the merged run. Its summary is written last: a run that has one is complete.
fn write(sources: &Sources, sum: Sum, folder: &RunFolder, options: &MergeOptions) -> Result<Merged, MergeError> {
    folder.write_plan(&sources.plan.to_toml())?;
    files::place_tables(sources, folder.path())?;
    let loop_busy = sum.facts.iter().map(|facts| facts.end.health.busy_share()).fold(0.0, f64::max);
    let (document, outcome) = document::of(sources, sum, folder, options);
    files::write_figures(folder, &document, &outcome)?;
    let (response_time, spans) = (outcome.load.histograms.response_time, outcome.load.spans);
    Ok(Merged { document, response_time, spans, loop_busy, folder: Path::to_owned(folder.path()) })
}
