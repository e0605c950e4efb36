//! One connection: its packets of both ends by number, made into departures, arrivals, acknowledgements and windows.

use std::collections::{BTreeMap, HashMap};

use schema::{Direction, QuicFrame, QuicPacket, QuicPacketKind};

use super::handshake;
use super::places::Places;
use super::recovery::Recovery;
use super::response::{End, QuicResponse};
use super::windows::{Window, Windows};
use crate::fates::{ClientLinks, LinkFacts, divide};
use crate::timeline::Overlay;
use crate::view::{Arrival, OneWay, Parts, QuicSent, RequestPacket, Sent, Up};

/// A connection that was decrypted.
#[derive(Debug)]
pub(crate) struct QuicConnection {
    /// Pieces of packets in order of departure.
    down: Vec<Sent>,
    arrivals: Vec<Arrival>,
    /// In order of arrival at the server.
    up: Vec<Up>,
    payload: Vec<RequestPacket>,
    /// Of both directions.
    places: [Places; 2],
    /// Of the connection, and of streams with updates.
    connection_window: Window,
    stream_windows: HashMap<u64, Window>,
    initial_stream_window: Option<u64>,
    recovery: Recovery,
    /// Packets with the end of a stream.
    ends: HashMap<u64, Vec<End>>,
    detours: Vec<Overlay>,
    /// When the client sent the last message of its handshake.
    pub(crate) secured_at: Option<u64>,
    delay: Option<OneWay>,
    /// Whether the ends were captured: client, server.
    is_captured: [bool; 2],
    has_path: bool,
    is_whole: bool,
}

/// A packet at both ends.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    pub(super) packet: &'a QuicPacket,
    /// Departure, if the sender's end was captured.
    pub(super) left: Option<u64>,
    /// Arrival, if the receiver's end was captured.
    pub(super) arrived: Option<u64>,
    /// Whether it never arrived.
    pub(super) is_lost: bool,
    /// What the path did with it.
    pub(super) parts: Option<Parts>,
}

/// IPv4 and UDP header, bytes.
const HEADER_BYTES: u64 = 28;
/// Bytes by which a packet with room for nothing more is shorter than the largest: ends of frames that do not fit.
const FULL_TOLERANCE_BYTES: u64 = 40;
/// Payload of the smallest datagram of full size (RFC 9000, section 14.1).
const FULL_BYTES_MIN: u64 = 1_150;
/// Time after a response in which its acknowledgements may still arrive, nanoseconds.
const AFTER_NS: u64 = 500_000_000;

impl QuicConnection {
    /// The connection of packets of the client's and the server's end. `is_whole`: all of them were decrypted.
    /// `configured_rtt_ns`: the path's round trip without queues, where no `links` are known.
    pub(super) fn new(
        [client, server]: [Option<&[QuicPacket]>; 2],
        links: Option<&ClientLinks>,
        is_whole: bool,
        configured_rtt_ns: Option<u64>,
    ) -> QuicConnection {
        let mut up = merge(Direction::Up, client, server, is_whole);
        let mut down = merge(Direction::Down, server, client, is_whole);
        let has_path = links.is_some() && client.is_some() && server.is_some();
        if let Some(links) = links.filter(|_| has_path) {
            add_parts(&mut up, &links.up);
            add_parts(&mut down, &links.down);
        }
        let exponent = parameters(&up).map_or(3, |(.., exponent)| exponent);
        let delay = delay([&up, &down], configured_rtt_ns, exponent);
        let one_way = delay.unwrap_or(OneWay { up: 0, down: 0, grounded: false });
        let mut connection = QuicConnection {
            down: Vec::new(),
            arrivals: Vec::new(),
            up: Vec::new(),
            payload: Vec::new(),
            places: Default::default(),
            connection_window: Window::new(parameters(&up).map(|(connection, ..)| connection)),
            stream_windows: HashMap::new(),
            initial_stream_window: parameters(&up).map(|(_, stream, _)| stream),
            recovery: Recovery::default(),
            ends: HashMap::new(),
            detours: delay.map_or(Vec::new(), |delay| handshake::detours([&up, &down], delay)),
            secured_at: secured_at(&up),
            delay,
            is_captured: [client.is_some(), server.is_some()],
            has_path,
            is_whole,
        };
        let pieces = connection.add_down(&down, one_way);
        connection.add_up(&up, one_way, pieces);
        connection
    }

    /// Adds the server's data; returns the places of each packet by its number.
    fn add_down(&mut self, down: &[Merged<'_>], one_way: OneWay) -> BTreeMap<u64, Vec<(u64, u64)>> {
        let mut of_number = BTreeMap::new();
        let mut largest = FULL_BYTES_MIN;
        for merged in down.iter().filter(|merged| is_data(merged.packet.kind)) {
            let QuicPacket { number, length, frames, is_ack_eliciting, .. } = merged.packet;
            let Some(at) = merged.left.or(merged.arrived.map(|at| at.saturating_sub(one_way.down))) else { continue };
            if *is_ack_eliciting {
                self.recovery.sent.push((*number, at));
            }
            let (pieces, ends) = places_of(&mut self.places[Direction::Down.index()], frames);
            for id in ends {
                let end = End { left: at, arrived: merged.arrived, is_lost: merged.is_lost, number: *number };
                self.ends.entry(id).or_default().push(end);
            }
            if pieces.is_empty() {
                continue;
            }
            let length = u64::from(*length);
            largest = largest.max(length);
            let quic = QuicSent {
                number: *number,
                arrived: merged.arrived,
                is_lost: merged.is_lost,
                wire_bytes: length.saturating_add(HEADER_BYTES),
                is_full: length.saturating_add(FULL_TOLERANCE_BYTES) >= largest,
            };
            let path = match (self.has_path, merged.parts) {
                (true, Some(parts)) => Some((parts, false)),
                (true, None) if merged.is_lost => Some((Parts::default(), true)),
                _ => None,
            };
            for (first, end) in &pieces {
                let (first, end) = (*first, *end);
                self.down.push(Sent { at, first, end, path, quic: Some(quic) });
                self.arrivals.extend(merged.arrived.map(|at| Arrival { at, first, end }));
            }
            of_number.insert(*number, pieces);
        }
        self.down.sort_by_key(|sent| sent.at);
        self.arrivals.sort_by_key(|arrival| arrival.at);
        of_number
    }

    /// Adds the client's packets: data, acknowledgements, windows. `unacked`: places of the server's packets.
    fn add_up(&mut self, up: &[Merged<'_>], one_way: OneWay, mut unacked: BTreeMap<u64, Vec<(u64, u64)>>) {
        let mut arrived = Vec::with_capacity(up.len());
        let places = &mut self.places[Direction::Up.index()];
        for merged in up.iter().filter(|merged| is_data(merged.packet.kind)) {
            let left = merged.left.or(merged.arrived.map(|at| at.saturating_sub(one_way.up)));
            let (pieces, _) = places_of(places, &merged.packet.frames);
            if let Some(left) = left {
                let packet = |(first, end): &(u64, u64)| RequestPacket { left, first: *first, end: *end };
                self.payload.extend(pieces.iter().map(packet));
            }
            let at = merged.arrived.or(left.filter(|_| !merged.is_lost).map(|left| left.saturating_add(one_way.up)));
            if let (Some(at), Some(left)) = (at, left) {
                arrived.push((at, left.min(at), merged, pieces.last().map_or(0, |(_, end)| *end)));
            }
        }
        self.payload.sort_by_key(|packet| packet.left);
        arrived.sort_by_key(|(at, ..)| *at);
        let mut acked = Acked::default();
        for (at, left, merged, end) in arrived {
            let mut reports_hole = false;
            for frame in &merged.packet.frames {
                match frame {
                    QuicFrame::Ack { ranges, .. } => {
                        reports_hole |= acknowledge(&mut acked, &mut unacked, ranges);
                        self.recovery.acks.push((at, ranges.clone()));
                    }
                    QuicFrame::MaxData { bytes } => self.connection_window.grant(at, *bytes),
                    QuicFrame::MaxStreamData { id, bytes } => {
                        let initial = self.initial_stream_window;
                        self.stream_windows.entry(*id).or_insert_with(|| Window::new(initial)).grant(at, *bytes);
                    }
                    _ => {}
                }
            }
            let (ack, has_payload) = (acked.next, end > 0);
            self.up.push(Up { left, arrived: at, ack, end, reports_hole, has_payload, parts: merged.parts });
        }
    }

    /// Whether the client's end was captured.
    pub(super) fn is_at_client(&self) -> bool {
        self.is_captured[0]
    }

    /// One-way delays without queues, up and down, nanoseconds; `None` if nothing shows them.
    pub(super) fn delays(&self) -> Option<[u64; 2]> {
        self.delay.map(|delay| [delay.up, delay.down])
    }

    /// The response on a stream whose request began at `from`, and which had arrived at `done`; `None` if the server
    /// sent nothing on it.
    pub(crate) fn response(&self, stream: u64, from: u64, done: u64) -> Option<QuicResponse> {
        let own = self.places[Direction::Down.index()].of_stream(stream).to_vec();
        if own.is_empty() {
            return None;
        }
        let until = done.saturating_add(AFTER_NS);
        let windows = Windows {
            stream: self.stream_windows.get(&stream).cloned().unwrap_or(Window::new(self.initial_stream_window)),
            connection: self.connection_window.clone(),
        };
        let request = self.places[Direction::Up.index()].of_stream(stream).last();
        Some(QuicResponse {
            down: during(&self.down, |sent| sent.at, from, until),
            arrivals: during(&self.arrivals, |arrival| arrival.at, from, until),
            up: during(&self.up, |up| up.arrived, from, until),
            payload: during(&self.payload, |packet| packet.left, from, until),
            own,
            request_end: request.map(|piece| piece.first + piece.length),
            windows,
            recovery: Recovery {
                sent: during(&self.recovery.sent, |(_, at)| *at, from, until),
                acks: during(&self.recovery.acks, |(at, _)| *at, from, until),
            },
            ends: self.ends.get(&stream).cloned().unwrap_or_default(),
            detours: self.detours.clone(),
            delay: self.delay,
            is_captured: self.is_captured,
            has_path: self.has_path,
            is_whole: self.is_whole,
        })
    }
}

/// The items of a time; they are in order of time.
fn during<T: Clone>(all: &[T], at: impl Fn(&T) -> u64, from: u64, until: u64) -> Vec<T> {
    let first = all.partition_point(|item| at(item) < from);
    let count = all[first..].partition_point(|item| at(item) <= until);
    all[first..first + count].to_vec()
}

/// Packets of one direction by space and number. Of a packet that was captured twice at an end the first counts.
fn merge<'a>(
    direction: Direction,
    sender: Option<&'a [QuicPacket]>,
    receiver: Option<&'a [QuicPacket]>,
    is_whole: bool,
) -> Vec<Merged<'a>> {
    let mut all = BTreeMap::<(u8, u64), Merged<'a>>::new();
    for (packets, is_sender) in [(sender, true), (receiver, false)] {
        for packet in packets.into_iter().flatten().filter(|packet| packet.direction == direction) {
            let empty = || Merged { packet, left: None, arrived: None, is_lost: false, parts: None };
            let merged = all.entry((space(packet.kind), packet.number)).or_insert_with(empty);
            let place = if is_sender { &mut merged.left } else { &mut merged.arrived };
            place.get_or_insert(packet.at.as_nanos());
        }
    }
    let mut all: Vec<Merged<'a>> = all.into_values().collect();
    if receiver.is_some() && is_whole {
        // Later ones may be under way at the end.
        let latest = all.iter().filter(|merged| merged.arrived.is_some()).filter_map(|merged| merged.left).max();
        for merged in &mut all {
            let is_before = merged.left.zip(latest).is_some_and(|(left, latest)| left < latest);
            merged.is_lost = is_before && merged.arrived.is_none();
        }
    }
    all
}

/// Packet number space: 0-RTT and 1-RTT share theirs.
fn space(kind: QuicPacketKind) -> u8 {
    match kind {
        QuicPacketKind::Retry | QuicPacketKind::VersionNegotiation => 0,
        QuicPacketKind::Initial => 1,
        QuicPacketKind::Handshake => 2,
        QuicPacketKind::EarlyData | QuicPacketKind::Data => 3,
    }
}

fn is_data(kind: QuicPacketKind) -> bool {
    matches!(kind, QuicPacketKind::EarlyData | QuicPacketKind::Data)
}

/// What the path did with each packet that arrived, by the configured link.
fn add_parts(all: &mut [Merged<'_>], link: &LinkFacts) {
    let mut order: Vec<usize> = (0..all.len()).filter(|place| all[*place].left.is_some()).collect();
    order.sort_by_key(|place| all[*place].arrived);
    // When the packet before left the client's own link, and how long it had waited in shared queues.
    let mut before = (0, 0);
    let mut latest_left = 0;
    for place in order {
        let (Some(left), Some(arrived)) = (all[place].left, all[place].arrived) else { continue };
        let bits = (u64::from(all[place].packet.length) + HEADER_BYTES) * 8;
        let took = arrived.saturating_sub(left);
        let overtaken = left < latest_left;
        latest_left = latest_left.max(left);
        let parts = divide(link, left, (took, overtaken), bits, before);
        before = (arrived.saturating_sub(link.delay_ns), parts.shared_queue);
        all[place].parts = Some(parts);
    }
}

/// Windows of connection and streams, and exponent of ACK delays, that the ClientHello states.
fn parameters(up: &[Merged<'_>]) -> Option<(u64, u64, u64)> {
    let frames = up.iter().rev().flat_map(|merged| &merged.packet.frames);
    frames.into_iter().find_map(|frame| match frame {
        QuicFrame::ClientParameters { connection_window, stream_window, ack_delay_exponent } => {
            Some((*connection_window, *stream_window, *ack_delay_exponent))
        }
        _ => None,
    })
}

/// The last message of the client's handshake: from then on it may send requests.
fn secured_at(up: &[Merged<'_>]) -> Option<u64> {
    let is_finished = |merged: &&Merged<'_>| {
        merged.packet.kind == QuicPacketKind::Handshake
            && merged.packet.frames.iter().any(|frame| matches!(frame, QuicFrame::Crypto { .. }))
    };
    up.iter().find(is_finished).and_then(|merged| merged.left.or(merged.arrived))
}

/// Places of a packet's stream bytes, consecutive ones together, and the streams that it ends.
fn places_of(places: &mut Places, frames: &[QuicFrame]) -> (Vec<(u64, u64)>, Vec<u64>) {
    let (mut pieces, mut ends) = (Vec::<(u64, u64)>::new(), Vec::new());
    for frame in frames {
        let QuicFrame::Stream { id, offset, length, ends: is_last } = frame else { continue };
        if *is_last {
            ends.push(*id);
        }
        for (first, end) in places.add(*id, *offset, u64::from(*length)) {
            match pieces.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => pieces.push((first, end)),
            }
        }
    }
    (pieces, ends)
}

/// The acknowledged places.
#[derive(Default)]
struct Acked {
    /// All places below were acknowledged.
    next: u64,
    /// Ranges beyond.
    later: BTreeMap<u64, u64>,
}

impl Acked {
    fn add(&mut self, (first, end): (u64, u64)) {
        let beyond = self.later.entry(first).or_insert(end);
        *beyond = (*beyond).max(end);
        while let Some((first, end)) = self.later.first_key_value().map(|(first, end)| (*first, *end)) {
            if first > self.next {
                break;
            }
            self.next = self.next.max(end);
            self.later.pop_first();
        }
    }
}

/// Acknowledges packets; true if bytes of a packet before a newly acknowledged one are missing.
fn acknowledge(acked: &mut Acked, unacked: &mut BTreeMap<u64, Vec<(u64, u64)>>, ranges: &[(u64, u64)]) -> bool {
    let mut largest = None;
    for (first, last) in ranges.iter().filter(|(first, last)| first <= last) {
        while let Some(number) = unacked.range(*first..=*last).next_back().map(|(number, _)| *number) {
            largest = largest.max(Some(number));
            unacked.remove(&number).into_iter().flatten().for_each(|piece| acked.add(piece));
        }
    }
    largest.is_some_and(|largest| unacked.first_key_value().is_some_and(|(number, _)| *number < largest))
}

/// One-way delays without queues: by the links, by the configuration, by packets of both ends, by acknowledgements.
fn delay([up, down]: [&[Merged<'_>]; 2], configured_rtt_ns: Option<u64>, exponent: u64) -> Option<OneWay> {
    let propagation =
        |all: &[Merged<'_>]| all.iter().filter_map(|merged| merged.parts).map(|parts| parts.propagation).min();
    if let (Some(up), Some(down)) = (propagation(up), propagation(down)) {
        return Some(OneWay { up, down, grounded: true });
    }
    let fastest = |all: &[Merged<'_>]| all.iter().filter_map(|merged| merged.arrived?.checked_sub(merged.left?)).min();
    let measured = fastest(up).zip(fastest(down));
    if configured_rtt_ns.is_some() || measured.is_some() {
        return OneWay::stated(configured_rtt_ns, measured);
    }
    // At one end: either direction's packets are acknowledged by the other's.
    let rtt = [round_trip(up, down, 0), round_trip(down, up, exponent)].into_iter().flatten().max()?;
    Some(OneWay { up: rtt / 2, down: rtt - rtt / 2, grounded: false })
}

/// Fastest time from a packet of `sent` to its acknowledgement among `acks`, both at the same end, without the delay
/// that the ACK states.
fn round_trip(sent: &[Merged<'_>], acks: &[Merged<'_>], exponent: u64) -> Option<u64> {
    let time = |merged: &Merged<'_>| merged.left.or(merged.arrived);
    let times: HashMap<(u8, u64), u64> = sent
        .iter()
        .filter_map(|merged| Some(((space(merged.packet.kind), merged.packet.number), time(merged)?)))
        .collect();
    let sample = |merged: &Merged<'_>| {
        let QuicFrame::Ack { ranges, delay } =
            merged.packet.frames.iter().find(|frame| matches!(frame, QuicFrame::Ack { .. }))?
        else {
            return None;
        };
        let of = space(merged.packet.kind);
        let left = times.get(&(of, ranges.first()?.1))?;
        let stated = if of == 3 { delay.checked_shl(u32::try_from(exponent).ok()?)?.saturating_mul(1_000) } else { 0 };
        time(merged)?.checked_sub(*left)?.checked_sub(stated)
    };
    acks.iter().filter_map(sample).filter(|rtt| *rtt > 0).min()
}
