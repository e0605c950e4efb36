//! The whole path: frames in, departures out, each at its moment.

mod travel;

use std::mem;

use schema::{Direction, DropCause};
use units::{Bytes, Timestamp};
use wire::vnet;

use crate::address::AddressPlan;
use crate::counters::Counters;
use crate::effect::Fate;
use crate::frame::{FRAME_MAX, Frame, OnWire};
use crate::lateness::Lateness;
use crate::link::{Links, Own};
use crate::pool::{Buffer, Pool};
use crate::queue::{Outcome, Queue};
use crate::spec::PathSpec;
use crate::split::SuperPacket;
use crate::timeline::Start;
use crate::wheel::Wheel;

pub(crate) use travel::Event;

/// Most clients one path can have: those of the address plan.
pub const MAX_CLIENTS: u32 = AddressPlan::CLIENTS_MAX;

/// The path between all virtual clients and the server, without the devices at its two ends.
///
/// The loop that owns the devices calls it like this, always with the clock's present reading; moments must not go
/// back from call to call.
///
/// 1. A frame was read: [`Self::handle_packet`]. Or read it into [`Self::read_buffer`] and call
///    [`Self::handle_read`], which does not copy large frames.
/// 2. [`Self::poll_due`] until it gives `None`. Each [`Departure`] is to be written at the far end at once: take the
///    time, write, and if the write succeeded call [`Self::handle_written`] with that time.
/// 3. Sleep until [`Self::next_due`] or until a frame can be read.
///
/// Where something is to change during a run, [`Self::set_start`] says when its time begins.
///
/// When nothing of a new kind happens it neither allocates nor formats nor locks.
#[derive(Debug)]
pub struct Network {
    addresses: AddressPlan,
    links: Links,
    /// What leaves the path, in order of when.
    wheel: Wheel<Held>,
    /// What happens inside the path, in order of when; made when first needed.
    events: Option<Wheel<Event>>,
    queues: Vec<Queue<Held>>,
    /// What a queue has let go of, while it is seen to.
    outbox: Vec<(Held, Outcome)>,
    start: Start,
    pool: Pool,
    /// Where [`Self::read_buffer`] lets frames be read into; a buffer of the pool's largest size.
    staging: Box<[u8]>,
    /// The departure last polled, until it is written or the next call shows that it was not.
    writing: Option<Writing>,
    counters: [Counters; 2],
    lateness: Lateness,
    is_shut_down: bool,
}

/// A packet to be written at the far end now.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Up: to be written at the server's end. Down: at the clients' end.
    pub direction: Direction,
    /// The client whose path it travelled, counted from 0.
    pub client: u32,
    /// When it was to leave the path.
    pub due: Timestamp,
    /// When it was handed in.
    pub arrived: Timestamp,
    /// vnet header and IP packet.
    pub frame: &'a [u8],
    /// Wire packets it stands for: more than 1 for a super-packet that passes whole.
    pub wire_packets: u32,
}

/// What is kept of a packet on its way; with the wheel's own part, one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    arrived: Timestamp,
    client: u32,
    wire: OnWire,
    buffer: Buffer,
    length: u32,
    direction: Direction,
    /// The effect of its link that it meets next, and the link, as [`Links::special`] names it; both only where links
    /// are special.
    node: u8,
    link: u16,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    due: Timestamp,
    held: Held,
}

/// A packet that was accepted.
#[derive(Clone, Copy)]
struct Passage {
    arrived: Timestamp,
    client: u32,
    wire: OnWire,
    direction: Direction,
}

/// Where it goes.
enum Onward {
    /// It leaves the path at this moment.
    Departs(Timestamp),
    /// It enters a special link now.
    Enters,
}

impl Network {
    /// Bytes of packets held at most, those in queues included, unless set otherwise, counted in whole buffers: 4 GiB. That is 2 GB/s over two
    /// seconds of delay, or 60 KB waiting for each of 65,534 clients; whoever needs more has made a mistake that
    /// should not take the machine with it.
    pub const MEMORY_LIMIT: Bytes = Bytes(4 << 30);

    /// The path `path`, of whose clients number `i` has the address `addresses.address(i)`. All randomness comes from
    /// `seed`; what happens to one client's packets does not depend on those of others.
    ///
    /// # Panics
    /// When there are not as many clients as addresses, when a change names a shared link that there is not, when a
    /// link has more than 250 effects.
    pub fn new(addresses: AddressPlan, path: &PathSpec, seed: u64) -> Self {
        assert_eq!(path.clients.len(), addresses.clients as usize, "one path for each client address");
        let (links, queues) = Links::new(path, seed);
        Network {
            addresses,
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
            lateness: Lateness::new(),
            is_shut_down: false,
        }
    }

    /// Changes how many bytes may be held, counted in whole buffers. What is held already stays.
    pub fn set_memory_limit(&mut self, limit: Bytes) {
        self.pool.set_limit(limit);
    }

    /// Says from which moment the changes of the path count, and delays and traces that follow a file: usually that at
    /// which the measured phase begins, and not before the present. Until it is said, and before that moment, no
    /// change has begun, delays are those at the beginning of their file, and traces count from time zero; then they
    /// begin anew.
    pub fn set_start(&mut self, start: Timestamp) {
        self.start = Start(Some(start));
        self.restart_queues();
    }

    /// A frame came in at one end: vnet header and IP packet, up from the clients' device or down from the server's.
    /// Whatever it is, it is accepted and counted; what becomes of it is computed, and done when due.
    #[inline]
    pub fn handle_packet(&mut self, now: Timestamp, direction: Direction, frame: &[u8]) {
        self.advance(now);
        if let Some(passage) = self.admit(now, direction, frame) {
            let buffer = self.pool.copy(frame);
            self.send_on(passage, buffer, frame.len());
        }
    }

    /// Room for one frame of any length, to be read into and handed in by [`Self::handle_read`].
    #[inline]
    pub fn read_buffer(&mut self) -> &mut [u8] {
        &mut self.staging[..FRAME_MAX]
    }

    /// Like [`Self::handle_packet`] with the first `length` bytes of [`Self::read_buffer`]. A large frame is kept
    /// where it is, and the next read buffer is another one.
    ///
    /// # Panics
    /// When `length` is more than the read buffer has.
    #[inline]
    pub fn handle_read(&mut self, now: Timestamp, direction: Direction, length: usize) {
        self.advance(now);
        let mut staging = mem::take(&mut self.staging);
        if let Some(passage) = self.admit(now, direction, &staging[..length]) {
            let buffer = if length > Pool::COPIED_MAX {
                self.pool.adopt(&mut staging)
            } else {
                self.pool.copy(&staging[..length])
            };
            self.send_on(passage, buffer, length);
        }
        self.staging = staging;
    }

    /// When the next thing happens: the earliest departure, exactly, or something inside the path before it (then
    /// polling at that moment may give nothing, and this another moment). `None` when nothing is on the way.
    #[inline]
    pub fn next_due(&self) -> Option<Timestamp> {
        let departure = self.wheel.next_due();
        match self.events.as_ref().and_then(Wheel::next_due) {
            Some(event) => Some(departure.map_or(event, |departure| departure.min(event))),
            None => departure,
        }
    }

    /// The next packet due at `now` or before, in order of (due, arrival). Valid until the next call. A departure that
    /// was not followed by [`Self::handle_written`] was refused by the device: it is dropped as malformed now.
    #[inline]
    pub fn poll_due(&mut self, now: Timestamp) -> Option<Departure<'_>> {
        if self.writing.is_some() {
            self.finish_writing(None);
        }
        self.advance(now);
        let (due, held) = self.wheel.pop(now)?;
        self.writing = Some(Writing { due, held });
        Some(Departure {
            direction: held.direction,
            client: held.client,
            due,
            arrived: held.arrived,
            frame: self.pool.bytes(held.buffer, held.length as usize),
            wire_packets: held.wire.packets,
        })
    }

    /// The departure last polled was written; `now` is the moment just before. Counts it delivered and its lateness.
    /// Without such a departure nothing happens.
    #[inline]
    pub fn handle_written(&mut self, now: Timestamp) {
        self.finish_writing(Some(now));
    }

    /// Ends the path: everything on the way is dropped for the shutdown, and so is what is handed in from now on.
    pub fn shut_down(&mut self) {
        self.finish_writing(None);
        self.is_shut_down = true;
        self.empty_events();
        while let Some((_, held)) = self.wheel.pop(Timestamp::MAX) {
            self.let_go(held, Some(DropCause::Shutdown));
        }
    }

    /// The measured phase begins: forgets lateness so far. Counters go on.
    pub fn reset_lateness(&mut self) {
        self.lateness.reset();
    }

    /// What was accepted, delivered, dropped and is held, in one direction.
    pub fn counters(&self, direction: Direction) -> &Counters {
        &self.counters[direction.index()]
    }

    /// How late departures were written.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Counts a frame. `Some` when it goes on as it is; otherwise it was dropped, or cut and its pieces are on the way
    /// already.
    #[inline]
    fn admit(&mut self, now: Timestamp, direction: Direction, bytes: &[u8]) -> Option<Passage> {
        let counters = &mut self.counters[direction.index()];
        let parsed = Frame::parse(direction, bytes).and_then(|frame| {
            self.addresses.index(frame.client).map(|client| (frame, client)).ok_or(DropCause::NoRoute)
        });
        let (frame, client) = match parsed {
            Ok(known) if !self.is_shut_down => known,
            refused => {
                let cause = refused.map_or_else(|cause| cause, |_| DropCause::Shutdown);
                let wire = refused.map_or(OnWire::unknown(bytes), |(frame, _)| frame.wire);
                counters.accept(wire);
                counters.drop(cause, wire);
                return None;
            }
        };
        counters.accept(frame.wire);
        if let Some(whole) = &frame.super_packet
            && self.links.own(client, direction).acts_per_wire_packet()
        {
            self.admit_segments(now, direction, client, whole);
            return None;
        }
        self.links.touch(client, direction);
        Some(Passage { arrived: now, client, wire: frame.wire, direction })
    }

    /// The wire packets of a super-packet reach the link one after the other at the same moment. Only those that get
    /// through are written out.
    fn admit_segments(&mut self, now: Timestamp, direction: Direction, client: u32, whole: &SuperPacket<'_>) {
        for number in 0..whole.segments() {
            let wire = OnWire::one(whole.segment_len(number));
            let passage = Passage { arrived: now, client, wire, direction };
            let Some(onward) = self.meet(&passage) else { continue };
            let length = vnet::LEN + wire.bytes as usize;
            let Some(buffer) = self.pool.take(length) else {
                self.counters[direction.index()].overflow(wire);
                continue;
            };
            whole.write_segment(number, self.pool.bytes_mut(buffer, length));
            self.hold(passage, onward, buffer, length);
        }
    }

    /// A packet that is in a buffer goes on, if there was one for it and the link lets it.
    #[inline]
    fn send_on(&mut self, passage: Passage, buffer: Option<Buffer>, length: usize) {
        let Some(buffer) = buffer else {
            self.counters[passage.direction.index()].overflow(passage.wire);
            return;
        };
        match self.meet(&passage) {
            Some(onward) => self.hold(passage, onward, buffer, length),
            None => self.pool.release(buffer),
        }
    }

    /// What its own link does with a packet; `None` when it has dropped it.
    #[inline]
    fn meet(&mut self, passage: &Passage) -> Option<Onward> {
        match self.links.own(passage.client, passage.direction) {
            Own::Plain(mut link) => match link.handle(passage.arrived, Bytes(u64::from(passage.wire.bytes))) {
                Fate::Leaves(due) => Some(Onward::Departs(due)),
                Fate::Dropped(cause) => {
                    self.counters[passage.direction.index()].drop(cause, passage.wire);
                    None
                }
            },
            Own::Special { .. } => Some(Onward::Enters),
        }
    }

    /// Puts a packet on its way.
    #[inline]
    fn hold(&mut self, passage: Passage, onward: Onward, buffer: Buffer, length: usize) {
        let Passage { arrived, client, wire, direction } = passage;
        self.counters[direction.index()].hold(wire);
        let held = Held { arrived, client, wire, buffer, length: length as u32, direction, node: 0, link: 0 };
        match onward {
            Onward::Departs(due) => self.wheel.push(arrived, due, held),
            Onward::Enters => self.enter(held),
        }
    }

    /// A packet enters the first link on its way, where that is a special one.
    #[inline(never)]
    fn enter(&mut self, held: Held) {
        let link = self.links.first(held.client, held.direction);
        self.travel(held.arrived, held.arrived, Held { link, ..held });
    }

    /// Ends the departure that was polled last, if there is one: written at the moment given, or refused.
    #[inline]
    fn finish_writing(&mut self, written: Option<Timestamp>) {
        let Some(Writing { due, held }) = self.writing.take() else { return };
        if let Some(now) = written {
            self.lateness.record(due, now);
        }
        self.let_go(held, if written.is_some() { None } else { Some(DropCause::Malformed) });
    }

    /// A packet is on its way no more: delivered, or dropped.
    #[inline]
    fn let_go(&mut self, held: Held, dropped: Option<DropCause>) {
        self.pool.release(held.buffer);
        let counters = &mut self.counters[held.direction.index()];
        counters.let_go(held.wire);
        match dropped {
            None => counters.deliver(held.wire),
            Some(cause) => counters.drop(cause, held.wire),
        }
    }
}
