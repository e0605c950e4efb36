//! Use of the server's cores by process: a part of the JSON document.

use serde::{Deserialize, Serialize};

/// Use of the server's cores in the measured phase, and the possible effect of other processes on response times. All
/// in seconds of CPU time, of all these cores together; an interval is `[at least, at most]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCores {
    /// Number of cores: the server's own, or without pinning all that this program may use.
    pub cores: u32,
    /// Length of the interval of the figures, in seconds.
    pub elapsed_s: f64,
    /// Processes that are neither the server's nor this program's.
    pub other_processes_s: [f64; 2],
    /// Threads of the kernel that work for the machine as a whole, for all users (memory, RCU); not among the other
    /// processes.
    #[serde(default)]
    pub kernel_threads_s: f64,
    /// Threads of this program.
    pub own_s: [f64; 2],
    /// Interrupts while no process ran: receiving packets, timers. Interrupts of a process are in that process's time,
    /// unless the kernel counts interrupts separately (CONFIG_IRQ_TIME_ACCOUNTING).
    pub interrupts_s: [f64; 2],
    /// Stolen by the hypervisor.
    pub stolen_s: f64,
    /// Part of the server's figure that may be work of others: the width of its interval without the resolution of
    /// clocks.
    pub not_attributable_s: f64,
    /// Source of the CPU time of all processes: `cpuacct` or `schedstat` (to the nanosecond), or `/proc` (each
    /// process's own figure, to 10 ms, without processes that existed only between two readings).
    pub source: String,
    /// Run queue wait: time for which threads of the server were ready to run and had no core, including waits for each
    /// other and for `--server-cpu`. Absent if the kernel does not measure it, or if too many threads were short-lived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_wait_s: Option<f64>,
    /// Upper bound on the time for which the server waited for a core that another process used.
    pub delayed_by_others_s: f64,
    /// The longest such time without a pause, at most, in nanoseconds.
    pub delayed_longest_ns: u64,
    /// The figure of the response times that this could have changed most, relative to its limit. Absent without
    /// responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub could_have_moved: Option<MovedFigure>,
    /// The other processes that used these cores most, the first the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<OtherProcess>,
}

/// A figure of the response times, and what other processes on the server's cores could have added to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MovedFigure {
    /// `mean`, `p50`, `p90`, `p99` or `p99_9`.
    pub figure: String,
    /// As measured, in nanoseconds.
    pub value_ns: f64,
    /// Largest possible change.
    pub by_ns: f64,
    /// The limit: 1 % of the figure, or 50 us where that is more.
    pub limit_ns: f64,
}

/// Another process on the server's cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// Process id; for `ended_children` that of their parent.
    pub pid: i32,
    /// Name of the process in the kernel.
    pub name: String,
    /// CPU time that it used while it was seen on these cores, in seconds, to 10 ms.
    pub cpu_s: f64,
    /// The same as a share of one core.
    pub share: f64,
    /// Not the process itself, but children of it that ended between two readings; the cores they used are unknown.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ended_children: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}
