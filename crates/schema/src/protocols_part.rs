//! The document of one load offered by several HTTP versions and with several loss rates.

use serde::{Deserialize, Serialize};

use crate::document::{DistanceBand, Document, Quantiles, Validity};

/// Runs that differ in the HTTP version and in the loss of the path, and in nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolsDocument {
    /// `yamabiko.protocols/1`.
    pub schema: String,
    /// The command that repeats the runs.
    pub command: String,
    /// In the order in which they were made: all versions at a loss, then those at the next.
    pub runs: Vec<ProtocolRun>,
}

/// One of the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolRun {
    /// HTTP version: `1.1`, `2`, `3` ..
    pub http: String,
    /// Loss of the path each way, as typed; absent without the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// Name of the stored run; empty if it is not stored.
    pub run: String,
    /// The run's checks.
    pub validity: Validity,
    /// Completed requests of the measured phase.
    pub completed: u64,
    /// Failed requests.
    pub failed: u64,
    /// Response times of all clients; absent without a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Quantiles>,
    /// TCP settings of the server of the testbed, in words; HTTP/3 does not use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_tcp: Option<String>,
    /// By distance; empty without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_distance: Vec<DistanceBand>,
}

/// The schema's name and version.
pub const PROTOCOLS_SCHEMA: &str = "yamabiko.protocols/1";

impl ProtocolRun {
    /// Figures of a finished run.
    pub fn of(http: &str, loss: Option<&str>, document: &Document) -> ProtocolRun {
        let load = document.load.as_ref();
        ProtocolRun {
            http: http.to_owned(),
            loss: loss.map(str::to_owned),
            run: document.run.id.clone(),
            validity: document.validity.clone(),
            completed: load.map_or(0, |load| load.completed),
            failed: load.map_or(0, |load| load.failed.values().sum()),
            response_time_ns: load.map(|load| load.response_time_ns).filter(|times| times.count > 0),
            server_tcp: document.server.as_ref().map(|server| server.tcp.clone()).filter(|tcp| !tcp.is_empty()),
            by_distance: load.map(|load| load.by_distance.clone()).unwrap_or_default(),
        }
    }
}
