//! Other processes on the server's cores, by name, from occasional readings of all of /proc.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use schema::OtherProcess;
use sys::accounting::{ProcessTime, is_receiver};

/// Most processes that are named.
const NAMED_MAX: usize = 5;
/// Processes with a smaller share of a core are not named: /proc is accurate to 10 ms.
const SHARE_MIN: f64 = 0.001;

/// A process, by its number and start time.
type Key = (i32, u64);

/// A process that was seen.
#[derive(Debug, Default)]
struct Other {
    name: String,
    parent: i32,
    ran: Duration,
    reaped: Duration,
    /// CPU time in the phase, while it was on the server's cores.
    used: Duration,
    /// CPU time of children that ended between readings.
    ended: Duration,
    /// Whether the process has ended.
    has_ended: bool,
}

/// The other processes, with their CPU time summed from reading to reading.
#[derive(Debug, Default)]
pub struct Others {
    known: HashMap<Key, Other>,
    has_read: bool,
    total: Duration,
}

impl Others {
    /// Reads `all` processes. `server`: the first process of the server's tree; `own`: this program's; `cores`: the
    /// server's. Without `counts` only their current CPU time is recorded.
    pub fn add_reading(&mut self, all: &[ProcessTime], server: Option<i32>, own: i32, cores: &[usize], counts: bool) {
        let ours = family(all, own, server);
        let mut reaped_seen: HashMap<i32, Duration> = HashMap::new();
        let keys: HashSet<Key> = all.iter().map(|process| (process.pid, process.start_ticks)).collect();
        for (key, other) in &mut self.known {
            if !keys.contains(key) && !std::mem::replace(&mut other.has_ended, true) {
                *reaped_seen.entry(other.parent).or_default() += other.ran + other.reaped;
            }
        }
        let mut next = HashMap::with_capacity(all.len());
        for process in all {
            let is_receiver = cores.iter().any(|&core| is_receiver(process, core));
            if ours.contains(&process.pid) || is_receiver || process.is_maintenance() {
                continue;
            }
            let key = (process.pid, process.start_ticks);
            let mut other = self.known.remove(&key).unwrap_or_else(|| match self.has_read {
                // The process began since the last reading.
                true => Other::default(),
                false => Other { ran: process.ran, reaped: process.reaped, ..Other::default() },
            });
            let seen = reaped_seen.get(&process.pid).copied().unwrap_or_default();
            let used = process.ran.saturating_sub(other.ran);
            if counts && !used.is_zero() {
                let used = used.mul_f64(process.share_on(cores));
                other.used += used;
                self.total += used;
            }
            if counts {
                other.ended += process.reaped.saturating_sub(other.reaped).saturating_sub(seen);
            }
            (other.ran, other.reaped) = (process.ran, process.reaped);
            (other.name, other.parent) = (process.name.clone(), process.parent);
            next.insert(key, other);
        }
        // A process that used CPU time is named even after its end.
        next.extend(
            self.known.drain().filter(|(_, other)| other.used > Duration::ZERO || other.ended > Duration::ZERO),
        );
        (self.known, self.has_read) = (next, true);
    }

    /// CPU time of the other processes on the server's cores in total, as far as readings show it.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The other processes with most CPU time in `elapsed_s` seconds.
    pub fn named(&self, elapsed_s: f64) -> Vec<OtherProcess> {
        let one = |pid: i32, other: &Other, time: Duration, ended_children: bool| OtherProcess {
            pid,
            name: other.name.clone(),
            cpu_s: time.as_secs_f64(),
            share: time.as_secs_f64() / elapsed_s.max(1e-9),
            ended_children,
        };
        let both = self
            .known
            .iter()
            .flat_map(|(&(pid, _), other)| [one(pid, other, other.used, false), one(pid, other, other.ended, true)]);
        let mut named: Vec<OtherProcess> = both.filter(|process| process.share >= SHARE_MIN).collect();
        // Children that ended between readings may have run elsewhere: they come last.
        named.sort_by(|a, b| {
            (a.ended_children, b.cpu_s, a.pid)
                .partial_cmp(&(b.ended_children, a.cpu_s, b.pid))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        named.truncate(NAMED_MAX);
        named
    }
}

/// This program's processes and the server's, by number.
fn family(all: &[ProcessTime], own: i32, server: Option<i32>) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found: Vec<i32> = server.into_iter().chain([own]).collect();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, name: &str, ms: u64, core: usize) -> ProcessTime {
        let ran = Duration::from_millis(ms);
        ProcessTime {
            pid,
            parent,
            name: name.into(),
            start_ticks: pid as u64,
            ran,
            reaped: Duration::ZERO,
            core,
            threads: 1,
        }
    }

    #[test]
    fn processes_on_the_servers_cores_are_named() {
        let reading = |hog_ms, server_ms, late: &[ProcessTime]| {
            let mut all = vec![
                process(1, 0, "init", 5_000, 0),
                process(10, 1, "yamabiko", 700, 1),
                process(11, 10, "nginx", server_ms, 0),
                process(12, 11, "nginx", server_ms, 0),
                process(20, 1, "busy", hog_ms, 0),
                process(21, 1, "elsewhere", hog_ms, 1),
                process(16, 2, "ksoftirqd/0", hog_ms, 0),
            ];
            all.extend_from_slice(late);
            all
        };
        let mut others = Others::default();
        others.add_reading(&reading(100, 10, &[]), Some(11), 10, &[0], false);
        // Before the phase.
        others.add_reading(&reading(150, 20, &[]), Some(11), 10, &[0], false);
        others.add_reading(&reading(450, 900, &[process(30, 1, "late", 70, 0)]), Some(11), 10, &[0], true);
        others.add_reading(&reading(650, 900, &[]), Some(11), 10, &[0], true);
        let processes = others.named(1.0);
        let named: Vec<(&str, f64)> = processes.iter().map(|process| (process.name.as_str(), process.cpu_s)).collect();
        assert_eq!(named, [("busy", 0.5), ("late", 0.07)]);
        assert_eq!((processes[0].pid, processes[0].share), (20, 0.5));
        assert_eq!(others.total(), Duration::from_millis(570));
    }

    #[test]
    fn cpu_time_of_ended_children_is_read_from_their_parent() {
        let reading = |reaped_ms, child: Option<u64>| {
            let reaped = Duration::from_millis(reaped_ms);
            let mut all = vec![ProcessTime { reaped, ..process(40, 1, "make", 10, 1) }];
            all.extend(child.map(|ms| process(41, 40, "cc1", ms, 0)));
            all
        };
        let mut others = Others::default();
        others.add_reading(&reading(0, Some(0)), None, 10, &[0], true);
        others.add_reading(&reading(0, Some(300)), None, 10, &[0], true);
        // A child that had used 300 ms has ended, and children that no reading showed, with 200 ms in total.
        others.add_reading(&reading(500, None), None, 10, &[0], true);
        let processes = others.named(1.0);
        let named: Vec<_> =
            processes.iter().map(|process| (process.name.as_str(), process.cpu_s, process.ended_children)).collect();
        assert_eq!(named, [("cc1", 0.3, false), ("make", 0.2, true)]);
    }

    #[test]
    fn processes_with_little_cpu_time_are_not_named() {
        let mut others = Others::default();
        others.add_reading(&[process(20, 1, "cron", 0, 0)], None, 10, &[0], true);
        others.add_reading(&[process(20, 1, "cron", 10, 0)], None, 10, &[0], true);
        assert!(others.named(20.0).is_empty());
        assert_eq!(others.named(5.0).len(), 1);
    }
}
