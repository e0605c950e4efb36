//! `yamabiko compare`: compares two stored runs, or two servers with interleaved runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use capacity::compare::interleaved::InterleavedPlan;
use capacity::compare::runs::{self, StoredRunsPlan};
use capacity::compare::{self, CompareOptions, CompareResult};
use experiment::{Order, Stage};
use report::CompareSources;
use report::page::Page;
use schema::CompareDocument;
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::Observer;

use super::bench::{command_line, print};
use super::result_page::{Output, write_and_print};
use crate::args;
use crate::args::Comparison;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::page_file;
use crate::progress::Display;
use crate::terminal::{self, print_message};

/// Runs the comparison of the options and prints its result.
pub fn run(arguments: args::Compare) -> Result<Exit> {
    let (json, strict, no_save, different_plans) =
        (arguments.json, arguments.strict, arguments.no_save, arguments.different_plans);
    let [html, md] = [&arguments.html, &arguments.md].map(Clone::clone);
    #[cfg(feature = "export")]
    let junit = arguments.junit.clone();
    let shown = arguments.show.clone();
    let compare_options = arguments.compare_options()?;
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: arguments.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let comparison = arguments.comparison()?;
    let temporary_dir = tempfile::tempdir().context("a folder for unsaved results")?;
    let default_store = RunStore::open()?;
    let run_store = if no_save { RunStore::at(temporary_dir.path()) } else { default_store.clone() };
    let mut named = Vec::new();
    let mut outcome = match comparison {
        Comparison::Runs([a, b]) => {
            ensure!(
                shown.live.is_none(),
                "--live is for two servers (--server A --server B): show stored runs with `yamabiko live RUN`"
            );
            let plan = StoredRunsPlan {
                a: runs::find(&default_store, &a)?,
                b: runs::find(&default_store, &b)?,
                different_plans,
            };
            named = [&plan.a[..], &plan.b[..]].concat();
            runs::compare(&plan, &compare_options, &order, &run_store)?
        }
        Comparison::Live(plan) => {
            let page = LivePage::start(&shown, !no_save)?;
            live(&plan, &compare_options, &order, &run_store, json, &page)?
        }
    };
    if no_save {
        outcome.document.run.dir.clear();
        outcome.document.run.id.clear();
    }
    let page = page(&outcome.document, &default_store, &outcome.folder, &named);
    if let Some(path) = &md {
        page_file::write(path, page.to_markdown().as_bytes())?;
    }
    #[cfg(feature = "export")]
    if let Some(path) = &junit {
        page_file::write(path, report::junit(&outcome.document, strict).as_bytes())?;
    }
    let output = Output { folder: (!no_save).then_some(outcome.folder.as_path()), html: html.as_ref(), json };
    write_and_print(page, &output, || show(&outcome.document, json))?;
    Ok(exit_of(&outcome.document, strict))
}

/// The page of a comparison, with the curves of its runs. A run is found in the folders `named`, otherwise by name in
/// the run store or next to the comparison's folder. Runs that no longer exist have no curves.
pub fn page(document: &CompareDocument, run_store: &RunStore, folder: &Path, named: &[PathBuf]) -> Page {
    let find = |id: &str| {
        let of_that_name = named.iter().find(|dir| dir.file_name().is_some_and(|name| name == id)).cloned();
        let sibling = folder.parent().map(|parent| parent.join(id));
        of_that_name
            .into_iter()
            .chain([run_store.root().join(id)])
            .chain(sibling)
            .find(|dir| dir.join("summary.json").is_file())
    };
    let plan = store::read_plan(folder).unwrap_or_default();
    report::compare_page(&CompareSources::read(document.clone(), plan, &find))
}

fn live(
    plan: &InterleavedPlan,
    compare_options: &CompareOptions,
    order: &Order,
    run_store: &RunStore,
    json: bool,
    page: &LivePage,
) -> Result<CompareResult> {
    let interrupts = Interrupts::install()?;
    if !json {
        let [shortest, longest] = plan.time().map(|time| Duration::from_secs(time.as_secs().max(1)));
        let time = if plan.blocks.is_fixed() {
            format!("about {}", units::format_duration(longest))
        } else {
            format!("from {} to {}", units::format_duration(shortest), units::format_duration(longest))
        };
        print_message(format_args!("A: {}; B: {}; this takes {time}", plan.what[0], plan.what[1]));
    }
    let mut progress = Progress { quiet: json, last_block: String::new() };
    Ok(compare::interleaved::run(
        plan,
        compare_options,
        order,
        run_store,
        &interrupts,
        &mut page.staging(&mut progress),
    )?)
}

/// Exit status: that of the checks, then that of `--fail-if`. A term without a verdict counts like an invalid
/// comparison, so that a CI check without verdicts is never green.
pub fn exit_of(document: &CompareDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != schema::Verdict::Valid => Exit::Invalid,
        Exit::Success if document.compare.fail_if.iter().any(|term| term.failed.is_none()) => Exit::Invalid,
        Exit::Success if document.compare.fail_if.iter().any(|term| term.failed == Some(true)) => Exit::ObjectiveMissed,
        exit => exit,
    }
}

/// Prints a new or stored comparison.
pub fn show(document: &CompareDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::compare(document, terminal::style()))
    }
}

/// Progress on stderr: a bar per run, and a line per block.
struct Progress {
    quiet: bool,
    last_block: String,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        // Within a block only the side (A or B) changes.
        let block = what.split_once(',').map_or(what, |(block, _)| block);
        if !self.quiet && block != self.last_block {
            self.last_block = block.to_owned();
            let so_far = what.split_once(" so far").and_then(|(before, _)| before.splitn(3, ", ").nth(2));
            match so_far {
                Some(so_far) => print_message(format_args!("{block} ({so_far} so far)")),
                None => print_message(block),
            }
        }
        let side = what.split(", ").nth(1).unwrap_or_default();
        Box::new(Display::new(&format!("{block} {side}"), self.quiet))
    }
}
