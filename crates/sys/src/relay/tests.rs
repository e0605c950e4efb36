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
