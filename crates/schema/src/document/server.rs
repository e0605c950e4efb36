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
    /// Receive processing: interrupts on its cores that no process was charged for, in CPU seconds, less those that this program causes itself. Absent
    /// where packets are not received on the server's own cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_s: Option<f64>,
    /// Receive processing at least and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_interval_s: Option<[f64; 2]>,
    /// User, system and receive processing over completed requests, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// The same at least and at most: what cannot be told apart from the work of others on the server's cores is in the interval, and how coarse the
    /// kernel's clocks are. Absent where the server's cores are not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request_interval: Option<[f64; 2]>,
    /// Whose time the time of its cores was. Absent where /proc could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<crate::ServerCores>,
    /// Largest resident memory seen, all processes, in bytes.
    pub rss_bytes_max: u64,
    /// Time for which its CPU share held it back, in seconds; absent without `--server-cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_s: Option<f64>,
    /// Where the CPU figures come from: `cgroup` or `/proc`.
    pub source: String,
    /// Its TCP as set on the route.
    pub tcp: String,
}
