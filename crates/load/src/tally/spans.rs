//! Counters of the measured phase in spans of 100 ms: short enough to detect the end of a warm-up, and growing queues
//! in a trial of a few seconds.

use std::time::Duration;

use schema::RequestRecord;
use serde::{Deserialize, Serialize};
use units::Timestamp;

/// Counters of one span of the measured phase. A request is offered in the span of its scheduled time, and completed or
/// failed in the span of its end. The first spans contain the ends of requests of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// Beginning of the span on the run's clock; its length is [`Span::LENGTH`].
    pub from: Timestamp,
    /// Requests whose scheduled time lies in the span.
    pub offered: u64,
    /// Requests completed in the span.
    pub completed: u64,
    /// Requests failed in the span.
    pub failed: u64,
    /// Mean response time of the completed requests, in nanoseconds; 0 if there were none.
    pub response_mean_ns: f64,
    /// Mean of the sampled number of requests in flight; 0 without a sample (a thousand per second are taken).
    pub in_flight_mean: f64,
    /// Mean of the sampled number of requests scheduled and not started.
    pub backlog_mean: f64,
}

impl Span {
    /// Length of a span.
    pub const LENGTH: Duration = Duration::from_millis(100);

    /// Index of the span of the time `at`, in a phase that began at `start`; `None` before the phase.
    pub(crate) fn index(start: Timestamp, at: Timestamp) -> Option<usize> {
        let since = at.as_nanos().checked_sub(start.as_nanos())?;
        Some((since / Self::LENGTH.as_nanos() as u64) as usize)
    }

    /// Number of complete spans in a phase.
    pub(crate) fn whole((start, end): (Timestamp, Timestamp)) -> usize {
        Self::index(start, end).unwrap_or(0)
    }
}

/// Counts of every span: 40 bytes each, 1.4 MB per hour.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Spans(Vec<Counts>);

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Counts {
    offered: u64,
    completed: u64,
    failed: u64,
    response_sum_ns: u128,
}

impl Spans {
    pub(super) fn add_request(&mut self, record: &RequestRecord, start: Timestamp) {
        if let Some(counts) = self.at(start, record.scheduled_at) {
            counts.offered += 1;
        }
        if let Some(counts) = self.at(start, record.done_at) {
            if record.failure.is_some() {
                counts.failed += 1;
            } else {
                counts.completed += 1;
                counts.response_sum_ns += u128::from(record.response_time_ns());
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Spans) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Counts::default());
        }
        for (counts, other) in self.0.iter_mut().zip(&other.0) {
            counts.offered += other.offered;
            counts.completed += other.completed;
            counts.failed += other.failed;
            counts.response_sum_ns += other.response_sum_ns;
        }
    }

    /// The complete spans of the phase, with the sampled means of in-flight requests and backlog in each.
    pub(super) fn finish(&self, measured: (Timestamp, Timestamp), levels: &[[f64; 2]]) -> Vec<Span> {
        let span = |index: usize| {
            let counts = self.0.get(index).copied().unwrap_or_default();
            let [in_flight_mean, backlog_mean] = levels.get(index).copied().unwrap_or_default();
            Span {
                from: measured.0 + Span::LENGTH * index as u32,
                offered: counts.offered,
                completed: counts.completed,
                failed: counts.failed,
                response_mean_ns: counts.response_sum_ns as f64 / counts.completed.max(1) as f64,
                in_flight_mean,
                backlog_mean,
            }
        };
        (0..Span::whole(measured)).map(span).collect()
    }

    fn at(&mut self, start: Timestamp, at: Timestamp) -> Option<&mut Counts> {
        let index = Span::index(start, at)?;
        if self.0.len() <= index {
            self.0.resize(index + 1, Counts::default());
        }
        Some(&mut self.0[index])
    }
}

#[cfg(test)]
mod tests {
    use schema::FailureCause;

    use super::*;

    const MS: u64 = 1_000_000;

    fn request(scheduled_ms: u64, done_ms: u64, failed: bool) -> RequestRecord {
        let scheduled_at = Timestamp::from_nanos(scheduled_ms * MS);
        RequestRecord {
            sequence: 0,
            client: 0,
            connection: None,
            session: None,
            url: 0,
            stream: None,
            scheduled_at,
            started_at: Some(scheduled_at),
            connected_at: None,
            secured_at: None,
            sent_at: None,
            first_byte_at: None,
            done_at: Timestamp::from_nanos(done_ms * MS),
            status: 200,
            bytes_received: 0,
            head_bytes: 0,
            keep_alive: true,
            bytes_sent: 0,
            attempts: 1,
            early_response: false,
            queued: false,
            failure: failed.then_some(FailureCause::ResponseTimeout),
        }
    }

    #[test]
    fn a_request_is_offered_in_its_scheduled_span_and_completed_in_the_span_of_its_end() {
        let start = Timestamp::from_nanos(1_000 * MS);
        let (mut one, mut other) = (Spans::default(), Spans::default());
        // A request of the warm-up: only its end counts.
        one.add_request(&request(950, 1_050, false), start);
        one.add_request(&request(1_099, 1_100, false), start);
        other.add_request(&request(1_100, 1_199, true), start);
        other.add_request(&request(1_150, 1_299, false), start);
        one.merge(&other);
        // The last 50 ms are not a complete span.
        let spans = one.finish((start, Timestamp::from_nanos(1_350 * MS)), &[[2.0, 0.0], [3.0, 1.0], [4.0, 0.0]]);
        let seen: Vec<_> = spans.iter().map(|span| (span.offered, span.completed, span.failed)).collect();
        assert_eq!(seen, [(1, 1, 0), (2, 1, 1), (0, 1, 0)]);
        assert_eq!(spans[0].response_mean_ns, 100e6);
        assert_eq!(spans[1].from, Timestamp::from_nanos(1_100 * MS));
        assert_eq!((spans[1].in_flight_mean, spans[1].backlog_mean), (3.0, 1.0));
    }

    #[test]
    fn a_phase_shorter_than_a_span_has_no_spans() {
        let spans = Spans::default();
        assert!(spans.finish((Timestamp::ZERO, Timestamp::from_nanos(99 * MS)), &[]).is_empty());
        assert_eq!(spans.finish((Timestamp::ZERO, Timestamp::from_nanos(100 * MS)), &[]).len(), 1);
    }
}
