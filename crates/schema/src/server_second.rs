//! What the server of the lab used, second by second.

use crate::record;
use crate::table::nanoseconds;

record! {
    // Accounted by the server's control group where it has one, else by the figures of all its processes.
    /// One second of the measured phase at the server of the lab, as the kernel accounts it.
    #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct ServerSecond in "server_series" {
        /// Index of the second since the beginning of the measured phase.
        pub second: u32 [unit "s"],
        /// When it was read, since the run's zero.
        pub at_ns: u64,
        // The figures are read by the main thread, which may come late: a share of a core is a figure over this.
        /// Time since the row before: what the other figures are of.
        pub elapsed_s: f64 [unit "s"],
        /// Processor time in user mode.
        pub cpu_user_s: f64 [unit "s"],
        /// Processor time in the kernel.
        pub cpu_system_s: f64 [unit "s"],
        /// Receive processing: interrupts on the server's cores that no process was charged for. Null where packets are
        /// not received there.
        pub cpu_receive_s: Option<f64> [name "cpu_receive_ns", as nanoseconds],
        /// How long its tasks were held back by the bound on its processor time, summed. Null without one.
        pub throttled_s: Option<f64> [name "throttled_ns", as nanoseconds],
        /// Periods of that bound in which it wanted to run. Null without one.
        pub periods: Option<u64> [unit "periods"],
        /// Of these, those in which it used up its share. Null without a bound.
        pub periods_throttled: Option<u64> [unit "periods"],
        // Pages that several processes share are counted in each.
        /// Resident memory of all its processes at the end of the second.
        pub rss_bytes: u64 [unit "bytes"],
        // Linux 6.2 and later count them.
        /// Open descriptors of all its processes then. Null where the kernel does not count them.
        pub descriptors: Option<u64> [unit "descriptors"],
    }
}
