//! The way of packets over special links: from effect to effect, each at its computed time.
//!
//! ```text
//!   accepted  --> travel ----> next effect .. last effect ----> wheel, until due ----> polled
//!                  ^  `- must wait for its time -----> events --.
//!                  |  `- waits in a queue ---> queue's event ---|
//!                  `--------------- when due -------------------'
//! ```
//!
//! Events happen in order of their computed times, before any packet that arrives or is polled later. So the fate of a
//! packet does not depend on how late the machine processes it.

use schema::DropCause;
use units::{Bytes, Timestamp};

use super::{Network, PacketInTransit};
use crate::effect::Step;
use crate::queue::Outcome;
use crate::wheel::Wheel;

/// An event at a computed time inside the path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A packet reaches its next effect.
    Reaches(PacketInTransit),
    /// The queue of this number has an event, unless its next event has changed since.
    Queue(u32),
}

impl Network {
    /// Processes all events due inside the path at `now` or before.
    #[inline]
    pub(super) fn advance(&mut self, now: Timestamp) {
        if let Some(events) = &self.events
            && events.next_due().is_some_and(|due| due <= now)
        {
            self.advance_events(now);
        }
    }

    #[inline(never)]
    fn advance_events(&mut self, now: Timestamp) {
        while let Some((due, event)) = self.events.as_mut().and_then(|events| events.pop(now)) {
            match event {
                Event::Reaches(packet) => self.travel(due, due, packet),
                Event::Queue(queue) => self.advance_queue(due, queue),
            }
        }
    }

    /// Moves a packet on from its position, which it reaches at `at`; the present time is `now`.
    pub(super) fn travel(&mut self, now: Timestamp, mut at: Timestamp, mut packet: PacketInTransit) {
        loop {
            let link = self.links.special(packet.client, packet.direction, packet.link);
            let index = usize::from(packet.node);
            if index == 0 && link.state(self.start, at).is_out {
                self.remove_from_transit(packet, Some(DropCause::Outage));
                return;
            }
            let Some(node) = link.nodes.get(index) else {
                let Some(next) = self.links.after(packet.client, packet.direction, packet.link) else {
                    self.wheel.push(now, at, packet);
                    return;
                };
                (packet.link, packet.node) = (next, 0);
                if at > now {
                    self.schedule(now, at, Event::Reaches(packet));
                    return;
                }
                continue;
            };
            if at > now && !node.is_ahead {
                self.schedule(now, at, Event::Reaches(packet));
                return;
            }
            let step = link.handle(index, at, Bytes(u64::from(packet.wire.bytes)), self.start);
            packet.node += 1;
            match step {
                Step::Leaves(later) => at = later,
                Step::Reordered(later) => {
                    self.counters[packet.direction.index()].reordered += u64::from(packet.wire.packets);
                    at = later;
                }
                Step::Altered(mut draw) => {
                    let frame = self.pool.bytes_mut(packet.buffer, packet.length as usize);
                    if link.alter(index, frame, &mut draw) {
                        self.counters[packet.direction.index()].corrupted += u64::from(packet.wire.packets);
                    }
                }
                Step::Duplicated => {
                    let copy = self.duplicate(packet);
                    self.travel(now, at, packet);
                    if let Some(copy) = copy {
                        self.travel(now, at, copy);
                    }
                    return;
                }
                Step::Queued(queue) => {
                    self.offer(at, queue, packet);
                    return;
                }
                Step::Dropped(cause) => {
                    self.remove_from_transit(packet, Some(cause));
                    return;
                }
            }
        }
    }

    /// A copy of `packet`, if there is memory for it.
    fn duplicate(&mut self, packet: PacketInTransit) -> Option<PacketInTransit> {
        let buffer = self.pool.duplicate(packet.buffer, packet.length as usize);
        let counters = &mut self.counters[packet.direction.index()];
        counters.duplicate(packet.wire);
        let Some(buffer) = buffer else {
            counters.overflow(packet.wire);
            return None;
        };
        counters.enter_transit(packet.wire);
        Some(PacketInTransit { buffer, ..packet })
    }

    fn offer(&mut self, at: Timestamp, number: u32, packet: PacketInTransit) {
        let queue = &mut self.queues[number as usize];
        let before = queue.next();
        match queue.offer(at.as_nanos(), packet, packet.wire.bytes, self.start) {
            Ok(()) => self.schedule_queue_event(at, number, before),
            Err((packet, cause)) => self.remove_from_transit(packet, Some(cause)),
        }
    }

    fn advance_queue(&mut self, due: Timestamp, number: u32) {
        let queue = &mut self.queues[number as usize];
        if queue.next() != Some(due.as_nanos()) {
            return;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        queue.advance(due.as_nanos(), self.start, &mut |packet, outcome| outbox.push((packet, outcome)));
        self.schedule_queue_event(due, number, None);
        for (packet, outcome) in outbox.drain(..) {
            match outcome {
                Outcome::Leaves(at) => self.travel(due, Timestamp::from_nanos(at), packet),
                Outcome::Dropped(cause) => self.remove_from_transit(packet, Some(cause)),
            }
        }
        self.outbox = outbox;
    }

    /// Schedules the queue's next event, unless it was already `before`.
    fn schedule_queue_event(&mut self, now: Timestamp, number: u32, before: Option<u64>) {
        let next = self.queues[number as usize].next();
        if let Some(next) = next.filter(|_| next != before) {
            self.schedule(now, Timestamp::from_nanos(next), Event::Queue(number));
        }
    }

    /// The start of changes, series and traces is set or changed: queues recompute their next event.
    pub(super) fn restart_queues(&mut self) {
        for number in 0..self.queues.len() {
            let before = self.queues[number].next();
            self.queues[number].restart(self.start);
            self.schedule_queue_event(Timestamp::ZERO, number as u32, before);
        }
    }

    /// Drops everything that waits inside the path.
    pub(super) fn drop_waiting_packets(&mut self) {
        while let Some((_, event)) = self.events.as_mut().and_then(|events| events.pop(Timestamp::MAX)) {
            if let Event::Reaches(packet) = event {
                self.remove_from_transit(packet, Some(DropCause::Shutdown));
            }
        }
        let mut queues = std::mem::take(&mut self.queues);
        for packet in queues.iter_mut().flat_map(|queue| queue.drain()) {
            self.remove_from_transit(packet, Some(DropCause::Shutdown));
        }
        self.queues = queues;
    }

    fn schedule(&mut self, now: Timestamp, at: Timestamp, event: Event) {
        self.events.get_or_insert_with(Wheel::new).push(now, at, event);
    }
}
