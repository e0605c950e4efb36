//! `yamabiko report`: a run from the book, printed again, or as a page, or as plots.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use lab::plan::Plan;
use ledger::{
    CapacityDocument, DiskDocument, Document, GatewayDocument, PredictDocument, ReproductionDocument, WatchDocument,
};
use report::page::Page;
use report::run_page::{self, Sources};
use store::Book;

use super::bench::print;
use crate::args;
use crate::exit::{self, Exit};
use crate::page_file;
use crate::terminal;

/// Prints the run. The exit status is the run's own: a script that reads an invalid run again is told again.
pub fn run(arguments: &args::Report) -> Result<Exit> {
    let book = Book::open()?;
    if arguments.run == "last" && book.list()?.is_empty() {
        bail!("there is no run in {} yet; `yamabiko demo` makes the first", book.root().display());
    }
    let dir = book.find(&arguments.run)?;
    // One that did not end has no document; what can be read instead is said below.
    if let Ok(Some(document)) = store::read_reproduction(&dir) {
        return reproduction(&dir, &document, arguments);
    }
    if let Ok(Some(document)) = store::read_disk(&dir) {
        return disk(&dir, &document, arguments);
    }
    if let Ok(Some(document)) = store::read_gateway(&dir) {
        return gateway(&dir, &document, arguments);
    }
    if let Ok(Some(document)) = store::read_compare(&dir) {
        ensure!(
            arguments.export.is_none() && arguments.svg.is_none() && arguments.html.is_none(),
            "a comparison is printed as a table or as JSON; there is no page of it yet"
        );
        super::compare::show(&document, arguments.json)?;
        return Ok(super::compare::exit_of(&document, false));
    }
    if let Ok(Some(document)) = store::read_capacity(&dir) {
        return capacity(&dir, &document, arguments);
    }
    if let Ok(Some(document)) = store::read_predict(&dir) {
        return predict(&dir, &document, arguments);
    }
    if let Ok(document) = store::read_summary(&dir)
        && document.load.is_none()
        && document.cache.is_some()
    {
        return sweep(&dir, &document, arguments);
    }
    if let Some([format, file]) = arguments.export.as_deref() {
        return export(&dir, format, file);
    }
    if arguments.html.is_some() || arguments.svg.is_some() {
        return drawn(&dir, arguments);
    }
    let document = store::read_summary(&dir)?;
    // A capture of its own, without a load or a path, has a screen of its own.
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
        print(&report::terminal::render(&document, histogram.as_ref(), terminal::style()))?;
    }
    Ok(exit::of_document(&document, false))
}

/// Response times as another tool reads them.
fn export(dir: &Path, format: &str, file: &str) -> Result<Exit> {
    let document = store::read_summary(dir)?;
    let text = match format {
        "fortio" => {
            let histogram = store::read_histogram(dir, "response_time")?;
            let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
            // A plan of a later version may not be readable; its URL is only a title there.
            let url = Plan::from_toml(&plan, "plan.toml").map(|plan| plan.load.url).unwrap_or_default();
            report::fortio(&document, &histogram, &url).context("the run has no load, so there is nothing to export")?
        }
        "hlog" => {
            let log = dir.join("response_time.hlog");
            fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?
        }
        other => bail!("--export {other}: there are fortio and hlog"),
    };
    match file {
        "-" => print(&text)?,
        path => page_file::write(Path::new(path), text.as_bytes())?,
    }
    Ok(exit::of_document(&document, false))
}

/// A reproduction: its rows, or the page that was made with it.
fn reproduction(dir: &Path, document: &ReproductionDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a reproduction is several runs; each of them is in the book, and is exported by its name"
    );
    ensure!(
        arguments.svg.is_none(),
        "--svg: a reproduction's plots are on its page (--html); each of its runs has its own"
    );
    match &arguments.html {
        None => super::reproduce::show(document, arguments.json)?,
        Some(path) => {
            let page = dir.join(super::reproduce::PAGE);
            let html = fs::read(&page).with_context(|| format!("reading {}", page.display()))?;
            page_file::write(path, &html)?;
            print(&(page_file::url(path) + "\n"))?;
        }
    }
    Ok(exit::of_validity(&document.validity))
}

/// Storage: its tests, or their page, or its plots.
fn disk(dir: &Path, document: &DiskDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a disk has no response times; fio's own answers are beside its document, in {}",
        dir.display()
    );
    if arguments.html.is_none() && arguments.svg.is_none() {
        super::disk::show(document, arguments.json)?;
    } else {
        let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
        write_page(report::disk_page(document, &plan), arguments)?;
    }
    Ok(super::disk::exit_of(document, false))
}

/// A capacity: its trials, or its page, or its plots.
fn capacity(dir: &Path, document: &CapacityDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a capacity is several runs; the long ones are in the book, and are exported by their names"
    );
    if arguments.html.is_none() && arguments.svg.is_none() {
        super::capacity::show(document, arguments.json)?;
    } else {
        let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
        write_page(report::capacity_page(document, &plan), arguments)?;
    }
    Ok(super::capacity::exit_of(document, false))
}

/// A prediction: its figures, or its page, or its plots.
fn predict(dir: &Path, document: &PredictDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a prediction's loads are not kept as runs, and it has no response times of its own"
    );
    if arguments.html.is_none() && arguments.svg.is_none() {
        super::predict::show(document, arguments.json)?;
    } else {
        let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
        write_page(report::predict_page(document, &plan), arguments)?;
    }
    Ok(super::predict::exit_of(document, false))
}

/// A gateway: its figures, or their page, or its plots.
fn gateway(dir: &Path, document: &GatewayDocument, arguments: &args::Report) -> Result<Exit> {
    ensure!(arguments.export.is_none(), "--export: a gateway has no response times; --json has every figure");
    if arguments.html.is_none() && arguments.svg.is_none() {
        super::gateway::show(document, arguments.json)?;
    } else {
        let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
        write_page(report::gateway_page(document, &plan), arguments)?;
    }
    Ok(super::gateway::exit_of(document, false))
}

/// A sweep against a cache: its points, or its page, or its plots.
fn sweep(dir: &Path, document: &Document, arguments: &args::Report) -> Result<Exit> {
    ensure!(
        arguments.export.is_none(),
        "--export: a sweep is several runs; each of them is in the book, and is exported by its name"
    );
    if arguments.html.is_none() && arguments.svg.is_none() {
        super::cache::show(document, arguments.json)?;
    } else {
        let plan = fs::read_to_string(dir.join("plan.toml")).unwrap_or_default();
        write_page(report::cache_page(document, &plan), arguments)?;
    }
    Ok(exit::of_document(document, false))
}

/// The page and the plots; what is printed is where they are.
fn drawn(dir: &Path, arguments: &args::Report) -> Result<Exit> {
    let sources = sources(dir)?;
    let exit = exit::of_document(&sources.document, false);
    write_page(run_page::page(&sources), arguments)?;
    Ok(exit)
}

/// Writes a page and its plots where they are wanted.
fn write_page(page: Page, arguments: &args::Report) -> Result<()> {
    if let Some(folder) = &arguments.svg {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut names = BTreeSet::new();
        for figure in page.figures() {
            let path = folder.join(page_file::name_of(figure.title(), &mut names));
            page_file::write(&path, figure.standalone().as_bytes())?;
            print(&format!("{}\n", path.display()))?;
        }
    }
    if let Some(path) = &arguments.html {
        let html = page.into_html();
        if path == Path::new("-") {
            print(&html)?;
        } else {
            page_file::write(path, html.as_bytes())?;
            print(&(page_file::url(path) + "\n"))?;
        }
    }
    Ok(())
}

/// A run as a page needs it, with what its plan asked of the path.
pub fn sources(dir: &Path) -> Result<Sources> {
    let mut sources = Sources::read(dir)?;
    // A profile of the user's own may be gone or changed since: then the plot has no line for what was asked.
    let asked = Plan::from_toml(&sources.plan, "plan.toml").ok().and_then(|plan| {
        let clients = lab::distances::spec(plan.path.as_ref()?, plan.load.clients).ok()?.clients;
        Some(
            clients.iter().map(|client| u64::try_from(client.rtt().as_nanos()).unwrap_or(u64::MAX)).collect::<Vec<_>>(),
        )
    });
    let matches = |asked: &[u64]| {
        let key = |q: &ledger::Quantiles| (q.count, q.min, q.p50, q.p75, q.p90, q.p99, q.max);
        let kept = sources.document.path.as_ref().map(|path| key(&path.asked_rtt_ns));
        kept == Some(key(&stats::quantiles_of(asked)))
    };
    sources.asked_rtt_ns = asked.filter(|asked| matches(asked)).unwrap_or_default();
    Ok(sources)
}
