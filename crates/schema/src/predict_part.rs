//! What `predict` foretells: a part of the JSON document. The page on prediction (`docs/concepts/predict.md`) defines its words.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};
use crate::predict_sum::{PartCost, SumPart};

/// The document of `predict`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The prediction as a whole: its folder, the command that repeats it, the machine.
    pub run: Run,
    /// Whether to believe what it was made from.
    pub validity: Validity,
    /// What is foretold.
    pub predict: PredictPart,
}

/// What a server will do, from what its requests cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictPart {
    /// The answer: requests a second at which the first resource is used up, or the objective no longer met; absent where no demand
    /// could be told from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Where the answer lies if the demands lie in their intervals, at 95 %; absent without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The limit that gives the answer, by its name among `limits`.
    pub bound_by: String,
    /// Processor time at the answer over the most that was measured. Above 2 it is an extrapolation not to rely on.
    pub beyond: f64,
    /// What each resource allows, the least first.
    pub limits: Vec<PredictLimit>,
    /// What a request of each class costs.
    pub demands: Vec<Demand>,
    /// Parts of a server measured alone; none where that was not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartCost>,
    /// What they add up to; the rest of this is of the assembled server where that was measured as well, else of this sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumPart>,
    /// Every load that was measured, in order.
    pub loads: Vec<MeasuredLoad>,
    /// Memory and descriptors of a connection; absent where they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PerConnection>,
    /// What the path adds; absent without a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathTimes>,
    /// Connections in process at the answer, by Little's law; absent where connections are kept alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_in_process: Option<f64>,
    /// Response time against load.
    pub curve: Vec<CurvePoint>,
    /// What so many users come to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<UsersPoint>,
    /// The number of users from which on they wait for each other: total time over the largest demand; absent without users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_at_saturation: Option<f64>,
    /// The universal scalability law through what was measured; absent with fewer than six loads that have something in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usl: Option<UslPart>,
    /// Requests a day whose peak is the answer.
    pub per_day: f64,
    /// Peak over mean that this supposes.
    pub peak_to_mean: f64,
    /// Machines for the peak that was asked for, one of which may fail; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<Machines>,
    /// What the search for the capacity found; absent where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_rate_per_s: Option<f64>,
    /// Its interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_interval: Option<[f64; 2]>,
    /// What bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bound_by: Option<String>,
    /// Predicted over measured, less 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Where that is more than 15 %: what may be behind it, with figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What all of this supposes, and when not to believe it.
    pub assumes: Vec<String>,
    /// What to know when reading.
    pub notes: Vec<String>,
}

/// What one resource allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictLimit {
    /// `cpu_quota`, `cores`, `workers`, `memory`, `descriptors`, `link_up`, `link_down`, `disk` or `objective`.
    pub resource: String,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Where it lies if the demands lie in their intervals; absent where nothing is known of its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// How it comes about, in words.
    pub words: String,
}

/// What one request of a class takes of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The class: a request by its name or URL, `new connection`, `full TLS handshake`, `hit` ..
    pub class: String,
    /// Share of the requests, 0 to 1; of what a request may bring along (a connection, a handshake) how many each brings; absent where the
    /// class is measured for comparison alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<f64>,
    /// `processes`: processor time of the server's processes. `cores`: that and the receiving of packets on its cores.
    pub resource: String,
    /// `held`: while the server has always something to do. `light`: while requests come one at a time. `derived`: a difference of such.
    pub loads: String,
    /// Seconds of a core.
    pub seconds: f64,
    /// Its interval at 95 %.
    pub interval: [f64; 2],
    /// Of `light`: share of a core that is busy without any request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cores: Option<f64>,
    /// Of `light`: how many standard errors the points bend away from a line; below -2 a request costs less where there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curvature_t: Option<f64>,
    /// How many loads it comes from.
    pub points: u32,
}

/// One load that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLoad {
    /// The class.
    pub class: String,
    /// `rough`, `light`, `held`, `path`, `mix` or `connections`; `part` of a load of a part alone.
    pub kind: String,
    /// Offered requests a second; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rate_per_s: Option<f64>,
    /// Share of a core that the server was held to; absent where it was not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_cores: Option<f64>,
    /// Carried requests a second.
    pub rate_per_s: f64,
    /// Requests completed in the second half of the load over those in its first; absent where either half had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_half: Option<f64>,
    /// Cores' worth of processor time of the server's processes.
    pub busy_processes: f64,
    /// And with the receiving of packets.
    pub busy_cores: f64,
    /// The same at least and at most, since part of it may be others' work on the server's cores; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_cores_interval: Option<[f64; 2]>,
    /// Processor time of a fixed piece of work on the server's cores, the median (`host.cpu_probe_ns` of a run); absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_probe_ns: Option<u64>,
    /// Mean response time.
    pub response_mean_ns: f64,
    /// Its median.
    pub response_p50_ns: u64,
    /// Its 99th percentile.
    pub response_p99_ns: u64,
    /// Requests in flight, the mean.
    pub in_flight: f64,
    /// Connections opened for each request.
    pub connections_each: f64,
    /// TLS handshakes of the run; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes_full: Option<u64>,
    /// Those that took up a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes_resumed: Option<u64>,
    /// The verdict of its run: `valid`, `suspect` or `invalid`.
    pub verdict: String,
    /// Checks that did not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Whether no figure rests on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

/// What a connection takes while it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerConnection {
    /// Bytes of the server's processes.
    pub server_bytes: f64,
    /// Bytes of the kernel's for its end, half of what both ends here take; absent where the kernel's memory could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<f64>,
    /// Descriptors; absent where the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<f64>,
    /// Resident memory of the server without a connection.
    pub base_bytes: f64,
}

/// What the path adds to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTimes {
    /// In words.
    pub name: String,
    /// Mean round trip of the clients.
    pub rtt_mean_s: f64,
    /// Round trips of a request, connecting included where each has a connection of its own.
    pub round_trips: f64,
    /// Mean response time that the path alone makes: round trips, and bytes over the clients' own rates.
    pub response_mean_s: f64,
    /// The same as measured in one light load there; absent where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_mean_s: Option<f64>,
    /// How long a connection is in process, by the model; absent where connections are kept alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_s: Option<f64>,
    /// The same as measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_connection_s: Option<f64>,
    /// How long a connection holds a worker of the server: from its acceptance to its end; as measured, else by the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_held_s: Option<f64>,
    /// Bytes to the server for each request, heads and packets included.
    pub up_bytes: f64,
    /// Bytes from it.
    pub down_bytes: f64,
    /// Packets to the server for each request.
    pub up_packets: f64,
    /// Packets from it.
    pub down_packets: f64,
}

/// Response time at one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Requests a second.
    pub rate_per_s: f64,
    /// Share of the binding processor resource that is used.
    pub busy: f64,
    /// Mean response time of the simulated queue and the path: of the same distribution as the percentiles.
    pub mean_s: f64,
    /// Its median.
    pub p50_s: f64,
    /// Its 99th percentile.
    pub p99_s: f64,
}

/// What so many users come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsersPoint {
    /// How many.
    pub users: u32,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Mean response time, without thinking.
    pub response_s: f64,
    /// Share of the processor resource that is used.
    pub busy: f64,
}

/// The universal scalability law through measured loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UslPart {
    /// Rate of one, and its interval.
    pub gamma: f64,
    /// Its interval.
    pub gamma_interval: [f64; 2],
    /// Contention.
    pub alpha: f64,
    /// Its interval.
    pub alpha_interval: [f64; 2],
    /// Coherency.
    pub beta: f64,
    /// Its interval.
    pub beta_interval: [f64; 2],
    /// Share of the scatter explained.
    pub r2: f64,
    /// Most in flight among what was measured: nothing beyond twice that is to be believed.
    pub number_max: f64,
}

/// How many machines a peak needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    /// The peak asked for, requests a second.
    pub peak_per_s: f64,
    /// Share of each machine that is kept free.
    pub headroom: f64,
    /// Machines that carry it.
    pub carrying: u64,
    /// And with one more, that may fail.
    pub with_headroom: u64,
}
