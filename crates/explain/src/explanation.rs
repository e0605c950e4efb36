//! The explanation of one response.

use crate::evidence::Evidence;
use crate::facts::Facts;
use crate::timeline::{Interval, Label, Timeline};
use crate::view::View;
use crate::{request, response};
use schema::share::{Cause, Confidence, Limit, Rule};

/// A response's time, from its scheduled start to its last byte, divided among causes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The parts in order of time, without gap or overlap.
    pub intervals: Vec<Interval>,
    /// Figures about the response that a remedy needs.
    pub facts: Facts,
}

/// Time of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// The cause.
    pub cause: Cause,
    /// Nanoseconds.
    pub time_ns: u64,
    /// The confidence that at least half of this time has.
    pub confidence: Confidence,
    /// The rule that attributed most of this time.
    pub rule: Rule,
}

/// A limit with its part of a response's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dominant {
    /// The limit.
    pub limit: Limit,
    /// Its time, nanoseconds.
    pub time_ns: u64,
    /// The confidence that at least half of this time has.
    pub confidence: Confidence,
}

/// Divides the time of the response that `evidence` describes.
///
/// The parts of the result sum to the time from scheduled start to last byte exactly, whatever the evidence. An end
/// before the start gives no parts.
pub fn explain(evidence: &Evidence) -> Explanation {
    let load = &evidence.load;
    let mut timeline = Timeline::new(load.scheduled_at.as_nanos(), load.done_at.as_nanos());
    let view = View::new(evidence);
    let request_arrived = request::divide(&mut timeline, evidence, view.as_ref());
    match &view {
        Some(view) if load.started_at.is_some() => {
            response::divide(&mut timeline, evidence, view, request_arrived);
            if view.arrivals_seen && timeline.cursor() > load.scheduled_at.as_nanos() {
                let label = Label::new(Cause::ReceiveLag, Confidence::Likely, Rule::LoadRecord);
                timeline.push(load.done_at.as_nanos(), label);
            }
        }
        None if load.started_at.is_some() => without_packets(&mut timeline, evidence),
        _ => {}
    }
    let facts = Facts::of(evidence, view.as_ref(), request_arrived);
    let mut intervals = timeline.finish();
    if evidence.capture_lost_packets {
        intervals.iter_mut().for_each(lower_confidence);
    }
    Explanation { intervals, facts }
}

/// What rests on packets is one level less sure if some were not captured.
fn lower_confidence(part: &mut Interval) {
    if !matches!(part.rule, Rule::LoadRecord | Rule::ServerCpu | Rule::NoInput) {
        part.confidence = match part.confidence {
            Confidence::Certain => Confidence::Likely,
            Confidence::Likely | Confidence::Weak => Confidence::Weak,
        };
    }
}

/// By the load generator's times alone: a round trip of the wait for the first byte is distance.
fn without_packets(timeline: &mut Timeline, evidence: &Evidence) {
    let load = &evidence.load;
    let from = load.resolved_at.or(load.started_at);
    let connect = load.connected_at.zip(from).map(|(connected, from)| connected.nanos_since(from).unsigned_abs());
    let (rtt, confidence) = match (evidence.configured_rtt_ns, connect) {
        (Some(rtt), _) => (rtt, Confidence::Likely),
        (None, Some(rtt)) => (rtt, Confidence::Weak),
        (None, None) => return,
    };
    let Some(first_byte) = load.first_byte_at else { return };
    let until = timeline.cursor().saturating_add(rtt).min(first_byte.as_nanos());
    timeline.push(until, Label::new(Cause::Propagation, confidence, Rule::RoundTrip));
}

impl Explanation {
    /// Time from scheduled start to last byte, nanoseconds: the sum of the parts.
    pub fn response_time_ns(&self) -> u64 {
        self.intervals.iter().map(|part| part.to_ns - part.from_ns).sum()
    }

    /// The time of each cause that has any, the longest first.
    pub fn shares(&self) -> Vec<Share> {
        let of = |cause| {
            let parts: Vec<&Interval> = self.intervals.iter().filter(|part| part.cause == cause).collect();
            let (time_ns, confidence) = agreed(&parts)?;
            let rule = parts.iter().max_by_key(|part| part.to_ns - part.from_ns)?.rule;
            Some(Share { cause, time_ns, confidence, rule })
        };
        let mut shares: Vec<Share> = Cause::ALL.into_iter().filter_map(of).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.time_ns));
        shares
    }

    /// Time of a cause, nanoseconds.
    pub fn time_of(&self, cause: Cause) -> u64 {
        self.intervals.iter().filter(|part| part.cause == cause).map(|part| part.to_ns - part.from_ns).sum()
    }

    /// The limit with the longest time; `None` of a response without any time.
    pub fn dominant(&self) -> Option<Dominant> {
        let limits: std::collections::BTreeSet<Limit> = self.intervals.iter().map(|part| part.cause.limit()).collect();
        let of = |limit| {
            let parts: Vec<&Interval> = self.intervals.iter().filter(|part| part.cause.limit() == limit).collect();
            let (time_ns, confidence) = agreed(&parts)?;
            Some(Dominant { limit, time_ns, confidence })
        };
        limits.into_iter().filter_map(of).max_by_key(|dominant| dominant.time_ns)
    }
}

/// The time of some parts, and the confidence that at least half of it has.
fn agreed(parts: &[&Interval]) -> Option<(u64, Confidence)> {
    let time_with = |least: Confidence| -> u64 {
        parts.iter().filter(|part| part.confidence >= least).map(|part| part.to_ns - part.from_ns).sum()
    };
    let time = time_with(Confidence::Weak);
    let best =
        [Confidence::Certain, Confidence::Likely].into_iter().find(|level| time_with(*level) >= time.div_ceil(2));
    (time > 0).then_some((time, best.unwrap_or(Confidence::Weak)))
}
