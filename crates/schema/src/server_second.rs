//! What the server of the lab used, second by second.

use serde::{Deserialize, Serialize};

/// One second of the measured phase at the server, as the kernel accounts it: its control group where it has one, else all its
/// processes' own figures.
///
/// It is read by the program's main thread, which may come late: `elapsed_s` is the time that the figures are of, and a share of a
/// core is a figure over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSecond {
    /// Counted from the beginning of the measured phase.
    pub second: u32,
    /// Its end, as read, in nanoseconds since the run's zero.
    pub at_ns: u64,
    /// Length of the time that the figures are of, in seconds.
    pub elapsed_s: f64,
    /// Processor time in user mode, in seconds.
    pub cpu_user_s: f64,
    /// And in the kernel.
    pub cpu_system_s: f64,
    /// Receive processing: interrupts on the server's cores that no process was charged for, in seconds. Absent where packets are not received there.
    pub cpu_receive_s: Option<f64>,
    /// How long its tasks were held back by `--server-cpu`, summed. Absent without it.
    pub throttled_s: Option<f64>,
    /// Periods of that bound in which it wanted to run.
    pub periods: Option<u64>,
    /// Of these, those in which it used up its share.
    pub periods_throttled: Option<u64>,
    /// Resident memory of all its processes at its end, in bytes; pages that several share are counted in each.
    pub rss_bytes: u64,
    /// Open descriptors of all its processes at its end. Absent where the kernel does not say (before Linux 6.2).
    pub descriptors: Option<u64>,
}
