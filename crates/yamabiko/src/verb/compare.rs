//! `yamabiko compare`: two stored runs, or two servers with interleaved runs.

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
use super::concluding::{Ending, conclude};
use crate::args;
use crate::args::Comparison;
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::page_file;
use crate::progress::Display;
use crate::terminal::{self, say};

/// Runs the comparison as typed.
pub fn run(typed: args::Compare) -> Result<Exit> {
    let (json, strict, no_save, different_plans) = (typed.json, typed.strict, typed.no_save, typed.different_plans);
    let [html, md] = [&typed.html, &typed.md].map(Clone::clone);
    #[cfg(feature = "export")]
    let junit = typed.junit.clone();
    let shown = typed.show.clone();
    let question = typed.question()?;
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: typed.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let comparison = typed.comparison()?;
    let passing = tempfile::tempdir().context("a folder for unsaved results")?;
    let kept = RunStore::open()?;
    let book = if no_save { RunStore::at(passing.path()) } else { kept.clone() };
    let mut named = Vec::new();
    let mut done = match comparison {
        Comparison::Runs([a, b]) => {
            ensure!(
                shown.live.is_none(),
                "--live is for two servers (--server A --server B): show stored runs with `yamabiko live RUN`"
            );
            let plan = StoredRunsPlan { a: runs::find(&kept, &a)?, b: runs::find(&kept, &b)?, different_plans };
            named = [&plan.a[..], &plan.b[..]].concat();
            runs::compare(&plan, &question, &order, &book)?
        }
        Comparison::Live(plan) => {
            let page = Live::start(&shown, !no_save)?;
            live(&plan, &question, &order, &book, json, &page)?
        }
    };
    if no_save {
        done.document.run.dir.clear();
        done.document.run.id.clear();
    }
    let page = page(&done.document, &kept, &done.folder, &named);
    if let Some(path) = &md {
        page_file::write(path, page.to_markdown().as_bytes())?;
    }
    #[cfg(feature = "export")]
    if let Some(path) = &junit {
        page_file::write(path, report::junit(&done.document, strict).as_bytes())?;
    }
    let ending = Ending { folder: (!no_save).then_some(done.folder.as_path()), html: html.as_ref(), json };
    conclude(page, &ending, || show(&done.document, json))?;
    Ok(exit_of(&done.document, strict))
}

/// The page, with the curves of runs that still exist: in the folders just given, otherwise by name in the run store or
/// next to the comparison's folder.
pub fn page(document: &CompareDocument, book: &RunStore, folder: &Path, named: &[PathBuf]) -> Page {
    let find = |id: &str| {
        let of_that_name = named.iter().find(|dir| dir.file_name().is_some_and(|name| name == id)).cloned();
        let beside = folder.parent().map(|parent| parent.join(id));
        of_that_name
            .into_iter()
            .chain([book.root().join(id)])
            .chain(beside)
            .find(|dir| dir.join("summary.json").is_file())
    };
    let plan = store::read_plan(folder).unwrap_or_default();
    report::compare_page(&CompareSources::read(document.clone(), plan, &find))
}

fn live(
    plan: &InterleavedPlan,
    question: &CompareOptions,
    order: &Order,
    book: &RunStore,
    json: bool,
    page: &Live,
) -> Result<CompareResult> {
    let interrupts = Interrupts::install()?;
    if !json {
        let [least, most] = plan.time().map(|time| Duration::from_secs(time.as_secs().max(1)));
        let time = if plan.blocks.is_fixed() {
            format!("about {}", units::format_duration(most))
        } else {
            format!("from {} to {}", units::format_duration(least), units::format_duration(most))
        };
        say(format_args!("A: {}; B: {}; this takes {time}", plan.what[0], plan.what[1]));
    }
    let mut progress = Progress { quiet: json, said: String::new() };
    Ok(compare::interleaved::run(plan, question, order, book, &interrupts, &mut page.staging(&mut progress))?)
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
    said: String,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        // Within a block only the side changes.
        let block = what.split_once(',').map_or(what, |(block, _)| block);
        if !self.quiet && block != self.said {
            self.said = block.to_owned();
            let so_far = what.split_once(" so far").and_then(|(before, _)| before.splitn(3, ", ").nth(2));
            match so_far {
                Some(so_far) => say(format_args!("{block} ({so_far} so far)")),
                None => say(block),
            }
        }
        let side = what.split(", ").nth(1).unwrap_or_default();
        Box::new(Display::new(&format!("{block} {side}"), self.quiet))
    }
}
