//! Attribution of the time of the server's cores: to the server, this program, other processes, or interrupts outside
//! any process.
//!
//! ```text
//! cores x time = idle + server + this program + receivers (ksoftirqd) + other processes + interrupts outside any process
//! ```
//!
//! The time of all processes is exact if the kernel has a file for it ([`sys::accounting::TaskClock`]); idle time is as
//! precise as [`sys::accounting::idle_times`]. Interrupts are the remainder. The kernel's own figure for them is
//! sampled by its tick, and wrong for arrivals in step with the tick; it is used only if the kernel measures interrupts
//! (CONFIG_IRQ_TIME_ACCOUNTING).
//!
//! Each figure is an interval. Biases: an interrupt while a process runs is part of that process's time, so with other
//! processes a part of the server's receive processing is in theirs (`hidden`); a process that wakes up causes its own
//! interrupts (`CAUSED_INTERRUPTS_SHARE`).

use std::time::Duration;

/// Interrupts that a process causes by waking up (a timer, leaving idle), as a share of its own time, at most: about 3
/// us per 10 us of the shortest useful work.
const CAUSED_INTERRUPTS_SHARE: f64 = 0.3;
/// Interrupts caused by this program's CPU speed probe, which wakes up 100 times a second for 10 to 20 us, as a share
/// of its time: at most, and the share that is subtracted.
const PROBE_INTERRUPTS_SHARE: [f64; 2] = [0.5, 0.25];
/// If packets that arrive while another process runs are charged to it, they arrive at most this many times as densely
/// then as on average.
const ARRIVAL_DENSITY_MAX: f64 = 2.0;
/// Time of one sample of the kernel's tick, at most (HZ = 100); a running process is counted up to its last tick.
const TICK_S: f64 = 0.01;

/// A reading of the server's cores: counters since some time before the run, summed over the cores.
#[derive(Clone, Debug, Default)]
pub struct CoreTimes {
    /// Time of the reading, by CLOCK_MONOTONIC.
    pub at: Duration,
    /// Length of the reading: its figures are up to this far apart.
    pub read_duration: Duration,
    /// Number of cores.
    pub cores: u32,
    /// Idle time: lower and upper bound.
    pub idle: [Duration; 2],
    /// Time stolen by the hypervisor.
    pub stolen: Duration,
    /// CPU time of processes, by the kernel's tick.
    pub ticked: Duration,
    /// Time of interrupts, if the kernel measures it.
    pub interrupts: Option<Duration>,
    /// CPU time of all processes, exactly.
    pub tasks: Option<Duration>,
    /// Whether interrupts during a process are in `tasks`, although the kernel also measures them separately.
    pub tasks_have_interrupts: bool,
    /// CPU time of kernel threads that receive packets.
    pub receivers: Duration,
    /// CPU time of kernel threads for maintenance.
    pub kernel: Duration,
    /// CPU time of this program: lower and upper bound.
    pub own: [Duration; 2],
    /// CPU time of other processes that were read individually.
    pub named: Duration,
}

/// `[lower bound, upper bound]`, in seconds.
type Interval = [f64; 2];

/// Attribution of the time, in seconds.
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
    /// CPU time of the server's processes. The lower bound applies if the stolen time was taken from them in
    /// proportion.
    pub server: Interval,
    /// The part of `receive_interval` and `server` that may belong to other processes, however precise the clocks are.
    pub not_attributable: f64,
}

/// Attribution of the time from `earlier` to `now`, in which the server's processes used `server_s`; `baseline`:
/// interrupts per second on all the cores before the load, as far as they are certain.
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
        // CPU time that the tick shows beyond the known processes'; three standard errors of it may be chance.
        None => {
            let ticked = since(now.ticked, earlier.ticked);
            (ticked - known - own[1] - named - 3.0 * (ticked * TICK_S).sqrt() - TICK_S).max(0.0)
        }
    };
    let tick_steps = 2.0 * TICK_S * f64::from(now.cores);
    let (others, interrupts) = match (tasks, measured) {
        (Some(tasks), Some(measured)) if now.tasks_have_interrupts => {
            // The part of the non-idle time that is neither interrupts nor a known process.
            let left = busy.map(|busy| busy.min(tasks + measured) - measured - known);
            ([left[0] - own[1] - tick_steps, left[1] - own[0]], [measured - tick_steps, measured + tick_steps])
        }
        (Some(tasks), None) if !now.tasks_have_interrupts => {
            ([tasks - known - own[1], tasks - known - own[0]], [busy[0] - tasks - stolen, busy[1] - tasks])
        }
        (Some(tasks), measured) => {
            let interrupts =
                measured.map_or([busy[0] - tasks - stolen, busy[1] - tasks], |it| [it - tick_steps, it + tick_steps]);
            ([tasks - known - own[1], tasks - known - own[0]], interrupts)
        }
        (None, measured) => {
            let left = [busy[0] - known - own[1], busy[1] - known - own[0]];
            let interrupts = measured
                .map_or([left[0] - named - unseen - stolen, left[1] - named], |it| [it - tick_steps, it + tick_steps]);
            ([named, (named + unseen).min(left[1])], interrupts)
        }
    };
    let others = others.map(|bound| bound.max(0.0));
    let others = [others[0].min(others[1]), others[1]];
    // At either end another process may have run since its last tick, with the probability of its share of the cores.
    let tick_error = 2.0 * TICK_S * f64::from(now.cores) * (others[1] / all.max(1e-9)).min(1.0)
        + (now.read_duration + earlier.read_duration).as_secs_f64() * f64::from(now.cores);
    let middle = (interrupts[0].max(0.0) + interrupts[1].max(0.0)) / 2.0;
    let interrupts = [(interrupts[0] - tick_error).max(0.0), interrupts[1].max(0.0) + tick_error];

    // A kernel that measures interrupts does not charge processes for them.
    let hidden = match measured {
        Some(_) => 0.0,
        None => {
            let dense = ARRIVAL_DENSITY_MAX * interrupts[1] / (idle[0] + interrupts[1]).max(1e-9);
            (others[1] + kernel) * dense.min(1.0)
        }
    };
    let before = (baseline * elapsed_s).max(0.0);
    let caused = (CAUSED_INTERRUPTS_SHARE * others[1] + before).min(interrupts[0]);
    let probe = PROBE_INTERRUPTS_SHARE.map(|share| share * own[0]);
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
