//! CPU time of each core, by kind of work.

use std::time::Duration;

use super::read;
use crate::error::{Error, Result};

/// CPU time of one core since boot. Receive processing for a server during another task's time counts as `softirq`, or
/// is invisible if it ran inside that task's own system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time of programs at normal priority.
    pub user: Duration,
    /// Time of programs with a raised nice value.
    pub nice: Duration,
    /// Time of the kernel on behalf of programs.
    pub system: Duration,
    /// Idle time.
    pub idle: Duration,
    /// Idle time while a disk operation is in progress.
    pub iowait: Duration,
    /// Time of hardware interrupts.
    pub irq: Duration,
    /// Time of software interrupts: packets received, timers.
    pub softirq: Duration,
    /// Time used by the hypervisor for other guests.
    pub steal: Duration,
}

impl CpuTimes {
    /// Time that was neither idle nor stolen.
    pub fn busy(&self) -> Duration {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// Time since `earlier`; zero if a counter decreased, as `iowait` may.
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// The CPU times of each online core: `(core, times)`, in ascending order. Resolution 10 ms.
///
/// # Errors
/// /proc/stat could not be read or parsed.
pub fn cpu_times() -> Result<Vec<(usize, CpuTimes)>> {
    let cores = parse(&read("/proc/stat")?);
    if cores.is_empty() {
        return Err(Error::Unexpected { call: "read /proc/stat".to_owned(), answer: "no core".to_owned() });
    }
    Ok(cores)
}

/// Whether the kernel measures the time of interrupts (CONFIG_IRQ_TIME_ACCOUNTING) and charges no process for it;
/// otherwise `irq` and `softirq` are estimated by the timer tick. Such a kernel reports interrupt pressure (Linux 6.1),
/// or its configuration file is installed.
pub fn measures_interrupts() -> bool {
    let release = nix::sys::utsname::uname().map(|it| it.release().to_string_lossy().into_owned()).unwrap_or_default();
    std::fs::read_to_string("/proc/pressure/irq").is_ok_and(|text| text.contains("total="))
        || std::fs::read_to_string(format!("/boot/config-{release}"))
            .is_ok_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

fn parse(stat: &str) -> Vec<(usize, CpuTimes)> {
    stat.lines()
        .filter_map(|line| {
            // The first line, "cpu " without a number, is the sum.
            let mut fields = line.strip_prefix("cpu")?.split_whitespace();
            let core = fields.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
            // USER_HZ is 100 on every platform Rust's Linux targets run on.
            let mut time = || Duration::from_millis(10 * fields.next().and_then(|f| f.parse().ok()).unwrap_or(0));
            let times = CpuTimes {
                user: time(),
                nice: time(),
                system: time(),
                idle: time(),
                iowait: time(),
                irq: time(),
                softirq: time(),
                steal: time(),
            };
            Some((core, times))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_have_one_entry_per_core() {
        let ms = Duration::from_millis;
        let cores = parse("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu3 10 0 0 0\nintr 1 2\n");
        assert_eq!(cores.iter().map(|(core, _)| *core).collect::<Vec<_>>(), [0, 3]);
        let first = cores[0].1;
        assert_eq!((first.user, first.iowait, first.steal), (ms(10), ms(50), ms(80)));
        assert_eq!(first.busy(), ms(10 + 20 + 30 + 60 + 70));
        assert_eq!(cores[1].1.steal, ms(0));
    }

    #[test]
    fn decreased_cpu_counter_counts_as_zero() {
        let (now, earlier) =
            (CpuTimes::default(), CpuTimes { iowait: Duration::from_millis(10), ..Default::default() });
        assert_eq!(now.since(&earlier), CpuTimes::default());
    }

    #[test]
    fn cpu_times_of_this_machine_are_readable() {
        assert!(!cpu_times().unwrap().is_empty());
    }
}
