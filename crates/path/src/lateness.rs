//! How late the path was: the time just before a packet's write, less the moment it was due.

use std::time::Duration;

use stats::Histogram;
use units::Timestamp;

/// Lateness of every write since the measured phase began, in nanoseconds; a write before its due counts as 0.
///
/// Told apart are writes in a *volley*: those with 7 others due within the 50 us before them. Each write to a TUN runs
/// the receiver's whole network stack, 3 to 10 us, so the eighth of eight packets due at one instant is late by seven
/// such writes however well the path keeps time. Spread arrivals show how well it does.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Every write.
    pub all: Histogram,
    /// Writes that were not in a volley.
    pub spread: Histogram,
    /// Writes in a volley.
    pub volley: Histogram,
    /// The latest of all, exactly.
    pub longest: Duration,
    recent: Recent,
}

/// The dues of the last departures, oldest first from `next` on.
#[derive(Clone, Debug)]
struct Recent {
    dues: [Timestamp; VOLLEY_OTHERS],
    next: usize,
    seen: usize,
}

const VOLLEY_OTHERS: usize = 7;
const VOLLEY_WINDOW: Duration = Duration::from_micros(50);

impl Lateness {
    pub(crate) fn new() -> Self {
        Lateness {
            all: Histogram::new(),
            spread: Histogram::new(),
            volley: Histogram::new(),
            longest: Duration::ZERO,
            recent: Recent { dues: [Timestamp::ZERO; VOLLEY_OTHERS], next: 0, seen: 0 },
        }
    }

    /// Records the write at `now` of a packet due at `due`. Writes come in order of due.
    #[inline]
    pub(crate) fn record(&mut self, due: Timestamp, now: Timestamp) {
        let late = now.since(due);
        let nanos = now.as_nanos().saturating_sub(due.as_nanos());
        self.longest = self.longest.max(late);
        self.all.record(nanos);
        if self.recent.is_volley(due) {
            self.volley.record(nanos);
        } else {
            self.spread.record(nanos);
        }
    }

    /// Forgets what was recorded. A volley that is going on stays one.
    pub(crate) fn reset(&mut self) {
        self.all.clear();
        self.spread.clear();
        self.volley.clear();
        self.longest = Duration::ZERO;
    }
}

impl Recent {
    #[inline]
    fn is_volley(&mut self, due: Timestamp) -> bool {
        let oldest = std::mem::replace(&mut self.dues[self.next], due);
        self.next = (self.next + 1) % VOLLEY_OTHERS;
        self.seen += 1;
        self.seen > VOLLEY_OTHERS && due.since(oldest) <= VOLLEY_WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn the_eighth_of_a_volley_is_in_it_and_the_seventh_is_not() {
        let mut lateness = Lateness::new();
        for packet in 0..8 {
            lateness.record(at(1_000_000), at(1_000_000 + packet * 5_000));
        }
        assert_eq!((lateness.spread.len(), lateness.volley.len(), lateness.all.len()), (7, 1, 8));
        assert_eq!(lateness.longest, Duration::from_micros(35));
    }

    #[test]
    fn fifty_microseconds_are_the_boundary() {
        let volleys = |span: u64| {
            let mut lateness = Lateness::new();
            (0..7).for_each(|_| lateness.record(at(1_000), at(1_000)));
            lateness.record(at(1_000 + span), at(1_000 + span));
            lateness.volley.len()
        };
        assert_eq!((volleys(50_000), volleys(50_001)), (1, 0));
    }

    #[test]
    fn a_reset_clears_figures_but_an_early_write_is_never_negative() {
        let mut lateness = Lateness::new();
        lateness.record(at(5_000), at(4_000));
        assert_eq!((lateness.all.max(), lateness.all.len()), (0, 1));
        lateness.record(at(5_000), at(9_000));
        lateness.reset();
        assert_eq!((lateness.all.len(), lateness.longest), (0, Duration::ZERO));
    }
}
