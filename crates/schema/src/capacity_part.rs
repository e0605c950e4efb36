//! What `capacity` found: a part of the JSON document. The page on capacity (`docs/concepts/capacity.md`) defines its words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Finding;
use crate::document::{Level, Quantiles, Run, Validity};

/// The document of `capacity`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The search as a whole: its folder, the command that repeats it, the machine. Long trials are runs of their own in the book.
    pub run: Run,
    /// Whether to believe the answer.
    pub validity: Validity,
    /// What was found.
    pub capacity: CapacityPart,
}

/// The highest load whose objective holds, and what is known around it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CapacityPart {
    /// The objective, as typed.
    pub objective: String,
    /// What was sought: `rate`, `users`, `connections` or `new-connections`.
    pub find: String,
    /// What loads are counted in: `1/s`, `users` or `connections`. Every load of this part is.
    #[serde(default = "per_second")]
    pub unit: String,
    /// The answer: the highest load that held, in `unit`, the median over the searches; absent where no load held, or nothing is known
    /// yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<f64>,
    /// Requests a second at the answer: where a rate was sought, the answer itself, as it was offered; elsewhere what was carried there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The highest load that held in the short trials, where it is more than 5 % above the answer: what a benchmark of seconds shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_trials_result: Option<f64>,
    /// The width to which each search went: loads on both sides of the answer differ by no more than this share.
    pub width: f64,
    /// Between these the capacity lies; absent where there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// What the interval is: `searches` (a Student-t interval at 95 % over repeated searches), or `bracket` (one search's bracket).
    pub interval_of: String,
    /// What each search of long trials found.
    pub searches: Vec<Bracket>,
    /// The bracket so far, where the search did not come to its end: the highest load that held and the least that was too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Bracket>,
    /// Which resource the server ran out of.
    pub bound_by: BoundBy,
    /// Every trial that was made, in order.
    pub trials: Vec<TrialPart>,
    /// Most that was carried in any trial: saturation; not the capacity, which has an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation_rate_per_s: Option<f64>,
    /// The load of greatest power, carried rate over mean response time, among the trials that held, in `unit`; absent of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// What the server does beyond its capacity: `holds`, `degrades` or `collapses`; absent where it was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_overload: Option<String>,
    /// The load up to which the generator itself could go here; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<GeneratorLimit>,
    /// Warm-up of every trial, in seconds.
    pub warmup_s: f64,
    /// What was come upon, by name.
    pub findings: Vec<Finding>,
    /// The capacity at each distance asked for, the first of which is the answer above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<EachDistance>,
    /// Whether the search came to its regular end: a load that held and one that did not, as near as asked.
    pub regular: bool,
    /// When it was taken up again, RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_at: Vec<String>,
    /// What to know when reading.
    pub notes: Vec<String>,
}

fn per_second() -> String {
    "1/s".into()
}

/// The loads on both sides of what is sought, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bracket {
    /// The highest load that held; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// The least load that was too much; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// One trial of one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialPart {
    /// What it was made for: `guess`, `limit`, `calibration`, `short`, `long`, `confirmation`, `overload`.
    pub stage: String,
    /// At which distance, where several were asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Its run in the book; empty where it is not kept, as no short trial is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Which of the searches of long trials it belongs to, from 1; 0: none of them.
    pub search: u32,
    /// The load, in the unit of what is sought; of `guess` the number of connections of its closed loop, of `limit` a rate a second.
    pub load: f64,
    /// How long it was to last, in seconds, without its warm-up.
    pub planned_s: f64,
    /// How long it lasted: less where it was lost before its end, or cut short.
    pub actual_s: f64,
    /// `good`, `bad`, `client` (the generator's limit) or `void` (disturbed: it counts for nothing).
    pub verdict: String,
    /// Why, each a sentence; empty where it is good.
    pub why: Vec<String>,
    /// The verdict of its own run where it is good: `valid`, `suspect` or `invalid`; empty otherwise, since a load that is too much fails checks
    /// for that reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_verdict: String,
    /// Checks of that run that did not hold, or could not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_doubts: Vec<String>,
    /// Responses completed within it, a second.
    pub achieved_rate_per_s: f64,
    /// Response times, from the intended moment.
    pub response_time_ns: Quantiles,
    /// Failed, unfinished and answered by a status other than 2xx and 3xx, over offered.
    pub error_ratio: f64,
    /// Requests in flight, and waiting to start.
    pub in_flight: Level,
    /// By how much they grew, a second.
    pub growth_per_s: f64,
    /// From which growth on they count as growing.
    pub growth_bound_per_s: f64,
    /// Processor time of the server over what it may have: 1 is all of it; absent without a server of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_busy: Option<f64>,
    /// More of the server; absent without one of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<TrialServer>,
    /// Connections in process, the mean.
    pub connections: f64,
    /// Of connections that were to be held, how many were refused, closed, or not there; absent where none were to be held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_missing: Option<f64>,
    /// Share of the machine's processor time that a hypervisor took meanwhile; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// Processor time of a fixed piece of work on the server's cores, the median (`host.cpu_probe_ns` of a run); absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_probe_ns: Option<u64>,
    /// Longest time for which the generator stood still.
    #[serde(default)]
    pub stall_ns: u64,
    /// The 99th percentile of what the generator was late by.
    pub send_lag_p99_ns: u64,
    /// How far the generator's own delay may have raised the response time, over what is material (1 % of it, or 50 us where that is more):
    /// above 1 the figures of the trial may be the generator's.
    #[serde(default)]
    pub generator_error: f64,
    /// Share of the time in which the generator had work.
    pub loop_busy: f64,
    /// Of `calibration`: seconds after which the server had settled; absent where it had not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_s: Option<f64>,
    /// Bytes of a response, the mean.
    pub response_bytes: f64,
    /// What was come upon in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Its course, a row a second; of `confirmation` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<TrialSecond>,
}

/// The server in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialServer {
    /// Processor time of its processes a second: 1 is one core all the time.
    pub cpu_cores: f64,
    /// Receive work done for it outside its processes, likewise; absent where it could not be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_cores: Option<f64>,
    /// The cores that it may use; a fraction where its share is held (`--server-cpu`).
    pub may_use_cores: f64,
    /// Whether that is a share to which it is held.
    pub held: bool,
    /// Share of the time in which that held it back; absent where it is not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
    /// Largest resident memory, in bytes.
    pub rss_bytes_max: u64,
}

/// One second of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialSecond {
    /// Since the measured phase began.
    pub second: u32,
    /// Responses completed in it.
    pub completed: u64,
    /// Requests failed in it.
    pub failed: u64,
    /// Mean response time of those completed in it; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mean_ns: Option<f64>,
    /// Mean in flight, and waiting to start.
    pub in_flight: f64,
    /// Processor time of the server in it; absent without a server of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Its resident memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
}

/// What ran out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundBy {
    /// `cpu_quota`, `cores`, `workers`, `connections`, `link`, `errors`, `client` or `unknown`.
    pub name: String,
    /// A sentence.
    pub words: String,
    /// Figures by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// How much the generator could make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorLimit {
    /// The load, in the unit of what is sought.
    pub load: f64,
    /// `measured` against this program's fastest answers, `counted` from what this machine allows (open files, ports, memory), or
    /// `estimated` from how busy the generator was.
    pub how: String,
    /// A sentence.
    pub words: String,
}

/// The capacity at one distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EachDistance {
    /// As typed.
    pub name: String,
    /// The answer there, in the unit of what is sought; absent where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<f64>,
    /// Requests a second at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Its interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Over the first distance's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Connections in process at the answer, the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<f64>,
    /// Response times at the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Quantiles>,
    /// What ran out there.
    pub bound_by: BoundBy,
    /// Whether its search came to its regular end.
    pub regular: bool,
    /// Whether the answer held in the long confirmation there.
    pub confirmed: bool,
}
