//! What the path did with each packet, from its times at both ends and the configuration of its client's links.
//!
//! A packet entered the path where its sender's end was captured and left it at the other end. What it took beyond the
//! configured delay is serialisation at the configured rate and, for the rest, a queue. A packet that never left was
//! dropped. A link without a rate has no queue: what a packet took longer there is the emulation's own timing error,
//! which counts as propagation up to a sixteenth of the delay. The rest of it is in none of the record's durations.
//!
//! A packet that the sender's kernel merged from several segments may leave in pieces; each piece then has a record.

use std::collections::{HashMap, HashSet, VecDeque};

use schema::Direction;
use units::Timestamp;

use crate::evidence::{Packet, PathRecord};
use crate::view::{ByteIndex, Parts, Unwrapper};

/// One direction of a client's path, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// Delay without queues and jitter, nanoseconds.
    pub delay_ns: u64,
    /// Largest deviation of the delay by jitter, nanoseconds.
    pub jitter_ns: u64,
    /// Lowest rate of the client's own link, bit/s; `None`: no rate.
    pub bit_per_s: Option<u64>,
    /// Lowest rate of the links that the client shares with others, bit/s.
    pub shared_bit_per_s: Option<u64>,
    /// Whether packets are configured to overtake others.
    pub reorders: bool,
}

/// Both directions of a client's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLinks {
    /// Client to server.
    pub up: LinkFacts,
    /// Server to client.
    pub down: LinkFacts,
}

impl ClientLinks {
    /// Round-trip time without queues, nanoseconds.
    pub fn rtt_ns(&self) -> u64 {
        self.up.delay_ns.saturating_add(self.down.delay_ns)
    }
}

/// Records of a connection's packets, in order of time; the packets in order of time as well.
pub(crate) fn records(client: &[Packet], server: &[Packet], links: &ClientLinks) -> Vec<PathRecord> {
    let up = Way { direction: Direction::Up, link: &links.up };
    let down = Way { direction: Direction::Down, link: &links.down };
    let mut records = up.records(client, server);
    records.extend(down.records(server, client));
    records.sort_by_key(|record| record.entered_at);
    records
}

/// One direction.
struct Way<'a> {
    direction: Direction,
    link: &'a LinkFacts,
}

/// By this much a packet may seem to be faster than configured: two captures, each with its own time of writing.
const TOLERANCE_NS: u64 = 200_000;
/// Timing error of the emulated path up to this part of the delay counts as propagation.
const TIMING_ERROR_SHARE_DIVISOR: u64 = 16;
/// Bytes of IPv4 and TCP headers with timestamps.
const HEADER_BYTES: u64 = 52;

/// What identifies a packet without payload.
type Key = (u32, u32, u8, Option<u64>, Vec<(u32, u32)>);

impl Way<'_> {
    fn records(&self, entering: &[Packet], leaving: &[Packet]) -> Vec<PathRecord> {
        let of = |packets: &[Packet]| -> Vec<Packet> {
            packets.iter().filter(|packet| packet.direction == self.direction).cloned().collect()
        };
        let (entries, exits) = (of(entering), of(leaving));
        let Some(first) = entries.iter().find(|packet| packet.length > 0).or(entries.first()) else {
            return Vec::new();
        };
        let mut numbers = Unwrapper::new(first.sequence);
        let range = |packet: &Packet, numbers: &mut Unwrapper| {
            // The payload of a SYN begins one later.
            let start = numbers.offset(packet.sequence) + u64::from(packet.has(wire::tcp::flags::SYN));
            (start, start + u64::from(packet.length))
        };
        let mut entered = numbers;
        let ranges: Vec<(u64, u64)> = entries.iter().map(|packet| range(packet, &mut entered)).collect();
        let index = ByteIndex::new(ranges.iter().copied());
        let mut bare = HashMap::<Key, VecDeque<usize>>::new();
        for (place, packet) in entries.iter().enumerate().filter(|(_, packet)| packet.length == 0) {
            bare.entry(key(packet)).or_default().push_back(place);
        }
        let mut records = Vec::with_capacity(exits.len());
        // For each entry: the parts of it that left.
        let mut left = vec![Vec::<(u64, u64)>::new(); entries.len()];
        let mut taken = HashSet::<(usize, u64)>::new();
        let (mut last_delay, mut latest_entry) = (self.link.delay_ns, None);
        // When the packet before left the client's own link, and how long it had waited in shared queues.
        let mut before = (0, 0);
        for exit in &exits {
            let (start, end) = range(exit, &mut numbers);
            let earliest = |place: &usize| {
                let entry = entries[*place].at.as_nanos();
                entry.saturating_add(self.link.delay_ns.saturating_sub(self.link.jitter_ns))
                    <= exit.at.as_nanos().saturating_add(TOLERANCE_NS)
            };
            // A capture may merge packets that entered one by one: each part has its own entry.
            let mut at = start;
            loop {
                let place = if exit.length == 0 {
                    let same = bare.get_mut(&key(exit));
                    same.and_then(|places| if places.front().is_some_and(earliest) { places.pop_front() } else { None })
                } else {
                    let places = index.holding(at).into_iter();
                    let places = places.filter(earliest).filter(|place| !taken.contains(&(*place, at)));
                    places
                        .min_by_key(|place| exit.at.nanos_since(entries[*place].at).unsigned_abs().abs_diff(last_delay))
                };
                let Some(place) = place else { break };
                let entry = &entries[place];
                let until = ranges[place].1.min(end);
                let took = exit.at.nanos_since(entry.at).max(0).unsigned_abs();
                let overtaken = latest_entry.is_some_and(|latest: Timestamp| latest > entry.at);
                if exit.length > 0 {
                    taken.insert((place, at));
                    left[place].push((at, until));
                    last_delay = took;
                }
                latest_entry = latest_entry.max(Some(entry.at));
                let piece = (exit.sequence.wrapping_add((at - start) as u32), (until - at) as u32);
                let record = self.record(entry, piece, (took, overtaken), before);
                before = (exit.at.as_nanos().saturating_sub(self.link.delay_ns), record.shared_queue_ns);
                records.push(record);
                at = until;
                if at >= end {
                    break;
                }
            }
        }
        self.add_dropped(&entries, &ranges, &left, latest_entry, &mut records);
        records
    }

    /// The record of the piece with this sequence number and length that left the path after `took`. `before`: when the
    /// packet before left the client's own link, and its wait in shared queues.
    fn record(
        &self,
        entry: &Packet,
        (sequence, length): (u32, u32),
        (took, overtaken): (u64, bool),
        before: (u64, u64),
    ) -> PathRecord {
        let bits = (u64::from(length) + HEADER_BYTES) * 8;
        let parts = divide(self.link, entry.at.as_nanos(), (took, overtaken), bits, before);
        PathRecord {
            entered_at: entry.at,
            direction: self.direction,
            sequence,
            acknowledgement: entry.acknowledgement,
            length,
            queue_ns: parts.queue,
            shared_queue_ns: parts.shared_queue,
            serialisation_ns: parts.serialisation,
            propagation_ns: parts.propagation,
            reordering_ns: parts.reordering,
            dropped: false,
        }
    }

    /// Adds the parts of packets that did not leave, of packets that entered before the last that did.
    fn add_dropped(
        &self,
        entries: &[Packet],
        ranges: &[(u64, u64)],
        left: &[Vec<(u64, u64)>],
        latest: Option<Timestamp>,
        records: &mut Vec<PathRecord>,
    ) {
        for ((entry, (start, end)), left) in entries.iter().zip(ranges).zip(left) {
            if entry.length == 0 || latest.is_none_or(|latest| entry.at > latest) {
                continue;
            }
            let mut pieces = left.clone();
            pieces.sort_unstable();
            pieces.push((*end, *end));
            let mut at = *start;
            for (from, to) in pieces {
                if from > at {
                    let offset = u32::try_from(at - start).unwrap_or(0);
                    records.push(PathRecord {
                        entered_at: entry.at,
                        direction: self.direction,
                        sequence: entry.sequence.wrapping_add(offset),
                        acknowledgement: entry.acknowledgement,
                        length: u32::try_from(from - at).unwrap_or(0),
                        queue_ns: 0,
                        shared_queue_ns: 0,
                        serialisation_ns: 0,
                        propagation_ns: 0,
                        reordering_ns: 0,
                        dropped: true,
                    });
                }
                at = at.max(to);
            }
        }
    }
}

/// Largest timing error of the path, in nanoseconds, that counts as propagation of this length.
pub(crate) fn timing_error(delay_ns: u64) -> u64 {
    TOLERANCE_NS.max(delay_ns / TIMING_ERROR_SHARE_DIVISOR)
}

/// What a link did with a packet of `bits` bits that entered it at `entered`, `took` nanoseconds of it, and that later
/// packets overtook or not. `before`: when the packet before left the client's own link, and its wait in shared queues.
pub(crate) fn divide(
    link: &LinkFacts,
    entered: u64,
    (took, overtaken): (u64, bool),
    bits: u64,
    before: (u64, u64),
) -> Parts {
    let LinkFacts { delay_ns, jitter_ns, bit_per_s, shared_bit_per_s, reorders } = *link;
    let time_at = |rate: Option<u64>| rate.map_or(0, |rate| bits.saturating_mul(1_000_000_000) / rate.max(1));
    let mut rest = took.saturating_sub(delay_ns);
    let mut propagation = took - rest;
    let mut take = |most: u64| {
        let part = rest.min(most);
        rest -= part;
        part
    };
    let serialisation = take(time_at(bit_per_s).saturating_add(time_at(shared_bit_per_s)));
    // A later delay within the jitter may be a queue too, but a link with a rate and jitter does not tell which.
    propagation += take(jitter_ns);
    let reordering = if reorders && overtaken { take(u64::MAX) } else { 0 };
    let own_queue = match (bit_per_s, shared_bit_per_s) {
        (None, _) => 0,
        (Some(_), None) => u64::MAX,
        // Behind the packet before, if both waited as long in the shared queue.
        (Some(_), Some(_)) => before.0.saturating_sub(entered).saturating_sub(before.1),
    };
    let queue = take(own_queue);
    let shared_queue = if shared_bit_per_s.is_some() { take(u64::MAX) } else { 0 };
    propagation += rest.min(timing_error(delay_ns));
    Parts { queue, shared_queue, serialisation, propagation, reordering }
}

fn key(packet: &Packet) -> Key {
    (packet.sequence, packet.acknowledgement, packet.flags, packet.window, packet.sack.clone())
}

#[cfg(test)]
mod tests {
    use wire::tcp::flags;

    use super::*;

    const MS: u64 = 1_000_000;

    fn packet(at_ms: u64, direction: Direction, sequence: u32, length: u32) -> Packet {
        Packet {
            at: Timestamp::from_nanos(at_ms * MS),
            direction,
            flags: flags::ACK,
            sequence,
            acknowledgement: 1,
            window: Some(65_535),
            length,
            sack: Vec::new(),
        }
    }

    fn down(at_ms: u64, sequence: u32, length: u32) -> Packet {
        packet(at_ms, Direction::Down, sequence, length)
    }

    fn links(bit_per_s: Option<u64>) -> ClientLinks {
        let link = LinkFacts { delay_ns: 50 * MS, bit_per_s, ..LinkFacts::default() };
        ClientLinks { up: LinkFacts { bit_per_s: None, ..link }, down: link }
    }

    #[test]
    fn time_beyond_the_delay_is_serialisation_and_then_queue() {
        // 1000 and 52 bytes at 1.052 Mbit/s take 8 ms.
        let records = records(&[down(61, 1, 1000)], &[down(0, 1, 1000)], &links(Some(1_052_000)));
        let [record] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!((record.propagation_ns, record.serialisation_ns, record.queue_ns), (50 * MS, 8 * MS, 3 * MS));
        assert!(!record.dropped);
    }

    #[test]
    fn a_link_without_a_rate_has_no_queue_and_its_timing_error_is_no_part_of_the_path() {
        for (took, propagation) in [(51 * MS, 51 * MS), (60 * MS, 50 * MS + 50 * MS / 16)] {
            let records = records(&[down(took / MS, 1, 1000)], &[down(0, 1, 1000)], &links(None));
            assert_eq!((records[0].propagation_ns, records[0].queue_ns), (propagation, 0));
        }
    }

    #[test]
    fn the_lost_piece_of_a_merged_packet_is_dropped_and_its_copy_delivered() {
        // Three segments leave the server as one; the second is lost and sent again 110 ms later.
        let server = [down(0, 1, 3000), down(110, 1001, 1000)];
        let client = [down(50, 1, 1000), down(50, 2001, 1000), down(160, 1001, 1000)];
        let records = records(&client, &server, &links(None));
        let seen: Vec<_> =
            records.iter().map(|record| (record.entered_at.as_nanos() / MS, record.sequence, record.dropped)).collect();
        assert_eq!(seen, [(0, 1, false), (0, 2001, false), (0, 1001, true), (110, 1001, false)]);
    }

    #[test]
    fn a_packet_under_way_at_the_end_is_not_dropped() {
        let records = records(&[down(50, 1, 1000)], &[down(0, 1, 1000), down(40, 1001, 1000)], &links(None));
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn the_copy_that_arrived_is_the_one_with_the_delay_of_its_neighbours() {
        // The first copy was lost, and the second took 50 ms as all others.
        let server = [down(0, 1, 1000), down(200, 1, 1000), down(201, 1001, 1000)];
        let client = [down(250, 1, 1000), down(251, 1001, 1000)];
        let records = records(&client, &server, &links(Some(1_000_000_000)));
        let seen: Vec<_> = records.iter().map(|record| (record.entered_at.as_nanos() / MS, record.dropped)).collect();
        assert_eq!(seen, [(0, true), (200, false), (201, false)]);
    }

    #[test]
    fn equal_acknowledgements_are_paired_in_order() {
        let up = |at_ms| packet(at_ms, Direction::Up, 1, 0);
        let records = records(&[up(0), up(3)], &[up(50), up(53)], &links(None));
        let seen: Vec<_> =
            records.iter().map(|record| (record.entered_at.as_nanos() / MS, record.propagation_ns / MS)).collect();
        assert_eq!(seen, [(0, 50), (3, 50)]);
    }
}
