//! `yamabiko report` of the experiments: runs of several loads, and measurements without a load.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use report::page::Page;
use schema::ReproductionDocument;
use store::RunStore;

use super::super::bench::print;
use crate::args;
use crate::exit::{self, Exit};
use crate::page_file;

/// Prints a stored experiment, or writes its page; `None` for other runs.
pub fn show(dir: &Path, run_store: &RunStore, arguments: &args::Report) -> Result<Option<Exit>> {
    // An unfinished run has no document; reading its summary below gives the error.
    if let Ok(Some(document)) = store::read_reproduction(dir) {
        return reproduction(dir, &document, arguments).map(Some);
    }
    if let Ok(Some(document)) = store::read_disk(dir) {
        let no_export = format!("a disk run has no response times; the output of fio is in {}", dir.display());
        let page = |plan: &str| report::disk_page(&document, plan);
        experiment(dir, arguments, &no_export, page, || super::super::disk::show(&document, arguments.json))?;
        return Ok(Some(super::super::disk::exit_of(&document, false)));
    }
    if let Ok(Some(document)) = store::read_gateway(dir) {
        let page = |plan: &str| report::gateway_page(&document, plan);
        let show = || super::super::gateway::show(&document, arguments.json);
        experiment(dir, arguments, "a gateway run has no response times; --json has every figure", page, show)?;
        return Ok(Some(super::super::gateway::exit_of(&document, false)));
    }
    if let Ok(Some(document)) = store::read_compare(dir) {
        let no_export = "a comparison has several runs; export each stored run by its name";
        let page = |_: &str| super::super::compare::page(&document, run_store, dir, &[]);
        experiment(dir, arguments, no_export, page, || super::super::compare::show(&document, arguments.json))?;
        return Ok(Some(super::super::compare::exit_of(&document, false)));
    }
    if let Ok(Some(document)) = store::read_capacity(dir) {
        let no_export = "a capacity search has several runs; export each stored run by its name";
        let page = |plan: &str| report::capacity_page(&document, plan);
        experiment(dir, arguments, no_export, page, || super::super::capacity::show(&document, arguments.json))?;
        return Ok(Some(super::super::capacity::exit_of(&document, false)));
    }
    if let Ok(Some(document)) = store::read_predict(dir) {
        let no_export = "the loads of a prediction are not stored as runs, so there is nothing to export";
        let page = |plan: &str| report::predict_page(&document, plan);
        experiment(dir, arguments, no_export, page, || super::super::predict::show(&document, arguments.json))?;
        return Ok(Some(super::super::predict::exit_of(&document, false)));
    }
    if let Ok(document) = store::read_summary(dir)
        && document.load.is_none()
        && document.cache.is_some()
    {
        let no_export = "a sweep has several runs; export each stored run by its name";
        let page = |plan: &str| report::cache_page(&document, plan);
        experiment(dir, arguments, no_export, page, || super::super::cache::show(&document, arguments.json))?;
        return Ok(Some(exit::of_document(&document, false)));
    }
    Ok(None)
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
        md.write(super::super::reproduce::rows_page(document))?;
    }
    match &arguments.forms.html {
        None if arguments.forms.md.is_some() => {}
        None => super::super::reproduce::show(document, arguments.json)?,
        Some(path) => {
            let page = dir.join(super::super::result_page::PAGE);
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
