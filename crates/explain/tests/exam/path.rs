//! The path: a FIFO bottleneck downward, propagation both ways, loss and reordering of the response's packets.

use explain::PathRecord;
use schema::Direction;
use stats::Rng;
use units::{Probability, Timestamp};

use crate::sim::Segment;
use crate::world::World;

/// The state of the path.
pub struct Path {
    busy_until: u64,
    loss: Rng,
    reordering: Rng,
    last_lost: bool,
    jitter: Rng,
    latest: [u64; 2],
    /// What happened to each packet.
    pub records: Vec<PathRecord>,
}

impl Path {
    pub fn new(seed: u64) -> Path {
        Path {
            busy_until: 0,
            loss: Rng::named(seed, "loss"),
            reordering: Rng::named(seed, "reordering"),
            last_lost: false,
            jitter: Rng::named(seed, "jitter"),
            latest: [0, 0],
            records: Vec::new(),
        }
    }

    /// When a packet that enters at `now` is delivered; `None` if it is lost.
    pub fn send(&mut self, world: &World, now: u64, segment: &Segment) -> Option<u64> {
        let mut record = PathRecord {
            entered_at: Timestamp::from_nanos(now),
            direction: segment.direction,
            sequence: segment.sequence as u32,
            acknowledgement: segment.ack as u32,
            length: segment.length as u32,
            queue_ns: 0,
            shared_queue_ns: 0,
            serialisation_ns: 0,
            propagation_ns: world.rtt / 2,
            reordering_ns: 0,
            dropped: false,
        };
        if segment.direction == Direction::Down {
            let head = now + world.shared_queue;
            let start = head.max(self.busy_until);
            record.shared_queue_ns = world.shared_queue;
            record.queue_ns = start - head;
            record.serialisation_ns = world.rate.map_or(0, |rate| (segment.length + 52) * 8_000_000_000 / rate);
            self.busy_until = start + record.serialisation_ns;
        }
        let lost = self.loss.chance(probability(world.loss));
        let late = self.reordering.chance(probability(world.reordering));
        if segment.of_response {
            let is_last = world.lose_last && segment.is_last && !self.last_lost;
            self.last_lost |= is_last;
            record.dropped = lost || is_last;
            record.reordering_ns = if late { world.reordering_delay } else { 0 };
        }
        if world.noise {
            // In order: no packet is propagated before the one sent before it.
            let before = record.queue_ns + record.shared_queue_ns + record.serialisation_ns;
            let earliest = self.latest[segment.direction.index()].saturating_sub(now + before);
            record.propagation_ns = (record.propagation_ns + self.jitter.below(world.rtt / 50 + 1)).max(earliest);
            self.latest[segment.direction.index()] = now + before + record.propagation_ns;
        }
        self.records.push(record);
        let total = record.queue_ns + record.shared_queue_ns + record.serialisation_ns + record.propagation_ns;
        (!record.dropped).then(|| now + total + record.reordering_ns)
    }
}

fn probability(value: f64) -> Probability {
    Probability::new(value).expect("between 0 and 1")
}
