//! What lies between the tester's two ends: a lab of this kernel, or a real gateway.

use std::process::Command;
use std::time::Duration;

use lab::forward::{ForwardError, Session, Test, TrialSeen};
use lab::gateway::RunningLab;

/// A way through a gateway, on which trials are made.
pub(super) trait Way {
    /// Makes a trial, ended early once `go_on` says no.
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialSeen, ForwardError>;

    /// Processor time that the gateway has used so far; `None` where nobody knows.
    fn cpu(&mut self) -> Option<Duration>;
}

/// Through the lab's gateway.
pub(super) struct LabWay<'a> {
    pub session: Session,
    pub lab: &'a RunningLab,
}

impl Way for LabWay<'_> {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialSeen, ForwardError> {
        self.session.run_while(test, go_on)
    }

    fn cpu(&mut self) -> Option<Duration> {
        Some(self.lab.used().cpu)
    }
}

/// Through a real one, which is asked by a command of the user's.
pub(super) struct RemoteWay<'a> {
    pub session: Session,
    pub stat: Option<&'a str>,
    /// Why the command said nothing of use, the first time.
    pub stat_failed: Option<String>,
}

impl Way for RemoteWay<'_> {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialSeen, ForwardError> {
        self.session.run_while(test, go_on)
    }

    fn cpu(&mut self) -> Option<Duration> {
        let command = self.stat?;
        if self.stat_failed.is_some() {
            // A command that failed once is not run hundreds of times more.
            return None;
        }
        let said = Command::new("/bin/sh").args(["-c", command]).stdin(std::process::Stdio::null()).output();
        let failed = match said {
            Err(error) => error.to_string(),
            Ok(output) if !output.status.success() => {
                let last = String::from_utf8_lossy(&output.stderr);
                format!("it ended with {}: {}", output.status, last.trim().lines().last().unwrap_or_default())
            }
            Ok(output) => match busy(&String::from_utf8_lossy(&output.stdout)) {
                Some(busy) => return Some(busy),
                None => "what it printed is no /proc/stat".to_owned(),
            },
        };
        self.stat_failed = Some(failed);
        None
    }
}

/// Clock ticks a second in /proc/stat: USER_HZ, the same on every machine that Linux runs on but for Alpha and ia64.
const TICKS_PER_S: f64 = 100.0;

/// Processor time of all cores in a /proc/stat, but for idling, waiting for disks, and what the hypervisor took: proc(5).
fn busy(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq; steal and guests (which are in user) after them.
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else { return None };
    Some(Duration::from_secs_f64((user + nice + system + irq + softirq) as f64 / TICKS_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_read_from_proc_stat() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(busy(stat), Some(Duration::from_millis(1630)));
        assert_eq!(busy("cpu 1 2 3 4 5 6"), None);
        assert_eq!(busy("hello"), None);
        assert!(busy(&std::fs::read_to_string("/proc/stat").unwrap()).is_some());
    }
}
