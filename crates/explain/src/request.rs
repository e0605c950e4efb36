//! The phases before the response: from the scheduled start until the request's last byte has arrived at the server.

use schema::Direction;

use crate::evidence::{CpuWait, Evidence, Protocol};
use crate::timeline::{Label, Overlay, Timeline};
use crate::view::{Parts, View};
use schema::share::{Cause, Confidence, Rule};

/// Divides the time until the request is at the server and returns when that was; `None` if no input shows it.
pub(crate) fn divide(timeline: &mut Timeline, evidence: &Evidence, view: Option<&View>) -> Option<u64> {
    let load = &evidence.load;
    let started = load.started_at?;
    let record = |cause| Label::new(cause, Confidence::Certain, Rule::LoadRecord);
    let wait = if load.waited_for_connection { Cause::ConnectionWait } else { Cause::SendLag };
    timeline.push(started.as_nanos(), record(wait));
    if let Some(resolved) = load.resolved_at {
        timeline.push(resolved.as_nanos(), record(Cause::Dns));
    }
    let overlays = path_overlays(evidence, view);
    let confidence = match view {
        _ if evidence.path.is_some() || evidence.quic.as_ref().is_some_and(|quic| quic.has_path) => Confidence::Certain,
        Some(view) if view.is_grounded() => Confidence::Likely,
        _ => Confidence::Weak,
    };
    let handshake = |cause| Label::new(cause, confidence, Rule::LoadRecord);
    if evidence.protocol == Some(Protocol::Http3) {
        let secured = load.secured_at.max(load.connected_at).filter(|secured| !is_early(evidence, secured.as_nanos()));
        if let Some(secured) = secured {
            timeline.push_over(secured.as_nanos(), handshake(Cause::QuicHandshake), &overlays);
        }
    } else if let Some(connected) = load.connected_at {
        let from = timeline.cursor();
        if let (None, Some(rtt)) = (&evidence.path, evidence.configured_rtt_ns) {
            // More than the round trip has a cause that the load generator's times do not show.
            let expected = from.saturating_add(rtt).saturating_add(rtt / 8).saturating_add(TIMER_TOLERANCE_NS);
            timeline.push_over(connected.as_nanos().min(expected), handshake(Cause::TcpHandshake), &overlays);
            timeline.push_over(connected.as_nanos(), Label::unknown(Rule::Ambiguous), &overlays);
        } else {
            timeline.push_over(connected.as_nanos(), handshake(Cause::TcpHandshake), &overlays);
        }
    }
    if let Some(secured) = load.secured_at.filter(|_| evidence.protocol != Some(Protocol::Http3)) {
        timeline.push_over(secured.as_nanos(), handshake(Cause::TlsHandshake), &overlays);
    }
    let arrived = view.and_then(|view| upload(timeline, evidence, view, &overlays));
    if arrived.is_none()
        && let Some(sent) = load.sent_at
    {
        timeline.push(sent.as_nanos(), Label::new(Cause::RequestUpload, Confidence::Likely, Rule::LoadRecord));
    }
    arrived
}

/// Whether the request left before the handshake was finished (0-RTT), so that it did not wait for it.
fn is_early(evidence: &Evidence, secured: u64) -> bool {
    let Some(quic) = &evidence.quic else { return false };
    let end = quic.request_end.unwrap_or(0);
    let mut last = quic.payload.iter().filter(|packet| packet.first < end && end <= packet.end);
    last.any(|packet| packet.left.saturating_add(TIMER_TOLERANCE_NS) < secured)
}

/// How much later than computed a healthy machine does something, nanoseconds.
const TIMER_TOLERANCE_NS: u64 = 1_000_000;

/// The upload of the request and the transit of its last packet.
fn upload(timeline: &mut Timeline, evidence: &Evidence, view: &View, overlays: &[Overlay]) -> Option<u64> {
    let begin = timeline.cursor();
    let payload = &view.up.payload;
    let last_byte = match evidence.request {
        _ if view.quic.is_some() => view.quic.as_ref()?.request_end?.checked_sub(1)?,
        Some(span) => view.up_numbers.nearest(span.first).saturating_add(u64::from(span.length)).checked_sub(1)?,
        None => {
            // Everything that the client sent until the response began is taken as the request.
            let until = evidence.load.first_byte_at.map_or(u64::MAX, |at| at.as_nanos());
            let request = payload.iter().filter(|packet| packet.left >= begin && packet.left < until);
            request.map(|packet| packet.end).max()?.checked_sub(1)?
        }
    };
    let times = || {
        let holds = move |packet: &&crate::view::RequestPacket| packet.first <= last_byte && last_byte < packet.end;
        payload.iter().filter(holds).map(|packet| packet.left)
    };
    let first_left = times().find(|left| *left >= begin.saturating_sub(TIMER_TOLERANCE_NS))?;
    let packets = &view.up.packets;
    let from = packets.partition_point(|packet| packet.arrived < first_left);
    let arrival = packets[from..].iter().find(|packet| packet.has_payload && packet.end > last_byte);
    let (arrived, parts) = match arrival {
        Some(packet) => (packet.arrived, packet.parts),
        None => (first_left.saturating_add(view.delay?.up), None),
    };
    let last_left = times().rfind(|left| *left < arrived).unwrap_or(first_left);
    // Without packets at the client, the load generator's write is the departure.
    let seen = view.up.departures_seen;
    let written = evidence.load.sent_at.map(|at| at.as_nanos()).filter(|_| !seen);
    let (first_left, last_left) = written.map_or((first_left, last_left), |at| (at, at));
    let confidence = if seen || written.is_some() { Confidence::Likely } else { Confidence::Weak };
    timeline.push_over(first_left, Label::new(Cause::RequestUpload, confidence, Rule::LoadRecord), overlays);
    timeline.push(last_left, Label::new(Cause::RetransmissionTimeout, Confidence::Certain, Rule::SentAgain));
    let base = view.delay.map_or(arrived.saturating_sub(last_left), |delay| delay.up);
    transit(timeline, view, Transit { left: last_left, arrived, base, parts });
    Some(arrived)
}

/// A packet under way.
pub(crate) struct Transit {
    pub(crate) left: u64,
    pub(crate) arrived: u64,
    /// One-way delay without queues.
    pub(crate) base: u64,
    pub(crate) parts: Option<Parts>,
}

/// Divides a packet's time under way: its propagation, and what the path added to it.
pub(crate) fn transit(timeline: &mut Timeline, view: &View, packet: Transit) {
    let Transit { left, arrived, base, parts } = packet;
    match parts {
        Some(parts) => {
            let certain = |cause| Label::new(cause, Confidence::Certain, Rule::PathRecord);
            let mut at = left.saturating_add(parts.propagation);
            timeline.push(at.min(arrived), certain(Cause::Propagation));
            let added = [
                (parts.queue, Cause::Queue),
                (parts.shared_queue, Cause::SharedQueue),
                (parts.serialisation, Cause::BottleneckRate),
                (parts.reordering, Cause::Reordering),
            ];
            for (time, cause) in added {
                at = at.saturating_add(time);
                timeline.push(at.min(arrived), certain(cause));
            }
            timeline.push(arrived, Label::unknown(Rule::Ambiguous));
        }
        None => {
            let confidence = if view.is_grounded() { Confidence::Likely } else { Confidence::Weak };
            let propagated = left.saturating_add(base).min(arrived);
            timeline.push(propagated, Label::new(Cause::Propagation, confidence, Rule::RoundTrip));
            timeline.push(arrived, Label::new(Cause::Queue, confidence, Rule::BothEnds));
        }
    }
}

/// What the path added to the packets of handshakes and request: queues, serialisation, and the recovery of losses.
fn path_overlays(evidence: &Evidence, view: Option<&View>) -> Vec<Overlay> {
    let mut overlays = evidence.quic.as_ref().map_or(Vec::new(), |quic| quic.detours.clone());
    let load = &evidence.load;
    let from = load.scheduled_at;
    let until = load.first_byte_at.unwrap_or(load.done_at);
    let records: Vec<_> = evidence
        .path
        .iter()
        .flatten()
        .filter(|record| record.entered_at >= from && record.entered_at <= until)
        .collect();
    let certain = |cause| Label::new(cause, Confidence::Certain, Rule::PathRecord);
    for record in &records {
        let mut at = record.entered_at.as_nanos();
        let added = [
            (record.queue_ns, Cause::Queue),
            (record.shared_queue_ns, Cause::SharedQueue),
            (record.serialisation_ns, Cause::BottleneckRate),
        ];
        for (time, cause) in added.into_iter().filter(|_| !record.dropped) {
            let to = at.saturating_add(time);
            overlays.push(Overlay { from: at, to, label: certain(cause) });
            at = to;
        }
        if record.dropped && record.length > 0 {
            let again = records.iter().find(|again| {
                again.direction == record.direction
                    && again.sequence == record.sequence
                    && again.entered_at > record.entered_at
            });
            let delay = view.and_then(|view| view.delay);
            let delay = delay.map_or(0, |delay| if record.direction == Direction::Up { delay.up } else { delay.down });
            if let Some(again) = again {
                let (from, to) = (at.saturating_add(delay), again.entered_at.as_nanos().saturating_add(delay));
                overlays.push(Overlay { from, to, label: certain(Cause::RetransmissionTimeout) });
            }
        }
    }
    let syns = view.map(|view| view.up.syns.as_slice()).unwrap_or_default();
    if let [first, .., last] = syns {
        let label = Label::new(Cause::RetransmissionTimeout, Confidence::Certain, Rule::SentAgain);
        overlays.push(Overlay { from: *first, to: *last, label });
    }
    overlays
}

/// The times in which the server could not run.
pub(crate) fn cpu_overlays(evidence: &Evidence) -> Vec<Overlay> {
    let intervals = evidence.server_cpu.iter().flatten();
    intervals
        .map(|interval| {
            let cause = match interval.why {
                CpuWait::Throttled => Cause::CpuThrottling,
                CpuWait::RunQueue => Cause::RunQueue,
            };
            let label = Label::new(cause, Confidence::Certain, Rule::ServerCpu);
            Overlay { from: interval.from.as_nanos(), to: interval.to.as_nanos(), label }
        })
        .collect()
}
