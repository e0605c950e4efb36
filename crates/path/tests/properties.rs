//! What must hold for any clients and any traffic.

#[path = "common/frames.rs"]
mod frames;

use std::collections::HashMap;
use std::time::Duration;

use frames::{datagram, super_packet};
use ledger::Direction;
use path::{AddressPlan, Bottleneck, ClientPath, EffectSpec, LinkSpec, Network, PathSpec, Queue, QueueLimit, RateSpec};
use proptest::prelude::*;
use units::{BitRate, Bytes, Limit, Probability, Timestamp};

/// One frame handed in: after a pause, for a client, of a size.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    pause_ns: u64,
    client: u32,
    direction: Direction,
    bytes: usize,
    is_super: bool,
}

/// One departure, as far as it can be told apart from others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    client: u32,
    direction: Direction,
    due: Timestamp,
    arrived: Timestamp,
    frame: Vec<u8>,
}

fn link() -> impl Strategy<Value = LinkSpec> {
    let delay = prop_oneof![Just(0u64), 0u64..1_000_000, 0u64..2_000_000_000];
    let variation = prop_oneof![2 => Just(0u64), 1 => 0u64..5_000_000];
    let rate = prop_oneof![Just(None), (100_000u64..1_000_000_000).prop_map(Some)];
    let queue = prop_oneof![
        (0u64..100_000).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (0u64..300).prop_map(|ms| QueueLimit::Time(Duration::from_millis(ms))),
    ];
    let loss = prop_oneof![Just(0.0), 0.0f64..0.3];
    (delay, variation, rate, queue, loss).prop_map(|(delay, variation, rate, limit, loss)| {
        let mut link = LinkSpec::constant(Duration::from_nanos(delay));
        link.put(EffectSpec::Variation(Duration::from_nanos(variation)));
        link.put(EffectSpec::Loss(Probability::new(loss).unwrap()));
        if let Some(rate) = rate.and_then(BitRate::from_bits_per_second) {
            let queue = Queue { limit, ..Queue::default() };
            link.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
        }
        link
    })
}

fn clients() -> impl Strategy<Value = Vec<ClientPath>> {
    prop::collection::vec((link(), link()).prop_map(|(up, down)| ClientPath { up, down }), 1..6)
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let pause = prop_oneof![Just(0u64), 0u64..100_000, 0u64..20_000_000];
    let arrival = (pause, 0u32..6, any::<bool>(), 28usize..20_000, any::<bool>()).prop_map(
        |(pause_ns, client, up, bytes, is_super)| Arrival {
            pause_ns,
            client,
            direction: if up { Direction::Up } else { Direction::Down },
            bytes,
            is_super,
        },
    );
    prop::collection::vec(arrival, 1..150)
}

fn frame(plan: &AddressPlan, number: usize, arrival: &Arrival) -> Vec<u8> {
    let client = arrival.client % plan.clients;
    if arrival.is_super {
        super_packet(plan, client, arrival.direction, arrival.bytes, 1460)
    } else {
        datagram(plan, client, arrival.direction, arrival.bytes.min(1500), number as u32)
    }
}

/// Runs the traffic with a reader that is never late; checks the books after every step.
fn run(clients: &[ClientPath], arrivals: &[Arrival], seed: u64) -> (Vec<Seen>, Network) {
    let plan = AddressPlan::new(clients.len() as u32).unwrap();
    let mut network = Network::new(plan, &PathSpec::new(clients.to_vec()), seed);
    let mut seen = Vec::new();
    let mut now = Timestamp::from_nanos(1_000_000);
    for (number, arrival) in arrivals.iter().enumerate() {
        let next = now + Duration::from_nanos(arrival.pause_ns);
        drain(&mut network, next, &mut seen);
        now = next;
        network.handle_packet(now, arrival.direction, &frame(&plan, number, arrival));
        assert_conserved(&network);
    }
    drain(&mut network, Timestamp::MAX, &mut seen);
    (seen, network)
}

/// Takes everything due up to `until`, each at its own moment.
fn drain(network: &mut Network, until: Timestamp, seen: &mut Vec<Seen>) {
    while let Some(due) = network.next_due().filter(|&due| due <= until) {
        let departure = network.poll_due(due).expect("the next due is exact");
        assert_eq!(departure.due, due);
        seen.push(Seen {
            client: departure.client,
            direction: departure.direction,
            due,
            arrived: departure.arrived,
            frame: departure.frame.to_vec(),
        });
        assert_conserved(network);
        network.handle_written(due);
    }
}

fn assert_conserved(network: &Network) {
    for direction in Direction::BOTH {
        let c = network.counters(direction);
        assert_eq!(c.accepted, c.delivered + c.dropped_in_all() + c.held, "{c:?}");
        assert_eq!(c.accepted_bytes, c.delivered_bytes + c.dropped_bytes + c.held_bytes, "{c:?}");
    }
}

proptest! {
    /// Nothing is lost from the books, early, out of order on its link, or faster than its link's rate.
    #[test]
    fn packets_keep_their_delay_order_and_rate(clients in clients(), arrivals in arrivals(), seed: u64) {
        let (seen, network) = run(&clients, &arrivals, seed);
        for direction in Direction::BOTH {
            let counters = network.counters(direction);
            prop_assert_eq!((counters.held, counters.held_bytes, counters.overflowed), (0, 0, 0));
        }
        prop_assert!(seen.is_sorted_by_key(|departure| departure.due));
        let mut last: HashMap<(u32, usize), (Timestamp, Timestamp)> = HashMap::new();
        for departure in &seen {
            let path = &clients[departure.client as usize];
            let link = if departure.direction == Direction::Up { &path.up } else { &path.down };
            let shortest = link.delay().saturating_sub(link.variation());
            let bytes = departure.frame.len() as u64 - 10;
            let sending = match link.rate() {
                Limit::At(rate) => Duration::from_nanos(rate.nanos_for(Bytes(bytes), 0).0),
                Limit::Unlimited => Duration::ZERO,
            };
            prop_assert!(departure.due >= departure.arrived + shortest + sending);
            let key = (departure.client, departure.direction.index());
            if let Some((due, arrived)) = last.insert(key, (departure.due, departure.arrived)) {
                prop_assert!(arrived <= departure.arrived, "overtaken");
                if link.variation().is_zero() && link.rate().value().is_some() {
                    // Behind the bottleneck packets are at least their own sending time apart (rounding: 1 ns).
                    prop_assert!(due + sending <= departure.due + Duration::from_nanos(1));
                }
            }
        }
    }

    /// The same seed gives the same departures; and those of one client are the same without the others' traffic.
    #[test]
    fn a_seed_repeats_a_run_and_clients_do_not_disturb_one_another(
        clients in clients(), arrivals in arrivals(), seed: u64,
    ) {
        let (seen, _) = run(&clients, &arrivals, seed);
        prop_assert_eq!(&seen, &run(&clients, &arrivals, seed).0);
        let mut alone = arrivals.clone();
        let mut skipped_ns = 0;
        alone.retain_mut(|arrival| {
            arrival.pause_ns += std::mem::take(&mut skipped_ns);
            let keep = arrival.client % clients.len() as u32 == 0;
            if !keep {
                skipped_ns = arrival.pause_ns;
            }
            keep
        });
        let ours = |seen: &[Seen]| -> Vec<(Direction, Timestamp, Timestamp, usize)> {
            let ours = seen.iter().filter(|departure| departure.client == 0);
            ours.map(|d| (d.direction, d.due, d.arrived, d.frame.len())).collect()
        };
        prop_assert_eq!(ours(&seen), ours(&run(&clients, &alone, seed).0));
    }

    /// A seed is one of many: with loss on every packet, two seeds do not lose the same ones.
    #[test]
    fn another_seed_is_another_run(seed: u64) {
        let mut path = ClientPath::constant(Duration::from_millis(1));
        path.up.put(EffectSpec::Loss(Probability::new(0.5).unwrap()));
        let arrival = Arrival { pause_ns: 1000, client: 0, direction: Direction::Up, bytes: 100, is_super: false };
        let clients = [path];
        let lost = |seed: u64| run(&clients, &[arrival; 128], seed).0;
        prop_assert_ne!(lost(seed), lost(seed.wrapping_add(1)));
    }

    /// Any bytes may be handed in.
    #[test]
    fn any_frame_is_accounted_for(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<bool>(), any::<bool>()), 1..40),
    ) {
        let plan = AddressPlan::new(2).unwrap();
        let mut path = ClientPath::constant(Duration::from_millis(1));
        path.down.put(EffectSpec::Loss(Probability::new(0.1).unwrap()));
        let mut network = Network::new(plan, &PathSpec::new(vec![path; 2]), 3);
        for (mut bytes, up, dress) in frames {
            let direction = if up { Direction::Up } else { Direction::Down };
            if dress && bytes.len() >= 38 {
                // Headers that get past the first checks.
                let dressed = datagram(&plan, 1, direction, bytes.len() - 10, 0);
                bytes[10] = 0x45;
                bytes[12..14].copy_from_slice(&dressed[12..14]);
                bytes[22..30].copy_from_slice(&dressed[22..30]);
                bytes[1] %= 6;
            }
            network.handle_packet(Timestamp::ZERO, direction, &bytes);
            assert_conserved(&network);
        }
        while network.poll_due(Timestamp::MAX).is_some() {
            network.handle_written(Timestamp::MAX);
        }
        assert_conserved(&network);
    }
}
