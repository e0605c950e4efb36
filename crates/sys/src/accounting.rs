//! Kernel counters: CPU time and memory of processes, CPU time of cores, TCP's own counters, and the facts of this host
//! that a result is stored with.
//!
//! All figures are read from /proc, a few times per second at most; nothing here is on a hot path. The control group
//! ([`crate::cgroup`]) counts more exactly; /proc works everywhere.

mod cpu;
mod host;
mod idle;
mod process;
mod processes;
mod schedule;
mod steering;
mod tasks;
mod tcp;

pub use cpu::{CpuTimes, cpu_times, measures_interrupts};
pub use host::{HostFacts, kernel_version};
pub use idle::{IdleTime, idle_times};
pub use process::{ProcessStat, ProcessUsage, descendants, own_usage, thread_times, tree_descriptors, tree_usage};
pub use processes::{ProcessTime, is_receiver, last_core, processes, threads_below};
pub use schedule::{Served, ThreadScheduleFile, served, this_thread};
pub use steering::set_rps;
pub use tasks::{TaskClock, TaskSource};
pub(crate) use tasks::{per_core, read_again};
pub use tcp::TcpCounters;

use std::fs;

use crate::error::{Error, Result};

/// Available memory, in bytes, from the text of `/proc/meminfo`: MemAvailable, or MemFree on a kernel before 3.14,
/// which has no such line; 0 with neither.
pub fn memory_available(meminfo: &str) -> u64 {
    let find = |key: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    find("MemAvailable").or_else(|| find("MemFree")).unwrap_or(0) * 1024
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(Error::of(format!("read {path}")))
}
