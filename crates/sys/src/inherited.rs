//! What this process was started with and its language's runtime has changed by the time of `main`: SIGPIPE is ignored
//! from then on, and standard streams that were closed are /dev/null. A program that is started in this one's stead
//! gets what it would have had.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, signal};

/// A bit for each of the descriptors 0 to 2 that was closed, and one for SIGPIPE.
static FOUND: AtomicU32 = AtomicU32::new(0);
const PIPE_IGNORED: u32 = 1 << 3;

/// Run by the loader, before the runtime's own beginnings.
// SAFETY: a list of functions that the loader calls one after the other; this one allocates and locks nothing.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let mut found = 0;
    for fd in 0..3 {
        // SAFETY: a system call without pointers.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            found |= 1 << fd;
        }
    }
    // SAFETY: all zeros is a sigaction, which the call fills; it changes nothing.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
        action
    };
    if action.sa_sigaction == libc::SIG_IGN {
        found |= PIPE_IGNORED;
    }
    FOUND.store(found, Ordering::Relaxed);
}

/// `command` will have SIGPIPE, the blocked signals and the closed standard streams that this process was started with;
/// those blocked by the calling thread, which is to be the first. Of streams only what `command` inherits.
pub fn hand_on(command: &mut Command) {
    let found = FOUND.load(Ordering::Relaxed);
    let mut blocked = SigSet::empty();
    // What cannot be read is empty, as without this.
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, None, Some(&mut blocked));
    let restore = move || {
        for fd in (0..3).filter(|fd| found & 1 << fd != 0) {
            // SAFETY: a system call without pointers; what was opened in the place of nothing is nobody's.
            unsafe { libc::close(fd) };
        }
        if found & PIPE_IGNORED != 0 {
            // SAFETY: no handler is set that could run.
            unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
        }
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(restore) };
}
