//! The handshake's detours: lost packets, and the limit of what a server may send before the client's address is proven.

use schema::{Direction, QuicFrame, QuicPacketKind};

use super::connection::Merged;
use crate::timeline::{Label, Overlay};
use crate::view::OneWay;
use schema::share::{Cause, Confidence, Rule};

/// A server may send three times what it received before the client's address is proven (RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// What a server may leave unused because no datagram of full size fits (RFC 9000, section 14.1).
const DATAGRAM_BYTES: u64 = 1_200;
/// A server that may send again does so within this time, nanoseconds: it computes nothing more. At one end alone the
/// other's times are right to about this.
const REACTION_NS: u64 = 5_000_000;
/// Packets of a handshake that are looked at; a handshake has some ten.
const PACKETS_MAX: usize = 256;

/// The detours as times at the client.
pub(super) fn detours(merged: [&[Merged<'_>]; 2], delay: OneWay) -> Vec<Overlay> {
    let mut overlays = Vec::new();
    for (direction, own) in Direction::BOTH.into_iter().zip(merged) {
        lost(direction, own, delay, &mut overlays);
    }
    overlays.extend(amplification_limit(merged, delay));
    for merged in merged.into_iter().flat_map(|own| own.iter().filter(is_of_handshake).take(PACKETS_MAX)) {
        let (Some(mut at), Some(parts)) = (merged.left, merged.parts) else { continue };
        let added = [
            (parts.queue, Cause::Queue),
            (parts.shared_queue, Cause::SharedQueue),
            (parts.serialisation, Cause::BottleneckRate),
        ];
        for (time, cause) in added.into_iter().filter(|(time, _)| *time > 0) {
            let label = Label::new(cause, Confidence::Certain, Rule::PathRecord);
            overlays.push(Overlay { from: at, to: at.saturating_add(time), label });
            at = at.saturating_add(time);
        }
    }
    overlays
}

fn is_of_handshake(merged: &&Merged<'_>) -> bool {
    matches!(merged.packet.kind, QuicPacketKind::Initial | QuicPacketKind::Handshake)
}

fn crypto<'a>(merged: &'a Merged<'_>) -> impl Iterator<Item = (u64, u64)> + 'a {
    merged.packet.frames.iter().filter_map(|frame| match frame {
        QuicFrame::Crypto { offset, length } => Some((*offset, offset.saturating_add(u64::from(*length)))),
        _ => None,
    })
}

/// Messages that were sent again because their packet was lost: from when it would have arrived until the copy would.
fn lost(direction: Direction, own: &[Merged<'_>], delay: OneWay, overlays: &mut Vec<Overlay>) {
    let way = if direction == Direction::Up { delay.up } else { delay.down };
    let all: Vec<&Merged<'_>> = own.iter().filter(is_of_handshake).take(PACKETS_MAX).collect();
    for (place, packet) in all.iter().enumerate().filter(|(_, packet)| packet.is_lost) {
        let Some(left) = packet.left else { continue };
        let again = all[place + 1..].iter().find(|other| {
            other.packet.kind == packet.packet.kind
                && crypto(packet).any(|(from, to)| crypto(other).any(|(first, end)| first < to && from < end))
        });
        let Some(again) = again.and_then(|again| again.left) else { continue };
        let label = Label::new(Cause::RetransmissionTimeout, Confidence::Certain, Rule::SentAgain);
        overlays.push(Overlay { from: left.saturating_add(way), to: again.saturating_add(way), label });
    }
}

/// The wait of a server that had sent as much as it may, until the client's next packet arrived.
fn amplification_limit([up, down]: [&[Merged<'_>]; 2], delay: OneWay) -> Option<Overlay> {
    if down.iter().any(|merged| merged.packet.kind == QuicPacketKind::Retry) {
        return None;
    }
    // Times at the server.
    let mut received: Vec<(u64, u64, bool)> = up
        .iter()
        .filter(is_of_handshake)
        .take(PACKETS_MAX)
        .filter_map(|merged| {
            let at =
                merged.arrived.or(merged.left.filter(|_| !merged.is_lost).map(|left| left.saturating_add(delay.up)))?;
            Some((at, u64::from(merged.packet.length), merged.packet.kind == QuicPacketKind::Handshake))
        })
        .collect();
    received.sort_unstable();
    let mut sent: Vec<(u64, u64, bool)> = down
        .iter()
        .filter(is_of_handshake)
        .take(PACKETS_MAX)
        .filter_map(|merged| {
            let at = merged.left.or(merged.arrived.map(|at| at.saturating_sub(delay.down)))?;
            Some((at, u64::from(merged.packet.length), crypto(merged).next().is_some()))
        })
        .collect();
    sent.sort_unstable();
    let (first, _, _) = *received.first()?;
    for pair in sent.windows(2) {
        let ((before, ..), (next, _, has_crypto)) = (pair[0], pair[1]);
        let known = || received.iter().filter(|(at, ..)| *at <= before);
        let released = received.iter().rfind(|(at, ..)| *at > before && *at <= next.saturating_add(REACTION_NS));
        let Some((released, ..)) = released else { continue };
        let bytes: u64 = sent.iter().filter(|(at, ..)| *at <= before).map(|(_, bytes, _)| bytes).sum();
        let admitted = known().map(|(_, bytes, _)| bytes).sum::<u64>().saturating_mul(AMPLIFICATION);
        let is_validated = known().any(|(_, _, is_handshake)| *is_handshake);
        let is_full = bytes.saturating_add(DATAGRAM_BYTES) > admitted;
        if has_crypto && is_full && !is_validated && before >= first && next.saturating_sub(*released) <= REACTION_NS {
            let label = Label::new(Cause::AmplificationLimit, Confidence::Likely, Rule::AmplificationFull);
            let shift = delay.down;
            return Some(Overlay { from: before.saturating_add(shift), to: next.saturating_add(shift), label });
        }
    }
    None
}
