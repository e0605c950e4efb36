//! What a live watch shows: figures of the last second, of all, and the recent past.

use std::collections::VecDeque;

use report::figures;
use schema::{WatchPart, WatchSecond};
use serde::{Deserialize, Serialize};
use stats::Histogram;

/// Everything that the screen or a line tells of one watch.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The host that watches, where it is another.
    pub host: Option<String>,
    /// Time since the watch began, in seconds.
    pub elapsed_s: f64,
    /// The last seconds, oldest first; at most [`HISTORY`].
    pub history: VecDeque<Point>,
    /// The last second that ended.
    pub last: WatchSecond,
    /// Everything since the start.
    pub totals: WatchPart,
    /// Handshakes since the start.
    pub rtt: RttBuckets,
    /// How sending, receiving or writing goes.
    pub remark: String,
    /// Whether the remark is of something that goes wrong.
    pub is_doubtful: bool,
    /// How to see more, where the screen has room for it.
    pub advice: &'static str,
}

/// One second of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Capture time divided by 10^9.
    pub second: u64,
    /// Mean of the concurrent connections.
    pub connections_mean: f64,
}

/// Seconds that the graph can look back.
pub const HISTORY: usize = 600;

impl View {
    /// Takes in a second that ended.
    pub fn second_passed(&mut self, second: &WatchSecond) {
        self.last = *second;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Point { second: second.second, connections_mean: second.connections_mean });
    }

    /// The last second on one line.
    pub fn line(&self) -> String {
        let last = &self.last;
        let rtt = match last.handshakes {
            0 => String::new(),
            _ => format!(", RTT {}", figures::duration(last.handshake_rtt_p50_ns)),
        };
        let remark = if self.remark.is_empty() { String::new() } else { format!("; {}", self.remark) };
        format!(
            "{:>5.0} s  {} concurrent connections, {} new, {} requests, {} answered, {} in progress, {} packets, \
             {}{rtt}, {} sent again, {} lost{remark}",
            self.elapsed_s,
            figures::level(last.connections_mean),
            per_second(last.connections_opened, last),
            per_second(last.requests, last),
            per_second(last.responses, last),
            figures::level(last.in_flight_mean),
            per_second(last.packets, last),
            figures::bit_rate(rate(last.bytes, last) * 8.0),
            figures::share(last.retransmit_share()),
            figures::count(self.totals.capture_drops),
        )
    }
}

/// A count of this second as a rate; the first and the last are shorter than a second.
pub fn rate(count: u64, second: &WatchSecond) -> f64 {
    if second.watched_ns == 0 { 0.0 } else { count as f64 * 1e9 / second.watched_ns as f64 }
}

fn per_second(count: u64, second: &WatchSecond) -> String {
    figures::rate(rate(count, second))
}

/// Round-trip times counted in ten steps a decade, from 1 us to 100 s; what lies outside is in the first or last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RttBuckets(Vec<u64>);

impl RttBuckets {
    /// Number of steps: eight decades.
    pub const STEPS: usize = 80;

    /// Counts what a histogram holds.
    pub fn of(histogram: &Histogram) -> RttBuckets {
        if histogram.is_empty() {
            return RttBuckets::default();
        }
        let mut counts = vec![0; RttBuckets::STEPS];
        for (step, count) in counts.iter_mut().enumerate() {
            let from = if step == 0 { 0 } else { RttBuckets::lower_ns(step) };
            let to = if step + 1 == RttBuckets::STEPS { u64::MAX } else { RttBuckets::lower_ns(step + 1) };
            *count = histogram.count_between(from, to);
        }
        RttBuckets(counts)
    }

    /// Where a step begins, in ns.
    pub fn lower_ns(step: usize) -> u64 {
        (1e3 * 10f64.powf(step as f64 / 10.0)).round() as u64
    }

    /// Counts by step; empty or [`RttBuckets::STEPS`] long.
    #[cfg_attr(not(feature = "tui"), allow(dead_code, reason = "only the screen draws them"))]
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Whether counts from elsewhere have the right number.
    pub fn is_sound(&self) -> bool {
        self.0.is_empty() || self.0.len() == RttBuckets::STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtt_value_is_counted_in_one_bucket() {
        let mut histogram = Histogram::new();
        let values = [0, 1, 999, 1_000, 1_500, 48_000_000, 50_200_000, 99_999_999_999, 3_000_000_000_000];
        values.into_iter().for_each(|value| histogram.record(value));
        let buckets = RttBuckets::of(&histogram);
        assert_eq!(buckets.counts().iter().sum::<u64>(), values.len() as u64);
        assert_eq!((buckets.counts()[0], buckets.counts()[1]), (4, 1));
        assert_eq!((buckets.counts()[46], buckets.counts()[47]), (1, 1), "50.1 ms parts them");
        assert!(RttBuckets::of(&Histogram::new()).counts().is_empty());
    }

    #[test]
    fn history_is_bounded_and_partial_seconds_are_scaled() {
        let mut view = View::default();
        for second in 0..2 * HISTORY as u64 {
            view.second_passed(&WatchSecond {
                second,
                watched_ns: 500_000_000,
                requests: 55,
                ..WatchSecond::default()
            });
        }
        assert_eq!((view.history.len(), view.history[0].second), (HISTORY, HISTORY as u64));
        assert!(view.line().contains("110.0/s requests"), "{}", view.line());
        assert!(View::default().line().contains("0.00/s requests"), "nothing is divided by no time");
    }
}
