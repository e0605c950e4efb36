//! Invariants of plain links under any traffic, and of any bytes on any link.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/traffic.rs"]
mod traffic;

use std::collections::HashMap;
use std::time::Duration;

use frames::datagram;
use path::{
    AddressPlan, Bottleneck, ClientPath, EffectSpec, LinkSpec, Network, PathSpec, Queue, QueueLimit, RateSpec, Reorder,
};
use proptest::prelude::*;
use schema::Direction;
use traffic::{Arrival, Kind, LoopBehavior, arrivals, assert_conserved, run};
use units::{BitRate, Bytes, Limit, Probability, Timestamp};

/// A plain link: loss, a constant rate, jitter, a delay.
fn link() -> impl Strategy<Value = LinkSpec> {
    let delay = prop_oneof![Just(0u64), 0u64..1_000_000, 0u64..2_000_000_000];
    let jitter = prop_oneof![2 => Just(0u64), 1 => 0u64..5_000_000];
    let rate = prop_oneof![Just(None), (100_000u64..1_000_000_000).prop_map(Some)];
    let queue = prop_oneof![
        (0u64..100_000).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (0u64..300_000).prop_map(|us| QueueLimit::Time(Duration::from_micros(us))),
    ];
    let loss = prop_oneof![2 => Just(0.0), 1 => 0.0f64..1.0];
    (delay, jitter, rate, queue, loss).prop_map(|(delay, jitter, rate, limit, loss)| {
        let mut link = LinkSpec::constant(Duration::from_nanos(delay));
        link.put(EffectSpec::Jitter(Duration::from_nanos(jitter)));
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

proptest! {
    /// No packet is unaccounted for, early, out of order on its link, or faster than its link's rate.
    #[test]
    fn plain_links_keep_delay_order_and_rate(clients in clients(), arrivals in arrivals(6), seed: u64) {
        let path = PathSpec::new(clients);
        let (observed, network) = run(&path, &arrivals, seed, LoopBehavior::default());
        for direction in Direction::BOTH {
            let counters = network.counters(direction);
            prop_assert_eq!((counters.in_transit, counters.in_transit_bytes, counters.overflowed), (0, 0, 0));
        }
        prop_assert!(observed.is_sorted_by_key(|departure| departure.due));
        let mut last: HashMap<(u32, usize), (Timestamp, Timestamp)> = HashMap::new();
        for departure in &observed {
            let client = &path.clients[departure.client as usize];
            let link = [&client.up, &client.down][departure.direction];
            let shortest = link.delay().saturating_sub(link.jitter());
            let bytes = departure.frame.len() as u64 - 10;
            let sending = match link.rate() {
                Limit::At(rate) => Duration::from_nanos(rate.nanos_for(Bytes(bytes), 0).0),
                Limit::Unlimited => Duration::ZERO,
            };
            prop_assert!(departure.due >= departure.arrived + shortest + sending);
            let key = (departure.client, departure.direction);
            if let Some((due, arrived)) = last.insert(key, (departure.due, departure.arrived)) {
                prop_assert!(arrived <= departure.arrived, "a packet was overtaken");
                if link.jitter().is_zero() && link.rate().value().is_some() {
                    // Behind the bottleneck packets are at least their own sending time apart (rounding: 1 ns).
                    prop_assert!(due + sending <= departure.due + Duration::from_nanos(1));
                }
            }
        }
    }

    /// The seed matters: with loss on every packet, two seeds do not lose the same packets.
    #[test]
    fn different_seeds_lose_different_packets(seed: u64) {
        let mut path = ClientPath::constant(Duration::from_millis(1));
        path.up.put(EffectSpec::Loss(Probability::new(0.5).unwrap()));
        let arrival =
            Arrival { pause_ns: 1000, client: 0, direction: Direction::Up, bytes: 100, kind: Kind::Datagram };
        let path = PathSpec::new(vec![path]);
        let lost = |seed: u64| run(&path, &[arrival; 128], seed, LoopBehavior::default()).0;
        prop_assert_ne!(lost(seed), lost(seed.wrapping_add(1)));
    }

    /// Any bytes are accepted, also by effects that parse them.
    #[test]
    fn frames_of_any_bytes_are_conserved(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<bool>(), 0u8..3), 1..40),
    ) {
        let plan = AddressPlan::new(2).unwrap();
        let mut path = ClientPath::constant(Duration::from_millis(1));
        path.down.put(EffectSpec::Loss(Probability::new(0.1).unwrap()));
        let half = Probability::new(0.5).unwrap();
        let reorder = Reorder { probability: half, by: Duration::from_millis(1) };
        for effect in [EffectSpec::Corrupt(half), EffectSpec::Duplicate(half), EffectSpec::Reorder(reorder)] {
            path.up.put(effect);
        }
        let mut network = Network::new(plan, &PathSpec::new(vec![path; 2]), 3);
        for (mut bytes, up, dress) in frames {
            let direction = if up { Direction::Up } else { Direction::Down };
            if dress > 0 && bytes.len() >= 50 {
                // Headers that pass the first checks.
                let dressed = datagram(&plan, 1, direction, bytes.len() - 10, 0);
                bytes[10] = 0x45;
                bytes[12..14].copy_from_slice(&dressed[12..14]);
                bytes[22..30].copy_from_slice(&dressed[22..30]);
                bytes[1] %= 6;
                if dress == 2 {
                    bytes[10] = 0x60;
                    let payload = (bytes.len() - 50) as u16;
                    bytes[14..16].copy_from_slice(&payload.to_be_bytes());
                    let at = if up { 18 } else { 34 };
                    bytes[at..at + 16].copy_from_slice(&plan.address_v6(1).octets());
                }
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
