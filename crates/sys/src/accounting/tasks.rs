//! CPU time of all threads of the machine on each core, to the nanosecond.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// The kernel file that a [`TaskClock`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSource {
    /// The root control group of version 1 (`cpuacct.usage_percpu`): includes a running thread up to its last tick.
    Cpuacct,
    /// /proc/schedstat: includes a thread's time when it leaves its core, with the interrupts during that time.
    Schedstat,
}

/// The CPU time of all threads on each core since boot. /proc/stat has the same in steps of 10 ms and by the kernel's
/// tick, which misses work that runs in step with the tick.
#[derive(Debug)]
pub struct TaskClock {
    source: TaskSource,
    file: File,
    buffer: Vec<u8>,
}

impl TaskClock {
    /// `None` if the kernel has neither file: no root control group of version 1, and no CONFIG_SCHEDSTATS.
    pub fn open() -> Option<TaskClock> {
        let at = |source, path: &Path| {
            let mut clock = TaskClock { source, file: File::open(path).ok()?, buffer: Vec::new() };
            (!clock.read().is_empty()).then_some(clock)
        };
        let root = crate::cgroup::root_usage_per_core();
        root.and_then(|path| at(TaskSource::Cpuacct, &path))
            .or_else(|| at(TaskSource::Schedstat, Path::new("/proc/schedstat")))
    }

    /// The source of the figures.
    pub fn source(&self) -> TaskSource {
        self.source
    }

    /// The time of each core up to now, by its number; empty if the file can no longer be read.
    pub fn read(&mut self) -> Vec<(usize, Duration)> {
        let text = read_again(&self.file, &mut self.buffer);
        match self.source {
            TaskSource::Cpuacct => per_core(text),
            TaskSource::Schedstat => schedstat(text),
        }
    }
}

/// Reads a whole file of /proc or a control group from its beginning; empty on failure.
pub(crate) fn read_again<'a>(file: &File, buffer: &'a mut Vec<u8>) -> &'a str {
    buffer.resize(buffer.len().max(4096), 0);
    let mut length = 0;
    loop {
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) | Err(_) => break,
            Ok(read) => length += read,
        }
        if length == buffer.len() {
            buffer.resize(length * 2, 0);
        }
    }
    std::str::from_utf8(&buffer[..length]).unwrap_or_default()
}

/// The figures of `cpuacct.usage_percpu`: one per core, in the order of their numbers.
pub(crate) fn per_core(text: &str) -> Vec<(usize, Duration)> {
    text.split_whitespace().map(str::parse).map_while(Result::ok).map(Duration::from_nanos).enumerate().collect()
}

/// The seventh figure of each line that begins with `cpu`: see Documentation/scheduler/sched-stats.rst.
fn schedstat(text: &str) -> Vec<(usize, Duration)> {
    let core = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let core = fields.next()?.parse().ok()?;
        Some((core, Duration::from_nanos(fields.nth(6)?.parse().ok()?)))
    };
    text.lines().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_task_clock_files_are_parsed() {
        let ns = Duration::from_nanos;
        assert_eq!(per_core("305 0 77 \n"), [(0, ns(305)), (1, ns(0)), (2, ns(77))]);
        let text = "version 17\ntimestamp 4\ncpu0 0 0 9 8 7 6 123456789 5 4\ndomain0 3 1 2\ncpu12 0 0 0 0 0 0 42 0 0\ncpu13 1\n";
        assert_eq!(schedstat(text), [(0, ns(123_456_789)), (12, ns(42))]);
        assert!(schedstat("").is_empty() && per_core("x").is_empty());
    }

    #[test]
    fn task_clock_includes_this_thread() {
        // A kernel without either file has no such clock.
        let Some(mut clock) = TaskClock::open() else { return };
        let mut sum = || clock.read().iter().map(|(_, time)| *time).sum::<Duration>();
        let (before, own) = (sum(), crate::clock::thread_cpu_time());
        while crate::clock::thread_cpu_time() - own < Duration::from_millis(30) {}
        // Up to the last tick or context switch of each thread.
        std::thread::sleep(Duration::from_millis(5));
        let spent = sum() - before;
        assert!(spent >= Duration::from_millis(20), "{spent:?}");
    }
}
