//! A directory for files that other programs need during the lifetime of this process only.
//!
//! The directory is removed when its [`Scratch`] is dropped, and by a keeper process if this process ends before: a
//! forked copy that only waits for this. The next [`Scratch::new`] in the same PID namespace removes the directories of
//! killed keepers; whether processes of another namespace exist is unknown here, so their directories stay.

use std::fs::{self, DirBuilder};
use std::io::{self, PipeWriter, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getuid, setsid};

use crate::clock::Deadline;
use crate::error::{Error, Result};
use crate::namespace::require_single_thread;
use crate::owner::{is_of_dead_process, own_name};
use crate::sandbox::init::{close, close_descriptors_but, exit};

/// A temporary directory that is removed with this value, and soon after the end of this process.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    pid: Pid,
    /// Closed by the end of this process, which the keeper notices.
    alive: Option<PipeWriter>,
}

impl Scratch {
    /// An empty directory among the temporary ones, readable by all users. Removes directories of dead processes of
    /// this PID namespace.
    ///
    /// Call it while this process has one thread: later no keeper can be created, and after a SIGKILL the directory
    /// stays until the next call.
    ///
    /// # Errors
    /// The directory cannot be created; /proc is not mounted.
    pub fn new(label: &str) -> Result<Scratch> {
        let among = std::env::temp_dir();
        sweep(&among);
        let name = own_name(label)?;
        // The name is unique, unless another user blocks it.
        let mut numbered = (0..100).map(|number| among.join(format!("{name}-{number}")));
        let path = loop {
            let Some(path) = numbered.next() else {
                return Err(Error::of(format!("mkdir {}", among.join(name).display()))(Errno::EEXIST));
            };
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::of(format!("mkdir {}", path.display()))(error)),
            }
        };
        let keeper = start(&path);
        Ok(Scratch { path, keeper })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The keeper retries what cannot be removed now.
        let _ = fs::remove_dir_all(&self.path);
        if let Some(Keeper { pid, alive }) = &mut self.keeper {
            drop(alive.take());
            while waitpid(*pid, None) == Err(Errno::EINTR) {}
        }
    }
}

/// None if no keeper can be created.
fn start(path: &Path) -> Option<Keeper> {
    let (reading, alive) = io::pipe().ok()?;
    require_single_thread().ok()?;
    // SAFETY: the process has one thread, so the copy's locks are free and it may allocate.
    match unsafe { fork() }.ok()? {
        ForkResult::Parent { child } => Some(Keeper { pid: child, alive: Some(alive) }),
        ForkResult::Child => {
            // An unwinding copy must not run this process's code.
            let _ = catch_unwind(AssertUnwindSafe(|| keep(path, reading)));
            exit(0)
        }
    }
}

/// The keeper's main function.
fn keep(path: &Path, mut alive: io::PipeReader) {
    // The keeper survives signals to the terminal or group of its original, and holds none of its descriptors: a reader
    // of this process's output must not wait for the keeper.
    let _ = setsid();
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None);
    let _ = set_name(c"yamabiko-keeper");
    close_descriptors_but(vec![alive.as_raw_fd()]);
    (0..3).for_each(close);
    // No byte is ever written.
    let _ = alive.read(&mut [0]);
    let deadline = Deadline::after(REMOVAL_TIMEOUT);
    while !deadline.has_passed() {
        let _ = fs::remove_dir_all(path);
        // Ending programs may still be writing: check once more.
        if !path.exists() {
            return;
        }
        std::thread::sleep(REMOVAL_PAUSE);
    }
}

/// Removes this user's directories of dead processes of this PID namespace.
fn sweep(among: &Path) {
    for entry in fs::read_dir(among).into_iter().flatten().flatten() {
        let ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == getuid().as_raw());
        let name = entry.file_name();
        if ours && name.to_str().is_some_and(is_of_dead_process) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Maximum time during which ending programs may still write there.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(4);
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this PID namespace; its pid is above the maximum.
    fn name_of_a_dead_process(label: &str) -> String {
        let own = own_name(label).unwrap();
        own.replace(&format!("-{}-", std::process::id()), "-4194999-") + "-0"
    }

    #[test]
    fn scratch_removes_its_directory_and_those_of_dead_processes() {
        let dead = std::env::temp_dir().join(name_of_a_dead_process("scratch_test"));
        fs::create_dir_all(dead.join("below")).unwrap();
        let scratch = Scratch::new("scratch test").unwrap();
        assert!(!dead.exists());
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/file"), "x").unwrap();
        let second = Scratch::new("scratch test").unwrap();
        assert!(path.exists() && second.path() != path, "the directory of a running process stays");
        drop(scratch);
        assert!(!path.exists() && second.path().exists());
    }

    /// A sandbox has its own pids, and shares the temporary directories: a pid unknown here may be alive there.
    #[test]
    fn scratch_keeps_directories_of_other_pid_namespaces() {
        let among = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let path = among.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let own = own_name("gateway").unwrap();
        let namespace = own.split('-').nth(1).unwrap();
        let elsewhere = of(&name_of_a_dead_process("gateway").replace(namespace, "1"));
        let without_namespace = of("yamabiko-4194999-1-gateway-0");
        let dead = of(&name_of_a_dead_process("gateway"));
        let alive = of(&format!("{own}-0"));
        sweep(among.path());
        assert!(elsewhere.exists() && without_namespace.exists() && alive.exists());
        assert!(!dead.exists());
    }
}
