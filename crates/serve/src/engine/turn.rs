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
    ends_at: Timestamp,
}

impl Turn {
    /// A turn that began at `now`.
    pub(crate) fn begun(clock: Clock, now: Timestamp) -> Self {
        Turn { clock: Some(clock), ends_at: now + HEAVY }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_and_without_a_clock_never() {
        assert!(!Turn::default().is_over());
        let clock = Clock::start();
        assert!(!Turn::begun(clock, clock.now() + Duration::from_secs(1000)).is_over());
        assert!(Turn { clock: Some(clock), ends_at: Timestamp::ZERO }.is_over());
    }
}
