//! A forked copy of this process that does part of its work, and ends with it.
//!
//! For resources that are limited per process: above all open files. The copy is created while there is one thread,
//! shares no memory that is written later, and communicates with this process over a socket. It is killed when this
//! process ends, by the same two mechanisms as the init of a [sandbox](crate::sandbox): PR_SET_PDEATHSIG, and the
//! hang-up of the socket, checked right after.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::sys::prctl::{set_name, set_pdeathsig};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::error::{Error, Result};
use crate::namespace::require_single_thread;
use crate::sandbox::init::{close_descriptors_but, exit, hung_up};

/// A running copy. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    pid: Pid,
    link: UnixStream,
    reaped: bool,
}

impl Worker {
    /// Creates a copy of this process that runs `work` with its end of the link, and ends when that returns. It keeps
    /// the standard streams, the link and the descriptors in `keep`; every other descriptor is closed in it, even if an
    /// object of this process still holds its number: `work` must not use such objects. Neither Ctrl-C at the terminal
    /// nor SIGTERM, which service managers and timeout(1) send to every process of a group, ends it: the original
    /// process ends it.
    ///
    /// Call it from a thread that exists as long as the copy, while that is the only thread of this process.
    ///
    /// # Errors
    /// The process has other threads; the limit of processes or descriptors is reached.
    pub fn start(name: &std::ffi::CStr, keep: &[BorrowedFd<'_>], work: impl FnOnce(UnixStream)) -> Result<Worker> {
        let (ours, theirs) = UnixStream::pair().map_err(Error::of("socketpair"))?;
        require_single_thread()?;
        // SAFETY: the process has one thread, so the copy's locks are free and it may allocate and make threads.
        match unsafe { fork() }.map_err(Error::of("fork"))? {
            ForkResult::Parent { child } => Ok(Worker { pid: child, link: ours, reaped: false }),
            ForkResult::Child => {
                // An unwinding copy must not run this process's code.
                let _ = catch_unwind(AssertUnwindSafe(|| run_copy(name, keep, theirs, work)));
                exit(70)
            }
        }
    }

    /// This process's end of the link.
    pub fn link(&self) -> &UnixStream {
        &self.link
    }

    /// The copy's process number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits until the copy ends by itself. True if it returned from its work.
    pub fn wait(mut self) -> bool {
        self.reaped = true;
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                Ok(WaitStatus::Exited(_, 0)) => return true,
                _ => return false,
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped {
            // The copy is a child that was not waited for, so neither call can reach another process.
            let _ = kill(self.pid, Signal::SIGKILL);
            while waitpid(self.pid, None) == Err(Errno::EINTR) {}
        }
    }
}

fn run_copy(name: &std::ffi::CStr, keep: &[BorrowedFd<'_>], link: UnixStream, work: impl FnOnce(UnixStream)) -> ! {
    // If the original process is already dead, the signal will not arrive; then the link has hung up.
    let bound = set_pdeathsig(Signal::SIGKILL);
    let mut descriptors: Vec<i32> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    descriptors.push(link.as_raw_fd());
    close_descriptors_but(descriptors);
    if bound.is_err() || hung_up(&link) {
        exit(0);
    }
    let _ = set_name(name);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let action = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: ignoring a signal runs no code. The inherited handlers write to a descriptor that is closed here.
        let _ = unsafe { sigaction(signal, &action) };
    }
    work(link);
    exit(0)
}

/// Ends the calling process immediately, regardless of its other threads and without running its exit handlers: for a
/// copy whose original has ended.
pub fn exit_immediately() -> ! {
    exit(0)
}
