//! Results by phase, of the requests that were scheduled in each phase.

use std::time::Duration;

use schema::RequestRecord;
use schema::document::PhasePart;
use serde::{Deserialize, Serialize};
use stats::Histogram;
use units::Timestamp;

/// A phase of the load with its own results. Phases follow each other from the beginning of the measured phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// Name in results.
    pub name: String,
    /// Length; above 0.
    pub lasts: Duration,
    /// Whether the offered rate is constant.
    pub is_steady: bool,
}

/// The results of all phases, 0.8 MB each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ByPhase {
    /// End of each phase, in ascending order.
    ends: Vec<Timestamp>,
    start: Timestamp,
    phases: Vec<Phase>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Phase {
    span: PhaseSpan,
    completed: u64,
    /// Complete responses that ended in this phase, whatever the phase of their requests.
    achieved: u64,
    failed: u64,
    response_time: Histogram,
    service_time: Histogram,
    send_lag: Histogram,
}

impl ByPhase {
    pub(super) fn new(spans: &[PhaseSpan], start: Timestamp) -> Self {
        let phase = |span: &PhaseSpan| Phase {
            span: span.clone(),
            completed: 0,
            achieved: 0,
            failed: 0,
            response_time: Histogram::new(),
            service_time: Histogram::new(),
            send_lag: Histogram::new(),
        };
        ByPhase { ends: ByPhase::ends(spans, start), start, phases: spans.iter().map(phase).collect() }
    }

    fn ends(spans: &[PhaseSpan], start: Timestamp) -> Vec<Timestamp> {
        let mut end = start;
        let ends = spans.iter().map(|span| {
            end += span.lasts;
            end
        });
        ends.collect()
    }

    /// Adds a request that was scheduled in the measured phase.
    pub(super) fn add_scheduled(&mut self, record: &RequestRecord) {
        if let Some(phase) = self.at(record.scheduled_at) {
            match record.failure {
                None => phase.completed += 1,
                Some(_) => phase.failed += 1,
            }
            phase.response_time.record(record.response_time_ns());
            record.service_time_ns().into_iter().for_each(|time| phase.service_time.record(time));
            record.send_lag_ns().into_iter().for_each(|lag| phase.send_lag.record(lag));
        }
    }

    /// Counts a complete response that ended in the measured phase.
    pub(super) fn add_achieved(&mut self, done_at: Timestamp) {
        if let Some(phase) = self.at(done_at) {
            phase.achieved += 1;
        }
    }

    /// Whether these are results of the phases `spans` from `start` on.
    pub(super) fn is_of(&self, spans: &[PhaseSpan], start: Timestamp) -> bool {
        let ends = ByPhase::ends(spans, start);
        self.start == start && self.ends == ends && self.phases.iter().map(|phase| &phase.span).eq(spans)
    }

    pub(super) fn merge(&mut self, other: &ByPhase) {
        assert_eq!((&self.ends, self.start), (&other.ends, other.start), "parts of one load have the same phases");
        for (phase, other) in self.phases.iter_mut().zip(&other.phases) {
            phase.completed += other.completed;
            phase.achieved += other.achieved;
            phase.failed += other.failed;
            phase.response_time.merge(&other.response_time);
            phase.service_time.merge(&other.service_time);
            phase.send_lag.merge(&other.send_lag);
        }
    }

    /// The phases that began before the end of the measured phase; the last one is cut at that end.
    pub(super) fn parts(&self, measured_end: Timestamp) -> Vec<PhasePart> {
        let begins = std::iter::once(&self.start).chain(&self.ends);
        let begun = begins.zip(&self.ends).zip(&self.phases).filter(|&((&begin, _), _)| begin < measured_end);
        begun.map(|((&begin, &end), phase)| phase.part(self.start, begin, end.min(measured_end))).collect()
    }

    fn at(&mut self, at: Timestamp) -> Option<&mut Phase> {
        // A load has few phases, so the search is cheap.
        let place = self.ends.partition_point(|&end| end <= at);
        self.phases.get_mut(place)
    }
}

impl Phase {
    fn part(&self, zero: Timestamp, from: Timestamp, to: Timestamp) -> PhasePart {
        let lasts_s = to.since(from).as_secs_f64();
        let offered = self.completed + self.failed;
        PhasePart {
            name: self.span.name.clone(),
            from_s: from.since(zero).as_secs_f64(),
            to_s: to.since(zero).as_secs_f64(),
            is_steady: self.span.is_steady,
            offered_requests: offered,
            offered_rate_per_s: offered as f64 / lasts_s,
            completed: self.completed,
            achieved_rate_per_s: self.achieved as f64 / lasts_s,
            failed: self.failed,
            response_time_ns: self.response_time.quantiles(),
            service_time_ns: self.service_time.quantiles(),
            send_lag_ns: self.send_lag.quantiles(),
        }
    }
}
