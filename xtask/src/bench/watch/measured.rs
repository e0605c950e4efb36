//! Resource usage of a program: wall time, CPU time and peak memory, from getrusage(2).
//!
//! getrusage reports the largest peak of all exited children, so every measured program is the only child of a separate
//! process: `xtask measured FILE PROGRAM ARGUMENTS..`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// Resource usage of one program, from its start to its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time.
    pub wall_s: f64,
    /// CPU time outside the kernel.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Peak resident memory in bytes. Never less than that of the small process that starts the program.
    pub rss_bytes_max: u64,
    /// Exit status.
    pub code: i32,
}

/// Runs `words` (a program and its arguments) without output and writes its usage to `file`.
///
/// # Errors
/// The program cannot be started, a signal ended it, or the file cannot be written.
pub fn measure(file: &Path, words: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = words else { bail!("measured: which program?") };
    let began = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("start {program}"))?;
    let wall_s = began.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let usage = Usage {
        wall_s,
        user_s: usage.user_time().num_microseconds() as f64 / 1e6,
        system_s: usage.system_time().num_microseconds() as f64 / 1e6,
        rss_bytes_max: usage.max_rss() as u64 * 1024,
        code: status.code().with_context(|| format!("{program}: {status}"))?,
    };
    std::fs::write(file, serde_json::to_vec(&usage)?).with_context(|| format!("write {}", file.display()))
}

/// Runs a command in a separate process; returns its usage.
pub fn measure_in_process(file: &Path, command: &Command) -> Result<Usage> {
    let mut own = Command::new(std::env::current_exe().context("the path of this program")?);
    own.arg("measured").arg(file).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            own.env(name, value);
        }
    }
    super::super::servers::output(&mut own)?;
    let usage: Usage = serde_json::from_slice(&std::fs::read(file)?)?;
    // Exit status 3: the figures exist, and the capture is suspect.
    if !matches!(usage.code, 0 | 3) {
        bail!("{command:?} ended with status {}", usage.code);
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_usage_and_status_of_a_program_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage.json");
        measure(&file, &["sh", "-c", "exit 3"]).unwrap();
        let usage: Usage = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(usage.code, 3);
        assert!(usage.wall_s > 0.0 && usage.rss_bytes_max > 0);
        assert!(measure(&file, &["no-such-program-here"]).is_err());
        assert!(measure(&file, &[]).is_err());
    }
}
