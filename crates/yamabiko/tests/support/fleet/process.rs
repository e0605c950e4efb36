//! Processes of a trial: each ends with what started it, and says what it cost.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::{Fault, Result};

/// A process whose output goes to a file. Dropped, it is killed.
pub struct Process {
    child: Child,
    log: PathBuf,
    said: String,
}

/// What a process has cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// User and system.
    pub cpu: Duration,
    /// Most memory at once, bytes; 0 where it is not known.
    pub peak_bytes: u64,
}

impl Process {
    /// Starts it; what it says on either stream is added to `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Process> {
        let file = File::options().create(true).append(true).open(log)?;
        let said = format!("{command:?}");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{said}: {error}"))?;
        Ok(Process { child, log: log.to_owned(), said })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that was said into its log, by its forerunners too.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// An error if it has ended.
    pub fn still_runs(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(format!("{}: {status}\n{}", self.said, tail(&self.said()))),
        }
        .map_err(Fault::from)
    }

    /// Waits for its good end.
    pub fn succeeds_within(mut self, patience: Duration) -> Result<Cost> {
        let cost = self.waits(patience)?;
        let status = self.child.wait()?;
        if status.success() { Ok(cost) } else { Err(format!("{}: {status}\n{}", self.said, tail(&self.said())).into()) }
    }

    /// Ends it by this signal; what it cost.
    pub fn end(mut self, signal: Signal, patience: Duration) -> Result<Cost> {
        let peak_bytes = peak_bytes(self.pid());
        kill(Pid::from_raw(self.pid().cast_signed()), signal)?;
        let cost = self.waits(patience)?;
        let status = self.child.wait()?;
        if signal != Signal::SIGKILL && !status.success() {
            return Err(format!("{} after {signal}: {status}\n{}", self.said, tail(&self.said())).into());
        }
        Ok(Cost { peak_bytes, ..cost })
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        Cost { cpu: cpu(self.pid()), peak_bytes: peak_bytes(self.pid()) }
    }

    /// Waits for its end without taking leave of it, so that the kernel still knows what it cost.
    fn waits(&mut self, patience: Duration) -> Result<Cost> {
        let deadline = Instant::now() + patience;
        let pid = Pid::from_raw(self.pid().cast_signed());
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        while waitid(Id::Pid(pid), flags)? == nix::sys::wait::WaitStatus::StillAlive {
            if Instant::now() > deadline {
                return Err(format!("still running after {patience:?}: {}\n{}", self.said, tail(&self.said())).into());
            }
            sleep(Duration::from_millis(5));
        }
        Ok(Cost { cpu: cpu(self.pid()), peak_bytes: 0 })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a log.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets and may hold anything, brackets included; user and system time are 11 and 12 fields after the state.
    let fields = text.rfind(')').map(|at| text[at + 1..].split_whitespace().skip(11).take(2));
    let ticks: u64 = fields.into_iter().flatten().filter_map(|field| field.parse::<u64>().ok()).sum();
    // USER_HZ is 100 everywhere this runs.
    Duration::from_millis(10 * ticks)
}

fn peak_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
