//! A response over QUIC in virtual time: a server with slow start, stated windows, a probe timer and a path with a rate.

use std::collections::{BTreeMap, BTreeSet};

use schema::{Direction, QuicFrame, QuicPacket, QuicPacketKind};
use units::Timestamp;

pub const MS: u64 = 1_000_000;
/// Stream bytes of a full packet, and all of its bytes.
pub const SEGMENT: u64 = 1_200;
const PACKET_BYTES: u32 = 1_240;
/// The response's stream, and another one.
pub const OWN: u64 = 0;
pub const OTHER: u64 = 4;

/// What a response depends on.
#[derive(Clone, Debug)]
pub struct World {
    pub rtt_ns: u64,
    pub bytes: u64,
    /// Congestion window at first, packets.
    pub initial_window: u64,
    /// Windows of the client, bytes.
    pub stream_window: u64,
    pub connection_window: u64,
    /// Rate of the way down.
    pub bit_per_s: Option<u64>,
    /// Time from the request's arrival to the first byte.
    pub processing_ns: u64,
    /// After this many bytes the application writes nothing for this long.
    pub pause: Option<(u64, u64)>,
    /// Numbers of data packets that are lost.
    pub lost: BTreeSet<u64>,
    /// Packets that arrive later by this time.
    pub late: BTreeMap<u64, u64>,
    /// Every other packet is of another stream, up to this number of packets.
    pub others: u64,
    /// Time between packets, for a sender that paces.
    pub pacing_ns: u64,
    /// A server whose certificates are longer than it may send at first.
    pub long_certificates: bool,
}

impl World {
    pub fn new(rtt_ns: u64, bytes: u64) -> World {
        World {
            rtt_ns,
            bytes,
            initial_window: 10,
            stream_window: 1 << 30,
            connection_window: 1 << 30,
            bit_per_s: None,
            processing_ns: 0,
            pause: None,
            lost: BTreeSet::new(),
            late: BTreeMap::new(),
            others: 0,
            pacing_ns: 20_000,
            long_certificates: false,
        }
    }
}

/// What both ends captured, and when the load's times were.
pub struct Recording {
    pub client: Vec<QuicPacket>,
    pub server: Vec<QuicPacket>,
    pub secured_at: u64,
    pub done_at: u64,
}

fn packet(at: u64, direction: Direction, kind: QuicPacketKind, number: u64, frames: Vec<QuicFrame>) -> QuicPacket {
    let is_ack_eliciting = frames.iter().any(|frame| !matches!(frame, QuicFrame::Ack { .. }));
    let length = if is_ack_eliciting { PACKET_BYTES } else { 40 };
    let at = Timestamp::from_nanos(at);
    QuicPacket { connection: 0, at, direction, kind, number, length, is_ack_eliciting, frames }
}

/// Bytes of a packet: stream, offset, length, end.
type Data = (u64, u64, u64, bool);

struct Sim<'a> {
    world: &'a World,
    client: Vec<QuicPacket>,
    server: Vec<QuicPacket>,
    now: u64,
    window: u64,
    in_flight: BTreeMap<u64, (u64, Data)>,
    next_number: u64,
    up_number: u64,
    busy_until: u64,
    /// What reaches an end: time, order, and what it is.
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    received: BTreeSet<u64>,
    own_received: BTreeMap<u64, u64>,
    queue: Vec<Data>,
    offsets: BTreeMap<u64, u64>,
    grants: BTreeMap<u64, u64>,
    connection_grant: u64,
    sent_new: u64,
    taken: BTreeMap<u64, u64>,
    others_left: u64,
    recovery_until: u64,
    paused_until: Option<u64>,
    done_at: Option<u64>,
    probed_at: u64,
}

enum Event {
    Data(u64, Data),
    Ack(Vec<(u64, u64)>, Option<(u64, u64)>),
    Wake,
}

/// Runs a response until its last byte has arrived.
pub fn run(world: &World) -> Recording {
    let half = world.rtt_ns / 2;
    let (mut client, mut server) = (Vec::new(), Vec::new());
    let mut handshake = |left: u64, up: bool, kind, number, frames: Vec<QuicFrame>| {
        let direction = if up { Direction::Up } else { Direction::Down };
        let (from, to) = if up { (&mut client, &mut server) } else { (&mut server, &mut client) };
        from.push(packet(left, direction, kind, number, frames.clone()));
        to.push(packet(left + half, direction, kind, number, frames));
    };
    let crypto = |offset| QuicFrame::Crypto { offset, length: 1_000 };
    let parameters = QuicFrame::ClientParameters {
        connection_window: world.connection_window,
        stream_window: world.stream_window,
        ack_delay_exponent: 3,
    };
    handshake(0, true, QuicPacketKind::Initial, 0, vec![crypto(0), parameters]);
    let ack = QuicFrame::Ack { ranges: vec![(0, 0)], delay: 0 };
    handshake(half + MS, false, QuicPacketKind::Initial, 0, vec![ack, crypto(0)]);
    handshake(half + MS + 10_000, false, QuicPacketKind::Handshake, 0, vec![crypto(0)]);
    let mut secured_at = world.rtt_ns + MS + 10_000;
    if world.long_certificates {
        handshake(half + MS + 20_000, false, QuicPacketKind::Handshake, 1, vec![crypto(1_000)]);
        let ack = QuicFrame::Ack { ranges: vec![(0, 1)], delay: 0 };
        handshake(secured_at + 10_000, true, QuicPacketKind::Handshake, 0, vec![ack]);
        let again = secured_at + 10_000 + half;
        handshake(again + 10_000, false, QuicPacketKind::Handshake, 2, vec![crypto(2_000)]);
        secured_at = again + 10_000 + half;
    }
    handshake(secured_at, true, QuicPacketKind::Handshake, 1, vec![crypto(0)]);
    let request = QuicFrame::Stream { id: OWN, offset: 0, length: 100, ends: true };
    handshake(secured_at, true, QuicPacketKind::Data, 0, vec![request]);
    let mut sim = Sim {
        world,
        client,
        server,
        now: secured_at + half + world.processing_ns,
        window: world.initial_window * SEGMENT,
        in_flight: BTreeMap::new(),
        next_number: 0,
        up_number: 1,
        busy_until: 0,
        events: BTreeMap::new(),
        order: 0,
        received: BTreeSet::new(),
        own_received: BTreeMap::new(),
        queue: Vec::new(),
        offsets: BTreeMap::new(),
        grants: [(OWN, world.stream_window), (OTHER, world.stream_window)].into(),
        connection_grant: world.connection_window,
        sent_new: 0,
        taken: BTreeMap::new(),
        others_left: world.others,
        recovery_until: 0,
        paused_until: None,
        done_at: None,
        probed_at: 0,
    };
    sim.schedule(sim.now, Event::Wake);
    for _ in 0..2_000_000 {
        if sim.done_at.is_some() {
            break;
        }
        sim.step();
    }
    let done_at = sim.done_at.expect("the response ends");
    Recording { client: sim.client, server: sim.server, secured_at, done_at }
}

impl Sim<'_> {
    fn schedule(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn step(&mut self) {
        let Some(((at, _), event)) = self.events.pop_first() else {
            // Nothing is under way: the probe timer.
            self.now = self.now.max(self.probed_at) + self.world.rtt_ns * 2;
            self.probed_at = self.now;
            let (number, (_, data)) = self.in_flight.pop_first().expect("something is unacknowledged");
            let _ = number;
            return self.transmit(data);
        };
        self.now = at;
        match event {
            Event::Data(number, data) => self.arrive(number, data),
            Event::Ack(ranges, grants) => self.acknowledge(&ranges, grants),
            Event::Wake => self.send(),
        }
    }

    /// Sends what every window admits.
    fn send(&mut self) {
        loop {
            let flying: u64 = self.in_flight.values().map(|(_, data)| data.2).sum();
            if flying + SEGMENT > self.window {
                return;
            }
            if let Some(data) = self.queue.pop() {
                self.transmit(data);
                continue;
            }
            let id = if self.others_left > 0 && self.next_number % 2 == 1 { OTHER } else { OWN };
            let offset = *self.offsets.get(&id).unwrap_or(&0);
            if id == OWN && offset >= self.world.bytes {
                return;
            }
            if let Some((after, time)) = self.world.pause
                && id == OWN
                && offset >= after
            {
                let until = *self.paused_until.get_or_insert(self.now + time);
                if self.now < until {
                    return self.schedule(until, Event::Wake);
                }
            }
            let whole = if id == OWN { self.world.bytes } else { u64::MAX };
            let length = SEGMENT.min(whole - offset);
            let admitted = (self.grants[&id] - offset).min(self.connection_grant - self.sent_new).min(length);
            if admitted == 0 {
                return;
            }
            self.offsets.insert(id, offset + admitted);
            self.sent_new += admitted;
            self.others_left -= u64::from(id == OTHER);
            self.transmit((id, offset, admitted, id == OWN && offset + admitted == self.world.bytes));
        }
    }

    fn transmit(&mut self, data: Data) {
        let (number, left) = (self.next_number, self.now);
        self.next_number += 1;
        self.now += self.world.pacing_ns;
        let (id, offset, length, ends) = data;
        let frame = QuicFrame::Stream { id, offset, length: length as u32, ends };
        self.server.push(packet(left, Direction::Down, QuicPacketKind::Data, number, vec![frame]));
        self.in_flight.insert(number, (left, data));
        let bits = (u64::from(PACKET_BYTES) + 28) * 8;
        let transmission = self.world.bit_per_s.map_or(0, |rate| bits * 1_000_000_000 / rate);
        self.busy_until = self.busy_until.max(left) + transmission;
        if !self.world.lost.contains(&number) {
            let late = self.world.late.get(&number).unwrap_or(&0);
            let arrived = self.busy_until.max(left) + self.world.rtt_ns / 2 + late;
            self.schedule(arrived, Event::Data(number, data));
        }
    }

    fn arrive(&mut self, number: u64, data: Data) {
        let (id, offset, length, ends) = data;
        let frame = QuicFrame::Stream { id, offset, length: length as u32, ends };
        self.client.push(packet(self.now, Direction::Down, QuicPacketKind::Data, number, vec![frame]));
        self.received.insert(number);
        *self.taken.entry(id).or_default() += length;
        if id == OWN {
            self.own_received.insert(offset, length);
            let own: u64 = self.own_received.values().sum();
            if own == self.world.bytes {
                self.done_at = Some(self.now);
            }
        }
        let mut frames = vec![QuicFrame::Ack { ranges: ranges(&self.received), delay: 0 }];
        // The client admits as much again as it has read.
        let (all, own) = (self.taken.values().sum::<u64>(), *self.taken.get(&OWN).unwrap_or(&0));
        let grants = (own + self.world.stream_window, all + self.world.connection_window);
        frames.push(QuicFrame::MaxStreamData { id: OWN, bytes: grants.0 });
        frames.push(QuicFrame::MaxData { bytes: grants.1 });
        let ack = packet(self.now, Direction::Up, QuicPacketKind::Data, self.up_number, frames.clone());
        self.up_number += 1;
        let arrived = self.now + self.world.rtt_ns / 2;
        self.server.push(QuicPacket { at: Timestamp::from_nanos(arrived), ..ack.clone() });
        self.client.push(ack);
        let QuicFrame::Ack { ranges, .. } = frames.swap_remove(0) else { unreachable!() };
        self.schedule(arrived, Event::Ack(ranges, Some(grants)));
    }

    fn acknowledge(&mut self, ranges: &[(u64, u64)], grants: Option<(u64, u64)>) {
        let is_acked = |number: &u64| ranges.iter().any(|(first, last)| first <= number && number <= last);
        let acked: Vec<u64> = self.in_flight.keys().copied().filter(|number| is_acked(number)).collect();
        for number in acked {
            let (left, data) = self.in_flight.remove(&number).expect("it was listed");
            if left >= self.recovery_until {
                self.window += data.2;
            }
        }
        let largest = ranges[0].1;
        let lost: Vec<u64> = self.in_flight.keys().copied().filter(|number| number + 3 <= largest).collect();
        for number in lost {
            let (left, data) = self.in_flight.remove(&number).expect("it was listed");
            if left >= self.recovery_until {
                self.window = (self.window / 2).max(2 * SEGMENT);
                self.recovery_until = self.now;
            }
            self.queue.push(data);
        }
        if let Some((stream, connection)) = grants {
            let own = self.grants.get_mut(&OWN).expect("it is there");
            *own = stream.max(*own);
            self.connection_grant = self.connection_grant.max(connection);
        }
        self.send();
    }
}

/// Ranges of received numbers, from the highest on.
fn ranges(received: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges = Vec::<(u64, u64)>::new();
    for number in received.iter().rev() {
        let is_full = ranges.len() == QuicFrame::ACK_RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if last.0 == number + 1 => last.0 = *number,
            _ if is_full => break,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}
