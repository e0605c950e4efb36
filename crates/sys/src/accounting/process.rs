//! CPU time and memory of a process and its descendants.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// Resource usage of a process tree. Biases: times are counted in ticks of 10 ms per process (the kernel scales them to
/// the scheduler's measurement); a dead process counts only after its parent has waited for it; shared memory is
/// counted once per process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Resident memory now, in bytes.
    pub rss_bytes: u64,
    /// Running processes, without the root.
    pub processes: usize,
}

/// Open descriptors of all running descendants of process `root`; descriptors of forked processes count in each of
/// them. `None` if the kernel does not count them (before Linux 6.2), or if no descendant is accessible.
///
/// The kernel reports the number as the size of /proc/PID/fd, so the cost does not depend on the number of connections.
pub fn tree_descriptors(root: i32) -> Option<u64> {
    let counts = descendants(root).into_iter().filter_map(descriptors_of);
    counts.reduce(|all, one| all + one).filter(|&all| all > 0)
}

fn descriptors_of(pid: i32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/fd")).ok().map(|metadata| metadata.len())
}

/// The relevant fields of /proc/PID/stat: see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Process number in this PID namespace.
    pub pid: i32,
    /// State, one letter: R running, S sleeping, T stopped, Z dead and not yet waited for ..
    pub state: char,
    /// The parent's process number.
    pub parent: i32,
    /// User and system time of the process itself, in clock ticks.
    pub own_ticks: (u64, u64),
    /// User and system time of waited-for children and their descendants, in clock ticks.
    pub reaped_ticks: (u64, u64),
    /// Start, in clock ticks since boot.
    pub start_ticks: u64,
    /// Resident memory, in pages.
    pub rss_pages: u64,
}

impl ProcessStat {
    /// Reads the fields of one process; `None` if it does not exist.
    pub fn read(pid: i32) -> Option<ProcessStat> {
        ProcessStat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the one line of the file.
    pub(crate) fn parse(line: &str) -> Option<ProcessStat> {
        // The name in parentheses may contain spaces and parentheses: the last parenthesis ends it.
        let (pid, rest) = line.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Field n of the manual, whose state is field 3, is fields[n - 3].
        let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            pid: pid.parse().ok()?,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            own_ticks: (number(14)?, number(15)?),
            // cutime and cstime are signed in the kernel, and never negative.
            reaped_ticks: (number(16)?, number(17)?),
            start_ticks: number(22)?,
            rss_pages: number(24)?,
        })
    }
}

/// User and system time of one thread of this process, by its number (gettid(2)); `None` after its end. Resolution 10
/// ms; the sum is exact, the split is by the kernel's tick.
pub fn thread_times(thread: i32) -> Option<(Duration, Duration)> {
    let stat = ProcessStat::parse(&fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)?;
    Some((ticks_to_duration(stat.own_ticks.0), ticks_to_duration(stat.own_ticks.1)))
}

/// User and system time of all threads of this process, and its resident memory in bytes. `None` without /proc.
/// Resolution as [`thread_times`].
pub fn own_usage() -> Option<(Duration, Duration, u64)> {
    let stat = ProcessStat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some((ticks_to_duration(stat.own_ticks.0), ticks_to_duration(stat.own_ticks.1), stat.rss_pages * page_bytes()))
}

/// Resource usage of the descendants of process `root`, running and waited for; of `root` itself only the reaped
/// children. All zero if the process does not exist.
pub fn tree_usage(root: i32) -> ProcessUsage {
    let mut usage = ProcessUsage::default();
    let (mut user, mut system) = (0, 0);
    let Some(root_stat) = ProcessStat::read(root) else { return usage };
    let mut add = |ticks: (u64, u64)| {
        user += ticks.0;
        system += ticks.1;
    };
    add(root_stat.reaped_ticks);
    let mut pages = 0;
    for stat in living_descendants(root) {
        add(stat.own_ticks);
        add(stat.reaped_ticks);
        pages += stat.rss_pages;
        usage.processes += usize::from(stat.state != 'Z');
    }
    usage.user = ticks_to_duration(user);
    usage.system = ticks_to_duration(system);
    usage.rss_bytes = pages * page_bytes();
    usage
}

/// The numbers of all descendants of `root`, including zombies, without `root`.
pub fn descendants(root: i32) -> Vec<i32> {
    living_descendants(root).into_iter().map(|stat| stat.pid).collect()
}

/// One pass over /proc. Processes that start or end during the pass may be missing.
fn living_descendants(root: i32) -> Vec<ProcessStat> {
    let mut children: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(stat) = ProcessStat::read(pid) {
            children.entry(stat.parent).or_default().push(stat);
        }
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next].pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Rounds down to the nanosecond.
fn ticks_to_duration(ticks: u64) -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as u64;
    Duration::from_nanos((u128::from(ticks) * 1_000_000_000 / u128::from(per_second)) as u64)
}

fn page_bytes() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "77 (a) (b c) S 5 77 77 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 1000 33 18446744073709551615";

    #[test]
    fn process_name_with_parentheses_is_parsed() {
        let stat = ProcessStat::parse(LINE).unwrap();
        assert_eq!((stat.pid, stat.state, stat.parent), (77, 'S', 5));
        assert_eq!((stat.own_ticks, stat.reaped_ticks), ((11, 12), (13, 14)));
        assert_eq!((stat.start_ticks, stat.rss_pages), (4242, 33));
        assert_eq!(ProcessStat::parse("77 (cut) S 5"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn descendants_of_the_parent_include_this_process() {
        let own = std::process::id() as i32;
        let parent = ProcessStat::read(own).unwrap().parent;
        assert!(descendants(parent).contains(&own));
        let usage = tree_usage(parent);
        assert!(usage.processes >= 1);
        assert!(usage.rss_bytes > 100_000, "{usage:?}");
    }

    #[test]
    fn thread_time_is_at_most_the_process_time() {
        let (user, system) = thread_times(nix::unistd::gettid().as_raw()).unwrap();
        let (all_user, all_system, rss_bytes) = own_usage().unwrap();
        assert!(user + system <= all_user + all_system + Duration::from_millis(20));
        assert!(rss_bytes > 100_000);
        assert_eq!(thread_times(i32::MAX), None);
    }

    #[test]
    fn descriptors_of_descendants_are_counted() {
        let own = std::process::id() as i32;
        let parent = ProcessStat::read(own).unwrap().parent;
        let Some(before) = descriptors_of(own).filter(|&count| count > 0) else {
            // A kernel that does not count descriptors reports no figure.
            return assert_eq!(tree_descriptors(own), None);
        };
        // Other tests of this process open and close files as well, but fewer than a thousand.
        let open_files: Vec<_> = (0..1000).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let now = descriptors_of(own).unwrap();
        assert!((before + 500..before + 1500).contains(&now), "{before}, then {now}");
        assert!(tree_descriptors(parent).unwrap() >= now - 500);
        drop(open_files);
    }

    #[test]
    fn usage_of_an_unknown_process_is_zero() {
        assert_eq!(tree_descriptors(i32::MAX), None);
        assert_eq!(tree_usage(i32::MAX), ProcessUsage::default());
    }
}
