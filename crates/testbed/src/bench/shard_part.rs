//! The part of a load that this run makes (`--shard`): what identifies the whole, and the state that `yamabiko merge`
//! needs.

use std::fmt::Write as _;
use std::io;

use path::PathSpec;
use ring::digest::{SHA256, digest};
use schema::document;

use super::collect::Ended;
use super::document::Counted;
use super::evidence;
use crate::error::TestbedError;
use crate::recorder::Counting;
use crate::shard_state::{self, Facts, PathHistograms};
use crate::wall_clock;
use plan::{HostPlan, Plan, ShardPlan};

/// The part that the plan describes; `None` for a whole load. `path`: the plan's path with its files read.
///
/// # Errors
/// A path that cannot be divided, or a file of the plan that cannot be read.
pub(super) fn of(plan: &Plan, path: Option<&PathSpec>) -> Result<Option<document::Shard>, TestbedError> {
    let (Some(shard), Some(start_at)) = (plan.shard.shard, plan.shard.start_at) else { return Ok(None) };
    plan.shard.check_clients(plan).map_err(TestbedError::Plan)?;
    if path.is_some_and(|path| !path.shared.is_empty()) {
        return Err(TestbedError::Plan(format!(
            "shard = \"{shard}\" (--shard): the profile has a link that clients share, which several machines cannot \
             emulate together: expected a profile with each client's own links alone"
        )));
    }
    Ok(Some(document::Shard {
        index: shard.index,
        count: shard.count,
        plan_digest: plan_digest(plan, path)?,
        version: env!("CARGO_PKG_VERSION").into(),
        start_at: start_at.to_string(),
        arrivals_of_all: None,
        clock: wall_clock::read(),
    }))
}

/// SHA-256 of everything that the load of all shards follows from, in hexadecimal. Names of files do not count, their
/// contents do; nor do the run's name and the settings of this machine.
pub(super) fn plan_digest(plan: &Plan, path: Option<&PathSpec>) -> Result<String, TestbedError> {
    let mut plan = plan.clone();
    (plan.name, plan.host, plan.shard) = ("run".into(), HostPlan::default(), ShardPlan::default());
    plan.target.owned.clear();
    for file in plan.load.files_mut() {
        let content =
            std::fs::read(&*file).map_err(|error| TestbedError::Plan(format!("read {}: {error}", file.display())))?;
        *file = hexadecimal(digest(&SHA256, &content).as_ref()).into();
    }
    plan.path = None;
    // The links themselves, with the contents of the profile's files.
    let text = format!("{}\n{path:?}", plan.to_toml());
    Ok(hexadecimal(digest(&SHA256, text.as_bytes()).as_ref()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The counts of a part before they become figures, as stored; `None` for a whole load.
pub(super) fn encoded_counts(ended: &mut Ended<'_>, counting: &mut Counting) -> Option<io::Result<Vec<u8>>> {
    ended.resolved.shard.as_ref()?;
    counting.delays.settle();
    let path = ended.path.as_ref().map(|path| PathHistograms::of(path.timing_errors()));
    Some(shard_state::encode_counts(counting, &ended.samples.take().unwrap_or_default(), path.as_ref()))
}

/// Stores the state of a part. The run is complete without it, but cannot be merged.
///
/// # Errors
/// The text for a person.
pub(super) fn store(ended: &Ended<'_>, counted: &Counted) -> Result<(), String> {
    let (Some(counts), Some(folder)) = (&counted.counts, ended.folder.folder()) else { return Ok(()) };
    let counts = counts.as_ref().map_err(io::Error::to_string)?;
    let main_thread = &ended.main_thread;
    let kinds = evidence::path_kinds(ended);
    let facts = Facts {
        end: ended.shard.clone(),
        start: ended.start,
        measured: (counted.from, counted.end),
        target: ended.resolved.target.clone(),
        rtt_varies: kinds.rtt_varies,
        beyond: kinds.beyond,
        only_delays: kinds.only_delays,
        unintended_drops: evidence::lost_by_the_instrument(ended),
        table: ended.table,
        store_error: ended.store_error.clone(),
        gave_up: main_thread.gave_up,
        all_refused: main_thread.all_refused,
        interrupted: main_thread.interrupted,
    };
    shard_state::write(folder, &facts, counts).map_err(|error| error.to_string())
}
