//! A process whose only use is to be in this one's process group: it shows whether a signal was sent to all of the group.
//!
//! A signal does not say so itself. The witness has every signal blocked, and what is sent to it stays pending, for anybody
//! to see in /proc; the kernel marks all members of a group before kill(2) returns, so nobody has to wait for it to run.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::{pipe2, read, write};

/// A child that does nothing. Ends with this, and with the thread that made it.
#[derive(Debug)]
pub struct Witness {
    pid: libc::pid_t,
    asks: OwnedFd,
    answers: OwnedFd,
}

impl Witness {
    /// Starts it.
    ///
    /// # Errors
    /// No descriptor or no process is left.
    pub fn start() -> io::Result<Witness> {
        let (asked, asks) = pipe2(OFlag::O_CLOEXEC)?;
        let (answers, answered) = pipe2(OFlag::O_CLOEXEC)?;
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        let parent = std::process::id().cast_signed();
        // SAFETY: the child makes system calls only, and never returns from here.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            be_there(parent, asked.as_raw_fd(), answered.as_raw_fd());
        }
        let error = io::Error::last_os_error();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        if pid < 0 { Err(error) } else { Ok(Witness { pid, asks, answers }) }
    }

    /// Signals that were sent to it since it last forgot: bit 0 is signal 1.
    pub fn pending(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
    }

    /// Makes it forget them.
    pub fn forget(&self) {
        // If it is gone nothing is pending any more.
        if write(&self.asks, &[1]).is_ok() {
            let _ = read(&self.answers, &mut [0]);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: system calls about a child that nobody else waits for; no status is asked.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The child's life. All signals are blocked.
fn be_there(parent: libc::pid_t, asked: RawFd, answered: RawFd) -> ! {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut byte = 0_u8;
    // SAFETY: system calls on memory of this stack. Descriptors 0 to 2 are open in every process of Rust's runtime, so
    // the pipes have higher numbers. What is closed belonged to a copy of the parent that nobody uses.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        libc::dup2(asked, 0);
        libc::dup2(answered, 1);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        while libc::read(0, (&raw mut byte).cast(), 1) == 1 {
            while libc::sigtimedwait(&raw const all, std::ptr::null_mut(), &raw const at_once) > 0 {}
            libc::write(1, (&raw const byte).cast(), 1);
        }
        libc::_exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_it_is_seen_until_it_forgets() {
        let witness = Witness::start().unwrap();
        assert_eq!(witness.pending(), 0);
        let bit = |signal: libc::c_int| 1 << (signal - 1);
        for round in 0..3 {
            for signal in [libc::SIGTERM, libc::SIGUSR1] {
                // SAFETY: a system call without pointers, about our own child.
                assert_eq!(unsafe { libc::kill(witness.pid, signal) }, 0);
            }
            assert_eq!(witness.pending(), bit(libc::SIGTERM) | bit(libc::SIGUSR1), "{round}");
            witness.forget();
            assert_eq!(witness.pending(), 0, "{round}");
        }
        let pid = witness.pid;
        drop(witness);
        // SAFETY: as above; signal 0 only asks.
        assert_ne!(unsafe { libc::kill(pid, 0) }, 0);
    }
}
