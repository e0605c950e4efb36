//! Counts of the load at the ends of seconds, from its own counters: records arrive when requests end, and cannot
//! provide them during the run.

use load::Live;
use schema::SecondRecord;
use units::Timestamp;

use crate::drive::progress::Progress;

/// Reads the loops' counters, which are stored ten times a second, and interpolates between readings.
#[derive(Debug, Default)]
pub struct Boundaries {
    before: Option<Reading>,
    now: Option<Reading>,
    /// Counts at the end of the last completed second.
    last: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Timestamp,
    counts: Counts,
}

/// Counts since the run's zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    offered: u64,
    started: u64,
    connections_opened: u64,
}

impl Boundaries {
    /// Takes a reading, if the counters are newer than the last.
    pub fn read(&mut self, progress: &Progress) {
        let at = progress.time();
        if at > Timestamp::ZERO && self.now.is_none_or(|now| at > now.at) {
            let Live { offered, started, connections_opened, .. } = progress.live();
            let counts = Counts { offered, started, connections_opened };
            self.before = self.now.replace(Reading { at, counts });
        }
    }

    /// Whether the counters at `end` are known. True if no loop stores counters, because then none will follow.
    pub fn is_known_at(&self, end: Timestamp) -> bool {
        self.now.is_none_or(|now| now.at >= end)
    }

    /// Replaces the counts of offered, started and opened in the second that ends at `end` where the counters are
    /// higher than the records.
    pub fn complete(&mut self, row: &mut SecondRecord, end: Timestamp) {
        let Some(now) = self.now else { return };
        let counts = self.before.map_or(now.counts, |before| between(before, now, end));
        let since = |of: fn(&Counts) -> u64| of(&counts).saturating_sub(of(&self.last));
        row.offered = row.offered.max(since(|counts| counts.offered));
        row.started = row.started.max(since(|counts| counts.started));
        row.connections_opened = row.connections_opened.max(since(|counts| counts.connections_opened));
        self.last = counts;
    }
}

/// Interpolates the counts between two readings, as if they had risen evenly.
fn between(before: Reading, now: Reading, at: Timestamp) -> Counts {
    let interval_s = now.at.since(before.at).as_secs_f64();
    let share = if interval_s > 0.0 { (at.since(before.at).as_secs_f64() / interval_s).min(1.0) } else { 1.0 };
    let part = |from: u64, to: u64| from + (to.saturating_sub(from) as f64 * share).round() as u64;
    Counts {
        offered: part(before.counts.offered, now.counts.offered),
        started: part(before.counts.started, now.counts.started),
        connections_opened: part(before.counts.connections_opened, now.counts.connections_opened),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn store(progress: &Progress, ms: u64, offered: u64) {
        progress.store(Live { offered, started: offered / 2, ..Live::default() });
        progress.store_time(at(ms));
    }

    #[test]
    fn counts_at_the_end_of_a_second_are_interpolated() {
        let (mut boundaries, progress) = (Boundaries::default(), Progress::default());
        boundaries.read(&progress);
        assert!(boundaries.is_known_at(at(1_000)), "without counters every boundary is known");
        store(&progress, 960, 96);
        boundaries.read(&progress);
        assert!(!boundaries.is_known_at(at(1_000)));
        store(&progress, 1_060, 106);
        boundaries.read(&progress);
        boundaries.read(&progress);
        assert!(boundaries.is_known_at(at(1_000)) && !boundaries.is_known_at(at(2_000)));
        let mut row = SecondRecord { offered: 90, ..SecondRecord::default() };
        boundaries.complete(&mut row, at(1_000));
        assert_eq!((row.offered, row.started), (100, 50));
        // A long gap: several seconds lie between two readings.
        store(&progress, 3_060, 306);
        boundaries.read(&progress);
        let mut rows = [SecondRecord::default(), SecondRecord { offered: 500, ..SecondRecord::default() }];
        boundaries.complete(&mut rows[0], at(2_000));
        boundaries.complete(&mut rows[1], at(3_000));
        assert_eq!(rows.map(|row| row.offered), [100, 500], "every ended request was offered");
    }
}
