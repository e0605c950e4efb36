//! The run's clock as the [`Instant`]s of quinn-proto, which takes the time as an argument but has no type of its own
//! for it.

use std::time::{Duration, Instant};

use units::Timestamp;

/// One pair of the same time on both scales. Everything else follows from it, so nothing here reads a clock.
#[derive(Clone, Copy, Debug)]
pub struct TimeBase {
    instant: Instant,
    at: Timestamp,
}

impl TimeBase {
    /// `instant` and `at` are the same time.
    pub fn new(instant: Instant, at: Timestamp) -> Self {
        TimeBase { instant, at }
    }

    /// The time as quinn-proto takes it.
    pub fn instant(&self, at: Timestamp) -> Instant {
        let offset = at.nanos_since(self.at);
        let distance = Duration::from_nanos(offset.unsigned_abs());
        // Before the base there is possibly no instant.
        if offset >= 0 { self.instant + distance } else { self.instant.checked_sub(distance).unwrap_or(self.instant) }
    }

    /// The time on the run's clock, [`Timestamp::ZERO`] if it is before the run.
    pub fn timestamp(&self, instant: Instant) -> Timestamp {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.at + after,
            None => {
                let before = self.instant.duration_since(instant).as_nanos();
                Timestamp::from_nanos(self.at.as_nanos().saturating_sub(u64::try_from(before).unwrap_or(u64::MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an Instant has no other origin")]
    fn times_survive_both_directions() {
        let base = TimeBase::new(Instant::now(), Timestamp::from_nanos(1_000_000));
        for nanos in [0, 999_999, 1_000_000, 1_000_001, 5_000_000_000] {
            let at = Timestamp::from_nanos(nanos);
            assert_eq!(base.timestamp(base.instant(at)), at);
        }
    }
}
