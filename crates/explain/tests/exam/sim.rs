//! One response in virtual time: events in order of time, and everything that instruments would have seen of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use explain::{CpuInterval, CpuWait, DataFrame, LoadTimes, Packet, PathRecord, TcpSample, WindowUpdate};
use schema::Direction;
use stats::Rng;
use units::Timestamp;
use wire::tcp::flags;

use crate::path::Path;
use crate::sender::{SEGMENT, Sender};
use crate::world::{MS, Tls, World};

/// A TCP segment under way. Numbers are those of the wire, without wrap.
#[derive(Clone, Debug)]
pub struct Segment {
    pub direction: Direction,
    pub flags: u8,
    pub sequence: u64,
    pub ack: u64,
    pub length: u64,
    pub edge: u64,
    pub sack: Vec<(u64, u64)>,
    /// Whether loss and reordering apply.
    pub of_response: bool,
    /// Whether it holds the response's last byte.
    pub is_last: bool,
    /// Bytes that a WINDOW_UPDATE in it grants: stream, connection.
    grants: [u64; 2],
}

#[derive(Clone, Debug)]
enum Event {
    /// A packet passes the receiving end's capture point.
    Arrival(Segment),
    /// The receiving host processes it.
    Processing(Segment),
    /// The request of an open connection is due.
    Start,
    /// The server's application may write, or a timer may be due.
    Wake,
    AckTimer,
}

/// What instruments saw, and the true response time.
#[derive(Debug, Default)]
pub struct Recording {
    pub load: LoadTimes,
    pub client: Vec<Packet>,
    pub server: Vec<Packet>,
    pub path: Vec<PathRecord>,
    pub samples: Vec<TcpSample>,
    pub updates: Vec<WindowUpdate>,
    pub frames: Vec<DataFrame>,
    pub cpu: Vec<CpuInterval>,
    /// First sequence number of the response.
    pub response_first: u64,
}

impl Recording {
    /// Scheduled start to last byte, nanoseconds.
    pub fn response_time(&self) -> u64 {
        self.load.done_at.as_nanos() - self.load.scheduled_at.as_nanos()
    }
}

/// A message of handshake or request: direction and bytes. The next one follows when it has arrived.
type Message = (Direction, u8, u64);

struct Sim<'a> {
    world: &'a World,
    now: u64,
    /// Delays of hosts and capture, where there is noise.
    host: Rng,
    busy_until: [u64; 2],
    captured_at: [u64; 2],
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    wakes: BTreeSet<u64>,
    path: Path,
    recording: Recording,
    script: std::vec::IntoIter<Message>,
    /// Bytes of the current message that have not arrived.
    awaited: u64,
    /// Next sequence number of client and server.
    next: [u64; 2],
    sender: Option<Sender>,
    begin: u64,
    received: u64,
    beyond: BTreeMap<u64, u64>,
    unacked_packets: u32,
    ack_at: Option<u64>,
    consumed: [u64; 2],
    sampled_at: u64,
}

const START: u64 = 10_000 * MS;
/// When the connection of a response on an open connection was opened.
const CONNECTED: u64 = 2_000 * MS;
pub const REQUEST_BYTES: u64 = 120;
/// CPU time of a request where the CPU is limited, and the period of the quota.
pub const CPU_WORK: u64 = 100 * MS;
const CPU_PERIOD: u64 = 100 * MS;
/// Interval of samples of TCP_INFO.
pub const SAMPLE_INTERVAL: u64 = 5 * MS;

/// Simulates `world`.
pub fn simulate(world: &World) -> Recording {
    let mut messages = vec![(Direction::Up, flags::SYN, 1), (Direction::Down, flags::SYN | flags::ACK, 1)];
    if world.new_connection {
        match world.tls {
            Tls::None => {}
            Tls::Full => messages.extend([
                (Direction::Up, flags::ACK, 300),
                (Direction::Down, flags::ACK, 4_000),
                (Direction::Up, flags::ACK, 150),
                (Direction::Down, flags::ACK, 100),
            ]),
            Tls::Resumed => messages.extend([(Direction::Up, flags::ACK, 500), (Direction::Down, flags::ACK, 300)]),
        }
    }
    messages.push((Direction::Up, flags::ACK | flags::PSH, REQUEST_BYTES));
    let started = START + world.send_lag + world.connection_wait;
    let mut sim = Sim {
        world,
        now: if world.new_connection { started } else { CONNECTED },
        host: Rng::named(world.seed, "host"),
        busy_until: [0, 0],
        captured_at: [0, 0],
        order: 0,
        events: BinaryHeap::new(),
        pending: BTreeMap::new(),
        wakes: BTreeSet::new(),
        path: Path::new(world.seed),
        recording: Recording::default(),
        script: messages.into_iter(),
        awaited: 0,
        next: [u64::from(u32::MAX) - 100, u64::from(u32::MAX) - 50_000],
        sender: None,
        begin: u64::MAX,
        received: 0,
        beyond: BTreeMap::new(),
        unacked_packets: 0,
        ack_at: None,
        consumed: [0, 0],
        sampled_at: started,
    };
    sim.recording.load = LoadTimes {
        scheduled_at: Timestamp::from_nanos(START),
        waited_for_connection: world.connection_wait > 0,
        started_at: Some(Timestamp::from_nanos(started)),
        ..LoadTimes::default()
    };
    sim.message();
    while let Some(Reverse((at, number))) = sim.events.pop() {
        let event = sim.pending.remove(&number).expect("every event is pending once");
        sim.sample(at);
        sim.now = at;
        sim.happen(event);
        if sim.received == world.size {
            break;
        }
    }
    sim.recording.path = sim.path.records;
    if world.noise {
        merge(&mut sim.recording.server, 0);
        merge(&mut sim.recording.client, 100_000);
    }
    sim.recording
}

/// Merges contiguous downward packets that pass within `within` of each other, as segmentation offload does. The
/// merged packet has the time of its last part at the client, where parts are the same time at the server.
fn merge(packets: &mut Vec<Packet>, within: u64) {
    packets.sort_by_key(|packet| packet.at);
    let mut merged: Vec<Packet> = Vec::new();
    for packet in packets.drain(..) {
        match merged.last_mut() {
            Some(last)
                if packet.direction == Direction::Down
                    && last.direction == Direction::Down
                    && packet.length > 0
                    && last.length > 0
                    && last.length < 16 << 10
                    && last.sequence.wrapping_add(last.length) == packet.sequence
                    && packet.at.as_nanos() - last.at.as_nanos() <= within =>
            {
                last.length += packet.length;
                last.at = packet.at;
            }
            _ => merged.push(packet),
        }
    }
    *packets = merged;
}

impl Sim<'_> {
    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order)));
        self.pending.insert(self.order, event);
    }

    /// Wakes the server at `at`, unless it wakes before and then decides again.
    fn wake(&mut self, at: u64) {
        if self.wakes.first().is_none_or(|first| at < *first) {
            self.wakes.insert(at);
            self.at(at, Event::Wake);
        }
    }

    /// Sends the next message of handshake or request.
    fn message(&mut self) {
        let now = Timestamp::from_nanos(self.now);
        let Some((direction, bits, mut bytes)) = self.script.next() else { return };
        let load = &mut self.recording.load;
        if direction == Direction::Up && bits != flags::SYN && self.world.new_connection {
            load.connected_at.get_or_insert(now);
        }
        if bits & flags::PSH != 0 {
            load.sent_at = Some(now);
            load.secured_at = (self.world.new_connection && self.world.tls != Tls::None).then_some(now);
        }
        self.awaited = bytes;
        while bytes > 0 {
            let length = bytes.min(SEGMENT);
            bytes -= length;
            let is_syn = bits & flags::SYN != 0;
            let segment = self.segment(direction, bits, if is_syn { 0 } else { length });
            self.next[direction.index()] += length;
            self.send(segment);
        }
    }

    fn segment(&self, direction: Direction, flags: u8, length: u64) -> Segment {
        let (own, peer) = (self.next[direction.index()], self.next[1 - direction.index()]);
        let edge = peer + if direction == Direction::Up { self.world.receive_buffer } else { 1 << 20 };
        let ack = if flags & wire::tcp::flags::ACK == 0 { 0 } else { peer };
        Segment {
            direction,
            flags,
            sequence: own,
            ack,
            length,
            edge,
            sack: Vec::new(),
            of_response: false,
            is_last: false,
            grants: [0, 0],
        }
    }

    fn send(&mut self, segment: Segment) {
        let packet = self.packet(&segment);
        let capture =
            if segment.direction == Direction::Up { &mut self.recording.client } else { &mut self.recording.server };
        capture.push(packet);
        if let Some(at) = self.path.send(self.world, self.now, &segment) {
            self.at(at, Event::Arrival(segment));
        }
    }

    fn packet(&self, segment: &Segment) -> Packet {
        Packet {
            at: Timestamp::from_nanos(self.now),
            direction: segment.direction,
            flags: segment.flags,
            sequence: segment.sequence as u32,
            acknowledgement: segment.ack as u32,
            window: Some(segment.edge.saturating_sub(segment.ack)),
            length: segment.length as u32,
            sack: segment.sack.iter().map(|(first, end)| (*first as u32, *end as u32)).collect(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(segment) => {
                let way = segment.direction.index();
                let mut packet = self.packet(&segment);
                let mut at = self.now;
                if self.world.noise {
                    let seen = (self.now + self.host.below(20_000)).max(self.captured_at[way]);
                    self.captured_at[way] = seen;
                    packet.at = Timestamp::from_nanos(seen);
                    at = self.busy_until[way].max(self.now + 20_000 + self.host.below(150_000));
                    self.busy_until[way] = at;
                }
                match segment.direction {
                    Direction::Up => self.recording.server.push(packet),
                    Direction::Down => self.recording.client.push(packet),
                }
                self.at(at, Event::Processing(segment));
            }
            Event::Processing(segment) => self.process(&segment),
            Event::Start => self.message(),
            Event::Wake => {
                self.wakes.remove(&self.now);
                if let Some(sender) = &mut self.sender
                    && sender.timeout_at.is_some_and(|at| at <= self.now)
                {
                    sender.fire(self.world, self.now);
                }
                self.transmit();
            }
            Event::AckTimer => {
                if self.ack_at.is_some_and(|at| at <= self.now) {
                    self.acknowledge([0, 0], None);
                }
            }
        }
    }

    /// A host processes a packet.
    fn process(&mut self, segment: &Segment) {
        if segment.of_response {
            self.data(segment);
        } else if self.sender.is_some() {
            self.acknowledged(segment);
        } else if segment.length > 0 || segment.flags & flags::SYN != 0 {
            self.awaited -= segment.length + u64::from(segment.flags & flags::SYN != 0);
            if self.awaited == 0 && segment.flags & flags::PSH != 0 {
                self.serve();
            } else if self.awaited == 0 && segment.flags == flags::SYN | flags::ACK && !self.world.new_connection {
                let ack = self.segment(Direction::Up, flags::ACK, 0);
                self.send(ack);
                let started = self.recording.load.started_at.expect("set at the beginning");
                self.at(started.as_nanos(), Event::Start);
            } else if self.awaited == 0 {
                self.message();
            }
        }
    }

    /// The request has arrived at the server.
    fn serve(&mut self) {
        self.recording.response_first = self.next[1];
        let mut at = self.now + self.world.processing;
        if self.world.cpu_percent < 100 {
            let quota = CPU_PERIOD * self.world.cpu_percent / 100;
            let mut left = CPU_WORK;
            while left > quota {
                (left, at) = (left - quota, at + quota);
                let to = at + CPU_PERIOD - quota;
                let (from, until) = (Timestamp::from_nanos(at), Timestamp::from_nanos(to));
                self.recording.cpu.push(CpuInterval { from, to: until, why: CpuWait::Throttled });
                at = to;
            }
            at += left;
        }
        self.begin = at;
        self.sender = Some(Sender::new(self.world));
        self.wake(at);
    }

    /// The server sends what it may.
    fn transmit(&mut self) {
        let Some(mut sender) = self.sender.take() else { return };
        for (first, length) in sender.send(self.world, self.begin, self.now) {
            let mut segment = self.segment(Direction::Down, flags::ACK, length);
            segment.sequence = self.recording.response_first + first;
            segment.of_response = true;
            segment.is_last = first + length == self.world.size;
            self.send(segment);
        }
        for at in [sender.timeout_at, sender.paused_until, Some(sender.paced_until)].into_iter().flatten() {
            if at > self.now {
                self.wake(at);
            }
        }
        self.sender = Some(sender);
    }

    /// An ACK or window update arrived at the server.
    fn acknowledged(&mut self, segment: &Segment) {
        let Some(sender) = &mut self.sender else { return };
        let base = self.recording.response_first;
        let sack: Vec<(u64, u64)> = segment.sack.iter().map(|(first, end)| (first - base, end - base)).collect();
        sender.granted[0] = sender.granted[0].saturating_add(segment.grants[0]);
        sender.granted[1] = sender.granted[1].saturating_add(segment.grants[1]);
        sender.edge = sender.edge.max(segment.edge - base);
        sender.acknowledge(self.world, self.now, segment.ack - base, &sack);
        self.transmit();
    }

    /// Response data arrived at the client.
    fn data(&mut self, segment: &Segment) {
        let now = Timestamp::from_nanos(self.now);
        let first = segment.sequence - self.recording.response_first;
        let end = first + segment.length;
        let was = self.received;
        if first > self.received {
            self.beyond.insert(first, end);
        } else {
            self.received = self.received.max(end);
            while let Some(entry) = self.beyond.first_entry().filter(|entry| *entry.key() <= self.received) {
                self.received = self.received.max(entry.remove());
            }
        }
        let new = self.received - was;
        let load = &mut self.recording.load;
        if new > 0 {
            load.first_byte_at.get_or_insert(now);
            self.recording.frames.push(DataFrame { at: now, stream: 1, bytes: new });
        }
        load.done_at = Timestamp::from_nanos(self.now + self.world.receive_lag);
        let grants = self.window_updates(new);
        self.unacked_packets += 1;
        let in_order = new == segment.length && self.beyond.is_empty();
        if self.world.ack_delay == 0 || !in_order || self.unacked_packets >= 2 || grants != [0, 0] {
            self.acknowledge(grants, (first > was).then_some(first));
        } else {
            self.ack_at = Some(self.now + self.world.ack_delay);
            self.at(self.now + self.world.ack_delay, Event::AckTimer);
        }
    }

    /// What the client's HTTP/2 grants after consuming `new` bytes: an update after each half window.
    fn window_updates(&mut self, new: u64) -> [u64; 2] {
        let windows = [self.world.stream_window, self.world.connection_window];
        let mut grants = [0, 0];
        for (place, stream) in [(0, 1), (1, 0)] {
            let Some(window) = windows[place] else { continue };
            self.consumed[place] += new;
            if self.consumed[place] * 2 >= window {
                grants[place] = std::mem::take(&mut self.consumed[place]);
                let at = Timestamp::from_nanos(self.now);
                self.recording.updates.push(WindowUpdate { at, stream, increment: grants[place] });
            }
        }
        grants
    }

    fn acknowledge(&mut self, grants: [u64; 2], latest: Option<u64>) {
        (self.unacked_packets, self.ack_at) = (0, None);
        let base = self.recording.response_first;
        let length = 13 * grants.iter().filter(|grant| **grant > 0).count() as u64;
        let mut segment = self.segment(Direction::Up, flags::ACK, length);
        self.next[0] += length;
        segment.ack = base + self.received;
        segment.edge = segment.ack + self.world.receive_buffer;
        segment.grants = grants;
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for (first, end) in &self.beyond {
            match blocks.last_mut() {
                Some(last) if last.1 == base + first => last.1 = base + end,
                _ => blocks.push((base + first, base + end)),
            }
        }
        // The block of the latest arrival comes first, and there is room for three.
        if let Some(first) = latest {
            blocks.sort_by_key(|(from, end)| !(*from <= base + first && base + first < *end));
        }
        blocks.truncate(3);
        segment.sack = blocks;
        self.send(segment);
    }

    /// TCP_INFO as a sampler would have read it until `until`.
    fn sample(&mut self, until: u64) {
        let Some(sender) = &self.sender else { return };
        self.sampled_at = self.sampled_at.max(self.now.next_multiple_of(SAMPLE_INTERVAL));
        while self.sampled_at < until {
            self.recording.samples.push(TcpSample {
                at: Timestamp::from_nanos(self.sampled_at),
                congestion_window: sender.window.min(1e9) as u32,
                segment_bytes: SEGMENT as u32,
                min_rtt_ns: None,
                pacing_rate: None,
                unsent_bytes: Some(sender.unsent()),
                send_buffer_limited_ns: sender.buffer_limited_at(self.sampled_at),
            });
            self.sampled_at += SAMPLE_INTERVAL;
        }
    }
}
