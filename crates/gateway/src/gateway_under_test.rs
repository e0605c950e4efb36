//! Trials through an emulated or a real gateway, with its CPU time.

use std::cell::Cell;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::emulation::{GatewayUsed, LinkFigures, RunningEmulation};
use crate::tester::{Session, Test, TesterError};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::trials::TrialOutcome;

/// A gateway through which trials are run.
pub(super) trait GatewayUnderTest {
    /// Runs a trial, ended early when `go_on` returns false.
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialOutcome, TesterError>;
}

/// The emulated gateway.
pub(super) struct EmulatedGatewayUnderTest<'a> {
    pub session: Session,
    pub emulation: &'a RunningEmulation,
}

impl GatewayUnderTest for EmulatedGatewayUnderTest<'_> {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialOutcome, TesterError> {
        let watched = ReadingRange::default();
        let reading = || {
            watched.add((self.emulation.used(), self.emulation.loops()));
            go_on()
        };
        let seen = self.session.run_while(test, &reading)?;
        let (cpu, links_busy) = watched.between().unzip();
        Ok(TrialOutcome { seen, cpu, links_busy })
    }
}

/// Counters of gateway and links at one time.
type Reading = (GatewayUsed, [LinkFigures; 2]);

/// First and last reading within a trial, without its preparation and the wait after it.
#[derive(Default)]
struct ReadingRange(Cell<Option<[Reading; 2]>>);

impl ReadingRange {
    fn add(&self, reading: Reading) {
        let first = self.0.get().map_or(reading, |[first, _]| first);
        self.0.set(Some([first, reading]));
    }

    /// Cores used by the gateway, and utilization of the busier link; `None` for a single reading.
    fn between(&self) -> Option<(f64, f64)> {
        let [(used, links), (used_then, links_then)] = self.0.get()?;
        let used = used_then.since(&used);
        let busy = [0, 1].map(|link| links_then[link].since(&links[link]).busy_share());
        (!used.at.is_zero()).then(|| (used.cores(), busy[0].max(busy[1])))
    }
}

/// A real gateway, whose CPU time a configured command reads.
pub(super) struct RealGatewayUnderTest<'a> {
    pub session: Session,
    pub stat: Option<&'a str>,
    /// First error of the command.
    pub stat_failed: Option<String>,
}

impl GatewayUnderTest for RealGatewayUnderTest<'_> {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialOutcome, TesterError> {
        let before = self.cpu();
        let seen = self.session.run_while(test, go_on)?;
        let spent = before.and_then(|before| Some(self.cpu()?.saturating_sub(before)));
        let lasts_s = f64::from(test.lasts_ms()) / 1e3;
        Ok(TrialOutcome { seen, cpu: spent.map(|spent| spent.as_secs_f64() / lasts_s), links_busy: None })
    }
}

impl RealGatewayUnderTest<'_> {
    /// CPU time of the gateway so far; `None` if unknown.
    fn cpu(&mut self) -> Option<Duration> {
        let command = self.stat?;
        if self.stat_failed.is_some() {
            // Do not run a failing command again.
            return None;
        }
        match run_stat_command(command, STAT_TIMEOUT) {
            Ok(busy) => Some(busy),
            Err(failed) => {
                self.stat_failed = Some(failed);
                None
            }
        }
    }
}

/// Timeout of the command, which runs between trials.
const STAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the command and parses the CPU time from its output.
fn run_stat_command(command: &str, timeout: Duration) -> Result<Duration, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = shell.spawn().map_err(|error| error.to_string())?;
    let group = Pid::from_raw(child.id().cast_signed());
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = result.recv_timeout(timeout).unwrap_or_else(|_| {
        let _ = killpg(group, Signal::SIGKILL);
        Err(io::Error::other(format!("it did not end within {} s", timeout.as_secs_f64())))
    });
    match output {
        Err(error) => Err(error.to_string()),
        Ok(output) if !output.status.success() => {
            let last = String::from_utf8_lossy(&output.stderr);
            Err(format!("it ended with {}: {}", output.status, last.trim().lines().last().unwrap_or_default()))
        }
        Ok(output) => busy(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| "its output is not a valid /proc/stat".to_owned()),
    }
}

/// Clock ticks per second in /proc/stat: USER_HZ, except on Alpha and ia64.
const TICKS_PER_S: f64 = 100.0;

/// CPU time of all cores in a /proc/stat without idle, iowait and steal: proc(5).
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
    fn stat_command_that_fails_or_hangs_is_reported() {
        assert!(run_stat_command("cat /proc/stat", STAT_TIMEOUT).is_ok());
        assert_eq!(run_stat_command("echo hello", STAT_TIMEOUT), Err("its output is not a valid /proc/stat".into()));
        assert_eq!(
            run_stat_command("echo no way >&2; exit 3", STAT_TIMEOUT),
            Err("it ended with exit status: 3: no way".into())
        );
        let hangs = run_stat_command("sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert_eq!(hangs, Err("it did not end within 0.1 s".into()));
    }

    /// A trial of 2 s within 6 s: usage before and after it does not count.
    #[test]
    fn cpu_time_outside_a_trial_does_not_count() {
        let reading = |at_ms: u64, cpu_ms: u64, ran_ms: [u64; 2]| {
            let at = Duration::from_millis(at_ms);
            let link = |ran| LinkFigures { at, ran: Duration::from_millis(ran), ..LinkFigures::default() };
            (GatewayUsed { at, cpu: Duration::from_millis(cpu_ms), ..GatewayUsed::default() }, ran_ms.map(link))
        };
        let watched = ReadingRange::default();
        assert_eq!(watched.between(), None);
        watched.add(reading(2000, 400, [0, 1000]));
        assert_eq!(watched.between(), None, "a single reading");
        watched.add(reading(3000, 450, [100, 1600]));
        watched.add(reading(4000, 600, [500, 2900]));
        assert_eq!(watched.between(), Some((0.1, 0.95)));
    }

    #[test]
    fn cpu_time_is_parsed_from_proc_stat() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(busy(stat), Some(Duration::from_millis(1630)));
        assert_eq!(busy("cpu 1 2 3 4 5 6"), None);
        assert_eq!(busy("hello"), None);
        assert!(busy(&std::fs::read_to_string("/proc/stat").unwrap()).is_some());
    }
}
