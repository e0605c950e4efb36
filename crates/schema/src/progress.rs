//! Progress of a run that is under way: the content of `progress.json`.
//!
//! The file is replaced about once a second and for the last time when the run ends, for live pages and other programs.
//! Figures are provisional and contain the requests that have ended; the results of the run are in its document
//! ([`crate::Document`]).
//!
//! Absent parts are absent, never zero. Clocks and units are those of the document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compare_part::ComparePart;
use crate::document::{DistanceBand, Quantiles, Validity};
use crate::{CachePart, CapacityPart, ForwardingPart, PredictPart, Reproduction};

/// The value of [`RunProgress::schema`].
pub const PROGRESS_SCHEMA: &str = "yamabiko.progress/2";

/// Snapshot of a run that is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// [`PROGRESS_SCHEMA`].
    pub schema: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// The command that repeats it.
    pub command: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Wall clock at the run's zero, RFC 3339, UTC; of a run that is still starting, when that began.
    pub started_at: String,
    /// Verb of the run: `bench`, `net`, `watch`, `tap`, `capacity`, `cache`, `gateway`, `predict`, `reproduce`,
    /// `compare`. A run of a plan (`run`, `demo`) is a `bench`.
    pub verb: String,
    /// Phase of the run.
    pub phase: RunPhase,
    /// Seconds since the run's zero when this was written; 0 while it is starting.
    pub at_s: f64,
    /// Length of the warm-up in seconds.
    pub warmup_s: f64,
    /// Length of the measured phase in seconds, as planned; absent if the phase does not end by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Requests that end the measured phase, as planned; absent if the phase does not end by a number of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Current step in a few words, such as `trial 4: 1,200/s`; absent if the phase is sufficient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The load, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadProgress>,
    /// The path, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathProgress>,
    /// The packet capture, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchProgress>,
    /// Records of programs' own socket calls, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapProgress>,
    /// The validity checks that can be evaluated midway, by the figures so far. Provisional: all checks are evaluated
    /// at the end. With phase `done`, the verdict of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// Id of the current run of an experiment with several runs, in the same run store. Absent between two runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Ended runs of an experiment with several runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// The search for a capacity, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPart>,
    /// The points of a cache benchmark, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachePart>,
    /// The conditions of a gateway, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<ForwardingPart>,
    /// The prediction, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict: Option<PredictPart>,
    /// The reproduction, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<Reproduction>,
    /// The comparison, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<ComparePart>,
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Sandboxes and servers start, connections open; no load is offered yet.
    #[default]
    Starting,
    /// Load is offered but not counted.
    Warmup,
    /// The measured phase.
    Measured,
    /// No more load is offered; requests in flight may end, and files are completed.
    Drain,
    /// The run has ended, and its document is written.
    Done,
    /// The run was killed, or failed to write its end. Never in the file: `store::read_progress` reports it where the
    /// run's folder is not locked and no end was written. A search that was killed has a document with its partial
    /// result.
    Killed,
}

impl RunPhase {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            RunPhase::Starting => "starting",
            RunPhase::Warmup => "warmup",
            RunPhase::Measured => "measured",
            RunPhase::Drain => "drain",
            RunPhase::Done => "done",
            RunPhase::Killed => "killed",
        }
    }

    /// Whether the run has ended.
    pub const fn is_over(self) -> bool {
        matches!(self, RunPhase::Done | RunPhase::Killed)
    }
}

/// The load, so far. Counts and distributions are of requests scheduled in the measured phase that have ended; gauges
/// are current values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadProgress {
    /// `open` or `closed`.
    #[serde(rename = "loop")]
    pub loop_kind: String,
    /// Requests scheduled in the measured phase, ended or not.
    pub offered: u64,
    /// Offered requests with a complete response.
    pub completed: u64,
    /// Offered requests that failed, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// Requests started and not done, now.
    pub in_flight: u64,
    /// Concurrent connections, now.
    pub connections: u64,
    /// Requests scheduled and not started, now.
    pub backlog: u64,
    /// done - scheduled.
    pub response_time_ns: Quantiles,
    /// started - scheduled.
    pub send_lag_ns: Quantiles,
    /// Results by band of the client's configured RTT; empty without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_distance: Vec<DistanceBand>,
}

/// The path, so far, its warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathProgress {
    /// Name of the profile, or the option that defined the path.
    pub profile: String,
    /// Number of virtual clients.
    pub clients: u64,
    /// Configured RTT, one value a client.
    pub configured_rtt_ns: Quantiles,
    /// Measured RTT, one value a handshake; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_rtt_ns: Option<Quantiles>,
    /// Timing error of packets; absent before the first packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing_error_ns: Option<Quantiles>,
    /// Packets accepted, both directions, as wire packets.
    pub packets: u64,
    /// Bytes accepted, both directions, IP headers included.
    pub bytes: u64,
    /// Packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
}

/// Figures of the packet capture so far, some tenths of a second old.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchProgress {
    /// Source of the packets: a device or a file.
    pub source: String,
    /// Packets of any kind, as captured.
    pub packets: u64,
    /// Packets lost by the capture, as the capturing system reports.
    pub capture_drops: u64,
    /// Concurrent connections, at the end of the last whole second.
    pub connections: u64,
    /// Transactions in progress, at the end of the last whole second.
    pub in_flight: u64,
    /// HTTP requests whose first byte was captured.
    pub requests: u64,
    /// HTTP responses whose last byte was captured.
    pub responses: u64,
    /// Round-trip times of handshakes, as the capture point implies them; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_rtt_ns: Option<Quantiles>,
}

/// Records of programs' own socket calls, so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapProgress {
    /// Concurrent connections, now.
    pub connections: u64,
    /// Exchanges that have ended, of both sides.
    pub exchanges: u64,
    /// Attempts that have failed.
    pub failed: u64,
    /// Median of their response times in ns; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_p50_ns: Option<u64>,
}
