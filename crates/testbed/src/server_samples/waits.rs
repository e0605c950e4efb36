//! The times in which the server was ready to run and did not, from the kernel's cumulative counters.
//!
//! A counter grows when a wait ends (CPU limit) or when a thread gets a core (run queue), so the growth between two
//! readings is a wait that ended before the later one: it is put immediately before that reading. Start and end are
//! therefore known to the interval of the readings. The growth of the run-queue counter is the mean over the threads
//! that ran or waited: one thread's wait does not delay what another thread computes.

use std::collections::HashMap;
use std::time::Duration;

use schema::{ServerWaitRow, WaitCause};
use sys::accounting::{Served, ThreadScheduleFile, processes, threads_below};
use sys::cgroup::{Cgroup, ThreadList, ThrottleClock};
use sys::sandbox::Sandbox;
use units::Timestamp;

/// Interval of listing the server's threads.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Most threads that are read; of more, the run-queue wait is not known.
const THREADS_MAX: usize = 128;
/// Most intervals: 128 MB would not be more than 3 million, and every run of less than a minute has fewer.
const ROWS_MAX: usize = 1 << 18;
/// A shorter wait is not recorded.
const SHORTEST: Duration = Duration::from_micros(100);

/// Where the numbers of the server's threads come from.
#[derive(Debug)]
enum Threads {
    Group(ThreadList),
    /// Descendants of this process.
    Below(i32),
}

/// Reads the server's CPU accounting.
#[derive(Debug)]
pub struct WaitReader {
    list: Option<Threads>,
    listed_at: Option<Timestamp>,
    threads: HashMap<i32, (ThreadScheduleFile, Served)>,
    throttle: Option<(ThrottleClock, Duration)>,
    waits: Waits,
    buffer: Vec<u8>,
}

impl WaitReader {
    /// A reader for a server in this control group and sandbox.
    pub fn new(group: Option<&Cgroup>, sandbox: Option<&Sandbox>) -> WaitReader {
        let group_threads = group.map(|group| Threads::Group(group.thread_list()));
        let throttle = group.and_then(Cgroup::throttle_clock).and_then(|mut clock| {
            let so_far = clock.read()?;
            Some((clock, so_far))
        });
        WaitReader {
            list: group_threads.or(sandbox.map(|sandbox| Threads::Below(sandbox.init_pid()))),
            listed_at: None,
            threads: HashMap::new(),
            throttle,
            waits: Waits::default(),
            buffer: Vec::new(),
        }
    }

    /// Reads all counters.
    pub fn read(&mut self, now: Timestamp) {
        if self.listed_at.is_none_or(|at| now.since(at) >= LIST_INTERVAL) {
            self.listed_at = Some(now);
            self.list_threads();
        }
        if let Some((clock, before)) = &mut self.throttle
            && let Some(total) = clock.read()
        {
            self.waits.add(WaitCause::CpuLimit, now, total.saturating_sub(*before));
            *before = total;
        }
        let (mut waited, mut active) = (Duration::ZERO, 0);
        for (file, before) in self.threads.values_mut() {
            let Some(served) = file.read(&mut self.buffer) else { continue };
            if served != *before {
                waited += served.waited.saturating_sub(before.waited);
                active += 1;
                *before = served;
            }
        }
        if active > 0 {
            self.waits.add(WaitCause::RunQueue, now, waited / active);
        }
    }

    fn list_threads(&mut self) {
        let threads = match &self.list {
            Some(Threads::Group(list)) => list.read(),
            Some(Threads::Below(root)) => threads_below(&processes(), *root),
            None => Vec::new(),
        };
        if threads.len() > THREADS_MAX {
            self.threads.clear();
            return;
        }
        self.threads.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if self.threads.contains_key(&thread) {
                continue;
            }
            let Some(file) = ThreadScheduleFile::open(thread) else { continue };
            let Some(served) = file.read(&mut self.buffer) else { continue };
            self.threads.insert(thread, (file, served));
        }
    }

    /// All waits.
    pub fn finish(self) -> Vec<ServerWaitRow> {
        self.waits.finish()
    }
}

/// Waits as intervals.
#[derive(Debug, Default)]
struct Waits {
    /// Of the CPU limit, and of the run queue.
    rows: [Vec<ServerWaitRow>; 2],
}

impl Waits {
    /// A wait of this length that ended just before `now`. Intervals of one cause do not overlap.
    fn add(&mut self, cause: WaitCause, now: Timestamp, length: Duration) {
        let rows = &mut self.rows[usize::from(cause == WaitCause::RunQueue)];
        if length < SHORTEST || rows.len() >= ROWS_MAX {
            return;
        }
        let earliest = rows.last().map_or(Timestamp::ZERO, |last| last.to);
        let from = Timestamp::from_nanos(now.as_nanos().saturating_sub(units::time::saturating_nanos(length)));
        let from = from.max(earliest);
        if from < now {
            rows.push(ServerWaitRow { from, to: now, cause });
        }
    }

    /// In order of time; the time in which the CPU limit stopped the server is not also run queue, as which some
    /// kernels count it.
    fn finish(self) -> Vec<ServerWaitRow> {
        let [limited, queued] = self.rows;
        let mut rows = Vec::with_capacity(limited.len() + queued.len());
        for row in queued {
            let mut from = row.from;
            let first = limited.partition_point(|limit| limit.to <= row.from);
            for limit in limited[first..].iter().take_while(|limit| limit.from < row.to) {
                if limit.from > from {
                    rows.push(ServerWaitRow { from, to: limit.from, ..row });
                }
                from = from.max(limit.to);
            }
            if from < row.to {
                rows.push(ServerWaitRow { from, ..row });
            }
        }
        rows.extend(limited);
        rows.sort_by_key(|row| (row.from, row.to));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn intervals(waits: Waits) -> Vec<(u64, u64, &'static str)> {
        let rows = waits.finish().into_iter();
        rows.map(|row| (row.from.as_nanos() / 1_000_000, row.to.as_nanos() / 1_000_000, row.cause.as_str())).collect()
    }

    #[test]
    fn the_growth_of_a_counter_is_a_wait_before_the_reading() {
        let ms = Duration::from_millis;
        let mut waits = Waits::default();
        waits.add(WaitCause::CpuLimit, at(20), ms(9));
        waits.add(WaitCause::CpuLimit, at(25), Duration::ZERO);
        // On two cores the kernel counts twice the time; what was counted before is not counted again.
        waits.add(WaitCause::CpuLimit, at(30), ms(18));
        waits.add(WaitCause::RunQueue, at(40), Duration::from_micros(99));
        waits.add(WaitCause::RunQueue, at(45), ms(5));
        assert_eq!(intervals(waits), [(11, 20, "cpu_limit"), (20, 30, "cpu_limit"), (40, 45, "run_queue")]);
    }

    #[test]
    fn time_of_the_cpu_limit_is_not_also_run_queue() {
        let ms = Duration::from_millis;
        let mut waits = Waits::default();
        waits.add(WaitCause::CpuLimit, at(10), ms(4));
        waits.add(WaitCause::CpuLimit, at(20), ms(4));
        waits.add(WaitCause::RunQueue, at(25), ms(25));
        let expected = [
            (0, 6, "run_queue"),
            (6, 10, "cpu_limit"),
            (10, 16, "run_queue"),
            (16, 20, "cpu_limit"),
            (20, 25, "run_queue"),
        ];
        assert_eq!(intervals(waits), expected);
    }

    #[test]
    fn a_thread_that_waits_for_its_core_is_seen() {
        let clock = sys::clock::Clock::start();
        let own = std::process::id() as i32;
        let mut reader = WaitReader { list: Some(Threads::Below(own)), ..WaitReader::new(None, None) };
        reader.read(clock.now());
        assert!(reader.threads.is_empty(), "this process has no children");
        let served = |ms: u64| Served { ran: Duration::from_millis(ms), waited: Duration::ZERO };
        let Some(file) = ThreadScheduleFile::open(sys::accounting::this_thread()) else { return };
        reader.threads.insert(1, (file, served(0)));
        reader.read(clock.now());
        assert!(reader.threads[&1].1.ran > Duration::ZERO, "the thread's time was read");
    }
}
