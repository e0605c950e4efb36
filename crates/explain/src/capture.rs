//! Evidence out of capture files: packets by connection, and the times of each HTTP request that `watch` found in them.
//!
//! Memory grows with the capture, about 100 bytes for each TCP packet of every connection, up to 10 million packets.

use std::collections::HashMap;
use std::net::SocketAddr;

use schema::{Direction, WireRequest};
use units::Timestamp;
use wire::ip::{self, Addresses, TcpHeader};
use wire::link::{LinkType, Payload};
use wire::tcp::{Options, flags};

use crate::evidence::{Evidence, LoadTimes, Packet, Protocol};
use crate::view::handshake_at_server;

/// The TCP packets of one capture, by connection.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    flows: HashMap<[SocketAddr; 2], Flow>,
    packets: usize,
    /// The first packet that was left out, because the memory was full.
    full_at: Option<Timestamp>,
    /// Packets that were captured twice.
    copies: u64,
}

/// Most packets in memory: about 1 GB.
const PACKETS_MAX: usize = 10_000_000;
/// A copy of a packet is captured within this time: copies of one machine within microseconds, those of a mirror port
/// within a millisecond, as in `watch`.
const COPY_NS: u64 = 5_000_000;
/// Packets of the connection among which a copy is searched.
const COPY_SEARCHED: usize = 64;

/// All packets between two sockets, of one connection or of several in turn.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// In order of time, as they were added.
    segments: Vec<Segment>,
    /// Places of the SYNs.
    syns: Vec<usize>,
}

/// A packet as captured, its window unscaled.
#[derive(Clone, Debug)]
struct Segment {
    at: Timestamp,
    /// Whether the first of the two ends sent it.
    from_first: bool,
    header: TcpHeader,
    length: u32,
    window_scale: Option<u8>,
    sack: Vec<(u32, u32)>,
    /// Of IPv4.
    identification: u16,
    timestamps: Option<(u32, u32)>,
}

impl Segment {
    /// Whether this packet is a second capture of `other`, an earlier packet. Packets without an IP identification must
    /// have equal TCP timestamps. Resets without an identification are never copies: a kernel responds to each packet
    /// for a closed socket with the same reset.
    fn is_copy_of(&self, other: &Segment) -> bool {
        let is_known = self.identification != 0 || self.timestamps.is_some() && self.header.flags & flags::RST == 0;
        is_known
            && self.at.nanos_since(other.at).unsigned_abs() <= COPY_NS
            && self.from_first == other.from_first
            && self.header == other.header
            && self.length == other.length
            && self.identification == other.identification
            && self.timestamps == other.timestamps
            && self.sack == other.sack
    }
}

/// Time after a response's last packet in which its retransmissions and acknowledgements may still arrive.
const AFTER_NS: u64 = 500_000_000;
/// Longest time between handshake and request for which the connection counts as opened for the request.
const PRECONNECT_NS: u64 = 2_000_000;

/// The opening of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The first SYN.
    pub(crate) opened_at: Timestamp,
    /// The SYN-ACK, if it was captured.
    pub(crate) answered_at: Option<Timestamp>,
}

impl Flow {
    fn openings(&self, [one, other]: [SocketAddr; 2]) -> Vec<Opening> {
        let mut openings = Vec::<Opening>::new();
        let mut place_before = None;
        for place in &self.syns {
            let segment = &self.segments[*place];
            if segment.header.flags & flags::ACK != 0 {
                if let Some(last) = openings.last_mut() {
                    last.answered_at.get_or_insert(segment.at);
                }
            } else if place_before.is_none_or(|before| before + 1 != *place) {
                let (client, server) = if segment.from_first { (one, other) } else { (other, one) };
                openings.push(Opening { client, server, opened_at: segment.at, answered_at: None });
            }
            place_before = Some(*place);
        }
        openings
    }
}

impl Connections {
    /// No packets.
    pub fn new() -> Connections {
        Connections::default()
    }

    /// When packets began to be left out, because more than 10 million were added.
    pub fn full_at(&self) -> Option<Timestamp> {
        self.full_at
    }

    /// Packets that were captured twice, as on two interfaces; the second copy is left out.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Adds a packet captured at `at`, no earlier than the packet before it, of which `original_length` bytes were on
    /// the wire. What is not a whole TCP packet over IP is left out.
    pub fn handle_packet(&mut self, at: Timestamp, link: LinkType, captured: &[u8], original_length: u32) {
        let _ = self.add(at, link, captured, original_length as usize);
    }

    fn add(&mut self, at: Timestamp, link: LinkType, captured: &[u8], original_length: usize) -> Option<()> {
        let Ok(Payload::Ip(start)) = link.payload(captured) else { return None };
        let bytes = captured.get(start..)?;
        let packet = ip::Packet::parse(bytes, original_length.max(captured.len()).checked_sub(start)?).ok()?;
        if packet.protocol != wire::protocol::TCP || packet.fragment.is_some() {
            return None;
        }
        let segment = bytes.get(packet.transport_at..)?;
        let segment_length = packet.total_len.checked_sub(packet.transport_at)?;
        let header = TcpHeader::parse(segment, segment_length).ok()?;
        let options = segment.get(wire::tcp::HEADER_MIN..header.header_len.min(segment.len())).unwrap_or_default();
        let options = Options::parse(options);
        let (source, destination) = match packet.addresses {
            Addresses::V4(source, destination) => (source.into(), destination.into()),
            Addresses::V6(source, destination) => (source.into(), destination.into()),
        };
        let source = SocketAddr::new(source, header.source_port);
        let destination = SocketAddr::new(destination, header.destination_port);
        let from_first = source < destination;
        let segment = Segment {
            at,
            from_first,
            header,
            length: u32::try_from(segment_length - header.header_len).ok()?,
            window_scale: options.window_scale,
            sack: options.sack().to_vec(),
            identification: packet.identification,
            timestamps: options.timestamps,
        };
        let flow = self.flows.entry(key(source, destination)).or_default();
        if flow.segments.iter().rev().take(COPY_SEARCHED).any(|before| segment.is_copy_of(before)) {
            self.copies += 1;
            return None;
        }
        if self.packets >= PACKETS_MAX {
            self.full_at.get_or_insert(at);
            return None;
        }
        if header.flags & flags::SYN != 0 {
            flow.syns.push(flow.segments.len());
        }
        flow.segments.push(segment);
        self.packets += 1;
        Some(())
    }

    /// The connections of which a SYN was captured, in order of its time. A SYN that was sent again is not another
    /// connection.
    pub(crate) fn openings(&self) -> Vec<Opening> {
        let mut openings: Vec<Opening> =
            self.flows.iter().flat_map(|(sockets, flow)| flow.openings(*sockets)).collect();
        openings.sort_by_key(|opening| (opening.opened_at, opening.client));
        openings
    }

    /// The server's socket of the connections of each client's socket. The path may rewrite the server's address, so it
    /// may differ between the ends.
    pub(crate) fn servers(&self) -> HashMap<SocketAddr, SocketAddr> {
        self.openings().into_iter().map(|opening| (opening.client, opening.server)).collect()
    }

    /// The packets of a request's connection: its handshake, and those from the request's first packet `from` to the
    /// response's last packet `done`, with what follows up to the next request or connection.
    pub(crate) fn packets(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        from: Timestamp,
        done: Timestamp,
    ) -> Option<Vec<Packet>> {
        let Flow { segments, syns } = self.flows.get(&key(client, server))?;
        let client_is_first = client < server;
        let is_up = |segment: &Segment| segment.from_first == client_is_first;
        let is_syn = |segment: &Segment| segment.header.flags & flags::SYN != 0;
        // The latest SYNs before the request: an earlier connection may have had the same ports.
        let before = &syns[..syns.partition_point(|place| segments[*place].at <= from)];
        let mut opened = before.last().copied().unwrap_or(0);
        for place in before.iter().rev().skip(1) {
            if *place + 1 != opened {
                break;
            }
            opened = *place;
        }
        let handshake = &segments[opened..];
        // SYN, SYN-ACK, their copies, and the packet after them, which shows the round trip at the server's end.
        let handshake = match before.is_empty() {
            true => &handshake[..0],
            false => &handshake[..handshake.iter().position(|segment| !is_syn(segment)).map_or(0, |ack| ack + 1)],
        };
        let scale = |up: bool| {
            let syn = handshake.iter().find(|segment| is_syn(segment) && is_up(segment) == up)?;
            Some(syn.window_scale)
        };
        // Without both SYNs the scale is unknown; if one side did not offer it, there is none (RFC 7323).
        let scales = scale(true).zip(scale(false)).map(|(up, down)| up.zip(down).unwrap_or((0, 0)));
        let first = segments.partition_point(|segment| segment.at < from).max(opened + handshake.len());
        let until = Timestamp::from_nanos(done.as_nanos().saturating_add(AFTER_NS));
        let response_end = segments.partition_point(|segment| segment.at <= done).max(first);
        let is_next = |segment: &Segment| {
            is_up(segment) && segment.length > 0 || segment.header.flags & (flags::SYN | flags::ACK) == flags::SYN
        };
        let after = segments[response_end..].iter().take_while(|segment| segment.at <= until && !is_next(segment));
        let last = response_end + after.count();
        let packets = handshake.iter().chain(&segments[first..last]).map(|segment| {
            let up = is_up(segment);
            let scaled = scales.map(|(of_client, of_server)| {
                let shift = if is_syn(segment) {
                    0
                } else if up {
                    of_client
                } else {
                    of_server
                };
                u64::from(segment.header.window) << shift.min(14)
            });
            Packet {
                at: segment.at,
                direction: if up { Direction::Up } else { Direction::Down },
                flags: segment.header.flags,
                sequence: segment.header.sequence,
                acknowledgement: segment.header.acknowledgement,
                window: scaled,
                length: segment.length,
                sack: segment.sack.clone(),
            }
        });
        Some(packets.collect())
    }
}

/// The evidence of a response in captures of the client's end, the server's, or both on one clock. `request` is from
/// the client's capture if there is one, else from the server's. `None` if the response was not seen to its end, or
/// its connection's packets are in none of the captures.
///
/// At the server's end alone, the times at the client are estimated: half a round trip of the handshake earlier for the
/// request, later for the response.
pub fn evidence(request: &WireRequest, client: Option<&Connections>, server: Option<&Connections>) -> Option<Evidence> {
    let first = request.request_first_at?;
    let last = request.response_last_at.filter(|_| request.complete)?;
    let packets = |capture: Option<&Connections>| {
        capture.and_then(|capture| capture.packets(request.client, request.server, first, last))
    };
    let (client_packets, server_packets) = (packets(client), packets(server));
    let at_client = client_packets.is_some();
    let seen = client_packets.as_ref().or(server_packets.as_ref())?;
    let syn = seen.iter().find(|packet| packet.flags & (flags::SYN | flags::ACK) == flags::SYN);
    let syn_ack = seen.iter().find(|packet| packet.has(flags::SYN | flags::ACK));
    let handshake = syn.zip(syn_ack).filter(|(syn, syn_ack)| {
        let idle = first.as_nanos().saturating_sub(syn_ack.at.as_nanos());
        let round_trip = syn_ack.at.as_nanos().saturating_sub(syn.at.as_nanos());
        request.index == 0 && at_client && idle <= PRECONNECT_NS + round_trip / 4
    });
    let half = if at_client { 0 } else { handshake_at_server(seen).unwrap_or(0) / 2 };
    // What was lost arrives later than the last byte seems to.
    let done = if at_client { last } else { sent_again(seen, last).unwrap_or(last) };
    let earlier = |at: Timestamp| Timestamp::from_nanos(at.as_nanos().saturating_sub(half));
    let later = |at: Timestamp| Timestamp::from_nanos(at.as_nanos().saturating_add(half));
    let started = handshake.map_or(earlier(first), |(syn, _)| syn.at);
    let load = LoadTimes {
        scheduled_at: started,
        started_at: Some(started),
        connected_at: handshake.map(|(_, syn_ack)| syn_ack.at),
        sent_at: request.request_last_at.map(earlier),
        first_byte_at: request.response_first_at.map(later),
        done_at: later(done),
        ..LoadTimes::default()
    };
    let protocol = request.minor_version.map(|_| Protocol::Http1);
    Some(Evidence { load, client_packets, server_packets, protocol, ..Evidence::default() })
}

/// The last retransmission of a response whose last byte was first sent at `last`, at the server's end. A probe that
/// was not needed counts as well: what it asked for was late.
fn sent_again(packets: &[Packet], last: Timestamp) -> Option<Timestamp> {
    let down = || packets.iter().filter(|packet| packet.direction == Direction::Down && packet.length > 0);
    let end = |packet: &Packet| packet.sequence.wrapping_add(packet.length);
    let response_end = down().filter(|packet| packet.at <= last).map(end).next_back()?;
    let acked_at = packets.iter().find(|packet| {
        packet.direction == Direction::Up
            && packet.at > last
            && packet.acknowledgement.wrapping_sub(response_end).cast_signed() >= 0
    });
    let is_needed = |packet: &Packet| acked_at.is_none_or(|acked| packet.at < acked.at);
    let again = down().filter(|packet| {
        packet.at > last && is_needed(packet) && end(packet).wrapping_sub(response_end).cast_signed() <= 0
    });
    again.map(|packet| packet.at).max()
}

fn key(one: SocketAddr, other: SocketAddr) -> [SocketAddr; 2] {
    if one < other { [one, other] } else { [other, one] }
}

/// By how much the clock of the server's capture seems to be ahead of the client's, nanoseconds, if packets that both
/// have arrive before they were sent: then the times of the two captures cannot be compared. `None` otherwise; a
/// difference that is smaller than the one-way delay does not show.
pub fn clock_difference(client: &Connections, server: &Connections) -> Option<i64> {
    let mut fastest = [None::<i64>; 2];
    for (sockets, at_client) in &client.flows {
        let Some(at_server) = server.flows.get(sockets) else { continue };
        let mut times = HashMap::<(bool, u32, u32, u32, u8), Option<Timestamp>>::new();
        let key = |segment: &Segment| {
            let header = &segment.header;
            (segment.from_first, header.sequence, header.acknowledgement, segment.length, header.flags)
        };
        for segment in &at_client.segments {
            times.entry(key(segment)).and_modify(|at| *at = None).or_insert(Some(segment.at));
        }
        let Some(syn) = at_client.syns.first().map(|place| &at_client.segments[*place]) else { continue };
        let client_is_first = syn.from_first == (syn.header.flags & flags::ACK == 0);
        for segment in &at_server.segments {
            // Of packets that one end has several times it is not known which is which.
            let Some(Some(at)) = times.remove(&key(segment)) else { continue };
            let is_up = segment.from_first == client_is_first;
            let took = if is_up { segment.at.nanos_since(at) } else { at.nanos_since(segment.at) };
            let least = &mut fastest[usize::from(is_up)];
            *least = Some(least.map_or(took, |least| least.min(took)));
        }
    }
    let [Some(down), Some(up)] = fastest else { return None };
    (up.min(down) < -CLOCK_TOLERANCE_NS).then_some((up - down) / 2)
}

/// Two captures of one clock may disagree by this much about packets that take no time, nanoseconds.
const CLOCK_TOLERANCE_NS: i64 = 1_000_000;
