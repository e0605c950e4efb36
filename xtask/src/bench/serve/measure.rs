//! One measurement of one server.

use std::time::Duration;

use anyhow::{Context, Result};
use sys::accounting::{ProcessStat, cpu_times, tree_usage};

use super::peers::Peer;
use crate::bench::load::measure::{Figures, SERVER_CORE};

/// Results of one measurement. Times are CPU time per request in us.
pub struct Measured {
    /// Requests per second.
    pub rate: f64,
    /// Failed requests.
    pub failed: u64,
    /// CPU time of the server's processes in user mode.
    pub user_us: f64,
    /// CPU time of the server's processes in the kernel.
    pub system_us: f64,
    /// Softirq time of the server's core, for any process.
    pub softirq_us: f64,
    /// Utilization of the server's core in the measured phase, 0 to 1.
    pub server_core: f64,
    /// Utilization of the generator's core from the generator's start to its end, 0 to 1.
    pub client_core: f64,
}

/// Reads the server's CPU time before and after a run of a generator.
pub fn measure(peer: &Peer, generate: impl FnOnce() -> Result<Figures>) -> Result<Measured> {
    let before = CpuTime::of(peer.name, peer.pid())?;
    let figures = generate()?;
    let used = CpuTime::of(peer.name, peer.pid())?.since(&before);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / figures.requests().max(1.0);
    Ok(Measured {
        rate: figures.rate,
        failed: figures.failed,
        user_us: each(used.user),
        system_us: each(used.system),
        softirq_us: each(used.softirq),
        server_core: (figures.server_busy.as_secs_f64() / figures.phase_s.max(1e-9)).min(1.0),
        client_core: figures.client_core,
    })
}

/// CPU time so far. The kernel counts ticks of 10 ms, so 2 s are exact to 0.5 %.
pub struct CpuTime {
    /// CPU time of the server's processes in user mode.
    pub user: Duration,
    /// CPU time of the server's processes in the kernel.
    pub system: Duration,
    /// Softirq time of the server's core, for any process.
    pub softirq: Duration,
}

impl CpuTime {
    /// CPU time of the server whose first process is `pid`.
    pub fn of(name: &str, pid: i32) -> Result<CpuTime> {
        let own = ProcessStat::read(pid).with_context(|| format!("{name} has ended"))?;
        let below = tree_usage(pid);
        let cores = cpu_times()?;
        let (_, core) =
            cores.iter().find(|(number, _)| *number == SERVER_CORE).context("the server's core is missing")?;
        let ticks = |ticks: u64| Duration::from_millis(ticks * 10);
        Ok(CpuTime {
            user: ticks(own.own_ticks.0) + below.user,
            system: ticks(own.own_ticks.1) + below.system,
            softirq: core.softirq,
        })
    }

    /// The difference between `earlier` and `self`.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            softirq: self.softirq.saturating_sub(earlier.softirq),
        }
    }
}
