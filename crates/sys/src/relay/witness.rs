//! A process whose only use is to be in this one's process group: it shows whether a signal was sent to all of the group.
//!
//! A signal does not say so itself. The witness has every signal blocked, and what is sent to it stays pending until it is
//! asked; the kernel marks all members of a group before kill(2) returns, so nobody has to wait for it to run.

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

    /// Signals that were sent to it since it was last asked, a bit each by its number. What comes while it answers is in this
    /// answer or in the next one, and in none twice.
    pub fn take(&self) -> u64 {
        let mut answer = [0; 8];
        // If it is gone nobody knows of any.
        let asked = write(&self.asks, &[1]).is_ok();
        let answered = asked && read(&self.answers, &mut answer).is_ok_and(|n| n == answer.len());
        if answered { u64::from_ne_bytes(answer) } else { 0 }
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
            let mut taken = 0_u64;
            loop {
                let signal = libc::sigtimedwait(&raw const all, std::ptr::null_mut(), &raw const at_once);
                if signal <= 0 {
                    break;
                }
                taken |= 1 << (signal & 63);
            }
            libc::write(1, (&raw const taken).cast(), size_of::<u64>());
        }
        libc::_exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_it_is_told_once() {
        let witness = Witness::start().unwrap();
        assert_eq!(witness.take(), 0);
        for round in 0..3 {
            for signal in [libc::SIGTERM, libc::SIGUSR1] {
                // SAFETY: a system call without pointers, about our own child.
                assert_eq!(unsafe { libc::kill(witness.pid, signal) }, 0);
            }
            assert_eq!(witness.take(), 1 << libc::SIGTERM | 1 << libc::SIGUSR1, "{round}");
            assert_eq!(witness.take(), 0, "{round}");
        }
        // Also what comes while it is asked: each is sent when the one before it was told.
        let told = std::sync::atomic::AtomicU32::new(0);
        let (seen, asked) = (std::sync::atomic::Ordering::SeqCst, &told);
        std::thread::scope(|scope| {
            let pid = witness.pid;
            scope.spawn(move || {
                for number in 0..500 {
                    while asked.load(seen) < number {
                        std::hint::spin_loop();
                    }
                    // SAFETY: as above.
                    unsafe { libc::kill(pid, libc::SIGUSR2) };
                }
            });
            while asked.load(seen) < 500 {
                let signals = witness.take();
                assert!(signals == 0 || signals == 1 << libc::SIGUSR2);
                asked.fetch_add(u32::from(signals != 0), seen);
            }
        });
        assert_eq!(witness.take(), 0);
        let pid = witness.pid;
        drop(witness);
        // SAFETY: as above; signal 0 only asks.
        assert_ne!(unsafe { libc::kill(pid, 0) }, 0);
    }
}
