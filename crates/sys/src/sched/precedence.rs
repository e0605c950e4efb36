//! The real-time class for a thread that may be busy without end.

use std::time::Duration;

use units::Timestamp;

use super::{Urgency, set_fifo, set_other, shorten_slice};
use crate::clock::thread_cpu_time;

/// Keeps a thread in the real-time class (SCHED_FIFO, priority 1), before every ordinary task, as long as it does not
/// fill its core.
///
/// Weights, nice values and short slices do not do that. A fair scheduler owes each runnable task its share, however
/// small, up to a tick of it (4 ms at 250 Hz): who has that to its credit is chosen although another has just been woken, and
/// the other waits for the next tick. The real-time class knows no credit.
///
/// But a thread that runs without end there starves all others on its core, and the kernel stops it for 50 ms of every second.
/// So one that took nearly all of a window of 10 ms is an ordinary one, with a short slice, for the next window: the others
/// have their share of that.
#[derive(Debug, Default)]
pub struct Precedence(Option<Window>);

/// The time since the last look.
#[derive(Debug)]
struct Window {
    began: Timestamp,
    /// CPU time of the thread when it began.
    used: Duration,
    first: bool,
}

impl Precedence {
    /// For a thread that takes its turn with the others: [`Precedence::review`] does nothing.
    pub const NONE: Precedence = Precedence(None);

    /// Puts the calling thread first, if it may be; otherwise it is left as it was, and not looked at again.
    pub fn take(now: Timestamp) -> Self {
        if set_fifo() { Precedence::taken(now) } else { Precedence::NONE }
    }

    /// For the calling thread after `urgency` was applied to it.
    pub fn after(urgency: Urgency, now: Timestamp) -> Self {
        if urgency == Urgency::RealTime { Precedence::taken(now) } else { Precedence::NONE }
    }

    fn taken(now: Timestamp) -> Self {
        Precedence(Some(Window { began: now, used: thread_cpu_time(), first: true }))
    }

    /// To be called by that thread once a turn of its loop, at `now`. Costs a comparison, and two system calls at most a
    /// window.
    pub fn review(&mut self, now: Timestamp) {
        let Some(window) = &mut self.0 else { return };
        let lasted = now.since(window.began);
        if lasted < WINDOW {
            return;
        }
        let used = thread_cpu_time();
        let wanted = !(window.first && fills(used.saturating_sub(window.used), lasted));
        let first = match (window.first, wanted) {
            // What it is, not what was asked for: a thread that stayed in the class must be looked at again, and one that
            // was not let back in has its turns until it is.
            (false, true) => set_fifo(),
            (true, false) => !give_way(),
            (is, _) => is,
        };
        *window = Window { began: now, used, first };
    }
}

/// Takes the calling thread out of the real-time class, with a short slice if the kernel gives one; false if it stays there.
fn give_way() -> bool {
    shorten_slice() || set_other()
}

/// Whether a thread that ran for `used` of `lasted` leaves the others nearly nothing.
fn fills(used: Duration, lasted: Duration) -> bool {
    used > lasted.mul_f64(NEARLY_ALL)
}

/// Short against what people notice, long against the system calls of a change.
const WINDOW: Duration = Duration::from_millis(10);
/// Of its core.
const NEARLY_ALL: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    /// The class of the calling thread, as the kernel has it.
    fn class() -> i32 {
        // SAFETY: no pointers; 0 is the calling thread.
        let class = unsafe { libc::sched_getscheduler(0) };
        class & !libc::SCHED_RESET_ON_FORK
    }

    #[test]
    fn who_fills_its_core_takes_turns_for_one_window() {
        let thread = std::thread::spawn(|| {
            // Where the class is not to be had, what asks for it must not believe that it has it.
            let allowed = set_fifo();
            let before = class();
            let mut precedence = Precedence::taken(at(0));
            let now = |precedence: &Precedence| (precedence.0.as_ref().map(|window| window.first), class());
            // All of a window, whatever else the machine does: it ran for longer than that.
            let started = thread_cpu_time();
            while thread_cpu_time() - started < Duration::from_millis(12) {}
            precedence.review(at(10));
            let after_filling = now(&precedence);
            precedence.review(at(19));
            let meanwhile = now(&precedence);
            // This one ends whatever was used of it.
            precedence.review(at(20));
            let after_turns = now(&precedence);
            // Nothing to speak of in ten seconds.
            precedence.review(at(10_020));
            (allowed, before, [after_filling, meanwhile, after_turns, now(&precedence)])
        });

        let (allowed, before, seen) = thread.join().unwrap();
        let first = (Some(allowed), if allowed { libc::SCHED_FIFO } else { libc::SCHED_OTHER });
        let in_turns = (Some(false), libc::SCHED_OTHER);
        assert_eq!(before, first.1);
        assert_eq!(seen, [in_turns, in_turns, first, first]);
    }

    #[test]
    fn there_are_two_ways_out_of_the_class() {
        let thread = std::thread::spawn(|| {
            let ways: [fn() -> bool; 2] = [shorten_slice, set_other];
            ways.map(|leave| {
                set_fifo();
                (leave(), class())
            })
        });
        assert_eq!(thread.join().unwrap(), [(true, libc::SCHED_OTHER); 2]);
    }

    #[test]
    fn only_a_real_time_thread_is_looked_after() {
        for urgency in [Urgency::High, Urgency::Ordinary, Urgency::Low] {
            assert!(Precedence::after(urgency, at(0)).0.is_none());
        }
        assert!(Precedence::after(Urgency::RealTime, at(0)).0.is_some());
    }
}
