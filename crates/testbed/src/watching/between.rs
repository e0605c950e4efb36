//! Packets at both ends of the path: the path's delay, independently measured.
//!
//! A packet is identified by its first bytes: on a link that does not split, nothing in them changes between the two
//! devices, and the IP identification, sequence numbers and TCP timestamps distinguish packets. Equal packets (pure
//! acknowledgements sent twice at the same time) are matched in order. A packet that a link splits is one at one end
//! and several at the other; it counts as unmatched and is not judged.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use path::{AddressPlan, ClientPath};
use schema::Direction;
use schema::document::PathInCapture;
use stats::Histogram;
use units::Timestamp;
use units::time::saturating_nanos;

/// A packet that was not captured at the other end within this time was lost or split.
const MATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that identify a packet: the longest IP and TCP headers with all options.
const FINGERPRINT_BYTES: usize = 100;

/// The end at which a packet was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the clients' device.
    Client,
    /// At the server's device.
    Server,
}

/// Matches packets of both ends.
pub struct Between {
    /// Configured one-way delay of each client: up, down.
    configured_ns: Vec<[u64; 2]>,
    phase: (Timestamp, Option<Timestamp>),
    /// Packets captured at one end, by key; two generations, so that removing
    /// unmatched packets costs nothing per packet.
    new_packets: Packets,
    old_packets: Packets,
    generation_began: Timestamp,
    matched: u64,
    unmatched: u64,
    up: Histogram,
    down: Histogram,
    timing_errors: Histogram,
}

#[derive(Clone, Copy, Debug)]
struct Captured {
    end: End,
    at: Timestamp,
}

/// Packets that were captured at one end, by fingerprint.
type Packets = HashMap<u64, Waiting, BuildHasherDefault<FingerprintHasher>>;

/// Captures of equal packets, the earliest first: nearly always one, which needs no memory of its own.
#[derive(Debug)]
struct Waiting {
    first: Captured,
    more: VecDeque<Captured>,
}

impl Waiting {
    fn len(&self) -> usize {
        1 + self.more.len()
    }
}

/// A fingerprint is a hash already.
#[derive(Debug, Default)]
struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(MULTIPLIER);
        }
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

impl Between {
    /// A matcher for these clients, over the phase that begins at `measured_from`.
    pub fn new(clients: &[ClientPath], measured_from: Timestamp) -> Self {
        let delay = |link: &path::LinkSpec| saturating_nanos(link.delay());
        Between {
            configured_ns: clients.iter().map(|client| [delay(&client.up), delay(&client.down)]).collect(),
            phase: (measured_from, None),
            new_packets: Packets::default(),
            old_packets: Packets::default(),
            generation_began: Timestamp::ZERO,
            matched: 0,
            unmatched: 0,
            up: Histogram::new(),
            down: Histogram::new(),
            timing_errors: Histogram::new(),
        }
    }

    /// Sets the end of the measured phase.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.phase.1 = Some(end);
    }

    /// Adds a packet captured at one end: an IP packet, cut at the snap length.
    pub fn packet(&mut self, end: End, at: Timestamp, bytes: &[u8], length: u32) {
        let Some((direction, client)) = direction_and_client(bytes) else { return };
        if at.since(self.generation_began) > MATCH_TIMEOUT {
            self.generation_began = at;
            let forgotten = std::mem::replace(&mut self.old_packets, std::mem::take(&mut self.new_packets));
            self.unmatched += forgotten.values().map(|waiting| waiting.len() as u64).sum::<u64>();
        }
        let key = fingerprint(bytes, length, direction);
        match self.take_earliest(key, end) {
            None => {
                let captured = Captured { end, at };
                match self.new_packets.entry(key) {
                    Entry::Vacant(entry) => drop(entry.insert(Waiting { first: captured, more: VecDeque::new() })),
                    Entry::Occupied(mut entry) => entry.get_mut().more.push_back(captured),
                }
            }
            Some(other) => {
                let (entered, left) = match (direction, end) {
                    (Direction::Up, End::Server) | (Direction::Down, End::Client) => (other, at),
                    (Direction::Up, End::Client) | (Direction::Down, End::Server) => (at, other),
                };
                if entered >= self.phase.0 && self.phase.1.is_none_or(|to| entered < to) {
                    self.add(direction, client, left.since(entered));
                }
            }
        }
    }

    /// The figures.
    pub fn finish(self) -> PathInCapture {
        let left: usize = self.new_packets.values().chain(self.old_packets.values()).map(Waiting::len).sum();
        PathInCapture {
            matched: self.matched,
            unmatched: self.unmatched + left as u64,
            up_ns: self.up.quantiles(),
            down_ns: self.down.quantiles(),
            timing_error_ns: self.timing_errors.quantiles(),
        }
    }

    /// The earliest capture of the same packet at the other end.
    fn take_earliest(&mut self, key: u64, end: End) -> Option<Timestamp> {
        for generation in [&mut self.old_packets, &mut self.new_packets] {
            let Entry::Occupied(mut entry) = generation.entry(key) else { continue };
            let first = entry.get().first;
            if first.end == end {
                continue;
            }
            match entry.get_mut().more.pop_front() {
                Some(next) => entry.get_mut().first = next,
                None => drop(entry.remove()),
            }
            return Some(first.at);
        }
        None
    }

    fn add(&mut self, direction: Direction, client: u32, delay: Duration) {
        let delay = saturating_nanos(delay);
        self.matched += 1;
        match direction {
            Direction::Up => self.up.record(delay),
            Direction::Down => self.down.record(delay),
        }
        if let Some(configured) = self.configured_ns.get(client as usize) {
            self.timing_errors.record(delay.saturating_sub(configured[direction.index()]));
        }
    }
}

/// Direction and client of a packet.
pub(crate) fn direction_and_client(bytes: &[u8]) -> Option<(Direction, u32)> {
    let v4 = |at: usize| {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        CLIENTS.index(Ipv4Addr::from(octets).into())
    };
    let v6 = |at: usize| {
        let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        CLIENTS.index(Ipv6Addr::from(octets).into())
    };
    let (from, to) = match bytes.first()? >> 4 {
        4 if bytes.len() >= 20 => (v4(12), v4(16)),
        6 if bytes.len() >= 40 => (v6(8), v6(24)),
        _ => return None,
    };
    match (from, to) {
        (Some(client), None) => Some((Direction::Up, client)),
        (None, Some(client)) => Some((Direction::Down, client)),
        _ => None,
    }
}

/// A hash of the headers and the length, eight bytes at a time, without the parts that differ if the path rewrites the server's address:
/// that address, and the checksums that include it. All traffic is the testbed's own: no collisions are provoked.
fn fingerprint(bytes: &[u8], length: u32, direction: Direction) -> u64 {
    let mut hash = u64::from(length).wrapping_mul(MULTIPLIER);
    let mut mix = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    let mut add = |range: std::ops::Range<usize>| {
        let end = range.end.min(bytes.len()).min(FINGERPRINT_BYTES);
        let (words, rest) = bytes.get(range.start..end).unwrap_or_default().as_chunks::<8>();
        words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| mix(u64::from(*byte)));
    };
    if bytes.first().is_some_and(|byte| byte >> 4 == 4) {
        let header = usize::from(bytes[0] & 0xF) * 4;
        let server = if direction == Direction::Up { 16 } else { 12 };
        let checksum = header
            + match bytes.get(9) {
                Some(6) => 16,
                Some(17) => 6,
                _ => 2,
            };
        add(0..10);
        add(if server == 16 { 12..16 } else { 16..20 });
        add(20..checksum);
        add(checksum + 2..FINGERPRINT_BYTES);
    } else {
        add(0..FINGERPRINT_BYTES);
    }
    // The low bits, which choose the place in the table, depend on all others.
    hash ^ (hash >> 32)
}

/// An odd number whose bits are evenly mixed: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The addresses of all possible clients.
const CLIENTS: AddressPlan = AddressPlan { first_client: AddressPlan::FIRST_CLIENT, clients: AddressPlan::CLIENTS_MAX };

#[cfg(test)]
mod tests {
    use super::*;
    use path::Profile;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    fn packet(from: [u8; 4], to: [u8; 4], identification: u8) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 40, 0, identification, 0x40, 0, 64, 6, 0, 0];
        bytes.extend(from.into_iter().chain(to));
        bytes.extend([7; 20]);
        bytes
    }

    const SERVER: [u8; 4] = [198, 18, 0, 1];
    const SECOND: [u8; 4] = [198, 19, 0, 2];

    fn between() -> Between {
        Between::new(&Profile::constant(Duration::from_millis(48)).clients(2), at(100))
    }

    #[test]
    fn a_packet_is_timed_in_each_direction_whichever_end_is_read_first() {
        let mut between = between();
        let (up, down) = (packet(SECOND, SERVER, 1), packet(SERVER, SECOND, 1));
        between.packet(End::Client, at(200), &up, 40);
        between.packet(End::Server, at(225), &up, 40);
        // The clients' ring was read before the server's.
        between.packet(End::Client, at(250), &down, 40);
        between.packet(End::Server, at(226), &down, 40);
        let seen = between.finish();
        assert_eq!((seen.matched, seen.unmatched), (2, 0));
        assert_eq!((seen.up_ns.count, seen.down_ns.count, seen.timing_error_ns.count), (1, 1, 2));
        let near = |value: u64, ms: f64| (value as f64 / 1e6 - ms).abs() < 0.1;
        assert!(near(seen.up_ns.max, 25.0) && near(seen.down_ns.max, 24.0), "{seen:?}");
        assert!(near(seen.timing_error_ns.max, 1.0) && near(seen.timing_error_ns.min, 0.0), "{seen:?}");
    }

    #[test]
    fn a_packet_matches_after_rewriting_the_servers_address() {
        let mut between = between();
        let rewrite = path::Rewrite::new(vec![path::rewrite::Pair { seen: SERVER.into(), own: [127, 0, 0, 1].into() }]);
        for (direction, original) in
            [(Direction::Up, packet(SECOND, SERVER, 1)), (Direction::Down, packet([127, 0, 0, 1], SECOND, 1))]
        {
            let mut frame = [vec![0; 10], original.clone()].concat();
            rewrite.apply(direction, &mut frame);
            let (entry, exit) =
                if direction == Direction::Up { (End::Client, End::Server) } else { (End::Server, End::Client) };
            between.packet(entry, at(200), &original, 40);
            between.packet(exit, at(224), &frame[10..], 40);
            assert_ne!(original, frame[10..]);
        }
        let seen = between.finish();
        assert_eq!((seen.matched, seen.unmatched), (2, 0));
    }

    #[test]
    fn ipv6_packets_are_matched() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
        let (client, server): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
            ("2001:2:0:2::2".parse().unwrap(), "2001:2:0:1::1".parse().unwrap());
        bytes.extend(client.octets().into_iter().chain(server.octets()).chain([7; 20]));
        assert_eq!(direction_and_client(&bytes), Some((Direction::Up, 1)));
        assert_eq!(direction_and_client(&bytes[..39]), None);
        let other = [&bytes[..59], &[8]].concat();
        assert_ne!(fingerprint(&bytes, 60, Direction::Up), fingerprint(&other, 60, Direction::Up));
    }

    #[test]
    fn equal_packets_are_matched_in_order_and_lost_ones_counted() {
        let mut between = between();
        let same = packet(SECOND, SERVER, 9);
        for ms in [200, 210] {
            between.packet(End::Client, at(ms), &same, 40);
        }
        for ms in [224, 234] {
            between.packet(End::Server, at(ms), &same, 40);
        }
        between.packet(End::Client, at(220), &packet(SECOND, SERVER, 10), 40);
        let seen = between.finish();
        assert_eq!((seen.matched, seen.unmatched), (2, 1));
        assert!(seen.timing_error_ns.max < 100_000, "{seen:?}");
    }

    #[test]
    fn only_packets_of_the_measured_phase_count_and_memory_is_released() {
        let mut between = between();
        let early = packet(SECOND, SERVER, 1);
        between.packet(End::Client, at(50), &early, 40);
        between.packet(End::Server, at(74), &early, 40);
        for identification in 0..100 {
            between.packet(
                End::Client,
                at(100 + u64::from(identification)),
                &packet(SECOND, SERVER, identification),
                41,
            );
        }
        // Two generations later, unmatched packets are removed.
        for ms in [11_000, 22_000, 33_000] {
            between.packet(End::Client, at(ms), &packet(SECOND, SERVER, 200), 42);
        }
        assert!(between.old_packets.len() + between.new_packets.len() <= 2);
        assert_eq!(between.matched, 0);
        assert_eq!(between.finish().unmatched, 103);
        assert_eq!(direction_and_client(&[0x60; 40]), None);
        assert_eq!(direction_and_client(&[0x45; 10]), None);
    }
}
