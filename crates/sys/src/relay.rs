//! Signals to this process that are meant for the program it runs.
//!
//! A program that stands between a shell and a child in the same process group gets every signal that the terminal
//! sends (Ctrl-C), and so does the child: handing it on would make two of it. The same holds for what another process
//! sends to the whole group, as `timeout` does beside sending it to its child. What is sent to this process alone (`kill`,
//! a supervisor) is handed on.
//!
//! ```text
//!   handler ──> pipe ──> thread: was it sent to the group? (the witness has it too) ──no──> kill(child)
//! ```

mod witness;

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{pipe2, read};

use self::witness::Witness;
use crate::signal::wait_readable;

static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before there was a child, by number.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Where handlers note what came; -1: nowhere. Never closed, since a handler may be about to write to it.
static NOTES: AtomicI32 = AtomicI32::new(-1);

const HANDED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// In a note: by the kernel, so by the terminal. Without a signal's number: the end.
const BY_KERNEL: u8 = 0x80;
/// How long a signal is kept before it is looked who has it. kill(2) goes through a group within microseconds; this is for
/// a machine that stands still meanwhile.
const KEPT_MS: u8 = 5;

/// Hands signals on while it lives. One a process.
#[derive(Debug)]
pub struct Relay {
    /// Until there is a thread that asks it.
    witness: Option<Witness>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Takes over SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, except those that are ignored (nohup), which stay so
    /// here and in the child. Call it before the child is started: exec gives the child the default ones.
    ///
    /// Where no process or thread is left for telling who else was meant, every signal is handed on.
    ///
    /// # Errors
    /// Those of sigaction(2).
    pub fn install() -> io::Result<Relay> {
        let action = SigAction::new(SigHandler::SigAction(note), SaFlags::SA_RESTART, SigSet::empty());
        for signal in HANDED_ON {
            // SAFETY: the handler only touches atomics, errno, write(2) and kill(2), which are async-signal-safe.
            let before = unsafe { sigaction(signal, &action)? };
            if matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: what was there before is put back.
                unsafe { sigaction(signal, &before)? };
            }
        }
        Ok(Relay { witness: Witness::start().ok(), thread: None })
    }

    /// From now on they go to process `child`, those that came already at once.
    pub fn to(&mut self, child: i32) {
        CHILD.store(child, Ordering::SeqCst);
        // Not before the child was started: with its first thread libc takes a signal for itself, and a child that was
        // to ignore that one would not.
        if let Some(witness) = self.witness.take() {
            self.thread = start_sorting(witness).ok();
        }
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
        if let Some(thread) = self.thread.take() {
            write_note(NOTES.swap(-1, Ordering::SeqCst), BY_KERNEL);
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

fn start_sorting(witness: Witness) -> io::Result<JoinHandle<()>> {
    let (notes, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let thread = std::thread::Builder::new().name("signals".into()).spawn(move || sort(&notes, &witness))?;
    NOTES.store(to.into_raw_fd(), Ordering::SeqCst);
    Ok(thread)
}

/// Hands on what was sent to this process alone, until the note of the end.
fn sort(notes: &OwnedFd, witness: &Witness) {
    loop {
        if !wait_readable(notes.as_fd(), Duration::MAX) {
            continue;
        }
        let _ = poll(&mut [], PollTimeout::from(KEPT_MS));
        let (mut bytes, mut asked) = ([0_u8; 64], 0_u64);
        let Ok(n) = read(notes, &mut bytes) else { continue };
        for &byte in &bytes[..n] {
            match byte {
                BY_KERNEL => return,
                byte if byte & BY_KERNEL == 0 => asked |= 1 << byte,
                _ => {}
            }
        }
        let to_group = witness.pending() << 1;
        // Also what the terminal sent, or it would be taken for the next one's.
        witness.forget();
        for signal in HANDED_ON.map(|signal| signal as i32) {
            if asked & 1 << signal != 0 && (to_group & 1 << signal == 0 || !child_is_in_our_group()) {
                hand_on(signal);
            }
        }
    }
}

/// A child that has left the group was not meant by what was sent to it.
fn child_is_in_our_group() -> bool {
    // SAFETY: system calls without pointers.
    unsafe { libc::getpgid(CHILD.load(Ordering::SeqCst)) == libc::getpgrp() }
}

extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, which nix sets for this kind of handler, the kernel hands over a valid pointer.
    let by_kernel = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0);
    match NOTES.load(Ordering::SeqCst) {
        notes @ 0.. => write_note(notes, signal as u8 | if by_kernel { BY_KERNEL } else { 0 }),
        _ if by_kernel => {}
        _ => hand_on(signal),
    }
}

fn write_note(to: i32, note: u8) {
    let errno = Errno::last_raw();
    // SAFETY: one byte of this stack. A full pipe has more than anybody needs to know.
    unsafe { libc::write(to, (&raw const note).cast(), 1) };
    Errno::set_raw(errno);
}

fn hand_on(signal: libc::c_int) {
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
