//! What the server of the testbed used, second by second.

use crate::record;
use crate::table::nanoseconds;

record! {
    // Accounted by the server's control group where it has one, else by the figures of all its processes.
    /// One second of the measured phase at the server of the testbed, by the kernel's counters.
    #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct ServerSecond in "server_series" {
        /// Index of the second since the beginning of the measured phase.
        pub second: u32 [unit "s"],
        /// When it was read, since the run's zero.
        pub at_ns: u64,
        // The figures are read by the main thread, which may come late: a share of a core is a figure over this.
        /// Time since the row before, to which the other figures belong.
        pub elapsed_s: f64 [unit "s"],
        /// CPU time in user mode.
        pub cpu_user_s: f64 [unit "s"],
        /// CPU time in the kernel.
        pub cpu_system_s: f64 [unit "s"],
        /// Receive processing: interrupts on the server's cores outside of any process. Null where packets are not
        /// received there.
        pub cpu_receive_s: Option<f64> [name "cpu_receive_ns", as nanoseconds],
        /// Time for which the CPU limit stopped its tasks, summed. Null without a limit.
        pub throttled_s: Option<f64> [name "throttled_ns", as nanoseconds],
        /// Periods of the CPU limit in which it was runnable. Null without a limit.
        pub periods: Option<u64> [unit "periods"],
        /// Of these, those in which it used up the limit. Null without a limit.
        pub periods_throttled: Option<u64> [unit "periods"],
        // Pages that several processes share are counted in each.
        /// Resident memory of all processes of the server at the end of the second.
        pub rss_bytes: u64 [unit "bytes"],
        // Linux 6.2 and later count them.
        /// Open descriptors of all processes of the server at the end of the second. Null where the kernel does not count them.
        pub descriptors: Option<u64> [unit "descriptors"],
    }
}
