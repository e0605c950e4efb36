//! The time-sequence diagram of a response (Stevens): its bytes over time at both ends, with acknowledgements and
//! windows.

use crate::evidence::Evidence;
use crate::response::Bytes;
use crate::view::View;

/// Points of each curve: nanoseconds from the response's scheduled start, and bytes from its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSequence {
    /// The highest byte that had left the server; estimated without packets of the server's end.
    pub sent: Vec<(u64, u64)>,
    /// Packets whose bytes had been sent before.
    pub sent_again: Vec<(u64, u64)>,
    /// The highest byte that had arrived at the client.
    pub arrived: Vec<(u64, u64)>,
    /// The highest byte whose acknowledgement had arrived at the server.
    pub acknowledged: Vec<(u64, u64)>,
    /// The highest byte that the client's advertised window permitted, as known at the server; empty where its scale is
    /// not known.
    pub window: Vec<(u64, u64)>,
}

/// Most points of a curve; more are thinned evenly.
const POINTS_MAX: usize = 2_000;

/// The diagram of a response; `None` without packets of it.
pub fn time_sequence(evidence: &Evidence) -> Option<TimeSequence> {
    let view = View::new(evidence)?;
    let sent_at = evidence.load.sent_at.or(evidence.load.started_at).map(|at| at.as_nanos());
    let arrived = view.delay.map(|delay| delay.up).zip(sent_at).map(|(up, sent)| sent.saturating_add(up));
    let bytes = Bytes::of(evidence, &view, arrived)?.whole;
    let start = evidence.load.scheduled_at.as_nanos();
    let place = |at: u64, byte: u64| (at.saturating_sub(start), byte.clamp(bytes.start, bytes.end) - bytes.start);
    let mut diagram = TimeSequence::default();
    let mut highest = bytes.start;
    for (number, sent) in view.down.iter().enumerate() {
        if sent.end <= bytes.start || sent.first >= bytes.end {
            continue;
        }
        // Of a packet that left the path in pieces, a lost piece comes after later ones that left with it.
        let is_again = view.index.holding(sent.first).first().is_some_and(|earlier| *earlier < number);
        // Of the client's packets alone, a late one may be the only copy that was seen.
        if is_again || !view.departures_seen && sent.first < highest {
            diagram.sent_again.push(place(sent.at, sent.end));
        } else {
            highest = highest.max(sent.end);
            diagram.sent.push(place(sent.at, highest));
        }
    }
    highest = bytes.start;
    for arrival in view.arrivals.iter().filter(|arrival| arrival.first < bytes.end) {
        if arrival.end > highest {
            highest = arrival.end;
            diagram.arrived.push(place(arrival.at, arrival.end));
        }
    }
    let first = diagram.sent.first()?.0;
    for (number, (packet, acked)) in view.up.packets.iter().zip(&view.up.acked).enumerate() {
        let (at, acked) = place(packet.arrived, *acked);
        if at >= first {
            diagram.acknowledged.push((at, acked));
        }
        if let Some(edges) = &view.up.edges {
            // A window far beyond the response would hide it.
            let edge = edges[number].saturating_sub(bytes.start);
            diagram.window.push((at.max(first), edge.min((bytes.end - bytes.start) / 5 * 6)));
        }
    }
    for curve in [&mut diagram.sent, &mut diagram.arrived, &mut diagram.acknowledged, &mut diagram.window] {
        let step = curve.len().div_ceil(POINTS_MAX).max(1);
        let last = curve.last().copied();
        *curve = curve.iter().copied().step_by(step).collect();
        if curve.last().copied() != last {
            curve.extend(last);
        }
    }
    diagram.sent_again.truncate(POINTS_MAX);
    Some(diagram)
}
