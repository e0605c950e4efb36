//! The server's part of the document.

use serde::{Deserialize, Serialize};

/// The server's processes over the measured phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The command.
    pub command: String,
    /// User CPU seconds of its processes.
    pub cpu_user_s: f64,
    /// System CPU seconds of its processes.
    pub cpu_system_s: f64,
    /// Receive processing: CPU seconds of interrupts on the server's cores outside of any process, less those that this
    /// program causes. Absent if packets are not received on the server's own cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_s: Option<f64>,
    /// Interval of the receive processing: lowest and highest possible value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_interval_s: Option<[f64; 2]>,
    /// User, system and receive processing over completed requests, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// Interval of the same: lowest and highest possible value, given other work on the server's cores and the
    /// resolution of the kernel's clocks. Absent if the server shares its cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request_interval: Option<[f64; 2]>,
    /// Use of its cores by process. Absent if /proc could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<crate::ServerCores>,
    /// Largest resident memory seen, all processes, in bytes.
    pub rss_bytes_max: u64,
    /// Time for which the CPU limit stopped it, in seconds; absent without `--server-cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_s: Option<f64>,
    /// Source of the CPU figures: `cgroup` or `/proc`.
    pub source: String,
    /// TCP settings of its route.
    pub tcp: String,
}
