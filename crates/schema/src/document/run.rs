//! Command, place and time of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Command, place and time of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run's folder.
    pub id: String,
    /// The run's folder; empty if not stored.
    pub dir: String,
    /// The command that repeats it.
    pub command: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Wall clock at the run's zero, RFC 3339, UTC.
    pub started_at: String,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Length of the warm-up before it in seconds (its requests are not in the results).
    pub warmup_s: f64,
    /// Whether the measured phase was cut short (Ctrl-C).
    pub interrupted: bool,
    /// Contents of the run's table of requests; absent if the run was not stored or the table is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// The machine.
    pub host: Host,
    /// The part of a load that this run made (`--shard`); absent if it made all of its load. Every figure of such a
    /// document is of this part alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The runs that `yamabiko merge` joined, by number of their shard, those missing included; absent in other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<MergedShard>,
}

/// One of several equal parts of a load, each made by a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of this part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
    /// SHA-256 of the whole load's plan: its keys, seed, path and the contents of its files, without the name, the
    /// settings of a machine and the shard. Equal for all shards of a load.
    pub plan_digest: String,
    /// Version of the program.
    pub version: String,
    /// Configured time at which the load begins, by the wall clock, RFC 3339, UTC.
    pub start_at: String,
    /// Arrivals of the whole schedule in the measured phase, those of other shards included; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals_of_all: Option<u64>,
    /// The machine's wall clock, by which the load began.
    pub clock: WallClock,
}

/// Error of a machine's wall clock before the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WallClock {
    /// The machine's boot: runs with the same one have the same clock.
    pub boot_id: String,
    /// What measured the error: `chrony`, or `kernel` (adjtimex, from the program that synchronises the clock); `null`
    /// if nothing did.
    pub source: Option<String>,
    /// Offset of the clock from its reference, positive if the clock is ahead; `null` if it was not measured.
    pub offset_ns: Option<i64>,
    /// Upper bound of the offset's magnitude; `null` if it was not measured.
    pub bound_ns: Option<u64>,
}

/// One shard's run in a merged document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MergedShard {
    /// Number of the shard, from 0.
    pub index: u32,
    /// Its run; empty if it is missing.
    pub run: String,
    /// Verdict of its own checks: `valid`, `suspect` or `invalid`; `missing` without a result.
    pub verdict: String,
    /// Names of its checks that failed or could not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// Requests it offered in the measured phase.
    pub offered_requests: u64,
    /// Its completed requests.
    pub completed: u64,
    /// Its failed requests.
    pub failed: u64,
    /// 99th percentile of its response times.
    pub response_time_p99_ns: u64,
    /// Share of the time in which its busiest loop was busy, 0 to 1.
    pub loop_busy_share: f64,
    /// Its machine; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Its wall clock; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<WallClock>,
    /// What the coordination of the shards measured of it; absent without coordination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<ShardCoordination>,
}

/// What the coordination of the shards (`--coordinate`) measured of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardCoordination {
    /// The shard's wall clock compared with that of shard 0.
    pub clock: ClockOffsets,
    /// Processor time of the shard's coordinating process, in seconds.
    pub cpu_s: f64,
    /// Length of the time in which it was used, in seconds.
    pub wall_s: f64,
}

/// A wall clock compared with another one, by round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffsets {
    /// Before the load; `null` if it was not measured.
    pub before: Option<ClockOffset>,
    /// After the load; `null` if it was not measured.
    pub after: Option<ClockOffset>,
}

/// One measurement of a clock's offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// This clock less the other one, in nanoseconds; positive if this one is ahead.
    pub offset_ns: i64,
    /// Upper bound of the measurement's error: half of the smallest round trip.
    pub bound_ns: u64,
    /// Round trips that were completed.
    pub round_trips: u32,
}

impl ClockOffset {
    /// The smallest and the largest offset that are possible, in nanoseconds.
    pub fn interval(&self) -> (i64, i64) {
        let bound = i64::try_from(self.bound_ns).unwrap_or(i64::MAX);
        (self.offset_ns.saturating_sub(bound), self.offset_ns.saturating_add(bound))
    }
}

impl ClockOffsets {
    /// The smallest and largest offset of both measurements, their errors included; `None` unless both were made. A
    /// clock that drifts evenly is within.
    pub fn interval(&self) -> Option<(i64, i64)> {
        let ((low, high), (other_low, other_high)) = (self.before?.interval(), self.after?.interval());
        Some((low.min(other_low), high.max(other_high)))
    }
}

/// Contents of the run's table of requests, `requests.parquet`. Every figure of the document is of all requests, not
/// only of those in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Rows in the table.
    pub requests: u64,
    /// Requests of the run, its warm-up and drain included.
    pub of: u64,
    /// 1: the table has every request. Above 1: it is an even sample of one request in this number, chosen by a hash of
    /// the request's number, because the disk was too slow for all.
    pub one_in: u64,
    /// When the measured phase began, on the clock of the table's times: its requests are those scheduled from then on.
    #[serde(default)]
    pub measured_from_ns: u64,
}

/// The machine and how it was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Cores of load generator and path, as a list such as `1` or `2-3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cores: Option<String>,
    /// Cores of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<String>,
    /// Other conditions of the figures: wait mode, scheduling class, RPS, privilege, congestion control.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Share of all cores' time stolen by the hypervisor while the loop ran, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// CPU speed probe: median CPU time of a constant piece of work (twenty bytes through a pipe, one by one), repeated
    /// every 10 ms of the measured phase on idle time of the server's cores. A higher value is a slower CPU. Absent
    /// where the server's cores are not known or had no idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_probe_ns: Option<u64>,
}
