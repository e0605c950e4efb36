//! The command of a sandbox: preparation before the fork, and the last steps between fork and exec.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{
    ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork, getegid, geteuid, pipe2, read, setsid,
    write,
};

use super::init::{close, exit};
use super::message::{self, Report};
use super::program;
use super::spec::{SandboxSpec, Stdio};
use crate::error::{Error, Result};
use crate::namespace::map_identity;

/// A command ready to run: names resolved, strings allocated, files open.
pub(super) struct Command {
    file: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: Option<PathBuf>,
    /// Descriptors for 0, 1 and 2; `None` keeps that of main.
    stdio: [Option<OwnedFd>; 3],
    new_session: bool,
    cpus: Option<CpuSet>,
    /// The cgroup.procs files for joining.
    groups: Vec<OwnedFd>,
    rootless: bool,
}

impl Command {
    /// In main, before the fork.
    pub(super) fn prepare(spec: &SandboxSpec<'_>) -> Result<Command> {
        let name = spec.argv.first().map_or(OsStr::new(""), OsString::as_os_str);
        let lookup = || Error::Exec {
            program: name.to_string_lossy().into_owned(),
            source: std::io::Error::other("no such program on the PATH, nor in /usr/local/sbin, /usr/sbin or /sbin"),
        };
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.extend(spec.env.iter().cloned());
        let file = program::find(name, variables.get(OsStr::new("PATH")).cloned()).ok_or_else(lookup)?;
        let assign = |(name, value): (OsString, OsString)| {
            let mut text = name.into_vec();
            text.push(b'=');
            text.extend(value.into_vec());
            c_string(OsString::from_vec(text))
        };
        Ok(Command {
            file: c_string(file.into_os_string())?,
            argv: spec.argv.iter().cloned().map(c_string).collect::<Result<_>>()?,
            env: variables.into_iter().map(assign).collect::<Result<_>>()?,
            cwd: spec.cwd.clone(),
            stdio: [open(&spec.stdio.stdin)?, open(&spec.stdio.stdout)?, open(&spec.stdio.stderr)?],
            new_session: spec.new_session,
            cpus: spec.cpus.as_deref().map(cpu_set).transpose()?,
            groups: match spec.cgroup {
                Some(group) => group.open_procs()?.into_iter().map(OwnedFd::from).collect(),
                None => Vec::new(),
            },
            rootless: spec.rootless,
        })
    }

    /// The descriptors that must survive in init until the command runs.
    pub(super) fn files(&self) -> impl Iterator<Item = i32> {
        self.stdio.iter().flatten().chain(&self.groups).map(AsRawFd::as_raw_fd)
    }

    /// Closes them, in init; the objects that own them there are never dropped.
    pub(super) fn close_files(&self) {
        self.files().for_each(close);
    }

    /// In init: forks, and returns once the exec has succeeded or a step has failed.
    pub(super) fn spawn(&self) -> Result<Pid> {
        let (reading, writing) = pipe2(OFlag::O_CLOEXEC).map_err(Error::of("pipe2"))?;
        // SAFETY: init has one thread, so its copy may allocate until exec.
        match unsafe { fork() }.map_err(Error::of("fork"))? {
            ForkResult::Child => {
                let error = self.exec_command();
                let report = match error {
                    Error::Exec { source, .. } => {
                        Report::ExecFailed { errno: source.raw_os_error().unwrap_or(libc::EIO) }
                    }
                    other => Report::failed(&other),
                };
                let _ = write(&writing, &report.encode());
                exit(127)
            }
            ForkResult::Parent { child } => {
                drop(writing);
                // An empty read means that the exec closed the other end.
                let mut buffer = [0; 4096];
                let length = loop {
                    match read(&reading, &mut buffer) {
                        Err(Errno::EINTR) => continue,
                        other => break other.map_err(Error::of("read from the command's pipe"))?,
                    }
                };
                match Report::decode(&buffer[..length]) {
                    None => Ok(child),
                    Some(Report::Failed { call, errno, remedy }) => Err(message::error(call, errno, remedy)),
                    Some(Report::ExecFailed { errno }) => Err(Error::Exec {
                        program: self.file.to_string_lossy().into_owned(),
                        source: Errno::from_raw(errno).into(),
                    }),
                    Some(other) => Err(Error::Unexpected { call: "exec".to_owned(), answer: format!("{other:?}") }),
                }
            }
        }
    }

    /// In the child: returns only after a failure.
    fn exec_command(&self) -> Error {
        match self.last_steps() {
            Err(error) => error,
            Ok(()) => {
                let Err(errno) = execve(&self.file, &self.argv, &self.env);
                Error::Exec { program: self.file.to_string_lossy().into_owned(), source: errno.into() }
            }
        }
    }

    fn last_steps(&self) -> Result<()> {
        reset_signals()?;
        // Main sets an exact timer slack; a server must have the kernel's default, or it would behave differently.
        let _ = set_timerslack(DEFAULT_TIMER_SLACK_NS);
        if self.new_session {
            setsid().map_err(Error::of("setsid"))?;
        }
        for group in &self.groups {
            write(group, b"0").map_err(Error::of("join the control group: write \"0\" to cgroup.procs"))?;
        }
        if let Some(cpus) = &self.cpus {
            sched_setaffinity(Pid::from_raw(0), cpus).map_err(|errno| {
                Error::of("sched_setaffinity (the cores must be online and allowed for this process)")(errno)
            })?;
        }
        if let Some(cwd) = &self.cwd {
            chdir(cwd).map_err(Error::of(format!("chdir {}", cwd.display())))?;
        }
        if self.rootless {
            restore_identity()?;
        }
        let [stdin, stdout, stderr] = &self.stdio;
        let onto = |fd: &Option<OwnedFd>, dup: fn(BorrowedFd<'_>) -> nix::Result<()>| match fd {
            Some(fd) => dup(fd.as_fd()).map_err(Error::of("dup2")),
            None => Ok(()),
        };
        onto(stdin, |fd| dup2_stdin(fd))?;
        onto(stdout, |fd| dup2_stdout(fd))?;
        onto(stderr, |fd| dup2_stderr(fd))
    }
}

/// Undoes main's signal settings: Rust ignores SIGPIPE, main may block others, and both survive an exec.
fn reset_signals() -> Result<()> {
    (1..=libc::SIGRTMAX()).for_each(default_action);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).map_err(Error::of("sigprocmask"))
}

/// Sets one signal to its default action. Those that cannot be set (KILL, STOP, glibc's own) already are.
pub(super) fn default_action(signal: i32) {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// A user namespace inside the current one in which the command has its real user and group.
fn restore_identity() -> Result<()> {
    let (inside_uid, inside_gid) = (outer_id("/proc/self/uid_map")?, outer_id("/proc/self/gid_map")?);
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(Error::of("unshare CLONE_NEWUSER"))?;
    map_identity(inside_uid, uid, inside_gid, gid)
}

/// The identity outside of the first one inside, from a map of `inside outside count` lines.
fn outer_id(map: &str) -> Result<u32> {
    let text = fs::read_to_string(map).map_err(Error::of(format!("read {map}")))?;
    text.split_whitespace()
        .nth(1)
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| Error::Unexpected { call: format!("read {map}"), answer: text.clone() })
}

fn open(stdio: &Stdio) -> Result<Option<OwnedFd>> {
    match stdio {
        Stdio::Inherit => Ok(None),
        Stdio::Null => {
            let null =
                OpenOptions::new().read(true).write(true).open("/dev/null").map_err(Error::of("open /dev/null"))?;
            // The duplicate has a number above 2, so that moving it into place never overwrites another.
            Ok(Some(OwnedFd::from(null).try_clone().map_err(Error::of("fcntl F_DUPFD_CLOEXEC"))?))
        }
        Stdio::File(fd) => Ok(Some(fd.try_clone().map_err(Error::of("fcntl F_DUPFD_CLOEXEC"))?)),
    }
}

fn cpu_set(cpus: &[usize]) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu).map_err(Error::of(format!("{cpu} is not a valid core number")))?;
    }
    Ok(set)
}

fn c_string(text: OsString) -> Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| Error::Unexpected {
        call: "start a command".to_owned(),
        answer: format!("{text:?} contains a NUL byte, which no argument may"),
    })
}

/// The kernel's default.
const DEFAULT_TIMER_SLACK_NS: libc::c_ulong = 50_000;
