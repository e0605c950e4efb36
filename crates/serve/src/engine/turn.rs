//! How long heavy work may go on in one turn of an engine's loop.
//!
//! What is light (a request for a file in memory) is done when it comes. What is heavy (big bodies, pipelines without end,
//! handshakes of TLS, crowds of new connections) asks [`Turn::is_over`] before each piece, and goes on in the next turn
//! if so. Between two turns everything light has its chance, so that nobody waits for the heavy work of others much
//! longer than one turn, however much of it there is.

use std::time::Duration;

use sys::clock::Clock;
use units::Timestamp;

/// The time that heavy work has. Without a clock it has all the time there is: so it is outside of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    clock: Option<Clock>,
    began: Timestamp,
    ends_at: Timestamp,
}

impl Turn {
    /// A turn that began at `now`.
    pub(crate) fn begun(clock: Clock, now: Timestamp) -> Self {
        Turn { clock: Some(clock), began: now, ends_at: now + HEAVY }
    }

    /// Those who are known have had their turn: strangers have what is left of it, and where little or nothing is, an eighth
    /// of what it has taken. So crowds of known clients that fill a worker leave others a ninth of it, whatever they do.
    pub(crate) fn for_strangers(&mut self) {
        if let Some(clock) = &self.clock {
            self.share_at(clock.now());
        }
    }

    fn share_at(&mut self, now: Timestamp) {
        self.ends_at = self.ends_at.max(now + now.since(self.began) / STRANGERS_PART);
    }

    /// Whether heavy work must wait for the next turn. Costs a look at the clock.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.is_some_and(|clock| clock.now() >= self.ends_at)
    }
}

/// What is heavy ends after the piece that is under way (a handshake takes 100 us, as does 1 MiB of a file), and what a turn
/// leaves to the kernel, closing above all, takes as long again: others wait for 100 to 200 us at most. Shorter ones would
/// spend their time on system calls.
const HEAVY: Duration = Duration::from_micros(50);
/// See [`Turn::for_strangers`].
const STRANGERS_PART: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_and_without_a_clock_never() {
        assert!(!Turn::default().is_over());
        let clock = Clock::start();
        assert!(!Turn::begun(clock, clock.now() + Duration::from_secs(1000)).is_over());
        assert!(Turn { clock: Some(clock), ..Turn::default() }.is_over());
    }

    #[test]
    fn strangers_have_a_share_of_every_turn() {
        let at = |us: u64| Timestamp::from_nanos(us * 1000);
        for (known_until, ends_at) in [(0, 50), (40, 50), (48, 54), (80, 90), (4000, 4500)] {
            let mut turn = Turn { began: at(0), ends_at: at(0) + HEAVY, ..Turn::default() };
            turn.share_at(at(known_until));
            assert_eq!(turn.ends_at, at(ends_at), "{known_until}");
        }
    }
}
