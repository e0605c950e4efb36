//! Progress of all shards of a load, as the leader was told: the content of `shards.json`.
//!
//! The leader's coordinating process replaces the file once a second, for the live page of shard 0. It is not a result:
//! those are in the document of the merged run ([`crate::Document`]).

use serde::{Deserialize, Serialize};

use crate::document::ClockOffset;

/// The value of [`ShardsProgress::schema`].
pub const SHARDS_PROGRESS_SCHEMA: &str = "yamabiko.shards/1";

/// All shards of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardsProgress {
    /// [`SHARDS_PROGRESS_SCHEMA`].
    pub schema: String,
    /// The shards by number, from 0.
    pub shards: Vec<ShardProgress>,
    /// Sums over them.
    pub total: ShardsTotal,
}

/// One shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardProgress {
    /// Number of the shard, from 0.
    pub index: u32,
    /// Name of its machine; empty before it has announced itself.
    pub host: String,
    /// What it does.
    pub state: ShardState,
    /// Why it failed or left; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Requests scheduled per second, between its last two reports; absent without two recent ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// Requests completed per second, between its last two reports; absent without two recent ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved_per_s: Option<f64>,
    /// Failed requests since the run's zero, the warm-up included; absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Its response times so far; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time: Option<ShardResponseTime>,
    /// Its wall clock less the leader's, before the load; absent before it was measured, and of the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// Seconds since its last message, in whole ones; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<u64>,
}

/// Response times of a shard, of requests scheduled in the measured phase that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardResponseTime {
    /// Number of requests.
    pub count: u64,
    /// Median in ns.
    pub p50_ns: u64,
    /// 99th percentile in ns.
    pub p99_ns: u64,
}

/// Sums over shards. There are no percentiles: those of a whole do not follow from those of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardsTotal {
    /// Number of shards whose rates are known, and summed.
    pub with_rates: u32,
    /// Sum of their offered rates per second; absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// Sum of their achieved rates per second; absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved_per_s: Option<f64>,
    /// Number of shards whose failed requests are known, and summed.
    pub with_errors: u32,
    /// Failed requests, as last told; absent if none are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

/// What a shard does, as far as the leader knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardState {
    /// It has not announced itself.
    #[default]
    Absent,
    /// It measures its clock and prepares the load.
    Preparing,
    /// It waits for the others.
    Ready,
    /// It has the start and waits for it, or has not yet reported since.
    Waiting,
    /// Load is offered but not counted.
    Warmup,
    /// The measured phase.
    Measured,
    /// No more load is offered.
    Drain,
    /// Its load has ended, and its run is on the way to the leader.
    Sending,
    /// The leader has its run.
    Done,
    /// It has no result, or its run cannot be received.
    Failed,
    /// It has been silent for too long.
    Lost,
}

impl ShardState {
    /// The state in words.
    pub const fn words(self) -> &'static str {
        match self {
            ShardState::Absent => "absent",
            ShardState::Preparing => "preparing",
            ShardState::Ready => "ready",
            ShardState::Waiting => "waiting for the start",
            ShardState::Warmup => "warm-up",
            ShardState::Measured => "measuring",
            ShardState::Drain => "finishing",
            ShardState::Sending => "sending its run",
            ShardState::Done => "done",
            ShardState::Failed => "failed",
            ShardState::Lost => "lost",
        }
    }
}

impl ShardsProgress {
    /// The shards with their sums.
    pub fn of(shards: Vec<ShardProgress>) -> Self {
        let sum = |rate: fn(&ShardProgress) -> Option<f64>| shards.iter().filter_map(rate).reduce(|a, b| a + b);
        let errors = shards.iter().filter_map(|shard| shard.errors);
        let total = ShardsTotal {
            with_rates: shards.iter().filter(|shard| shard.offered_per_s.is_some()).count() as u32,
            offered_per_s: sum(|shard| shard.offered_per_s),
            achieved_per_s: sum(|shard| shard.achieved_per_s),
            with_errors: errors.clone().count() as u32,
            errors: errors.reduce(u64::saturating_add),
        };
        ShardsProgress { schema: SHARDS_PROGRESS_SCHEMA.to_owned(), shards, total }
    }
}
