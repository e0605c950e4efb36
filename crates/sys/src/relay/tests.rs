//! Tests with signals to this process alone: its group is that of the whole test run.

use std::os::unix::process::ExitStatusExt;

use super::*;

/// A process may have one relay only: these scenarios run in sequence in one test.
#[test]
fn relay_forwards_signals_at_any_time_and_restores_the_handlers() {
    let own = || {
        // SAFETY: system calls without pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
    };
    let sleeping = |relay: &Relay| {
        let mut command = Command::new("sleep");
        command.arg("60");
        relay.hand_over(&mut command);
        command.spawn().unwrap()
    };
    let disposition = || {
        // SAFETY: all zeros is a sigaction, which the call fills; it changes nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut action);
            action.sa_sigaction
        }
    };
    let before = disposition();

    // Before there is a child.
    let mut relay = Relay::install().unwrap();
    assert_ne!(disposition(), before);
    own();
    let mut child = sleeping(&relay);
    relay.to(child.id().cast_signed());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
    relay.stop();
    assert_eq!(disposition(), before, "later signals have the previous action");
    drop(relay);

    // Between the child's creation and its report, and after that.
    for early in [true, false] {
        let mut relay = Relay::install().unwrap();
        let mut child = sleeping(&relay);
        if early {
            own();
        }
        relay.to(child.id().cast_signed());
        if !early {
            own();
        }
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "early: {early}");
        drop(relay);
        assert_eq!(disposition(), before);
    }

    // To a program that another process waits for, by its descriptor, although its number is unknown to kill(2) here.
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut relay = Relay::install().unwrap();
    relay.block_signals().unwrap();
    own();
    relay.to_grandchild(i32::MAX, crate::process::open(child.id()).unwrap());
    assert_eq!(
        child.wait().unwrap().signal(),
        Some(libc::SIGUSR1),
        "a signal before the program was known is forwarded"
    );
    drop(relay);
    assert_eq!(disposition(), before);

    // More notes than the pipe holds: the relay still ends.
    let mut relay = Relay::install().unwrap();
    let mut child = sleeping(&relay);
    child.kill().unwrap();
    child.wait().unwrap();
    let to = NOTES.load(Ordering::SeqCst);
    let full = [BY_KERNEL | 1; 4096];
    // SAFETY: bytes of this stack, into a pipe that does not wait.
    while unsafe { libc::write(to, full.as_ptr().cast(), full.len()) } > 0 {}
    relay.to(child.id().cast_signed());
    relay.stop();
    // SAFETY: as above.
    while unsafe { libc::write(to, full.as_ptr().cast(), full.len()) } > 0 {}
    drop(relay);
}

#[test]
fn notes_store_sets_of_signal_numbers() {
    let (from, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    nix::unistd::write(&to, &[15, 15, 10, 2 | BY_KERNEL]).unwrap();
    let notes = Notes::read(&from);
    assert_eq!(notes, Notes { by_process: 1 << 15 | 1 << 10, by_kernel: 1 << 2 });
    assert_eq!(Notes::read(&from), Notes::default());
    assert_eq!(notes.by_process_except(0).collect::<Vec<_>>(), [15, 10]);
    assert_eq!(notes.by_process_except(1 << 15).collect::<Vec<_>>(), [10]);
    assert_eq!(notes.only(1 << 15 | 1 << 2).any(), 1 << 15 | 1 << 2);
}

/// One read after the other: the notes, then the group probe. Afterwards both are empty.
fn read_in_turn(before: Notes, reads: &[(Notes, u64)]) -> (Round, usize) {
    let (mut at_notes, mut at_independent, mut pauses) = (reads.iter(), reads.iter(), 0);
    let notes = || at_notes.next().map_or_else(Notes::default, |read| read.0);
    let take = || at_independent.next().map_or(0, |read| read.1);
    let round = settle(USR1 | USR2, before, notes, take, || pauses += 1);
    (round, pauses)
}

const USR1: u64 = bit(Signal::SIGUSR1);
const USR2: u64 = bit(Signal::SIGUSR2);
const NONE: Notes = Notes { by_process: 0, by_kernel: 0 };

fn by_process(by_process: u64) -> Notes {
    Notes { by_process, by_kernel: 0 }
}

fn forwarded(round: Round) -> Vec<i32> {
    round.noted.by_process_except(round.to_group).collect()
}

#[test]
fn signal_to_the_group_is_never_forwarded_whatever_its_timing() {
    let nothing = Vec::<i32>::new();
    // Mark and note in one read; the mark first; the note first.
    for reads in [
        &[(by_process(USR1), USR1)][..],
        &[(NONE, USR1), (by_process(USR1), 0)],
        &[(by_process(USR1), 0), (NONE, USR1)],
        // The same signal again during the query: the probe has one mark for both, and the second note arrives after
        // it.
        &[(by_process(USR1), USR1), (by_process(USR1), 0)],
        &[(by_process(USR1), USR1), (NONE, USR1), (by_process(USR1), 0)],
        // Another signal in between.
        &[(by_process(USR1), USR1 | USR2), (by_process(USR2), 0)],
        &[(by_process(USR1 | USR2), USR1), (NONE, USR2)],
        // On a busy machine, where the note arrives long after the mark.
        &[(NONE, USR1), (NONE, 0), (NONE, 0), (NONE, 0), (by_process(USR1), 0)],
    ] {
        let (round, _) = read_in_turn(NONE, reads);
        assert_eq!((forwarded(round), round.pending), (nothing.clone(), NONE), "{reads:?}");
    }
}

#[test]
fn signal_to_this_process_alone_is_forwarded_soon() {
    let (round, pauses) = read_in_turn(NONE, &[(by_process(USR1), 0)]);
    assert_eq!((forwarded(round), pauses), (vec![libc::SIGUSR1], 1));
    // Together with a signal to the group; left from an earlier round.
    let (round, _) = read_in_turn(by_process(USR2), &[(by_process(USR1), USR1)]);
    assert_eq!(forwarded(round), [libc::SIGUSR2]);
    // One note for two signals: the wait for the other one is limited.
    let (round, pauses) = read_in_turn(NONE, &[(by_process(USR2), USR1)]);
    assert_eq!((forwarded(round), pauses), (vec![libc::SIGUSR2], READS_MAX as usize - 1));
    // While others arrive without end: a new signal in the last read waits for the next round.
    let (round, _) = read_in_turn(NONE, &[(by_process(USR1), 0); READS_MAX as usize]);
    assert_eq!((forwarded(round), round.pending), (vec![libc::SIGUSR1], by_process(USR1)));
}
