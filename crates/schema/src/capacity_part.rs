//! The document of `capacity`. `docs/concepts/capacity.md` defines the terms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Finding;
use crate::document::{Level, Quantiles, Run, Validity};

/// The document of `capacity`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The search as a whole: its folder, the command that repeats it, the machine. Long trials are stored as runs.
    pub run: Run,
    /// Whether to believe the result.
    pub validity: Validity,
    /// The result.
    pub capacity: CapacityPart,
}

/// The highest load that meets the objective, and figures around it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CapacityPart {
    /// The objective, as typed.
    pub objective: String,
    /// The quantity: `rate`, `users`, `connections` or `new-connections`.
    pub find: String,
    /// Unit of all loads: `1/s`, `users` or `connections`.
    #[serde(default = "per_second")]
    pub unit: String,
    /// The result: the highest load that passed, in `unit`, the median over the searches; absent if no load passed or
    /// nothing is known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<f64>,
    /// Requests per second at the result: for a rate the result itself, as offered; otherwise the achieved rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The highest load that passed the short trials, if more than 5 % above the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_trials_result: Option<f64>,
    /// Width of each search: the loads that passed and failed differ by no more than this share.
    pub width: f64,
    /// Interval of the capacity; absent without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Kind of the interval: `searches` (Student-t at 95 % over repeated searches), or `bracket` (one search's
    /// bracket).
    pub interval_of: String,
    /// Brackets of the searches with long trials.
    pub searches: Vec<Bracket>,
    /// The bracket so far of an unfinished search: the highest load that passed and the lowest that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Bracket>,
    /// The limiting resource of the server.
    pub bound_by: BoundBy,
    /// Every trial, in order.
    pub trials: Vec<TrialPart>,
    /// Saturation: the highest rate achieved in any trial, whatever the response times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation_rate_per_s: Option<f64>,
    /// Knee: of the loads that passed, the one with the highest ratio of achieved rate to mean response time, in
    /// `unit`; absent for connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// Behaviour above the capacity: `holds`, `degrades` or `collapses`; absent if not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_overload: Option<String>,
    /// The generator's own limit; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<GeneratorLimit>,
    /// Warm-up of every trial, in seconds.
    pub warmup_s: f64,
    /// Findings, by name.
    pub findings: Vec<Finding>,
    /// The capacity at each requested distance, the first of which is the result above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<EachDistance>,
    /// Whether the search found a bracket within the width.
    pub converged: bool,
    /// Times at which the search was resumed, RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_at: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

fn per_second() -> String {
    "1/s".into()
}

/// The bracket of the capacity, in the unit of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bracket {
    /// The highest load that passed; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// The lowest load that failed; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// One trial at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialPart {
    /// Purpose: `guess`, `limit`, `calibration`, `short`, `long`, `confirmation`, `overload`.
    pub stage: String,
    /// The distance, if several were requested.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Id of its stored run; empty if not stored, as short trials are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Number of the long search, from 1; 0: none.
    pub search: u32,
    /// The load, in the unit of the search; of `guess` the connections of its closed loop, of `limit` a rate per
    /// second.
    pub load: f64,
    /// Planned length in seconds, without its warm-up.
    pub planned_s: f64,
    /// Actual length: less than planned if the trial failed or ended early.
    pub actual_s: f64,
    /// `good`, `bad`, `client` (the generator's limit) or `void` (disturbed, not counted).
    pub verdict: String,
    /// Reasons as sentences; empty if good.
    pub why: Vec<String>,
    /// Verdict of the run of a good trial: `valid`, `suspect` or `invalid`; empty otherwise, since a load that is too
    /// high fails checks for that reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_verdict: String,
    /// Checks of that run that failed or could not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_doubts: Vec<String>,
    /// Complete responses per second.
    pub achieved_rate_per_s: f64,
    /// Response times, from the scheduled time.
    pub response_time_ns: Quantiles,
    /// Failed and unfinished requests and those with a status other than 2xx and 3xx, over offered.
    pub error_ratio: f64,
    /// Requests in flight, and waiting to start.
    pub in_flight: Level,
    /// Their growth per second.
    pub growth_per_s: f64,
    /// Limit of the growth.
    pub growth_bound_per_s: f64,
    /// CPU time of the server over its available CPU: 1 is all of it; absent without a server started by Yamabiko.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_busy: Option<f64>,
    /// Resource usage of the server; absent without a server started by Yamabiko.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<TrialServer>,
    /// Mean concurrent connections.
    pub connections: f64,
    /// Number of connections to be kept open that were refused, closed, or missing; absent for other quantities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_missing: Option<f64>,
    /// Share of the machine's CPU time stolen by the hypervisor; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// CPU speed probe on the server's cores, the median (`host.cpu_probe_ns` of a run); absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_probe_ns: Option<u64>,
    /// Longest stall of the generator.
    #[serde(default)]
    pub stall_ns: u64,
    /// The 99th percentile of the send lag.
    pub send_lag_p99_ns: u64,
    /// Possible effect of the generator's delay on the response time, over the material error (1 % of it, or 50 us if
    /// that is more): above 1 the figures may be the generator's.
    #[serde(default)]
    pub generator_error: f64,
    /// Busy share of the generator.
    pub loop_busy: f64,
    /// Of `calibration`: seconds after which the server had settled; absent if it had not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_s: Option<f64>,
    /// Mean bytes of a response.
    pub response_bytes: f64,
    /// Findings of this trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Second by second; of `confirmation` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<TrialSecond>,
}

/// The server in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialServer {
    /// CPU time of its processes per second: 1 is one core all the time.
    pub cpu_cores: f64,
    /// Receive processing outside of its processes, in the same unit; absent if inseparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_cores: Option<f64>,
    /// Available cores; a fraction with a CPU limit (`--server-cpu`).
    pub may_use_cores: f64,
    /// Whether a CPU limit applies.
    pub limited: bool,
    /// Share of the time in which the CPU limit stopped it; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
    /// Largest resident memory, in bytes.
    pub rss_bytes_max: u64,
}

/// One second of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialSecond {
    /// Number since the start of the measured phase.
    pub second: u32,
    /// Responses completed in it.
    pub completed: u64,
    /// Requests failed in it.
    pub failed: u64,
    /// Mean response time of those completed in it; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mean_ns: Option<f64>,
    /// Mean number in flight, and waiting to start.
    pub in_flight: f64,
    /// CPU time of the server in it; absent without a server started by Yamabiko.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Resident memory of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
}

/// The limiting resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundBy {
    /// `cpu_quota`, `cores`, `workers`, `connections`, `link`, `errors`, `client` or `unknown`.
    pub name: String,
    /// Explanation as a sentence.
    pub words: String,
    /// Figures by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// The generator's own limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorLimit {
    /// The load, in the unit of the search.
    pub load: f64,
    /// `measured` against `serve --max`, `counted` from this machine's limits (open files, ports, memory), or
    /// `estimated` from the generator's busy share.
    pub how: String,
    /// Explanation as a sentence.
    pub words: String,
}

/// The capacity at one distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EachDistance {
    /// The distance, as typed.
    pub name: String,
    /// The result there, in the unit of the search; absent if none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<f64>,
    /// Requests per second at the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Interval of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Ratio to the first distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Mean concurrent connections at the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<f64>,
    /// Response times at the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Quantiles>,
    /// The limiting resource there.
    pub bound_by: BoundBy,
    /// Whether its search found a bracket within the width.
    pub converged: bool,
    /// Whether the result passed the long confirmation there.
    pub confirmed: bool,
}
