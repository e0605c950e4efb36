//! With signals to this process alone: its group is the whole test run's.

use std::os::unix::process::ExitStatusExt;

use super::*;

/// One relay a process, and each test is a process's only one: they are one test, in turn.
#[test]
fn signals_find_the_program_at_whatever_moment_and_this_process_again_when_it_has_ended() {
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
    assert_eq!(disposition(), before, "what comes now is this process's own affair");
    drop(relay);

    // Between its birth and the word of it, and after that.
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

    // To a program that another process waits for, though its number is unknown to kill(2) here: by its descriptor.
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut relay = Relay::install().unwrap();
    relay.hold().unwrap();
    own();
    relay.to_grandchild(i32::MAX, crate::process::open(child.id()).unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "what came before it was known is not lost");
    drop(relay);
    assert_eq!(disposition(), before);

    // More notes than the pipe holds: it ends all the same.
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
fn notes_are_sets_of_numbers() {
    let (from, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    nix::unistd::write(&to, &[15, 15, 10, 2 | BY_KERNEL]).unwrap();
    let notes = Notes::read(&from);
    assert_eq!(notes, Notes { asked: 1 << 15 | 1 << 10, by_kernel: 1 << 2 });
    assert_eq!(Notes::read(&from), Notes::default());
    assert_eq!(notes.asked_but(0).collect::<Vec<_>>(), [15, 10]);
    assert_eq!(notes.asked_but(1 << 15).collect::<Vec<_>>(), [10]);
    assert_eq!(notes.only(1 << 15 | 1 << 2).any(), 1 << 15 | 1 << 2);
}

/// One look after the other: what the notes say, then what the witness says. Afterwards there is nothing.
fn looked(before: Notes, looks: &[(Notes, u64)]) -> (Round, usize) {
    let (mut at_notes, mut at_witness, mut rests) = (looks.iter(), looks.iter(), 0);
    let notes = || at_notes.next().map_or_else(Notes::default, |look| look.0);
    let take = || at_witness.next().map_or(0, |look| look.1);
    let round = settle(USR1 | USR2, before, notes, take, || rests += 1);
    (round, rests)
}

const USR1: u64 = bit(Signal::SIGUSR1);
const USR2: u64 = bit(Signal::SIGUSR2);
const NONE: Notes = Notes { asked: 0, by_kernel: 0 };

fn asked(asked: u64) -> Notes {
    Notes { asked, by_kernel: 0 }
}

fn handed_on(round: Round) -> Vec<i32> {
    round.noted.asked_but(round.to_group).collect()
}

#[test]
fn what_was_sent_to_the_group_is_never_handed_on_whenever_it_comes_between_two_looks() {
    let nothing = Vec::<i32>::new();
    // Both at once; the mark first; the note first.
    for looks in [
        &[(asked(USR1), USR1)][..],
        &[(NONE, USR1), (asked(USR1), 0)],
        &[(asked(USR1), 0), (NONE, USR1)],
        // The same once more while the witness is asked: it has one mark for both, and the second note comes after it.
        &[(asked(USR1), USR1), (asked(USR1), 0)],
        &[(asked(USR1), USR1), (NONE, USR1), (asked(USR1), 0)],
        // Another one meanwhile.
        &[(asked(USR1), USR1 | USR2), (asked(USR2), 0)],
        &[(asked(USR1 | USR2), USR1), (NONE, USR2)],
        // A machine so busy that the note comes long after the mark.
        &[(NONE, USR1), (NONE, 0), (NONE, 0), (NONE, 0), (asked(USR1), 0)],
    ] {
        let (round, _) = looked(NONE, looks);
        assert_eq!((handed_on(round), round.kept), (nothing.clone(), NONE), "{looks:?}");
    }
}

#[test]
fn what_was_sent_to_this_process_alone_is_handed_on_soon() {
    let (round, rests) = looked(NONE, &[(asked(USR1), 0)]);
    assert_eq!((handed_on(round), rests), (vec![libc::SIGUSR1], 1));
    // Beside one that was sent to all; kept from an earlier round.
    let (round, _) = looked(asked(USR2), &[(asked(USR1), USR1)]);
    assert_eq!(handed_on(round), [libc::SIGUSR2]);
    // One note for two: it is not waited for without end.
    let (round, rests) = looked(NONE, &[(asked(USR2), USR1)]);
    assert_eq!((handed_on(round), rests), (vec![libc::SIGUSR2], LOOKS as usize - 1));
    // While others come without end: what is new at the last look waits for the next round.
    let (round, _) = looked(NONE, &[(asked(USR1), 0); LOOKS as usize]);
    assert_eq!((handed_on(round), round.kept), (vec![libc::SIGUSR1], asked(USR1)));
}
