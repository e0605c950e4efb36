//! What lies between the tester's two ends: a lab of this kernel, or a real gateway.

use std::cell::Cell;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::emulation::{GatewayUsed, LinkFigures, RunningLab};
use crate::tester::{Session, Test, TesterError};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::trials::Tried;

/// A way through a gateway, on which trials are made.
pub(super) trait Way {
    /// Makes a trial, ended early once `go_on` says no.
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<Tried, TesterError>;
}

/// Through the lab's gateway.
pub(super) struct LabWay<'a> {
    pub session: Session,
    pub lab: &'a RunningLab,
}

impl Way for LabWay<'_> {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<Tried, TesterError> {
        let watched = Watched::default();
        let look = || {
            watched.add((self.lab.used(), self.lab.loops()));
            go_on()
        };
        let seen = self.session.run_while(test, &look)?;
        let (cpu, links_busy) = watched.between().unzip();
        Ok(Tried { seen, cpu, links_busy })
    }
}

/// What gateway and links have used at one moment.
type Look = (GatewayUsed, [LinkFigures; 2]);

/// The first look and the last while a trial goes on: what is made ready for it, and waited for after it, is not in between.
#[derive(Default)]
struct Watched(Cell<Option<[Look; 2]>>);

impl Watched {
    fn add(&self, look: Look) {
        let first = self.0.get().map_or(look, |[first, _]| first);
        self.0.set(Some([first, look]));
    }

    /// Cores that the gateway used, and how busy the busier link was; nothing of a single look.
    fn between(&self) -> Option<(f64, f64)> {
        let [(used, links), (used_then, links_then)] = self.0.get()?;
        let used = used_then.since(&used);
        let busy = [0, 1].map(|link| links_then[link].since(&links[link]).busy_share());
        (!used.at.is_zero()).then(|| (used.cores(), busy[0].max(busy[1])))
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
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<Tried, TesterError> {
        let before = self.cpu();
        let seen = self.session.run_while(test, go_on)?;
        let spent = before.and_then(|before| Some(self.cpu()?.saturating_sub(before)));
        let lasts_s = f64::from(test.lasts_ms()) / 1e3;
        Ok(Tried { seen, cpu: spent.map(|spent| spent.as_secs_f64() / lasts_s), links_busy: None })
    }
}

impl RemoteWay<'_> {
    /// Processor time that the gateway has used so far; `None` where nobody knows.
    fn cpu(&mut self) -> Option<Duration> {
        let command = self.stat?;
        if self.stat_failed.is_some() {
            // A command that failed once is not run hundreds of times more.
            return None;
        }
        match ask(command, STAT_PATIENCE) {
            Ok(busy) => Some(busy),
            Err(failed) => {
                self.stat_failed = Some(failed);
                None
            }
        }
    }
}

/// The command must have ended by then: between two trials it is waited for.
const STAT_PATIENCE: Duration = Duration::from_secs(10);

/// What a command says of a gateway's processor time, or why it says nothing of use.
fn ask(command: &str, patience: Duration) -> Result<Duration, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = shell.spawn().map_err(|error| error.to_string())?;
    let group = Pid::from_raw(child.id().cast_signed());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let said = told.recv_timeout(patience).unwrap_or_else(|_| {
        let _ = killpg(group, Signal::SIGKILL);
        Err(io::Error::other(format!("it did not end within {} s", patience.as_secs_f64())))
    });
    match said {
        Err(error) => Err(error.to_string()),
        Ok(output) if !output.status.success() => {
            let last = String::from_utf8_lossy(&output.stderr);
            Err(format!("it ended with {}: {}", output.status, last.trim().lines().last().unwrap_or_default()))
        }
        Ok(output) => {
            busy(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "what it printed is no /proc/stat".to_owned())
        }
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
    fn a_command_is_asked_once_and_not_for_ever() {
        assert!(ask("cat /proc/stat", STAT_PATIENCE).is_ok());
        assert_eq!(ask("echo hello", STAT_PATIENCE), Err("what it printed is no /proc/stat".into()));
        assert_eq!(ask("echo no way >&2; exit 3", STAT_PATIENCE), Err("it ended with exit status: 3: no way".into()));
        let hangs = ask("sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert_eq!(hangs, Err("it did not end within 0.1 s".into()));
    }

    /// A trial of 2 s in a whole of 6 s: what was used before and after it does not count.
    #[test]
    fn only_the_time_of_a_trial_counts() {
        let look = |at_ms: u64, cpu_ms: u64, ran_ms: [u64; 2]| {
            let at = Duration::from_millis(at_ms);
            let link = |ran| LinkFigures { at, ran: Duration::from_millis(ran), ..LinkFigures::default() };
            (GatewayUsed { at, cpu: Duration::from_millis(cpu_ms), ..GatewayUsed::default() }, ran_ms.map(link))
        };
        let watched = Watched::default();
        assert_eq!(watched.between(), None);
        watched.add(look(2000, 400, [0, 1000]));
        assert_eq!(watched.between(), None, "a single look");
        watched.add(look(3000, 450, [100, 1600]));
        watched.add(look(4000, 600, [500, 2900]));
        assert_eq!(watched.between(), Some((0.1, 0.95)));
    }

    #[test]
    fn busy_time_is_read_from_proc_stat() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(busy(stat), Some(Duration::from_millis(1630)));
        assert_eq!(busy("cpu 1 2 3 4 5 6"), None);
        assert_eq!(busy("hello"), None);
        assert!(busy(&std::fs::read_to_string("/proc/stat").unwrap()).is_some());
    }
}
