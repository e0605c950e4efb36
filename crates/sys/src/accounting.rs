//! What the kernel counted: processor time and memory of processes, processor time of cores, TCP's own counters, and
//! the facts of this host that a result is stored with.
//!
//! All of it is read from /proc, a few times a second at most; nothing here is on a hot path. The control group
//! ([`crate::cgroup`]) counts more exactly; this works everywhere.

mod cpu;
mod host;
mod process;
mod schedule;
mod steering;
mod tcp;

pub use cpu::{CpuTimes, cpu_times};
pub use host::HostFacts;
pub use process::{ProcessStat, ProcessUsage, descendants, own_usage, thread_times, tree_descriptors, tree_usage};
pub use schedule::{Served, served, this_thread};
pub use steering::set_rps;
pub use tcp::TcpCounters;

use std::fs;

use crate::error::{Error, Result};

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(Error::of(format!("read {path}")))
}
