//! Timing error of the path: the time just before a packet's write, less the time at which the packet was due.

use std::time::Duration;

use stats::Histogram;
use units::Timestamp;

/// Timing errors of all writes since the measured phase began, in nanoseconds; a write before its due time counts as 0.
///
/// Writes in a *burst* are counted separately: those with 7 other packets due within the 50 us before them. Each write
/// to a TUN device runs the receiver's whole network stack, 3 to 10 us, so the last of eight packets due at the same
/// time is late by seven writes, however well the path keeps time. Isolated packets show how well it does.
#[derive(Clone, Debug)]
pub struct TimingErrors {
    /// All writes.
    pub all: Histogram,
    /// Writes outside of bursts.
    pub isolated: Histogram,
    /// Writes in a burst.
    pub bursts: Histogram,
    /// Writes outside of bursts, each less the time of the last late wake-up in which the packet was already due: what
    /// remains if the machine always wakes the caller on time.
    pub own: Histogram,
    /// The largest timing error, exactly.
    pub longest: Duration,
    /// Sum of the late wake-ups.
    pub late_wakeups: Duration,
    last_late_wakeup: LateWakeup,
    recent: Recent,
}

/// A time in which the caller waited although a packet was due.
#[derive(Clone, Copy, Debug, Default)]
struct LateWakeup {
    due: Timestamp,
    woken: Timestamp,
}

/// Due times of the last departures, oldest first from `next` on.
#[derive(Clone, Debug)]
struct Recent {
    dues: [Timestamp; BURST_PRECEDING_PACKETS],
    next: usize,
    seen: usize,
}

const BURST_PRECEDING_PACKETS: usize = 7;
const BURST_WINDOW: Duration = Duration::from_micros(50);

impl TimingErrors {
    pub(crate) fn new() -> Self {
        TimingErrors {
            all: Histogram::new(),
            isolated: Histogram::new(),
            bursts: Histogram::new(),
            own: Histogram::new(),
            longest: Duration::ZERO,
            late_wakeups: Duration::ZERO,
            last_late_wakeup: LateWakeup::default(),
            recent: Recent { dues: [Timestamp::ZERO; BURST_PRECEDING_PACKETS], next: 0, seen: 0 },
        }
    }

    /// Records the write at `now` of a packet due at `due`. Writes are in order of due time.
    #[inline]
    pub(crate) fn record(&mut self, due: Timestamp, now: Timestamp) {
        let late = now.since(due);
        let nanos = now.as_nanos().saturating_sub(due.as_nanos());
        self.longest = self.longest.max(late);
        self.all.record(nanos);
        if self.recent.is_burst(due) {
            self.bursts.record(nanos);
        } else {
            self.isolated.record(nanos);
            let waited = self.last_late_wakeup.after(due).as_nanos() as u64;
            self.own.record(nanos.saturating_sub(waited));
        }
    }

    /// Notes a wait of the caller until `woken` that should have ended at `due`.
    pub(crate) fn note_late_wakeup(&mut self, due: Timestamp, woken: Timestamp) {
        self.late_wakeups += woken.since(due);
        self.last_late_wakeup = LateWakeup { due, woken };
    }

    /// Discards the recorded values. A current burst continues.
    pub(crate) fn reset(&mut self) {
        self.all.clear();
        self.isolated.clear();
        self.bursts.clear();
        self.own.clear();
        self.longest = Duration::ZERO;
        self.late_wakeups = Duration::ZERO;
    }
}

impl LateWakeup {
    /// Time of the wait from `due` on.
    #[inline]
    fn after(self, due: Timestamp) -> Duration {
        self.woken.since(due.max(self.due))
    }
}

impl Recent {
    #[inline]
    fn is_burst(&mut self, due: Timestamp) -> bool {
        let oldest = std::mem::replace(&mut self.dues[self.next], due);
        self.next = (self.next + 1) % BURST_PRECEDING_PACKETS;
        self.seen += 1;
        self.seen > BURST_PRECEDING_PACKETS && due.since(oldest) <= BURST_WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn burst_begins_with_the_eighth_packet_within_the_window() {
        let mut errors = TimingErrors::new();
        for packet in 0..8 {
            errors.record(at(1_000_000), at(1_000_000 + packet * 5_000));
        }
        assert_eq!((errors.isolated.len(), errors.bursts.len(), errors.all.len()), (7, 1, 8));
        assert_eq!(errors.longest, Duration::from_micros(35));
    }

    #[test]
    fn burst_window_ends_at_fifty_microseconds() {
        let bursts = |span: u64| {
            let mut errors = TimingErrors::new();
            (0..7).for_each(|_| errors.record(at(1_000), at(1_000)));
            errors.record(at(1_000 + span), at(1_000 + span));
            errors.bursts.len()
        };
        assert_eq!((bursts(50_000), bursts(50_001)), (1, 0));
    }

    #[test]
    fn own_timing_error_excludes_a_late_wake_up() {
        let mut errors = TimingErrors::new();
        let mut own = |due: u64, written: u64| {
            errors.own.clear();
            errors.record(at(due), at(written));
            errors.own.max()
        };
        assert_eq!(own(100, 107), 7, "before any late wake-up");
        errors.note_late_wakeup(at(1_000), at(31_000));
        let mut own = |due: u64, written: u64| {
            errors.own.clear();
            errors.record(at(due), at(written));
            errors.own.max()
        };
        assert_eq!(own(1_000, 31_000), 0, "written when the caller was woken");
        assert_eq!(own(1_000, 31_020), 20);
        assert_eq!(own(21_000, 31_040), 40, "due during the wait");
        assert_eq!(own(31_060, 31_063), 3, "due after it");
        assert_eq!((errors.late_wakeups, errors.longest), (Duration::from_micros(30), Duration::from_nanos(30_020)));
    }

    #[test]
    fn timing_error_reset_clears_figures_and_an_early_write_counts_as_zero() {
        let mut errors = TimingErrors::new();
        errors.record(at(5_000), at(4_000));
        assert_eq!((errors.all.max(), errors.all.len()), (0, 1));
        errors.record(at(5_000), at(9_000));
        errors.note_late_wakeup(at(5_000), at(9_000));
        errors.reset();
        assert_eq!((errors.all.len(), errors.own.len(), errors.longest), (0, 0, Duration::ZERO));
        assert_eq!(errors.late_wakeups, Duration::ZERO);
    }
}
