//! The figures that a live capture shows: of the last second, since the start, and of the recent past.

use std::collections::VecDeque;

use report::figures;
use schema::{WatchPart, WatchSecond};
use serde::{Deserialize, Serialize};
use stats::Histogram;

/// The figures of one capture, for the screen or a line.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The capturing host, if it is another.
    pub host: Option<String>,
    /// Time since the capture began, in seconds.
    pub elapsed_s: f64,
    /// The last seconds, oldest first; at most [`HISTORY`].
    pub history: VecDeque<Point>,
    /// The last second that ended.
    pub last: WatchSecond,
    /// Totals since the start.
    pub totals: WatchPart,
    /// RTTs of the handshakes since the start.
    pub rtt: RttBuckets,
    /// State of sending, receiving or writing, as a text.
    pub remark: String,
    /// Whether the remark reports a problem.
    pub has_problem: bool,
    /// How to capture more, shown if there is no remark.
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

/// Most seconds of history, which the graph shows.
pub const HISTORY: usize = 600;

impl View {
    /// Adds a second that ended.
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

/// A count of one second as a rate per second; the first and the last second of a capture are partial.
pub fn rate(count: u64, second: &WatchSecond) -> f64 {
    if second.watched_ns == 0 { 0.0 } else { count as f64 * 1e9 / second.watched_ns as f64 }
}

fn per_second(count: u64, second: &WatchSecond) -> String {
    figures::rate(rate(count, second))
}

/// A histogram of round-trip times with ten buckets a decade, from 1 us to 100 s. Values outside are in the first or
/// last bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RttBuckets(Vec<u64>);

impl RttBuckets {
    /// Number of buckets: eight decades.
    pub const COUNT: usize = 80;

    /// The buckets of a histogram's values, in ns.
    pub fn of(histogram: &Histogram) -> RttBuckets {
        if histogram.is_empty() {
            return RttBuckets::default();
        }
        let mut counts = vec![0; RttBuckets::COUNT];
        for (bucket, count) in counts.iter_mut().enumerate() {
            let from = if bucket == 0 { 0 } else { RttBuckets::lower_ns(bucket) };
            let to = if bucket + 1 == RttBuckets::COUNT { u64::MAX } else { RttBuckets::lower_ns(bucket + 1) };
            *count = histogram.count_between(from, to);
        }
        RttBuckets(counts)
    }

    /// Lower bound of a bucket, in ns.
    pub fn lower_ns(bucket: usize) -> u64 {
        (1e3 * 10f64.powf(bucket as f64 / 10.0)).round() as u64
    }

    /// Counts by bucket: none, or [`RttBuckets::COUNT`] of them.
    #[cfg_attr(not(feature = "tui"), allow(dead_code, reason = "only the screen draws them"))]
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Whether received buckets have the right number.
    pub fn has_valid_length(&self) -> bool {
        self.0.is_empty() || self.0.len() == RttBuckets::COUNT
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
        assert_eq!((buckets.counts()[46], buckets.counts()[47]), (1, 1), "a bucket begins at 50.1 ms");
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
        assert!(View::default().line().contains("0.00/s requests"), "a duration of zero gives a rate of zero");
    }
}
