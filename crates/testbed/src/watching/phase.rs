//! The capture's counts of the measured phase.

use units::Timestamp;
use watch::{Counts, Watch};

/// Stores the counts at the start and the end of the phase.
#[inline]
pub(super) fn note_phase(
    watch: &Watch,
    (from, to): (Timestamp, Option<Timestamp>),
    at: Timestamp,
    at_start: &mut Option<Counts>,
    at_end: &mut Option<Counts>,
) {
    if at_start.is_none() && at >= from {
        *at_start = Some(watch.live().counts);
    }
    if at_end.is_none() && to.is_some_and(|to| at >= to) {
        *at_end = Some(watch.live().counts);
    }
}

/// What was counted between two times.
pub(super) fn difference(to: Counts, from: Counts) -> Counts {
    Counts {
        packets: to.packets - from.packets,
        bytes: to.bytes - from.bytes,
        tcp: to.tcp - from.tcp,
        quic: to.quic - from.quic,
        other: to.other - from.other,
        first_fragments: to.first_fragments - from.first_fragments,
        later_fragments: to.later_fragments - from.later_fragments,
        malformed: to.malformed - from.malformed,
        capture_drops: to.capture_drops - from.capture_drops,
        connections: to.connections - from.connections,
        quic_connections: to.quic_connections - from.quic_connections,
        evicted: to.evicted - from.evicted,
    }
}
