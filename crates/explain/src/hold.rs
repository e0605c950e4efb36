//! What held a packet back at the sender.
//!
//! Of several limits the one that ended last is the one that counted: data behind a full HTTP/2 window *and* a full
//! receive window leaves when the later of the two opens. Windows that the evidence states (HTTP/2, receive window)
//! come first; a departure just after an ACK is the congestion window's or the send buffer's, which only TCP_INFO
//! tells apart; a departure without any of these means that the application had not written the data before.

use std::ops::Range;

use crate::evidence::{Evidence, Protocol, TcpSample};
use crate::http2::Grants;
use crate::steps::{Step, steps};
use crate::timeline::{Label, Overlay, Timeline};
use crate::view::{SEGMENT_BYTES, View, highest};
use schema::share::{Cause, Confidence, Rule};

/// A time in which the sender did not send the next bytes of the response, at the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// Start: when these bytes would have left, had they followed the bytes before.
    pub(crate) from: u64,
    /// When they left.
    pub(crate) until: u64,
    /// First of the bytes.
    pub(crate) byte: u64,
    /// Number of bytes in the packet.
    pub(crate) length: u64,
}

/// The sending end of a response.
pub(crate) struct Sender<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) view: &'a View,
    grants: Option<Grants>,
    samples: Vec<&'a TcpSample>,
    /// For each downward packet: highest number of bytes in flight, since the response's start.
    peak: Vec<u64>,
    /// From when waits for the window are due to a loss: slow start without it would have sent everything by then.
    reduced_from: Option<u64>,
    /// When bytes were first sent again although they had not been lost.
    spurious_at: Option<u64>,
    /// Payload of a full segment, bytes: the most frequent length, or the part of it that is below an MTU of 1500.
    segment: u64,
    /// A packet that leaves this long after an ACK was released by it.
    reaction: u64,
}

impl<'a> Sender<'a> {
    /// The sender of the response of these bytes.
    pub(crate) fn new(evidence: &'a Evidence, view: &'a View, bytes: &Range<u64>) -> Sender<'a> {
        let start = bytes.start;
        let in_flight = view.down.iter().zip(&view.sent_end).map(|(sent, end)| {
            let acked = view.up.acked_at(sent.at).unwrap_or(start).max(start);
            end.saturating_sub(acked)
        });
        let mut samples: Vec<&TcpSample> = evidence.server_tcp.iter().flatten().collect();
        samples.sort_by_key(|sample| sample.at);
        let (lost_at, spurious_at) = if view.departures_seen { sent_again(view) } else { filled_late(view) };
        let peak = highest(in_flight);
        let reduced_from = lost_at.map(|at| {
            let place = view.down.partition_point(|sent| sent.at < at);
            let Some(before) = place.checked_sub(1) else { return at };
            let left = bytes.end.saturating_sub(view.sent_end[before]);
            at.saturating_add(slow_start_rounds(left, peak[before]).saturating_mul(view.rtt()))
        });
        let longest_reaction = if view.quic.is_some() { MAX_QUIC_REACTION_NS } else { MAX_REACTION_NS };
        Sender {
            evidence,
            view,
            grants: evidence.http2.as_ref().map(|windows| Grants::new(windows, view)),
            samples,
            peak,
            reduced_from,
            spurious_at,
            segment: view.segment(),
            reaction: (view.rtt() / 8).clamp(MIN_REACTION_NS, longest_reaction),
        }
    }

    /// Divides a hold: ends of the parts, at the server, with their labels.
    pub(crate) fn pieces(&self, hold: &Hold, step: &Step, cpu: &[Overlay]) -> Vec<(u64, Label)> {
        let mut line = Timeline::new(hold.from, hold.until);
        let stream = self.stream_window_block(hold.from, step);
        let window = self.receive_window_block(hold);
        let blocked = match (stream, window) {
            (Some(stream), Some(window)) => Some(if window.0 > stream.0 { window } else { stream }),
            (one, other) => one.or(other),
        };
        if let Some((until, label)) = blocked {
            // The reaction to the packet that opened the window belongs to the window.
            let until = if until.saturating_add(self.reaction) >= hold.until { hold.until } else { until };
            let delays = self.acknowledgement(until).map_or(Vec::new(), |place| self.delays(place));
            line.push_over(until, label, &delays);
        }
        match self.acknowledgement(hold.until) {
            Some(place) => line.push_over(hold.until, self.window(hold), &self.delays(place)),
            None => line.push_over(hold.until, self.pause(hold), cpu),
        }
        let label = |part: &crate::timeline::Interval| Label::new(part.cause, part.confidence, part.rule);
        line.finish().iter().map(|part| (part.to_ns, label(part))).collect()
    }

    /// Until when a window of HTTP/2 or QUIC held back the bytes of `step`, if one did at the server's time `from`.
    pub(crate) fn stream_window_block(&self, from: u64, step: &Step) -> Option<(u64, Label)> {
        match &self.view.quic {
            Some(quic) => quic.block(from, step.from),
            None => self.grants.as_ref()?.block(from, step.at),
        }
    }

    /// Whether an ACK that reports a hole arrived just before `at`.
    pub(crate) fn is_reported(&self, at: u64) -> bool {
        let packets = &self.view.up.packets[..self.view.up.count_at(at)];
        let recent = packets.iter().rev().take_while(|packet| packet.arrived.saturating_add(self.reaction) >= at);
        // A partial acknowledgement reports the next hole.
        recent.into_iter().any(|packet| packet.reports_hole) || self.acknowledgement(at).is_some()
    }

    /// The latest upward packet, if acknowledgements of new data arrived just before `at`.
    fn acknowledgement(&self, at: u64) -> Option<usize> {
        self.acknowledgement_between(at.saturating_sub(self.reaction), at)
    }

    /// The latest upward packet, if acknowledgements of new data arrived at the server in this time.
    pub(crate) fn acknowledgement_between(&self, from: u64, to: u64) -> Option<usize> {
        let up = &self.view.up;
        let last = up.count_at(to).checked_sub(1)?;
        let before = up.packets.partition_point(|packet| packet.arrived < from);
        let acked = before.checked_sub(1).map_or(0, |last| up.acked[last]);
        let is_recent = last >= before && (up.acked[last] > acked || up.packets[last].reports_hole);
        is_recent.then_some(last)
    }

    /// Until when the advertised window did not admit the held bytes, if it did not at the hold's start.
    pub(crate) fn receive_window_block(&self, hold: &Hold) -> Option<(u64, Label)> {
        let up = &self.view.up;
        let edges = up.edges.as_ref()?;
        let needed = hold.byte.saturating_add(hold.length.min(SEGMENT_BYTES));
        let known = up.count_at(hold.from);
        if edges[known.checked_sub(1)?] >= needed {
            return None;
        }
        let opened = edges[known..].iter().position(|edge| *edge >= needed).map(|place| known + place);
        let until = opened.map_or(hold.until, |place| up.packets[place].arrived).min(hold.until);
        let confidence = if self.view.departures_seen { Confidence::Certain } else { Confidence::Likely };
        Some((until, Label::new(Cause::ReceiveWindow, confidence, Rule::WindowEdge)))
    }

    /// The label of a hold that an ACK ended.
    pub(crate) fn window(&self, hold: &Hold) -> Label {
        let best = if self.view.is_grounded() { Confidence::Certain } else { Confidence::Weak };
        let sampled = self.by_samples(hold);
        if let Some(label) = sampled.filter(|label| label.rule == Rule::SendBufferTime) {
            return label.at_most(best);
        }
        if self.spurious_at.is_some_and(|at| at < hold.until) && self.reduced_from.is_none_or(|at| at >= hold.until) {
            return Label::new(Cause::Reordering, Confidence::Likely, Rule::AckReleasedAfterLoss).at_most(best);
        }
        if self.reduced_from.is_some_and(|from| from < hold.until) {
            return Label::new(Cause::ReducedWindow, Confidence::Likely, Rule::AckReleasedAfterLoss).at_most(best);
        }
        if let Some(label) = sampled {
            return label.at_most(best);
        }
        if self.has_unseen_windows() && self.payload_arrived(hold.until) {
            return Label::unknown(Rule::Ambiguous);
        }
        if self.grows(hold.until) {
            return Label::new(Cause::CongestionWindow, Confidence::Likely, Rule::AckReleasedGrowth).at_most(best);
        }
        if self.view.quic.is_some() && self.may_be_full(hold) {
            return Label::new(Cause::CongestionWindow, Confidence::Weak, Rule::AckReleased);
        }
        Label::unknown(Rule::Ambiguous)
    }

    /// Congestion window or send buffer, by TCP_INFO around the hold.
    fn by_samples(&self, hold: &Hold) -> Option<Label> {
        let after = self.samples.partition_point(|sample| sample.at.as_nanos() < hold.until);
        let last = self.samples[..after].last()?;
        let start = self.samples.partition_point(|sample| sample.at.as_nanos() <= hold.from).saturating_sub(1);
        if let Some(next) = self.samples.get(after) {
            let limited = next.send_buffer_limited_ns.saturating_sub(self.samples[start].send_buffer_limited_ns);
            if limited.saturating_mul(2) >= hold.until.saturating_sub(hold.from) {
                return Some(Label::new(Cause::SendBuffer, Confidence::Certain, Rule::SendBufferTime));
            }
        }
        if let Some(label) = self.by_unsent_bytes(hold, after) {
            return Some(label);
        }
        let acked = self.view.up.acked_at(hold.until.saturating_sub(self.reaction))?;
        let in_flight = hold.byte.saturating_sub(acked);
        let segment = u64::from(last.segment_bytes).max(1);
        let window = u64::from(last.congestion_window).saturating_mul(segment);
        if in_flight.saturating_add(segment) > window {
            let earlier = self.samples[..after].iter().map(|sample| sample.congestion_window).max().unwrap_or(0);
            let shrunk = last.congestion_window < earlier - earlier / 5;
            let reported = self.view.up.packets[..self.view.up.count_at(hold.until)].iter().any(|up| up.reports_hole);
            if shrunk && reported && self.reduced_from.is_none() {
                // The sender took late packets for lost, and they arrived before it sent them again.
                return Some(Label::new(Cause::Reordering, Confidence::Likely, Rule::AckReleasedAfterLoss));
            }
            return Some(Label::new(Cause::CongestionWindow, Confidence::Certain, Rule::AckReleasedFullWindow));
        }
        if last.unsent_bytes.is_some() {
            // The kernel would have counted the send buffer's time.
            return None;
        }
        if self.has_unseen_windows() || self.view.up.edges.is_none() {
            return Some(Label::unknown(Rule::Ambiguous));
        }
        Some(Label::new(Cause::SendBuffer, Confidence::Likely, Rule::WindowsOpen))
    }

    /// Congestion window or send buffer, by whether data waited to be sent in the hold. `after`: the first sample after
    /// it. A receive window that was full is attributed before.
    fn by_unsent_bytes(&self, hold: &Hold, after: usize) -> Option<Label> {
        if self.has_unsent_bytes(hold, after)? {
            return Some(Label::new(Cause::CongestionWindow, Confidence::Certain, Rule::UnsentBytes));
        }
        if self.has_unseen_windows() || self.view.up.edges.is_none() {
            return Some(Label::unknown(Rule::Ambiguous));
        }
        Some(Label::new(Cause::SendBuffer, Confidence::Likely, Rule::WindowsOpen))
    }

    /// Whether the sender had bytes to send in the hold; `None` if no sample shows it.
    fn has_unsent_bytes(&self, hold: &Hold, after: usize) -> Option<bool> {
        let from = self.samples.partition_point(|sample| sample.at.as_nanos() <= hold.from);
        let inside: Vec<u64> = self.samples.get(from..after)?.iter().filter_map(|sample| sample.unsent_bytes).collect();
        if !inside.is_empty() {
            return Some(inside.iter().any(|unsent| *unsent > 0));
        }
        // Of equal samples the ones between may be missing.
        let around = [from.checked_sub(1).and_then(|before| self.samples.get(before)), self.samples.get(after)];
        let [before, next] = around.map(|sample| sample.and_then(|sample| sample.unsent_bytes));
        (before? > 0 && next? > 0).then_some(true)
    }

    /// Whether the bytes in flight exceed every earlier number within a round trip from `at`, as in slow start.
    fn grows(&self, at: u64) -> bool {
        let rtt = self.view.rtt();
        let peak_before = |time: u64| {
            let place = self.view.down.partition_point(|sent| sent.at < time);
            place.checked_sub(1).map_or(0, |last| self.peak[last])
        };
        let is_growth = |before: u64, after: u64| after.saturating_mul(100) >= before.saturating_mul(115);
        let before = peak_before(at);
        if rtt == 0 || before == 0 {
            return false;
        }
        let next = at.saturating_add(rtt).saturating_add(rtt / 8);
        let is_last = self.view.sent_before(next) == self.view.sent_end.last().copied();
        let earlier = peak_before(at.saturating_sub(rtt).saturating_sub(rtt / 8));
        is_growth(before, peak_before(next)) || (is_last && is_growth(earlier, before))
    }

    /// Whether about as much was in flight before the hold's end as ever before: a window that no loss has reduced was
    /// not full with less.
    fn may_be_full(&self, hold: &Hold) -> bool {
        let before = self.view.down.partition_point(|sent| sent.at < hold.until);
        let Some(last) = before.checked_sub(1) else { return false };
        let acked = self.view.up.acked_at(hold.until.saturating_sub(self.reaction)).unwrap_or(0);
        let in_flight = self.view.sent_end[last].saturating_sub(acked);
        in_flight.saturating_mul(4) >= self.peak[last].saturating_mul(3)
    }

    /// The label of a hold that ended without an ACK.
    fn pause(&self, hold: &Hold) -> Label {
        let up = &self.view.up;
        if up.packets.is_empty() || (self.has_unseen_windows() && self.payload_arrived(hold.until)) {
            return Label::unknown(Rule::Ambiguous);
        }
        if up.edges.is_none() && !self.view.departures_seen {
            return Label::unknown(Rule::Ambiguous);
        }
        if let Some(label) = self.pacing(hold) {
            return label;
        }
        let after = self.samples.partition_point(|sample| sample.at.as_nanos() < hold.until);
        if self.has_unsent_bytes(hold, after) == Some(true) {
            return Label::new(Cause::Pacing, Confidence::Likely, Rule::UnsentBytes);
        }
        // QUIC's windows are stated, but its congestion control is not, which holds back nothing without packets in flight.
        let is_idle = || self.view.sent_before(hold.until) <= self.view.up.acked_at(hold.until);
        let is_stated = self.view.quic.is_some() && is_idle();
        let sure = self.evidence.protocol == Some(Protocol::Http1) || self.grants.is_some() || is_stated;
        let confidence = if sure && self.view.departures_seen { Confidence::Certain } else { Confidence::Likely };
        Label::new(Cause::ServerPause, confidence, Rule::NoAckReleased)
    }

    /// The label of a hold by pacing. An application that has written everything so far leaves a packet that is not
    /// full before its pause; a paced sender sends full packets, and never waits until nothing is in flight.
    fn pacing(&self, hold: &Hold) -> Option<Label> {
        let place = self.view.down.partition_point(|sent| sent.at < hold.until).checked_sub(1)?;
        let before = self.view.down[place];
        let length = before.end - before.first;
        let acked = self.view.up.acked_at(hold.until).unwrap_or(0);
        if !self.view.departures_seen || before.end <= acked || hold.until - hold.from > self.view.rtt() {
            return None;
        }
        let sample = self.samples.partition_point(|sample| sample.at.as_nanos() < hold.until).checked_sub(1);
        if let Some(rate) = sample.and_then(|last| self.samples[last].pacing_rate) {
            let interval = length.saturating_mul(1_000_000_000) / rate.max(1);
            let is_paced = hold.until - before.at <= interval.saturating_mul(2).saturating_add(self.reaction);
            return is_paced.then(|| Label::new(Cause::Pacing, Confidence::Certain, Rule::PacingRate));
        }
        let segment = self.segment.max(1);
        let is_full = match before.quic {
            Some(quic) => quic.is_full,
            None => length >= segment && length.is_multiple_of(segment),
        };
        is_full.then(|| Label::new(Cause::Pacing, Confidence::Likely, Rule::FullPackets))
    }

    /// Whether there may be windows of HTTP/2 that no input shows.
    fn has_unseen_windows(&self) -> bool {
        self.grants.is_none() && self.view.quic.is_none() && self.evidence.protocol != Some(Protocol::Http1)
    }

    /// Whether the client sent payload that arrived just before `at`, as a WINDOW_UPDATE does.
    fn payload_arrived(&self, at: u64) -> bool {
        let packets = &self.view.up.packets[..self.view.up.count_at(at)];
        let mut recent = packets.iter().rev().take_while(|packet| packet.arrived.saturating_add(self.reaction) >= at);
        recent.any(|packet| packet.has_payload)
    }

    /// What delayed an upward packet: the receiver's ACK delay, and queues on the way up.
    pub(crate) fn delays(&self, place: usize) -> Vec<Overlay> {
        let (view, packet) = (self.view, self.view.up.packets[place]);
        let mut delays = Vec::new();
        let certain = |cause, rule| Label::new(cause, Confidence::Certain, rule);
        let acks_new = place.checked_sub(1).is_none_or(|before| view.up.acked[before] < packet.ack);
        if view.arrivals_seen && view.up.departures_seen && acks_new {
            let arrived = view.arrivals.partition_point(|arrival| arrival.at <= packet.left);
            if let Some(trigger) = arrived.checked_sub(1).map(|last| view.arrivals[last]) {
                let label = certain(Cause::AckDelay, Rule::AckLate);
                delays.push(Overlay { from: trigger.at, to: packet.left, label });
            }
        }
        if let Some(parts) = packet.parts {
            let queued = packet.left.saturating_add(parts.queue);
            let label = certain(Cause::Queue, Rule::PathRecord);
            delays.push(Overlay { from: packet.left, to: queued, label });
            let label = certain(Cause::SharedQueue, Rule::PathRecord);
            delays.push(Overlay { from: queued, to: queued.saturating_add(parts.shared_queue), label });
        }
        delays
    }
}

/// Shortest and longest time in which a sender reacts to an ACK, nanoseconds: between them an eighth of the round trip.
const MIN_REACTION_NS: u64 = 50_000;
const MAX_REACTION_NS: u64 = 1_000_000;
/// The same of QUIC, where a process and not the kernel reacts.
const MAX_QUIC_REACTION_NS: u64 = 3_000_000;

/// Round trips in which slow start sends `left` more bytes after a flight of `in_flight`.
fn slow_start_rounds(left: u64, in_flight: u64) -> u64 {
    let mut flight = in_flight.max(SEGMENT_BYTES);
    let (mut left, mut rounds) = (left, 0);
    while left > 0 {
        flight = flight.saturating_mul(2);
        left = left.saturating_sub(flight);
        rounds += 1;
    }
    rounds
}

/// As seen by the client alone: when a hole was first filled after about a round trip, as by a retransmission, and
/// when sooner.
fn filled_late(view: &View) -> (Option<u64>, Option<u64>) {
    let (mut lost, mut spurious) = (None, None);
    for step in steps(&view.arrivals, 0, u64::MAX) {
        let Some(overtaken_at) = step.overtaken_at else { continue };
        let at = step.at.saturating_sub(view.down_delay());
        let waited = step.at.saturating_sub(overtaken_at);
        let late = waited >= view.rtt() - view.rtt() / 8 && !view.arrived_twice(step.from);
        let first = if late { &mut lost } else { &mut spurious };
        *first = first.or(Some(at));
    }
    (lost, spurious)
}

/// When downward bytes were first sent again because they were lost, and although they were not.
fn sent_again(view: &View) -> (Option<u64>, Option<u64>) {
    let (mut lost, mut spurious) = (None, None);
    for (place, sent) in view.down.iter().enumerate() {
        let is_repeated = place > 0 && sent.first < view.sent_end[place - 1];
        if !is_repeated {
            continue;
        }
        let before = view.index.holding(sent.first).into_iter().rfind(|other| *other < place);
        let Some(before) = before.map(|other| view.down[other]) else { continue };
        let arrived = match before.path {
            _ if before.quic.is_some_and(|quic| quic.arrived.is_some() || quic.is_lost) => {
                before.quic.is_some_and(|quic| quic.arrived.is_some())
            }
            Some((_, dropped)) => !dropped,
            None if !view.arrivals_seen => false,
            None => view.arrival_index.holding(sent.first).len() >= view.index.holding(sent.first).len(),
        };
        let first = if arrived { &mut spurious } else { &mut lost };
        *first = first.or(Some(sent.at));
        if lost.is_some() && spurious.is_some() {
            break;
        }
    }
    (lost, spurious)
}
