//! A process in this one's process group that shows whether a signal was sent to the whole group.
//!
//! A signal itself does not show this. The probe blocks every signal, and a signal sent to it stays pending until the
//! probe is queried; the kernel marks all members of a group before kill(2) returns, so the probe need not be
//! scheduled.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::{pipe2, read, write};

/// A child that does nothing. Ends with this value, and with the thread that created it.
#[derive(Debug)]
pub struct GroupProbe {
    pid: libc::pid_t,
    queries: OwnedFd,
    responses: OwnedFd,
}

impl GroupProbe {
    /// Starts the child.
    ///
    /// # Errors
    /// No descriptor or no process is left.
    pub fn start() -> io::Result<GroupProbe> {
        let (query, queries) = pipe2(OFlag::O_CLOEXEC)?;
        let (responses, response) = pipe2(OFlag::O_CLOEXEC)?;
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        let parent = std::process::id().cast_signed();
        // SAFETY: the child makes system calls only, and never returns from here.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            serve_queries(parent, query.as_raw_fd(), response.as_raw_fd());
        }
        let error = io::Error::last_os_error();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        if pid < 0 { Err(error) } else { Ok(GroupProbe { pid, queries, responses }) }
    }

    /// Signals sent to the child since the last query, a bit each by its number. A signal that arrives during the
    /// response is in this response or in the next one, never in both.
    pub fn query(&self) -> u64 {
        let mut signals_mask = [0; 8];
        // Without a running child no signal is known.
        let query = write(&self.queries, &[1]).is_ok();
        let response = query && read(&self.responses, &mut signals_mask).is_ok_and(|n| n == signals_mask.len());
        if response { u64::from_ne_bytes(signals_mask) } else { 0 }
    }
}

impl Drop for GroupProbe {
    fn drop(&mut self) {
        // SAFETY: system calls about a child for which no other code waits; no status is requested.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The child's main loop. All signals are blocked.
fn serve_queries(parent: libc::pid_t, query: RawFd, response: RawFd) -> ! {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut byte = 0_u8;
    // SAFETY: system calls on memory of this stack. Descriptors 0 to 2 are open in every process of Rust's runtime, so
    // the pipes have higher numbers. The closed descriptors belong to an unused copy of the parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        libc::dup2(query, 0);
        libc::dup2(response, 1);
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
    fn group_probe_reports_each_signal_once() {
        let probe = GroupProbe::start().unwrap();
        assert_eq!(probe.query(), 0);
        for round in 0..3 {
            for signal in [libc::SIGTERM, libc::SIGUSR1] {
                // SAFETY: a system call without pointers, about our own child.
                assert_eq!(unsafe { libc::kill(probe.pid, signal) }, 0);
            }
            assert_eq!(probe.query(), 1 << libc::SIGTERM | 1 << libc::SIGUSR1, "{round}");
            assert_eq!(probe.query(), 0, "{round}");
        }
        // Also signals during the query: each is sent after the previous one was reported.
        let reported = std::sync::atomic::AtomicU32::new(0);
        let (ordering, count) = (std::sync::atomic::Ordering::SeqCst, &reported);
        std::thread::scope(|scope| {
            let pid = probe.pid;
            scope.spawn(move || {
                for number in 0..500 {
                    while count.load(ordering) < number {
                        std::hint::spin_loop();
                    }
                    // SAFETY: as above.
                    unsafe { libc::kill(pid, libc::SIGUSR2) };
                }
            });
            while count.load(ordering) < 500 {
                let signals = probe.query();
                assert!(signals == 0 || signals == 1 << libc::SIGUSR2);
                count.fetch_add(u32::from(signals != 0), ordering);
            }
        });
        assert_eq!(probe.query(), 0);
        let pid = probe.pid;
        drop(probe);
        // SAFETY: as above; signal 0 only checks for the process.
        assert_ne!(unsafe { libc::kill(pid, 0) }, 0);
    }
}
