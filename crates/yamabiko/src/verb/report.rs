//! `yamabiko report`: prints a stored run, or writes it as an HTML page, Markdown, plots, or in formats of other tools.

pub mod export;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use plan::Plan;
use report::page::Page;
use report::run_page::{self, Sources};
use schema::{Document, ReproductionDocument, SecondRecord, WatchDocument};
use store::RunStore;

use super::bench::print;
use crate::args;
use crate::exit::{self, Exit};
use crate::page_file;
use crate::terminal;

/// Prints the run. The exit status is that of the run: for an invalid run it is the same as when it was measured.
pub fn run(arguments: &args::Report) -> Result<Exit> {
    let run_store = RunStore::open()?;
    if arguments.run == "last" && run_store.list()?.is_empty() {
        bail!("no run in {} yet; `yamabiko demo` makes the first", run_store.root().display());
    }
    let dir = run_store.find(&arguments.run)?;
    // An unfinished run has no document; reading its summary below gives the error.
    if let Ok(Some(document)) = store::read_reproduction(&dir) {
        return reproduction(&dir, &document, arguments);
    }
    if let Ok(Some(document)) = store::read_disk(&dir) {
        let no_export = format!("a disk run has no response times; the output of fio is in {}", dir.display());
        let page = |plan: &str| report::disk_page(&document, plan);
        experiment(&dir, arguments, &no_export, page, || super::disk::show(&document, arguments.json))?;
        return Ok(super::disk::exit_of(&document, false));
    }
    if let Ok(Some(document)) = store::read_gateway(&dir) {
        let page = |plan: &str| report::gateway_page(&document, plan);
        let show = || super::gateway::show(&document, arguments.json);
        experiment(&dir, arguments, "a gateway run has no response times; --json has every figure", page, show)?;
        return Ok(super::gateway::exit_of(&document, false));
    }
    if let Ok(Some(document)) = store::read_compare(&dir) {
        let no_export = "a comparison has several runs; export each stored run by its name";
        let page = |_: &str| super::compare::page(&document, &run_store, &dir, &[]);
        experiment(&dir, arguments, no_export, page, || super::compare::show(&document, arguments.json))?;
        return Ok(super::compare::exit_of(&document, false));
    }
    if let Ok(Some(document)) = store::read_capacity(&dir) {
        let no_export = "a capacity search has several runs; export each stored run by its name";
        let page = |plan: &str| report::capacity_page(&document, plan);
        experiment(&dir, arguments, no_export, page, || super::capacity::show(&document, arguments.json))?;
        return Ok(super::capacity::exit_of(&document, false));
    }
    if let Ok(Some(document)) = store::read_predict(&dir) {
        let no_export = "the loads of a prediction are not stored as runs, so there is nothing to export";
        let page = |plan: &str| report::predict_page(&document, plan);
        experiment(&dir, arguments, no_export, page, || super::predict::show(&document, arguments.json))?;
        return Ok(super::predict::exit_of(&document, false));
    }
    if let Ok(document) = store::read_summary(&dir)
        && document.load.is_none()
        && document.cache.is_some()
    {
        let no_export = "a sweep has several runs; export each stored run by its name";
        let page = |plan: &str| report::cache_page(&document, plan);
        experiment(&dir, arguments, no_export, page, || super::cache::show(&document, arguments.json))?;
        return Ok(exit::of_document(&document, false));
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

/// Prints the rows of a reproduction, or writes the page that was stored with it.
fn reproduction(dir: &Path, document: &ReproductionDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a reproduction is several runs; each of them is stored, and is exported by its name"
    );
    ensure!(
        arguments.forms.svg.is_none(),
        "--svg: a reproduction's plots are on its page (--html); each of its runs has its own"
    );
    if arguments.forms.md.is_some() {
        let md = args::PageForms { md: arguments.forms.md.clone(), ..args::PageForms::default() };
        md.write(super::reproduce::rows_page(document))?;
    }
    match &arguments.forms.html {
        None if arguments.forms.md.is_some() => {}
        None => super::reproduce::show(document, arguments.json)?,
        Some(path) => {
            let page = dir.join(super::result_page::PAGE);
            let html = fs::read(&page).with_context(|| format!("reading {}", page.display()))?;
            page_file::write(path, &html)?;
            print(&(page_file::url(path) + "\n"))?;
        }
    }
    Ok(exit::of_validity(&document.validity))
}

/// Prints the result of an experiment of several runs, or writes its page or plots. `no_export` is the reason why it
/// cannot be exported.
fn experiment(
    dir: &Path,
    arguments: &args::Report,
    no_export: &str,
    page: impl FnOnce(&str) -> Page,
    show: impl FnOnce() -> Result<()>,
) -> Result<()> {
    ensure!(arguments.export.is_none(), "--export: {no_export}");
    if !arguments.forms.any() {
        return show();
    }
    let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
    arguments.forms.write(page(&plan))
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
