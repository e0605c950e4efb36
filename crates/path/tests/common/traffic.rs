//! Random traffic, and its result.
#![allow(dead_code, reason = "each test file is a crate of its own and takes what it needs")]

use std::time::Duration;

use path::{AddressPlan, Network, PathSpec};
use proptest::prelude::*;
use schema::Direction;
use units::Timestamp;

use crate::frames::{datagram, super_packet, super_packet_v6};

/// One frame: after a pause, for a client, of a size.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub pause_ns: u64,
    pub client: u32,
    pub direction: Direction,
    pub bytes: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Datagram,
    Super,
    SuperV6,
}

/// One departure, with everything that distinguishes it from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedDeparture {
    pub due: Timestamp,
    pub client: u32,
    pub direction: usize,
    pub arrived: Timestamp,
    pub frame: Vec<u8>,
}

pub fn arrivals(clients: u32) -> impl Strategy<Value = Vec<Arrival>> {
    let pause = prop_oneof![Just(0u64), 0u64..100_000, 0u64..20_000_000];
    let kind = prop_oneof![3 => Just(Kind::Datagram), 1 => Just(Kind::Super), 1 => Just(Kind::SuperV6)];
    let arrival =
        (pause, 0..clients, any::<bool>(), 28usize..12_000, kind).prop_map(|(pause_ns, client, up, bytes, kind)| {
            Arrival { pause_ns, client, direction: if up { Direction::Up } else { Direction::Down }, bytes, kind }
        });
    prop::collection::vec(arrival, 1..150)
}

pub fn frame(plan: &AddressPlan, number: usize, arrival: &Arrival) -> Vec<u8> {
    let client = arrival.client % plan.clients;
    match arrival.kind {
        Kind::Super => super_packet(plan, client, arrival.direction, arrival.bytes, 1460),
        Kind::SuperV6 => super_packet_v6(plan, client, arrival.direction, arrival.bytes, 1440),
        Kind::Datagram => datagram(plan, client, arrival.direction, arrival.bytes.min(1500), number as u32),
    }
}

/// Behaviour of the loop around the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopBehavior {
    /// Polls only after this number of arrivals; 0 or 1: polls whenever a packet is due, exactly then.
    pub every: usize,
    /// Beginning of the measured phase, and the arrival before which it is set.
    pub start: Option<(Timestamp, usize)>,
}

/// Runs the traffic; checks packet conservation after every step.
pub fn run(
    path: &PathSpec,
    arrivals: &[Arrival],
    seed: u64,
    behavior: LoopBehavior,
) -> (Vec<ObservedDeparture>, Network) {
    let plan = AddressPlan::new(path.clients.len() as u32).unwrap();
    let mut network = Network::new(plan, path, seed);
    let mut observed = Vec::new();
    let mut now = Timestamp::from_nanos(1_000_000);
    for (number, arrival) in arrivals.iter().enumerate() {
        now += Duration::from_nanos(arrival.pause_ns);
        match behavior.every {
            0 | 1 => drain(&mut network, now, &mut observed),
            every if number % every == 0 => drain_late(&mut network, now, &mut observed),
            _ => {}
        }
        if let Some((start, _)) = behavior.start.filter(|&(_, before)| before == number) {
            network.set_start(start.max(now));
        }
        network.handle_packet(now, arrival.direction, &frame(&plan, number, arrival));
        assert_conserved(&network);
    }
    match behavior.every {
        0 | 1 => drain(&mut network, Timestamp::MAX, &mut observed),
        _ => drain_late(&mut network, Timestamp::MAX, &mut observed),
    }
    assert_eq!(network.next_due(), None);
    (observed, network)
}

/// Takes all packets due up to `until`, each at its due time.
fn drain(network: &mut Network, until: Timestamp, observed: &mut Vec<ObservedDeparture>) {
    while let Some(due) = network.next_due().filter(|&due| due <= until) {
        match network.poll_due(due) {
            Some(departure) => {
                assert_eq!(departure.due, due, "next_due is not exact");
                observe(departure, observed);
                assert_conserved(network);
                network.handle_written(due);
            }
            None => {
                assert!(network.next_due().is_none_or(|next| next > due), "an internal event is still due");
            }
        }
    }
}

/// Takes all packets due up to `until`, late.
fn drain_late(network: &mut Network, until: Timestamp, observed: &mut Vec<ObservedDeparture>) {
    while let Some(departure) = network.poll_due(until) {
        observe(departure, observed);
        assert_conserved(network);
        network.handle_written(until);
    }
}

fn observe(departure: path::Departure<'_>, observed: &mut Vec<ObservedDeparture>) {
    observed.push(ObservedDeparture {
        due: departure.due,
        client: departure.client,
        direction: departure.direction.index(),
        arrived: departure.arrived,
        frame: departure.frame.to_vec(),
    });
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
