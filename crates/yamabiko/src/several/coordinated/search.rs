//! `capacity --coordinate`: the search runs on shard 0, and all shards make its trials.
//!
//! ```text
//!   shard 0                                             the others
//!     the search chooses a trial --- request ------------> the plan of the search with it is the trial's plan
//!     digest of the trial's plan <-- digest, ready ------- files read, names looked up
//!     a part of the load at the common start              theirs
//!     runs, merged as one <--------- runs ----------------
//!     verdict on the merged run, next trial .. until it has a result, or a shard is missing
//! ```
//!
//! Runs of the parts are in a folder of the trial that is removed with it. The merged run of a long trial is stored.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use capacity::search::trial_run::{PlannedTrial, TrialMachines, TrialRun};
use coordination::Address;
use coordination::message::Prepared;
use coordination::pipe::{Hello, ToCoordinator};
use experiment::ExperimentError;
use experiment::watchdog::ObjectiveGuard;
use merge::MergeOptions;
use plan::{Plan, ShardPlan, StartAt};
use store::RunStore;
use sys::signal::Interrupts;
use tempfile::TempDir;
use testbed::drive::progress::Snapshot;
use testbed::{Observer, TestbedError};

use super::process::Coordinator;
use super::{Collected, Reporting, ended, search_member};
use crate::exit::Exit;
use crate::several::import_all;
use crate::terminal::print_message;
use crate::verb::bench::ExecutionOptions;

/// Makes the trials of a search together with the other shards. Shard 0 calls `lead` for the search itself.
///
/// # Errors
/// As for the search; a search that was not started, with the shards that were missing.
pub fn execute_plan(
    plan: &Plan,
    options: &ExecutionOptions<'_>,
    url: &str,
    lead: impl FnOnce(&mut dyn TrialMachines) -> Result<Exit>,
) -> Result<Exit> {
    let shard = plan.shard.shard.context("--coordinate needs --shard INDEX/COUNT")?;
    ensure!(!options.no_save, "the trials of shards are stored until they are merged: omit --no-save");
    let _: Address = url.parse().map_err(|why| anyhow::anyhow!("--coordinate {url}: {why}"))?;
    let run_store = RunStore::open()?;
    std::fs::create_dir_all(run_store.root()).with_context(|| format!("mkdir {}", run_store.root().display()))?;
    let folder = tempfile::Builder::new().prefix(".coordination-").tempdir_in(run_store.root())?;
    let coordinator = Coordinator::start(Hello {
        address: url.to_owned(),
        index: shard.index,
        count: shard.count,
        plan_digest: testbed::digest_of_search(plan)?,
        version: env!("CARGO_PKG_VERSION").into(),
        is_search: true,
        abort_on_lost: true,
        prints_progress: shard.index == 0 && !options.json,
        archives: folder.path().display().to_string(),
    })?;
    if shard.index > 0 {
        return search_member::make_trials(plan, options, coordinator, &folder);
    }
    let mut trials = LedTrials { coordinator, folder, number: 0, ended: None, is_interrupted: false };
    let result = lead(&mut trials);
    trials.finish(result.as_ref().err());
    result
}

/// Trials that all shards make, led by this one.
struct LedTrials {
    coordinator: Coordinator,
    folder: TempDir,
    number: u32,
    /// Why no further trial is made.
    ended: Option<String>,
    is_interrupted: bool,
}

impl LedTrials {
    /// Reports the end of the search to the others.
    fn finish(&mut self, error: Option<&anyhow::Error>) {
        let why = match (&self.ended, error) {
            _ if self.is_interrupted => "shard 0 was interrupted".to_owned(),
            (Some(why), _) => why.clone(),
            (None, Some(error)) => format!("shard 0 failed: {error:#}"),
            (None, None) => String::new(),
        };
        self.coordinator.send(&ToCoordinator::Finish(why));
        self.coordinator.wait_for_exit();
    }

    /// Begins a trial on all shards, and waits for its start.
    fn begin(&mut self, trial: PlannedTrial<'_>) -> Result<Plan, ExperimentError> {
        let (plan, prepared) = prepare(trial.plan)?;
        self.number += 1;
        let (number, request) = (self.number, trial.variant.to_text()?);
        let folder = trial.folder.display().to_string();
        self.coordinator.send(&ToCoordinator::Trial { number, request, prepared, folder });
        let start_ns = self.coordinator.wait_for_start(trial.interrupts);
        let start_ns = start_ns.map_err(|error| ExperimentError::Plan(format!("{error:#}")))?;
        Ok(at(plan, start_ns))
    }

    /// Merges the runs of a trial; a shard whose run is missing is the last trial's end of the search.
    fn merge(
        &mut self,
        trial: PlannedTrial<'_>,
        own: PathBuf,
        collected: Collected,
        scratch: &RunStore,
    ) -> Result<TrialRun, ExperimentError> {
        if !collected.missing.is_empty() {
            let missing = collected.missing.join("; ");
            print_message(format_args!("coordination: {missing}"));
            self.ended = Some(format!("{missing}; its part of the load would be missing from every further trial"));
        }
        let folders = std::iter::once(own).chain(collected.folders).collect();
        let failed = |error: String| ExperimentError::Plan(format!("merging the runs of the shards: {error}"));
        let runs = import_all(folders, &collected.archives, scratch).map_err(|error| failed(format!("{error:#}")))?;
        let options = MergeOptions {
            name: trial.plan.name.clone(),
            output: None,
            allow_missing: false,
            command: trial.command.to_owned(),
        };
        let merged = merge::merge(&runs, trial.run_store.unwrap_or(scratch), &options);
        let merged = merged.map_err(|error| failed(error.to_string()))?;
        let (document, spans, loop_busy) = (merged.document, merged.spans, merged.loop_busy);
        Ok(TrialRun { document, spans, server_seconds: Vec::new(), loop_busy })
    }
}

impl TrialMachines for LedTrials {
    fn run(
        &mut self,
        trial: PlannedTrial<'_>,
        guard: &mut ObjectiveGuard,
    ) -> Result<Option<TrialRun>, ExperimentError> {
        if let Some(why) = &self.ended {
            return Err(ExperimentError::Plan(why.clone()));
        }
        let dir = trial_folder(&self.folder)?;
        let scratch = RunStore::at(dir.path());
        let result = self.begin(trial).and_then(|plan| {
            let mut observer = observer(guard, &mut self.coordinator, trial.interrupts);
            let outcome = testbed::bench(&plan, trial.command, Some(&scratch), trial.interrupts, &mut observer);
            Ok(outcome?)
        });
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                let why = self.coordinator.failed(&error.to_string(), trial.interrupts);
                self.is_interrupted = self.is_interrupted(trial.interrupts);
                if self.is_interrupted {
                    return Ok(None);
                }
                let error = why.map_or(error, |why| ExperimentError::Plan(format!("the trial was ended: {why}")));
                self.ended = Some(error.to_string());
                return Err(error);
            }
        };
        let own = outcome.folder.clone().unwrap_or_else(|| PathBuf::from(&outcome.document.run.dir));
        self.coordinator.send(&ToCoordinator::Ended(ended(&outcome, &own)));
        let collected = self.coordinator.collect(trial.interrupts);
        self.is_interrupted = self.is_interrupted(trial.interrupts);
        if self.is_interrupted {
            return Ok(None);
        }
        self.merge(trial, own, collected, &scratch).map(Some)
    }

    fn is_interrupted(&self, interrupts: &Interrupts) -> bool {
        self.coordinator.interrupts_of_user(interrupts) > 0
    }
}

/// The trial's plan with the hosts that permit its load, its digest, and the time that this took.
pub(super) fn prepare(plan: &Plan) -> Result<(Plan, Prepared), TestbedError> {
    let began = sys::clock::monotonic_ns();
    let (part, plan) = testbed::shard_of(plan)?;
    let took = Duration::from_nanos(sys::clock::monotonic_ns().saturating_sub(began));
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    Ok((plan, Prepared { digest: part.plan_digest, took_ms }))
}

/// The plan with its start.
pub(super) fn at(plan: Plan, start_ns: u64) -> Plan {
    Plan { shard: ShardPlan { start_at: Some(StartAt::of_unix_ns(start_ns)), ..plan.shard }, ..plan }
}

/// A folder for the runs of a trial, in that of the search.
pub(super) fn trial_folder(folder: &TempDir) -> Result<TempDir, ExperimentError> {
    let dir = tempfile::Builder::new().prefix("trial-").tempdir_in(folder.path());
    dir.map_err(ExperimentError::file(folder.path()))
}

/// Reports counts of a trial, and ends its measured phase by the leader's decision alone.
pub(super) fn observer<'a>(
    guard: &'a mut ObjectiveGuard,
    coordinator: &'a mut Coordinator,
    interrupts: &'a Interrupts,
) -> Reporting<'a, EndsTogether<'a>> {
    Reporting {
        inner: EndsTogether { guard },
        coordinator,
        interrupts,
        interrupts_before: interrupts.count(),
        reported: Duration::ZERO,
        has_reported_interrupt: false,
    }
}

/// Does not end the measured phase of one shard, which would then be shorter than those of the others. Requests that are
/// in flight after it end early where one shard alone has more of them than the objective of the whole allows.
pub(super) struct EndsTogether<'a> {
    guard: &'a mut ObjectiveGuard,
}

impl Observer for EndsTogether<'_> {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.guard)
    }

    /// The folder of a part is removed after the trial.
    fn folder(&mut self, _dir: &std::path::Path) {}

    fn enough(&mut self, _snapshot: &Snapshot) -> bool {
        false
    }
}
