//! Readers of a group's counters that belong to another thread than the group.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use super::{Cgroup, Version, keyed};
use crate::accounting;

/// The time for which a CPU limit stopped the group's tasks, for repeated reads.
#[derive(Debug)]
pub struct ThrottleClock {
    file: File,
    is_in_nanos: bool,
    buffer: Vec<u8>,
}

impl ThrottleClock {
    /// The time so far, summed over cores; `None` if the file has none. The kernel adds a time when it ends.
    pub fn read(&mut self) -> Option<Duration> {
        let text = accounting::read_again(&self.file, &mut self.buffer);
        if self.is_in_nanos {
            return keyed(text, "throttled_time").map(Duration::from_nanos);
        }
        keyed(text, "throttled_usec").map(Duration::from_micros)
    }
}

/// The list of a group's threads, for repeated reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadList(PathBuf);

impl ThreadList {
    /// The numbers of its threads; none after the group's end.
    pub fn read(&self) -> Vec<i32> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Cgroup {
    /// A reader of the time for which the CPU limit stopped the group; `None` without the controller.
    pub fn throttle_clock(&self) -> Option<ThrottleClock> {
        let (Version::Two { directory } | Version::One { cpu: directory, .. }) = &self.version;
        let file = File::open(directory.join("cpu.stat")).ok()?;
        let is_in_nanos = matches!(self.version, Version::One { .. });
        let mut clock = ThrottleClock { file, is_in_nanos, buffer: Vec::new() };
        clock.read().map(|_| clock)
    }

    /// The list of its threads.
    pub fn thread_list(&self) -> ThreadList {
        ThreadList(match &self.version {
            Version::Two { directory } => directory.join("cgroup.threads"),
            Version::One { cpuacct, .. } => cpuacct.join("tasks"),
        })
    }
}
