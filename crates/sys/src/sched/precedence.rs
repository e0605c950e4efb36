//! The real-time class for a thread that may be busy without end.

use std::time::Duration;

use units::Timestamp;

use super::{Urgency, set_fifo, set_other, shorten_slice};
use crate::clock::thread_cpu_time;

/// Keeps a thread in the real-time class (SCHED_FIFO, priority 1), before every ordinary task, as long as it does not
/// saturate its core.
///
/// Weights, nice values and short slices are not sufficient. A fair scheduler owes each runnable task its share,
/// however small, up to a tick of it (4 ms at 250 Hz): a task with that credit is chosen although another has just been
/// woken, and the other waits for the next tick. The real-time class has no credit.
///
/// But a real-time thread that runs without end starves all others on its core, and the kernel throttles it for 50 ms
/// of every second. So a thread that used nearly all of a window of 10 ms is an ordinary one, with a short slice, for
/// the next window: the others get their share of that window.
#[derive(Debug, Default)]
pub struct Precedence(Option<Window>);

/// The time since the last review.
#[derive(Debug)]
struct Window {
    began: Timestamp,
    /// CPU time of the thread at the beginning of the window.
    used: Duration,
    first: bool,
}

impl Precedence {
    /// For a thread that takes turns with the others: [`Precedence::review`] does nothing.
    pub const NONE: Precedence = Precedence(None);

    /// Moves the calling thread into the real-time class, if allowed; otherwise it stays unchanged and is not reviewed.
    pub fn acquire(now: Timestamp) -> Self {
        if set_fifo() { Precedence::begin_window(now) } else { Precedence::NONE }
    }

    /// For the calling thread after `urgency` was applied to it.
    pub fn after(urgency: Urgency, now: Timestamp) -> Self {
        if urgency == Urgency::RealTime { Precedence::begin_window(now) } else { Precedence::NONE }
    }

    fn begin_window(now: Timestamp) -> Self {
        Precedence(Some(Window { began: now, used: thread_cpu_time(), first: true }))
    }

    /// Must be called by that thread once per turn of its loop, at `now`. Costs a comparison, and at most two system
    /// calls per window.
    pub fn review(&mut self, now: Timestamp) {
        let Some(window) = &mut self.0 else { return };
        let lasted = now.since(window.began);
        if lasted < REVIEW_INTERVAL {
            return;
        }
        let used = thread_cpu_time();
        let may_be_first = !(window.first && fills(used.saturating_sub(window.used), lasted));
        let first = match (window.first, may_be_first) {
            // The actual class, not the requested one: a thread that stayed in the class must be reviewed again, and
            // one that was not readmitted takes turns until it is.
            (false, true) => set_fifo(),
            (true, false) => !leave_real_time_class(),
            (is, _) => is,
        };
        *window = Window { began: now, used, first };
    }
}

/// Moves the calling thread out of the real-time class, with a short slice if the kernel allows it; false if it stays.
fn leave_real_time_class() -> bool {
    shorten_slice() || set_other()
}

/// Whether a thread that ran for `used` of `lasted` leaves nearly nothing for others.
fn fills(used: Duration, lasted: Duration) -> bool {
    used > lasted.mul_f64(SATURATED_SHARE)
}

/// Time between two reviews: unnoticeable to a user, long compared with the system calls of a change of class.
const REVIEW_INTERVAL: Duration = Duration::from_millis(10);
/// Share of its core.
const SATURATED_SHARE: f64 = 0.9;

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
    fn thread_that_saturates_its_core_leaves_real_time_for_one_window() {
        let thread = std::thread::spawn(|| {
            // If the class is not allowed, `Precedence` must not assume it.
            let allowed = set_fifo();
            let before = class();
            let mut precedence = Precedence::begin_window(at(0));
            let now = |precedence: &Precedence| (precedence.0.as_ref().map(|window| window.first), class());
            // A whole window, on any machine: the thread ran longer than that.
            let started = thread_cpu_time();
            while thread_cpu_time() - started < Duration::from_millis(12) {}
            precedence.review(at(10));
            let after_filling = now(&precedence);
            precedence.review(at(19));
            let meanwhile = now(&precedence);
            // This window ends regardless of the CPU time used.
            precedence.review(at(20));
            let after_turns = now(&precedence);
            // Negligible CPU time in ten seconds.
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
    fn give_way_leaves_real_time_with_and_without_a_slice() {
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
    fn precedence_reviews_real_time_threads_only() {
        for urgency in [Urgency::High, Urgency::Ordinary, Urgency::Low] {
            assert!(Precedence::after(urgency, at(0)).0.is_none());
        }
        assert!(Precedence::after(Urgency::RealTime, at(0)).0.is_some());
    }
}
