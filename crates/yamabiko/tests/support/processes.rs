//! Information about other processes, from /proc.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::workspace::{Running, Workspace, wait_until};

/// The number of every process of this machine.
pub fn all() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process's command line, its arguments joined by spaces. Empty for an unknown process.
pub fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// Direct children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    all().filter(|other| stat(*other).is_some_and(|stat| stat.parent == pid)).collect()
}

/// All descendants of a process.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut at = 0;
    while let Some(&next) = found.get(at) {
        found.extend(children(next));
        at += 1;
    }
    found
}

/// Fields of /proc/PID/stat.
pub struct Stat {
    pub parent: i32,
    pub state: char,
    /// User and system CPU time.
    pub cpu: Duration,
}

/// `None` if the process does not exist.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character, parentheses included.
    let mut fields = text[text.rfind(')')? + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let mut ticks = fields.skip(9).take(2).map(|field| field.parse::<u64>().unwrap_or(0));
    let ticks = ticks.next()? + ticks.next()?;
    Some(Stat { parent, state, cpu: Duration::from_millis(1000 * ticks / TICKS_PER_SECOND) })
}

/// Waits until `expected` processes of the server that `running` has started contain `word` in their command line;
/// returns all of them.
pub fn wait_for_server(running: &mut Running, word: &str, expected: usize) -> Vec<i32> {
    let mut found = Vec::new();
    wait_until(&format!("{expected} processes with `{word}`"), || {
        assert!(!running.ended(), "the program exited early: {}", running.stderr());
        // The sandbox's init process has the same command line as the program, which contains the server's command.
        let own = command_line(running.pid());
        let is_server = |pid: &i32| {
            let line = command_line(*pid);
            line != own && line.contains(word) && !line.starts_with("/bin/sh")
        };
        found = descendants(running.pid()).into_iter().filter(is_server).collect();
        found.len() >= expected
    });
    found
}

/// The network namespace of a process, as the target of its link in /proc.
pub fn network(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Sends a signal to all of these processes.
pub fn signal_all(pids: &[i32], signal: Signal) {
    for &pid in pids {
        kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
    }
}

/// Starts a program in the network of process `pid`, by nsenter.
pub fn start_in_network(workspace: &Workspace, pid: i32, command: &[&str]) -> Running {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["-t", &pid.to_string(), "-n", "--"]).args(command);
    workspace.start_command(nsenter)
}

/// USER_HZ, a constant of the kernel's interface on every supported platform.
const TICKS_PER_SECOND: u64 = 100;
