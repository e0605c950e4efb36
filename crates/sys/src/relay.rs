//! Signals to this process that are meant for the program it runs.
//!
//! A program that stands between a shell and a child in the same process group gets every signal that the terminal
//! sends (Ctrl-C), and so does the child: handing it on would make two of it. What another process sends to this one
//! alone (`timeout`, `kill`, a supervisor) is handed on.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before there was a child, by number.
static EARLY: AtomicU64 = AtomicU64::new(0);

const HANDED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Hands signals on while it lives. One a process.
#[derive(Debug)]
pub struct Relay(());

impl Relay {
    /// Takes over SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, except those that are ignored (nohup), which stay so
    /// here and in the child. Call it before the child is started: exec gives the child the default ones.
    ///
    /// # Errors
    /// Those of sigaction(2).
    pub fn install() -> io::Result<Relay> {
        let action = SigAction::new(SigHandler::SigAction(hand_on), SaFlags::SA_RESTART, SigSet::empty());
        for signal in HANDED_ON {
            // SAFETY: the handler only touches atomics, errno and kill(2), which are async-signal-safe.
            let before = unsafe { sigaction(signal, &action)? };
            if matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: what was there before is put back.
                unsafe { sigaction(signal, &before)? };
            }
        }
        Ok(Relay(()))
    }

    /// From now on they go to process `child`, those that came already at once.
    pub fn to(&self, child: i32) {
        CHILD.store(child, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in HANDED_ON {
            if early & (1 << (signal as i32)) != 0 {
                send(child, signal as i32);
            }
        }
    }

    /// From now on they go nowhere. Call it before the child's end is taken note of: its number may then be another's.
    pub fn stop(&self) {
        CHILD.store(0, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

extern "C" fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, which nix sets for this kind of handler, the kernel hands over a valid pointer.
    let sent_by_kernel = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0);
    if sent_by_kernel {
        return;
    }
    match CHILD.load(Ordering::SeqCst) {
        child @ 1.. => send(child, signal),
        _ => {
            EARLY.fetch_or(1 << signal, Ordering::SeqCst);
        }
    }
}

fn send(child: i32, signal: libc::c_int) {
    let errno = Errno::last_raw();
    // SAFETY: a system call without pointers; a child that is gone is no concern.
    unsafe { libc::kill(child, signal) };
    Errno::set_raw(errno);
}
