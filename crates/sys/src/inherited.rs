//! Process state that Rust's runtime changes before `main`: SIGPIPE becomes ignored, and closed standard streams become
//! /dev/null. A program that this process starts as its replacement gets the original state.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, signal};

/// A bit for each closed descriptor 0 to 2, and one for SIGPIPE.
static INITIAL_STATE: AtomicU32 = AtomicU32::new(0);
const PIPE_IGNORED: u32 = 1 << 3;

/// Run by the loader, before the runtime's own initialization.
// SAFETY: a list of functions that the loader calls in sequence; this one neither allocates nor locks.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = record_initial_state;

extern "C" fn record_initial_state() {
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
    INITIAL_STATE.store(found, Ordering::Relaxed);
}

/// `command` will have the original SIGPIPE disposition, blocked signals and closed standard streams of this process;
/// the blocked signals are those of the calling thread, which must be the first. Only for streams that `command`
/// inherits.
pub fn restore_in(command: &mut Command) {
    let found = INITIAL_STATE.load(Ordering::Relaxed);
    let mut blocked = SigSet::empty();
    // An unreadable mask is empty, as without this call.
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, None, Some(&mut blocked));
    let restore = move || {
        for fd in (0..3).filter(|fd| found & 1 << fd != 0) {
            // SAFETY: a system call without pointers; the descriptor that replaced a closed one has no other owner.
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
