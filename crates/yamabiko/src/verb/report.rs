//! `yamabiko report`: prints a stored run, or writes it as an HTML page, Markdown, plots, or in formats of other tools.

#[cfg_attr(not(feature = "experiments"), path = "report/without_experiments.rs")]
mod experiments;
pub mod export;

use std::path::Path;

use anyhow::{Result, bail};
use plan::Plan;
use report::run_page::{self, Sources};
use schema::{Document, SecondRecord, WatchDocument};
use store::RunStore;

use super::bench::print;
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal;

/// Prints the run. The exit status is that of the run: for an invalid run it is the same as when it was measured.
pub fn run(arguments: &args::Report) -> Result<Exit> {
    let run_store = RunStore::open()?;
    if arguments.run == "last" && run_store.list()?.is_empty() {
        bail!("no run in {} yet; `yamabiko demo` makes the first", run_store.root().display());
    }
    let dir = run_store.find(&arguments.run)?;
    if let Some(exit) = experiments::show(&dir, &run_store, arguments)? {
        return Ok(exit);
    }
    if let Some([format, file]) = arguments.export.as_deref() {
        return export::run(&dir, format, file, arguments);
    }
    if arguments.forms.any() {
        return write_page(&dir, arguments);
    }
    let document = store::read_summary(&dir)?;
    // A capture without a load or a path is printed as by `watch`.
    if document.load.is_none()
        && document.path.is_none()
        && let Some(part) = document.watch
    {
        let Document { schema, run, validity, .. } = document;
        let document = WatchDocument { schema, run, validity, watch: part };
        super::watch::show(&document, arguments.json)?;
        return Ok(exit::of_validity(&document.validity));
    }
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        let histogram = store::read_histogram(&dir, "response_time").ok();
        let seconds = seconds(&dir);
        print(&report::terminal::render_over_time(&document, histogram.as_ref(), &seconds, terminal::style()))?;
    }
    Ok(exit::of_document(&document, false))
}

/// The readable seconds of a run, for small plots. Without seconds there is no plot.
pub fn seconds(dir: &Path) -> Vec<SecondRecord> {
    store::read_series(dir).map(|rows| rows.map_while(std::result::Result::ok).collect()).unwrap_or_default()
}

/// Writes the run's page and plots, and prints their paths.
fn write_page(dir: &Path, arguments: &args::Report) -> Result<Exit> {
    let sources = sources(dir)?;
    let exit = exit::of_document(&sources.document, false);
    arguments.forms.write(run_page::page(&sources))?;
    Ok(exit)
}

/// The data of a run for its page, with the configured RTTs of its plan.
pub fn sources(dir: &Path) -> Result<Sources> {
    let mut sources = Sources::read(dir)?;
    // A user's profile may have been deleted or changed since the run: then the plot has no line for the configured
    // RTTs.
    let configured = Plan::from_toml(&sources.plan, "plan.toml").ok().and_then(|plan| {
        let clients = testbed::distances::spec(plan.path.as_ref()?, plan.load.clients).ok()?.clients;
        Some(clients.iter().map(path::ClientPath::rtt_ns).collect::<Vec<u64>>())
    });
    let matches_document = |configured: &[u64]| {
        let key = |q: &schema::Quantiles| (q.count, q.min, q.p50, q.p75, q.p90, q.p99, q.max);
        let stored = sources.document.path.as_ref().map(|path| key(&path.configured_rtt_ns));
        stored == Some(key(&stats::quantiles_of(configured)))
    };
    sources.configured_rtt_ns = configured.filter(|rtts| matches_document(rtts)).unwrap_or_default();
    Ok(sources)
}
