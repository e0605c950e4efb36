//! Time limit of heavy work in one turn of an engine's loop.
//!
//! Light work (a request for a file in memory) is done immediately. Heavy work (large bodies, endless pipelines, TLS
//! handshakes, many new connections) checks [`Turn::is_over`] before each piece, and continues in the next turn if so.
//! All light work runs between two turns, so that it waits little longer than one turn for heavy work.

use std::time::Duration;

use sys::clock::Clock;
use units::Timestamp;

/// The time budget of heavy work. Without a clock it is unlimited, as outside of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    clock: Option<Clock>,
    began: Timestamp,
    ends_at: Timestamp,
}

impl Turn {
    /// A turn that began at `now`.
    pub(crate) fn begun(clock: Clock, now: Timestamp) -> Self {
        Turn { clock: Some(clock), began: now, ends_at: now + HEAVY_WORK_MAX }
    }

    /// Established connections have been processed: new ones get the rest of the budget, at least an eighth of the time
    /// used. So established clients that saturate a worker leave a ninth to others.
    pub(crate) fn for_new_connections(&mut self) {
        if let Some(clock) = &self.clock {
            self.share_at(clock.now());
        }
    }

    fn share_at(&mut self, now: Timestamp) {
        self.ends_at = self.ends_at.max(now + now.since(self.began) / NEW_CONNECTIONS_SHARE);
    }

    /// Whether heavy work must wait for the next turn. Reads the clock.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.is_some_and(|clock| clock.now() >= self.ends_at)
    }
}

/// Heavy work ends after its current piece (a TLS handshake or 1 MiB of a file takes 100 us), and work that a turn
/// leaves to the kernel, such as closing, takes as long again: others wait 100 to 200 us at most. A shorter limit would
/// be spent on system calls.
const HEAVY_WORK_MAX: Duration = Duration::from_micros(50);
/// See [`Turn::for_new_connections`].
const NEW_CONNECTIONS_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_its_time_and_never_without_a_clock() {
        assert!(!Turn::default().is_over());
        let clock = Clock::start();
        assert!(!Turn::begun(clock, clock.now() + Duration::from_secs(1000)).is_over());
        assert!(Turn { clock: Some(clock), ..Turn::default() }.is_over());
    }

    #[test]
    fn new_connections_have_a_share_of_every_turn() {
        let at = |us: u64| Timestamp::from_nanos(us * 1000);
        for (known_until, ends_at) in [(0, 50), (40, 50), (48, 54), (80, 90), (4000, 4500)] {
            let mut turn = Turn { began: at(0), ends_at: at(0) + HEAVY_WORK_MAX, ..Turn::default() };
            turn.share_at(at(known_until));
            assert_eq!(turn.ends_at, at(ends_at), "{known_until}");
        }
    }
}
