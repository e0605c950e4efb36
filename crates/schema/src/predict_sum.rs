//! Parts of a server measured alone, and what they add up to: what `predict --parts` writes into its part of the document.

use serde::{Deserialize, Serialize};

use crate::predict_part::PredictLimit;

/// One part, measured alone: what one of it costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartCost {
    /// `connection`, `receive`, `send`, `parse`, `open-read`, `open-read-cold`, `log-line`, `log-buffered`, `handshake-full`, `handshake-resumed`
    /// or `records`.
    pub part: String,
    /// What was done, in words.
    pub words: String,
    /// Processor time of the process that did it.
    pub processes: PartLaw,
    /// And with the receiving of packets, which the kernel does outside of any process. Of a part without packets the same.
    pub cores: PartLaw,
    /// What it comes from.
    pub points: Vec<PartPoint>,
}

/// a + b n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartLaw {
    /// Seconds of a core for one of it, without any byte.
    pub fixed_s: f64,
    /// Its interval at 95 %.
    pub fixed_interval: [f64; 2],
    /// What each byte adds; absent of a part that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_s: Option<f64>,
    /// Its interval at 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_interval: Option<[f64; 2]>,
}

/// One round in which a part was done over and over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartPoint {
    /// Bytes of one.
    pub bytes: u64,
    /// How many were done.
    pub count: u64,
    /// Processor time of the process for one, in seconds.
    pub processes_s: f64,
    /// And with the receiving of packets.
    pub cores_s: f64,
    /// Time that one took, waiting included; absent where several were under way at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
}

/// What the parts add up to, for the server that was described.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumPart {
    /// The server as described, in words.
    pub described: String,
    /// Each kind of request, its parts and their sum.
    pub classes: Vec<SumClass>,
    /// Processor time of the server's processes for a request of the mix, in seconds.
    pub processes_s: f64,
    /// Its interval at 95 %.
    pub processes_interval: [f64; 2],
    /// And with the receiving of packets.
    pub cores_s: f64,
    /// Its interval at 95 %.
    pub cores_interval: [f64; 2],
    /// Requests a second at which the first resource is used up, or the objective no longer met; absent where the sum is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Where that lies if the costs lie in their intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The limit that gives it, by its name among `limits`.
    pub bound_by: String,
    /// What each resource allows, the least first.
    pub limits: Vec<PredictLimit>,
    /// Sum over measured, less 1: of the rates. Absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The sum over what a request costs the assembled server, less 1; absent where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_error: Option<f64>,
    /// What this supposes, and when not to believe it.
    pub assumes: Vec<String>,
}

/// One kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumClass {
    /// Bytes of the body of its answer.
    pub bytes: u64,
    /// Its share of the requests.
    pub share: f64,
    /// Its parts.
    pub terms: Vec<SumTerm>,
    /// Processor time of the server's processes for one.
    pub processes_s: f64,
    /// And with the receiving of packets.
    pub cores_s: f64,
}

/// So many of a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumTerm {
    /// The part.
    pub part: String,
    /// How many each request brings.
    pub times: f64,
    /// Bytes of each.
    pub bytes: f64,
    /// What all of them cost, processor time of the processes.
    pub processes_s: f64,
    /// Its interval at 95 %.
    pub interval: [f64; 2],
    /// And with the receiving of packets.
    pub cores_s: f64,
}

/// What a child that measures a part says: the rounds that it made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartRounds {
    /// One after the other.
    pub rounds: Vec<PartRound>,
}

/// One round of a part that needs no network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartRound {
    /// How many were done.
    pub count: u64,
    /// Processor time that they took.
    pub cpu_s: f64,
    /// Time that they took.
    pub elapsed_s: f64,
    /// Blocks of 512 bytes that came from a device meanwhile.
    pub blocks_read: u64,
    /// Bytes that one brings to the server, of a handshake.
    pub up_bytes: u64,
    /// Bytes that one brings from it.
    pub down_bytes: u64,
}
