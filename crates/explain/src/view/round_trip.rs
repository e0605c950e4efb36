//! The path's delay without queues, from the most trusted input that has it.

use std::borrow::Borrow;
use std::collections::HashMap;

use schema::Direction;
use wire::tcp::flags;

use crate::evidence::{Evidence, Packet, PathRecord};

/// One-way delays without queues, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OneWay {
    /// Client to server.
    pub(crate) up: u64,
    /// Server to client.
    pub(crate) down: u64,
    /// Whether it is the path's alone: the path's record or configuration states it, or packets were equally fast in
    /// both directions. A delay measured at one end includes a queue that is never empty.
    pub(crate) grounded: bool,
}

impl OneWay {
    /// In order of trust: the path's record, the configured round-trip time (with both ends' packets split as they are
    /// fastest), both ends' packets, the handshake, TCP_INFO, the load generator's connect time.
    pub(crate) fn of(
        evidence: &Evidence,
        client: &[&Packet],
        server: &[&Packet],
        records: &[&PathRecord],
    ) -> Option<OneWay> {
        let fastest = |direction| {
            let records = records.iter().filter(|record| record.direction == direction && !record.dropped);
            records.map(|record| record.propagation_ns).min()
        };
        if let (Some(up), Some(down)) = (fastest(Direction::Up), fastest(Direction::Down)) {
            return Some(OneWay { up, down, grounded: true });
        }
        let measured = both_ends(client, server);
        if evidence.configured_rtt_ns.is_some() || measured.is_some() {
            return OneWay::stated(evidence.configured_rtt_ns, measured);
        }
        let rtt = handshake(client)
            .or_else(|| handshake(server))
            .or_else(|| kernel(evidence))
            .or_else(|| connect(evidence))?;
        Some(OneWay { up: rtt / 2, down: rtt - rtt / 2, grounded: false })
    }
}

impl OneWay {
    /// By the configured round-trip time, and the fastest packets each way (up, down), whichever there are.
    pub(crate) fn stated(configured_rtt_ns: Option<u64>, measured: Option<(u64, u64)>) -> Option<OneWay> {
        if let Some(rtt) = configured_rtt_ns {
            let (up, down) = measured.unwrap_or((rtt / 2, rtt / 2));
            let up = if up.saturating_add(down) > rtt { up.min(rtt / 2) } else { up };
            return Some(OneWay { up, down: rtt.saturating_sub(up), grounded: true });
        }
        let (up, down) = measured?;
        // A queue that never empties is most often in one direction only.
        let grounded = up.max(down) <= (up.min(down) / 4).saturating_mul(5).saturating_add(ASYMMETRY_TOLERANCE_NS);
        Some(OneWay { up, down, grounded })
    }
}

/// Difference of one-way delays that means nothing, nanoseconds.
const ASYMMETRY_TOLERANCE_NS: u64 = 2_000_000;

/// The fastest packet each way, by packets that both ends saw exactly once.
fn both_ends(client: &[&Packet], server: &[&Packet]) -> Option<(u64, u64)> {
    let fastest = |direction, senders: &[&Packet], receivers: &[&Packet]| {
        let left = once(direction, senders);
        let arrived = once(direction, receivers);
        arrived.iter().filter_map(|(key, at)| (*at)?.checked_sub((*left.get(key)?)?)).min()
    };
    Some((fastest(Direction::Up, client, server)?, fastest(Direction::Down, server, client)?))
}

type Key = (u32, u32, u32, u8);

/// The packets' times by what identifies them; `None` of those seen more often.
fn once(direction: Direction, packets: &[&Packet]) -> HashMap<Key, Option<u64>> {
    let mut times = HashMap::new();
    for packet in packets.iter().filter(|packet| packet.direction == direction) {
        let key = (packet.sequence, packet.acknowledgement, packet.length, packet.flags);
        times.entry(key).and_modify(|at| *at = None).or_insert(Some(packet.at.as_nanos()));
    }
    times
}

/// SYN to SYN-ACK at the client's end, or SYN-ACK to ACK at the server's; both the same packets, one list at a time.
fn handshake(packets: &[&Packet]) -> Option<u64> {
    let syn = packets.iter().rfind(|packet| packet.has(flags::SYN) && !packet.has(flags::ACK))?;
    let syn_ack = packets.iter().find(|packet| packet.has(flags::SYN | flags::ACK) && packet.at >= syn.at)?;
    let at_client = syn_ack.at.nanos_since(syn.at).unsigned_abs();
    let at_server = handshake_at_server(packets).unwrap_or(0);
    // One of the two is the other host's reaction, microseconds.
    Some(at_client.max(at_server))
}

/// SYN-ACK to ACK, nanoseconds. Of a SYN-ACK that was sent again the last one before the ACK: the first was lost.
pub(crate) fn handshake_at_server<P: Borrow<Packet>>(packets: &[P]) -> Option<u64> {
    let packets = || packets.iter().map(Borrow::borrow);
    let first = packets().find(|packet| packet.has(flags::SYN | flags::ACK))?;
    let ack = packets().find(|packet| {
        packet.direction == Direction::Up && packet.has(flags::ACK) && !packet.has(flags::SYN) && packet.at >= first.at
    })?;
    let answers = packets().filter(|packet| packet.has(flags::SYN | flags::ACK) && packet.at <= ack.at);
    answers.map(|answer| ack.at.nanos_since(answer.at).unsigned_abs()).min()
}

fn kernel(evidence: &Evidence) -> Option<u64> {
    let samples = evidence.client_tcp.iter().chain(&evidence.server_tcp).flatten();
    samples.filter_map(|sample| sample.min_rtt_ns).min()
}

fn connect(evidence: &Evidence) -> Option<u64> {
    let load = &evidence.load;
    let connected = load.connected_at?;
    let from = load.resolved_at.or(load.started_at)?;
    Some(connected.as_nanos().saturating_sub(from.as_nanos()))
}

#[cfg(test)]
mod tests {
    use units::Timestamp;

    use super::*;

    #[test]
    fn a_lost_syn_ack_is_not_part_of_the_round_trip() {
        let packet = |at_ms: u64, direction, flags| Packet {
            at: Timestamp::from_nanos(at_ms * 1_000_000),
            direction,
            flags,
            sequence: 1,
            acknowledgement: 1,
            window: None,
            length: 0,
            sack: Vec::new(),
        };
        let answer = flags::SYN | flags::ACK;
        let packets = [
            packet(0, Direction::Up, flags::SYN),
            packet(0, Direction::Down, answer),
            packet(1_000, Direction::Down, answer),
            packet(1_060, Direction::Up, flags::ACK),
        ];
        assert_eq!(handshake_at_server(&packets), Some(60_000_000));
        assert_eq!(handshake(&packets.iter().collect::<Vec<_>>()), Some(60_000_000));
        assert_eq!(handshake_at_server(&packets[..3]), None);
    }
}
