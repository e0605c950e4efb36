//! The document of `predict`. `docs/concepts/predict.md` defines the terms.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};
use crate::predict_sum::{ComponentCost, ComponentSum};

/// The document of `predict`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The prediction as a whole: its folder, the command that repeats it, the machine.
    pub run: Run,
    /// Whether to believe the measurements behind the prediction.
    pub validity: Validity,
    /// The prediction.
    pub predict: PredictPart,
}

/// Capacity of a server, predicted from the cost of its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictPart {
    /// The result: requests per second at which the first resource is used up or the objective is no longer met; absent
    /// if no demand is significantly above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Interval of the result, from the demands' 95 % intervals; absent without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Name of the limit that gives the result, among `limits`.
    pub bound_by: String,
    /// CPU time at the result over the most measured. Above 2 the result is an unreliable extrapolation.
    pub beyond: f64,
    /// Limits of the resources, lowest first.
    pub limits: Vec<PredictLimit>,
    /// Cost of a request of each class.
    pub demands: Vec<Demand>,
    /// Components measured alone; none without `--components`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentCost>,
    /// Sum of the components; without a real server the rest of the document is of this sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_sum: Option<ComponentSum>,
    /// Every load measured, in order.
    pub loads: Vec<MeasuredLoad>,
    /// Memory and descriptors per connection; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PerConnection>,
    /// Path times; absent without a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathTimes>,
    /// Concurrent connections at the result, by Little's law; absent with keep-alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_connections: Option<f64>,
    /// Response time by load.
    pub curve: Vec<CurvePoint>,
    /// Rate and response time by number of users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<UsersPoint>,
    /// Number of users from which on they wait for each other: total time over the largest demand; absent without
    /// users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_at_saturation: Option<f64>,
    /// The universal scalability law fitted to the loads; absent with fewer than six loads that have requests in
    /// flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usl: Option<UslPart>,
    /// Requests per day with the result as peak.
    pub per_day: f64,
    /// Assumed peak over mean.
    pub peak_to_mean: f64,
    /// Machines for the given peak; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<Machines>,
    /// Result of the capacity search; absent without `--check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_rate_per_s: Option<f64>,
    /// Interval of the capacity search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_interval: Option<[f64; 2]>,
    /// Limiting resource by the capacity search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bound_by: Option<String>,
    /// Predicted over measured, less 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Possible reasons for an error above 15 %, with figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Assumptions, and when they do not apply.
    pub assumes: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Limit of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictLimit {
    /// `cpu_quota`, `cores`, `workers`, `memory`, `descriptors`, `link_up`, `link_down`, `disk` or `objective`.
    pub resource: String,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Interval from the demands' intervals; absent if the error is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Explanation.
    pub words: String,
}

/// Demand of one request of a class for one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The class: a request by its name or URL, `new connection`, `full TLS handshake`, `hit` ..
    pub class: String,
    /// Share of the requests, 0 to 1; for a connection or handshake the number per request; absent if the class is
    /// measured for comparison only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<f64>,
    /// `processes`: CPU time of the server's processes. `cores`: including receive processing on its cores.
    pub resource: String,
    /// `saturated`: the server has always work. `light`: requests come one at a time. `derived, ..`: a difference of
    /// such.
    pub loads: String,
    /// Seconds of a core.
    pub seconds: f64,
    /// Interval of the CPU time at 95 %.
    pub interval: [f64; 2],
    /// Of `light`: busy share of a core without requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cores: Option<f64>,
    /// Of `light`: deviation from a line in standard errors; below -2 a request costs less at higher rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curvature_t: Option<f64>,
    /// Number of loads.
    pub points: u32,
}

/// One load that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLoad {
    /// The class.
    pub class: String,
    /// `rough`, `light`, `saturated`, `path`, `workload` or `connections`; `component` for a load of a single
    /// component.
    pub kind: String,
    /// Offered requests per second; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rate_per_s: Option<f64>,
    /// CPU limit as a share of a core; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_cores: Option<f64>,
    /// Achieved requests per second.
    pub rate_per_s: f64,
    /// Requests completed in the second half of the load over those in the first; absent if either half had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_half: Option<f64>,
    /// CPU time of the server's processes, in cores.
    pub busy_processes: f64,
    /// CPU time including receive processing.
    pub busy_cores: f64,
    /// Bounds of that, since part of it may be other programs' work on the server's cores; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_cores_interval: Option<[f64; 2]>,
    /// CPU speed probe on the server's cores, the median (`host.cpu_probe_ns` of a run); absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_probe_ns: Option<u64>,
    /// Mean response time.
    pub response_mean_ns: f64,
    /// Median response time.
    pub response_p50_ns: u64,
    /// 99th percentile of the response time.
    pub response_p99_ns: u64,
    /// Mean requests in flight.
    pub in_flight: f64,
    /// Connections opened per request.
    pub connections_each: f64,
    /// TLS handshakes of the run; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes_full: Option<u64>,
    /// Resumed handshakes among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes_resumed: Option<u64>,
    /// The verdict of its run: `valid`, `suspect` or `invalid`.
    pub verdict: String,
    /// Checks that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Whether the load is excluded from all figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

/// Memory and descriptors per open connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerConnection {
    /// Bytes of the server's processes.
    pub server_bytes: f64,
    /// Kernel bytes of the server's end, half of both ends' memory here; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<f64>,
    /// Descriptors; absent if the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<f64>,
    /// Resident memory of the server without connections.
    pub base_bytes: f64,
}

/// Times and traffic that the path adds to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTimes {
    /// Description of the path.
    pub name: String,
    /// Mean round trip of the clients.
    pub rtt_mean_s: f64,
    /// Round trips of a request, connecting included with one connection per request.
    pub round_trips: f64,
    /// Mean response time of the path alone: round trips, and transmission at the clients' rates.
    pub response_mean_s: f64,
    /// Mean as measured in one light load on the path; absent without such a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_mean_s: Option<f64>,
    /// Lifetime of a connection by the model; absent with keep-alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_s: Option<f64>,
    /// Measured lifetime of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_connection_s: Option<f64>,
    /// Time for which a connection occupies a worker, from acceptance to close: measured, otherwise by the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_occupied_s: Option<f64>,
    /// Bytes to the server per request, heads and packets included.
    pub up_bytes: f64,
    /// Bytes from the server per request.
    pub down_bytes: f64,
    /// Packets to the server per request.
    pub up_packets: f64,
    /// Packets from the server per request.
    pub down_packets: f64,
}

/// Response time at one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Used share of the limiting CPU resource.
    pub busy: f64,
    /// Mean response time of the simulated queue and the path, of the same distribution as the percentiles.
    pub mean_s: f64,
    /// Median response time.
    pub p50_s: f64,
    /// 99th percentile of the response time.
    pub p99_s: f64,
}

/// Rate and response time with a number of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsersPoint {
    /// Number of users.
    pub users: u32,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Mean response time, without think time.
    pub response_s: f64,
    /// Used share of the CPU resource.
    pub busy: f64,
}

/// The universal scalability law fitted to measured loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UslPart {
    /// Rate with one request in flight.
    pub gamma: f64,
    /// Interval of `gamma`.
    pub gamma_interval: [f64; 2],
    /// Contention.
    pub alpha: f64,
    /// Interval of `alpha`.
    pub alpha_interval: [f64; 2],
    /// Coherency.
    pub beta: f64,
    /// Interval of `beta`.
    pub beta_interval: [f64; 2],
    /// Share of the variation explained.
    pub r2: f64,
    /// Most requests in flight among the loads: the law applies to at most twice this number.
    pub number_max: f64,
}

/// Machines for a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    /// The given peak, requests per second.
    pub peak_per_s: f64,
    /// Unused share of each machine.
    pub headroom: f64,
    /// Machines that serve the peak.
    pub at_peak: u64,
    /// Number of machines with one spare machine.
    pub with_headroom: u64,
}
