//! Components of a server measured alone, and their sum: the part of the document that `predict --components` writes.

use serde::{Deserialize, Serialize};

use crate::predict_part::PredictLimit;

/// One component measured alone: cost of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentCost {
    /// `connection`, `receive`, `send`, `parse`, `open-read`, `open-read-cold`, `log-line`, `log-buffered`,
    /// `handshake-full`, `handshake-resumed` or `records`.
    pub component: String,
    /// Description of the operation.
    pub words: String,
    /// CPU time of the process.
    pub processes: PartLaw,
    /// The same including receive processing, which the kernel does outside of any process. Equal for components
    /// without packets.
    pub cores: PartLaw,
    /// The measured rounds.
    pub points: Vec<ComponentPoint>,
}

/// A cost by bytes: a + b n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartLaw {
    /// Seconds of a core for one operation with no byte.
    pub fixed_s: f64,
    /// Interval of the fixed cost at 95 %.
    pub fixed_interval: [f64; 2],
    /// Cost per byte; absent if independent of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_s: Option<f64>,
    /// Interval of the cost per byte at 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_interval: Option<[f64; 2]>,
}

/// One round of repeated operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentPoint {
    /// Bytes of one operation.
    pub bytes: u64,
    /// Number of operations.
    pub count: u64,
    /// CPU time of the process per operation, in seconds.
    pub processes_s: f64,
    /// CPU time including receive processing.
    pub cores_s: f64,
    /// Elapsed time per operation; absent if several ran concurrently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
}

/// Sum of the components for the server model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentSum {
    /// Description of the model.
    pub described: String,
    /// Each class of requests, with its components and their sum.
    pub classes: Vec<ClassSum>,
    /// CPU time of the server's processes per request of the workload, in seconds.
    pub processes_s: f64,
    /// Interval of the CPU time at 95 %.
    pub processes_interval: [f64; 2],
    /// CPU time including receive processing.
    pub cores_s: f64,
    /// Interval of the CPU time including receive processing at 95 %.
    pub cores_interval: [f64; 2],
    /// Requests per second at which the first resource is used up or the objective is no longer met; absent if the sum
    /// is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Interval from the costs' intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Name of the limit that gives the rate, among `limits`.
    pub bound_by: String,
    /// Limits of the resources, lowest first.
    pub limits: Vec<PredictLimit>,
    /// Predicted over measured rate, less 1; absent without a capacity search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Sum over the real server's cost per request, less 1; absent if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_error: Option<f64>,
    /// Assumptions, and when they do not apply.
    pub assumes: Vec<String>,
}

/// One class of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSum {
    /// Bytes of the response body.
    pub bytes: u64,
    /// Share of the requests.
    pub share: f64,
    /// Components of a request.
    pub terms: Vec<ComponentTerm>,
    /// CPU time of the server's processes per request.
    pub processes_s: f64,
    /// CPU time including receive processing.
    pub cores_s: f64,
}

/// A component of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentTerm {
    /// Name of the component.
    pub component: String,
    /// Number per request.
    pub times: f64,
    /// Bytes of each.
    pub bytes: f64,
    /// CPU time of the processes for all of them.
    pub processes_s: f64,
    /// Interval of the CPU time at 95 %.
    pub interval: [f64; 2],
    /// CPU time including receive processing.
    pub cores_s: f64,
}

/// Output of a child that measures a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentRounds {
    /// The rounds, in order.
    pub rounds: Vec<ComponentRound>,
}

/// One round of a component without network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentRound {
    /// Number of operations.
    pub count: u64,
    /// CPU time.
    pub cpu_s: f64,
    /// Elapsed time.
    pub elapsed_s: f64,
    /// Blocks of 512 bytes read from a device meanwhile.
    pub blocks_read: u64,
    /// Bytes to the server per operation, of a handshake.
    pub up_bytes: u64,
    /// Bytes from the server per operation.
    pub down_bytes: u64,
}
