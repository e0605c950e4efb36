//! The whole path: frames in, departures out, each at its computed time.

mod travel;

use std::mem;

use schema::{Direction, DropCause};
use units::{Bytes, Timestamp};
use wire::vnet;

use crate::address::AddressPlan;
use crate::counters::Counters;
use crate::effect::Fate;
use crate::frame::{FRAME_MAX, Frame, OnWire};
use crate::link::{ClientLink, Links};
use crate::nat::Nat;
use crate::pool::{Buffer, Pool};
use crate::queue::{Outcome, Queue};
use crate::spec::PathSpec;
use crate::split::SuperPacket;
use crate::timeline::Start;
use crate::timing_error::TimingErrors;
use crate::wheel::Wheel;

pub(crate) use travel::Event;

/// Maximum number of clients of one path: that of the address plan.
pub const MAX_CLIENTS: u32 = AddressPlan::CLIENTS_MAX;

/// The path between all virtual clients and the server, without the devices at its two ends.
///
/// The loop that owns the devices calls it as follows, always with the clock's present reading; times must not decrease
/// from call to call.
///
/// 1. A frame was read: [`Self::handle_packet`]. Or read it into [`Self::read_buffer`] and call [`Self::handle_read`],
///    which does not copy large frames.
/// 2. [`Self::poll_due`] until it returns `None`. Write each [`Departure`] at the far end immediately: read the clock,
///    write, and if the write succeeded call [`Self::handle_written`] with that time.
/// 3. Sleep until [`Self::next_due`] or until a frame can be read.
///
/// If the path has changes during a run, [`Self::set_start`] sets the time from which they count.
///
/// In steady state no call allocates, formats or locks.
#[derive(Debug)]
pub struct Network {
    addresses: AddressPlan,
    /// Address translation, if it ever changes.
    nat: Option<Box<Nat>>,
    links: Links,
    /// Packets that leave the path, in order of departure time.
    wheel: Wheel<PacketInTransit>,
    /// Events inside the path, in order of time; created on first use.
    events: Option<Wheel<Event>>,
    queues: Vec<Queue<PacketInTransit>>,
    /// Packets that a queue has released, while they are processed.
    outbox: Vec<(PacketInTransit, Outcome)>,
    start: Start,
    pool: Pool,
    /// Buffer that [`Self::read_buffer`] returns; a buffer of the pool's largest size.
    staging: Box<[u8]>,
    /// The departure returned last by `poll_due`, until it is written or the next call shows that it was not.
    writing: Option<Writing>,
    counters: [Counters; 2],
    timing_errors: TimingErrors,
    is_shut_down: bool,
}

/// A packet to be written at the far end now.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Up: to be written at the server's end. Down: at the clients' end.
    pub direction: Direction,
    /// The client whose path the packet travelled, counted from 0.
    pub client: u32,
    /// When the packet was due to leave the path.
    pub due: Timestamp,
    /// When the path accepted the packet.
    pub arrived: Timestamp,
    /// vnet header and IP packet.
    pub frame: &'a [u8],
    /// Number of wire packets in the frame: more than 1 for a super-packet that passes uncut.
    pub wire_packets: u32,
}

/// The record of a packet in transit; with the wheel's own fields, one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketInTransit {
    arrived: Timestamp,
    client: u32,
    wire: OnWire,
    buffer: Buffer,
    length: u32,
    direction: Direction,
    /// The next effect on its link, and the link, as numbered by [`Links::special`]; both only for special links.
    node: u8,
    link: u16,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    due: Timestamp,
    packet: PacketInTransit,
}

/// A packet that was accepted.
#[derive(Clone, Copy)]
struct AcceptedPacket {
    arrived: Timestamp,
    client: u32,
    wire: OnWire,
    direction: Direction,
}

/// The next step of an accepted packet.
enum NextStep {
    /// The packet leaves the path at this time.
    Departs(Timestamp),
    /// The packet enters a special link now.
    Enters,
}

impl Network {
    /// Default limit of the memory for packets in transit and in queues, in whole buffers: 4 GiB. That is 2 GB/s over
    /// two seconds of delay, or 60 KB waiting for each of 65,534 clients; a configuration that needs more is probably a
    /// mistake and must not exhaust the machine's memory.
    pub const MEMORY_LIMIT: Bytes = Bytes(4 << 30);

    /// The path `path`; client number `i` has the address `addresses.address(i)`. All randomness derives from `seed`;
    /// the fate of one client's packets does not depend on those of others.
    ///
    /// # Panics
    /// When the numbers of clients and addresses differ, when a change names a shared link that does not exist, when a
    /// link has more than 250 effects.
    pub fn new(addresses: AddressPlan, path: &PathSpec, seed: u64) -> Self {
        assert_eq!(path.clients.len(), addresses.clients as usize, "one path for each client address");
        let (links, queues) = Links::new(path, seed);
        Network {
            addresses,
            nat: Nat::new(addresses, &path.changes).map(Box::new),
            links,
            wheel: Wheel::new(),
            events: None,
            queues,
            outbox: Vec::new(),
            start: Start::default(),
            pool: Pool::new(Self::MEMORY_LIMIT),
            staging: Pool::staging(),
            writing: None,
            counters: [Counters::default(), Counters::default()],
            timing_errors: TimingErrors::new(),
            is_shut_down: false,
        }
    }

    /// Changes the limit of the memory for packets in transit, in whole buffers. Packets in transit stay.
    pub fn set_memory_limit(&mut self, limit: Bytes) {
        self.pool.set_limit(limit);
    }

    /// Sets the time from which changes, delay series and traces count: usually the beginning of the measured phase,
    /// and not before the present. Until this call, and before that time, no change has begun, delays are those at the
    /// beginning of their file, and traces count from time zero; at that time they restart.
    pub fn set_start(&mut self, start: Timestamp) {
        self.start = Start(Some(start));
        self.restart_queues();
    }

    /// Accepts a frame from one end: vnet header and IP packet, up from the clients' device or down from the server's.
    /// Any frame is accepted and counted; its fate is computed now and carried out when due.
    #[inline]
    pub fn handle_packet(&mut self, now: Timestamp, direction: Direction, frame: &[u8]) {
        if self.nat.is_some() && frame.len() <= FRAME_MAX {
            self.read_buffer()[..frame.len()].copy_from_slice(frame);
            return self.handle_read(now, direction, frame.len());
        }
        self.advance(now);
        if let Some(accepted) = self.admit(now, direction, frame) {
            let buffer = self.pool.copy(frame);
            self.admit_packet(accepted, buffer, frame.len());
        }
    }

    /// A buffer for one frame of any length, to read into and pass on by [`Self::handle_read`].
    #[inline]
    pub fn read_buffer(&mut self) -> &mut [u8] {
        &mut self.staging[..FRAME_MAX]
    }

    /// Like [`Self::handle_packet`] with the first `length` bytes of [`Self::read_buffer`]. A large frame stays in its
    /// buffer, and the next read buffer is another one.
    ///
    /// # Panics
    /// When `length` exceeds the read buffer.
    #[inline]
    pub fn handle_read(&mut self, now: Timestamp, direction: Direction, length: usize) {
        self.advance(now);
        let mut staging = mem::take(&mut self.staging);
        if let Some(nat) = &mut self.nat
            && !nat.translate(now, self.start, direction, &mut staging[..length])
        {
            self.drop_unmapped(direction, &staging[..length]);
            self.staging = staging;
            return;
        }
        if let Some(accepted) = self.admit(now, direction, &staging[..length]) {
            let buffer = if length > Pool::COPIED_MAX {
                self.pool.adopt(&mut staging)
            } else {
                self.pool.copy(&staging[..length])
            };
            self.admit_packet(accepted, buffer, length);
        }
        self.staging = staging;
    }

    /// The time of the next event: the earliest departure, exactly, or an event inside the path before it (polling at
    /// that time may then return nothing and set another time). `None` when no packet is in transit.
    #[inline]
    pub fn next_due(&self) -> Option<Timestamp> {
        let departure = self.wheel.next_due();
        match self.events.as_ref().and_then(Wheel::next_due) {
            Some(event) => Some(departure.map_or(event, |departure| departure.min(event))),
            None => departure,
        }
    }

    /// The next packet due at `now` or before, in order of (due, arrival). Valid until the next call. A departure
    /// without a following [`Self::handle_written`] was rejected by the device: it is dropped as malformed now.
    #[inline]
    pub fn poll_due(&mut self, now: Timestamp) -> Option<Departure<'_>> {
        if self.writing.is_some() {
            self.finish_writing(None);
        }
        self.advance(now);
        let (due, packet) = self.wheel.pop(now)?;
        self.writing = Some(Writing { due, packet });
        Some(Departure {
            direction: packet.direction,
            client: packet.client,
            due,
            arrived: packet.arrived,
            frame: self.pool.bytes(packet.buffer, packet.length as usize),
            wire_packets: packet.wire.packets,
        })
    }

    /// The departure returned last was written; `now` is the time just before the write. Counts it as delivered and
    /// records its timing error. Without such a departure the call has no effect.
    #[inline]
    pub fn handle_written(&mut self, now: Timestamp) {
        self.finish_writing(Some(now));
    }

    /// The caller waited until `woken`, although [`Self::next_due`] was `due`: the machine woke it late. Timing errors are
    /// also counted without such waits ([`TimingErrors::own`]); nothing else changes.
    pub fn handle_late_wakeup(&mut self, due: Timestamp, woken: Timestamp) {
        self.timing_errors.note_late_wakeup(due, woken);
    }

    /// Ends the path: drops everything in transit for the shutdown, and everything that arrives later.
    pub fn shut_down(&mut self) {
        self.finish_writing(None);
        self.is_shut_down = true;
        self.drop_waiting_packets();
        while let Some((_, packet)) = self.wheel.pop(Timestamp::MAX) {
            self.remove_from_transit(packet, Some(DropCause::Shutdown));
        }
    }

    /// The measured phase begins: discards the timing errors so far. Counters continue.
    pub fn reset_timing_errors(&mut self) {
        self.timing_errors.reset();
    }

    /// Packets accepted, delivered, dropped and in transit, in one direction.
    pub fn counters(&self, direction: Direction) -> &Counters {
        &self.counters[direction.index()]
    }

    /// Timing errors of the departures.
    pub fn timing_errors(&self) -> &TimingErrors {
        &self.timing_errors
    }

    /// Counts a frame. `Some` when it continues as it is; otherwise it was dropped, or cut and its segments are already
    /// in transit.
    #[inline]
    fn admit(&mut self, now: Timestamp, direction: Direction, bytes: &[u8]) -> Option<AcceptedPacket> {
        let counters = &mut self.counters[direction.index()];
        let parsed = Frame::parse(direction, bytes).and_then(|frame| {
            self.addresses.index(frame.client).map(|client| (frame, client)).ok_or(DropCause::NoRoute)
        });
        let (frame, client) = match parsed {
            Ok(known) if !self.is_shut_down => known,
            rejected => {
                let cause = rejected.map_or_else(|cause| cause, |_| DropCause::Shutdown);
                let wire = rejected.map_or(OnWire::unknown(bytes), |(frame, _)| frame.wire);
                counters.accept(wire);
                counters.drop(cause, wire);
                return None;
            }
        };
        counters.accept(frame.wire);
        if let Some(super_packet) = &frame.super_packet
            && self.links.own(client, direction).acts_per_wire_packet()
        {
            self.admit_segments(now, direction, client, super_packet);
            return None;
        }
        self.links.touch(client, direction);
        Some(AcceptedPacket { arrived: now, client, wire: frame.wire, direction })
    }

    /// Counts a frame without a mapping.
    #[cold]
    fn drop_unmapped(&mut self, direction: Direction, frame: &[u8]) {
        let wire = Frame::parse(direction, frame).map_or(OnWire::unknown(frame), |frame| frame.wire);
        let counters = &mut self.counters[direction.index()];
        counters.accept(wire);
        counters.drop(DropCause::Unmapped, wire);
    }

    /// The wire packets of a super-packet reach the link one after the other at the same time. Only those that are not
    /// dropped are written out.
    fn admit_segments(&mut self, now: Timestamp, direction: Direction, client: u32, super_packet: &SuperPacket<'_>) {
        for number in 0..super_packet.segments() {
            let wire = OnWire::one(super_packet.segment_len(number));
            let accepted = AcceptedPacket { arrived: now, client, wire, direction };
            let Some(next_step) = self.apply_client_link(&accepted) else { continue };
            let length = vnet::LEN + wire.bytes as usize;
            let Some(buffer) = self.pool.take(length) else {
                self.counters[direction.index()].overflow(wire);
                continue;
            };
            super_packet.write_segment(number, self.pool.bytes_mut(buffer, length));
            self.put_in_transit(accepted, next_step, buffer, length);
        }
    }

    /// Puts a packet in transit if it has a buffer and the link does not drop it.
    #[inline]
    fn admit_packet(&mut self, accepted: AcceptedPacket, buffer: Option<Buffer>, length: usize) {
        let Some(buffer) = buffer else {
            self.counters[accepted.direction.index()].overflow(accepted.wire);
            return;
        };
        match self.apply_client_link(&accepted) {
            Some(next_step) => self.put_in_transit(accepted, next_step, buffer, length),
            None => self.pool.release(buffer),
        }
    }

    /// Applies the client's own link to a packet; `None` when the link drops it.
    #[inline]
    fn apply_client_link(&mut self, accepted: &AcceptedPacket) -> Option<NextStep> {
        match self.links.own(accepted.client, accepted.direction) {
            ClientLink::Plain(mut link) => match link.handle(accepted.arrived, Bytes(u64::from(accepted.wire.bytes))) {
                Fate::Leaves(due) => Some(NextStep::Departs(due)),
                Fate::Dropped(cause) => {
                    self.counters[accepted.direction.index()].drop(cause, accepted.wire);
                    None
                }
            },
            ClientLink::Special { .. } => Some(NextStep::Enters),
        }
    }

    /// Puts a packet in transit.
    #[inline]
    fn put_in_transit(&mut self, accepted: AcceptedPacket, next_step: NextStep, buffer: Buffer, length: usize) {
        let AcceptedPacket { arrived, client, wire, direction } = accepted;
        self.counters[direction.index()].enter_transit(wire);
        let packet =
            PacketInTransit { arrived, client, wire, buffer, length: length as u32, direction, node: 0, link: 0 };
        match next_step {
            NextStep::Departs(due) => self.wheel.push(arrived, due, packet),
            NextStep::Enters => self.enter(packet),
        }
    }

    /// A packet enters the first link on its way, if that link is special.
    #[inline(never)]
    fn enter(&mut self, packet: PacketInTransit) {
        let link = self.links.first(packet.client, packet.direction);
        self.travel(packet.arrived, packet.arrived, PacketInTransit { link, ..packet });
    }

    /// Ends the departure that was returned last, if any: written at the given time, or rejected.
    #[inline]
    fn finish_writing(&mut self, written: Option<Timestamp>) {
        let Some(Writing { due, packet }) = self.writing.take() else { return };
        if let Some(now) = written {
            self.timing_errors.record(due, now);
        }
        self.remove_from_transit(packet, if written.is_some() { None } else { Some(DropCause::Malformed) });
    }

    /// Removes a packet from transit: delivered, or dropped.
    #[inline]
    fn remove_from_transit(&mut self, packet: PacketInTransit, dropped: Option<DropCause>) {
        self.pool.release(packet.buffer);
        let counters = &mut self.counters[packet.direction.index()];
        counters.leave_transit(packet.wire);
        match dropped {
            None => counters.deliver(packet.wire),
            Some(cause) => counters.drop(cause, packet.wire),
        }
    }
}
