//! One connection as both ends would see it, built from whichever inputs exist.
//!
//! Downward data: from the path's record; where that has nothing, from the server's packets; without those, the
//! departure is the arrival less the one-way delay. Upward packets: from the server's packets, else the client's, else
//! the path's record. What an input does not state is estimated by [`OneWay`], and the rules lower their confidence
//! for it.

mod round_trip;
mod sequence;
mod upward;

use std::collections::HashMap;
use std::sync::Arc;

use schema::Direction;

use crate::evidence::{Evidence, Packet, PathRecord};
use crate::quic::QuicResponse;
pub(crate) use round_trip::{OneWay, handshake_at_server};
pub(crate) use sequence::{ByteIndex, Unwrapper};
pub(crate) use upward::{RequestPacket, Up, Upward};

/// What the path did with a packet, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) queue: u64,
    pub(crate) shared_queue: u64,
    pub(crate) serialisation: u64,
    pub(crate) propagation: u64,
    pub(crate) reordering: u64,
}

impl Parts {
    pub(crate) fn of(record: &PathRecord) -> Parts {
        Parts {
            queue: record.queue_ns,
            shared_queue: record.shared_queue_ns,
            serialisation: record.serialisation_ns,
            propagation: record.propagation_ns,
            reordering: record.reordering_ns,
        }
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        [self.shared_queue, self.serialisation, self.propagation, self.reordering]
            .into_iter()
            .fold(self.queue, u64::saturating_add)
    }
}

/// A downward packet with payload that left the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When it left.
    pub(crate) at: u64,
    /// First byte.
    pub(crate) first: u64,
    /// Byte after the last.
    pub(crate) end: u64,
    /// What the path did with it, and whether it dropped it, if recorded.
    pub(crate) path: Option<(Parts, bool)>,
    /// Of QUIC: the packet.
    pub(crate) quic: Option<QuicSent>,
}

/// A packet of QUIC, whose number shows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuicSent {
    pub(crate) number: u64,
    /// When it arrived, if that was captured.
    pub(crate) arrived: Option<u64>,
    /// Whether it never arrived.
    pub(crate) is_lost: bool,
    /// Bytes with the headers of IP and UDP.
    pub(crate) wire_bytes: u64,
    /// Whether it had no room for more.
    pub(crate) is_full: bool,
}

/// Downward payload that arrived at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// The connection.
#[derive(Debug)]
pub(crate) struct View {
    /// Downward data in order of departure.
    pub(crate) down: Vec<Sent>,
    /// For each of `down`: the highest byte sent up to and with it.
    pub(crate) sent_end: Vec<u64>,
    /// Finds packets of `down` by byte.
    pub(crate) index: ByteIndex,
    /// Downward data in order of arrival.
    pub(crate) arrivals: Vec<Arrival>,
    /// Finds `arrivals` by byte.
    pub(crate) arrival_index: ByteIndex,
    /// Whether departures were seen, not estimated.
    pub(crate) departures_seen: bool,
    /// Whether arrivals were seen or computed from the path's record, not estimated.
    pub(crate) arrivals_seen: bool,
    /// Upward packets.
    pub(crate) up: Upward,
    /// One-way delays without queues; `None` where no input has them.
    pub(crate) delay: Option<OneWay>,
    /// Unwraps sequence numbers of the downward stream.
    pub(crate) down_numbers: Unwrapper,
    /// Unwraps sequence numbers of the upward stream.
    pub(crate) up_numbers: Unwrapper,
    /// The response's connection, if it is one of QUIC.
    pub(crate) quic: Option<Arc<QuicResponse>>,
}

impl View {
    /// The connection of `evidence`; `None` without packets and without path record.
    pub(crate) fn new(evidence: &Evidence) -> Option<View> {
        if let Some(quic) = &evidence.quic {
            return Some(View::of_quic(quic));
        }
        let client = sorted(evidence.client_packets.as_deref());
        let server = sorted(evidence.server_packets.as_deref());
        let mut records: Vec<&PathRecord> = evidence.path.iter().flatten().collect();
        records.sort_by_key(|record| record.entered_at);
        if client.is_empty() && server.is_empty() && records.is_empty() {
            return None;
        }
        let first = |direction: Direction| {
            let packets = server.iter().chain(&client).map(|packet| (packet.direction, packet.sequence));
            let all = packets.chain(records.iter().map(|record| (record.direction, record.sequence)));
            Unwrapper::new(all.into_iter().find(|(way, _)| *way == direction).map_or(0, |(_, sequence)| sequence))
        };
        let (down_numbers, up_numbers) = (first(Direction::Down), first(Direction::Up));
        let delay = OneWay::of(evidence, &client, &server, &records);
        let mut down = recorded(&records, down_numbers);
        let covered = ByteIndex::new(down.iter().map(|sent| (sent.first, sent.end)));
        let unrecorded = data(&server, down_numbers).into_iter().filter(|sent| covered.holding(sent.first).is_empty());
        down.extend(unrecorded.map(|Arrival { at, first, end }| Sent { at, first, end, path: None, quic: None }));
        down.sort_by_key(|sent| sent.at);
        let mut arrivals = data(&client, down_numbers);
        let one_way = delay.map(|delay| delay.down).unwrap_or(0);
        let departures_seen = !down.is_empty();
        let mut arrivals_seen = !arrivals.is_empty();
        if !departures_seen {
            down.extend(arrivals.iter().map(|arrival| Sent {
                at: arrival.at.saturating_sub(one_way),
                first: arrival.first,
                end: arrival.end,
                path: None,
                quic: None,
            }));
        } else if !arrivals_seen {
            arrivals = delivered(&down, one_way);
            arrivals_seen = down.iter().all(|sent| sent.path.is_some());
        }
        let index = ByteIndex::new(down.iter().map(|sent| (sent.first, sent.end)));
        let sent_end = highest(down.iter().map(|sent| sent.end));
        let arrival_index = ByteIndex::new(arrivals.iter().map(|arrival| (arrival.first, arrival.end)));
        let up = Upward::new(&client, &server, &records, down_numbers, up_numbers, delay);
        Some(View {
            down,
            sent_end,
            index,
            arrivals,
            arrival_index,
            departures_seen,
            arrivals_seen,
            up,
            delay,
            down_numbers,
            up_numbers,
            quic: None,
        })
    }

    /// The connection of a response over QUIC. Bytes are the places of [`crate::quic`].
    fn of_quic(quic: &Arc<QuicResponse>) -> View {
        let [at_client, at_server] = quic.is_captured;
        let down = quic.down.clone();
        let one_way = quic.delay.map_or(0, |delay| delay.down);
        let arrivals = if at_client { quic.arrivals.clone() } else { delivered(&down, one_way) };
        View {
            sent_end: highest(down.iter().map(|sent| sent.end)),
            index: ByteIndex::new(down.iter().map(|sent| (sent.first, sent.end))),
            arrival_index: ByteIndex::new(arrivals.iter().map(|arrival| (arrival.first, arrival.end))),
            down,
            arrivals,
            departures_seen: at_server,
            arrivals_seen: at_client,
            up: Upward {
                acked: highest(quic.up.iter().map(|packet| packet.ack)),
                packets: quic.up.clone(),
                edges: None,
                payload: quic.payload.clone(),
                syns: Vec::new(),
                departures_seen: at_client,
            },
            delay: quic.delay,
            down_numbers: Unwrapper::new(0),
            up_numbers: Unwrapper::new(0),
            quic: Some(Arc::clone(quic)),
        }
    }

    /// Whether a byte arrived more than once: a copy was sent although the first had not been lost.
    pub(crate) fn arrived_twice(&self, byte: u64) -> bool {
        self.arrival_index.holding(byte).len() > 1
    }

    /// Payload of a full segment: the most frequent length, or the part of it that is below an MTU of 1500, since a
    /// packet of several segments (GSO) is a multiple of it.
    pub(crate) fn segment(&self) -> u64 {
        let mut counts = HashMap::<u64, usize>::new();
        for sent in &self.down {
            *counts.entry(sent.end - sent.first).or_default() += 1;
        }
        let common = counts.into_iter().max_by_key(|(length, count)| (*count, *length));
        let common = common.map_or(SEGMENT_BYTES, |(length, _)| length);
        let segments = common.div_ceil(LARGEST_SEGMENT).max(1);
        if common.is_multiple_of(segments) { common / segments } else { SEGMENT_BYTES }
    }

    /// One-way delay downward without queues, 0 if unknown.
    pub(crate) fn down_delay(&self) -> u64 {
        self.delay.map_or(0, |delay| delay.down)
    }

    /// Round-trip time without queues, 0 if unknown.
    pub(crate) fn rtt(&self) -> u64 {
        self.delay.map_or(0, |delay| delay.up.saturating_add(delay.down))
    }

    /// Whether the delays are those of the path alone, without a standing queue that no packet escaped.
    pub(crate) fn is_grounded(&self) -> bool {
        self.delay.is_some_and(|delay| delay.grounded)
    }

    /// Highest byte that had left the server before `at`.
    pub(crate) fn sent_before(&self, at: u64) -> Option<u64> {
        let place = self.down.partition_point(|sent| sent.at < at);
        place.checked_sub(1).map(|last| self.sent_end[last])
    }
}

/// Bytes of a segment with an MTU of 1500 and TCP timestamps, where packets do not show it.
pub(crate) const SEGMENT_BYTES: u64 = 1_448;
/// Largest payload of a segment with an MTU of 1500, bytes.
const LARGEST_SEGMENT: u64 = 1_460;

/// The running maximum.
pub(crate) fn highest(values: impl Iterator<Item = u64>) -> Vec<u64> {
    values
        .scan(0, |highest, value| {
            *highest = value.max(*highest);
            Some(*highest)
        })
        .collect()
}

fn sorted(packets: Option<&[Packet]>) -> Vec<&Packet> {
    let mut packets: Vec<&Packet> = packets.unwrap_or_default().iter().collect();
    packets.sort_by_key(|packet| packet.at);
    packets
}

/// Downward packets with payload among a capture's packets.
fn data(packets: &[&Packet], mut numbers: Unwrapper) -> Vec<Arrival> {
    let down = packets.iter().filter(|packet| packet.direction == Direction::Down && packet.length > 0);
    down.map(|packet| {
        // The payload of a SYN begins one later.
        let first = numbers.offset(packet.sequence) + u64::from(packet.has(wire::tcp::flags::SYN));
        Arrival { at: packet.at.as_nanos(), first, end: first + u64::from(packet.length) }
    })
    .collect()
}

/// Downward packets with payload among the path's records.
fn recorded(records: &[&PathRecord], mut numbers: Unwrapper) -> Vec<Sent> {
    let down = records.iter().filter(|record| record.direction == Direction::Down && record.length > 0);
    down.map(|record| {
        let first = numbers.offset(record.sequence);
        let path = Some((Parts::of(record), record.dropped));
        Sent { at: record.entered_at.as_nanos(), first, end: first + u64::from(record.length), path, quic: None }
    })
    .collect()
}

/// Arrivals computed from departures. Without a record of a packet's fate, the last transmission of its first byte is
/// taken as the one that arrived.
fn delivered(down: &[Sent], one_way: u64) -> Vec<Arrival> {
    let index = ByteIndex::new(down.iter().map(|sent| (sent.first, sent.end)));
    let mut arrivals: Vec<Arrival> = down
        .iter()
        .enumerate()
        .filter_map(|(place, sent)| {
            let delay = match sent.path {
                Some((_, true)) => return None,
                Some((parts, false)) => parts.total(),
                None if index.holding(sent.first).last().is_some_and(|last| *last > place) => return None,
                None => one_way,
            };
            Some(Arrival { at: sent.at.saturating_add(delay), first: sent.first, end: sent.end })
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}
