//! One measurement of one server.

use std::time::Duration;

use anyhow::{Context, Result};
use sys::accounting::{ProcessStat, cpu_times, tree_usage};

use super::peers::Peer;
use crate::bench::load::measure::{Figures, SERVER_CORE};

/// What came of it. Times are us of CPU per request.
pub struct Measured {
    /// Requests a second.
    pub rate: f64,
    /// Requests that failed.
    pub failed: u64,
    /// In the server's processes, in user mode.
    pub user_us: f64,
    /// In the kernel for them.
    pub system_us: f64,
    /// Softirq of the server's core, whoever it was for.
    pub softirq_us: f64,
    /// Share of the measured phase in which the server's core was busy, 0 to 1.
    pub server_core: f64,
    /// Share of the generator's life in which its core was busy, 0 to 1.
    pub client_core: f64,
}

/// Reads the server's accounts around a run of a generator.
pub fn measure(peer: &Peer, generate: impl FnOnce() -> Result<Figures>) -> Result<Measured> {
    let before = Account::of(peer.name, peer.pid())?;
    let figures = generate()?;
    let spent = Account::of(peer.name, peer.pid())?.since(&before);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / figures.requests().max(1.0);
    Ok(Measured {
        rate: figures.rate,
        failed: figures.failed,
        user_us: each(spent.user),
        system_us: each(spent.system),
        softirq_us: each(spent.softirq),
        server_core: (figures.server_busy.as_secs_f64() / figures.phase_s.max(1e-9)).min(1.0),
        client_core: figures.client_core,
    })
}

/// CPU time so far. The kernel counts it in ticks of 10 ms, so 2 s of it are exact to half a percent.
pub struct Account {
    /// Of the server's processes, in user mode.
    pub user: Duration,
    /// In the kernel for them.
    pub system: Duration,
    /// Softirq of the server's core, whoever it was for.
    pub softirq: Duration,
}

impl Account {
    /// Of the server whose first process is `pid`.
    pub fn of(name: &str, pid: i32) -> Result<Account> {
        let own = ProcessStat::read(pid).with_context(|| format!("{name} has ended"))?;
        let below = tree_usage(pid);
        let cores = cpu_times()?;
        let (_, core) =
            cores.iter().find(|(number, _)| *number == SERVER_CORE).context("the server's core is missing")?;
        let ticks = |ticks: u64| Duration::from_millis(ticks * 10);
        Ok(Account {
            user: ticks(own.own_ticks.0) + below.user,
            system: ticks(own.own_ticks.1) + below.system,
            softirq: core.softirq,
        })
    }

    /// From `earlier` to `self`.
    pub fn since(&self, earlier: &Account) -> Account {
        Account {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            softirq: self.softirq.saturating_sub(earlier.softirq),
        }
    }
}
