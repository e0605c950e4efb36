//! Signals to this process that are meant for the program it runs.
//!
//! A program that stands between a shell and a child in the same process group gets every signal that the terminal
//! sends (Ctrl-C), and so does the child: handing it on would make two of it. The same holds for what another process
//! sends to the whole group, as `timeout` does beside sending it to its child. What is sent to this process alone (`kill`,
//! a supervisor) is handed on.
//!
//! ```text
//!   handler ──> pipe ──> thread: was it sent to the group? (the witness has it too) ──no──> kill(child)
//!      └─> EARLY ──fork──> the child's copy of it: what came before there was a child, and what it got as a copy of us
//! ```
//!
//! Once there is a child, handlers run on that thread and on no other: when it looks, whatever the kernel has for this process was
//! noted before, however long a busy machine keeps other threads from running. And it looks until neither the pipe nor the
//! witness has anything new, since a signal may come between two looks: a note and a mark of the same signal are never taken
//! for two.
//!
//! **The child's birth** is one moment for signals: what is sent to the group before the kernel makes the copy is handled here
//! before fork returns, and is in the copy's memory; what is sent later the copy gets itself (copy_process in
//! kernel/fork.c). Until exec it has our handler, which notes it in the same place. So the child, when it is about to become the
//! program, knows all that came so far, does it to itself, and says so: none is lost, none comes twice.

mod witness;

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

use self::witness::Witness;
use crate::signal::wait_readable;

/// To whom: 0 before there is a child, and when it has ended.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The same as a pidfd, by which none but it is meant even when its number is another's; -1 where it is this process's own child, whose
/// number stays its own until this process waits for it.
static CHILD_FD: AtomicI32 = AtomicI32::new(-1);
/// This process, as opposed to a copy of it that is about to become the program.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Signals that came, by number: read in the child only.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Where handlers note what came; -1: nowhere, it is handed on at once. Never closed, since a handler may be about to write to
/// it.
static NOTES: AtomicI32 = AtomicI32::new(-1);
/// The thread is to end. A note of it may find the pipe full.
static ENDING: AtomicBool = AtomicBool::new(false);

const HANDED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// In a note: by the kernel, so by the terminal. Alone it wakes the thread and says nothing.
const BY_KERNEL: u8 = 0x80;
/// How long a signal is kept before it is looked who has it. kill(2) goes through a group within microseconds; this is for
/// a machine that stands still meanwhile.
const KEPT_MS: u8 = 5;
/// How often, a millisecond apart, notes and witness are looked at, at most: for a note that must come, since the witness has
/// the signal already, and while more comes. A note does not come where the kernel made one signal of two.
const LOOKS: u32 = 20;

/// Hands signals on while it lives. One a process.
#[derive(Debug)]
pub struct Relay {
    /// What was done about the signals that were taken over.
    before: Vec<(Signal, SigAction)>,
    /// Until there is a thread that asks it.
    witness: Option<Witness>,
    /// What handlers noted; for the thread.
    notes: Option<OwnedFd>,
    /// Where the child says what it has got.
    told: OwnedFd,
    /// The child's end of that.
    tell: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// What the thread that has the relay blocked before its signals became the other's.
    mask: Option<SigSet>,
    /// Of a program that another process waits for.
    pidfd: Option<OwnedFd>,
}

impl Relay {
    /// Takes over SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, except those that are ignored (nohup), which stay so
    /// here and in the child. Call it before the child is started.
    ///
    /// Where no process or thread is left for telling who else was meant, every signal is handed on.
    ///
    /// # Errors
    /// Those of sigaction(2) and pipe2(2).
    pub fn install() -> io::Result<Relay> {
        let (notes, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let (told, tell) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let mut relay = Relay {
            before: Vec::new(),
            witness: None,
            notes: Some(notes),
            told,
            tell,
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
        for signal in HANDED_ON {
            // SAFETY: the handler only touches atomics, errno, getpid(2), write(2) and kill(2), which are async-signal-safe.
            let before = unsafe { sigaction(signal, &action)? };
            if matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: what was there before is put back.
                unsafe { sigaction(signal, &before)? };
            } else {
                relay.before.push((signal, before));
            }
        }
        relay.witness = Witness::start().ok();
        Ok(relay)
    }

    /// `command`, when it is about to become the program, has what was sent to it or to this process until then. Call it after
    /// whatever else changes how the program handles signals.
    pub fn hand_over(&self, command: &mut Command) {
        let tell = self.tell.as_raw_fd();
        let taken = self.taken();
        let at_birth = move || {
            // As exec does in a moment: from here on the child has its signals itself.
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            for signal in HANDED_ON.into_iter().filter(|signal| taken & bit(*signal) != 0) {
                // SAFETY: no handler is set that could run.
                unsafe { sigaction(signal, &default) }?;
            }
            let early = EARLY.load(Ordering::SeqCst);
            let bytes = early.to_ne_bytes();
            // SAFETY: eight bytes of this stack, into a pipe that holds them; the descriptor is open until exec.
            unsafe { libc::write(tell, bytes.as_ptr().cast(), bytes.len()) };
            for signal in HANDED_ON.into_iter().filter(|signal| early & bit(*signal) != 0) {
                // SAFETY: system calls without pointers.
                unsafe { libc::kill(libc::getpid(), signal as i32) };
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(at_birth) };
    }

    /// Those that have our handler: of others there are no notes.
    fn taken(&self) -> u64 {
        self.before.iter().fold(0, |all, (signal, _)| all | bit(*signal))
    }

    /// From now on they wait until there is a program, and no thread that is made from now on takes them. Call it before other threads are
    /// made, where some are before [`Relay::to`].
    ///
    /// # Errors
    /// Those of pthread_sigmask(3).
    pub fn hold(&mut self) -> io::Result<()> {
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

    /// As [`Relay::to`], of a program that another process waits for: `pidfd` is its own, `pid` its number.
    pub fn to_grandchild(&mut self, pid: i32, pidfd: OwnedFd) {
        CHILD_FD.store(pidfd.as_raw_fd(), Ordering::SeqCst);
        self.pidfd = Some(pidfd);
        self.to(pid);
    }

    /// From now on they go to process `child`; those that came since it was made too, if it has not got them itself. Signals of
    /// this process are no longer the calling thread's, until [`Relay::stop`], which the same thread must call.
    pub fn to(&mut self, child: i32) {
        let mut early = [0; 8];
        // Nothing: it was not made by a command that was handed over, or has died first.
        let told = read(&self.told, &mut early).is_ok_and(|n| n == early.len());
        let has = if told { u64::from_ne_bytes(early) } else { 0 };
        CHILD.store(child, Ordering::SeqCst);
        // Not before the child was started: with its first thread libc takes a signal for itself, and a child that was
        // to ignore that one would not.
        let Some(notes) = self.notes.take() else { return };
        if let Some(witness) = self.witness.take()
            && let Ok(copy) = notes.try_clone()
        {
            let taken = self.taken();
            let signals = self.signals();
            // Before the thread is there: what comes meanwhile waits for it. Threads that are made later inherit this. It fails for no set.
            let _ = self.hold();
            let sorting = move || {
                // It fails for no set.
                let _ = pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&signals), None);
                sort(&copy, &witness, taken, has);
            };
            self.thread = std::thread::Builder::new().name("signals".into()).spawn(sorting).ok();
        }
        if self.thread.is_none() {
            self.unblock();
            NOTES.store(-1, Ordering::SeqCst);
            Notes::read(&notes).asked_but(has).for_each(send);
        }
    }

    /// From now on they do to this process what they would have done without this. Call it before the child's end is taken note
    /// of: its number may then be another's.
    pub fn stop(&mut self) {
        CHILD.store(0, Ordering::SeqCst);
        CHILD_FD.store(-1, Ordering::SeqCst);
        for (signal, before) in self.before.drain(..) {
            // SAFETY: what was there before is put back. It fails for no signal that was taken over.
            let _ = unsafe { sigaction(signal, &before) };
        }
        self.unblock();
    }

    fn unblock(&mut self) {
        if let Some(mask) = self.mask.take() {
            // It fails for no set.
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
            // It does nothing that could panic.
            let _ = thread.join();
        }
        // After the last who could send by it.
        self.pidfd = None;
    }
}

/// Signals, by number, of which there were notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Notes {
    /// By a process: to this one, or to all of the group.
    asked: u64,
    /// By the terminal: to all of the group.
    by_kernel: u64,
}

impl Notes {
    /// All that are there.
    fn read(from: &OwnedFd) -> Notes {
        let (mut notes, mut bytes) = (Notes::default(), [0; 64]);
        while let Ok(n @ 1..) = read(from, &mut bytes) {
            for &byte in &bytes[..n] {
                let to = if byte & BY_KERNEL == 0 { &mut notes.asked } else { &mut notes.by_kernel };
                *to |= 1 << (byte & !BY_KERNEL & 63);
            }
        }
        notes
    }

    fn any(self) -> u64 {
        self.asked | self.by_kernel
    }

    fn add(&mut self, other: Notes) {
        self.asked |= other.asked;
        self.by_kernel |= other.by_kernel;
    }

    fn only(self, bits: u64) -> Notes {
        Notes { asked: self.asked & bits, by_kernel: self.by_kernel & bits }
    }

    /// Numbers that processes asked for, without those of `bits`.
    fn asked_but(self, bits: u64) -> impl Iterator<Item = i32> {
        HANDED_ON.into_iter().filter(move |signal| self.asked & !bits & bit(*signal) != 0).map(|signal| signal as i32)
    }
}

const fn bit(signal: Signal) -> u64 {
    1_u64 << signal as i32
}

/// Hands on what was sent to this process alone, until it is to end. `taken`: those that there may be notes of; `has`: what
/// the child got before it was the program.
fn sort(notes: &OwnedFd, witness: &Witness, taken: u64, mut has: u64) {
    let mut kept = Notes::default();
    while !ENDING.load(Ordering::SeqCst) {
        if kept.any() == 0 && !wait_readable(notes.as_fd(), Duration::MAX) {
            continue;
        }
        rest(KEPT_MS);
        let round = settle(taken, std::mem::take(&mut kept), || Notes::read(notes), || witness.take(), || rest(1));
        kept = round.kept;
        let has_it = std::mem::take(&mut has) | if child_is_in_our_group() { round.to_group } else { 0 };
        round.noted.asked_but(has_it).for_each(send);
    }
}

/// What looking came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Of these there were notes.
    noted: Notes,
    /// And these the witness has, by the terminal too, or they would be taken for the next one's.
    to_group: u64,
    /// What came last of all and waits for a round of its own.
    kept: Notes,
}

/// Looks at the notes and then at the witness, again and again, until nothing new is seen and no note is missing. What is noted
/// at one look is marked, if it was sent to the group, when the witness is asked at the next one at the latest.
fn settle(
    taken: u64,
    noted: Notes,
    mut notes: impl FnMut() -> Notes,
    mut take: impl FnMut() -> u64,
    mut rest: impl FnMut(),
) -> Round {
    let mut round = Round { noted, ..Round::default() };
    for look in 1..=LOOKS {
        let (late, more) = (notes(), take());
        round.to_group |= more;
        if look == LOOKS {
            round.noted.add(late.only(round.to_group));
            round.kept = late.only(!round.to_group);
            break;
        }
        round.noted.add(late);
        if late.any() == 0 && more == 0 && round.to_group & taken & !round.noted.any() == 0 {
            break;
        }
        rest();
    }
    round
}

/// All of it, whatever handler runs meanwhile.
fn rest(millis: u8) {
    std::thread::sleep(Duration::from_millis(millis.into()));
}

/// A child that has left the group was not meant by what was sent to it.
fn child_is_in_our_group() -> bool {
    // SAFETY: system calls without pointers.
    unsafe { libc::getpgid(CHILD.load(Ordering::SeqCst)) == libc::getpgrp() }
}

extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, which nix sets for this kind of handler, the kernel hands over a valid pointer.
    let by_kernel = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0);
    EARLY.fetch_or(1_u64 << signal, Ordering::SeqCst);
    // SAFETY: a system call without pointers.
    if unsafe { libc::getpid() } != OWNER.load(Ordering::SeqCst) {
        // A copy that is about to be the program: see above.
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
    // SAFETY: one byte of this stack. A full pipe has more than anybody needs to know.
    unsafe { libc::write(to, (&raw const note).cast(), 1) };
    Errno::set_raw(errno);
}

fn send(signal: libc::c_int) {
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        let errno = Errno::last_raw();
        match CHILD_FD.load(Ordering::SeqCst) {
            // SAFETY: a system call without pointers; a child that is gone is no concern.
            -1 => unsafe { libc::kill(child, signal) },
            fd => {
                let none = std::ptr::null::<libc::siginfo_t>();
                // SAFETY: without information of ours the kernel fills in what kill(2) would.
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) as libc::c_int }
            }
        };
        Errno::set_raw(errno);
    }
}

#[cfg(test)]
mod tests;
