//! Observes the server's cores during a run: time of all processes, of the server, and waiting time of its threads.
//!
//! Every 10 ms a few small files are read, which stay open; once a second the server's threads are listed again and all
//! of /proc is read. Readings are less frequent if they take long (many cores, many threads), so that they take at most
//! 0.4 % of the core that reads.

use std::collections::HashMap;
use std::time::Duration;

use sys::accounting::{
    CpuTimes, IdleTime, Served, TaskClock, TaskSource, ThreadScheduleFile, cpu_times, idle_times, is_receiver,
    measures_interrupts, processes,
};
use sys::cgroup::{GroupTime, UsageClock};
use sys::clock::monotonic_ns;
use sys::sched::Cores;

use super::attribution::CoreTimes;
use super::disturbance::{Disturbance, Disturbed, Sample};
use super::others::Others;
use crate::topology::Topology;

/// Shortest interval between two readings.
const READING_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Shortest interval as a multiple of the duration of a reading.
const READING_INTERVAL_FACTOR: u32 = 250;
/// Shortest interval between two readings of all of /proc, and as a multiple of its duration.
const LIST_INTERVAL_MIN: Duration = Duration::from_secs(1);
const LIST_INTERVAL_FACTOR: u32 = 300;
/// Number of kernel threads that are read individually: those that have run most.
const MAINTENANCE_THREADS_MAX: usize = 6;
/// The threads that were read must have had this share of the server's time, otherwise its waiting time is unknown.
const THREADS_SEEN_MIN: f64 = 0.9;
/// With less CPU time of the server, the share of its threads is not judged.
const JUDGED_CPU_TIME_MIN: Duration = Duration::from_millis(5);

/// This program's own time on the server's cores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    /// Time of threads that run only on the server's cores.
    pub certain: Duration,
    /// Time of threads that may have run there.
    pub possible: Duration,
}

/// Files that are read repeatedly.
#[derive(Debug)]
pub struct CoreWatch {
    cores: Cores,
    tasks: Option<TaskClock>,
    usage: Option<UsageClock>,
    measures_interrupts: bool,
    /// Kernel threads that receive packets, by core.
    receivers: Vec<(usize, ThreadScheduleFile)>,
    /// Kernel threads for maintenance, which run under any load, and their time on each core.
    maintenance_threads: HashMap<i32, (ThreadScheduleFile, Duration)>,
    maintenance_time: Vec<(usize, Duration)>,
    threads: HashMap<i32, (ThreadScheduleFile, Served)>,
    /// CPU time and waiting time of all threads of the server that were ever read.
    ran: Duration,
    waited: Duration,
    pressure: Option<Duration>,
    disturbance: Disturbance,
    others: Others,
    in_phase: bool,
    next_reading: Duration,
    next_list: Duration,
    /// The last list: its time, and the CPU time of the server and of the threads that were read.
    listed: Option<(Duration, Duration, Duration)>,
    /// Waiting time over the phase, and whether it is known.
    waited_at_begin: Duration,
    waited_at_end: Option<Duration>,
    is_waiting_known: bool,
    buffer: Vec<u8>,
}

/// Results of the phase.
#[derive(Debug)]
pub struct Watched {
    pub disturbed: Disturbed,
    pub run_queue_wait: Option<Duration>,
    pub others: Others,
    pub source: &'static str,
}

impl CoreWatch {
    /// Observes `cores`: the server's own, or all allowed ones if nothing is pinned.
    pub fn start(cores: Cores, topology: &Topology) -> Self {
        let all = processes();
        let of_core = |&core: &usize| {
            let found = all.iter().filter(move |process| is_receiver(process, core));
            found.filter_map(move |process| Some((core, ThreadScheduleFile::open(process.pid)?)))
        };
        let receivers = cores.list().iter().flat_map(of_core).collect();
        CoreWatch {
            tasks: TaskClock::open(),
            usage: topology.cgroup.as_ref().and_then(sys::cgroup::Cgroup::usage_clock),
            measures_interrupts: measures_interrupts(),
            receivers,
            cores,
            maintenance_threads: HashMap::new(),
            maintenance_time: Vec::new(),
            threads: HashMap::new(),
            ran: Duration::ZERO,
            waited: Duration::ZERO,
            pressure: None,
            disturbance: Disturbance::default(),
            others: Others::default(),
            in_phase: false,
            next_reading: Duration::ZERO,
            next_list: Duration::ZERO,
            listed: None,
            waited_at_begin: Duration::ZERO,
            waited_at_end: None,
            is_waiting_known: true,
            buffer: Vec::new(),
        }
    }

    /// Begins the measured phase.
    pub fn begin(&mut self, topology: &Topology, own: &dyn Fn() -> Own) {
        self.list(topology, own);
        self.read_now(own);
        self.in_phase = true;
        self.is_waiting_known = true;
        self.waited_at_begin = self.waited;
        self.disturbance.begin();
    }

    /// Ends the measured phase.
    pub fn end(&mut self, topology: &Topology, own: &dyn Fn() -> Own) {
        self.read_now(own);
        self.list(topology, own);
        self.in_phase = false;
        self.waited_at_end = Some(self.waited);
        self.disturbance.end();
    }

    /// Takes a reading, if it is due. `own` reads the program's own time.
    pub fn read_if_due(&mut self, topology: &Topology, own: &dyn Fn() -> Own) {
        let now = now();
        if now >= self.next_list {
            self.list(topology, own);
            let read_duration = self::now().saturating_sub(now);
            self.next_list = now + LIST_INTERVAL_MIN.max(read_duration * LIST_INTERVAL_FACTOR);
        }
        if self.tasks.is_some() && now >= self.next_reading {
            let began = self::now();
            self.read_now(own);
            self.next_reading =
                began + READING_INTERVAL_MIN.max(self::now().saturating_sub(began) * READING_INTERVAL_FACTOR);
        }
    }

    /// Counters of the cores so far.
    pub fn times(&mut self, own: Own) -> Option<CoreTimes> {
        let began = now();
        let tasks = self.tasks.as_mut().map(|clock| on(&clock.read(), &self.cores));
        let at = now();
        let all = cpu_times().ok()?;
        let idle = idle_times(&all, self.cores.list());
        let read_duration = now().saturating_sub(began);
        let sum = |of: fn(&CpuTimes) -> Duration| {
            all.iter()
                .filter(|(core, _)| self.cores.list().contains(core))
                .map(|(_, times)| of(times))
                .sum::<Duration>()
        };
        let idle_sum = |of: fn(&IdleTime) -> Duration| idle.iter().map(of).sum::<Duration>();
        Some(CoreTimes {
            at,
            read_duration,
            cores: self.cores.list().len() as u32,
            idle: [idle_sum(|idle| idle.least), idle_sum(|idle| idle.most)],
            stolen: sum(|times| times.steal),
            ticked: sum(|times| times.user + times.nice + times.system),
            interrupts: self.measures_interrupts.then(|| sum(|times| times.irq + times.softirq)),
            tasks,
            tasks_have_interrupts: self.measures_interrupts
                && self.tasks.as_ref().is_some_and(|clock| clock.source() == TaskSource::Schedstat),
            receivers: on(&self.received(), &self.cores),
            kernel: on(&self.read_maintenance(), &self.cores),
            own: [own.certain, own.possible],
            named: self.others.total(),
        })
    }

    /// Time of this program's threads that may run on these cores and on others, too.
    pub fn time_on_shared_cores(&self) -> Duration {
        let may_run_on = |thread: i32| {
            let allowed = Cores::of(thread).ok()?;
            let here = allowed.list().iter().filter(|core| self.cores.list().contains(core)).count();
            (here > 0 && here < allowed.list().len()).then_some(thread)
        };
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(may_run_on);
        let own = std::process::id() as i32;
        threads.filter_map(|thread| sys::accounting::served(own, thread)).map(|served| served.ran).sum()
    }

    /// The results.
    pub fn finish(self) -> Watched {
        let source = match self.tasks.as_ref().map(TaskClock::source) {
            Some(TaskSource::Cpuacct) => "cpuacct",
            Some(TaskSource::Schedstat) => "schedstat",
            None => "/proc",
        };
        let waited = self.waited_at_end.unwrap_or(self.waited).saturating_sub(self.waited_at_begin);
        let mut disturbed = self.disturbance.finish();
        if self.is_waiting_known {
            // The server's threads waited no longer than this in total. Waits that ended after the phase are included.
            disturbed.waited = disturbed.waited.min(self.waited.saturating_sub(self.waited_at_begin));
        }
        Watched { disturbed, run_queue_wait: self.is_waiting_known.then_some(waited), others: self.others, source }
    }

    /// CPU time of the kernel's receiving threads, on each core that has one.
    fn received(&mut self) -> Vec<(usize, Duration)> {
        let buffer = &mut self.buffer;
        self.receivers.iter().filter_map(|(core, thread)| Some((*core, thread.read(buffer)?.ran))).collect()
    }

    /// CPU time of the kernel's maintenance threads, on each core. The time since the last reading counts on the core
    /// where the thread ran last.
    fn read_maintenance(&mut self) -> Vec<(usize, Duration)> {
        for (&pid, (thread, last)) in &mut self.maintenance_threads {
            let Some(served) = thread.read(&mut self.buffer) else { continue };
            let ran = served.ran.saturating_sub(*last);
            *last = served.ran;
            if ran.is_zero() {
                continue;
            }
            let Some(core) = sys::accounting::last_core(pid) else { continue };
            match self.maintenance_time.iter_mut().find(|(other, _)| *other == core) {
                Some((_, time)) => *time += ran,
                None => self.maintenance_time.push((core, ran)),
            }
        }
        self.maintenance_time.clone()
    }

    /// Reads all counters. Subtracted values are read last, so that the time of other processes is never too high.
    fn read_now(&mut self, own: &dyn Fn() -> Own) {
        let all = self.tasks.as_mut().map(TaskClock::read);
        let at = now();
        self.read_threads();
        let usage = self.usage.as_mut().map(UsageClock::read);
        let others = match (all, usage) {
            // Without a file of all processes' time, the processes that were read individually count.
            (None, _) => vec![self.others.total()],
            (Some(all), Some(GroupTime::PerCore(server))) if self.cores.list().len() > 1 => {
                let mut known = self.received();
                known.extend(self.read_maintenance());
                let time = |times: &[(usize, Duration)], core| {
                    times.iter().filter(|(other, _)| *other == core).map(|(_, time)| *time).sum::<Duration>()
                };
                let left = |&core: &usize| time(&all, core).saturating_sub(time(&server, core) + time(&known, core));
                self.cores.list().iter().map(left).collect()
            }
            (Some(all), usage) => {
                let server = match &usage {
                    Some(GroupTime::PerCore(times)) => on(times, &self.cores),
                    Some(GroupTime::Total(total)) => *total,
                    None => self.ran,
                };
                let kernels = on(&self.received(), &self.cores) + on(&self.read_maintenance(), &self.cores);
                let known = server + own().certain + kernels;
                vec![on(&all, &self.cores).saturating_sub(known)]
            }
        };
        self.disturbance.add(Sample { at, others, waited: self.waited });
    }

    fn read_threads(&mut self) {
        let buffer = &mut self.buffer;
        for (thread, last) in self.threads.values_mut() {
            let Some(served) = thread.read(buffer) else { continue };
            self.ran += served.ran.saturating_sub(last.ran);
            self.waited += served.waited.saturating_sub(last.waited);
            *last = served;
        }
    }

    /// Lists the server's threads again, and reads all processes.
    fn list(&mut self, topology: &Topology, own: &dyn Fn() -> Own) {
        self.read_threads();
        self.judge_threads(topology);
        let server = topology.server.as_ref().map(sys::sandbox::Sandbox::init_pid);
        let all = processes();
        let threads = match (&topology.cgroup, server) {
            (Some(group), _) => group.threads(),
            (None, Some(init)) => sys::accounting::threads_below(&all, init),
            (None, None) => Vec::new(),
        };
        self.threads.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if self.threads.contains_key(&thread) {
                continue;
            }
            let Some(opened) = ThreadScheduleFile::open(thread) else { continue };
            let Some(served) = opened.read(&mut self.buffer) else { continue };
            self.threads.insert(thread, (opened, served));
        }
        let mut busiest: Vec<_> = all.iter().filter(|process| process.is_maintenance()).collect();
        busiest.sort_by_key(|process| std::cmp::Reverse(process.ran));
        for process in busiest.into_iter().take(MAINTENANCE_THREADS_MAX) {
            if self.maintenance_threads.contains_key(&process.pid) {
                continue;
            }
            let Some(thread) = ThreadScheduleFile::open(process.pid) else { continue };
            let Some(served) = thread.read(&mut self.buffer) else { continue };
            self.maintenance_threads.insert(process.pid, (thread, served.ran));
        }
        self.others.add_reading(&all, server, std::process::id() as i32, self.cores.list(), self.in_phase);
        if self.tasks.is_none() {
            self.read_now(own);
        }
    }

    /// Whether the threads that were read since the last list had most of the server's time.
    fn judge_threads(&mut self, topology: &Topology) {
        let server = match self.usage.as_mut().map(UsageClock::read) {
            Some(GroupTime::PerCore(times)) => times.iter().map(|(_, time)| *time).sum(),
            Some(GroupTime::Total(total)) => total,
            None => self.ran,
        };
        let pressure = topology.cgroup.as_ref().and_then(sys::cgroup::Cgroup::pressure);
        let under_pressure = pressure.zip(self.pressure).map(|(now, before)| now.saturating_sub(before));
        self.pressure = pressure;
        let Some((at, server_then, ran_then)) = self.listed.replace((now(), server, self.ran)) else { return };
        let (used, seen) = (server.saturating_sub(server_then), self.ran.saturating_sub(ran_then));
        if used <= JUDGED_CPU_TIME_MIN || seen.as_secs_f64() >= THREADS_SEEN_MIN * used.as_secs_f64() {
            return;
        }
        match under_pressure {
            // The pressure is that of the whole group, including threads that have ended.
            Some(waited) => self.disturbance.waited_since(at, waited),
            None => {
                self.is_waiting_known = false;
                self.disturbance.waited_unknown_since(at);
            }
        }
    }
}

fn now() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// The time on these cores in total.
fn on(times: &[(usize, Duration)], cores: &Cores) -> Duration {
    times.iter().filter(|(core, _)| cores.list().contains(core)).map(|(_, time)| *time).sum()
}
