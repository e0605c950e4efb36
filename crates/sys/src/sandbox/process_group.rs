//! A substitute for a [sandbox](super::Sandbox) without the right to create a PID namespace: a command in its own
//! process group, whose first process is killed when the thread that started it ends.
//!
//! Descendants of the command are killed too, as long as they stay in the group: a daemon that creates its own session
//! escapes.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getppid};

use super::Exit;
use crate::cgroup::Cgroup;
use crate::error::{Error, Result};

/// A running command. Dropping it kills its process group.
#[derive(Debug)]
pub struct TiedProcess {
    child: Child,
    group: Pid,
}

impl TiedProcess {
    /// Starts the command with stdin from /dev/null and stdout redirected to stderr, in the control group if there is
    /// one. Call it from a thread that exists as long as the command.
    ///
    /// # Errors
    /// Unknown program; no permission to join the control group.
    pub fn start(argv: &[OsString], env: &[(OsString, OsString)], cgroup: Option<&Cgroup>) -> Result<TiedProcess> {
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| Error::Unexpected { call: "start a command".to_owned(), answer: "no command".to_owned() })?;
        let failed = |source| Error::Exec { program: program.to_string_lossy().into_owned(), source };
        let joins = cgroup.map(Cgroup::open_procs).transpose()?.unwrap_or_default();
        let parent = nix::unistd::getpid();
        let stderr = io::stderr();
        let mut command = Command::new(program);
        command.args(arguments).envs(env.iter().cloned()).process_group(0).stdin(Stdio::null());
        let bind = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before that.
            if getppid() != parent {
                return Err(Errno::ESRCH.into());
            }
            for group in &joins {
                nix::unistd::write(group, b"0")?;
            }
            nix::unistd::dup2_stdout(&stderr)?;
            Ok(())
        };
        // SAFETY: between fork and exec it makes system calls only, on descriptors opened before; no memory is
        // allocated.
        unsafe { command.pre_exec(bind) };
        let child = command.spawn().map_err(failed)?;
        let group = Pid::from_raw(child.id().cast_signed());
        Ok(TiedProcess { child, group })
    }

    /// How it ended, if it did. Never waits.
    ///
    /// # Errors
    /// Other code waited for it.
    pub fn try_exit(&mut self) -> Result<Option<Exit>> {
        let ended = self.child.try_wait().map_err(Error::of("wait"))?;
        Ok(ended.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }))
    }

    /// Sends TERM to the group, waits up to `grace` for the command's end, then sends KILL to the rest of the group.
    pub fn stop(mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        let _ = killpg(self.group, Signal::SIGTERM);
        while matches!(self.try_exit(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TiedProcess {
    fn drop(&mut self) {
        // The number of a group stays in use while it has a member. An empty group's number may be reused only after
        // its leader was waited for; remaining members keep the number in use.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shell(command: &str) -> Vec<OsString> {
        ["/bin/sh", "-c", command].map(OsString::from).to_vec()
    }

    /// Whether a process is running, not a zombie.
    fn is_running(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        for _ in 0..20_000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("timeout after 20 s");
    }

    #[test]
    fn process_group_reports_the_exit_of_its_command() {
        for (command, expected) in [("exit 3", Exit::Code(3)), ("kill -9 $$", Exit::Signal(9))] {
            let mut tied = TiedProcess::start(&shell(command), &[], None).unwrap();
            wait_until(|| tied.try_exit().unwrap().is_some());
            assert_eq!(tied.try_exit().unwrap(), Some(expected));
        }
        assert!(TiedProcess::start(&["/no/such/program".into()], &[], None).is_err());
    }

    #[test]
    fn dropped_process_group_kills_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("child");
        let env = [("FILE".into(), file.clone().into())];
        for gently in [false, true] {
            let tied = TiedProcess::start(&shell("sleep 1000 & echo $! > $FILE; wait"), &env, None).unwrap();
            let mut child = String::new();
            wait_until(|| {
                child = fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
                !child.is_empty() && is_running(&child)
            });
            if gently {
                tied.stop(Duration::from_secs(20))
            } else {
                drop(tied)
            }
            wait_until(|| !is_running(&child));
            fs::remove_file(&file).unwrap();
        }
    }
}
