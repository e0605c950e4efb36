//! Processes of a trial: each ends with its parent and reports its cost.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::{Error, Result};

/// A process whose output goes to a file. Dropping it kills the process.
pub struct Process {
    child: Child,
    log: PathBuf,
    command_line: String,
}

/// CPU time and memory that a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// User and system CPU time.
    pub cpu: Duration,
    /// Peak memory in bytes; 0 if unknown.
    pub peak_bytes: u64,
}

impl Process {
    /// Starts a command; stdout and stderr are appended to `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Process> {
        let file = File::options().create(true).append(true).open(log)?;
        let command_line = format!("{command:?}");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{command_line}: {error}"))?;
        Ok(Process { child, log: log.to_owned(), command_line })
    }

    /// The process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The complete log file, including output of earlier processes.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The exit status if the process has ended. Does not reap the process.
    pub fn ended(&self) -> Result<Option<WaitStatus>> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        let status = waitid(Id::Pid(Pid::from_raw(self.pid().cast_signed())), flags)?;
        Ok((status != WaitStatus::StillAlive).then_some(status))
    }

    /// An error if the process has ended.
    pub fn still_runs(&self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.error(&format!("{status:?}"))),
        }
    }

    /// Whether the process still runs. An error if it has ended with a failure.
    pub fn runs_or_succeeded(&self) -> Result<bool> {
        match self.ended()? {
            None => Ok(true),
            Some(WaitStatus::Exited(_, 0)) => Ok(false),
            Some(status) => Err(self.error(&format!("{status:?}"))),
        }
    }

    fn error(&self, how: &str) -> Error {
        format!("{}: {how}\n{}", self.command_line, tail(&self.log_text())).into()
    }

    /// Waits until the process exits successfully; returns its cost.
    pub fn succeeds_within(mut self, timeout: Duration) -> Result<Cost> {
        let cost = self.wait_for_end(timeout)?;
        let status = self.child.wait()?;
        if status.success() { Ok(cost) } else { Err(self.error(&status.to_string())) }
    }

    /// Sends this signal and waits for the end; returns the cost.
    pub fn end(mut self, signal: Signal, timeout: Duration) -> Result<Cost> {
        let peak_bytes = peak_bytes(self.pid());
        kill(Pid::from_raw(self.pid().cast_signed()), signal)?;
        let cost = self.wait_for_end(timeout)?;
        let status = self.child.wait()?;
        if signal != Signal::SIGKILL && !status.success() {
            return Err(self.error(&format!("after {signal}: {status}")));
        }
        Ok(Cost { peak_bytes, ..cost })
    }

    /// CPU time and memory that the process has used so far.
    pub fn cost(&self) -> Cost {
        Cost { cpu: cpu(self.pid()), peak_bytes: peak_bytes(self.pid()) }
    }

    /// Waits for the end without reaping the process, so that its CPU time can still be read from /proc.
    fn wait_for_end(&self, timeout: Duration) -> Result<Cost> {
        let deadline = Instant::now() + timeout;
        while self.ended()?.is_none() {
            if Instant::now() > deadline {
                return Err(self.error(&format!("still running after {timeout:?}")));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(Cost { cpu: cpu(self.pid()), peak_bytes: 0 })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended already.
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
    // The name is in parentheses and may contain any character, parentheses included. User and system time are the
    // fields 11 and 12 after the state.
    let fields = text.rfind(')').map(|at| text[at + 1..].split_whitespace().skip(11).take(2));
    let ticks: u64 = fields.into_iter().flatten().filter_map(|field| field.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every supported platform.
    Duration::from_millis(10 * ticks)
}

fn peak_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
