//! SIGINT (Ctrl-C) and SIGTERM as a counter and a descriptor, so that loops react immediately and no work runs inside a
//! handler.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
pub use nix::sys::signal::Signal;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, sigaction};

/// Number of interrupts by the user. Installed once per process.
#[derive(Debug)]
pub struct Interrupts {
    wake: OwnedFd,
}

static COUNT: AtomicU32 = AtomicU32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

impl Interrupts {
    /// Takes over SIGINT and SIGTERM.
    ///
    /// # Errors
    /// No descriptor left for the eventfd, or sigaction(2) failed.
    pub fn install() -> io::Result<Self> {
        let wake: OwnedFd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?.into();
        WAKE.store(wake.as_raw_fd(), Ordering::SeqCst);
        let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: the handler only touches atomics and write(2), which are async-signal-safe.
            unsafe { sigaction(signal, &action)? };
        }
        Ok(Interrupts { wake })
    }

    /// Number of interrupts so far.
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::SeqCst)
    }

    /// Counts as one more interrupt of the user, and wakes [`Interrupts::wait`].
    pub fn trigger(&self) {
        note(0);
    }

    /// Waits for an interrupt, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        wait_readable(self.wake.as_fd(), timeout);
        // Drained, so that the next call waits again; the counter still has the interrupts.
        let _ = nix::unistd::read(&self.wake, &mut [0u8; 8]);
    }
}

/// SIGHUP as a descriptor: it makes a server reload its files. Installed once per process.
#[derive(Debug)]
pub struct Hangups {
    wake: OwnedFd,
}

static HANGUP: AtomicI32 = AtomicI32::new(-1);

impl Hangups {
    /// Takes over SIGHUP, even if it was ignored (nohup).
    ///
    /// # Errors
    /// No descriptor left for the eventfd, or sigaction(2) failed.
    pub fn install() -> io::Result<Self> {
        let wake: OwnedFd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?.into();
        HANGUP.store(wake.as_raw_fd(), Ordering::SeqCst);
        let action = SigAction::new(SigHandler::Handler(note_hangup), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler only touches an atomic and write(2), which are async-signal-safe.
        unsafe { sigaction(Signal::SIGHUP, &action)? };
        Ok(Hangups { wake })
    }

    /// Waits for the next SIGHUP; false once `end` is readable. Several signals between two calls count as one.
    pub fn wait(&self, end: BorrowedFd<'_>) -> bool {
        loop {
            let mut fds = [PollFd::new(end, PollFlags::POLLIN), PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::NONE).is_err() {
                continue;
            }
            if fds[0].any() == Some(true) {
                return false;
            }
            if nix::unistd::read(&self.wake, &mut [0u8; 8]).is_ok() {
                return true;
            }
        }
    }
}

impl Drop for Hangups {
    fn drop(&mut self) {
        HANGUP.store(-1, Ordering::SeqCst);
    }
}

/// Wakes another thread's wait: readable from the first [`Wake::wake`] on.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// A handle that is not readable yet.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Wake(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?.into()))
    }

    /// Makes the descriptor readable; each call is a new edge.
    pub fn wake(&self) {
        // The counter cannot overflow within a run; a failed write only delays a stop until the next poll.
        let _ = nix::unistd::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `fd` is readable, at most `timeout`; returns whether it is.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, timeout), Ok(1..))
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        WAKE.store(-1, Ordering::SeqCst);
    }
}

impl AsFd for Interrupts {
    /// Readable from the first interrupt on, unless [`Interrupts::wait`] consumed it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Ignores SIGINT and SIGQUIT in this process while a foreground program has the terminal, like a shell.
///
/// # Errors
/// The errors of sigaction(2).
pub fn leave_terminal_signals_to_child() -> io::Result<()> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { sigaction(signal, &ignore)? };
    }
    Ok(())
}

extern "C" fn note(_signal: libc::c_int) {
    COUNT.fetch_add(1, Ordering::SeqCst);
    add_one(WAKE.load(Ordering::SeqCst));
}

extern "C" fn note_hangup(_signal: libc::c_int) {
    add_one(HANGUP.load(Ordering::SeqCst));
}

/// Makes an eventfd readable, inside a signal's handler.
fn add_one(wake: i32) {
    if wake >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is eight bytes; a failed write only delays the loop's notice.
        unsafe { libc::write(wake, one.as_ptr().cast(), one.len()) };
    }
}
