//! The response: from the request's arrival at the server to the arrival of the response's last byte.
//!
//! The time between two arrivals that made more of the response readable is followed backwards along the packet that
//! ended it: its serialisation, its wait in queues, and before these the time in which the sender held it back. All of
//! a packet's times at the sender are shifted by the propagation delay, so that they meet the arrivals' times; a queue
//! of the response's own packets then falls before the earlier arrival, where it counts as the bottleneck's rate.

use std::ops::Range;

use crate::evidence::Evidence;
use crate::fates::timing_error;
use crate::hold::{Hold, Sender};
use crate::quic::{End, QuicResponse};
use crate::request::{Transit, cpu_overlays, transit};
use crate::spacing::Spacing;
use crate::steps::{Step, steps};
use crate::timeline::{Label, Overlay, Timeline};
use crate::view::{Sent, View};
use schema::share::{Cause, Confidence, Rule};

/// The bytes of the response on the connection's downward stream.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    /// From the response's first byte to its last, other streams' bytes included.
    pub(crate) whole: Range<u64>,
    /// Its own bytes, in order; empty if all are.
    own: Vec<Range<u64>>,
}

impl Bytes {
    /// By the evidence's spans; without them, what the server sent from `request_arrived` on.
    pub(crate) fn of(evidence: &Evidence, view: &View, request_arrived: Option<u64>) -> Option<Bytes> {
        if let Some(quic) = &view.quic {
            let own: Vec<Range<u64>> =
                quic.own.iter().map(|piece| piece.first..piece.first.saturating_add(piece.length)).collect();
            return Some(Bytes { whole: own.first()?.start..own.last()?.end, own });
        }
        if let Some(spans) = &evidence.response {
            let own: Vec<Range<u64>> = spans
                .iter()
                .map(|span| {
                    let first = view.down_numbers.nearest(span.first);
                    first..first.saturating_add(u64::from(span.length))
                })
                .collect();
            let whole = own.iter().map(|span| span.start).min()?..own.iter().map(|span| span.end).max()?;
            return Some(Bytes { whole, own });
        }
        let done = evidence.load.done_at.as_nanos();
        // The request's arrival may be estimated too late by the part of a queue that its way had.
        let start = match (request_arrived, view.departures_seen) {
            (Some(arrived), true) => view.down.iter().filter(|sent| sent.at >= arrived).map(|sent| sent.first).min(),
            _ => {
                let from = evidence.load.sent_at.or(evidence.load.started_at)?.as_nanos();
                view.arrivals.iter().filter(|arrival| arrival.at > from).map(|arrival| arrival.first).min()
            }
        }?;
        let arrived = view.arrivals.iter().filter(|arrival| arrival.at <= done);
        let end = arrived.map(|arrival| arrival.end).max()?;
        (start < end).then(|| Bytes { whole: start..end, own: Vec::new() })
    }

    /// Whether none of the bytes belong to the response.
    fn is_foreign(&self, bytes: Range<u64>) -> bool {
        let next = self.own.partition_point(|own| own.end <= bytes.start);
        !self.own.is_empty() && self.own.get(next).is_none_or(|own| own.start >= bytes.end)
    }
}

/// Divides the time from the request's arrival to the arrival of the response's last byte.
pub(crate) fn divide(timeline: &mut Timeline, evidence: &Evidence, view: &View, request_arrived: Option<u64>) {
    let Some(bytes) = Bytes::of(evidence, view, request_arrived) else { return };
    let mut steps = steps(&view.arrivals, bytes.whole.start, bytes.whole.end);
    if view.quic.is_some() {
        only_of_stream(&mut steps, &bytes);
    }
    let response = Response {
        view,
        sender: Sender::new(evidence, view, &bytes.whole),
        spacing: Spacing::of(&steps),
        cpu: cpu_overlays(evidence),
        bytes,
    };
    let mut before = view.down_delay();
    let mut held = None;
    for (place, step) in steps.iter().enumerate() {
        if place == 0 {
            response.first(timeline, step, request_arrived.is_some());
        } else if response.bytes.is_foreign(step.from..step.to) {
            response.foreign(timeline, step);
        } else if view.departures_seen {
            response.later(timeline, step, before, &mut held);
        } else {
            response.sender.seen_by_client(timeline, step, &response.spacing);
        }
        before = response.transmission(step).map_or(before, |sent| response.propagation(&sent.delivered));
    }
    if let Some(quic) = &view.quic {
        response.end_of_stream(timeline, quic);
        return;
    }
    // Bytes of an earlier response that arrive after the last of this one held it back.
    let last = steps.last().map_or(0, |step| step.at);
    let mut before =
        view.arrivals.iter().filter(|arrival| arrival.at > last && arrival.first < response.bytes.whole.start);
    if let Some(blocker) = before.next_back().filter(|_| !response.bytes.own.is_empty()) {
        timeline.push(blocker.at, Label::new(Cause::HeadOfLine, Confidence::Likely, Rule::OtherStream));
    }
}

/// Removes other streams' bytes that do not hold back the stream of QUIC: those that arrive after it, and those that
/// fill a hole of another stream.
fn only_of_stream(steps: &mut Vec<Step>, bytes: &Bytes) {
    let last = steps.iter().rfind(|step| !bytes.is_foreign(step.from..step.to)).map_or(0, |step| step.at);
    steps.retain(|step| !bytes.is_foreign(step.from..step.to) || step.at <= last && step.overtaken_at.is_none());
}

struct Response<'a> {
    view: &'a View,
    sender: Sender<'a>,
    spacing: Spacing,
    cpu: Vec<Overlay>,
    bytes: Bytes,
}

/// The transmission that delivered a byte, and the first one if that was another: lost, or overtaken by its copy.
struct Transmission {
    delivered: Sent,
    earlier: Option<Sent>,
}

impl Response<'_> {
    /// Server processing, and the transit of the first packet.
    fn first(&self, timeline: &mut Timeline, step: &Step, request_seen: bool) {
        let Some(sent) = self.transmission(step) else { return };
        let first = sent.earlier.unwrap_or(sent.delivered);
        let foreign_sent = self.view.down.iter().any(|other| other.at > timeline.cursor() && other.at < first.at);
        let confidence = match (request_seen && self.view.departures_seen, foreign_sent) {
            (true, false) => Confidence::Certain,
            (true, true) => Confidence::Likely,
            _ => Confidence::Weak,
        };
        let rule = if self.view.departures_seen { Rule::ServerPackets } else { Rule::ClientPackets };
        let label = Label::new(Cause::ServerProcessing, confidence, rule);
        timeline.push_over(first.at, label, &self.cpu);
        if sent.earlier.is_some() {
            let arrival = first.at.saturating_add(self.view.down_delay());
            self.transit(timeline, &first, arrival);
            self.recovery(timeline, &sent, step);
        } else {
            self.transit(timeline, &sent.delivered, step.at);
        }
    }

    /// Other streams' bytes that were delivered between the response's own.
    fn foreign(&self, timeline: &mut Timeline, step: &Step) {
        let shift = self.view.down_delay();
        let from = timeline.cursor().saturating_sub(shift);
        if self.view.quic.is_some() && self.view.departures_seen && self.idle_before(timeline, step, shift) {
            return;
        }
        if let Some((until, label)) = self.sender.stream_window_block(from, step) {
            timeline.push(until.saturating_add(shift).min(step.at), label);
        }
        timeline.push(step.at, Label::new(Cause::HeadOfLine, Confidence::Certain, Rule::OtherStream));
    }

    /// Of other streams' bytes that the server's application wrote late: they did not take the line meanwhile. False of
    /// bytes that left while the connection was busy.
    fn idle_before(&self, timeline: &mut Timeline, step: &Step, shift: u64) -> bool {
        let Some(sent) = self.transmission(step).filter(|sent| sent.earlier.is_none()) else { return false };
        let hold = Hold {
            from: timeline.cursor().saturating_sub(shift),
            until: sent.delivered.at,
            byte: step.from,
            length: sent.delivered.end.saturating_sub(step.from),
        };
        if hold.from >= hold.until {
            return false;
        }
        let pieces = self.sender.pieces(&hold, step, &self.cpu);
        if !pieces.iter().any(|(_, label)| matches!(label.cause, Cause::ServerPause | Cause::Unknown)) {
            return false;
        }
        for (until, label) in pieces {
            // The response may have waited for something else than the other stream did.
            timeline.push(until.saturating_add(shift).min(step.at), label.at_most(Confidence::Likely));
        }
        timeline.push(step.at, Label::new(Cause::HeadOfLine, Confidence::Likely, Rule::OtherStream));
        true
    }

    /// The end of the stream, if it arrived after the last byte: by itself, later or after a loss.
    fn end_of_stream(&self, timeline: &mut Timeline, quic: &QuicResponse) {
        let shift = self.view.down_delay();
        let arrival = |end: &End| match self.view.arrivals_seen {
            true => end.arrived,
            false => (!end.is_lost).then(|| end.left.saturating_add(shift)),
        };
        let Some((at, end)) = quic.ends.iter().filter_map(|end| Some((arrival(end)?, end))).min_by_key(|(at, _)| *at)
        else {
            return;
        };
        let confidence = if self.view.departures_seen { Confidence::Likely } else { Confidence::Weak };
        let pause = Label::new(Cause::ServerPause, confidence, Rule::NoAckReleased);
        if let Some(lost) = quic.ends.iter().find(|other| other.is_lost && other.left < end.left) {
            timeline.push(lost.left.saturating_add(shift).min(at), pause);
            if let Some(cause) = quic.recovery_of_end(lost, end.left, self.view.rtt()) {
                timeline.push(at, Label::new(cause, Confidence::Likely, Rule::SentAgain));
            }
        }
        timeline.push(end.left.saturating_add(shift).min(at), pause);
        timeline.push(at, Label::unknown(Rule::Ambiguous));
    }

    /// A later part: what the sender waited for, and what the path added.
    /// `before` is the delay without queues of the previous part's packet. A delay that both packets have does not
    /// explain the time between their arrivals. `held`: the label of the latest hold.
    ///
    /// The packets of a burst arrive a little apart, since the path handles one after the other, and the next burst's
    /// first one arrives as early as that of the burst before. So what a packet is slower than the one before, within the
    /// path's timing error, belongs to the wait between the bursts, which would otherwise seem shorter by it.
    fn later(&self, timeline: &mut Timeline, step: &Step, before: u64, held: &mut Option<Label>) {
        let Some(sent) = self.transmission(step) else {
            timeline.push(step.at, Label::unknown(Rule::NoInput));
            return;
        };
        let first = sent.earlier.unwrap_or(sent.delivered);
        let propagation = self.propagation(&sent.delivered);
        let shift = before.min(propagation);
        let hold = Hold {
            from: timeline.cursor().saturating_sub(shift),
            until: first.at,
            byte: step.from,
            length: first.end.saturating_sub(step.from),
        };
        if hold.from < hold.until {
            for (until, label) in self.sender.pieces(&hold, step, &self.cpu) {
                timeline.push(until.saturating_add(shift).min(step.at), label);
                *held = Some(label);
            }
        }
        if let Some(label) = *held
            && sent.earlier.is_none()
            && propagation.saturating_sub(shift) <= timing_error(shift)
        {
            timeline.push(first.at.saturating_add(propagation).min(step.at), label);
        }
        if sent.earlier.is_some() {
            self.recovery(timeline, &sent, step);
        } else {
            self.added(timeline, &sent.delivered, step);
        }
    }

    /// From when the lost or late packet would have arrived until its bytes did.
    fn recovery(&self, timeline: &mut Timeline, sent: &Transmission, step: &Step) {
        let Some(lost) = sent.earlier else { return };
        let serialisation = sent.delivered.path.map_or(0, |(parts, _)| parts.serialisation);
        let expected = lost.at.saturating_add(self.view.down_delay()).saturating_add(serialisation);
        let rule = if sent.delivered.path.is_some() { Rule::PathRecord } else { Rule::BothEnds };
        timeline.push(expected.min(step.at), Label::new(Cause::BottleneckRate, Confidence::Likely, rule));
        let again = sent.delivered.at;
        let by_number = self.view.quic.as_ref().and_then(|quic| quic.recovery(&lost, again, self.view.rtt()));
        let has_arrived = lost.quic.is_some_and(|quic| quic.arrived.is_some());
        let cause = if has_arrived || lost.path.is_some_and(|(_, dropped)| !dropped) {
            Cause::Reordering
        } else if let Some(cause) = by_number {
            cause
        } else if self.sender.is_reported(again) {
            Cause::FastRetransmit
        } else if self.view.sent_before(again).is_none_or(|end| end <= lost.end) {
            Cause::TailLoss
        } else {
            Cause::RetransmissionTimeout
        };
        // A capture may end before a late packet arrives, and without arrivals a copy may have been needless.
        let is_known = lost.path.is_some() || has_arrived || lost.quic.is_some_and(|quic| quic.is_lost);
        let confidence = match (is_known, self.view.arrivals_seen, cause) {
            (true, ..) => Confidence::Certain,
            (false, false, Cause::FastRetransmit) => Confidence::Weak,
            _ => Confidence::Likely,
        };
        timeline.push(step.at, Label::new(cause, confidence, Rule::SentAgain));
    }

    /// What the path added to a packet that was not lost.
    fn added(&self, timeline: &mut Timeline, sent: &Sent, step: &Step) {
        if sent.path.is_some() {
            self.transit(timeline, sent, step.at);
            return;
        }
        let confidence = if self.view.is_grounded() { Confidence::Likely } else { Confidence::Weak };
        let expected = sent.at.saturating_add(self.view.down_delay());
        let serialisation = self.spacing.serialisation(step.to - step.from);
        if let Some(overtaken_at) = step.overtaken_at
            && self.view.arrivals_seen
        {
            timeline
                .push(overtaken_at.max(expected).min(step.at), Label::new(Cause::Queue, confidence, Rule::BothEnds));
            timeline.push(step.at, Label::new(Cause::Reordering, Confidence::Likely, Rule::FilledEarly));
            return;
        }
        timeline.push(expected.min(step.at), Label::new(Cause::Propagation, confidence, Rule::BothEnds));
        let until = step.at.saturating_sub(serialisation);
        timeline.push(until, Label::new(Cause::Queue, confidence, Rule::BothEnds));
        timeline.push(step.at, Label::new(Cause::BottleneckRate, Confidence::Likely, Rule::Spacing));
    }

    /// A packet's delay without queues.
    fn propagation(&self, sent: &Sent) -> u64 {
        sent.path.map_or(self.view.down_delay(), |(parts, _)| parts.propagation)
    }

    fn transit(&self, timeline: &mut Timeline, sent: &Sent, arrived: u64) {
        let parts = sent.path.filter(|(_, dropped)| !dropped).map(|(parts, _)| parts);
        let base = self.view.down_delay();
        transit(timeline, self.view, Transit { left: sent.at, arrived, base, parts });
    }

    /// The transmission of the step's first byte that arrived at the step's time.
    fn transmission(&self, step: &Step) -> Option<Transmission> {
        let places = self.view.index.holding(step.from);
        let all: Vec<Sent> =
            places.iter().map(|place| self.view.down[*place]).filter(|sent| sent.at <= step.at).collect();
        let first = *all.first()?;
        let recorded = all.iter().filter_map(|sent| match (sent.quic.and_then(|quic| quic.arrived), sent.path) {
            (Some(arrived), _) => Some((arrived.abs_diff(step.at), *sent)),
            (None, Some((parts, false))) => Some((sent.at.saturating_add(parts.total()).abs_diff(step.at), *sent)),
            _ => None,
        });
        if let Some((_, delivered)) = recorded.min_by_key(|(difference, _)| *difference) {
            return Some(Transmission { delivered, earlier: (first.at < delivered.at).then_some(first) });
        }
        // Without a record of fates: as many of the first transmissions were lost as there are more departures than
        // arrivals.
        let departures = places.len();
        let arrivals = if self.view.arrivals_seen { self.view.arrival_index.holding(step.from).len() } else { 1 };
        let number = departures.saturating_sub(arrivals.max(1)).min(all.len() - 1);
        let delivered = all[number];
        Some(Transmission { delivered, earlier: (first.at < delivered.at).then_some(first) })
    }
}
