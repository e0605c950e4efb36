//! Upward packets: acknowledgements, window updates and the request, with their times at both ends.

use std::collections::{HashMap, VecDeque};

use schema::Direction;
use wire::tcp::flags;

use super::{OneWay, Parts, Unwrapper, highest};
use crate::evidence::{Packet, PathRecord};

/// An upward packet that arrived at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Up {
    /// When it left the client.
    pub(crate) left: u64,
    /// When it arrived at the server.
    pub(crate) arrived: u64,
    /// Next byte that the client expects.
    pub(crate) ack: u64,
    /// Of payload: the byte after its last, on the upward stream.
    pub(crate) end: u64,
    /// Whether it acknowledges nothing new, or reports bytes beyond a hole.
    pub(crate) reports_hole: bool,
    /// Whether it carries payload: a request, or a frame of HTTP/2 or TLS.
    pub(crate) has_payload: bool,
    /// What the path did with it, if recorded.
    pub(crate) parts: Option<Parts>,
}

/// Payload that left the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestPacket {
    /// When it left.
    pub(crate) left: u64,
    /// First byte.
    pub(crate) first: u64,
    /// Byte after the last.
    pub(crate) end: u64,
}

/// All upward packets.
#[derive(Debug, Default)]
pub(crate) struct Upward {
    /// In order of arrival at the server.
    pub(crate) packets: Vec<Up>,
    /// For each of `packets`: the highest acknowledgement up to and with it.
    pub(crate) acked: Vec<u64>,
    /// For each of `packets`: the highest byte that any advertised window permitted; `None` where a scale is unknown.
    pub(crate) edges: Option<Vec<u64>>,
    /// Payload in order of departure from the client, lost packets included where they were seen.
    pub(crate) payload: Vec<RequestPacket>,
    /// When SYNs left the client.
    pub(crate) syns: Vec<u64>,
    /// Whether the client's departures were seen or recorded, not estimated.
    pub(crate) departures_seen: bool,
}

/// One upward packet before its other end is known.
struct Draft {
    at: u64,
    key: Key,
    ack: u64,
    end: u64,
    edge: Option<u64>,
    has_payload: bool,
    has_sack: bool,
}

type Key = (u32, u32, u32);

impl Upward {
    pub(crate) fn new(
        client: &[&Packet],
        server: &[&Packet],
        records: &[&PathRecord],
        down_numbers: Unwrapper,
        up_numbers: Unwrapper,
        delay: Option<OneWay>,
    ) -> Upward {
        let one_way = delay.map_or(0, |delay| delay.up);
        let upward = || records.iter().filter(|record| record.direction == Direction::Up);
        let mut left = HashMap::<Key, VecDeque<u64>>::new();
        for packet in client.iter().filter(|packet| packet.direction == Direction::Up) {
            left.entry(key(packet)).or_default().push_back(packet.at.as_nanos());
        }
        let mut parts = HashMap::<Key, VecDeque<(u64, Parts)>>::new();
        for record in upward().filter(|record| !record.dropped) {
            let key = (record.sequence, record.acknowledgement, record.length);
            parts.entry(key).or_default().push_back((record.entered_at.as_nanos(), Parts::of(record)));
        }
        let dropped: HashMap<Key, usize> =
            upward().filter(|record| record.dropped).fold(HashMap::new(), |mut all, record| {
                *all.entry((record.sequence, record.acknowledgement, record.length)).or_default() += 1;
                all
            });
        let from_server = drafts(server, down_numbers, up_numbers);
        let from_client = drafts(client, down_numbers, up_numbers);
        let (at_server, drafts) = match (from_server.is_empty(), from_client.is_empty()) {
            (false, _) => (true, from_server),
            (true, false) => (false, from_client),
            (true, true) => (false, recorded(records, down_numbers, up_numbers)),
        };
        let mut packets: Vec<(Up, Option<u64>)> = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let path = parts.get_mut(&draft.key).and_then(VecDeque::pop_front);
            let (left_at, arrived) = if at_server {
                let seen = left.get_mut(&draft.key).and_then(VecDeque::pop_front);
                let entered = path.map(|(entered, _)| entered);
                (seen.or(entered).unwrap_or(draft.at.saturating_sub(one_way)).min(draft.at), draft.at)
            } else if let Some((_, parts)) = path {
                (draft.at, draft.at.saturating_add(parts.total()))
            } else if dropped.contains_key(&draft.key) {
                continue;
            } else {
                (draft.at, draft.at.saturating_add(one_way))
            };
            let Draft { ack, end, edge, has_payload, has_sack, .. } = draft;
            let parts = path.map(|(_, parts)| parts);
            packets.push((Up { left: left_at, arrived, ack, end, reports_hole: has_sack, has_payload, parts }, edge));
        }
        packets.sort_by_key(|(packet, _)| packet.arrived);
        let mut upward = Upward { departures_seen: !client.is_empty() || !records.is_empty(), ..Upward::default() };
        upward.acked = highest(packets.iter().map(|(packet, _)| packet.ack));
        upward.edges = packets
            .iter()
            .all(|(_, edge)| edge.is_some())
            .then(|| highest(packets.iter().filter_map(|(_, edge)| *edge)));
        upward.packets = packets.into_iter().map(|(packet, _)| packet).collect();
        for at in 1..upward.packets.len() {
            let is_repeated = upward.acked[at] == upward.acked[at - 1] && !upward.packets[at].has_payload;
            upward.packets[at].reports_hole |= is_repeated;
        }
        upward.payload = payload(if client.is_empty() { server } else { client }, up_numbers);
        let shift = if client.is_empty() { one_way } else { 0 };
        upward.payload.iter_mut().for_each(|packet| packet.left = packet.left.saturating_sub(shift));
        let syns = client.iter().filter(|packet| packet.has(flags::SYN) && packet.direction == Direction::Up);
        upward.syns = syns.map(|packet| packet.at.as_nanos()).collect();
        upward
    }

    /// The number of packets that had arrived at the server at `at`.
    pub(crate) fn count_at(&self, at: u64) -> usize {
        self.packets.partition_point(|packet| packet.arrived <= at)
    }

    /// The highest acknowledgement that had arrived at the server at `at`.
    pub(crate) fn acked_at(&self, at: u64) -> Option<u64> {
        self.count_at(at).checked_sub(1).map(|last| self.acked[last])
    }

    /// When the server received a packet that left the client at or after `left`.
    pub(crate) fn arrival_of(&self, left: u64, one_way: u64) -> u64 {
        let estimate = left.saturating_add(one_way);
        let from = self.packets.partition_point(|packet| packet.arrived < left);
        let sent = self.packets[from..].iter().take(64).find(|packet| packet.has_payload && packet.left >= left);
        sent.map_or(estimate, |packet| packet.arrived)
    }
}

fn key(packet: &Packet) -> Key {
    (packet.sequence, packet.acknowledgement, packet.length)
}

/// Upward packets with an acknowledgement among a capture's packets, from the first payload on. The handshake's ACK may be
/// gigabytes before a later request of the connection: unwrapped beside the request's, it would be the highest.
fn drafts(packets: &[&Packet], mut numbers: Unwrapper, mut own: Unwrapper) -> Vec<Draft> {
    let is_up = |packet: &&&Packet| packet.direction == Direction::Up;
    let request = packets.iter().position(|packet| is_up(&packet) && packet.length > 0).unwrap_or(0);
    let up = packets[request..].iter().filter(is_up).filter(|packet| packet.has(flags::ACK));
    up.map(|packet| {
        let ack = numbers.offset(packet.acknowledgement);
        Draft {
            at: packet.at.as_nanos(),
            key: key(packet),
            ack,
            end: own.offset(packet.sequence) + u64::from(packet.length),
            edge: packet.window.map(|window| ack.saturating_add(window)),
            has_payload: packet.length > 0,
            has_sack: !packet.sack.is_empty(),
        }
    })
    .collect()
}

/// The same among the path's records, which have no window.
fn recorded(records: &[&PathRecord], mut numbers: Unwrapper, mut own: Unwrapper) -> Vec<Draft> {
    // A SYN acknowledges nothing.
    let is_ack = |record: &&&PathRecord| record.acknowledgement != 0 || record.length > 0;
    let up = records.iter().filter(|record| record.direction == Direction::Up).filter(is_ack);
    up.map(|record| Draft {
        at: record.entered_at.as_nanos(),
        key: (record.sequence, record.acknowledgement, record.length),
        ack: numbers.offset(record.acknowledgement),
        end: own.offset(record.sequence) + u64::from(record.length),
        edge: None,
        has_payload: record.length > 0,
        has_sack: false,
    })
    .collect()
}

fn payload(packets: &[&Packet], mut numbers: Unwrapper) -> Vec<RequestPacket> {
    let up = packets.iter().filter(|packet| packet.direction == Direction::Up && packet.length > 0);
    up.map(|packet| {
        let first = numbers.offset(packet.sequence);
        RequestPacket { left: packet.at.as_nanos(), first, end: first + packet.sequence_length() }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use units::Timestamp;

    use super::*;

    #[test]
    fn acknowledgements_rise_on_a_connection_that_carried_gigabytes_before_the_request() {
        let packet = |at_ns, acknowledgement, length| Packet {
            at: Timestamp::from_nanos(at_ns),
            direction: Direction::Up,
            flags: flags::ACK,
            sequence: 1,
            acknowledgement,
            window: Some(1 << 16),
            length,
            sack: Vec::new(),
        };
        let sent = 3_000_000_000;
        let packets = [packet(0, 1, 0), packet(9, sent, 100), packet(19, sent + 1448, 0), packet(29, sent + 2896, 0)];
        let packets: Vec<&Packet> = packets.iter().collect();
        let upward = Upward::new(&packets, &[], &[], Unwrapper::new(0), Unwrapper::new(0), None);
        let rises: Vec<u64> = upward.acked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(rises, [1448, 1448]);
    }
}
