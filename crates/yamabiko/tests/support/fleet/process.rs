//! Processes of a trial: each ends with its parent and reports its cost.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
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
    /// Peak memory in bytes; 0 if unknown.
    pub peak_bytes: u64,
}

impl Process {
    /// Starts it; both output streams are appended to `log`.
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

    /// The complete log, including earlier processes.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether it has ended, and how; the kernel knows of it until it is waited for.
    pub fn ended(&self) -> Result<Option<WaitStatus>> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        let status = waitid(Id::Pid(Pid::from_raw(self.pid().cast_signed())), flags)?;
        Ok((status != WaitStatus::StillAlive).then_some(status))
    }

    /// An error if it has ended.
    pub fn still_runs(&self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.fault(&format!("{status:?}"))),
        }
    }

    /// An error if it has ended, and not well; whether it still runs.
    pub fn runs_or_succeeded(&self) -> Result<bool> {
        match self.ended()? {
            None => Ok(true),
            Some(WaitStatus::Exited(_, 0)) => Ok(false),
            Some(status) => Err(self.fault(&format!("{status:?}"))),
        }
    }

    fn fault(&self, how: &str) -> Fault {
        format!("{}: {how}\n{}", self.said, tail(&self.said())).into()
    }

    /// Waits for its good end.
    pub fn succeeds_within(mut self, patience: Duration) -> Result<Cost> {
        let cost = self.waits(patience)?;
        let status = self.child.wait()?;
        if status.success() { Ok(cost) } else { Err(self.fault(&status.to_string())) }
    }

    /// Ends it by this signal; what it cost.
    pub fn end(mut self, signal: Signal, patience: Duration) -> Result<Cost> {
        let peak_bytes = peak_bytes(self.pid());
        kill(Pid::from_raw(self.pid().cast_signed()), signal)?;
        let cost = self.waits(patience)?;
        let status = self.child.wait()?;
        if signal != Signal::SIGKILL && !status.success() {
            return Err(self.fault(&format!("after {signal}: {status}")));
        }
        Ok(Cost { peak_bytes, ..cost })
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        Cost { cpu: cpu(self.pid()), peak_bytes: peak_bytes(self.pid()) }
    }

    /// Waits for its end without taking leave of it, so that the kernel still knows what it cost.
    fn waits(&self, patience: Duration) -> Result<Cost> {
        let deadline = Instant::now() + patience;
        while self.ended()?.is_none() {
            if Instant::now() > deadline {
                return Err(self.fault(&format!("still running after {patience:?}")));
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
