//! A path under test: packets offered at given times, and their departures.
#![allow(dead_code, reason = "each test file is a crate of its own and takes what it needs")]

use std::time::Duration;

use path::{
    AddressPlan, Bottleneck, ClientPath, Discipline, EffectSpec, LinkSpec, Network, PathSpec, Propagation, Queue,
    QueueLimit, RateSpec,
};
use schema::Direction;
use units::{BitRate, Probability, Timestamp};

use crate::frames::{datagram, mark};

pub fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn chance(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

/// A bottleneck of `bytes` per millisecond, with a queue of an hour.
pub fn bytes_a_ms(bytes: u64) -> EffectSpec {
    bottleneck(bytes, QueueLimit::Time(Duration::from_secs(3600)), Discipline::DropTail)
}

pub fn bottleneck(bytes_a_ms: u64, limit: QueueLimit, discipline: Discipline) -> EffectSpec {
    let rate = RateSpec::Constant(BitRate::from_bits_per_second(bytes_a_ms * 8_000).unwrap());
    EffectSpec::Bottleneck(Bottleneck { rate, queue: Queue { limit, discipline } })
}

/// A client with these effects in this order on the way up, then `delay`; its way down has no effects.
pub fn upward(effects: Vec<EffectSpec>, delay: Duration) -> ClientPath {
    ClientPath { up: LinkSpec { propagation: Propagation::Constant(delay), effects }, down: LinkSpec::default() }
}

/// A path and the packets that left it: (mark, due in nanoseconds, client).
pub struct TestPath {
    pub network: Network,
    pub plan: AddressPlan,
    pub departed: Vec<DepartedPacket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartedPacket {
    pub mark: u32,
    pub due: u64,
    pub client: u32,
}

impl TestPath {
    pub fn new(path: &PathSpec) -> Self {
        TestPath::seeded(path, 1)
    }

    pub fn seeded(path: &PathSpec, seed: u64) -> Self {
        let plan = AddressPlan::new(path.clients.len() as u32).unwrap();
        TestPath { network: Network::new(plan, path, seed), plan, departed: Vec::new() }
    }

    /// One client with these effects on the way up.
    pub fn up(effects: Vec<EffectSpec>, delay: Duration) -> Self {
        TestPath::new(&PathSpec::new(vec![upward(effects, delay)]))
    }

    /// A packet of `length` IP bytes arrives at `now`.
    pub fn send(&mut self, now: u64, client: u32, direction: Direction, length: usize, mark: u32) {
        let frame = datagram(&self.plan, client, direction, length, mark);
        self.network.handle_packet(at(now), direction, &frame);
    }

    /// Client 0 sends up a packet of 1000 bytes.
    pub fn send_up(&mut self, now: u64, mark: u32) {
        self.send(now, 0, Direction::Up, 1000, mark);
    }

    /// Takes all packets due at `until` or before, each at its due time.
    pub fn run_until(&mut self, until: u64) {
        while let Some(due) = self.network.next_due().filter(|due| due.as_nanos() <= until) {
            // An internal event returns no packet.
            let Some(departure) = self.network.poll_due(due) else { continue };
            assert_eq!(departure.due, due);
            self.departed.push(DepartedPacket {
                mark: mark(departure.frame),
                due: due.as_nanos(),
                client: departure.client,
            });
            self.network.handle_written(due);
        }
    }

    /// Takes all remaining packets.
    pub fn finish(&mut self) -> &[DepartedPacket] {
        self.run_until(u64::MAX);
        self.assert_conserved();
        for direction in Direction::BOTH {
            assert_eq!(self.network.counters(direction).in_transit, 0);
        }
        &self.departed
    }

    /// (mark, due) of all packets that left, in order.
    pub fn dues(&mut self) -> Vec<(u32, u64)> {
        self.finish().iter().map(|packet| (packet.mark, packet.due)).collect()
    }

    pub fn assert_conserved(&self) {
        assert_conserved(&self.network);
    }
}

/// accepted + duplicated = delivered + dropped + in transit, packets and bytes.
pub fn assert_conserved(network: &Network) {
    for direction in Direction::BOTH {
        let c = network.counters(direction);
        assert_eq!(c.accepted + c.duplicated, c.delivered + c.dropped_in_all() + c.in_transit, "{c:?}");
        assert_eq!(
            c.accepted_bytes + c.duplicated_bytes,
            c.delivered_bytes + c.dropped_bytes + c.in_transit_bytes,
            "{c:?}"
        );
    }
}
