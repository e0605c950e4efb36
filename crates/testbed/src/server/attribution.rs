//! Whose the time of the server's cores was: the server's, this program's, other processes', or interrupts that nobody was charged for.
//!
//! ```text
//! cores x time = idle + server + this program + receivers (ksoftirqd) + other processes + interrupts outside any process
//! ```
//!
//! The time of all processes is counted exactly where the kernel has a file for that ([`sys::accounting::TaskClock`]), idle time as finely as
//! [`sys::accounting::idle_times`] knows it. Interrupts are what is left. The kernel's own figure for them is sampled by its tick, and of arrivals in step
//! with the tick it is wrong; only a kernel that measures interrupts (CONFIG_IRQ_TIME_ACCOUNTING) is believed.
//!
//! Each figure is an interval. Biases: an interrupt that comes while a process runs is in that process's time, so that beside other processes part of the
//! server's receive processing is in theirs (`hidden`); a process that wakes causes interrupts of its own (`CAUSED`).

use std::time::Duration;

/// Interrupts that a process causes by waking (a timer, leaving idle) are at most such a share of its own time: some 3 us beside 10 us of the shortest
/// useful work.
const CAUSED: f64 = 0.3;
/// The same of this program's probe of the cores' speed, which wakes 100 times a second for 10 to 20 us: at most, and taken off.
const CAUSED_BY_PROBE: [f64; 2] = [0.5, 0.25];
/// Where packets that arrive while another process runs are charged to that, they arrive at most so many times as densely then as on the average.
const DENSITY: f64 = 2.0;
/// A sample of the kernel's tick stands for so much time, at most (HZ = 100); and a process that runs is counted up to its last tick.
const TICK_S: f64 = 0.01;

/// What was read of the server's cores at one moment: all of it counts from some time before the run, and of all the cores together.
#[derive(Clone, Debug, Default)]
pub struct CoreTimes {
    /// When, by CLOCK_MONOTONIC.
    pub at: Duration,
    /// How long the reading took: its figures are of moments up to so far apart.
    pub took: Duration,
    /// How many cores.
    pub cores: u32,
    /// Idle time: at least, at most.
    pub idle: [Duration; 2],
    /// Taken by the hypervisor.
    pub stolen: Duration,
    /// Processes, by the kernel's tick.
    pub ticked: Duration,
    /// Interrupts, where the kernel measures them.
    pub interrupts: Option<Duration>,
    /// All processes, exactly.
    pub tasks: Option<Duration>,
    /// Whether interrupts that came while a process ran are in `tasks`, though the kernel measures them apart.
    pub tasks_have_interrupts: bool,
    /// The kernel's threads that receive packets.
    pub receivers: Duration,
    /// The kernel's threads that keep house.
    pub kernel: Duration,
    /// This program: at least, at most.
    pub own: [Duration; 2],
    /// Other processes that were looked at one by one.
    pub named: Duration,
}

/// `[at least, at most]`, in seconds.
type Interval = [f64; 2];

/// Where the time went, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent {
    pub elapsed_s: f64,
    pub cores: u32,
    pub own: Interval,
    pub others: Interval,
    pub kernel: f64,
    pub interrupts: Interval,
    pub stolen: f64,
    /// Receive processing, and its interval.
    pub receive: f64,
    pub receive_interval: Interval,
    /// The server's processes. The less is what remains if all that was stolen from the cores in proportion was stolen from them.
    pub server: Interval,
    /// What in `receive_interval` and `server` may be others' work, however fine the clocks are.
    pub not_attributable: f64,
}

/// What happened from `earlier` to `now`, in which the server's processes used `server_s`; `baseline`: interrupts a second on all the cores before the
/// load, as far as they are certain.
pub fn attribute(earlier: &CoreTimes, now: &CoreTimes, server_s: f64, baseline: f64) -> Spent {
    let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
    let elapsed_s = since(now.at, earlier.at);
    let all = elapsed_s * f64::from(now.cores);
    let idle = [since(now.idle[0], earlier.idle[1]), since(now.idle[1], earlier.idle[0]).min(all)];
    let busy = [all - idle[1], (all - idle[0]).max(0.0)];
    let stolen = since(now.stolen, earlier.stolen);
    let receivers = since(now.receivers, earlier.receivers);
    let own = [since(now.own[0], earlier.own[0]), since(now.own[1], earlier.own[1])];
    let own = [own[0].min(own[1]), own[1].max(own[0])];
    let named = since(now.named, earlier.named);
    let measured = now.interrupts.zip(earlier.interrupts).map(|(now, earlier)| since(now, earlier));
    let kernel = since(now.kernel, earlier.kernel);
    let known = server_s + receivers + kernel;

    let tasks = now.tasks.zip(earlier.tasks).map(|(now, earlier)| since(now, earlier));
    let unseen = match tasks {
        Some(_) => 0.0,
        // What the tick saw of processes beyond those that are known; three standard errors of it may be chance.
        None => {
            let ticked = since(now.ticked, earlier.ticked);
            (ticked - known - own[1] - named - 3.0 * (ticked * TICK_S).sqrt() - TICK_S).max(0.0)
        }
    };
    let steps = 2.0 * TICK_S * f64::from(now.cores);
    let (others, interrupts) = match (tasks, measured) {
        (Some(tasks), Some(measured)) if now.tasks_have_interrupts => {
            // Of the time that was not idle, what is neither.
            let left = busy.map(|busy| busy.min(tasks + measured) - measured - known);
            ([left[0] - own[1] - steps, left[1] - own[0]], [measured - steps, measured + steps])
        }
        (Some(tasks), None) if !now.tasks_have_interrupts => {
            ([tasks - known - own[1], tasks - known - own[0]], [busy[0] - tasks - stolen, busy[1] - tasks])
        }
        (Some(tasks), measured) => {
            let interrupts =
                measured.map_or([busy[0] - tasks - stolen, busy[1] - tasks], |it| [it - steps, it + steps]);
            ([tasks - known - own[1], tasks - known - own[0]], interrupts)
        }
        (None, measured) => {
            let left = [busy[0] - known - own[1], busy[1] - known - own[0]];
            let interrupts =
                measured.map_or([left[0] - named - unseen - stolen, left[1] - named], |it| [it - steps, it + steps]);
            ([named, (named + unseen).min(left[1])], interrupts)
        }
    };
    let others = others.map(|bound| bound.max(0.0));
    let others = [others[0].min(others[1]), others[1]];
    // At either end another process may have run since its last tick, as likely as it had the cores.
    let untold = 2.0 * TICK_S * f64::from(now.cores) * (others[1] / all.max(1e-9)).min(1.0)
        + (now.took + earlier.took).as_secs_f64() * f64::from(now.cores);
    let middle = (interrupts[0].max(0.0) + interrupts[1].max(0.0)) / 2.0;
    let interrupts = [(interrupts[0] - untold).max(0.0), interrupts[1].max(0.0) + untold];

    // A kernel that measures interrupts charges no process for them.
    let hidden = match measured {
        Some(_) => 0.0,
        None => {
            let dense = DENSITY * interrupts[1] / (idle[0] + interrupts[1]).max(1e-9);
            (others[1] + kernel) * dense.min(1.0)
        }
    };
    let before = (baseline * elapsed_s).max(0.0);
    let caused = (CAUSED * others[1] + before).min(interrupts[0]);
    let probe = CAUSED_BY_PROBE.map(|share| share * own[0]);
    let low = (interrupts[0] - caused - probe[0]).max(0.0) + receivers;
    let high = interrupts[1] + receivers + hidden;
    let receive = ((middle - before - probe[1]).max(0.0) + receivers).clamp(low, high);
    let stolen_from_server = if busy[1] > 0.0 { (stolen * server_s / busy[1]).min(server_s) } else { 0.0 };
    Spent {
        elapsed_s,
        cores: now.cores,
        own,
        others,
        kernel,
        interrupts,
        stolen,
        receive,
        receive_interval: [low, high],
        server: [server_s - stolen_from_server, server_s],
        not_attributable: hidden + caused + unseen + stolen.min(interrupts[1]) + stolen_from_server,
    }
}

#[cfg(test)]
mod tests;
