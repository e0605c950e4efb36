//! `--coordinate`: a shard whose start, end and result are coordinated with the others by a separate process.
//!
//! ```text
//!   this process                                        yamabiko coordinate
//!     starts it before anything is forked --- stdin -->   meets the others over NATS
//!     waits for the start <------------------ stdout ---  start, once all are ready
//!     counts once a second ------------------------->     leader: sums; all: sign of life
//!     SIGINT ends the load <----------------------------  abort
//!     folder of the stored run --------------------->     measures the clock again, sends the run or collects those of all
//!     leader: merges <--------------------------------    archives and folders of the others, what is missing
//! ```
//!
//! The loops of the load share neither memory nor a lock with it, and no thread of this process waits for it between
//! start and end of the load.

mod process;
#[cfg(feature = "experiments")]
pub mod search;
#[cfg(feature = "experiments")]
mod search_member;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use coordination::Address;
use coordination::message::{Ended, Progress};
use coordination::pipe::{FromCoordinator, Hello, ToCoordinator};
use plan::{Plan, ShardPlan, StartAt};
use schema::RunPhase;
use store::RunStore;
use sys::signal::Interrupts;
use testbed::drive::progress::{Phase, Snapshot};
use testbed::{Observer, Outcome, RunFacts};

use self::process::Coordinator;
use super::merge_all;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::terminal::print_message;
use crate::verb::bench::{ExecutionOptions, print, show};

/// Interval of the counts for the leader.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Executes the plan of a shard together with the others, and prints the result: the leader's is that of all shards.
///
/// # Errors
/// As for one run; a load that was not started, with the shards that were missing.
pub fn execute_plan(plan: &Plan, options: &ExecutionOptions<'_>, (url, abort_on_lost): (&str, bool)) -> Result<Exit> {
    if options.print_plan {
        let plan = Plan { shard: ShardPlan { start_at: None, ..plan.shard }, ..plan.clone() };
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let shard = plan.shard.shard.context("--coordinate needs --shard INDEX/COUNT")?;
    let _: Address = url.parse().map_err(|why| anyhow::anyhow!("--coordinate {url}: {why}"))?;
    // This comes first, because it restarts this program with the tap's library.
    let tap_start = plan.watch.tap.then(testbed::tapping::own_start).transpose()?;
    let (part, plan) = testbed::shard_of(plan)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    std::fs::create_dir_all(run_store.root()).with_context(|| format!("mkdir {}", run_store.root().display()))?;
    let archives = tempfile::Builder::new().prefix(".coordination-").tempdir_in(run_store.root())?;
    let live = LivePage::start(&options.show, true)?;
    let mut coordinator = Coordinator::start(Hello {
        address: url.to_owned(),
        index: shard.index,
        count: shard.count,
        plan_digest: part.plan_digest,
        version: part.version,
        is_search: false,
        abort_on_lost,
        prints_progress: shard.index == 0 && !options.json,
        archives: archives.path().display().to_string(),
    })?;
    let start_ns = coordinator.wait_for_start(&interrupts)?;
    let start_at = Some(StartAt::of_unix_ns(start_ns));
    let plan = Plan { shard: ShardPlan { start_at, ..plan.shard }, ..plan };
    let interrupts_before = interrupts.count();
    let mut observer = Reporting {
        inner: live.observing(Display::new("", options.json || shard.index == 0)),
        coordinator: &mut coordinator,
        interrupts: &interrupts,
        interrupts_before,
        reported: Duration::ZERO,
        has_reported_interrupt: false,
    };
    let outcome =
        testbed::bench_tapped(&plan, tap_start, options.command, Some(&run_store), &interrupts, &mut observer);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(failed(coordinator, &interrupts, error.into())),
    };
    let dir = outcome.folder.clone().unwrap_or_else(|| PathBuf::from(&outcome.document.run.dir));
    coordinator.send(&ToCoordinator::Ended(ended(&outcome, &dir)));
    if shard.index > 0 {
        show(&outcome, None, options.json)?;
    }
    let collected = coordinator.finish(&interrupts);
    for what in &collected.missing {
        print_message(format_args!("coordination: {what}"));
    }
    if shard.index > 0 {
        return Ok(exit::of_document(&outcome.document, options.strict));
    }
    let folders = std::iter::once(dir).chain(collected.folders).collect();
    merge_all(folders, &collected.archives, &run_store, &plan, options)
}

/// The error of a load without a result. An aborted start is reported before its consequences.
fn failed(mut coordinator: Coordinator, interrupts: &Interrupts, error: anyhow::Error) -> anyhow::Error {
    coordinator.send(&ToCoordinator::Failed(error.to_string()));
    let collected = coordinator.finish(interrupts);
    match collected.aborted {
        Some(why) => error.context(format!("the load of all shards was ended: {why}")),
        None => error,
    }
}

fn ended(outcome: &Outcome, dir: &Path) -> Ended {
    let run = &outcome.document.run;
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let (run, interrupted) = (run.id.clone(), run.interrupted);
    Ended { run, dir: dir.display().to_string(), interrupted, ..Ended::default() }
}

/// What the coordinating process collected.
#[derive(Debug, Default)]
pub struct Collected {
    /// Archives and folders of the other shards' runs.
    archives: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    /// What is missing, a sentence each.
    missing: Vec<String>,
    /// Why the load of all was ended early, if it was.
    aborted: Option<String>,
}

impl Collected {
    fn add(&mut self, line: FromCoordinator) {
        match line {
            FromCoordinator::Archive(path) => self.archives.push(path.into()),
            FromCoordinator::Folder(path) => self.folders.push(path.into()),
            FromCoordinator::Done(missing) => self.missing.extend(missing),
            FromCoordinator::NotStarted(why) | FromCoordinator::Abort(why) => {
                self.aborted.get_or_insert(why);
            }
            FromCoordinator::Finished(why) if !why.is_empty() => self.missing.push(why),
            FromCoordinator::Start(_) | FromCoordinator::Trial { .. } | FromCoordinator::Finished(_) => {}
        }
    }
}

/// Reports counts to the coordinating process.
struct Reporting<'a, O> {
    inner: O,
    coordinator: &'a mut Coordinator,
    interrupts: &'a Interrupts,
    interrupts_before: u32,
    reported: Duration,
    has_reported_interrupt: bool,
}

impl<O: Observer> Observer for Reporting<'_, O> {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut self.inner)
    }

    fn folder(&mut self, dir: &Path) {
        let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        self.coordinator.send(&ToCoordinator::Run(whole.display().to_string()));
        self.inner.folder(dir);
    }

    fn started(&mut self, facts: &RunFacts) {
        self.coordinator.restrict_to(facts.cores.as_ref());
        self.inner.started(facts);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        if self.interrupts.count() > self.interrupts_before && !self.has_reported_interrupt {
            self.has_reported_interrupt = self.coordinator.try_send(&ToCoordinator::Interrupted);
        }
        if elapsed.saturating_sub(self.reported) >= PROGRESS_INTERVAL {
            self.reported = elapsed;
            let at_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let phase = match snapshot.phase {
                Phase::Warmup => RunPhase::Warmup,
                Phase::Measured => RunPhase::Measured,
                Phase::Drain => RunPhase::Drain,
                Phase::Done => RunPhase::Done,
            };
            let Snapshot { offered, completed, failed, in_flight, .. } = *snapshot;
            let progress = Progress { at_ms, phase, offered, completed, failed, in_flight, response_time: None };
            self.coordinator.try_send(&ToCoordinator::Progress(progress));
        }
        self.inner.tick(elapsed, snapshot);
    }
}

/// A load that was not started: why, or nothing.
#[derive(Debug)]
struct NotStarted(String);

impl std::error::Error for NotStarted {}

impl fmt::Display for NotStarted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the load was not started")?;
        if self.0.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.0) }
    }
}
