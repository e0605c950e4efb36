//! An absolute timer as a descriptor.
//!
//! epoll's own timeout is padded by the kernel with 0.1 % of its length or the task's timer slack; a timerfd with an
//! absolute time is not (docs/notes has the measurement).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A timerfd on CLOCK_MONOTONIC. Readable once its time has come.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    armed: Duration,
}

impl Timer {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// The errors of timerfd_create(2): no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and is open.
        Ok(Timer { fd: unsafe { OwnedFd::from_raw_fd(fd) }, armed: Duration::ZERO })
    }

    /// Fires at the absolute CLOCK_MONOTONIC reading `at` (immediately if that has passed). Arming again replaces the
    /// earlier time and clears its readiness; arming for the same time costs nothing.
    ///
    /// # Errors
    /// The errors of timerfd_settime(2).
    pub fn arm(&mut self, at: Duration) -> io::Result<()> {
        // Zero would disarm.
        let at = at.max(Duration::from_nanos(1));
        if self.armed == at {
            return Ok(());
        }
        self.set(at)?;
        self.armed = at;
        Ok(())
    }

    /// Records that the timer fired, so that the next [`Timer::arm`] always arms. The expiration count is not read:
    /// with edge triggering the next arming makes the next event, which saves a system call.
    pub fn fired(&mut self) {
        self.armed = Duration::ZERO;
    }

    fn set(&self, at: Duration) -> io::Result<()> {
        let setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: at.as_secs().min(i64::MAX as u64) as libc::time_t,
                tv_nsec: at.subsec_nanos().into(),
            },
        };
        // SAFETY: the descriptor is a timerfd and `setting` outlives the call.
        let result = unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &setting, std::ptr::null_mut())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
