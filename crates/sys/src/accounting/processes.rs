//! All processes of this machine with their CPU time, to find the background CPU load.

use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// One process, all its threads together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// Process number.
    pub pid: i32,
    /// The parent's process number.
    pub parent: i32,
    /// The name in the kernel, at most 15 bytes, without control characters.
    pub name: String,
    /// Start, in clock ticks since boot: identifies the process together with its number.
    pub start_ticks: u64,
    /// CPU time of the process itself, to 10 ms.
    pub ran: Duration,
    /// CPU time of waited-for children and their descendants.
    pub reaped: Duration,
    /// The core on which its first thread ran last.
    pub core: usize,
    /// Number of threads.
    pub threads: usize,
}

impl ProcessTime {
    /// Whether it is a kernel thread that works for the whole machine (memory, RCU, timers), not on behalf of a program
    /// (disk writes, received packets).
    pub fn is_maintenance(&self) -> bool {
        let works_for_programs = [
            "kworker",
            "ksoftirqd",
            "backlog_napi",
            "napi/",
            "irq/",
            "io_wq",
            "jbd2",
            "loop",
            "nfsd",
            "kthreadd",
            "vhost",
        ];
        self.parent == KTHREADD && !works_for_programs.iter().any(|name| self.name.starts_with(name))
    }

    /// Approximate share of its CPU time on these cores: for a single thread by its last core, for several threads by
    /// each one's last core, weighted by CPU time. `[0, 1]`.
    pub fn share_on(&self, cores: &[usize]) -> f64 {
        let by_first = if cores.contains(&self.core) { 1.0 } else { 0.0 };
        if self.threads <= 1 {
            return by_first;
        }
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let threads = entries.filter_map(|entry| parse(&fs::read_to_string(entry.path().join("stat")).ok()?, 100));
        let (mut here, mut all) = (0.0, 0.0);
        for thread in threads {
            let ran = thread.ran.as_secs_f64();
            all += ran;
            here += if cores.contains(&thread.core) { ran } else { 0.0 };
        }
        if all > 0.0 { here / all } else { by_first }
    }
}

/// The parent of all kernel threads, if they are visible.
const KTHREADD: i32 = 2;

/// The core on which the first thread of a process ran last.
pub fn last_core(pid: i32) -> Option<usize> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, 100).map(|process| process.core)
}

/// All visible processes: those of other PID namespaces are not visible.
pub fn processes() -> Vec<ProcessTime> {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as u64;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, per_second)).collect()
}

/// The numbers of all threads of the descendants of process `root`, without `root`.
pub fn threads_below(all: &[ProcessTime], root: i32) -> Vec<i32> {
    let mut found: Vec<i32> = all.iter().filter(|process| process.parent == root).map(|process| process.pid).collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    let threads = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    found.into_iter().flat_map(threads).filter_map(number).collect()
}

/// See proc_pid_stat(5): field n of the manual, whose state is field 3, is fields[n - 3].
fn parse(line: &str, ticks_per_second: u64) -> Option<ProcessTime> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let time = |a, b| Some(Duration::from_millis((number(a)? + number(b)?) * 1000 / ticks_per_second));
    Some(ProcessTime {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        start_ticks: number(22)?,
        ran: time(14, 15)?,
        reaped: time(16, 17)?,
        core: number(39)? as usize,
        threads: number(20)? as usize,
    })
}

/// The kernel threads that receive packets on `core`, if they are visible as processes.
pub fn is_receiver(process: &ProcessTime, core: usize) -> bool {
    [format!("ksoftirqd/{core}"), format!("backlog_napi/{core}")].contains(&process.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_line_is_parsed() {
        let line = "77 (a) (\u{1b}c) S 5 77 77 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 1000 33 18446744073709551615 1 1 1 1 1 1 1 1 1 1 1 1 17 6 0 0";
        let process = parse(line, 100).unwrap();
        assert_eq!((process.pid, process.parent, process.name.as_str()), (77, 5, "a) (?c"));
        assert_eq!((process.ran, process.reaped), (Duration::from_millis(230), Duration::from_millis(270)));
        assert_eq!((process.start_ticks, process.core, process.threads), (4242, 6, 1));
        assert_eq!((process.share_on(&[5, 6]), process.share_on(&[5])), (1.0, 0.0));
        assert_eq!(parse("77 (cut) S 5", 100), None);
    }

    #[test]
    fn process_list_includes_this_process() {
        let own = std::process::id() as i32;
        let all = processes();
        let found = all.iter().find(|process| process.pid == own).unwrap();
        assert!(all.iter().any(|process| process.pid == found.parent) || found.parent == 0, "{found:?}");
        let cores: Vec<usize> = (0..4096).collect();
        assert_eq!((found.share_on(&cores), found.share_on(&[])), (1.0, 0.0), "of {} threads", found.threads);
        assert!(found.parent == 0 || threads_below(&all, found.parent).contains(&crate::accounting::this_thread()));
    }

    #[test]
    fn receive_threads_are_matched_by_core() {
        let named = |name: &str| ProcessTime { name: name.into(), ..ProcessTime::default() };
        assert!(is_receiver(&named("ksoftirqd/1"), 1) && is_receiver(&named("backlog_napi/1"), 1));
        let kernel = |name: &str| ProcessTime { parent: KTHREADD, ..named(name) };
        assert!(kernel("kdamond.0").is_maintenance() && kernel("rcu_preempt").is_maintenance());
        assert!(!kernel("kworker/0:1H-kb").is_maintenance() && !named("kdamond.0").is_maintenance());
        assert!(last_core(std::process::id() as i32).is_some() && last_core(i32::MAX).is_none());
        assert!(!is_receiver(&named("ksoftirqd/1"), 11) && !is_receiver(&named("kworker/1:0"), 1));
    }
}
