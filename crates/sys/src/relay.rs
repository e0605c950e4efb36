//! Forwards signals of this process to the program it runs.
//!
//! A program between a shell and a child in the same process group receives every signal of the terminal (Ctrl-C), and
//! so does the child: forwarding it would deliver it twice. The same is true of a signal that another process sends to
//! the whole group, as `timeout` does. A signal sent to this process alone (`kill`, a supervisor) is forwarded.
//!
//! ```text
//!   handler ──> pipe ──> thread: was it sent to the group? (the group probe has it too) ──no──> kill(child)
//!      └─> EARLY ──fork──> the child's copy: signals before its creation, and those before exec
//! ```
//!
//! Once there is a child, handlers run on that thread only: when it reads the pipe, every signal delivered to this
//! process has been noted before, even on a busy machine. It repeats until neither the pipe nor the group probe has
//! anything new, since a signal may arrive between two reads: the note and the probe's mark of one signal are never
//! counted as two signals.
//!
//! **The child's creation** is a single point in time for signals: a signal sent to the group before the kernel makes
//! the copy is handled here before fork returns, and is in the copy's memory; the copy receives later signals itself
//! (copy_process in kernel/fork.c). Until exec it has the same handler, which notes signals in the same variable. So
//! the child, just before exec, knows all earlier signals, raises them on itself, and reports them: none is lost, none
//! is delivered twice.

mod group_probe;

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction};
use nix::unistd::{pipe2, read};

use self::group_probe::GroupProbe;
use crate::signal::wait_readable;

/// The child's process number; 0 before there is a child, and after its end.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A pidfd of the child, which identifies it even if its number is reused; -1 for this process's own child, whose
/// number is not reused until this process waits for it.
static CHILD_FD: AtomicI32 = AtomicI32::new(-1);
/// This process, as opposed to a copy of it before exec.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Received signals, by number: read in the child only.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Pipe to which handlers write notes; -1: none, signals are forwarded immediately. Never closed, since a handler may
/// be writing to it.
static NOTES: AtomicI32 = AtomicI32::new(-1);
/// The thread must end. Its wake-up note may find the pipe full.
static ENDING: AtomicBool = AtomicBool::new(false);

const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Flag of a note: sent by the kernel, so by the terminal. Alone it only wakes the thread.
const BY_KERNEL: u8 = 0x80;
/// Delay before a signal's recipients are determined. kill(2) signals a group within microseconds; the delay covers a
/// stalled machine.
const SETTLE_MS: u8 = 5;
/// Maximum number of reads of notes and group probe, a millisecond apart: for a note that must arrive, since the probe
/// has the signal already, and while more arrive. A note does not arrive if the kernel merged two signals.
const READS_MAX: u32 = 20;

/// Forwards signals during its lifetime. One per process.
#[derive(Debug)]
pub struct Relay {
    /// The previous actions of the signals that this process handles.
    before: Vec<(Signal, SigAction)>,
    /// The group probe, until the thread that queries it exists.
    probe: Option<GroupProbe>,
    /// Notes of the handlers; for the thread.
    notes: Option<OwnedFd>,
    /// Pipe from which the child's report of its received signals is read.
    report_reader: OwnedFd,
    /// The child's end of that pipe.
    report_writer: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// Signal mask of the relay's thread before its signals were moved to the other thread.
    mask: Option<SigSet>,
    /// Descriptor of a program that another process waits for.
    pidfd: Option<OwnedFd>,
}

impl Relay {
    /// Takes over SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, except ignored ones (nohup), which stay
    /// ignored here and in the child. Call it before the child is started.
    ///
    /// If no process or thread is left for the group probe, every signal is forwarded.
    ///
    /// # Errors
    /// The errors of sigaction(2) and pipe2(2).
    pub fn install() -> io::Result<Relay> {
        let (notes, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let (report_reader, report_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let mut relay = Relay {
            before: Vec::new(),
            probe: None,
            notes: Some(notes),
            report_reader,
            report_writer,
            thread: None,
            mask: None,
            pidfd: None,
        };
        CHILD.store(0, Ordering::SeqCst);
        CHILD_FD.store(-1, Ordering::SeqCst);
        EARLY.store(0, Ordering::SeqCst);
        ENDING.store(false, Ordering::SeqCst);
        OWNER.store(std::process::id().cast_signed(), Ordering::SeqCst);
        NOTES.store(to.into_raw_fd(), Ordering::SeqCst);
        let action = SigAction::new(SigHandler::SigAction(note), SaFlags::SA_RESTART, SigSet::empty());
        for signal in FORWARDED {
            // SAFETY: the handler only touches atomics, errno, getpid(2), write(2) and kill(2), which are
            // async-signal-safe.
            let before = unsafe { sigaction(signal, &action)? };
            if matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: the previous action is restored.
                unsafe { sigaction(signal, &before)? };
            } else {
                relay.before.push((signal, before));
            }
        }
        relay.probe = GroupProbe::start().ok();
        Ok(relay)
    }

    /// Makes `command` receive, just before exec, all signals sent to it or to this process until then. Call it after
    /// all other changes of the program's signal handling.
    pub fn hand_over(&self, command: &mut Command) {
        let report_writer = self.report_writer.as_raw_fd();
        let handled = self.handled();
        let before_exec = move || {
            // As exec does next: from here on the child receives its signals itself.
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            for signal in FORWARDED.into_iter().filter(|signal| handled & bit(*signal) != 0) {
                // SAFETY: no handler is set that could run.
                unsafe { sigaction(signal, &default) }?;
            }
            let early = EARLY.load(Ordering::SeqCst);
            let bytes = early.to_ne_bytes();
            // SAFETY: eight bytes of this stack, into a pipe with space for them; the descriptor is open until exec.
            unsafe { libc::write(report_writer, bytes.as_ptr().cast(), bytes.len()) };
            for signal in FORWARDED.into_iter().filter(|signal| early & bit(*signal) != 0) {
                // SAFETY: system calls without pointers.
                unsafe { libc::kill(libc::getpid(), signal as i32) };
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(before_exec) };
    }

    /// The signals with this handler: others have no notes.
    fn handled(&self) -> u64 {
        self.before.iter().fold(0, |all, (signal, _)| all | bit(*signal))
    }

    /// Blocks the signals until there is a program, also for threads created from now on. Call it before other threads
    /// are created, if some are created before [`Relay::to`].
    ///
    /// # Errors
    /// The errors of pthread_sigmask(3).
    pub fn block_signals(&mut self) -> io::Result<()> {
        let mut mask = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&self.signals()), Some(&mut mask))?;
        self.mask.get_or_insert(mask);
        Ok(())
    }

    fn signals(&self) -> SigSet {
        self.before.iter().fold(SigSet::empty(), |mut all, (signal, _)| {
            all.add(*signal);
            all
        })
    }

    /// As [`Relay::to`], for a program that another process waits for: `pidfd` is its descriptor, `pid` its number.
    pub fn to_grandchild(&mut self, pid: i32, pidfd: OwnedFd) {
        CHILD_FD.store(pidfd.as_raw_fd(), Ordering::SeqCst);
        self.pidfd = Some(pidfd);
        self.to(pid);
    }

    /// Forwards signals to process `child` from now on; also those that arrived since its creation, unless it received
    /// them itself. The calling thread no longer handles signals of this process, until [`Relay::stop`], which the same
    /// thread must call.
    pub fn to(&mut self, child: i32) {
        let mut early = [0; 8];
        // No report: the child was not created by a command passed to `hand_over`, or it was killed before.
        let report_reader = read(&self.report_reader, &mut early).is_ok_and(|n| n == early.len());
        let has = if report_reader { u64::from_ne_bytes(early) } else { 0 };
        CHILD.store(child, Ordering::SeqCst);
        // Not before the child was started: with its first thread libc claims a signal, and a child that should ignore
        // that signal would not.
        let Some(notes) = self.notes.take() else { return };
        if let Some(probe) = self.probe.take()
            && let Ok(copy) = notes.try_clone()
        {
            let handled = self.handled();
            let signals = self.signals();
            // Before the thread exists: signals wait for it. Threads created later inherit this mask. It does not fail
            // for a valid set.
            let _ = self.block_signals();
            let forward_signals = move || {
                // pthread_sigmask does not fail for a valid set.
                let _ = pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&signals), None);
                forward_until_end(&copy, &probe, handled, has);
            };
            self.thread = std::thread::Builder::new().name("signals".into()).spawn(forward_signals).ok();
        }
        if self.thread.is_none() {
            self.unblock();
            NOTES.store(-1, Ordering::SeqCst);
            Notes::read(&notes).by_process_except(has).for_each(send);
        }
    }

    /// Restores the previous actions. Call it before the child is waited for: its number may be reused afterwards.
    pub fn stop(&mut self) {
        CHILD.store(0, Ordering::SeqCst);
        CHILD_FD.store(-1, Ordering::SeqCst);
        for (signal, before) in self.before.drain(..) {
            // SAFETY: the previous action is restored. It does not fail for a signal that could be handled.
            let _ = unsafe { sigaction(signal, &before) };
        }
        self.unblock();
    }

    fn unblock(&mut self) {
        if let Some(mask) = self.mask.take() {
            // pthread_sigmask does not fail for a valid set.
            let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            ENDING.store(true, Ordering::SeqCst);
            // If the pipe is full the thread does not sleep.
            write_note(NOTES.swap(-1, Ordering::SeqCst), BY_KERNEL);
            // The thread does not panic.
            let _ = thread.join();
        }
        // After the last user of the descriptor.
        self.pidfd = None;
    }
}

/// Signals with notes, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Notes {
    /// Sent by a process: to this one, or to the whole group.
    by_process: u64,
    /// Sent by the terminal: to the whole group.
    by_kernel: u64,
}

impl Notes {
    /// All waiting notes.
    fn read(from: &OwnedFd) -> Notes {
        let (mut notes, mut bytes) = (Notes::default(), [0; 64]);
        while let Ok(n @ 1..) = read(from, &mut bytes) {
            for &byte in &bytes[..n] {
                let to = if byte & BY_KERNEL == 0 { &mut notes.by_process } else { &mut notes.by_kernel };
                *to |= 1 << (byte & !BY_KERNEL & 63);
            }
        }
        notes
    }

    fn any(self) -> u64 {
        self.by_process | self.by_kernel
    }

    fn add(&mut self, other: Notes) {
        self.by_process |= other.by_process;
        self.by_kernel |= other.by_kernel;
    }

    fn only(self, bits: u64) -> Notes {
        Notes { by_process: self.by_process & bits, by_kernel: self.by_kernel & bits }
    }

    /// Numbers of signals sent by processes, without those of `bits`.
    fn by_process_except(self, bits: u64) -> impl Iterator<Item = i32> {
        FORWARDED
            .into_iter()
            .filter(move |signal| self.by_process & !bits & bit(*signal) != 0)
            .map(|signal| signal as i32)
    }
}

const fn bit(signal: Signal) -> u64 {
    1_u64 << signal as i32
}

/// Forwards signals sent to this process alone, until the relay ends. `handled`: signals that may have notes; `has`:
/// signals that the child received before exec.
fn forward_until_end(notes: &OwnedFd, probe: &GroupProbe, handled: u64, mut has: u64) {
    let mut pending = Notes::default();
    while !ENDING.load(Ordering::SeqCst) {
        if pending.any() == 0 && !wait_readable(notes.as_fd(), Duration::MAX) {
            continue;
        }
        rest(SETTLE_MS);
        let round = settle(handled, std::mem::take(&mut pending), || Notes::read(notes), || probe.query(), || rest(1));
        pending = round.pending;
        let already_received = std::mem::take(&mut has) | if child_is_in_our_group() { round.to_group } else { 0 };
        round.noted.by_process_except(already_received).for_each(send);
    }
}

/// Result of one round of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Signals with notes.
    noted: Notes,
    /// Signals that the probe has, including those of the terminal, which would otherwise be counted in the next round.
    to_group: u64,
    /// Signals that arrived last and wait for the next round.
    pending: Notes,
}

/// Reads the notes and then the probe repeatedly, until nothing new is seen and no note is missing. A signal noted in
/// one read is marked, if it was sent to the group, in the following query of the probe at the latest.
fn settle(
    handled: u64,
    noted: Notes,
    mut notes: impl FnMut() -> Notes,
    mut query_probe: impl FnMut() -> u64,
    mut rest: impl FnMut(),
) -> Round {
    let mut round = Round { noted, ..Round::default() };
    for attempt in 1..=READS_MAX {
        let (late, more) = (notes(), query_probe());
        round.to_group |= more;
        if attempt == READS_MAX {
            round.noted.add(late.only(round.to_group));
            round.pending = late.only(!round.to_group);
            break;
        }
        round.noted.add(late);
        if late.any() == 0 && more == 0 && round.to_group & handled & !round.noted.any() == 0 {
            break;
        }
        rest();
    }
    round
}

/// Sleeps the full time, even if handlers run.
fn rest(millis: u8) {
    std::thread::sleep(Duration::from_millis(millis.into()));
}

/// A child that has left the group did not receive signals sent to it.
fn child_is_in_our_group() -> bool {
    // SAFETY: system calls without pointers.
    unsafe { libc::getpgid(CHILD.load(Ordering::SeqCst)) == libc::getpgrp() }
}

extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, which nix sets for this kind of handler, the kernel passes a valid pointer.
    let by_kernel = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0);
    EARLY.fetch_or(1_u64 << signal, Ordering::SeqCst);
    // SAFETY: a system call without pointers.
    if unsafe { libc::getpid() } != OWNER.load(Ordering::SeqCst) {
        // A copy before exec: see above.
        return;
    }
    match NOTES.load(Ordering::SeqCst) {
        notes @ 0.. => write_note(notes, signal as u8 | if by_kernel { BY_KERNEL } else { 0 }),
        _ if by_kernel => {}
        _ => send(signal),
    }
}

fn write_note(to: i32, note: u8) {
    let errno = Errno::last_raw();
    // SAFETY: one byte of this stack. A full pipe already has enough notes.
    unsafe { libc::write(to, (&raw const note).cast(), 1) };
    Errno::set_raw(errno);
}

fn send(signal: libc::c_int) {
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        let errno = Errno::last_raw();
        match CHILD_FD.load(Ordering::SeqCst) {
            // SAFETY: a system call without pointers; a missing child is not an error.
            -1 => unsafe { libc::kill(child, signal) },
            fd => {
                let none = std::ptr::null::<libc::siginfo_t>();
                // SAFETY: without a siginfo the kernel fills in the same as for kill(2).
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) as libc::c_int }
            }
        };
        Errno::set_raw(errno);
    }
}

#[cfg(test)]
mod tests;
